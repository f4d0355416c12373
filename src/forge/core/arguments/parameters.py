"""Declares limits and examples in a parameter's type, and a tool's settings for its parameters."""

from __future__ import annotations

from typing import Any, NamedTuple


class Setting(NamedTuple):
    """A tool's setting for one of its parameters."""

    default: Any  # of calls that leave it out
    most: float | None = None  # shown as the maximum; the tool itself refuses more, in its own words


class ParameterLimits:
    """Pydantic's `Field` without importing anything: `forge tool list` builds no schema.

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
