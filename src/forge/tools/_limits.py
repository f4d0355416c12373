"""Limits on a parameter, said in its type: `Annotated[int, Limits(ge=1, le=100)]`."""

from __future__ import annotations

from typing import Any


class Limits:
    """What pydantic's `Field` would say, without importing anything: `forge tool list` builds no schema.

    Numbers take `ge`, `gt`, `le`, `lt`; texts and lists take `min_length`, `max_length`.
    """

    def __init__(self, **limits: float) -> None:
        self.limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **self.limits}
