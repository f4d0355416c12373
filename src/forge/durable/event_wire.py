"""Events read back from their wire form, for whoever follows a run from another process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from forge.core.events import Event
from forge.core.messages import ToolCall
from forge.core.plain import brief
from forge.core.result import ToolResult


def event_from_dict(wire: Mapping[str, Any]) -> Event:
    """The event that `to_dict` wrote; what is missing has its default. Raises ValueError in words."""
    kind = _kinds().get(wire.get("event", ""))
    if kind is None:
        raise ValueError(f"event: no event is called {brief(wire.get('event'))}")
    given = {one.name: _value(one.name, wire[one.name]) for one in fields(kind) if one.name in wire}
    try:
        return kind(**given, **({"at": wire["ts"]} if "ts" in wire else {}))
    except TypeError as error:
        raise ValueError(f"{kind.type}: {error}") from None


@cache
def _kinds() -> dict[str, type[Event]]:
    return {kind.type: kind for kind in _below(Event)}


def _below(kind: type[Event]) -> Iterator[type[Event]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _value(name: str, wire: Any) -> Any:
    try:
        if name == "call":
            return ToolCall(wire["name"], wire["arguments"], wire["id"])
        if name == "result":
            return ToolResult.from_dict(wire)
        if name == "others":
            return tuple((permission, target) for permission, target in wire)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from None
    return wire
