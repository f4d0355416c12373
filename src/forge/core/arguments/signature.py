"""Reads a typed Python function: its schema for the model, and the conversion of arguments to parameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, NotRequired, get_args, get_origin

from forge.core.arguments.call_style import declared_type, read_hints, takes
from forge.core.arguments.docstrings import documented_parameters
from forge.core.arguments.names import near
from forge.core.arguments.parameters import Setting
from forge.core.arguments.plain_types import SimpleArguments, simple_arguments
from forge.core.arguments.pydantic_private import make_closed_generator
from forge.core.arguments.type_schemas import convert_typed_dicts, without_titles
from forge.core.errors import DefinitionError
from forge.core.plain_values import plain
from forge.core.spec import JsonSchema, ToolSpec

_REFUSED = {
    "VAR_POSITIONAL": "declare each argument, or one `list[...]` parameter",
    "VAR_KEYWORD": "declare each argument, or one `dict[str, ...]` parameter",
    "POSITIONAL_ONLY": "remove the `/`: a model passes arguments by name",
}


class Signature:
    """A function's parameters. Mistakes are refused at once; work that takes time waits for the first use."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        context_type: type,
        doc: str = "",
        described_elsewhere: Collection[str] = (),
    ) -> None:
        """`described_elsewhere`: parameters of the object's class, which its docstring may describe as well."""
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
        self._check_documented(described_elsewhere)
        if "<locals>" in getattr(function, "__qualname__", ""):
            self.check_types()  # names inside a function cannot be defined later, as those of a module can

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

    def _check_documented(self, elsewhere: Collection[str]) -> None:
        """Refuses a text whose name is misspelt: it would never reach the model."""
        known = self.parameters.keys()
        strange = [key for key in self.documented if key.isidentifier() and key not in known and key not in elsewhere]
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
        for computed in ("defaults", "schema", "_adapter"):  # a setting makes its parameter optional
            own.__dict__.pop(computed, None)
        own.settings = {key: one for key, one in settings.items() if key in self.parameters}
        return own

    @cached_property
    def hints(self) -> dict[str, Any]:
        hints, unread = read_hints(self.function, include_extras=True)
        for key, error in unread.items():
            if key in self.parameters:  # a tool works without its return type
                raise DefinitionError(
                    f"tool {self.name!r}: its annotations cannot be read: {error}; use types defined at module level, "
                    "not inside a function or under TYPE_CHECKING"
                ) from error
        for key in self.parameters.keys() & hints.keys():
            self._refuse_alias(key, hints[key])  # until now the annotations may have been texts
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
        """Makes the `parse` of the tool."""
        from forge.core.arguments.parse import make_typed_parser  # only where a tool is called

        return make_typed_parser(spec, self._adapter, self.defaults)


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
