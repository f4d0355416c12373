"""Checks and reads one document: every refusal names the file, the key path, the line, a fix and an example."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import article, json_type
from forge.core.secrets.live_text import LiveText, SecretSource

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
FROM_VARIABLE = "the environment variable "  # the beginning of the name of such a source
REFERENCE = rf"\$\{{({VARIABLE})(?::-([^}}]*))?\}}"
_TELLING = "(?i)TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL"
SECRET_LIFETIME = 300.0  # seconds for which a secret from elsewhere is used
_RULES = ["permissions", "rules"]  # `forge.permissions` checks the entries, and explains them better

Schema = dict[str, Any]
Steps = tuple[str | int, ...]


class UnsetVariable(ToolError):
    """An entry names a variable of the environment that is not set."""


@cache
def document_schema() -> Schema:
    """Returns the schema of `forge.yaml`, which `make reference` writes from the declaration."""
    found: Schema = json.loads(Path(__file__).with_name("forge.schema.json").read_text(encoding="utf-8"))
    return found


@cache
def _document_validator() -> Any:
    from jsonschema_rs import validator_for

    return validator_for(document_schema())


class ConfigReader:
    """Knows the file, the environment and what was found in them. Raises `ToolError`.

    Without an `environment`, variables are not looked up: `${NAME}` stays as it is. `files` says which parts of the
    document are from another file than `name`. `texts` has the text of each file, where lines are counted.
    """

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str] | None = os.environ,
        files: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
        schema: Schema | None = None,
    ) -> None:
        self.name = name
        self.environment = environment
        self.files = files or {}
        self.texts = texts or {}
        self.schema = schema or document_schema()
        self.variables: dict[str, None] = {}  # that must be set, in the order of the document
        self.unset: dict[str, ToolError] = {}  # by the key path of an entry, why it cannot be used here
        self.elsewhere: dict[str, dict[str, Any]] = {}  # entries of `secrets`, by their key path
        self.named: dict[str, str] = {}  # the key path of such an entry, by its name
        self.sources: dict[str, SecretSource] = {}  # of the values of such entries, by key path
        self.live: dict[str, LiveText] = {}  # texts that hold one of them, by key path
        self.secrets: list[str] = []  # values of the environment that must be masked, of the current entry
        self.kept_outside: dict[str, str] = {}  # those of them that have `for`: value -> name

    def read_document(self, document: Any) -> Any:
        """Returns the typed values of a document."""
        self.check(document)
        listed = document.get("secrets") if isinstance(document, dict) else None
        entries = {f"secrets[{number}]": one for number, one in enumerate(listed or ()) if isinstance(one, dict)}
        self.elsewhere = entries
        self.named = {one["name"]: key_path for key_path, one in entries.items() if "name" in one}
        return self.read(self.schema, document, "")

    def check(self, document: Any) -> None:
        """Checks a document against the schema, but for permission rules."""
        from jsonschema_rs import validator_for  # only where there is a file

        if (odd := _find_odd(document)) is not None:
            raise self._explain_odd(*odd)
        validator = _document_validator() if self.schema is document_schema() else validator_for(self.schema)
        mistakes = _flatten(validator.iter_errors(document))
        found = [one for one in mistakes if one.instance_path[:2] != _RULES or len(one.instance_path) == 2]
        if found:
            raise self._explain(min(found, key=lambda one: _position(one, document)))

    def read(self, node: Schema, value: Any, key_path: str) -> Any:
        """Returns the typed value of what is written at a key path, once it is checked."""
        if "anyOf" in node and "format" not in node:
            node, value = _choose(node["anyOf"], value)
        if (convert := _FORMATS.get(node.get("format", ""))) is not None:
            return convert(self, value, key_path)
        if "else" in node:
            if value.get(node["else"]["x-disabled"]):
                return None
            node = node["else"]
        if "properties" in node and isinstance(value, dict):
            return self._read_section(node, value, key_path)
        if isinstance(value, list) and "items" in node:
            return [self.read(node["items"], one, f"{key_path}[{index}]") for index, one in enumerate(value)]
        if isinstance(value, dict) and isinstance(node.get("additionalProperties"), dict):
            return self._read_entries(node["additionalProperties"], value, key_path)
        return int(value) if node.get("type") == "integer" else value

    def _read_section(self, node: Schema, said: Mapping[str, Any], key_path: str) -> Any:
        values = {}
        for name, written in said.items():
            declared = node["properties"].get(name, {})
            at = f"{key_path}.{name}" if key_path else name
            values[declared.get("x-field", name)] = self.read(declared, written, at)
        if "x-class" not in node:
            return values
        module, _, name = node["x-class"].partition(":")
        return getattr(import_module(module), name).from_keys(self, values, key_path)

    def _read_entries(self, node: Schema, said: Mapping[str, Any], key_path: str) -> dict[str, Any]:
        """Reads named entries. A section that lacks a variable is left out, and noted as unset."""
        is_section = any("else" in one or "properties" in one for one in (node, *node.get("anyOf", ())))
        found = {}
        for name, one in said.items():
            if is_section:
                self.secrets, self.kept_outside = [], {}
            try:
                found[name] = self.read(node, one, f"{key_path}.{name}")
            except UnsetVariable as error:
                if not is_section:
                    raise
                self.unset[f"{key_path}.{name}"] = error
        return {name: one for name, one in found.items() if one is not None}

    def path(self, text: str) -> Path:
        """A relative path counts from where the file is."""
        return Path(self.name).parent / text

    def fill_in(self, text: str, key_path: str, *, secret: bool = False) -> str:
        """Replaces `${NAME}` and `${NAME:-default}` by variables of the environment."""
        first, *pieces = re.split(REFERENCE, text)
        parts: list[str | SecretSource] = [first]
        filled = first
        for name, default, after in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            value, source = self._look_up(name, default, key_path, secret=secret)
            filled += value + after
            parts += [source or value, after]
        self._note_live(key_path, parts)
        return filled

    def read_value(self, name: str, key_path: str) -> str:
        """Returns the value of the variable or secret of that name."""
        value, source = self._look_up(name, None, key_path, secret=True)
        self._note_live(key_path, [source or value])
        return value

    def live_text(self, key_path: str, text: str) -> str | LiveText:
        """Returns the text of a key, as one that is read again if it holds a secret that may change."""
        return self.live.get(key_path, text)

    def _note_live(self, key_path: str, parts: list[str | SecretSource]) -> None:
        if any(not isinstance(one, str) for one in parts):
            self.live[key_path] = LiveText(parts)

    def _look_up(
        self, name: str, default: str | None, key_path: str, *, secret: bool
    ) -> tuple[str, SecretSource | None]:
        """Returns a variable's value, and its source if it may change; it is noted as secret where `secret` or its
        name says so.
        """
        if default is None:
            self.variables[name] = None
        if self.environment is None:
            return (f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"), None
        source = self._source_elsewhere(name)
        given = source.read() if source is not None else self.environment.get(name)
        if not given and default is None:
            said = f"{file_of(key_path, self.files, self.name)}: {key_path}: the environment variable {name} is not set"
            raise UnsetVariable(said, ErrorKind.CONFIG, f"Set it before Forge starts: export {name}=…")
        if given and (secret or name in self.named or is_secret(name)):
            self.secrets.append(given)
        if given and name in self.named and self.elsewhere[self.named[name]].get("for"):
            self.kept_outside[given] = name
        return given or default or "", source if given else None

    def _source_elsewhere(self, name: str) -> SecretSource | None:
        """Returns the source of a named secret that is in a file, a command or the keyring; None if it is none."""
        key_path = self.named.get(name, "")
        is_elsewhere = self.elsewhere.get(key_path, {}).keys() & {"file", "command", "keyring"}
        return self.secret_source(key_path) if is_elsewhere else None

    def secret_source(self, key_path: str) -> SecretSource:
        """Returns the source of an entry of `secrets`; the same one for all that use it."""
        if (known := self.sources.get(key_path)) is not None:
            return known
        entry = self.elsewhere[key_path]
        words = entry.get("command", ())
        file = self.path(os.path.expanduser(entry["file"])) if "file" in entry else None
        environment = os.environ if self.environment is None else self.environment
        command = [re.sub(REFERENCE, lambda one: environment.get(one[1]) or one[2] or "", f"{word}") for word in words]

        def read() -> str:
            from forge.project.config.read_secret import read_secret  # only where a secret is named

            try:
                value = read_secret(file, command, entry.get("keyring", ""))
            except ValueError as error:
                raise self.error(key_path, str(error)) from None
            return value or environment.get(entry.get("name", ""), "")

        source = self.sources[key_path] = SecretSource(read, entry.get("lifetime", SECRET_LIFETIME))
        return source

    def error(self, key_path: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        file = file_of(key_path, self.files, self.name)
        if file.startswith(FROM_VARIABLE):
            variable = file.removeprefix(FROM_VARIABLE)
            hint = f"Set {variable} to such a value, or remove it: unset {variable}"
            return ToolError(f"{file}: {problem}, for {key_path}", ErrorKind.CONFIG, hint)
        text = self.texts.get(file, "")
        return config_error(file, key_path, problem, written, known, text, schema=self.schema, example=True)

    def _explain(self, error: Any) -> ToolError:
        """Explains one mistake that the schema found."""
        node, key_path = _node_at(self.schema, error.schema_path), render_key_path(error.instance_path)
        kind, message = error.kind.name, node.get("errorMessage", "unknown key")
        if kind == "additionalProperties":
            unknown = error.kind.unexpected[0]
            return self.error(_join(key_path, unknown), "unknown key", unknown, node["properties"])
        if kind == "propertyNames":
            name = error.kind.error.instance
            return self.error(_join(key_path, name), message, name, node.get("enum", ()))
        if kind == "required" and error.schema_path[-1] == "dependentRequired":
            [name, *_] = (one for one in node["dependentRequired"] if one in error.instance)
            return self.error(_join(key_path, name), message)
        if kind == "required":
            missing = error.kind.property
            what = node.get("properties", {}).get(missing, {}).get("x-required")
            return self.error(key_path, f"{missing} is missing{f': {what}' if isinstance(what, str) else ''}")
        return self.error(key_path or "the document", *_describe(node, kind, error.instance))

    def _explain_odd(self, path: Steps, value: Any, problem: str) -> ToolError:
        """Explains a value that JSON does not have."""
        key_path = render_key_path(path)
        nodes = _nodes_at(_steps(key_path), self.schema)
        if problem or len(nodes) <= len(path):
            problem = problem or f"expected plain data, got a {type(value).__name__}; put it in quotes"
            return self.error(key_path, problem)
        node = nodes[-1][1]
        return self.error(key_path, *_describe(node.get("anyOf", [node])[-1], "type", value))


def config_error(
    name: str,
    key_path: str,
    problem: str,
    written: str = "",
    known: Iterable[str] = (),
    text: str = "",
    *,
    schema: Schema | None = None,
    example: bool = False,
) -> ToolError:
    """Builds an error with the problem, its location, a suggestion and, with `example` or without one, an example."""

    names = [str(one) for one in known]
    hint = near(written, names, 1) if written else []
    fix = f"Did you mean {hint[0]!r}?" if hint else f"Use one of {', '.join(sorted(names))}." if names else ""
    if example or not fix:
        is_key = bool(hint) and key_path.endswith(written)
        example_line = example_at(key_path, hint[0] if is_key else "", schema or document_schema())
        fix = f"{fix} For example: {example_line}".lstrip()
    line = line_of(key_path, text)
    return ToolError(f"{name}: {key_path}: {problem}{f' (line {line})' if line else ''}", ErrorKind.CONFIG, fix)


def file_of(key_path: str, files: Mapping[str, str], name: str) -> str:
    """Returns the file that a part of a document is from; `name` where no other is known."""
    steps = re.split(r"[.\[]", key_path)
    for length in range(min(len(steps), 3), 0, -1):
        if found := files.get(".".join(steps[:length])):
            return found
    return name


def is_secret(name: str) -> bool:
    """Returns whether the name of a variable or a header marks its value as secret."""
    return re.search(_TELLING, name) is not None or name.lower() == "cookie"


def kind_of(value: Any) -> str:
    return article(json_type(value))


# Finds the example, the description and the line of a key path such as `tools[0].config.timeout`.


def example_at(key_path: str, near: str, schema: Schema) -> str:
    """Returns one line of YAML with an example for a key path such as `tools[0].config.timeout`.

    `near` is the key that was probably meant instead of the last one.
    """
    steps = _steps(key_path)
    nodes = _nodes_at([*steps[:-1], near] if near else steps, schema)
    name, node = next((step, node) for step, node in reversed(nodes) if "examples" in node)
    example = on_one_line(node["examples"][0])
    return example if not name else f"- {example}" if name.startswith("[") else f"{name}: {example}"


def description_at(key_path: str, schema: Schema) -> str:
    """Returns the description of the key at a key path; empty if nothing is declared there."""
    steps = _steps(key_path)
    nodes = _nodes_at(steps, schema)
    return str(nodes[-1][1].get("description", "")) if len(nodes) > len(steps) else ""


def line_of(key_path: str, text: str) -> int:
    """Returns the line of a text in which a key path is written, or the nearest key path around it; 0 if not known."""
    import yaml

    from forge.core.yaml import safe_loader

    try:
        node = yaml.compose(text, Loader=safe_loader()) if text else None
    except yaml.YAMLError:  # tabs, which the reader repairs
        return 0
    line = 0
    for step in _steps(key_path):
        if isinstance(node, yaml.SequenceNode) and step.startswith("["):
            node = node.value[int(step[1:-1])]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and (found := [two for two in node.value if two[0].value == step]):
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        else:
            break
    return line


def _steps(key_path: str) -> list[str]:
    return re.findall(r"\[\d+\]|[^.\[\]]+", key_path)


def _nodes_at(steps: list[str], schema: Schema) -> list[tuple[str, Schema]]:
    """Returns the schemas on the way to a key path, as far as they are declared, each with its step."""
    found: list[tuple[str, Schema]] = [("", schema)]
    for step in steps:
        if (inner := _inner(found[-1][1], step)) is None:
            break
        found.append((step, inner))
    return found


def _inner(node: Schema, step: str) -> Schema | None:
    """Returns the schema of an entry of a list, a key or a named entry."""
    found: Any = None
    for one in (node, *node.get("anyOf", ()), node.get("else", {})):
        if step.startswith("["):
            found = found or one.get("items")
        else:
            found = found or one.get("properties", {}).get(step) or one.get("additionalProperties")
    return found if isinstance(found, dict) else None


def on_one_line(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {on_one_line(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(on_one_line, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_./~][\w ./~-]*[\w./-]|[A-Za-z]", value):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


# Finds the first mistake of a document, and describes it.


def _find_odd(value: Any, path: Steps = ()) -> tuple[Steps, Any, str] | None:
    """Returns the first key or value that JSON does not have, such as a date: its path, and what is wrong with it."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    elif isinstance(value, str):
        return None if value.isascii() or _is_text(value) else (path, value, "half a surrogate pair is not a character")
    elif not (value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value))):
        return path, value, ""
    for key, one in inner:
        if isinstance(value, dict) and not (isinstance(key, str) and _is_text(key)):
            return (*path, f"{key}"), key, "expected a string as key"
        if (found := _find_odd(one, (*path, key))) is not None:
            return found
    return None


def _is_text(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _flatten(errors: Iterable[Any]) -> Iterator[Any]:
    """Yields mistakes; of alternatives, those of the one of the right type with the fewest mistakes."""
    for error in errors:
        if error.kind.name != "anyOf":
            yield error
            continue
        here: Any = error.instance_path
        branches: list[list[Any]] = error.kind.context[::-1]
        right = [one for one in branches if not any(it.kind.name in _TYPES and it.instance_path == here for it in one)]
        yield from _flatten(sorted(right, key=len)[0] if right else branches[0])


_TYPES = ("type", "const", "enum")


def _position(error: Any, document: Any) -> tuple[list[int], int]:
    """Returns where a mistake stands in the document; at one place, a wrong type comes first, then unknown keys."""
    places, here = [], document
    for step in error.instance_path:
        places.append(step if isinstance(here, list) else [*here].index(step))
        here = here[step]
    order = ("type", "additionalProperties", "propertyNames", "required")
    return places, order.index(error.kind.name) if error.kind.name in order else len(order)


def _node_at(schema: Any, path: Iterable[str | int]) -> Schema:
    """Returns the schema whose keyword a path names."""
    for step in [*path][:-1]:
        schema = schema[step]
    return schema if isinstance(schema, dict) else {}


def _describe(node: Schema, keyword: str, value: Any) -> tuple[str, str, list[str]]:
    """Returns what is wrong with a value, the value if another word may have been meant, and these words."""
    got = "" if node.get("writeOnly") else f", got {value!r:.60}"
    if "enum" in node or "const" in node:
        words = [one for one in node.get("enum", [node.get("const")]) if isinstance(one, str)]
        if message := node.get("errorMessage"):
            return f"{message}{got}", str(value), near(str(value), words, 1)
        return f"expected one of {', '.join(words)}{got}", str(value), words
    kind = node.get("type", "")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind in ("integer", "number") and keyword != "not":
        least = node.get("minimum", node.get("exclusiveMinimum"))
        bound = "above" if "exclusiveMinimum" in node else "from"
        return f"expected a {'whole ' if kind == 'integer' else ''}number {bound} {least}{got}", "", []
    if keyword == "type" or "errorMessage" not in node:
        expected = _EXPECTED.get(kind, "a value of another kind")
        is_empty = kind == "string" and keyword == "pattern"
        return f"expected {expected}, got {'an empty string' if is_empty else kind_of(value)}", "", []
    return f"{node['errorMessage']}{got if isinstance(value, str | int) else ''}", "", []


_EXPECTED = {"string": "a string", "boolean": "true or false", "array": "a list", "object": "a mapping"}


def _choose(branches: list[Schema], value: Any) -> tuple[Schema, Any]:
    """Returns the alternative that a checked value is written in, and the value in its long form."""
    for node in branches:
        if isinstance(value, dict) and "properties" in node and all(name in value for name in node.get("required", ())):
            return node, value
        if isinstance(value, list) and "items" in node:
            return node, value
    for node in branches:
        if "x-alone" in node and not isinstance(value, dict):
            return node, {node["x-alone"]: value}
        if "items" in node:
            return node, [value]
    return next((node for node in branches if "format" in node), {}), value


def render_key_path(path: Iterable[str | int]) -> str:
    """Renders a path as in `tools[0].config`."""
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else _join(text, step)
    return text


def _join(key_path: str, name: str) -> str:
    return f"{key_path}.{name}" if key_path else name


# How texts are read, by the `format` of their kinds.


def _read_argument(reader: ConfigReader, value: Any, key_path: str, *, secret: bool = False) -> str:
    return reader.fill_in(f"{value}", key_path, secret=secret)


def _read_pairs(reader: ConfigReader, value: Any, key_path: str) -> dict[str, str]:
    found = {}
    for name, one in value.items():
        found[name] = _read_argument(reader, one, f"{key_path}.{name}", secret=is_secret(name))
        if is_secret(name) and reader.environment is not None:
            reader.secrets.append(found[name])
    return found


def _read_spec(reader: ConfigReader, value: Any, key_path: str) -> str:
    text = reader.fill_in(value, key_path)
    return text if text.lower().startswith(("http://", "https://")) else str(reader.path(text))


def _read_variable(reader: ConfigReader, value: Any, key_path: str) -> str:
    reader.variables[value] = None
    return str(value)


def _read_references(reader: ConfigReader, value: Any, key_path: str) -> str:
    reader.variables |= dict.fromkeys(match[1] for match in re.finditer(REFERENCE, value) if match[2] is None)
    return str(value)


_FORMATS: dict[str, Callable[[ConfigReader, Any, str], Any]] = {
    "argument": _read_argument,
    "as-written": lambda reader, value, key_path: value,
    "filled": lambda reader, value, key_path: reader.fill_in(value, key_path),
    "home-path": lambda reader, value, key_path: reader.path(os.path.expanduser(value)),
    "pairs": _read_pairs,
    "path": lambda reader, value, key_path: reader.path(value),
    "references": _read_references,
    "spec": _read_spec,
    "text": lambda reader, value, key_path: str(value),
    "value": lambda reader, value, key_path: reader.read_value(value, key_path),
    "variable": _read_variable,
}
