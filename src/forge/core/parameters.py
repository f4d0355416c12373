"""Limits and an example of a parameter, said in its type: `Annotated[int, Limits(ge=1, le=100)]`."""

from __future__ import annotations

from typing import Any


def setting(given: int, standard: int, own: int) -> int:
    """What a call gets: the tool's own setting where it names none, or just the standard; otherwise what it names."""
    return own if given == standard else given


class Limits:
    """What pydantic's `Field` would say, without importing anything: `forge tool list` builds no schema.

    Numbers take `ge`, `gt`, `le`, `lt`; texts and lists take `min_length`, `max_length`. The example is shown to models
    and used by `forge tool describe`, so it must be a value with which the call works.
    """

    def __init__(self, *, example: Any = None, **limits: float) -> None:
        self.example = example
        self.limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **self.limits}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        shown = handler(schema)
        return shown if self.example is None else {**shown, "examples": [self.example]}
