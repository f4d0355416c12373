"""Lists the effective configuration with the origin of each value, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forge.core.errors import ToolError
from forge.core.secrets import Secrets
from forge.project.assemble.secrets import project_secrets
from forge.project.config.declaration import Configuration, keys_of
from forge.project.config.durable import without_password
from forge.project.config.reader import description_at, document_schema
from forge.project.config.section import Schema
from forge.project.system_prompt import describe_files, find_instruction_files

HIDDEN = "[not shown]"
_NONE: Mapping[str, Any] = MappingProxyType({})
_REFERENCE = re.compile(r"[^$]*\$\{\w+(:-[^}]*)?\}")


class EffectiveValue(NamedTuple):
    """An effective value."""

    key_path: str
    value: Any
    origin: str
    description: str = ""  # of the key


def effective_values(
    configuration: Configuration,
    flags: Mapping[str, Any] = _NONE,
    workspace: Path | None = None,
    schema: Schema | None = None,
) -> list[EffectiveValue]:
    """Returns every value, sorted by key path. Variables are not resolved; `flags` are given by key path.

    With a workspace, also its instruction files and their states.
    """
    mask = _make_mask(configuration)
    found = {
        key_path: EffectiveValue(key_path, one["x-unset"], "defaults")
        for key_path, one in keys_of(schema)
        if "x-unset" in one
    }
    for key_path, value in _key_paths(configuration.document):
        visible = _hide_hook_path(value) if key_path.startswith("webhooks.") else value
        found[key_path] = EffectiveValue(
            key_path,
            mask(_hide_credentials(visible, key_path.rpartition(".")[2] if key_path == "durable.database" else "")),
            _origin(configuration, key_path),
        )
    if configuration.egress is not None:
        found["egress.mode"] = EffectiveValue(
            "egress.mode", configuration.egress.mode, _origin(configuration, "egress.mode")
        )
    for layer in configuration.layers:
        rules = (layer.document.get("permissions") or {}).get("rules")
        if rules:
            key_path = f"permissions.rules ({layer.kind})"
            found[key_path] = EffectiveValue(key_path, mask(rules), layer.origin)
    found |= {key_path: EffectiveValue(key_path, value, "a flag") for key_path, value in flags.items()}
    described = [
        found[key_path]._replace(description=description_at(key_path, schema or document_schema()))
        for key_path in sorted(found)
    ]
    files = find_instruction_files(workspace) if workspace is not None else []
    if files:
        states = describe_files(files, used=configuration.agent.instruction_files)
        described.append(EffectiveValue("agent.instruction_files_here", states, f"workspace {workspace}"))
    return sorted(described)


def nest_values(values: list[EffectiveValue]) -> dict[str, Any]:
    """Returns the values as JSON: sections, then keys or names; rules by layer."""
    result: dict[str, Any] = {}
    for key_path, value, *_ in values:
        if key_path.startswith("permissions.rules"):
            result.setdefault("permissions", {}).setdefault("rules", {})[key_path.partition("(")[2].rstrip(")")] = value
            continue
        section, _, name = key_path.partition(".")
        if name:
            result.setdefault(section, {})[name] = value
        else:
            result[section] = value
    return result


def _key_paths(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, value in document.items():
        if section == "permissions":
            continue
        if not isinstance(value, dict):
            yield section, "off" if value is False else value
        else:
            yield from ((f"{section}.{name}", one) for name, one in value.items())


def find_origin(configuration: Configuration, section: str) -> str:
    """Returns who set a section, such as `egress`; "defaults" if no layer did."""
    is_set = section in configuration.document or any(
        path.partition(".")[0] == section for path in configuration.origins
    )
    return _origin(configuration, f"{section}.mode") if is_set else "defaults"


def _origin(configuration: Configuration, key_path: str) -> str:
    origins = configuration.origins
    known = origins.get(key_path) or origins.get(key_path.partition(".")[0])
    return known or next((layer.origin for layer in configuration.layers if layer.kind == "project"), "defaults")


def _hide_credentials(value: Any, key: str = "") -> Any:
    """Hides values that may be credentials; references to variables stay."""
    if isinstance(value, dict):
        hides = key in ("env", "headers")
        return {
            name: (one if _is_reference(one) else HIDDEN) if hides else _hide_credentials(one, name)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_hide_credentials(one, key) for one in value]
    if isinstance(value, str) and key == "database" and not _is_reference(value):
        return without_password(value)
    if isinstance(value, str) and key in ("spec", "url", "server", "api"):
        return re.sub(r"\?.*", f"?{HIDDEN}", value) if "?" in value and not _is_reference(value) else value
    return value


def _hide_hook_path(value: Any) -> Any:
    """Hides the path of a webhook's URL, because anyone who knows it can use it."""
    if isinstance(value, dict):
        return {key: _hide_hook_path(one) if key == "url" else one for key, one in value.items()}
    if not isinstance(value, str) or _is_reference(value):
        return value
    return re.sub(r"^(\w+://[^/?#]*)[/?#].+", rf"\1/{HIDDEN}", value, flags=re.DOTALL)


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _make_mask(configuration: Configuration) -> Any:
    try:
        secrets = project_secrets(configuration)
    except ToolError:  # too short, or a file that cannot be read: doctor reports it
        secrets = Secrets()

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            return secrets.mask_all(value)
        if isinstance(value, dict):
            return {key: mask(one) for key, one in value.items()}
        return [mask(one) for one in value] if isinstance(value, list) else value

    return mask
