"""Reads one document: every refusal names the file, the key path, the line and a fix."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forge.core.arguments.checks import article, json_type, near
from forge.core.errors import ErrorKind, ToolError

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
FROM_VARIABLE = "the environment variable "  # the beginning of the name of such a source
_REFERENCE = rf"\$\{{({VARIABLE})(?::-([^}}]*))?\}}"
_TELLING = "(?i)TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL"


class UnsetVariable(ToolError):
    """An entry names a variable of the environment that is not set."""


class Reader:
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
    from forge.project.config.key_paths import example_at, line_of  # only where something is wrong

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
    """Tells whether the name of a variable or a header marks its value as secret."""
    return re.search(_TELLING, name) is not None or name.lower() == "cookie"


def kind_of(value: Any) -> str:
    return article(json_type(value))
