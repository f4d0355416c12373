"""Reads one document: every refusal names the file, the key path, the line, a fix and an example."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from forge.core.arguments.explain import article, json_type, near
from forge.core.errors import ErrorKind, ToolError

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
FROM_VARIABLE = "the environment variable "  # the beginning of the name of such a source
_REFERENCE = rf"\$\{{({VARIABLE})(?::-([^}}]*))?\}}"
_TELLING = "(?i)TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL"


class UnsetVariable(ToolError):
    """An entry names a variable of the environment that is not set."""


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
        declaration: Any = None,
    ) -> None:
        self.name = name
        self.environment = environment
        self.files = files or {}
        self.texts = texts or {}
        self.declaration = declaration  # the section that examples are from; by default `Configuration`
        self.variables: dict[str, None] = {}  # that must be set, in the order of the document
        self.unset: dict[str, ToolError] = {}  # by the key path of an entry, why it cannot be used here
        self.secrets: list[str] = []  # values of the environment that must be masked

    def mapping(self, value: Any, key_path: str, keys: Iterable[str] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(key_path or "the document", f"expected a mapping, got {kind_of(value)}")
        for key in value:
            at = f"{key_path}.{key}" if key_path else f"{key}"
            if not isinstance(key, str):
                raise self.error(at, "expected a string as key")
            if keys and key not in keys:
                raise self.error(at, "unknown key", key, keys)
        return value

    def sequence(self, value: Any, key_path: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.error(key_path, f"expected a list, got {kind_of(value)}")
        return value

    def text(self, value: Any, key_path: str, *, blank: bool = False) -> str:
        """`blank`: the text may be empty."""
        if not isinstance(value, str) or "\0" in value or not (blank or value.strip()):
            got = "an empty string" if isinstance(value, str) and not blank else kind_of(value)
            raise self.error(key_path, f"expected a string, got {got}")
        return value

    def path(self, text: str) -> Path:
        """A relative path counts from where the file is."""
        return Path(self.name).parent / text

    def fill_in(self, text: str, key_path: str, *, secret: bool = False) -> str:
        """Replaces `${NAME}` and `${NAME:-default}` by variables of the environment."""
        return re.sub(_REFERENCE, lambda match: self.look_up(match[1], match[2], key_path, secret=secret), text)

    def look_up(self, name: str, default: str | None, key_path: str, *, secret: bool) -> str:
        """Returns a variable's value; it is noted as secret where `secret` or its name says so."""
        if default is None:
            self.variables[name] = None
        if self.environment is None:
            return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"
        given = self.environment.get(name)
        if not given and default is None:
            said = f"{file_of(key_path, self.files, self.name)}: {key_path}: the environment variable {name} is not set"
            raise UnsetVariable(said, ErrorKind.CONFIG, f"Set it before Forge starts: export {name}=…")
        if given and (secret or is_secret(name)):
            self.secrets.append(given)
        return given or default or ""

    def error(self, key_path: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        file = file_of(key_path, self.files, self.name)
        if file.startswith(FROM_VARIABLE):
            variable = file.removeprefix(FROM_VARIABLE)
            hint = f"Set {variable} to such a value, or remove it: unset {variable}"
            return ToolError(f"{file}: {problem}, for {key_path}", ErrorKind.CONFIG, hint)
        text = self.texts.get(file, "")
        return config_error(file, key_path, problem, written, known, text, within=self.declaration, example=True)


def config_error(
    name: str,
    key_path: str,
    problem: str,
    written: str = "",
    known: Iterable[str] = (),
    text: str = "",
    *,
    within: Any = None,
    inside: str = "",
    example: bool = False,
) -> ToolError:
    """Builds an error with the problem, its location, a suggestion and an example.

    `within`: the declaration that has an example; `inside`: the key whose value that declaration is.
    """

    names = [str(one) for one in known]
    hint = near(written, names, 1) if written else []
    fix = f"Did you mean {hint[0]!r}?" if hint else f"Use one of {', '.join(sorted(names))}." if names else ""
    if within is not None and (example or not fix):
        is_key = bool(hint) and key_path.endswith(written)
        example_line = example_at(key_path.removeprefix(f"{inside}."), hint[0] if is_key else "", within)
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


Schema = dict[str, Any]


class Declaration(Protocol):
    """A section of the configuration: it has a JSON Schema."""

    def schema(self) -> Schema: ...


def example_at(key_path: str, near: str, declaration: Declaration) -> str:
    """Returns one line of YAML with an example for a key path such as `tools[0].config.timeout`.

    `near` is the key that was probably meant instead of the last one.
    """
    steps = _steps(key_path)
    nodes = _nodes_at([*steps[:-1], near] if near else steps, declaration)
    name, node = next((step, node) for step, node in reversed(nodes) if "examples" in node)
    example = on_one_line(node["examples"][0])
    return example if not name else f"- {example}" if name.startswith("[") else f"{name}: {example}"


def description_at(key_path: str, declaration: Declaration) -> str:
    """Returns the description of the key at a key path; empty if nothing is declared there."""
    steps = _steps(key_path)
    nodes = _nodes_at(steps, declaration)
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


def _nodes_at(steps: list[str], declaration: Declaration) -> list[tuple[str, Schema]]:
    """Returns the schemas on the way to a key path, as far as they are declared, each with its step."""
    found: list[tuple[str, Schema]] = [("", declaration.schema())]
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
