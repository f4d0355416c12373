"""Merges the documents of several layers, each checked before: of two settings, what both allow."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forge.project.config.access import MODES
from forge.project.config.declaration import variables_set
from forge.project.config.reader import FROM_VARIABLE, document_schema
from forge.project.config_layers import Layer

_STRICTER = "the user or the organisation is stricter about its sandbox or network; the stricter setting applies"


class Merged(NamedTuple):
    document: dict[str, Any]
    origins: dict[str, str]  # of a key path, who said it
    files: dict[str, str]  # of a key path, the file
    notes: tuple[str, ...]  # values that a stricter layer overruled


def merge(layers: Mapping[str, Layer], environment: Mapping[str, str]) -> Merged:
    """Merges checked documents. `layers` are given by kind."""
    made = _LayerMerger()
    organisation, user, project = (layers.get(kind) for kind in ("organisation", "user", "project"))
    for layer in filter(None, (user, project)):
        made.lay(layer)
    said = variables_set(environment)
    for name, key_path in said.items():
        made.set_variable(key_path, _value(key_path, environment[name]), name)
    floors: dict[str, list[Layer]] = {}
    for key in ("egress", "sandbox", "trial"):
        now = any(key_path.partition(".")[0] == key for key_path in said.values())  # the person's latest setting
        above = (organisation, None if now or project is None else user)
        floors[key] = [one for one in above if one is not None and key in one.document]
        for layer in floors[key]:
            made.tighten(key, layer)
    if "tools" in made.document:
        of_project = project is not None and "tools" in project.document
        kinds = ("organisation", "user") if of_project else ("organisation",)
        made.document["tools"] = [_limit_tool(entry, floors, kinds, made.notes) for entry in made.document["tools"]]
    if "mcpServers" in made.document:
        own = project.document.get("mcpServers", {}) if project is not None else {}
        made.document["mcpServers"] = {
            name: _limit_server(
                name, entry, floors, ("organisation", "user") if name in own else ("organisation",), made.notes
            )
            for name, entry in made.document["mcpServers"].items()
        }
    if organisation is not None:
        made.deny_more(organisation)
        made.add_hooks(organisation)
        if "labels" in organisation.document:
            made.join_labels(organisation.document["labels"], organisation)
    return Merged(made.document, made.origins, made.files, tuple(made.notes))


class _LayerMerger:
    """Collects the merged document."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.notes: list[str] = []

    def lay(self, layer: Layer) -> None:
        """Puts a layer over the others. Relative paths in a user's file count from that file."""
        document = _rebase_paths(layer) if layer.kind == "user" else dict(layer.document)
        for key, value in document.items():
            if key == "guardrails":
                self.deny_more(layer)
            elif key == "hooks":
                self.add_hooks(layer)
            elif key == "secrets":
                listed = [*value, *self.document.get(key, [])]
                self.document[key] = [one for index, one in enumerate(listed) if one not in listed[:index]]
                self._note(key, layer)
            elif key == "skills":
                self._add_skills(value, layer)
            elif key == "labels":
                self.join_labels(value, layer)
            elif key in ("egress", "sandbox", "trial") and key in self.document:
                self.document[key], self.origins[key] = value, layer.origin  # tightened afterwards
                self.files[key] = layer.name
            elif _is_merged(key) and isinstance(value, dict):
                self.document[key] = {**self.document.get(key, {}), **value}
                for name in value:
                    self._note(f"{key}.{name}", layer)
            else:
                self.document[key] = value
                self._note(key, layer)

    def set_variable(self, key_path: str, value: Any, name: str) -> None:
        """Sets the value of an environment variable."""
        key, _, inner = key_path.partition(".")
        self.document[key] = {**self.document.get(key, {}), inner: value} if inner else value
        self.origins[key_path] = f"environment variable {name}"
        self.files[key_path] = f"{FROM_VARIABLE}{name}"

    def tighten(self, key: str, layer: Layer) -> None:
        """Applies a layer's sandbox, egress or trial if it is stricter than the current one."""
        least = layer.document[key]
        if key not in self.document:
            self.document[key] = least
            self._note(key, layer)
            return
        stricter: Any = {"sandbox": stricter_sandbox, "trial": stricter_trial}.get(key, stricter_egress)
        found = stricter(least, self.document[key])
        if found in (self.document[key], stricter(self.document[key], self.document[key])):
            return
        said = self.origins.pop(f"{key}.mode", None) or self.origins.get(key, "defaults")
        self.notes.append(f"{key}: the {layer.origin} is stricter than the {said}; the stricter setting applies")
        self.document[key] = found
        self._note(key, layer)

    def join_labels(self, value: Any, layer: Layer) -> None:
        """Adds a layer's settings of labels. Only the layer above can keep them on against the one below."""
        is_above = layer.kind == "organisation"
        before = self.document.get("labels", {})
        self.document["labels"] = stricter_labels(value, before) if is_above else stricter_labels(before, value)
        self._note("labels", layer)

    def deny_more(self, layer: Layer) -> None:
        self._join_lists("guardrails", layer)

    def add_hooks(self, layer: Layer) -> None:
        """Adds the hooks of a layer: none removes another's."""
        self._join_lists("hooks", layer)

    def _join_lists(self, section: str, layer: Layer) -> None:
        for key, entries in (layer.document.get(section) or {}).items():
            lists = self.document.setdefault(section, {})
            lists[key] = [*lists.get(key, []), *entries]
            self._note(f"{section}.{key}", layer)

    def _add_skills(self, value: Mapping[str, Any], layer: Layer) -> None:
        """Joins the skills of both layers: the project's come first."""
        before = self.document.get("skills", {})
        made: dict[str, Any] = {}
        for key, standard in (("paths", ["skills"]), ("active", [])):
            listed = [*_as_list(value.get(key, standard)), *_as_list(before.get(key, []))]
            made[key] = [*dict.fromkeys(listed)]
        self.document["skills"] = made
        self._note("skills", layer)

    def _note(self, key_path: str, layer: Layer) -> None:
        both = key_path in self.origins and key_path in ("labels", "secrets", "skills")
        both = both or (key_path in self.origins and key_path.startswith(("guardrails", "hooks")))
        self.origins[key_path] = f"{self.origins[key_path]} and {layer.origin}" if both else layer.origin
        self.files[key_path] = layer.name


def _is_merged(key: str) -> bool:
    """Returns whether layers are merged key by key. Rules are kept apart, an egress counts as a whole."""
    node = document_schema()["properties"][key]
    return node.get("type") == "object" and key not in ("egress", "permissions", "workspace")


def _value(key_path: str, said: str) -> Any:
    return int(said) if key_path == "limits.turns" and said.isdecimal() and len(said) < 15 else said


def _as_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def _rebase_paths(layer: Layer) -> dict[str, Any]:
    """Returns the document with paths that do not depend on the current directory."""
    document = {**layer.document}
    if "skills" in document:
        document["skills"] = {"paths": ["skills"], **document["skills"]}
    found: dict[str, Any] = _rebase(document_schema(), document, Path(layer.name).parent)
    return found


def _rebase(node: Mapping[str, Any], value: Any, parent: Path) -> Any:
    for one in (node, *node.get("anyOf", ()), node.get("else", {})):
        entries = one.get("additionalProperties")
        if isinstance(value, str) and one.get("format") in ("folder", "home-path", "path", "spec"):
            return _path(value, parent)
        if isinstance(value, list) and "items" in one:
            return [_rebase(one["items"], item, parent) for item in value]
        if isinstance(value, dict) and "properties" in one:
            return {name: _rebase(one["properties"].get(name, {}), item, parent) for name, item in value.items()}
        if isinstance(value, dict) and isinstance(entries, dict):
            return {name: _rebase(entries, item, parent) for name, item in value.items()}
    return value


def _path(path: str, parent: Path) -> str:
    return path if path.startswith(("/", "~", "$", "http://", "https://")) else str(parent / path)


def _limit_tool(entry: Any, floors: Mapping[str, list[Layer]], kinds: tuple[str, ...], notes: list[str]) -> Any:
    """Limits a tool's own sandbox or network to what the layers above allow."""
    config = entry.get("config") if isinstance(entry, dict) else None
    changed = _limit_program(config, floors, kinds) if config else None
    if changed is None:
        return entry
    notes.append(f"tools: {entry.get('name') or entry.get('group')}: {_STRICTER}")
    return {**entry, "config": changed}


def _limit_server(
    name: str, entry: Any, floors: Mapping[str, list[Layer]], kinds: tuple[str, ...], notes: list[str]
) -> Any:
    """Limits a server's own sandbox or network to what the layers above allow."""
    changed = _limit_program(entry, floors, kinds) if isinstance(entry, dict) else None
    if changed is not None:
        notes.append(f"mcpServers: {name}: {_STRICTER}")
    return entry if changed is None else changed


def _limit_program(
    said: Mapping[str, Any], floors: Mapping[str, list[Layer]], kinds: tuple[str, ...]
) -> dict[str, Any] | None:
    """Returns the settings that the layers above allow; None if they allow these."""
    changed = dict(said)
    above = {key: [layer for layer in floors[key] if layer.kind in kinds] for key in floors}
    for layer in above["sandbox"]:
        if changed.get("sandbox") is not None:
            changed["sandbox"] = stricter_sandbox(layer.document["sandbox"], changed["sandbox"])
    for layer in above["egress"]:
        egress = layer.document["egress"]
        if egress.get("mode", "allowlist" if "domains" in egress else "open") != "open" and changed.get("network"):
            changed["network"] = False
    stays = {key: "off" if one is False and key == "sandbox" else one for key, one in said.items()}
    return None if changed in (said, stays) else changed


# Computes the sandbox or the egress that two settings both allow.


_BY_STRICTNESS = ("off", "auto", "landlock", "required", "bubblewrap")  # sandboxes, by what is promised at least


def stricter_sandbox(one: Any, other: Any) -> str:
    names = ["off" if said is False else str(said) for said in (one, other)]
    return max(names, key=lambda name: _BY_STRICTNESS.index(name) if name in _BY_STRICTNESS else -1)


_TRIALS_BY_STRICTNESS = ("auto", "always", "off")  # with `off`, everything asks that no rule allows


def stricter_trial(one: Any, other: Any) -> str:
    names = ["off" if said is False else str(said) for said in (one, other)]
    return max(names, key=lambda name: _TRIALS_BY_STRICTNESS.index(name) if name in _TRIALS_BY_STRICTNESS else -1)


def stricter_egress(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the common part. `open` without private addresses restricts nothing; TLS is ended if either says so."""
    ending = _stricter_inspection(one, other)
    if not _restricts(one):
        return {**other, **ending}
    if not _restricts(other):
        return {**one, **ending}
    mode = max(_mode(one), _mode(other), key=MODES.index)
    if mode == "deny-all":
        return {"mode": mode, **ending}
    lists = [said for said in (one, other) if _mode(said) == "allowlist"]
    domains = [said.get("domains", []) for said in lists]
    found: dict[str, Any] = {"mode": mode}
    if domains:
        found["domains"] = _both(*domains) if len(domains) == 2 else list(domains[0])
    private = [said.get("private", []) for said in (one, other)]
    if any(private):
        found["private"] = _both(*private)
    return {**found, **ending}


def _stricter_inspection(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `inspect` and `pass`: a host is passed if all allow it that end TLS, or if none does and one names it."""
    ends = [said.get("pass", []) for said in (one, other) if said.get("inspect")]
    named = [*dict.fromkeys([*one.get("pass", []), *other.get("pass", [])])]
    passed = named if not ends else _both(*ends) if len(ends) == 2 else list(ends[0])
    return {"inspect": True, "pass": passed} if ends else {"pass": passed} if passed else {}


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
