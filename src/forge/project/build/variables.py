"""Which environment variables a project needs: found in what it wrote, so that no value is ever looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.models.names import SERVERS

READ_AT_ONCE = ("mcpServers", "openapi", "webhooks")  # their variables are needed to read the configuration at all
_SECTIONS = (*READ_AT_ONCE, "channels", "durable", "memory")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Named(NamedTuple):
    """A variable, and where it is named."""

    name: str
    place: str
    optional: bool = False


def variables(document: Mapping[str, Any]) -> list[Named]:
    """Of a whole forge.yaml, whatever else may be wrong with it."""
    found = [*_secrets(document.get("secrets"))]
    for section in _SECTIONS:
        entries = document.get(section)
        for key, entry in entries.items() if isinstance(entries, Mapping) else ():
            if not (isinstance(entry, Mapping) and entry.get("disabled") is True):
                found += _below(entry, f"{section}.{key}", str(key))
    return [*found, *_passed(document.get("tools"))]


def model_key(model: str) -> str:
    """The variable that holds the key of a model's provider; "" where none is needed or none is known."""
    prefix = model.removeprefix("text:").partition(":")[0].strip().lower()
    if prefix == "anthropic":
        return "ANTHROPIC_API_KEY"
    return SERVERS[prefix].key if prefix in SERVERS else ""


def _secrets(entries: Any) -> Iterator[Named]:
    """Names; what is kept in files is no variable."""
    for index, one in enumerate(entries if isinstance(entries, list) else ()):
        if _is_name(one):
            yield Named(one, f"secrets[{index}]")


def _below(value: Any, place: str, key: str) -> Iterator[Named]:
    if isinstance(value, str):
        if key.endswith("_env"):
            if _is_name(value):
                yield Named(value, place)
        elif not place.startswith(("channels", "memory")):  # `${NAME}` means nothing there
            for match in _VARIABLE.finditer(value):
                yield Named(match[1], place, match[2] is not None)
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _below(one, f"{place}.{inner}", key if key.endswith("_env") else str(inner))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _below(one, f"{place}[{index}]", "")


def _passed(tools: Any) -> Iterator[Named]:
    """What programs are allowed to see: they may do without."""
    for index, entry in enumerate(tools if isinstance(tools, list) else ()):
        config = entry.get("config") if isinstance(entry, Mapping) else None
        names = config.get("env_passthrough") if isinstance(config, Mapping) else None
        for name in names if isinstance(names, list) else ():
            if _is_name(name):
                yield Named(name, f"tools[{index}].config.env_passthrough", optional=True)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
