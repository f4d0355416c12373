"""Plans changes to files, then makes them together or not at all."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit
from forge.workspace.changes.journal import Decision
from forge.workspace.history.tracking import changed_error, current_call
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.digest import LARGE, Digest
from forge.workspace.paths.open import explain_errors, open_at, open_file, status_of
from forge.workspace.text import DecodedText, decode
from forge.workspace.text.diff import content_diff

LARGEST_FILE = 64 * 1024 * 1024  # bytes of a file that can be changed

log = logging.getLogger(__name__)

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


@dataclass(slots=True)
class _DraftFile:
    """The current and the planned content of one file."""

    location: Location
    status: os.stat_result | None
    kind: str  # "" if there is no file
    before: bytes | None = None  # None: no file, or not read yet
    link: str | None = None  # the target of a link
    loaded: bool = False
    digest: Digest | None = None  # of `before`, once it is needed
    expected: str = ""  # the digest it must have, if not compared yet
    touched: bool = False
    after: bytes | None = None
    after_digest: Digest | None = None  # of `after`, if it is being computed already
    mode: int | None = None
    moved_from: Location | None = None
    change: Change | None = None  # planned by the undo log

    def begin_digest(self) -> Digest | None:
        """Starts hashing at most once: for a large file it takes as long as writing."""
        if self.digest is None and self.before is not None:
            self.digest = Digest(self.before)
        return self.digest

    def plan(self, content: bytes | None) -> None:
        """Sets the new content; None: no file. Starts hashing if it is large, unless it replaces an earlier plan."""
        is_first = not self.touched
        self.touched, self.after, self.after_digest = True, content, None
        if is_first and content is not None and len(content) >= LARGE:
            self.after_digest = Digest(content)


class Draft:
    """The changes of one tool call. Nothing is written before `commit`."""

    def __init__(
        self,
        scope: Scope,
        within: Collection[Location] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`within`: the approved locations, the only ones it may touch; None for any.

        `stopped`: returns True once the call was stopped; then nothing is changed.
        """
        self.paths = PathValidator.of(scope)
        self._workspace = scope.workspace
        self._stopped = stopped
        self._within = None if within is None else frozenset(location.path for location in within)
        self._files: dict[str, _DraftFile] = {}
        self._made_diff: str | None = None  # of the changes that `commit` makes

    def resolve(self, path: str, *, follow: bool = True) -> Location:
        """Returns the location of a path that may be written."""
        location = self.paths.resolve_for_writing(path, follow=follow)
        if self._within is not None and location.path not in self._within:
            raise ToolError(f"{quote_path(path)} was replaced while it was checked", ErrorKind.SECURITY, "Try again.")
        return location

    def kind(self, location: Location) -> str:
        """Returns the planned kind: "file", "directory", "link", "special", or "" for nothing."""
        file = self._file_at(location)
        return file.kind if not file.touched else "" if file.after is None else "file"

    def exists(self, location: Location) -> bool:
        return self.kind(location) != ""

    def read(self, location: Location) -> bytes | None:
        """Returns the content as planned so far; None if there is no file."""
        file = self._file_at(location)
        if file.touched:
            return file.after
        if file.kind == "":
            return None
        self._load(file)
        return file.before

    def text(self, location: Location) -> DecodedText | None:
        """Returns the planned content, decoded."""
        content = self.read(location)
        if content is None:
            return None
        try:
            return decode(content)
        except ToolError as error:
            raise ToolError(f"{quote_path(location.shown)}: {error.message}", error.kind, error.suggestion) from None

    def mode(self, location: Location) -> int | None:
        """Returns the permission bits of the existing file; None if there is none."""
        file = self._file_at(location)
        return None if file.status is None else stat.S_IMODE(file.status.st_mode)

    def write(self, location: Location, content: bytes, mode: int | None = None) -> None:
        """Plans new content; refuses a directory or a special file. `mode`: of a new file."""
        file = self._file_at(location)
        if file.kind == "file":
            self._load(file)
        elif file.kind and not file.touched:
            raise _not_a_file_error(file)
        file.plan(content)
        file.mode = mode

    def delete(self, location: Location) -> None:
        """Plans to remove a file, link or FIFO."""
        file = self._file_at(location)
        if file.kind == "directory":
            raise ToolError(
                f"{quote_path(location.shown)} is a directory", ErrorKind.USER, "Delete the files in it one by one."
            )
        if not file.kind:
            raise ToolError(f"{quote_path(location.shown)} does not exist", ErrorKind.NOT_FOUND, "Check the spelling.")
        if file.kind == "file":
            self._load(file)
        elif file.kind == "link":
            file.link = _link_target(location)
        file.plan(None)

    def move(self, location: Location, to: Location) -> None:
        """Plans to move a file, with its content and mode."""
        content, mode = self.read(location), self.mode(location)
        if content is None:
            raise ToolError(f"{quote_path(location.shown)} does not exist", ErrorKind.NOT_FOUND, "Check the spelling.")
        self.delete(location)
        self.write(to, content, mode)
        self._file_at(to).moved_from = location

    def link(self, location: Location, target: str) -> None:
        """Plans a link: used to restore one."""
        file = self._file_at(location)
        if file.kind == "file":
            self._load(file)
        file.plan(b"")
        file.link = target

    def restore(self, change: Change) -> None:
        """Plans a change of the undo log, which has compared the file with its record."""
        shown = change.location.shown
        path = f"./{shown}" if shown.startswith("~") else shown  # which would stand for a home directory
        # an empty folder that the same call made needs no approval of its own
        resolve = self.paths.resolve_for_writing if change.folder == "remove" else self.resolve
        location = resolve(path, follow=False)
        if location.path != change.location.path:
            raise ToolError(f"{quote_path(shown)} was replaced while it was read", ErrorKind.SECURITY, "Try again.")
        file = self._file_at(location)
        file.change, file.before = replace(change, location=location), change.before
        file.plan(change.after)

    def require_read(self, location: Location) -> None:
        """Raises `ToolError` unless this session read the file and the file did not change since.

        The content of a large file is compared when the draft is shown or committed.
        """
        now, file = current_call(), self._file_at(location)
        if now.checked and file.kind == "file":
            self._load(file)
            assert file.status is not None
            file.expected = now.state.seen.expect(now.session_id, str(location.path), file.status, location.shown)
            if file.expected:
                file.begin_digest()
            if file.status.st_size < LARGE:
                self._check_digests()

    def diff(self) -> str:
        """Returns all planned changes as a unified diff, one file after another; after `commit` those made."""
        if self._made_diff is not None:
            return self._made_diff
        self._check_digests()
        return self._render_diff()

    def _render_diff(self) -> str:
        changed = [file for file in self._files.values() if _is_changed(file)]
        # a move onto an existing file is shown as two changes: the lost content must be visible
        moved = {str(file.moved_from.path): file for file in changed if file.moved_from is not None and not file.kind}
        parts = []
        for file in changed:
            if file.moved_from is not None and not file.kind:
                parts.append(_diff_file(self._files[str(file.moved_from.path)], file))
            elif str(file.location.path) not in moved:
                parts.append(_diff_file(file, file))
        return "".join(parts)

    def list_replaced(self) -> Iterator[tuple[Location, bytes, bytes]]:
        """Yields the files whose content changes, with the old and the new content."""
        for file in self._files.values():
            if file.before is not None and file.after is not None and _is_changed(file):
                yield file.location, file.before, file.after

    def digest_changes(self) -> dict[str, tuple[str, str]] | None:
        """Returns the digests before and after, by path, of the files that change; None if there are links among them.

        The digest of no file is empty.
        """
        changed = [file for file in self._files.values() if _is_changed(file)]
        if any(file.kind not in ("file", "") or file.link is not None for file in changed):
            return None
        return {file.location.shown: (digest_content(file.before), digest_content(file.after)) for file in changed}

    @property
    def is_empty(self) -> bool:
        """True if all files are already as planned."""
        return not any(_is_changed(file) for file in self._files.values())

    def commit(self, decision: Decision | None = None) -> int:
        """Makes all changes, or none. They can be undone, and count as read. Returns the entry of the undo log.

        `decision`: decides about the changes and something else together.
        """
        changes = [_change_of(file) for file in self._files.values() if _is_changed(file)]
        if not changes:
            self._note_no_change()
            return 0
        changes = [*_find_missing_folders(changes), *changes]
        now = current_call()
        undo = now.state.undo
        recorded: list[int] = []

        def record() -> None:
            self._made_diff = self._render_diff()  # large contents are still being hashed
            self._check_digests()
            self.check_not_stopped()
            recorded.append(undo.record(now.session_id, now.turn, now.call_id, now.tool, changes, now.root))

        try:
            commit(changes, self._workspace, record, decision)
        except BaseException:
            with suppress(ToolError):  # the entry restores nothing then; the first error is the one to report
                for entry in recorded:
                    undo.withdraw(entry)
                # folders that a call beside this one uses already
                made = [one for one in changes if one.folder == "make" and status_of(one.location) is not None]
                if made:
                    undo.record(now.session_id, now.turn, now.call_id, now.tool, made, now.root)
            raise
        try:
            for change in changes:
                _note_written(change)
        except ToolError as error:  # the change is made, even if the store fails
            log.warning("written files could not be recorded and must be read again: %s", error)
        return recorded[0]

    def _note_no_change(self) -> None:
        """Notes that all files were as planned: a call without any record is unknown."""
        now = current_call()
        if now.checked:
            with suppress(ToolError):
                now.state.undo.mark_harmless(
                    now.state.undo.note_program(now.session_id, now.call_id, now.root, now.tool, "")
                )

    def check_not_stopped(self) -> None:
        """Raises `ToolError` once the call was stopped: a change reported as not made must not be made later."""
        if self._stopped():
            raise ToolError("stopped before anything was changed", ErrorKind.CANCELLED, "Change less at once.")

    def _check_digests(self) -> None:
        """Raises `ToolError` if a file is not what the session read."""
        for file in self._files.values():
            if file.expected and file.digest is not None:
                if file.digest.value != file.expected:
                    raise changed_error(file.location.shown)
                file.expected = ""

    def _file_at(self, location: Location) -> _DraftFile:
        key = str(location.path)
        file = self._files.get(key)
        if file is None:
            status = status_of(location)
            kind = "" if status is None else _KINDS.get(stat.S_IFMT(status.st_mode), "special")
            file = self._files[key] = _DraftFile(location, status, kind)
        return file

    def _load(self, file: _DraftFile) -> None:
        if file.loaded:
            return
        if file.kind != "file":
            raise _not_a_file_error(file)
        with open(open_file(file.location), "rb", buffering=0) as opened, explain_errors(file.location.shown):
            status = os.fstat(opened.fileno())
            content = opened.read(LARGEST_FILE + 1) if status.st_size <= LARGEST_FILE else b""
            if status.st_size > LARGEST_FILE or len(content) > LARGEST_FILE:
                raise ToolError(
                    f"{quote_path(file.location.shown)} has {max(status.st_size, len(content)):,} bytes;"
                    f" the limit for changes is {LARGEST_FILE:,}",
                    ErrorKind.USER,
                    "Change it with a program instead.",
                )
        file.before, file.status, file.loaded = content, status, True


def _find_missing_folders(changes: Sequence[Change]) -> list[Change]:
    """Returns the folders that the changes need and that are not there, the outermost first."""
    known = {one.location.path for one in changes if one.folder == "make"}
    found: dict[Path, Location] = {}
    for change in changes:
        folder = change.location.parent
        while change.after is not None and folder.relative != "." and folder.path not in {*known, *found}:
            if status_of(folder) is not None:
                break
            found[folder.path] = folder
            folder = folder.parent
    made = sorted(found.values(), key=lambda one: one.relative.count("/"))
    return [Change(one, None, None, folder="make") for one in made]


def _change_of(file: _DraftFile) -> Change:
    if file.change is not None:
        return file.change
    after = None if file.after is None else file.after_digest or Digest(file.after)
    before = file.begin_digest()
    return Change(file.location, file.before, file.after, file.mode, file.link, file.status, before, after)


def _is_changed(file: _DraftFile) -> bool:
    if not file.touched:
        return False
    if file.change is not None:
        return True
    return file.before != file.after if file.kind in ("", "file") else True


def _link_target(location: Location) -> str:
    with explain_errors(location.shown):
        parent = open_at(location.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.readlink(location.name, dir_fd=parent)
        finally:
            os.close(parent)


def _note_written(change: Change) -> None:
    now = current_call()
    if not now.checked:
        return
    if change.folder:
        return
    real = str(change.location.path)
    status = status_of(change.location) if change.after is not None else None
    if status is None:
        now.state.seen.forget_file(now.session_id, real)
    else:
        now.state.seen.note(now.session_id, real, status, written=True, digest=_digest_value(change.after_digest))


def _digest_value(digest: Digest | None) -> str:
    return digest.value if digest is not None else ""


def _diff_file(old: _DraftFile, new: _DraftFile) -> str:
    if old.change is not None:
        from forge.workspace.history.undo import describe_changes  # loads SQLite, which listing tools does without

        return describe_changes([old.change]).diff()
    if old.kind not in ("", "file"):
        return f"deleted {old.kind} {old.location.shown}" + (f" -> {old.link}" if old.link else "") + "\n"
    moved = new.location.shown if new is not old else ""
    try:
        return content_diff(old.before, new.after, old.location.shown, moved)
    except ToolError:
        sizes = f"{len(old.before or b''):,} to {len(new.after or b''):,} bytes"
        return f"Binary file {new.location.shown} changes from {sizes}\n"


def digest_content(content: bytes | None) -> str:
    """Returns the digest of a file's content; empty: there is no file."""
    return "" if content is None else sha256(content).hexdigest()


def _not_a_file_error(file: _DraftFile) -> ToolError:
    what = {"directory": "a directory", "link": "a link"}.get(file.kind, "a FIFO, a socket or a device")
    kind = ErrorKind.USER if file.kind == "directory" else ErrorKind.SECURITY
    return ToolError(f"{quote_path(file.location.shown)} is {what}, not a file", kind, "Name a regular file.")
