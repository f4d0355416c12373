"""Optional entries that models send as null instead of leaving them out: `NotRequired[Annotated[str, OrNull("…")]]`."""

from __future__ import annotations

from typing import Any


class OrNull:
    """Accepts null without showing it to the model. Does not import pydantic: `forge tool list` builds no schema."""

    def __init__(self, description: str = "") -> None:
        self.description = description

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {"type": "nullable", "schema": handler(source)}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        shown = handler(schema["schema"])
        return {**shown, "description": self.description} if self.description else shown
