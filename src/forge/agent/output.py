"""Structured answers: the model fills in a schema, is asked again until it fits, and is read while it writes."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from inspect import isawaitable, signature
from typing import Any, get_args, get_origin

from pydantic_core import from_json

from forge.agent.instructions import DepsT
from forge.agent.result import ANSWER, REFUSED, UNUSABLE, AnswerRefused, OutputT
from forge.core.arguments.tool_formats import DIALECTS
from forge.core.context import RunContext, Scope
from forge.core.errors import DefinitionError, ErrorKind, Retry, ToolError
from forge.core.events import Event, Retrying, TextDelta, ToolArgumentsDelta, TurnFinished
from forge.core.messages import ToolCall, render_call
from forge.core.plain_values import text_of
from forge.core.provider import holds_to_schema
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import SchemaTool, Tool

OutputValidator = (
    Callable[[OutputT], OutputT | Awaitable[OutputT]]
    | Callable[[RunContext[DepsT], OutputT], OutputT | Awaitable[OutputT]]
)
"""Checks a structured answer: a function of the value, or of the run's context and the value. It may be async."""


def join_types(output: Any) -> Any:
    """Returns the type of an answer: of a list of types, their union. Raises `DefinitionError` for an empty list."""
    if not isinstance(output, list | tuple):
        return output
    if not output:
        raise DefinitionError("Agent(output=[]): name at least one type, such as output=[City, NotFound]")
    return typing.Union[tuple(output)]  # noqa: UP007 - made of values


def bind_validators(validators: Iterable[Callable[..., Any]], scope: Scope) -> list[Callable[[Any], Any]]:
    """Returns functions of the value alone; a validator of two parameters gets the context of the run first."""
    ctx = RunContext(scope)
    return [partial(one, ctx) if _count_parameters(one) > 1 else one for one in validators]


def _count_parameters(function: Callable[..., Any]) -> int:
    parameters = signature(function).parameters.values()
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)


class Structured:
    """The answer type of `Agent(output=Model)`. `tool` ends the run; `accept` reads an answer that came as text.

    Where the API itself can hold a model to a schema, `response_format` is sent instead of the tool.
    """

    def __init__(
        self,
        wanted: Any,
        provider: Any = None,
        registry: ToolRegistry | None = None,
        validators: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        """`wanted` is a type, or a JSON Schema. `registry`: the tools of the run, which some APIs refuse beside it.

        `validators` check a value that fits the type, and may change it.
        """
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
                name=ANSWER,
                description="Finish with the answer in exactly this shape. Call it once, when everything is done.",
                parameters=schema if self._adapter is None else {**schema, "additionalProperties": False},
                ends_turn=True,
            ),
            self._finish,
        )
        self.found: Any = None
        self.is_found = False
        self._validators = validators
        self.is_alone = False  # the API takes no tools beside the schema
        self.response_format = self._choose_format(provider, registry)

    def _choose_format(self, provider: Any, registry: ToolRegistry | None) -> dict[str, Any] | None:
        """Returns the schema as an option of the model; None if the answer comes by a tool."""
        format = self._write_format()
        if format is None:
            return None
        schema = format["json_schema"]["schema"]
        if holds_to_schema(provider, schema, with_tools=True):
            return format
        self.is_alone = registry is not None and all(one.spec.only_talks for one in registry.values())
        return format if self.is_alone and holds_to_schema(provider, schema, with_tools=False) else None

    def _write_format(self) -> dict[str, Any] | None:
        """Returns the schema in OpenAI's form; None if the rules of strict schemas cannot express it."""
        spec = self.tool.spec
        spec = ToolSpec(name=spec.name, description="", parameters=_join_branches(spec.parameters))
        function = DIALECTS["openai-strict"](spec)["function"]
        if not function.get("strict"):
            return None
        inner = {"name": ANSWER, "schema": function["parameters"], "strict": True}
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
        value = self._validate(arguments)
        error: ToolError | None = None
        try:
            if problem := await self._take(value):
                error = Retry(problem)
        except AnswerRefused as refused:
            error = refused
        if error is not None:
            mark = UNUSABLE if isinstance(error, AnswerRefused) else True
            failed = ToolResult.failed(error, during=render_call(ToolCall(ANSWER, arguments)))
            return dataclasses.replace(failed, data={REFUSED: mark})
        shown = json.dumps(arguments if self.is_object else arguments["value"], ensure_ascii=False)
        return ToolResult(for_llm=shown, data={"output": self.found})

    def forget(self) -> None:
        """Forgets the answer: it was refused."""
        self.found, self.is_found = None, False

    async def accept(self, text: str) -> str:
        """Accepts an answer as text, since some models write the object instead of calling the tool."""
        value, complaint = self._read_text(text)
        if complaint:
            return complaint
        problem = await self._take(value)
        return f"Your answer does not fit: {problem} {self._advice}" if problem else ""

    async def _take(self, value: Any) -> str:
        """Keeps a value that passes the validators. Returns the problem in words for the model, or nothing."""
        for validator in self._validators:
            try:
                value = validator(value)
                value = await value if isawaitable(value) else value
            except ToolError as error:
                return " ".join(filter(None, (error.message, error.suggestion)))
            except Exception as error:
                message = f"checking the answer: an output validator failed: {text_of(error)}"
                hint = 'Fix the validator. To ask the model again, it raises Retry("…").'
                raise AnswerRefused(message, ErrorKind.SYSTEM, hint) from error
        self.found, self.is_found = value, True
        return ""

    def _read_text(self, text: str) -> tuple[Any, str]:
        """Returns the value in a text, or the problem in words for the model."""
        if not self.is_object:
            try:
                value = json.loads(text)
                wrapped = value if self.response_format is not None and isinstance(value, dict) else {"value": value}
                return self._validate(self.tool.parse(wrapped)), ""
            except (ValueError, RecursionError, ToolError):
                pass
        start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
        end = max(text.rfind("}"), text.rfind("]"))
        if 0 <= start < end:
            try:
                value = json.loads(text[start : end + 1])
                wrapped = value if self.is_object else {"value": value}
                return self._validate(self.tool.parse(wrapped)), ""
            except (ValueError, RecursionError):
                pass
            except ToolError as error:
                return None, f"Your answer does not fit: {error.message}. {self._advice}"
        return None, f"Your answer must have a shape. {self._advice}"

    @property
    def _advice(self) -> str:
        if self.response_format is not None:
            return "Answer with JSON alone, as the schema says."
        return f"Call {ANSWER} with the right shape."

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


# Reads a structured answer while it is written: unfinished JSON, and the values that it holds so far.


MISSING: Any = object()  # nothing of the value has come, or nothing that fits
_RARELY = 64  # a text is read again once it has grown by this part of itself: long answers stay cheap


class PartialReader:
    """Reads the events of a run: `take` them and get a value wherever there is a new one."""

    def __init__(self, structured: Structured) -> None:
        self._structured = structured
        self._pieces: list[str] = []
        self._length = self._read = 0  # characters that came, and those of the last reading
        self._last: Any = MISSING

    def take(self, event: Event) -> Any:
        """Returns the new value, or `MISSING`."""
        is_native = self._structured.response_format is not None
        if isinstance(event, TextDelta) and is_native:
            return self._grow(event.text)
        if isinstance(event, ToolArgumentsDelta) and event.call.name == ANSWER:
            return self._grow(event.text)
        if isinstance(event, TurnFinished | Retrying):
            self._pieces, self._length, self._read = [], 0, 0
        return MISSING

    def _grow(self, piece: str) -> Any:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length - self._read < self._length // _RARELY:
            return MISSING
        self._read = self._length
        text = "".join(self._pieces)
        self._pieces = [text]
        value = self._value_of(text)
        if value is MISSING or (self._last is not MISSING and value == self._last):
            return MISSING
        self._last = value
        return value

    def _value_of(self, text: str) -> Any:
        try:
            found = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return MISSING  # not yet JSON, such as a sentence before a call
        if not self._structured.is_object:
            if not isinstance(found, Mapping) or "value" not in found:
                return MISSING
            found = found["value"]
        wanted = self._structured.wanted
        return found if isinstance(wanted, Mapping) else build_partial(wanted, found)


def build_partial(wanted: Any, data: Any) -> Any:
    """Returns a value of a type from unfinished data. A field that has not come has its default, or None.

    Returns `MISSING` where nothing fits.
    """
    fields = _fields_of(wanted)
    if fields is not None and isinstance(data, Mapping):
        return _build_object(wanted, fields, data)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is typing.Annotated:
        return build_partial(arguments[0], data)
    if origin in (list, set, frozenset) and arguments and isinstance(data, list):
        return origin(_build_items([arguments[0]] * len(data), data))
    if origin is tuple and arguments and isinstance(data, list):
        kinds = [arguments[0]] * len(data) if arguments[-1] is ... else [*arguments, *[Any] * len(data)]
        return tuple(_build_items(kinds, data))
    if origin is dict and arguments and isinstance(data, Mapping):
        values = {key: build_partial(arguments[1], value) for key, value in data.items()}
        return {key: value for key, value in values.items() if value is not MISSING}
    if origin in (typing.Union, types.UnionType):
        return _build_union(arguments, data)
    return _validate(wanted, data)


def _build_items(kinds: list[Any], data: list[Any]) -> list[Any]:
    values = (build_partial(kind, value) for kind, value in zip(kinds, data, strict=False))
    return [value for value in values if value is not MISSING]


def _build_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """Returns the value of the first type that takes the data whole, or of the one with most of its keys."""
    for kind in kinds:
        if (value := _validate(kind, data)) is not MISSING:
            return value
    if not isinstance(data, Mapping):
        built = (build_partial(kind, data) for kind in kinds)
        return next((value for value in built if value is not MISSING), MISSING)
    known = [(kind, fields) for kind in kinds if (fields := _fields_of(kind)) is not None]
    fitting = [kind for kind, fields in known if not _contradicts(fields, data)]
    names = {kind: len(data.keys() & dict(known)[kind].keys()) for kind in fitting}
    return build_partial(max(fitting, key=names.__getitem__), data) if fitting else MISSING


def _contradicts(fields: Mapping[str, _Field], data: Mapping[str, Any]) -> bool:
    """Returns whether a tag in the data, such as `kind: Literal["cat"]`, belongs to another type."""
    return any(
        get_origin(field.kind) is typing.Literal and key in data and data[key] not in get_args(field.kind)
        for key, field in fields.items()
    )


def _build_object(wanted: Any, fields: Mapping[str, _Field], data: Mapping[str, Any]) -> Any:
    if (whole := _validate(wanted, data)) is not MISSING:
        return whole
    values: dict[str, Any] = {}
    for key, field in fields.items():
        value = build_partial(field.kind, data[key]) if key in data else MISSING
        if value is MISSING and _is_typed_dict(wanted):
            continue
        values[field.name] = field.make_default() if value is MISSING else value
    if _is_typed_dict(wanted):
        return values
    if dataclasses.is_dataclass(wanted):
        made: Any = object.__new__(typing.cast(Any, wanted))
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made
    return wanted.model_construct(**values)


class _Field(typing.NamedTuple):
    name: str
    kind: Any
    make_default: Any


def _is_typed_dict(wanted: Any) -> bool:
    """Returns whether the type is a typed dictionary, of `typing` or of `typing_extensions`."""
    return isinstance(wanted, type) and issubclass(wanted, dict) and hasattr(wanted, "__total__")


@cache
def _fields_of(wanted: Any) -> Mapping[str, _Field] | None:
    """Returns the fields of a model, a dataclass or a typed dictionary, by their keys in JSON; else None."""
    if not isinstance(wanted, type):
        return None
    if _is_typed_dict(wanted):
        return {name: _Field(name, kind, _nothing) for name, kind in typing.get_type_hints(wanted).items()}
    models = getattr(wanted, "model_fields", None)
    if isinstance(models, Mapping):
        return {
            field.validation_alias if isinstance(field.validation_alias, str) else field.alias or name: _Field(
                name,
                field.annotation,
                _nothing if field.is_required() else lambda field=field: field.get_default(call_default_factory=True),
            )
            for name, field in models.items()
        }
    if dataclasses.is_dataclass(wanted):
        hints = typing.get_type_hints(wanted)
        return {
            field.name: _Field(field.name, hints[field.name], _default_of(field))
            for field in dataclasses.fields(wanted)
        }
    return None


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return _nothing if field.default is dataclasses.MISSING else lambda: field.default


def _nothing() -> None:
    return None


def _validate(wanted: Any, data: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(wanted).validate_python(data)
    except ValidationError:
        return MISSING


@cache
def _adapter(wanted: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(wanted)
