"""What holds in a project, and who said it; secrets are never part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from forge.core.errors import ToolError
from forge.core.secrets import Secrets
from forge.project.assemble.secrets import project_secrets
from forge.project.config.declaration import Configuration, keys_of
from forge.project.config.durable import without_password
from forge.project.config.key_paths import description_at

HIDDEN = "[not shown]"
_NONE: Mapping[str, Any] = MappingProxyType({})
_REFERENCE = re.compile(r"[^$]*\$\{\w+(:-[^}]*)?\}")


class Value(NamedTuple):
    place: str
    value: Any
    origin: str
    description: str = ""  # of the key, for whoever has to be told


def effective(configuration: Configuration, flags: Mapping[str, Any] = _NONE) -> list[Value]:
    """Every value, sorted by its place; `configuration` with its variables not looked up, `flags` by their places."""
    mask = _masking(configuration)
    keys = keys_of(type(configuration))
    found = {place: Value(place, one.unset, "defaults") for place, one in keys if one.unset is not None}
    for place, value in _places(configuration.document):
        shown = _hook(value) if place.startswith("webhooks.") else value
        found[place] = Value(
            place,
            mask(_shown(shown, place.rpartition(".")[2] if place == "durable.database" else "")),
            _origin(configuration, place),
        )
    if configuration.egress is not None:
        found["egress.mode"] = Value("egress.mode", configuration.egress.mode, _origin(configuration, "egress.mode"))
    for layer in configuration.layers:
        rules = (layer.document.get("permissions") or {}).get("rules")
        if rules:
            place = f"permissions.rules ({layer.kind})"
            found[place] = Value(place, mask(rules), layer.origin)
    found |= {place: Value(place, value, "a flag") for place, value in flags.items()}
    return [found[place]._replace(description=description_at(place, type(configuration))) for place in sorted(found)]


def nested(values: list[Value]) -> dict[str, Any]:
    """As JSON: sections, then keys or names. Rules by layer."""
    made: dict[str, Any] = {}
    for place, value, *_ in values:
        if place.startswith("permissions.rules"):
            made.setdefault("permissions", {}).setdefault("rules", {})[place.partition("(")[2].rstrip(")")] = value
            continue
        section, _, name = place.partition(".")
        if name:
            made.setdefault(section, {})[name] = value
        else:
            made[section] = value
    return made


def _places(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, value in document.items():
        if section == "permissions":
            continue
        if not isinstance(value, dict):
            yield section, "off" if value is False else value
        else:
            yield from ((f"{section}.{name}", one) for name, one in value.items())


def _origin(configuration: Configuration, place: str) -> str:
    origins = configuration.origins
    known = origins.get(place) or origins.get(place.partition(".")[0])
    return known or next((layer.origin for layer in configuration.layers if layer.kind == "project"), "defaults")


def _shown(value: Any, key: str = "") -> Any:
    """Without what may be a credential that somebody wrote down: references to variables stay."""
    if isinstance(value, dict):
        hides = key in ("env", "headers")
        return {
            name: (one if _is_reference(one) else HIDDEN) if hides else _shown(one, name) for name, one in value.items()
        }
    if isinstance(value, list):
        return [_shown(one, key) for one in value]
    if isinstance(value, str) and key == "database" and not _is_reference(value):
        return without_password(value)
    if isinstance(value, str) and key in ("spec", "url", "server", "api"):
        return re.sub(r"\?.*", f"?{HIDDEN}", value) if "?" in value and not _is_reference(value) else value
    return value


def _hook(value: Any) -> Any:
    """Whoever knows the whole URL of a webhook can use it."""
    if isinstance(value, dict):
        return {key: _hook(one) if key == "url" else one for key, one in value.items()}
    if not isinstance(value, str) or _is_reference(value):
        return value
    return re.sub(r"^(\w+://[^/?#]*)[/?#].+", rf"\1/{HIDDEN}", value, flags=re.DOTALL)


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _masking(configuration: Configuration) -> Any:
    try:
        secrets = project_secrets(configuration)
    except ToolError:  # one that is too short, or a file that cannot be read: doctor says so
        secrets = Secrets()

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            return secrets.mask_all(value)
        if isinstance(value, dict):
            return {key: mask(one) for key, one in value.items()}
        return [mask(one) for one in value] if isinstance(value, list) else value

    return mask
