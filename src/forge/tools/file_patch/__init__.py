"""Changes several files in one call: adds, updates, deletes and moves, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.file_write import encode_content
from forge.tools.shared.change_files import change_files, note_changes, preview_change, reconcile_changes
from forge.tools.shared.listing import printable
from forge.tools.shared.model_habits import OrNull

if TYPE_CHECKING:  # they load what only a change needs
    from pathlib import Path

    from forge.tools.file_patch.parse import ParsedOperation
    from forge.workspace.draft import Draft
    from forge.workspace.paths import Location

MAX_OPERATIONS = 1_000
MAX_PATCH = 1024 * 1024  # characters

_STATUS = {"add": "added", "update": "updated", "delete": "deleted", "move": "moved"}


class PatchOperation(TypedDict):
    """One change of a file."""

    action: Literal["add", "update", "delete", "move"]
    path: str
    content: NotRequired[Annotated[str, OrNull("add, update: the whole text of the file")]]
    new_path: NotRequired[Annotated[str, OrNull("move: the new path; update: also move the file")]]
    overwrite: NotRequired[Annotated[bool, OrNull("add, move: replace an existing file")]]


_EXAMPLE = [{"action": "add", "path": "notes/today.txt", "content": "Buy milk.\n"}]


class FilePatch(
    Tool,
    category=Category.BUILTIN,
    groups={"write", "code-agent"},
    permissions={"write"},
    harmless={"operations", "patch"},
    aliases=("patch", "apply_patch"),
    argument_aliases={
        "input": "patch",
        "diff": "patch",
        "patch_text": "patch",
        "patchText": "patch",
        "changes": "operations",
        "ops": "operations",
    },
    timeout=60.0,
):
    """Add, update, delete and move files in one call, all or nothing: give operations or a patch."""

    def __init__(self, max_operations: int = MAX_OPERATIONS, max_patch: int = MAX_PATCH) -> None:
        self.max_operations = max_operations
        self.max_patch = max_patch

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return _paths(self._operations(arguments))

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return await preview_change(ctx, self._plan(arguments))

    def _plan(self, arguments: Mapping[str, Any]) -> Callable[[Draft], object]:
        operations = self._operations(arguments)
        return lambda draft: plan(draft, operations)

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return note_changes(ctx, self._plan(arguments))

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        return await reconcile_changes(ctx)

    async def run(
        self,
        ctx: ToolContext,
        operations: Annotated[tuple[PatchOperation, ...], ParameterLimits(example=_EXAMPLE)] = (),
        patch: Annotated[
            str,
            "A patch: *** Begin Patch, then for each file *** Add File: path, *** Update File: path (*** Move to: path)"
            " or *** Delete File: path, with @@ anchors and lines that begin with space, - or +; *** End Patch.",
        ] = "",
    ) -> ToolResult:
        wanted = self._operations({"operations": operations, "patch": patch})
        _check_paths(ctx, wanted)
        done, draft = await change_files(ctx, _paths(wanted), lambda draft: plan(draft, wanted))
        return _answer(done, draft.diff())

    def _operations(self, arguments: Mapping[str, Any]) -> list[ParsedOperation]:
        from forge.tools.file_patch.parse import FORM, parse_patch  # loads what only a change needs

        listed, patch = arguments.get("operations") or (), arguments.get("patch") or ""
        if bool(listed) == bool(patch):
            problem = "give operations or patch, not both" if patch else "there is nothing to do"
            raise ToolError(problem, ErrorKind.VALIDATION, f"Give a list of operations, or a patch like this:\n{FORM}")
        if len(patch) > self.max_patch:
            problem = f"the patch has {len(patch):,} characters, the limit is {self.max_patch:,}"
            raise ToolError(problem, ErrorKind.USER, "Send it in parts.")
        operations = parse_patch(patch) if patch else [_operation(index, one) for index, one in enumerate(listed)]
        if len(operations) > self.max_operations:
            problem = f"there are {len(operations):,} operations, the limit is {self.max_operations:,}"
            raise ToolError(problem, ErrorKind.USER, "Send them in parts.")
        return operations


def plan(draft: Draft, operations: Sequence[ParsedOperation]) -> list[dict[str, Any]]:
    """Checks every operation against the current files and plans all of them. Returns the planned changes."""
    _check_alone(draft, operations)
    done = []
    for operation in operations:
        with _locate_errors(operation.where):
            locations = _PLANS[operation.action](draft, operation)
        entry = {"action": operation.action, "path": locations[0].shown, "status": _STATUS[operation.action]}
        if operation.new_path:
            entry["new_path"] = locations[-1].shown
        done.append(entry)
    return done


def _operation(index: int, given: PatchOperation) -> ParsedOperation:
    """Checks one operation of the list and returns it."""
    action, path, where = given["action"], given["path"], f"operations[{index}]"
    content, new_path = given.get("content"), given.get("new_path") or ""
    problem = ""
    if action in ("add", "update") and content is None and not (action == "update" and new_path):
        problem = f"{action} needs content, the whole text of the file"
    elif action in ("delete", "move") and content:
        problem = f"{action} takes no content"
    elif action == "move" and not new_path:
        problem = "move needs new_path"
    elif action in ("add", "delete") and new_path:
        problem = f"{action} takes no new_path"
    if problem:
        raise ToolError(
            f"{where}: {problem}",
            ErrorKind.VALIDATION,
            "add: path, content; update: path, content, and new_path to move it too; delete: path; "
            "move: path, new_path.",
        )
    if action == "update" and content is None:
        action = "move"
    if action in ("delete", "move"):
        content = None
    from forge.tools.file_patch.parse import ParsedOperation

    return ParsedOperation(where, action, path, new_path, content, overwrite=bool(given.get("overwrite")))


def _paths(operations: Sequence[ParsedOperation]) -> list[str]:
    return [path for operation in operations for path in (operation.path, operation.new_path) if path]


def _check_paths(ctx: ToolContext, operations: Sequence[ParsedOperation]) -> None:
    from forge.workspace.paths import PathValidator  # loads what only a change needs

    paths = PathValidator.of(ctx.scope)
    for operation in operations:
        with _locate_errors(operation.where):
            for path in _paths([operation]):
                paths.resolve_for_writing(path, follow=operation.action != "delete")


def _add(draft: Draft, operation: ParsedOperation) -> list[Location]:
    location = draft.resolve(operation.path)
    _check_free(draft, location, operation)
    draft.require_read(location)
    draft.write(location, encode_content(draft.text(location), operation.content or ""))
    return [location]


def _update(draft: Draft, operation: ParsedOperation) -> list[Location]:
    from forge.tools.file_patch.find_chunks import apply_chunks  # loads what only a change needs

    source, location = _source(draft, operation)
    draft.require_read(location)
    text = draft.text(location)
    assert text is not None
    if operation.content is None:
        content = text.encode_whole(apply_chunks(text.text, operation.chunks, location.shown))
    else:
        content = encode_content(text, operation.content)
    if not operation.new_path:
        draft.write(location, content)
        return [location]
    to = _plan_move(draft, operation, source, location)
    draft.write(to, content, draft.mode(location))
    return [source, to]


def _delete(draft: Draft, operation: ParsedOperation) -> list[Location]:
    location = draft.resolve(operation.path, follow=False)
    draft.delete(location)
    return [location]


def _move(draft: Draft, operation: ParsedOperation) -> list[Location]:
    source, location = _source(draft, operation)
    return [source, _plan_move(draft, operation, source, location)]


_PLANS = {"add": _add, "update": _update, "delete": _delete, "move": _move}


def _source(draft: Draft, operation: ParsedOperation) -> tuple[Location, Location]:
    """Returns the named file and, if it is a link, its target."""
    location = draft.resolve(operation.path)
    kind = draft.kind(location)
    if kind == "directory":
        raise ToolError(f'"{location.shown}" is a directory', ErrorKind.USER, "Name the files in it one by one.")
    if not kind:
        suggestion = "Check the spelling; add makes a new file." if operation.action == "update" else ""
        raise ToolError(f'"{location.shown}" does not exist', ErrorKind.NOT_FOUND, suggestion or "Check the spelling.")
    return draft.resolve(operation.path, follow=False), location


def _plan_move(draft: Draft, operation: ParsedOperation, source: Location, location: Location) -> Location:
    """Plans the move. A link becomes a file of its own; its target stays."""
    to = draft.resolve(operation.new_path)
    if to == location:  # by way of a link
        raise ToolError(f'"{to.shown}" is the same file', ErrorKind.VALIDATION, "Give another new path.")
    _check_free(draft, to, operation)
    draft.require_read(to)
    if source == location:
        draft.move(location, to)
    else:
        draft.write(to, draft.read(location) or b"", draft.mode(location))
        draft.delete(source)
    return to


def _check_free(draft: Draft, location: Location, operation: ParsedOperation) -> None:
    """Checks a new name: it is free or may be overwritten, and its parent is or can become a directory."""
    kind = draft.kind(location)
    if kind == "directory":
        raise ToolError(f'"{location.shown}" is a directory', ErrorKind.USER, "Name a file in it.")
    if kind and not operation.overwrite:
        raise ToolError(
            f'"{location.shown}" exists already',
            ErrorKind.USER,
            "Update it instead, choose another name, or set overwrite: true in the operation to replace it.",
        )
    above = location.parent
    while not kind and above.relative != "." and draft.kind(above) != "directory":
        if draft.kind(above):
            raise ToolError(f'"{above.shown}" is not a directory', ErrorKind.USER, "Choose another name.")
        above = above.parent


def _check_alone(draft: Draft, operations: Sequence[ParsedOperation]) -> None:
    """Refuses two operations on the same file, in any spelling, or on a file and a path below it."""
    touched: dict[Path, str] = {}  # the operation that names it
    above: dict[Path, str] = {}
    for operation in operations:
        with _locate_errors(operation.where):
            leaves = operation.action in ("delete", "move") or bool(operation.new_path)
            locations = [draft.resolve(operation.path, follow=not leaves)]
            if operation.new_path:
                locations.append(draft.resolve(operation.new_path))
            for location in locations:
                parents = [parent for parent in location.path.parents if parent.is_relative_to(location.root)]
                other = next((touched[path] for path in (location.path, *parents) if path in touched), "")
                if not other and draft.kind(location) != "directory":  # one is refused in its turn
                    other = above.get(location.path, "")
                if other:
                    raise _named_twice_error(location, other, operation.where)
                touched[location.path] = operation.where
                above.update(dict.fromkeys(parents, operation.where))


def _named_twice_error(location: Location, other: str, where: str) -> ToolError:
    if other == where:
        problem = f'"{location.shown}" is the same file, or lies below it'
        return ToolError(problem, ErrorKind.VALIDATION, "Give another new path.")
    return ToolError(
        f'"{location.shown}" is also changed by {other}',
        ErrorKind.VALIDATION,
        "Describe all changes of a file in one operation (an update with new_path changes and moves it), "
        "or make two calls, one after the other.",
    )


@contextmanager
def _locate_errors(where: str) -> Iterator[None]:
    """Adds the operation's position to errors."""
    from forge.tools.file_patch.find_chunks import Misplaced

    try:
        yield
    except Misplaced:  # it names the line of the patch itself
        raise
    except ToolError as error:
        raise ToolError(f"{where}: {error.message}", error.kind, error.suggestion, passing=error.passing) from None


def _new_path(done: Mapping[str, str]) -> list[str]:
    return [done["new_path"]] if "new_path" in done else []


def _answer(done: list[dict[str, Any]], diff: str) -> ToolResult:
    lines = [
        " -> ".join([f"{one['status']} {printable(one['path'])}", *map(printable, _new_path(one))]) for one in done
    ]
    title = lines[0] if len(lines) == 1 else f"{len(lines)} files changed"
    text = lines[0] if len(lines) == 1 else "\n".join([f"{title}:", *lines])
    return ToolResult(for_llm=text, for_user=diff, title=title, data={"operations": done, "total": len(done)})
