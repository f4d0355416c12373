"""The unsaved text of an editor: the file tools read it, and what they change reaches the editor.

What holds: a file tool sees the text that the person sees. The diff that is approved is about that text. Before a
change is made, the editor saves the text, so that the change, its journal and its undo are those of every other change.
The editor then gets the new text, unless the person typed meanwhile: nothing that a person typed is overwritten. An
editor that does not answer is an error of the call, never a reason to use older text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Protocol, TypeVar

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next, Step, StepObject, step_name
from forge.core.execution.threads import in_thread
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.permissions.targets import targets_of
from forge.pipeline.track_files import TrackFiles
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.open import open_file, status_of
from forge.workspace.text import DecodedText, decode

TOOLS = frozenset({"file_read", "file_edit", "file_write", "file_create", "file_patch"})
LARGEST = 8 * 1024 * 1024  # bytes of a file that the editor is asked about
MOST_FILES = 50  # of one call
PATIENCE = 20.0  # seconds for an answer of the editor


class EditorFiles(Protocol):
    """The file methods of an editor."""

    async def read(self, path: str) -> str | None:
        """Returns the text that the editor has; None if it has none, such as of a file that is not open."""

    async def write(self, path: str, text: str) -> None:
        """Puts the text into the editor, which saves it."""

    @property
    def can_write(self) -> bool: ...


T = TypeVar("T")


def add_editor(steps: tuple[Step, ...], editor: EditorFiles) -> tuple[Step, ...]:
    """Returns the steps of an agent with those for the unsaved text: around the gate, and directly around the tool."""
    at = next((at for at, one in enumerate(steps) if step_name(one) == TrackFiles.name), 1)
    return (*steps[:at], ShowUnsaved(editor), *steps[at:], SaveFirst(editor))


class ShowUnsaved(StepObject):
    """Shows the file tools the text that the editor has."""

    name = "show_unsaved"

    def __init__(self, editor: EditorFiles) -> None:
        self._editor = editor

    def applies(self, spec: ToolSpec) -> bool:
        return _is_file_tool(spec)

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        found = {str(location.path): await self._find(location) for location in _find_files(ctx)}
        unsaved = {path: content for path, content in found.items() if content is not None}
        return await proceed(ctx.replace(scope=replace(ctx.scope, unsaved=unsaved)) if unsaved else ctx)

    async def _find(self, location: Location) -> bytes | None:
        """Returns the text of the editor, as the file will have it, if it differs from the file."""
        status = status_of(location)
        if status is None or status.st_size > LARGEST:
            return None
        try:
            saved: DecodedText = await in_thread(lambda: _read(location))
        except ToolError:  # no text, or not readable: the tool says so
            return None
        text = await _ask(self._editor.read(str(location.path)), f"reading {quote_path(location.shown)}")
        if text is None or _is_same(text, saved.text):
            return None
        return saved.encode_whole(_use_line_ends(text, saved.text))


class SaveFirst(StepObject):
    """Lets the editor save its text before a tool changes the file, and gives it the new text."""

    name = "save_first"

    def __init__(self, editor: EditorFiles) -> None:
        self._editor = editor

    def applies(self, spec: ToolSpec) -> bool:
        return _is_file_tool(spec) and Permission.WRITE in spec.permissions

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if ctx.scope.unsaved:
            for location in _find_files(ctx):
                if location.unsaved is not None:
                    await self._save(location, decode(location.unsaved).text)
            ctx = ctx.replace(scope=replace(ctx.scope, unsaved=None))  # the files have it now
        before = await in_thread(lambda: {one: _read_or_none(one) for one in _find_files(ctx)})
        result = await proceed(ctx)
        if result.failure is None and self._editor.can_write:
            for location, text in before.items():
                if text is not None:
                    await self._show(location, text)
        return result

    async def _save(self, location: Location, text: str) -> None:
        path, doing = str(location.path), f"changing {quote_path(location.shown)}"
        if not self._editor.can_write:
            problem = f"{doing}: the file has changes in the editor that are not saved"
            raise ToolError(problem, ErrorKind.USER, "Ask the person to save the file, then try again.")
        now = await _ask(self._editor.read(path), doing)
        if now is None or not _is_same(now, text):
            problem = f"{doing}: the person typed in the editor meanwhile"
            raise ToolError(problem, ErrorKind.VALIDATION, "Read the file again before you change it.")
        await _ask(self._editor.write(path, text), doing)
        saved: DecodedText = await in_thread(lambda: _read(location))
        if saved.text != text:
            problem = f"{doing}: the editor did not save its text as it was"
            raise ToolError(problem, ErrorKind.VALIDATION, "Read the file again before you change it.")

    async def _show(self, location: Location, before: str) -> None:
        """Gives the editor the new text, if it has the old one. What the person typed meanwhile stays."""
        text: str | None = await in_thread(lambda: _read_or_none(location))
        if text is None:  # deleted or moved
            return
        doing = f"showing the change of {quote_path(location.shown)}"
        now = await _ask(self._editor.read(str(location.path)), doing)
        if now is not None and not _is_same(now, text) and _is_same(now, before):
            await _ask(self._editor.write(str(location.path), text), doing)


def _is_file_tool(spec: ToolSpec) -> bool:
    return spec.category is Category.BUILTIN and spec.name in TOOLS


def _find_files(ctx: ToolContext) -> list[Location]:
    paths, found = PathValidator.of(ctx.scope), {}
    for target in targets_of(ctx.spec, ctx.arguments, ctx.tool)[:MOST_FILES]:
        try:
            location = paths.resolve(target)
        except ToolError:  # the tool refuses it
            continue
        found[str(location.path)] = location
    return list(found.values())


def _read(location: Location) -> DecodedText:
    """Reads the saved file."""
    with open(open_file(replace(location, unsaved=None)), "rb") as file:
        return decode(file.read(LARGEST + 1))


def _read_or_none(location: Location) -> str | None:
    try:
        return _read(location).text if status_of(location) is not None else None
    except ToolError:
        return None


def _is_same(text: str, saved: str) -> bool:
    """Returns whether two texts are the same but for line ends: editors write their own."""
    if text == saved:
        return True
    one, other = (each.replace("\r\n", "\n") for each in (text, saved))
    return one == other or f"{one}\n" == other


def _use_line_ends(text: str, saved: str) -> str:
    """Returns the text with the line ends of the file."""
    text = text if not saved.endswith("\n") or text.endswith("\n") else f"{text}\n"
    if "\r\n" in saved and "\r\n" not in text:
        return text.replace("\n", "\r\n")
    return text


async def _ask(answer: Awaitable[T], doing: str) -> T:
    try:
        async with asyncio.timeout(PATIENCE):
            return await answer
    except TimeoutError:
        problem = f"{doing}: the editor did not answer within {PATIENCE:.0f} s, and may have unsaved text"
        raise ToolError(problem, ErrorKind.TIMEOUT, "Try again.") from None
