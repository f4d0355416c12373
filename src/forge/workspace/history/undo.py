"""What files held before each change of a session, so that a call or a whole turn can be taken back.

An image is kept once, under the hash of its content. Of a large file of which little changed, only the difference to
what it became is kept: a change is taken back only where the file still is what it became.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change
from forge.workspace.history.old_contents import CAP, Images
from forge.workspace.history.undo_tables import COUNT, ENTRIES, FILES, LOST, undo_tables
from forge.workspace.paths import Place, quoted
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explained, open_directory, open_file, status_of
from forge.workspace.state.store import Store

_PAGE = 50  # entries looked at together
NOTHING, SPECIAL, LINK = "", "special", "link:"  # in the place of a hash: nothing is there, or no regular file


@dataclass(frozen=True, slots=True)
class UndoFile:
    """One file of a change: the hashes of what was there and of what came in its place."""

    root: str
    relative: str
    shown: str
    before: str
    after: str
    mode: int | None
    base: str  # what the image is a difference to; empty: to nothing
    dropped: bool  # the image was removed to make room

    @property
    def place(self) -> Place:
        return Place(Path(self.root), self.relative, self.shown)


@dataclass(frozen=True, slots=True)
class Entry:
    """One change, by one call."""

    id: int
    turn: str
    call_id: str
    tool: str
    time: float
    undone: bool
    is_undo: bool
    files: tuple[UndoFile, ...]


@dataclass(slots=True)
class _Found:
    """A file as it is now, or as it will be when some changes are taken back."""

    place: Place
    was: str
    now: str
    content: bytes | None = None  # None: no regular file
    before: bytes | None = None
    mode: int | None = None
    status: os.stat_result | None = None


class UndoLog:
    """Keyed by session, in the project's store or in memory. `cap`: bytes of images that a session may keep."""

    def __init__(self, path: Path | None = None, cap: int = CAP) -> None:
        self._store = Store(path, "undo", [undo_tables])
        self._images = Images(cap)

    def record(self, session: str, turn: str, call_id: str, tool: str, changes: Sequence[Change]) -> int:
        """Keep what is there before it is changed. To be withdrawn if the change is not made."""
        kept = [(change, _before(change), _after(change)) for change in changes]
        images = [
            self._images.image(change.before or b"", before, change.after, after)
            if change.before is not None and not change.had_link
            else None
            for change, before, after in kept
        ]
        size = sum(len(image.data) for image in images if image is not None)
        with self._store.writing() as connection:
            entry = connection.execute(
                "INSERT INTO undo_entries (session, turn, call_id, tool, time, bytes) VALUES (?, ?, ?, ?, ?, ?)",
                (session, turn, call_id, tool, time.time(), size),
            ).lastrowid
            assert entry is not None
            for (change, before, after), image in zip(kept, images, strict=True):
                where = (str(change.place.root), change.place.relative, change.place.shown)
                base = image.base if image is not None else ""
                row = (entry, *map(_storable, where), _storable(before), _storable(after), _mode(change), base)
                connection.execute("INSERT INTO undo_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", row)
                if image is not None:
                    self._images.add(connection, image)
            self._images.shrink(connection, session, size)
        return entry

    def withdraw(self, entry: int) -> None:
        """The change was not made."""
        with self._store.writing() as connection:
            self._images.forget(connection, entry)

    def forget(self, session: str) -> None:
        with self._store.writing() as connection:
            for (entry,) in connection.execute("SELECT id FROM undo_entries WHERE session = ?", (session,)).fetchall():
                self._images.forget(connection, entry)

    def mark(self, session: str, undone: Sequence[int], call_id: str) -> None:
        """The call has taken these changes back; what they themselves had taken back is there again."""
        with self._store.writing() as connection:
            by = connection.execute(
                "SELECT max(id) FROM undo_entries WHERE session = ? AND call_id = ?", (session, call_id)
            ).fetchone()[0]
            for entry in undone:
                connection.execute("UPDATE undo_entries SET undone_by = NULL WHERE undone_by = ?", (entry,))
                connection.execute("UPDATE undo_entries SET undone_by = ? WHERE id = ?", (by, entry))

    def sessions(self) -> list[str]:
        """Those that changed something, the one that did so last first."""
        with self._store.reading() as connection:
            rows = connection.execute("SELECT session FROM undo_entries GROUP BY session ORDER BY max(id) DESC")
            return [row[0] for row in rows]

    def count(self, session: str, *, call_id: str = "", turn: str = "") -> tuple[int, bool]:
        """How many changes there are, and whether the images of some are gone."""
        which = {"session": session, "call_id": call_id, "turn": turn, "before": 0}
        with self._store.reading() as connection:
            number = connection.execute(COUNT, which).fetchone()[0]
            return number, connection.execute(LOST, which).fetchone() is not None

    def entries(
        self, session: str, *, call_id: str = "", turn: str = "", before: int = 0, most: int = -1
    ) -> list[Entry]:
        """What was changed, the latest first: all of it, or so many, or what was before an entry."""
        which = {"session": session, "call_id": call_id, "turn": turn, "before": before, "most": most}
        files: dict[int, list[UndoFile]] = {}
        with self._store.reading() as connection:
            for entry, *row in connection.execute(FILES, which):
                root, relative, shown, old, new, mode, base, dropped = row
                where = (_readable(root), _readable(relative), _readable(shown))
                file = UndoFile(*where, _readable(old), _readable(new), mode, base, bool(dropped))
                files.setdefault(entry, []).append(file)
            rows = connection.execute(ENTRIES, which).fetchall()
        return [
            Entry(id_, turn, call_id, tool, at, bool(undone), bool(is_undo), tuple(files.get(id_, ())))
            for id_, turn, call_id, tool, at, undone, is_undo in rows
        ]

    def chosen(self, session: str, *, call_id: str = "", turn: str = "") -> list[Entry]:
        """The changes of a call or a turn that are there to be taken back, the latest first; else the last one."""
        if not call_id and not turn:
            return self._last(session)
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
            raise ToolError(f"{wanted} is undone already", ErrorKind.USER, "Nothing needs to be done.")
        raise ToolError(
            f"{wanted} changed no file in this session",
            ErrorKind.NOT_FOUND,
            "The action list shows what can be undone.",
        )

    def plan(self, session: str, *, call_id: str = "", turn: str = "") -> list[Change]:
        """What restores the files as they were before a call, a turn, or the last change.

        Raises `ToolError` where one of them changed since, or its image is gone. Empty: they are as they were already.
        """
        return self.restored(session, self.chosen(session, call_id=call_id, turn=turn))

    def restored(self, session: str, entries: Sequence[Entry]) -> list[Change]:
        """What takes back these changes, the latest first."""
        found: dict[Path, _Found] = {}
        for entry in entries:
            for file in reversed(entry.files):
                now = found.get(file.place.path) or found.setdefault(file.place.path, _look(file.place))
                if now.now != file.before:
                    self._step_back(session, entry, file, now)
        return [_change(one) for one in found.values() if one.now != one.was]

    def _last(self, session: str) -> list[Entry]:
        """The last change that was made, and neither taken back nor a taking back; a killed process made none."""
        page = self.entries(session, most=_PAGE)
        while page:
            for one in page:
                if not one.undone and not one.is_undo and any(_look(f.place).now != f.before for f in one.files):
                    return [one]
            page = self.entries(session, before=page[-1].id, most=_PAGE)
        raise ToolError("there is nothing to undo", ErrorKind.NOT_FOUND, "No file was changed that could be restored.")

    def _step_back(self, session: str, entry: Entry, file: UndoFile, now: _Found) -> None:
        if now.now != file.after:
            raise self._conflict(session, entry, file)
        if file.before == SPECIAL:
            raise _lost(file, "it was a FIFO, a socket or a device")
        if file.before == NOTHING or file.before.startswith(LINK):
            now.now, now.content = file.before, None
            return
        if file.dropped:
            raise _lost(file, "what was there was dropped to make room for later changes")
        with self._store.reading() as connection:
            content = self._images.content(connection, file.before, file.base, now.content)
        if content is None:
            raise _lost(file, "what was there is no longer kept")
        now.now, now.content, now.mode = file.before, content, file.mode

    def _conflict(self, session: str, entry: Entry, file: UndoFile) -> ToolError:
        later = [
            one
            for one in self.entries(session)
            if one.id > entry.id
            and not (one.undone or one.is_undo)
            and any(f.place.path == file.place.path for f in one.files)
        ]
        by = f" by call {later[0].call_id} ({later[0].tool})" if later else ", not by this session's tools"
        hint = f"Undo call_id={later[0].call_id} first" if later else "Read it and edit what should be different"
        return ToolError(
            f"{quoted(file.shown)} was changed since call {entry.call_id}{by}; nothing was undone",
            ErrorKind.USER,
            f"{hint}.",
        )


def _without_pairs(left: list[Entry], found: Sequence[Entry]) -> list[Entry]:
    """A change and its undo in the same turn cancel each other."""
    if not any(one.undone for one in found):
        return left
    return [one for one in left if not one.is_undo]


def _look(place: Place) -> _Found:
    status = status_of(place)
    if status is None:
        return _Found(place, NOTHING, NOTHING)
    if stat.S_ISLNK(status.st_mode):
        target = LINK + _target(place)
        return _Found(place, target, target, status=status)
    if not stat.S_ISREG(status.st_mode):
        return _Found(place, SPECIAL, SPECIAL, status=status)
    with open(open_file(place), "rb", buffering=0) as file, explained(place.shown):
        status = os.fstat(file.fileno())
        content = file.read()
    digest = digest_of(content)
    return _Found(place, digest, digest, content, content, status=status)


def _target(place: Place) -> str:
    directory = open_directory(place.parent)
    try:
        with explained(place.shown):
            return os.readlink(place.name, dir_fd=directory)
    finally:
        os.close(directory)


def _change(one: _Found) -> Change:
    if one.now.startswith(LINK):
        return Change(one.place, one.before, b"", link=one.now.removeprefix(LINK), status=one.status)
    if one.was.startswith(LINK):
        return Change(one.place, None, one.content, link=one.was.removeprefix(LINK), status=one.status)
    return Change(one.place, one.before, one.content, one.mode, status=one.status)


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
    """Names that are no Unicode go in as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def _readable(value: str | bytes) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else value


def _lost(file: UndoFile, why: str) -> ToolError:
    return ToolError(
        f"{quoted(file.shown)} cannot be restored: {why}; nothing was undone",
        ErrorKind.USER,
        "Undo other calls one by one with call_id, or restore this file by other means.",
    )
