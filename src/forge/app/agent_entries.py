"""The sections of `forge.yaml` about the agent, its sub-agents, their limits and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from forge.app.reading import Reader
from forge.core.spec import Permission

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_LIMITS = ("calls", "cost", "price", "seconds", "tokens", "turns")


class ToolEntry(NamedTuple):
    """One entry under `tools`: a name (or a pattern of names) or a group, and settings for what it names."""

    place: str
    name: str = ""
    group: str = ""
    config: Mapping[str, Any] = _NOTHING


class AgentEntry(NamedTuple):
    """The agent, or a kind of sub-agent: what it is told, which model it is, how far it may go."""

    prompt: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()  # names and groups
    limits: Mapping[str, Any] = _NOTHING
    id: str = ""
    version: str = ""
    description: str = ""


def agent_entry(reader: Reader, value: Any, limits: Any) -> AgentEntry:
    said = reader.mapping(value, "agent", ("description", "id", "model", "prompt", "version"))
    return AgentEntry(
        prompt=reader.words(said.get("prompt", ""), "agent.prompt"),
        model=reader.text(said["model"], "agent.model") if "model" in said else "",
        limits=limit_entries(reader, limits, "limits"),
        id=_name(reader, said, "id"),
        version=_name(reader, said, "version"),
        description=reader.words(said.get("description", ""), "agent.description"),
    )


def sub_agent_entry(reader: Reader, value: Any, place: str) -> AgentEntry:
    said = reader.mapping(value, place, ("limits", "model", "prompt", "tools"))
    entries = tool_entries(reader, said.get("tools", []), f"{place}.tools")
    for entry in entries:
        if entry.config:
            words = "a sub-agent's tools have the settings of the agent's own; write them under the file's `tools`"
            raise reader.error(f"{entry.place}.config", words)
    return AgentEntry(
        prompt=reader.words(said.get("prompt", ""), f"{place}.prompt"),
        model=reader.text(said["model"], f"{place}.model") if "model" in said else "",
        tools=tuple(entry.name or entry.group for entry in entries),
        limits=limit_entries(reader, said.get("limits", {}), f"{place}.limits"),
    )


def limit_entries(reader: Reader, value: Any, place: str) -> dict[str, Any]:
    """As `forge.agent.limits.Limits` takes them; `price` says what a million tokens cost."""
    said = dict(reader.mapping(value, place, _LIMITS))
    if "price" in said:
        price = reader.mapping(said["price"], f"{place}.price", ("cached", "input", "output"))
        if missing := {"input", "output"} - price.keys():
            raise reader.error(f"{place}.price", f"{sorted(missing)[0]} is missing")
        said["price"] = {key: reader.number(one, f"{place}.price.{key}", above=0) for key, one in price.items()}
    for key in said.keys() - {"price"}:
        if key in ("cost", "seconds"):
            said[key] = _amount(reader, said[key], f"{place}.{key}")
        else:
            said[key] = reader.whole(said[key], f"{place}.{key}", 1 if key == "turns" else 0, "a number")
    if said.get("cost") and "price" not in said:
        raise reader.error(f"{place}.cost", "without a price nobody knows the cost; say price: {input: …, output: …}")
    return said


def tool_entries(reader: Reader, value: Any, place: str) -> tuple[ToolEntry, ...]:
    return tuple(_tool(reader, one, f"{place}[{i}]") for i, one in enumerate(reader.sequence(value, place)))


def _tool(reader: Reader, value: Any, place: str) -> ToolEntry:
    if isinstance(value, str):
        return ToolEntry(place=place, name=reader.text(value, place))
    entry = reader.mapping(value, place, ("config", "group", "name"))
    if ("name" in entry) == ("group" in entry):
        raise reader.error(place, "expected either a name or a group")
    config = reader.mapping(entry.get("config", {}), f"{place}.config")
    return ToolEntry(
        place=place,
        name=reader.text(entry["name"], f"{place}.name") if "name" in entry else "",
        group=reader.text(entry["group"], f"{place}.group") if "group" in entry else "",
        config={key: _setting(reader, key, one, f"{place}.config.{key}") for key, one in config.items()},
    )


def _setting(reader: Reader, key: str, value: Any, place: str) -> Any:
    """The settings any tool has; the others are for the tool itself to judge."""
    if key == "timeout":
        return None if value is None else reader.number(value, place, above=0)
    if key == "confirm":
        return reader.flag(value, place)
    if key == "permissions":
        return [_permission(reader, one, f"{place}[{i}]") for i, one in enumerate(reader.sequence(value, place))]
    if key == "rate":
        rate = reader.mapping(value, place, ("calls", "max_calls", "seconds"))
        return {
            name: reader.number(one, f"{place}.{name}", above=0)
            if name == "seconds"
            else reader.whole(one, f"{place}.{name}")
            for name, one in rate.items()
        }
    return value


def _permission(reader: Reader, value: Any, place: str) -> str:
    if value not in list(Permission):
        raise reader.error(place, f"there is no permission {value!r:.60}", str(value), Permission)
    return str(value)


def _amount(reader: Reader, value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise reader.error(place, f"expected a number from 0, got {value!r:.60}")
    return value


def _name(reader: Reader, said: Mapping[str, Any], key: str) -> str:
    """What names files and images later."""
    if key not in said:
        return ""
    value = reader.text(said[key], f"agent.{key}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise reader.error(f"agent.{key}", f"expected letters, digits, - _ and dots, at most 64, got {value!r:.60}")
    return value
