"""Lets a person edit the arguments of a call as YAML, in the editor of their choice."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from forge.cli.terminal.print_result import harmless
from forge.core.arguments.schema import compile_parser
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.spec import ToolSpec
from forge.core.yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader
from forge.permissions.request import PermissionRequest

EDITORS = ("sensible-editor", "nano", "vim", "vi")  # where neither $VISUAL nor $EDITOR is set
LARGEST = 64 * 1024 * 1024  # bytes of an edited file
BOUNDS = Bounds(levels=100, aliases=0, values=200_000)
FILE = "arguments.yaml"
HEAD = """\
# The arguments of {tool}. Change them, save the file and close the editor.
# They are checked first; what they do is then judged by the same rules.
# Leave them as they are, or empty the file, to go back to the question.
"""


class EditError(Exception):
    """The reason why no edited arguments can be used."""


def find_editor() -> list[str]:
    """Returns the command of the person's editor; empty if there is none."""
    for variable in ("VISUAL", "EDITOR"):
        with suppress(ValueError):  # an open quote
            if words := shlex.split(os.environ.get(variable, "")):
                return words
    return next(([name] for name in EDITORS if shutil.which(name)), [])


def write_document(request: PermissionRequest, problem: str = "", edited: str = "") -> str:
    """Returns the text to edit: the arguments, or `edited` with the problem above it."""
    head = HEAD.format(tool=request.spec.name)
    if not problem:
        return head + _to_yaml(plain_arguments(request))
    body = "".join(line for line in edited.splitlines(keepends=True) if not line.startswith("#"))
    return head + "".join(f"# Problem: {line}\n" for line in harmless(problem).splitlines()) + body


def read_document(text: str, request: PermissionRequest) -> Mapping[str, Any] | None:
    """Returns the edited arguments; None where nothing was changed. Raises `EditError`."""
    try:
        document = bounded_yaml(text, FILE, lambda yaml, source: yaml.load(source, Loader=safe_loader()), BOUNDS)
        plain = json.loads(json.dumps(document, default=str, allow_nan=False))
    except Unreadable as error:
        raise EditError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise EditError(f"{FILE}: {error}. Write values that JSON has, too.") from None
    if plain is None or plain == plain_arguments(request):
        return None
    if not isinstance(plain, dict):
        raise EditError(f"{FILE} does not hold arguments by their names. Write one `name: value` a line.")
    _check(plain, request)
    return plain


async def run_editor(command: list[str], text: str) -> str:
    """Returns the text as the person leaves it. Raises `EditError`; the editor ends if this is cancelled."""
    with tempfile.TemporaryDirectory(prefix="forge-edit-") as folder:
        path = Path(folder, FILE)  # only its owner can enter the folder
        code = await _wait_for(_start_editor(command, path, text))
        if code:
            raise EditError(f"The editor {command[0]!r} ended with code {code}. Nothing is changed.")
        try:
            return bounded_text(path, LARGEST)
        except Unreadable as error:
            raise EditError(f"{FILE}: {error.problem}. {error.advice}") from None


def _start_editor(command: list[str], path: Path, text: str) -> subprocess.Popen[bytes]:
    path.write_text(text, encoding="utf-8")
    try:
        return subprocess.Popen([*command, str(path)])
    except OSError as error:
        raise EditError(f"The editor {command[0]!r} cannot be started: {error.strerror}. Set $EDITOR.") from None


async def _wait_for(editor: subprocess.Popen[bytes]) -> int:
    modes = termios.tcgetattr(0)
    try:
        code: int = await in_thread(editor.wait)
        return code
    except asyncio.CancelledError:
        editor.terminate()
        raise
    finally:
        termios.tcsetattr(0, termios.TCSANOW, modes)


def plain_arguments(request: PermissionRequest) -> dict[str, Any]:
    """Returns the arguments as JSON data."""
    arguments: dict[str, Any] = json.loads(json.dumps(dict(request.arguments), default=str))
    return arguments


def _check(arguments: Mapping[str, Any], request: PermissionRequest) -> None:
    """Raises `EditError` for arguments that do not fit. The gate parses and judges them again."""
    if request.form is not None:
        spec = ToolSpec(name="answer", description="", parameters=request.form)
        arguments = {name: value for name, value in arguments.items() if value is not None}
    else:
        spec = dataclasses.replace(request.spec, strict=False)
    try:
        compile_parser(spec)(arguments)
    except ToolError as error:
        raise EditError("\n".join(filter(None, (error.message, error.suggestion)))) from None


def _to_yaml(arguments: dict[str, Any]) -> str:
    """Writes texts of several lines as blocks; everything as JSON where YAML would be read differently."""
    import yaml  # heavy: only where somebody edits

    class Dumper(yaml.SafeDumper):
        """Writes a text of several lines as a block."""

    def represent_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent_text)
    steers = any(harmless(text) != text for text in _texts(arguments))
    text = yaml.dump(arguments, Dumper=Dumper, sort_keys=False, allow_unicode=not steers, width=1_000_000)
    try:
        if yaml.load(text, Loader=safe_loader()) == arguments:  # noqa: S506 - the safe one
            return str(text)
    except yaml.YAMLError:
        pass
    return json.dumps(arguments, indent=2, ensure_ascii=True) + "\n"


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (str(key), *_texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
