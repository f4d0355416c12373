"""Records the contents of files before each change of a session, so that a call or a whole turn can be undone.

An image is stored once, under the hash of its content. For a large file with a small change, only the difference to
the new content is stored: a change is undone only if the file still has that new content.

An entry is sealed with the hashes of its contents: only what Forge itself stored is written back.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change
from forge.workspace.history.old_contents import CAP, Images
from forge.workspace.history.undo_tables import COUNT, ENTRIES, FILES, LOST, add_seal, create_undo_tables
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explain_errors, open_directory, open_file, status_of
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Store

_PAGE = 50  # entries read at once
NOTHING, SPECIAL, LINK = "", "special", "link:"  # instead of a hash: there is nothing, or no regular file


_Sealed = tuple[str, str, str, str, str, int | None, str]  # root, relative, shown, before, after, mode, base


@dataclass(frozen=True, slots=True)
class UndoFile:
    """One file of a change: the hashes of the old and the new content."""

    root: str
    relative: str
    shown: str
    before: str
    after: str
    mode: int | None
    base: str  # the image is a difference to this hash; empty: the image is complete
    dropped: bool  # the image was removed to make room

    @property
    def location(self) -> Location:
        return Location(Path(self.root), self.relative, self.shown)


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """One change, made by one call."""

    id: int
    turn: str
    call_id: str
    tool: str
    time: float
    undone: bool
    is_undo: bool
    files: tuple[UndoFile, ...]
    problem: str = ""  # why it is not undone: something else than Forge stored or changed it


@dataclass(slots=True)
class _FileState:
    """A file as it is now, or as it will be once some changes are undone."""

    location: Location
    was: str
    now: str
    content: bytes | None = None  # None: no regular file
    before: bytes | None = None
    mode: int | None = None
    status: os.stat_result | None = None


class UndoLog:
    """Keyed by session, in the project's store or in memory. `cap`: bytes of images that a session may keep."""

    def __init__(self, path: Path | None = None, cap: int = CAP) -> None:
        self._store = Store(path, "undo", [create_undo_tables, add_seal])
        self._images = Images(cap)

    def record(self, session: str, turn: str, call_id: str, tool: str, changes: Sequence[Change]) -> int:
        """Stores the old contents before a change. Returns the entry, which must be withdrawn if the change fails."""
        digests = [(change, _before(change), _after(change)) for change in changes]
        images = [
            self._images.image(change.before or b"", before, change.after, after)
            if change.before is not None and not change.had_link
            else None
            for change, before, after in digests
        ]
        size = sum(len(image.data) for image in images if image is not None)
        with self._store.write_transaction() as connection:
            entry = connection.execute(
                "INSERT INTO undo_entries (session, turn, call_id, tool, time, bytes) VALUES (?, ?, ?, ?, ?, ?)",
                (session, turn, call_id, tool, time.time(), size),
            ).lastrowid
            assert entry is not None
            rows: list[_Sealed] = []
            for (change, before, after), image in zip(digests, images, strict=True):
                where = (str(change.location.root), change.location.relative, change.location.shown)
                base = image.base if image is not None else ""
                row = (entry, *map(_storable, where), _storable(before), _storable(after), _mode(change), base)
                connection.execute("INSERT INTO undo_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", row)
                rows.append((*where, before, after, _mode(change), base))
                if image is not None:
                    self._images.add(connection, image)
            seal = self._seal(_content(entry, session, turn, call_id, tool, rows))
            connection.execute("UPDATE undo_entries SET seal = ? WHERE id = ?", (seal, entry))
            self._images.shrink(connection, session, size)
        return entry

    def withdraw(self, entry: int) -> None:
        """Removes the entry of a change that was not made."""
        with self._store.write_transaction() as connection:
            self._images.forget(connection, entry)

    def forget(self, session: str) -> None:
        with self._store.write_transaction() as connection:
            for (entry,) in connection.execute("SELECT id FROM undo_entries WHERE session = ?", (session,)).fetchall():
                self._images.forget(connection, entry)

    def mark(self, session: str, undone: Sequence[int], call_id: str) -> None:
        """Marks changes as undone by this call; changes that they had undone count as made again."""
        with self._store.write_transaction() as connection:
            by = connection.execute(
                "SELECT max(id) FROM undo_entries WHERE session = ? AND call_id = ?", (session, call_id)
            ).fetchone()[0]
            for entry in undone:
                connection.execute("UPDATE undo_entries SET undone_by = NULL WHERE undone_by = ?", (entry,))
                connection.execute("UPDATE undo_entries SET undone_by = ? WHERE id = ?", (by, entry))

    def sessions(self) -> list[str]:
        """Lists the sessions that changed files, the latest first."""
        with self._store.read_transaction() as connection:
            rows = connection.execute("SELECT session FROM undo_entries GROUP BY session ORDER BY max(id) DESC")
            return [row[0] for row in rows]

    def count(self, session: str, *, call_id: str = "", turn: str = "") -> tuple[int, bool]:
        """Counts the changes; the second value is True if images of some of them were dropped."""
        which = {"session": session, "call_id": call_id, "turn": turn, "before": 0}
        with self._store.read_transaction() as connection:
            number = connection.execute(COUNT, which).fetchone()[0]
            return number, connection.execute(LOST, which).fetchone() is not None

    def entries(
        self, session: str, *, call_id: str = "", turn: str = "", before: int = 0, most: int = -1
    ) -> list[UndoEntry]:
        """Lists changes, the latest first: all, or at most `most`, or those before an entry."""
        which = {"session": session, "call_id": call_id, "turn": turn, "before": before, "most": most}
        files: dict[int, list[UndoFile]] = {}
        with self._store.read_transaction() as connection:
            for entry, *row in connection.execute(FILES, which):
                root, relative, shown, old, new, mode, base, dropped = row
                where = (_readable(root), _readable(relative), _readable(shown))
                file = UndoFile(*where, _readable(old), _readable(new), mode, base, bool(dropped))
                files.setdefault(entry, []).append(file)
            rows = connection.execute(ENTRIES, which).fetchall()
        found = []
        for id_, turn, call_id, tool, at, undone, is_undo, seal in rows:
            there = tuple(files.get(id_, ()))
            sealed = [(one.root, one.relative, one.shown, one.before, one.after, one.mode, one.base) for one in there]
            problem = find_problem(self._store.path, _content(id_, session, turn, call_id, tool, sealed), str(seal))
            found.append(UndoEntry(id_, turn, call_id, tool, at, bool(undone), bool(is_undo), there, problem))
        return found

    def choose_entries(self, session: str, *, call_id: str = "", turn: str = "") -> list[UndoEntry]:
        """Returns the changes of a call or a turn that can be undone, the latest first; without either, the last
        change.
        """
        if not call_id and not turn:
            return self._last_entry(session)
        found = self.entries(session, call_id=call_id, turn=turn)
        if call_id:
            found = [one for one in found if one.turn == found[0].turn]
        left = [one for one in found if not one.undone]
        if not call_id:
            left = _without_pairs(left, found)
        if left:
            return left
        wanted = f"call {call_id}" if call_id else f"turn {turn}"
        if found:
            raise ToolError(f"{wanted} is already undone", ErrorKind.USER, "Nothing needs to be done.")
        raise ToolError(
            f"{wanted} changed no file in this session",
            ErrorKind.NOT_FOUND,
            "The action list shows what can be undone.",
        )

    def plan(self, session: str, *, call_id: str = "", turn: str = "") -> list[Change]:
        """Returns the changes that restore the files as they were before a call, a turn, or the last change.

        Raises `ToolError` if one of the files changed since, or its image is gone. Empty: nothing has to be restored.
        """
        return self.plan_restore(session, self.choose_entries(session, call_id=call_id, turn=turn))

    def plan_restore(self, session: str, entries: Sequence[UndoEntry]) -> list[Change]:
        """Returns the changes that undo these entries, the latest first."""
        found: dict[Path, _FileState] = {}
        for entry in entries:
            if entry.problem:
                raise ToolError(
                    f"call {entry.call_id} cannot be undone, since its record does not count: {entry.problem};"
                    " nothing was undone",
                    ErrorKind.PERMISSION,
                    "Undo other calls one by one with call_id, or restore the files by other means.",
                )
            for file in reversed(entry.files):
                now = found.get(file.location.path) or found.setdefault(file.location.path, _read_state(file.location))
                if now.now != file.before:
                    self._step_back(session, entry, file, now)
        return [_change_of(one) for one in found.values() if one.now != one.was]

    def _seal(self, content: bytes) -> str:
        try:
            return seal_part(self._store.path, content)
        except ToolError:  # there is no usable key: the change is made, and cannot be undone
            return ""

    def _last_entry(self, session: str) -> list[UndoEntry]:
        """Returns the last change that is in effect, neither undone nor itself an undo."""
        page = self.entries(session, most=_PAGE)
        while page:
            for one in page:
                if (
                    not one.undone
                    and not one.is_undo
                    and any(_read_state(f.location).now != f.before for f in one.files)
                ):
                    return [one]
            page = self.entries(session, before=page[-1].id, most=_PAGE)
        raise ToolError("there is nothing to undo", ErrorKind.NOT_FOUND, "No changed file can be restored.")

    def _step_back(self, session: str, entry: UndoEntry, file: UndoFile, now: _FileState) -> None:
        if now.now != file.after:
            raise self._conflict_error(session, entry, file)
        if file.before == SPECIAL:
            raise _lost_error(file, "it was a FIFO, a socket or a device")
        if file.before == NOTHING or file.before.startswith(LINK):
            now.now, now.content = file.before, None
            return
        if file.dropped:
            raise _lost_error(file, "its old content was dropped to make room for later changes")
        with self._store.read_transaction() as connection:
            content = self._images.content(connection, file.before, file.base, now.content)
        if content is None:
            raise _lost_error(file, "its old content is no longer stored")
        now.now, now.content, now.mode = file.before, content, file.mode

    def _conflict_error(self, session: str, entry: UndoEntry, file: UndoFile) -> ToolError:
        later = [
            one
            for one in self.entries(session)
            if one.id > entry.id
            and not (one.undone or one.is_undo)
            and any(f.location.path == file.location.path for f in one.files)
        ]
        by = f" by call {later[0].call_id} ({later[0].tool})" if later else ", not by this session's tools"
        hint = f"Undo call_id={later[0].call_id} first" if later else "Read it and edit what should be different"
        return ToolError(
            f"{quote_path(file.shown)} was changed since call {entry.call_id}{by}; nothing was undone",
            ErrorKind.USER,
            f"{hint}.",
        )


def _content(entry: int, session: str, turn: str, call_id: str, tool: str, files: Sequence[_Sealed]) -> bytes:
    """Returns what the seal of an entry covers."""
    return json.dumps(["undo", entry, session, turn, call_id, tool, files], default=repr).encode()


def _without_pairs(left: list[UndoEntry], found: Sequence[UndoEntry]) -> list[UndoEntry]:
    """Removes each pair of a change and its undo in the same turn."""
    if not any(one.undone for one in found):
        return left
    return [one for one in left if not one.is_undo]


def _read_state(location: Location) -> _FileState:
    status = status_of(location)
    if status is None:
        return _FileState(location, NOTHING, NOTHING)
    if stat.S_ISLNK(status.st_mode):
        target = LINK + _link_target(location)
        return _FileState(location, target, target, status=status)
    if not stat.S_ISREG(status.st_mode):
        return _FileState(location, SPECIAL, SPECIAL, status=status)
    with open(open_file(location), "rb", buffering=0) as file, explain_errors(location.shown):
        status = os.fstat(file.fileno())
        content = file.read()
    digest = digest_of(content)
    return _FileState(location, digest, digest, content, content, status=status)


def _link_target(location: Location) -> str:
    directory = open_directory(location.parent)
    try:
        with explain_errors(location.shown):
            return os.readlink(location.name, dir_fd=directory)
    finally:
        os.close(directory)


def _change_of(one: _FileState) -> Change:
    if one.now.startswith(LINK):
        return Change(one.location, one.before, b"", link=one.now.removeprefix(LINK), status=one.status)
    if one.was.startswith(LINK):
        return Change(one.location, None, one.content, link=one.was.removeprefix(LINK), status=one.status)
    return Change(one.location, one.before, one.content, one.mode, status=one.status)


def _before(change: Change) -> str:
    if change.had_link:
        return f"{LINK}{change.link}"
    if change.before is not None:
        return change.before_digest.value if change.before_digest else digest_of(change.before)
    return SPECIAL if change.finds else NOTHING


def _after(change: Change) -> str:
    if change.makes_link:
        return f"{LINK}{change.link}"
    if change.after is None:
        return NOTHING
    return change.after_digest.value if change.after_digest else digest_of(change.after)


def _mode(change: Change) -> int | None:
    return stat.S_IMODE(change.status.st_mode) if change.status is not None else change.mode


def _storable(text: str) -> str | bytes:
    """Encodes names that are not Unicode as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def _readable(value: str | bytes) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else value


def _lost_error(file: UndoFile, why: str) -> ToolError:
    return ToolError(
        f"{quote_path(file.shown)} cannot be restored: {why}; nothing was undone",
        ErrorKind.USER,
        "Undo other calls one by one with call_id, or restore this file by other means.",
    )
