"""Reads a typed Python function: its schema for the model, and the conversion of arguments to parameters."""

from __future__ import annotations

import copy
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from forge.core.arguments.call_style import declared_type, read_hints, takes
from forge.core.arguments.names import near
from forge.core.arguments.parameters import Setting, SimpleArguments, simple_arguments
from forge.core.arguments.pydantic_private import make_closed_generator, make_closed_validator
from forge.core.arguments.read import MOST_PARTS, Repaired, as_text, check_amount, is_readable, mark_repaired
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.plain_values import plain
from forge.core.result import Attachment, ToolResult
from forge.core.spec import JsonSchema, ToolSpec

_REFUSED = {
    "VAR_POSITIONAL": "declare each argument, or one `list[...]` parameter",
    "VAR_KEYWORD": "declare each argument, or one `dict[str, ...]` parameter",
    "POSITIONAL_ONLY": "remove the `/`: a model passes arguments by name",
}


class Signature:
    """A function's parameters. Mistakes are refused when it is made; everything that costs waits for the first use."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        context_type: type,
        doc: str = "",
        settings: Collection[str] = (),
    ) -> None:
        """`settings` are the parameters of the object's class, which its docstring may describe as well."""
        self.function = function
        self.doc = doc  # of the class, whose `run` this is
        self.name = name
        self.context_type = context_type
        self.settings: Mapping[str, Setting] = {}
        signature = inspect.signature(function)
        self.parameters = {key: p for key, p in signature.parameters.items() if key not in ("self", "cls")}
        for key, parameter in self.parameters.items():
            if advice := _REFUSED.get(parameter.kind.name):
                raise DefinitionError(f"tool {name!r}: parameter {parameter} cannot be shown to a model; {advice}")
            if parameter.annotation is parameter.empty:
                raise DefinitionError(f"tool {name!r}: parameter {key!r} has no type; write for example `{key}: str`")
            self._refuse_alias(key, parameter.annotation)
        self._check_documented(settings)
        if "<locals>" in getattr(function, "__qualname__", ""):
            self.check_types()  # its module will not get the names later, as it may those of a function of its own

    def check_types(self) -> None:
        """Raises `DefinitionError` for annotations whose names do not exist: every call would fail."""
        if any(isinstance(one.annotation, str) for one in self.parameters.values()):
            _ = self.hints

    def _refuse_alias(self, key: str, hint: Any) -> None:
        """Refuses `Field(alias=…)`: rules, targets and questions name the parameter, and so must the model."""
        written = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        for field in (*written, self.parameters[key].default):
            alias = getattr(field, "validation_alias", None)
            if alias is None or alias == key:
                continue
            others = [one for one in getattr(alias, "choices", [alias]) if isinstance(one, str)] or ["other_name"]
            raise DefinitionError(
                f"tool {self.name!r}: parameter {key!r} has the alias {alias!r} in its Field, which a tool cannot use; "
                f"rename the parameter, or accept the other name too: argument_aliases={dict.fromkeys(others, key)}"
            )

    @cached_property
    def documented(self) -> dict[str, str]:
        """The parameter texts of the docstrings."""
        found = documented_parameters(inspect.getdoc(self.function) or "")
        return documented_parameters(inspect.cleandoc(self.doc)) | found if self.doc else found

    def _check_documented(self, settings: Collection[str]) -> None:
        """Refuses a text whose name is misspelt: it would never reach the model."""
        known = self.parameters.keys()
        strange = [key for key in self.documented if key.isidentifier() and key not in known and key not in settings]
        bare = [key for key, one in self.parameters.items() if key not in self.documented and not _needs_no_text(one)]
        if strange and bare:
            hint = near(strange[0], bare, 1)
            advice = f"did you mean {hint[0]!r}?" if hint else f"not described: {', '.join(map(repr, bare))}"
            raise DefinitionError(
                f"tool {self.name!r}: its docstring describes {strange[0]!r}, which is not a parameter; {advice}"
            )

    def with_settings(self, settings: Mapping[str, Setting]) -> Signature:
        """Returns the parameters with a tool's own settings: models see the defaults that calls get."""
        own = copy.copy(self)
        for computed in ("defaults", "schema"):
            own.__dict__.pop(computed, None)
        own.settings = {key: one for key, one in settings.items() if key in self.parameters}
        return own

    @cached_property
    def hints(self) -> dict[str, Any]:
        hints, unread = read_hints(self.function, include_extras=True)
        for key, error in unread.items():
            if key in self.parameters:  # a tool works without the type of what it returns
                raise DefinitionError(
                    f"tool {self.name!r}: its annotations cannot be read: {error}; use types defined at module level, "
                    "not inside a function or under TYPE_CHECKING"
                ) from error
        for key in self.parameters.keys() & hints.keys():
            self._refuse_alias(key, hints[key])  # annotations may have been texts until now
        return hints

    @cached_property
    def context_parameter(self) -> str:
        return next((key for key in self.parameters if takes(self.hints.get(key), self.context_type)), "")

    @property
    def deps_type(self) -> Any:
        """The type in `ctx: ToolContext[Db]`; None where the function declares none."""
        return declared_type(self.hints.get(self.context_parameter), self.context_type)

    @cached_property
    def _adapter(self) -> Any:
        fields = {key: self._type(key) for key in self.parameters if key != self.context_parameter}
        if (simple := simple_arguments(fields, self.defaults.keys())) is not None:
            return simple
        from pydantic import ConfigDict, TypeAdapter  # heavy: paid at the first call, not at import
        from pydantic.errors import PydanticUserError
        from typing_extensions import TypedDict

        typed = {key: NotRequired[hint] if key in self.defaults else hint for key, hint in fields.items()}
        shape: Any = TypedDict("Arguments", typed)  # type: ignore[misc]
        setattr(shape, "__pydantic_config__", ConfigDict(extra="forbid", allow_inf_nan=False))  # noqa: B010
        try:
            return TypeAdapter(shape)
        except PydanticUserError as error:
            raise DefinitionError(f"tool {self.name!r}: {str(error).splitlines()[0]}") from error

    def _type(self, key: str) -> Any:
        hint, default = convert_typed_dicts(self.hints[key]), self.parameters[key].default
        return (
            Annotated[hint, default] if hasattr(default, "get_default") else hint
        )  # pydantic's Field(...) as a default

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults that the function fills in, so that steps and policies see them too."""
        found = {}
        for key, parameter in self.parameters.items():
            default = parameter.default
            if key == self.context_parameter or default is parameter.empty:
                continue
            if hasattr(default, "get_default"):  # pydantic's Field(...) as a default
                default = default.get_default(call_default_factory=True)
                if repr(default) == "PydanticUndefined":
                    continue
            found[key] = default
        return found | {key: own.default for key, own in self.settings.items()}

    @cached_property
    def schema(self) -> JsonSchema:
        schema: dict[str, Any] = {"type": "object", "properties": {}, **self._generate_schema()}
        for key, shown in schema["properties"].items():
            text = _annotated_text(self.hints[key]) or self.documented.get(key)
            if text:
                shown.setdefault("description", text)
            if key in self.defaults and _is_plain(self.defaults[key]):
                shown.setdefault("default", plain(self.defaults[key]))
        for key, own in self.settings.items():
            shown = schema["properties"][key]
            shown["default"] = plain(own.default)
            if own.most is not None:
                shown["maximum"] = own.most
        return schema

    def _generate_schema(self) -> dict[str, Any]:
        """Generates the schema of the types alone."""
        try:
            adapter = self._adapter
            if isinstance(adapter, SimpleArguments):
                return adapter.json_schema()
            made: dict[str, Any] = without_titles(adapter.json_schema(schema_generator=make_closed_generator()))
        except DefinitionError:
            raise
        except Exception as error:  # pydantic has no common class for "this type has no JSON form"
            raise DefinitionError(f"tool {self.name!r}: {str(error).splitlines()[0]}") from error
        return made

    def parser(self, spec: ToolSpec) -> Callable[[Mapping[str, Any] | str], dict[str, Any]]:
        """Makes the `parse` of a typed tool: one pass for correct arguments; others are repaired or explained."""
        from pydantic_core import ValidationError

        validate = make_closed_validator(self._adapter).validate_json
        defaults = self.defaults

        @cache
        def second_reading() -> Any:
            from forge.core.arguments.repair import SecondReading  # only where something is wrong

            return SecondReading(spec, validate, defaults, isinstance(self._adapter, SimpleArguments))

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            text = arguments if type(arguments) is str else as_text(arguments)
            if not text or text.isspace():
                text = "{}"  # how some providers spell a call without arguments
            if len(text) > MOST_PARTS:
                check_amount(text)
            failed = None
            # pydantic takes NaN and Infinity as numbers; to look for one letter takes a tenth of the time
            has_json_numbers = ("N" not in text or "NaN" not in text) and ("I" not in text or "Infinity" not in text)
            if has_json_numbers or is_readable(text):
                try:
                    values: dict[str, Any] = validate(text, strict=True)
                    return {**defaults, **values} if defaults else values
                except ValidationError as error:
                    failed = error.with_traceback(None)  # it would hold this frame, which holds it
            read: dict[str, Any] = second_reading().read(text, failed)
            return read

        return parse


def names_taken(function: Callable[..., Any]) -> frozenset[str] | None:
    """Returns the names under which a function takes arguments; None if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not say
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))


def _needs_no_text(parameter: inspect.Parameter) -> bool:
    """Returns whether a parameter needs no text in the docstring: `Annotated[...]`, or the context."""
    written = parameter.annotation if isinstance(parameter.annotation, str) else repr(parameter.annotation)
    return "Annotated[" in written or "ToolContext" in written


def _annotated_text(hint: Any) -> str:
    """Returns the text in `Annotated[str, "the text"]`."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, str)), "")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or type(value) in (str, int, float, bool)


def without_titles(schema: Any) -> Any:
    """Removes the titles from pydantic's schema, which only cost tokens."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_titles(item) for name, item in value.items()}
        if key in ("properties", "$defs")
        else value
        if key in ("default", "const", "enum", "examples")
        else without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


# Uses a pydantic model as the schema of a tool, for models to see and to check arguments by.


MOST_PROBLEMS = 10  # listed in one error


def is_model(schema: object) -> bool:
    """Returns whether it is the class of a pydantic model; pydantic itself is not imported for that."""
    return isinstance(schema, type) and hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate_json")


def schema_of(name: str, model: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a model. Raises `DefinitionError` for a model with fields that JSON cannot hold."""
    try:
        schema = without_titles(model.model_json_schema(schema_generator=make_closed_generator()))
    except Exception as error:  # pydantic has no common class for "this type has no JSON form"
        raise DefinitionError(f"tool {name!r}: {model.__name__}: {str(error).splitlines()[0]}") from error
    return {"properties": {}, **{key: value for key, value in schema.items() if key != "description"}}


def field_name(model: Any, name: str) -> str:
    """Returns the field of a model that a property of its schema stands for: an alias is the property's name."""
    for key, field in model.model_fields.items():
        alias = field.validation_alias or field.alias or key
        choices = getattr(alias, "choices", (alias,))
        if name in [str(getattr(one, "path", (one,))[0]) for one in choices]:
            return str(key)
    return name


def parser_of(
    model: Any, parse: Callable[[Mapping[str, Any] | str], dict[str, Any]]
) -> Callable[[Mapping[str, Any] | str], dict[str, Any]]:
    """Returns a parser: `parse` checks arguments against the schema, then the model's own validators run."""
    from pydantic import ValidationError

    validate = make_closed_validator(model).validate_json

    def parse_and_validate(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        data = parse(arguments)
        try:
            made = validate(as_text(data))
        except ValidationError as error:
            raise _explain_error(error) from None
        values = {key: getattr(made, key) for key in type(made).model_fields} | dict(made.model_extra or {})
        return mark_repaired(values, data.repaired) if isinstance(data, Repaired) else values

    return parse_and_validate


def _explain_error(error: Any) -> ToolError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found[:MOST_PROBLEMS]]
    more = f"; and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    return ToolError("; ".join(lines)[:2_000] + more, ErrorKind.VALIDATION, "Correct these arguments.")


# Reads the return type of a function: the JSON Schema of its data, where it has one.


_WITHOUT = (Any, object, str, type(None), ToolResult, Attachment, bytes, bytearray, memoryview)


def read_return_schema(function: Callable[..., Any]) -> JsonSchema | None:
    """Returns the schema of a function's declared return type. Never raises.

    None for text, nothing, a `ToolResult` or an attachment, for pieces that are yielded, and for types without a JSON
    form: a tool works without it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return None
    try:
        hint = get_type_hints(function, include_extras=True).get("return", Any)
        if hint in _WITHOUT:
            return None  # most often seen: nothing heavy is imported for it
        from pydantic import TypeAdapter  # heavy: paid on first use

        adapter: Any = TypeAdapter(convert_typed_dicts(hint))
        schema = without_titles(adapter.json_schema(mode="serialization", by_alias=False))
    except Exception:  # names that are not there at run time, types without a JSON form: pydantic has no common class
        return None
    return schema if schema else None


# Returns the description that the model reads: a docstring without its sections, or a file.


LARGEST = 1024 * 1024  # bytes of a description


_SECTION = (  # compiled where it is needed: most docstrings have no sections
    r"(?m)^[ \t]*(?:(?:Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Attributes):[ \t]*$"
    r"|(?:Parameters|Returns|Yields|Raises|Examples|Notes)[ \t]*\n[ \t]*-{3,}[ \t]*$"
    r"|:(?:param|type|returns?|rtype|raises?)\b)"
)


def description_of(doc: str) -> str:
    """Returns the docstring without its sections."""
    text = inspect.cleandoc(doc)
    section = _first_section(text)
    return (text[: section.start()] if section else text).strip()


def _first_section(text: str) -> re.Match[str] | None:
    lines = map(str.strip, text.split("\n"))
    if not any(line.endswith(":") or line.startswith((":", "---")) for line in lines):
        return None
    return re.search(_SECTION, text)


def documented_parameters(doc: str) -> dict[str, str]:
    """Returns the parameter texts of a Google, numpy or Sphinx docstring."""
    if not _first_section(doc):
        return {}
    from docstring_parser import DocstringStyle, ParseError, parse  # heavy: only for docstrings with sections

    if re.search(r"^\s*:param\b", doc, re.MULTILINE):
        style = DocstringStyle.REST
    else:
        style = DocstringStyle.NUMPYDOC if re.search(r"^\s*-{3,}\s*$", doc, re.MULTILINE) else DocstringStyle.GOOGLE
    try:
        parsed = parse(doc, style)
    except ParseError:  # a docstring may look like a section without being one
        return {}
    return {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}


def description_from(file: str, embedded: str | Callable[[], str], made_of: Any) -> str:
    """Returns the text of a description file with its variables filled in; without a file, the embedded text."""
    path = Path(file)
    module = sys.modules.get(getattr(made_of, "__module__", ""))
    if not path.is_absolute() and getattr(module, "__file__", None):
        path = Path(str(cast(Any, module).__file__)).parent / file
    try:
        text = read_regular(path, LARGEST).decode().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    text = text or (embedded() if callable(embedded) else embedded)
    here = os.getcwd()
    variables = {"workspace": os.environ.get("AGENT_WORKSPACE_ROOT") or here, "directory": here, "cwd": here}
    return re.sub(r"\$\{(workspace|directory|cwd)\}", lambda match: variables[match[1]], text)


# Makes `typing.TypedDict` classes readable to pydantic, which refuses them before Python 3.12.


def convert_typed_dicts(hint: Any) -> Any:
    """Returns the type with every TypedDict in it in the form that pydantic reads on this Python."""
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint):
        return _rebuild(hint) if type(hint).__module__ == "typing" else hint
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or not any(map(_holds_one, arguments)):
        return hint
    if origin is Annotated:
        return Annotated[(convert_typed_dicts(arguments[0]), *arguments[1:])]
    readable = tuple(map(convert_typed_dicts, arguments))
    return Union[readable] if origin in (Union, types.UnionType) else origin[readable]  # noqa: UP007


def _holds_one(hint: Any) -> bool:
    return is_typeddict(hint) or any(map(_holds_one, get_args(hint)))


@cache
def _rebuild(old: Any) -> Any:
    from typing_extensions import TypedDict

    hints = get_type_hints(old, include_extras=True)
    new: Any = TypedDict(old.__name__, {key: convert_typed_dicts(hint) for key, hint in hints.items()})  # type: ignore[misc]
    new.__required_keys__, new.__optional_keys__ = old.__required_keys__, old.__optional_keys__
    new.__doc__ = old.__doc__
    return new
