"""Changes to files, planned on what is there and then made together or not at all."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit
from forge.workspace.history.seen_files import changed
from forge.workspace.history.tracking import current
from forge.workspace.paths import PathValidator, Place, quoted
from forge.workspace.paths.digest import LARGE, Digest
from forge.workspace.paths.open import explained, open_at, open_file, status_of
from forge.workspace.text import Text, decode
from forge.workspace.text.diff import content_diff

LARGEST = 64 * 1024 * 1024  # bytes of a file that can be changed

log = logging.getLogger(__name__)

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


@dataclass(slots=True)
class _File:
    """What is at a place, and what is planned to be."""

    place: Place
    status: os.stat_result | None
    kind: str  # "" where nothing is
    before: bytes | None = None  # None: nothing, or not read yet
    link: str | None = None  # where a link leads
    loaded: bool = False
    digest: Digest | None = None  # of `before`, once it is needed
    expected: str = ""  # what that must be, where this is still to be compared
    touched: bool = False
    after: bytes | None = None
    mode: int | None = None
    moved_from: Place | None = None

    def begin_digest(self) -> Digest | None:
        """Hashed once: for a large file it takes as long as writing."""
        if self.digest is None and self.before is not None:
            self.digest = Digest(self.before)
        return self.digest


class Draft:
    """One tool call's changes. Nothing is written before `commit`."""

    def __init__(
        self,
        scope: Scope,
        within: Collection[Place] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`within`: the only places it may touch, those that were approved; None for any.

        `stopped`: whether nobody waits for it any more; then nothing is changed.
        """
        self.paths = PathValidator.of(scope)
        self._workspace = scope.workspace
        self._stopped = stopped
        self._within = None if within is None else frozenset(place.path for place in within)
        self._files: dict[str, _File] = {}

    def resolve(self, path: str, *, follow: bool = True) -> Place:
        """The place of a path that may be written."""
        place = self.paths.resolve_for_writing(path, follow=follow)
        if self._within is not None and place.path not in self._within:
            raise ToolError(f"{quoted(path)} was replaced while it was checked", ErrorKind.SECURITY, "Try again.")
        return place

    def kind(self, place: Place) -> str:
        """What will be there: "file", "directory", "link", "special", or "" for nothing."""
        file = self._at(place)
        return file.kind if not file.touched else "" if file.after is None else "file"

    def exists(self, place: Place) -> bool:
        return self.kind(place) != ""

    def read(self, place: Place) -> bytes | None:
        """The content as planned so far; None where nothing is."""
        file = self._at(place)
        if file.touched:
            return file.after
        if file.kind == "":
            return None
        self._load(file)
        return file.before

    def text(self, place: Place) -> Text | None:
        """The same, decoded."""
        content = self.read(place)
        if content is None:
            return None
        try:
            return decode(content)
        except ToolError as error:
            raise ToolError(f"{quoted(place.shown)}: {error.message}", error.kind, error.suggestion) from None

    def mode(self, place: Place) -> int | None:
        """The permission bits of the file there; None where nothing is."""
        file = self._at(place)
        return None if file.status is None else stat.S_IMODE(file.status.st_mode)

    def write(self, place: Place, content: bytes, mode: int | None = None) -> None:
        """Plan new content; a directory or a special file is refused. `mode`: of a file that is not there yet."""
        file = self._at(place)
        if file.kind == "file":
            self._load(file)
        elif file.kind and not file.touched:
            raise _not_a_file(file)
        file.touched, file.after, file.mode = True, content, mode

    def delete(self, place: Place) -> None:
        """Plan that nothing is there; links and FIFOs go themselves."""
        file = self._at(place)
        if file.kind == "directory":
            raise ToolError(
                f"{quoted(place.shown)} is a directory", ErrorKind.USER, "Delete the files in it one by one."
            )
        if not file.kind:
            raise ToolError(f"{quoted(place.shown)} does not exist", ErrorKind.NOT_FOUND, "Check the spelling.")
        if file.kind == "file":
            self._load(file)
        elif file.kind == "link":
            file.link = _target(place)
        file.touched, file.after = True, None

    def move(self, place: Place, to: Place) -> None:
        """Plan that a file is somewhere else, with its content and mode."""
        content, mode = self.read(place), self.mode(place)
        if content is None:
            raise ToolError(f"{quoted(place.shown)} does not exist", ErrorKind.NOT_FOUND, "Check the spelling.")
        self.delete(place)
        self.write(to, content, mode)
        self._at(to).moved_from = place

    def link(self, place: Place, target: str) -> None:
        """Plan that a link is there: for putting one back."""
        file = self._at(place)
        if file.kind == "file":
            self._load(file)
        file.touched, file.after, file.link = True, b"", target

    def need_read(self, place: Place) -> None:
        """Raise `ToolError` unless this session read the file that is there, and it did not change since.

        Of a large file the content is compared at the latest when the draft is shown or committed.
        """
        now, file = current(), self._at(place)
        if now.checked and file.kind == "file":
            self._load(file)
            assert file.status is not None
            file.expected = now.state.seen.expect(now.session_id, str(place.path), file.status, place.shown)
            if file.expected:
                file.begin_digest()
            if file.status.st_size < LARGE:
                self._compare()

    def diff(self) -> str:
        """What will change, as a unified diff, one file after another."""
        self._compare()
        changed = [file for file in self._files.values() if _is_changed(file)]
        # onto a file that is there it is shown as two changes: what is lost must be seen
        moved = {str(file.moved_from.path): file for file in changed if file.moved_from is not None and not file.kind}
        parts = []
        for file in changed:
            if file.moved_from is not None and not file.kind:
                parts.append(_diff(self._files[str(file.moved_from.path)], file))
            elif str(file.place.path) not in moved:
                parts.append(_diff(file, file))
        return "".join(parts)

    def replaced(self) -> Iterator[tuple[Place, bytes, bytes]]:
        """The files that will have another content, with what is there now and what will be."""
        for file in self._files.values():
            if file.before is not None and file.after is not None and _is_changed(file):
                yield file.place, file.before, file.after

    @property
    def is_empty(self) -> bool:
        """Whether everything is already as it is planned."""
        return not any(_is_changed(file) for file in self._files.values())

    def commit(self) -> None:
        """Make all changes, or none. They can be undone, and count as read."""
        changes = [_change(file) for file in self._files.values() if _is_changed(file)]
        if not changes:
            return
        now = current()
        undo = now.state.undo
        recorded: list[int] = []

        def record() -> None:
            self._compare()
            self.go_on()
            recorded.append(undo.record(now.session_id, now.turn, now.call_id, now.tool, changes))

        try:
            commit(changes, self._workspace, record)
        except BaseException:
            for entry in recorded:
                with suppress(ToolError):  # it restores nothing then; why the change failed is what must be said
                    undo.withdraw(entry)
            raise
        try:
            for change in changes:
                _note(change)
        except ToolError as error:  # it is made, whatever the store says
            log.warning("what was written could not be noted, and has to be read again: %s", error)

    def go_on(self) -> None:
        """Raise `ToolError` once the call was stopped: what is reported as not done must not be done later."""
        if self._stopped():
            raise ToolError("stopped before anything was changed", ErrorKind.CANCELLED, "Change less at once.")

    def _compare(self) -> None:
        """Raise `ToolError` where a file is not what the session read."""
        for file in self._files.values():
            if file.expected and file.digest is not None:
                if file.digest.value != file.expected:
                    raise changed(file.place.shown)
                file.expected = ""

    def _at(self, place: Place) -> _File:
        key = str(place.path)
        file = self._files.get(key)
        if file is None:
            status = status_of(place)
            kind = "" if status is None else _KINDS.get(stat.S_IFMT(status.st_mode), "special")
            file = self._files[key] = _File(place, status, kind)
        return file

    def _load(self, file: _File) -> None:
        if file.loaded:
            return
        if file.kind != "file":
            raise _not_a_file(file)
        with open(open_file(file.place), "rb", buffering=0) as opened, explained(file.place.shown):
            status = os.fstat(opened.fileno())
            content = opened.read(LARGEST + 1) if status.st_size <= LARGEST else b""
            if status.st_size > LARGEST or len(content) > LARGEST:
                raise ToolError(
                    f"{quoted(file.place.shown)} has {max(status.st_size, len(content)):,} bytes;"
                    f" files of up to {LARGEST:,} can be changed",
                    ErrorKind.USER,
                    "Change it with a program instead.",
                )
        file.before, file.status, file.loaded = content, status, True


def _change(file: _File) -> Change:
    after = Digest(file.after) if file.after is not None else None
    before = file.begin_digest()
    return Change(file.place, file.before, file.after, file.mode, file.link, file.status, before, after)


def _is_changed(file: _File) -> bool:
    if not file.touched:
        return False
    return file.before != file.after if file.kind in ("", "file") else True


def _target(place: Place) -> str:
    with explained(place.shown):
        parent = open_at(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.readlink(place.name, dir_fd=parent)
        finally:
            os.close(parent)


def _note(change: Change) -> None:
    now = current()
    if not now.checked:
        return
    real = str(change.place.path)
    status = status_of(change.place) if change.after is not None else None
    if status is None:
        now.state.seen.forget_file(now.session_id, real)
    else:
        now.state.seen.note(now.session_id, real, status, written=True, digest=_value(change.after_digest))


def _value(digest: Digest | None) -> str:
    return digest.value if digest is not None else ""


def _diff(old: _File, new: _File) -> str:
    if old.kind not in ("", "file"):
        return f"deleted {old.kind} {old.place.shown}" + (f" -> {old.link}" if old.link else "") + "\n"
    moved = new.place.shown if new is not old else ""
    try:
        return content_diff(old.before, new.after, old.place.shown, moved)
    except ToolError:
        sizes = f"{len(old.before or b''):,} to {len(new.after or b''):,} bytes"
        return f"Binary file {new.place.shown} changes from {sizes}\n"


def _not_a_file(file: _File) -> ToolError:
    what = {"directory": "a directory", "link": "a link"}.get(file.kind, "a FIFO, a socket or a device")
    kind = ErrorKind.USER if file.kind == "directory" else ErrorKind.SECURITY
    return ToolError(f"{quoted(file.place.shown)} is {what}, not a file", kind, "Name a regular file.")
