"""Replaces text in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypedDict

from forge.core.arguments.json_text import as_text, read_object
from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.shared.change_files import change_files, note_changes, preview_change, reconcile_changes
from forge.tools.shared.listing import printable
from forge.tools.shared.model_habits import OrNull

if TYPE_CHECKING:  # it loads what only a change needs
    from forge.tools.file_edit.find_text import Match
    from forge.workspace.draft import Draft
    from forge.workspace.paths import Location
    from forge.workspace.text import DecodedText

SHOWN_LINES = 100  # touched places that are listed


class Edit(TypedDict):  # a docstring would be sent to the model
    old_text: str
    new_text: str
    replace_all: NotRequired[Annotated[bool, OrNull()]]


NONE: list[Edit] = []


class EditOutcome(NamedTuple):
    """The outcome of a plan."""

    path: str
    created: bool
    replacements: int
    rungs: list[str]
    size: int


_ALIASES = {
    **dict.fromkeys(("old_string", "old_str", "old", "search", "find", "oldText", "oldString"), "old_text"),
    **dict.fromkeys(("new_string", "new_str", "new", "replace", "replacement", "newText", "newString"), "new_text"),
    **dict.fromkeys(("replaceAll", "all"), "replace_all"),
}


class FileEdit(
    Tool,
    category=Category.BUILTIN,
    groups={"write", "code-agent"},
    aliases=("edit", "edit_file"),
    argument_aliases={**dict.fromkeys(("file_path", "filepath", "filename", "file"), "path"), **_ALIASES},
    permissions={"write"},
    target="path",
    harmless={"old_text", "new_text", "edits"},
):
    """Replace text in a file that was read before. old_text must be an exact copy and occur once unless replace_all."""

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str, ParameterLimits(example="notes.txt")],
        old_text: Annotated[
            str, ParameterLimits(example="Hello"), "Copied without line numbers; empty to create a file."
        ] = "",
        new_text: Annotated[str, ParameterLimits(example="Goodbye")] = "",
        replace_all: bool = False,
        edits: Annotated[list[Edit], "Or several, made in order, all or none."] = NONE,
    ) -> ToolResult:
        wanted = _collect_edits(old_text, new_text, replace_all, edits)
        edited, draft = await change_files(ctx, [path], lambda draft: plan(draft, path, wanted))
        return _answer(edited, draft.diff())

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return await preview_change(ctx, self._plan(arguments))

    def _plan(self, arguments: Mapping[str, Any]) -> Callable[[Draft], EditOutcome]:
        wanted = _collect_edits(*(arguments[key] for key in ("old_text", "new_text", "replace_all", "edits")))
        return lambda draft: plan(draft, arguments["path"], wanted)

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return note_changes(ctx, self._plan(arguments))

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        return await reconcile_changes(ctx)

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        parser = self._signature.parser(self.spec)

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            """Also accepts other systems' names inside the list of edits, and reports missing texts."""
            text = arguments if isinstance(arguments, str) else as_text(arguments)
            parsed = parser(_rename_keys(read_object(text)) if '"edits"' in text else text)
            for name in ("old_text", "new_text"):
                if not parsed["edits"] and not parsed[name] and not _is_given(name, read_object(text)):
                    raise _missing_text_error(name)
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)


def plan(draft: Draft, path: str, edits: Sequence[Edit]) -> EditOutcome:
    """Applies all edits in order to the current file; an error names the edit that failed."""
    from forge.workspace.text import DecodedText  # loads what only a change needs

    location = draft.resolve(path)
    draft.require_read(location)
    old = draft.text(location)
    if old is None and edits[0]["old_text"]:
        raise _missing_file_error(location)
    text = DecodedText("") if old is None else old
    now = text.text
    matches: list[Match] = []
    for index, edit in enumerate(edits):
        draft.check_not_stopped()
        now = matches[-1].apply_to(now) if matches else now
        try:
            matches.append(_match(now, edit, new_file=index == 0 and old is None))
        except ToolError as error:
            if len(edits) == 1:
                raise
            raise ToolError(f"edits[{index}]: {error.message}", error.kind, error.suggestion) from None
    before = draft.read(location)
    content = _apply_match(matches[-1], text, now, before)
    if content == before:
        raise ToolError("the edits together change nothing", ErrorKind.USER, "Check whether they are needed at all.")
    draft.write(location, content)
    rungs = list(dict.fromkeys(match.rung for match in matches))
    return EditOutcome(location.shown, old is None, sum(match.count for match in matches), rungs, len(content))


def _apply_match(match: Match, text: DecodedText, now: str, before: bytes | None) -> bytes:
    """Returns the content after the last edit. A single edit of a plain text is made in its bytes: one copy."""
    if before is None or now is not text.text or text.encoding != "utf-8" or not now.isascii():
        return text.encode_whole(match.apply_to(now))
    whole, position, mark = memoryview(before), 0, len(text.mark)
    parts: list[bytes | memoryview] = []
    for start, end, replacement in match.spans:
        parts += [whole[position : mark + start], text.encode_part(replacement)]
        position = mark + end
    return b"".join([*parts, whole[position:]])


def _match(text: str, edit: Edit, *, new_file: bool) -> Match:
    from forge.tools.file_edit.closest_text import describe_closest
    from forge.tools.file_edit.find_text import Match, Span, find
    from forge.tools.shared.placeholders import refuse_placeholders

    old, new = edit["old_text"], edit["new_text"]
    if old == new and not new_file:
        raise ToolError("old_text and new_text are the same", ErrorKind.VALIDATION, "Give a new_text that differs.")
    refuse_placeholders(new, text)
    if not old:
        if text:
            raise ToolError(
                "old_text is empty, and the file is not",
                ErrorKind.VALIDATION,
                "To insert, give an existing line as old_text, and that line with the new text as new_text.",
            )
        return Match("exact", (Span(0, 0, new),))
    match = find(text, old, new, replace_all=bool(edit.get("replace_all")))
    if match is None:
        raise ToolError(
            f"old_text was not found in the file.\n{describe_closest(text, old, new)}",
            ErrorKind.NOT_FOUND,
            "Read that part of the file again and copy old_text from it exactly, without line numbers.",
        )
    return match


def _collect_edits(old_text: str, new_text: str, replace_all: bool, edits: Sequence[Edit]) -> Sequence[Edit]:
    if not edits:
        return [{"old_text": old_text, "new_text": new_text, "replace_all": replace_all}]
    if old_text or new_text:
        raise ToolError(
            "edits cannot be combined with old_text and new_text",
            ErrorKind.VALIDATION,
            "Put all replacements into edits.",
        )
    return edits


def _is_given(name: str, data: Mapping[str, Any]) -> bool:
    """Returns whether the text was sent: it has a default, but a missing text is not an empty one."""
    return any(_ALIASES.get(key, key.lower()) == name and value is not None for key, value in data.items())


def _missing_text_error(name: str) -> ToolError:
    return ToolError(
        f"{name}: missing",
        ErrorKind.VALIDATION,
        'Example: file_edit(path="notes.txt", old_text="Hello", new_text="Goodbye"); '
        "or give path and edits, a list with old_text and new_text in each.",
    )


def _rename_keys(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the edits with this tool's key names; an unknown key is refused, not dropped."""
    edits = data.get("edits")
    if isinstance(edits, str) and edits.lstrip().startswith(("[", "{")):
        edits = read_object(f'{{"edits": {edits}}}').get("edits")
    if isinstance(edits, dict):
        edits = [edits]
    if not isinstance(edits, list):
        return data
    named = [
        {_ALIASES.get(key, key): value for key, value in edit.items()} if isinstance(edit, dict) else edit
        for edit in edits
    ]
    for index, edit in enumerate(named):
        for key in edit if isinstance(edit, dict) else ():
            if key not in Edit.__annotations__:
                raise ToolError(
                    f"edits[{index}].{str(key)[:50]}: unknown",
                    ErrorKind.VALIDATION,
                    "Each of the edits has old_text, new_text and, optionally, replace_all.",
                )
    return {**data, "edits": named}


def _answer(edited: EditOutcome, diff: str) -> ToolResult:
    from forge.tools.file_edit.find_text import RUNG_TEXTS
    from forge.workspace.text.diff import find_changed_lines

    ranges, name = find_changed_lines(diff), printable(edited.path)
    if edited.created:
        said = f"Created {name} ({edited.size:,} byte{'s' * (edited.size != 1)}): there was no such file."
    else:
        lines = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:10])
        more = ", …" if len(ranges) > 10 else ""
        times = f" ({edited.replacements} replacements)" if edited.replacements > 1 else ""
        how = " and ".join(RUNG_TEXTS[rung] for rung in edited.rungs)
        said = f"Edited {name}{times}: line{'' if lines.isdecimal() else 's'} {lines}{more}; matched {how}."
    return ToolResult(
        for_llm=said,
        for_user=diff,
        title=f"{'Created' if edited.created else 'Edited'} {name}",
        data={
            "path": edited.path,
            "action": "created" if edited.created else "updated",
            "replacements": edited.replacements,
            "rung": edited.rungs[-1] if len(edited.rungs) == 1 else ", ".join(edited.rungs),
            "lines": [list(pair) for pair in ranges[:SHOWN_LINES]],
            "bytes": edited.size,
        },
    )


def _missing_file_error(location: Location) -> ToolError:
    from forge.workspace.paths import quote_path
    from forge.workspace.search.glob import find_similar_names

    meant = " or ".join(map(quote_path, find_similar_names(location)))
    return ToolError(
        f"{quote_path(location.shown)} does not exist",
        ErrorKind.NOT_FOUND,
        (f"Did you mean {meant}? " if meant else "") + "To create it, leave old_text empty.",
    )
