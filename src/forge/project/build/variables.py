"""Finds the environment variables that a project needs in its document; no value is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.models.names import SERVERS

READ_AT_ONCE = ("mcpServers", "openapi", "webhooks")  # their variables are needed to read the configuration
_SECTIONS = (*READ_AT_ONCE, "channels", "durable", "memory")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NamedVariable(NamedTuple):
    """A variable and the key path that names it."""

    name: str
    key_path: str
    optional: bool = False


def variables(document: Mapping[str, Any]) -> list[NamedVariable]:
    """Returns the variables of a forge.yaml, also of an invalid one."""
    found = [*_secrets(document.get("secrets"))]
    for section in _SECTIONS:
        entries = document.get(section)
        for key, entry in entries.items() if isinstance(entries, Mapping) else ():
            if not (isinstance(entry, Mapping) and entry.get("disabled") is True):
                found += _variables_below(entry, f"{section}.{key}", str(key))
    return [*found, *_passed_variables(document.get("tools"))]


def model_key(model: str) -> str:
    """Returns the variable with the key of a model's provider; empty if none is needed or known."""
    prefix = model.removeprefix("text:").partition(":")[0].strip().lower()
    if prefix == "anthropic":
        return "ANTHROPIC_API_KEY"
    return SERVERS[prefix].key if prefix in SERVERS else ""


def _secrets(entries: Any) -> Iterator[NamedVariable]:
    """Yields the names under `secrets`; secrets in files have no variable."""
    for index, one in enumerate(entries if isinstance(entries, list) else ()):
        if _is_name(one):
            yield NamedVariable(one, f"secrets[{index}]")


def _variables_below(value: Any, key_path: str, key: str) -> Iterator[NamedVariable]:
    if isinstance(value, str):
        if key.endswith("_env"):
            if _is_name(value):
                yield NamedVariable(value, key_path)
        elif not key_path.startswith(("channels", "memory")):  # `${NAME}` has no meaning there
            for match in _VARIABLE.finditer(value):
                yield NamedVariable(match[1], key_path, match[2] is not None)
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _variables_below(one, f"{key_path}.{inner}", key if key.endswith("_env") else str(inner))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _variables_below(one, f"{key_path}[{index}]", "")


def _passed_variables(tools: Any) -> Iterator[NamedVariable]:
    """Yields variables that programs are allowed to see; they are optional."""
    for index, entry in enumerate(tools if isinstance(tools, list) else ()):
        config = entry.get("config") if isinstance(entry, Mapping) else None
        names = config.get("env_passthrough") if isinstance(config, Mapping) else None
        for name in names if isinstance(names, list) else ():
            if _is_name(name):
                yield NamedVariable(name, f"tools[{index}].config.env_passthrough", optional=True)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
