"""Computes the sandbox or the egress that two settings both allow."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

SANDBOXES = ("off", "auto", "landlock", "required", "bubblewrap")  # by what is promised at least
MODES = ("open", "allowlist", "deny-all")


def stricter_sandbox(one: Any, other: Any) -> str:
    names = ["off" if said is False else str(said) for said in (one, other)]
    return max(names, key=lambda name: SANDBOXES.index(name) if name in SANDBOXES else -1)


def stricter_egress(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the common part. `open` without private addresses restricts nothing."""
    if not _restricts(one):
        return dict(other)
    if not _restricts(other):
        return {**one}
    mode = max(_mode(one), _mode(other), key=MODES.index)
    if mode == "deny-all":
        return {"mode": mode}
    lists = [said for said in (one, other) if _mode(said) == "allowlist"]
    domains = [said.get("domains", []) for said in lists]
    found: dict[str, Any] = {"mode": mode}
    if domains:
        found["domains"] = _both(*domains) if len(domains) == 2 else list(domains[0])
    private = [said.get("private", []) for said in (one, other)]
    if any(private):
        found["private"] = _both(*private)
    return found


def stricter_labels(above: Any, below: Any) -> dict[str, Any]:
    """Joins settings of labels: every entry counts, and labels stay on where the layer above says so."""
    one, other = _read_labels(above), _read_labels(below)
    found: dict[str, Any] = {}
    for key in ("untrusted", "trusted", "private"):
        if listed := [*one.get(key, []), *other.get(key, [])]:
            found[key] = [*dict.fromkeys(listed)]
    if "enabled" in one or "enabled" in other:
        found["enabled"] = one.get("enabled") is True or other.get("enabled", one.get("enabled", True))
    return found


def _read_labels(said: Any) -> dict[str, Any]:
    return {"enabled": said} if isinstance(said, bool) else dict(said)


def _mode(said: Mapping[str, Any]) -> str:
    return str(said.get("mode", "allowlist" if "domains" in said else "open"))


def _restricts(said: Mapping[str, Any]) -> bool:
    return _mode(said) != "open" or bool(said.get("private"))


def _both(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Returns the narrower of every two entries of which one covers the other."""
    found = [entry for entry in other if any(_covers(wider, entry) for wider in one)]
    found += [entry for entry in one if any(_covers(wider, entry) for wider in other)]
    return [*dict.fromkeys(found)]


def _covers(wider: str, narrower: str) -> bool:
    (host, port), (inner, inner_port) = _parts(wider), _parts(narrower)
    if port and port != inner_port:
        return False
    if host == inner:
        return True
    if host.startswith("*."):
        return inner.removeprefix("*").endswith(host[1:]) and inner.removeprefix("*.") != host[2:]
    try:
        outer, within = ipaddress.ip_network(host), ipaddress.ip_network(inner)
    except ValueError:
        return False
    return outer.version == within.version and within.subnet_of(outer)  # type: ignore[arg-type]


def _parts(entry: str) -> tuple[str, str]:
    """Returns the host, and the port if there is one: `host:1`, `[::1]:1`, `::1`."""
    text = entry.strip().lower()
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        length, _, port = rest.partition(":")
        return f"{host}{length}", port
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port
