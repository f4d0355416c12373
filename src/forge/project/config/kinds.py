"""The kinds of values, as pydantic's annotations. Only `make reference` and tests load this module, and pydantic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from forge.permissions.conditions import CONDITIONS
from forge.permissions.labels.settings import FORMS
from forge.project.config.reader import VARIABLE
from forge.project.config.section import Schema

BLANK = r"\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_TEXT: Schema = {"type": "string", "pattern": rf"^[^\u0000]*[^\u0000{BLANK}][^\u0000]*$"}
_BLANK: Schema = {"type": "string", "pattern": r"^[^\u0000]*$"}
_ARGUMENT: Schema = {"anyOf": [{"type": "number"}, {"const": ""}, _TEXT], "format": "argument"}
_VARIABLE: Schema = {
    "type": "string",
    "pattern": f"^{VARIABLE}$",
    "errorMessage": "expected the name of an environment variable, such as GITHUB_TOKEN",
    "writeOnly": True,  # never repeated: someone may have written the secret itself
}
_LABELLED: Schema = {
    "type": "string",
    "pattern": rf"^({'|'.join(FORMS)}):[\s\S]*[^{BLANK}]",
    "errorMessage": "expected one of tool:GLOB, host:GLOB and path:GLOB, such as path:downloads/**",
}
_HOST: Schema = {
    "type": "string",
    "pattern": r"^(\*\.)?([^\s/:@*?#\[\]]+|\[[0-9a-fA-F:.]+\])$",
    "errorMessage": "expected a host such as api.example.com or *.example.com, without scheme and port",
}
_LARGEST_NUMBER = 10**15

# A `format` says how `ConfigReader` reads a text.
Text = Annotated[str, WithJsonSchema(_TEXT)]  # not empty
BlankText = Annotated[str, WithJsonSchema(_BLANK)]  # perhaps empty
FilePath = Annotated[Path, WithJsonSchema({**_TEXT, "format": "path"})]  # relative to the file that names it
HomePath = Annotated[Path, WithJsonSchema({**_TEXT, "format": "home-path"})]
Filled = Annotated[str, WithJsonSchema({**_TEXT, "format": "filled"})]  # ${NAME} stands for a variable
Spec = Annotated[str, WithJsonSchema({**_TEXT, "format": "spec"})]  # the same, for a path or a URL
Host = Annotated[str, WithJsonSchema(_HOST)]  # perhaps *.HOST
Folder = Annotated[str, WithJsonSchema({**_TEXT, "format": "folder"})]  # inside the workspace
Variable = Annotated[str, WithJsonSchema({**_VARIABLE, "format": "variable"})]  # a name, never a value
VariableName = Annotated[str, WithJsonSchema(_VARIABLE)]  # the same; it need not be set
Value = Annotated[str, WithJsonSchema({**_VARIABLE, "format": "value"})]  # a name, read as its value, a secret
Argument = Annotated[str, WithJsonSchema(_ARGUMENT)]  # a word of a command line, perhaps empty
Pairs = Annotated[  # names and texts; a value whose name says so is a secret
    Mapping[str, str], WithJsonSchema({"type": "object", "additionalProperties": _ARGUMENT, "format": "pairs"})
]
NumericText = Annotated[str, WithJsonSchema({"anyOf": [{"type": "integer"}, _TEXT], "format": "text"})]
NumericBlank = Annotated[str, WithJsonSchema({"anyOf": [{"type": "integer"}, _BLANK], "format": "text"})]
Above0 = Annotated[float, Field(gt=0)]
NullableAbove0 = Annotated[float | None, WithJsonSchema({"type": ["number", "null"], "exclusiveMinimum": 0})]
From0 = Annotated[float, Field(ge=0, lt=_LARGEST_NUMBER)]
Accepts = WithJsonSchema  # what another module reads is stored unchanged
LabelledSource = Annotated[str, WithJsonSchema(_LABELLED)]


def _any_case(*words: str) -> str:
    """Returns a pattern that matches one of several words in upper and lower case."""
    return "|".join("".join(f"[{letter.upper()}{letter}]" for letter in word) for word in words)


def _rule_schema() -> Schema:
    effects = rf"{_any_case('effects')}([^\S\n]+({_any_case('write', 'create', 'change', 'delete')}))?"
    over = rf"{_any_case('effects')}[^\S\n]+{_any_case('over')}[^\S\n]+[0-9][0-9_,]*[^\S\n]+{_any_case('file')}[Ss]?"
    subject = rf"\*|{_any_case('read', 'write', 'execute', 'network')}|{effects}|{over}"
    action = f"({_any_case('allow', 'ask', 'deny')})"
    plain: Schema = {"type": ["string", "number", "boolean"], "pattern": f"[^{BLANK}]"}
    listed: Schema = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
    keys: Schema = {
        "action": {"type": "string", "pattern": f"^{action}$"},
        "permission": {"type": "string", "pattern": f"^({subject})$"},
        **dict.fromkeys(("tool", "target", "agent", "user", "channel", "from"), plain),
        **{name: {"enum": [value]} for name, value in CONDITIONS.items() if value},
        **dict.fromkeys(("match", "not_match"), listed),
    }
    rule = {"type": "object", "properties": keys, "additionalProperties": False, "required": ["action"]}
    either = [{"required": ["permission"]}, {"required": ["tool"]}]
    line = {"type": "string", "pattern": rf"^\s*{action}[^\S\n]+({subject}|tool:\S+)([^\S\n].*)?\s*$"}
    return {"anyOf": [line, {**rule, "anyOf": either}], "format": "as-written"}


Rule = Annotated[Any, WithJsonSchema(_rule_schema())]  # `forge.permissions` reads it


def Key(
    description: str | None = None,
    example: Any = None,
    *,
    name: str | None = None,
    required: bool | str = False,
    sample: str = "",
    unset: Any = None,
    variable: str = "",
    layers: str = "",
) -> Any:
    """Declares a key: pydantic's `Field`, what it says and how it is written. A section says these two itself.

    name: in the document, where the field has another.
    required: the key must be there; a text tells what to write.
    sample: a name for the example of named entries.
    unset: what `forge config show` shows where nobody says it.
    variable: of the environment, that says it, too.
    layers: the layers whose file may have it, for keys of the document itself; by default user and project.
    """
    more = {"required": required, "sample": sample, "unset": unset, "variable": variable, "layers": layers.split()}
    extra = {f"x-{key}": value for key, value in more.items() if value or (key == "unset" and value is not None)}
    examples = None if example is None else [example]
    return Field(alias=name, description=description, examples=examples, json_schema_extra=extra)


def Whole(least: int = 0) -> Any:
    """A whole number; 5.0 is one, as it is to JSON Schema."""
    return Field(ge=least, lt=_LARGEST_NUMBER)


def Matches(pattern: str, expected: str, *, numeric: bool = False, **more: Any) -> Any:
    """A text all of which matches a pattern; `expected` is for people. With `numeric`, or a whole number."""
    text = {"type": "string", "pattern": f"^{pattern}$", "errorMessage": f"expected {expected}", **more}
    return WithJsonSchema({"anyOf": [{"type": "integer"}, text], "format": "text"} if numeric else text)


def OneOf(*words: Any, expected: str = "") -> Any:
    """One of a few words."""
    return WithJsonSchema({"enum": [*words], **({"errorMessage": f"expected {expected}"} if expected else {})})


@dataclasses.dataclass(frozen=True)
class Names:
    """The pattern of the names of entries."""

    pattern: str
    message: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        return {**handler(core), "propertyNames": {"pattern": f"^{self.pattern}$", "errorMessage": self.message}}


class Single:
    """A list, or one entry of it alone."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        made = handler(core)
        return {"anyOf": [made["items"], made]}


class AsWritten:
    """A value that is checked, and stored unchanged."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        return {**handler(core), "format": "as-written"}


@dataclasses.dataclass(frozen=True)
class Of:
    """The type that is written, where the typed value is of another: a plain mapping, or a list of names."""

    written: Any
