"""Structured answers: the model fills in a schema, and is asked again until the answer fits."""

from __future__ import annotations

import json
from typing import Any

from forge.core.arguments.provider_dialects import DIALECTS
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import SchemaTool, Tool

NAME = "final_answer"


class Structured:
    """The answer type of `Agent(output=Model)`. `tool` ends the run; `accept` reads an answer that came as text.

    Where the API itself can hold a model to a schema, `response_format` is sent instead of the tool.
    """

    def __init__(self, wanted: Any, provider: Any = None) -> None:
        from pydantic import TypeAdapter  # heavy: only where an output is asked for

        self._adapter: Any = TypeAdapter(wanted)
        schema = self._adapter.json_schema()
        self._is_object = schema.get("type") == "object" and "properties" in schema
        if not self._is_object:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            shelf = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {"value": inner}, "required": ["value"], **shelf}
        self.tool: Tool = SchemaTool(
            ToolSpec(
                name=NAME,
                description="Finish with the answer in exactly this shape. Call it once, when everything is done.",
                parameters={**schema, "additionalProperties": False},
                ends_turn=True,
            ),
            self._finish,
        )
        self.found: Any = None
        self.response_format = self._write_format() if getattr(provider, "native_output", False) else None

    def _write_format(self) -> dict[str, Any] | None:
        """Returns the schema as an option of the model; None if its rules cannot express it."""
        function = DIALECTS["openai-strict"](self.tool.spec)["function"]
        if not function.get("strict"):
            return None
        inner = {"name": NAME, "schema": function["parameters"], "strict": True}
        return {"type": "json_schema", "json_schema": inner}

    async def _finish(self, **arguments: Any) -> ToolResult:
        self.found = self._validate(arguments)
        shown = json.dumps(arguments if self._is_object else arguments["value"], ensure_ascii=False)
        return ToolResult(for_llm=shown, data={"output": self.found})

    def accept(self, text: str) -> str:
        """Accepts an answer as text, since some models write the object instead of calling the tool."""
        if not self._is_object:
            try:
                value = json.loads(text)
                wrapped = value if self.response_format is not None and isinstance(value, dict) else {"value": value}
                self.found = self._validate(self.tool.parse(wrapped))
                return ""
            except (ValueError, RecursionError, ToolError):
                pass
        start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
        end = max(text.rfind("}"), text.rfind("]"))
        if 0 <= start < end:
            try:
                value = json.loads(text[start : end + 1])
                wrapped = value if self._is_object else {"value": value}
                self.found = self._validate(self.tool.parse(wrapped))
                return ""
            except (ValueError, RecursionError):
                pass
            except ToolError as error:
                return f"Your answer does not fit: {error.message}. {self._advice}"
        return f"Your answer must have a shape. {self._advice}"

    @property
    def _advice(self) -> str:
        if self.response_format is not None:
            return "Answer with JSON alone, as the schema says."
        return f"Call {NAME} with the right shape."

    def _validate(self, arguments: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(json.dumps(arguments if self._is_object else arguments["value"]))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, first["loc"]))
            raise ToolError(
                f"{path}: {first['msg']}".lstrip(": "), ErrorKind.VALIDATION, "Fix it and call again."
            ) from None
