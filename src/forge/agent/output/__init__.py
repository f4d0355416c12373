"""Structured answers: the model fills in a schema, and is asked again until the answer fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from forge.core.arguments.dialects import DIALECTS
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import SchemaTool, Tool

NAME = "final_answer"
CONVERSATION = ("task_completion", "converse", "ask_question")  # tools that every agent has


class Structured:
    """The answer type of `Agent(output=Model)`. `tool` ends the run; `accept` reads an answer that came as text.

    Where the API itself can hold a model to a schema, `response_format` is sent instead of the tool.
    """

    def __init__(self, wanted: Any, provider: Any = None, registry: ToolRegistry | None = None) -> None:
        """`wanted` is a type, or a JSON Schema. `registry`: the tools of the run, which some APIs refuse beside it."""
        self._adapter: Any = None
        if not isinstance(wanted, Mapping):
            from pydantic import TypeAdapter  # heavy: only where an output is asked for

            self._adapter = TypeAdapter(wanted)
        schema = dict(wanted) if self._adapter is None else self._adapter.json_schema()
        self.wanted = wanted
        self.is_object = schema.get("type") == "object" and "properties" in schema
        if not self.is_object:
            inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
            shelf = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {"value": inner}, "required": ["value"], **shelf}
        self.tool: Tool = SchemaTool(
            ToolSpec(
                name=NAME,
                description="Finish with the answer in exactly this shape. Call it once, when everything is done.",
                parameters=schema if self._adapter is None else {**schema, "additionalProperties": False},
                ends_turn=True,
            ),
            self._finish,
        )
        self.found: Any = None
        self.is_alone = False  # the API takes no tools beside the schema
        self.response_format = self._choose_format(provider, registry)

    def _choose_format(self, provider: Any, registry: ToolRegistry | None) -> dict[str, Any] | None:
        """Returns the schema as an option of the model; None if the answer comes by a tool."""
        takes_schema = getattr(provider, "takes_schema", None)
        format = self._write_format() if takes_schema is not None else None
        if takes_schema is None or format is None:
            return None
        schema = format["json_schema"]["schema"]
        if takes_schema(schema, with_tools=True):
            return format
        self.is_alone = registry is not None and not registry.keys() - CONVERSATION
        return format if self.is_alone and takes_schema(schema, with_tools=False) else None

    def _write_format(self) -> dict[str, Any] | None:
        """Returns the schema in OpenAI's form; None if the rules of strict schemas cannot express it."""
        spec = self.tool.spec
        spec = ToolSpec(name=spec.name, description="", parameters=_join_branches(spec.parameters))
        function = DIALECTS["openai-strict"](spec)["function"]
        if not function.get("strict"):
            return None
        inner = {"name": NAME, "schema": function["parameters"], "strict": True}
        return {"type": "json_schema", "json_schema": inner}

    def offer(self, registry: ToolRegistry) -> ToolRegistry:
        """Returns the tools of a run that ends with a structured answer."""
        if self.response_format is not None and self.is_alone:
            return registry.select(lambda spec: False)
        picked = registry.select(lambda spec: spec.name not in ("task_completion", "converse"))
        if self.response_format is not None:
            return picked
        picked.add(self.tool)
        if picked.sent is not None:
            picked.send_only({*picked.sent, self.tool.spec.name})
        return picked

    def add_format(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the options with the schema of the answer, where the API holds the model to it."""
        return options if self.response_format is None else {**options, "response_format": self.response_format}

    async def _finish(self, **arguments: Any) -> ToolResult:
        self.found = self._validate(arguments)
        shown = json.dumps(arguments if self.is_object else arguments["value"], ensure_ascii=False)
        return ToolResult(for_llm=shown, data={"output": self.found})

    def accept(self, text: str) -> str:
        """Accepts an answer as text, since some models write the object instead of calling the tool."""
        if not self.is_object:
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
                wrapped = value if self.is_object else {"value": value}
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
        value = arguments if self.is_object else arguments["value"]
        if self._adapter is None:
            return value  # `tool.parse` has checked it
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, first["loc"]))
            raise ToolError(
                f"{path}: {first['msg']}".lstrip(": "), ErrorKind.VALIDATION, "Fix it and call again."
            ) from None


def _join_branches(schema: Any) -> Any:
    """Returns the schema with `anyOf` for `oneOf`: branches that differ in a tag are the same, and strict rules fit."""
    if isinstance(schema, list):
        return [_join_branches(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        "anyOf" if key == "oneOf" and isinstance(value, list) and "anyOf" not in schema else key: _join_branches(value)
        for key, value in schema.items()
        if not (key == "discriminator" and isinstance(value, Mapping))
    }
