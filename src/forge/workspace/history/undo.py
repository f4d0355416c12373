"""Records the contents of files before each change of a session, so that a call or a whole turn can be undone.

An image is stored once, under the hash of its content. For a large file with a small change, only the difference to
the new content is stored: a change is undone only if the file still has that new content.

An entry is sealed with the hashes of its contents: only what Forge itself stored is written back.

The log also names the programs that could change files without a record.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change
from forge.workspace.effects import Effect, EffectKind, Effects, PathState
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explain_errors, open_directory, open_file, status_of
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Store
from forge.workspace.text.diff import content_diff

# Defines the tables of the undo log and their queries.


_WHICH = (
    "session = :session AND (:call_id = '' OR call_id = :call_id) AND (:turn = '' OR turn = :turn)"
    " AND (:before = 0 OR id < :before)"
)
COUNT = "SELECT count(*) FROM undo_entries WHERE WHICH".replace("WHICH", _WHICH)
LOST = (
    "SELECT 1 FROM undo_files WHERE dropped AND entry IN (SELECT id FROM undo_entries WHERE WHICH) LIMIT 1"
).replace("WHICH", _WHICH)
FILES = (
    "SELECT * FROM undo_files WHERE entry IN"
    " (SELECT id FROM undo_entries WHERE WHICH ORDER BY id DESC LIMIT :most) ORDER BY rowid"
).replace("WHICH", _WHICH)
ENTRIES = (
    "SELECT id, turn, call_id, tool, time, undone_by IS NOT NULL, tool IN ('undo', 'rewind') OR EXISTS"
    " (SELECT 1 FROM undo_entries o WHERE o.undone_by = e.id), seal, root FROM undo_entries e WHERE WHICH"
    " ORDER BY id DESC LIMIT :most"
).replace("WHICH", _WHICH)


def create_undo_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables of the undo log."""
    for statement in (
        "CREATE TABLE undo_entries (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, turn TEXT NOT NULL,"
        " call_id TEXT NOT NULL, tool TEXT NOT NULL, time REAL NOT NULL, bytes INTEGER NOT NULL, undone_by INTEGER,"
        " seal TEXT NOT NULL DEFAULT '')",
        "CREATE INDEX undo_by_session ON undo_entries (session, bytes)",
        "CREATE INDEX undo_by_undo ON undo_entries (undone_by) WHERE undone_by IS NOT NULL",
        "CREATE TABLE undo_files (entry INTEGER NOT NULL, root TEXT NOT NULL, path TEXT NOT NULL, shown TEXT NOT NULL,"
        " before TEXT NOT NULL, after TEXT NOT NULL, mode INTEGER, base TEXT NOT NULL, dropped INTEGER NOT NULL)",
        "CREATE INDEX undo_by_entry ON undo_files (entry)",
        "CREATE INDEX undo_by_image ON undo_files (before, base)",
        "CREATE TABLE undo_images (hash TEXT NOT NULL, base TEXT NOT NULL, head INTEGER NOT NULL,"
        " tail INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (hash, base))",
    ):
        connection.execute(statement)


def add_undo_columns(connection: sqlite3.Connection) -> None:
    """Adds what a rewind needs: the new modes, the outermost call of a change, and the programs that ran."""
    for statement in (
        "ALTER TABLE undo_files ADD COLUMN new_mode INTEGER",
        "ALTER TABLE undo_entries ADD COLUMN root TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE undo_programs (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,"
        " call_id TEXT NOT NULL, root TEXT NOT NULL, tool TEXT NOT NULL, what TEXT NOT NULL, time REAL NOT NULL)",
        "CREATE INDEX undo_programs_by_session ON undo_programs (session)",
    ):
        connection.execute(statement)


def add_harmless_programs(connection: sqlite3.Connection) -> None:
    """Keeps the programs that changed nothing, too: a call without a note is unknown."""
    connection.execute("ALTER TABLE undo_programs ADD COLUMN is_harmless INTEGER NOT NULL DEFAULT 0")


# Stores old contents of files: each once, compressed, within a limit; the oldest are dropped first.


CAP = 64 * 1024 * 1024  # bytes of images that a session keeps
CAP_OF_ALL = 1024 * 1024 * 1024  # and all sessions together

_LARGE = 64 * 1024  # bytes: of a larger content only the difference may be stored
_SMALL_PART = 4  # the difference must be at most one part in so many
_PIECE = 1024 * 1024
_TIDY = 100  # records between two checks of what other processes and sessions stored
_SPARE = 16  # one part in so many is freed at once: computing the stored size takes time
_MOST_SESSIONS = 1_000  # whose free space is cached

_SIZE = (
    "SELECT total(length(data)) FROM undo_images WHERE (hash, base) IN (SELECT f.before, f.base FROM undo_files f"
    " JOIN undo_entries e ON e.id = f.entry WHERE NOT f.dropped AND OWNED)"
)
_FREED = (  # by an entry: images that no other entry of the same owner needs
    "SELECT total(length(data)) FROM undo_images i WHERE (hash, base) IN"
    " (SELECT before, base FROM undo_files WHERE entry = ? AND NOT dropped)"
    " AND NOT EXISTS (SELECT 1 FROM undo_files f JOIN undo_entries e ON e.id = f.entry"
    " WHERE f.before = i.hash AND f.base = i.base AND NOT f.dropped AND f.entry != ? AND OWNED)"
)


class Image(NamedTuple):
    """A content, or its middle: `head` bytes from the start and `tail` bytes from the end of `base` complete it."""

    hash: str
    base: str
    head: int
    tail: int
    data: bytes  # compressed


class Images:
    def __init__(self, cap: int = CAP, cap_of_all: int = CAP_OF_ALL) -> None:
        self._cap = cap
        self._cap_of_all = cap_of_all
        self._records = 0
        self._room: dict[str, int] = {}  # bytes that a session may store before its size is computed again

    def image(self, content: bytes, digest: str, after: bytes | None, base: str) -> Image:
        """Builds the image of a content that becomes `after`, whose hash is `base`."""
        if after is not None and len(content) >= _LARGE:
            head, tail = _count_common(content, after)
            middle = content[head : len(content) - tail]
            if len(middle) * _SMALL_PART <= len(content):
                return Image(digest, base, head, tail, zlib.compress(middle, 1))
        return Image(digest, "", 0, 0, zlib.compress(content, 1))

    def add(self, connection: sqlite3.Connection, image: Image) -> None:
        connection.execute("INSERT OR IGNORE INTO undo_images VALUES (?, ?, ?, ?, ?)", image)

    def content(self, connection: sqlite3.Connection, digest: str, base: str, after: bytes | None) -> bytes | None:
        """Returns the content with that hash, where its base is `after`; None if it is not stored or its hash is
        wrong.
        """
        row = connection.execute(
            "SELECT head, tail, data FROM undo_images WHERE hash = ? AND base = ?", (digest, base)
        ).fetchone()
        if row is None:
            return None
        head, tail, data = row
        content = zlib.decompress(data)
        if base:
            after = after or b""
            content = b"".join((after[:head], content, after[len(after) - tail :]))
        return content if digest_of(content) == digest else None

    def forget(self, connection: sqlite3.Connection, entry: int) -> None:
        """Removes an entry with its files."""
        self._drop_images(connection, entry)
        connection.execute("DELETE FROM undo_files WHERE entry = ?", (entry,))
        connection.execute("DELETE FROM undo_entries WHERE id = ?", (entry,))

    def shrink(self, connection: sqlite3.Connection, session: str, added: int) -> None:
        """Drops the oldest images of a session, and sometimes of all sessions, beyond the limits. `added`: bytes."""
        self._records += 1
        room = self._room.get(session, -1) - added
        if room < 0 or self._records % _TIDY == 0:
            room = self._shrink_to(connection, "e.session = ?", (session,), self._cap)
        if len(self._room) >= _MOST_SESSIONS:
            self._room.clear()
        self._room[session] = room
        if self._records % _TIDY == 1:
            self._shrink_to(connection, "1", (), self._cap_of_all)

    def _shrink_to(self, connection: sqlite3.Connection, owned: str, owner: tuple[str, ...], cap: int) -> int:
        """Drops images beyond `cap` bytes. Returns the bytes left."""

        def value(query: str, *given: int) -> int:
            found = connection.execute(query.replace("OWNED", owned), (*given, *owner)).fetchone()[0]
            return int(found or 0)

        size = value("SELECT total(bytes) FROM undo_entries e WHERE OWNED")
        if size <= cap:
            return cap - size
        size = value(_SIZE)  # the sum counts shared images several times
        if size <= cap:
            return cap - size
        oldest = "SELECT id FROM undo_entries e WHERE bytes > 0 AND OWNED ORDER BY id".replace("OWNED", owned)
        for (entry,) in connection.execute(oldest, owner).fetchall():
            size -= value(_FREED, entry, entry)
            self._drop_images(connection, entry)
            connection.execute("UPDATE undo_files SET dropped = 1 WHERE entry = ?", (entry,))
            connection.execute("UPDATE undo_entries SET bytes = 0 WHERE id = ?", (entry,))
            if size <= cap - cap // _SPARE:
                break
        return cap - size

    def _drop_images(self, connection: sqlite3.Connection, entry: int) -> None:
        """Removes the images that no other entry needs."""
        connection.execute(
            "DELETE FROM undo_images WHERE (hash, base) IN (SELECT before, base FROM undo_files WHERE entry = ?)"
            " AND NOT EXISTS (SELECT 1 FROM undo_files f WHERE f.before = undo_images.hash"
            " AND f.base = undo_images.base AND NOT f.dropped AND f.entry != ?)",
            (entry, entry),
        )


def _count_common(one: bytes, other: bytes) -> tuple[int, int]:
    """Counts the equal bytes at the start, and of the rest at the end."""
    shortest, view = min(len(one), len(other)), memoryview(other)  # `startswith` copies nothing
    head = _count_same(shortest, lambda at, size: one.startswith(view[at : at + size], at))
    end, other_end = len(one), len(other)
    tail = _count_same(
        shortest - head,
        lambda at, size: one.startswith(view[other_end - at - size : other_end - at], end - at - size),
    )
    return head, tail


def _count_same(most: int, is_same: Callable[[int, int], bool]) -> int:
    """Counts how far two contents agree, up to `most`: by large pieces first, then by halves of the first that
    differs.
    """
    at, size = 0, _PIECE
    while at < most and size:
        size = min(size, most - at)
        if is_same(at, size):
            at += size
        else:
            size //= 2
    return at


_PAGE = 50  # entries read at once
NOTHING, SPECIAL, FOLDER, LINK = "", "special", "folder", "link:"  # instead of a hash: nothing, or no regular file
REWIND = "rewind"  # the tool of the entry that a rewind makes
_LONGEST_LINE = 500  # characters of a program's line that are kept


_Sealed = tuple[object, ...]  # root, relative, shown, before, after, mode, base; the new mode if it was changed


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
    new_mode: int | None = None  # None: the mode was not changed

    @property
    def location(self) -> Location:
        return Location(Path(self.root), self.relative, self.shown)

    @property
    def is_made_folder(self) -> bool:
        return self.after == FOLDER and not self.before

    @property
    def is_retyped(self) -> bool:
        """True if a folder became something else, or something else a folder: that is not restored."""
        return (self.before == FOLDER) != (self.after == FOLDER) and bool(self.before and self.after)


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
    root: str = ""  # the call of the conversation that the call was made for; empty: the call itself


@dataclass(frozen=True, slots=True)
class ProgramNote:
    """A program that could change files without a record, or a tool that is not Forge's."""

    call_id: str
    root: str
    tool: str
    what: str
    time: float
    is_harmless: bool = False  # it did not run, or changed no file of the real tree


@dataclass(frozen=True, slots=True)
class Restoration:
    """The changes that restore files, and the files that are not restored, each with the reason."""

    changes: tuple[Change, ...]
    conflicts: Mapping[str, ToolError]  # changed since by somebody else
    lost: Mapping[str, str]  # the old content is not stored


@dataclass(slots=True)
class _FileState:
    """A file as it is now, or as it will be once some changes are undone."""

    location: Location
    was: str
    now: str
    content: bytes | None = None  # None: no regular file
    before: bytes | None = None
    bits: int | None = None  # permission bits; None: there is nothing
    status: os.stat_result | None = None

    @property
    def old_bits(self) -> int | None:
        return None if self.status is None else stat.S_IMODE(self.status.st_mode)

    def is_before(self, file: UndoFile) -> bool:
        """Returns whether the file is as it was before that change."""
        return self.now == file.before and (file.new_mode is None or self.bits == file.mode)

    @property
    def is_changed(self) -> bool:
        is_link = self.now.startswith(LINK)
        return self.now != self.was or (bool(self.now) and not is_link and self.bits != self.old_bits)


class UndoLog:
    """Keyed by session, in the project's store or in memory. `cap`: bytes of images that a session may keep."""

    def __init__(self, path: Path | None = None, cap: int = CAP) -> None:
        self._store = Store(path, "undo", [create_undo_tables, add_undo_columns, add_harmless_programs])
        self._images = Images(cap)

    def record(
        self, session: str, turn: str, call_id: str, tool: str, changes: Sequence[Change], root: str = ""
    ) -> int:
        """Stores the old contents before a change. Returns the entry, which must be withdrawn if the change fails.

        `root`: the call of the conversation for which a sub-agent or a script made this one.
        """
        digests = [(change, _before(change), _after(change)) for change in changes]
        images = [
            self._images.image(change.before or b"", before, change.after, after)
            if change.before is not None
            and not change.had_link
            and not (change.new_mode is not None and before == after)
            else None
            for change, before, after in digests
        ]
        size = sum(len(image.data) for image in images if image is not None)
        with self._store.write_transaction() as connection:
            entry = connection.execute(
                "INSERT INTO undo_entries (session, turn, call_id, tool, time, bytes, root)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (session, turn, call_id, tool, time.time(), size, root),
            ).lastrowid
            assert entry is not None
            rows: list[_Sealed] = []
            for (change, before, after), image in zip(digests, images, strict=True):
                where = (str(change.location.root), change.location.relative, change.location.shown)
                base = image.base if image is not None else ""
                is_left_out = change.before is None and change.before_digest is not None  # it is too large
                row = (entry, *map(_storable, where), _storable(before), _storable(after), _mode(change), base)
                connection.execute(
                    "INSERT INTO undo_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, is_left_out, change.new_mode)
                )
                rows.append(_seal_row(*where, before, after, _mode(change), base, change.new_mode))
                if image is not None:
                    self._images.add(connection, image)
            seal = self._seal(_content(entry, session, turn, call_id, tool, rows, root))
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
            connection.execute("DELETE FROM undo_programs WHERE session = ?", (session,))

    def note_program(self, session: str, call_id: str, root: str, tool: str, what: str) -> int:
        """Notes that something is about to run that can change files without a record. Returns the note."""
        what = what.encode(errors="replace").decode()[:_LONGEST_LINE]
        with self._store.write_transaction() as connection:
            note = connection.execute(
                "INSERT INTO undo_programs (session, call_id, root, tool, what, time) VALUES (?, ?, ?, ?, ?, ?)",
                (session, call_id, root, tool, what, time.time()),
            ).lastrowid
        assert note is not None
        return note

    def mark_harmless(self, note: int) -> None:
        """Marks a note: it did not run, or changed no file of the real tree."""
        with self._store.write_transaction() as connection:
            connection.execute("UPDATE undo_programs SET is_harmless = 1 WHERE id = ?", (note,))

    def programs(self, session: str) -> list[ProgramNote]:
        """Lists what could change files without a record, the first one first."""
        with self._store.read_transaction() as connection:
            rows = connection.execute(
                "SELECT call_id, root, tool, what, time, is_harmless FROM undo_programs WHERE session = ? ORDER BY id",
                (session,),
            )
            return [
                ProgramNote(call, root, tool, what, at, bool(harmless)) for call, root, tool, what, at, harmless in rows
            ]

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
                root, relative, shown, old, new, mode, base, dropped, new_mode = row
                where = (_readable(root), _readable(relative), _readable(shown))
                file = UndoFile(*where, _readable(old), _readable(new), mode, base, bool(dropped), new_mode)
                files.setdefault(entry, []).append(file)
            rows = connection.execute(ENTRIES, which).fetchall()
        found = []
        for id_, turn, call_id, tool, at, undone, is_undo, seal, root in rows:
            there = tuple(files.get(id_, ()))
            sealed = [
                _seal_row(one.root, one.relative, one.shown, one.before, one.after, one.mode, one.base, one.new_mode)
                for one in there
            ]
            content = _content(id_, session, turn, call_id, tool, sealed, root)
            problem = find_problem(self._store.path, content, str(seal))
            found.append(UndoEntry(id_, turn, call_id, tool, at, bool(undone), bool(is_undo), there, problem, root))
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
        if any(one.tool == REWIND for one in found if call_id):
            raise ToolError(
                f"call {call_id} is a rewind, which changed the conversation, too",
                ErrorKind.USER,
                "forge session rewind NAME --back takes it back.",
            )
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
        found = self.plan_restoration(session, entries)
        for error in found.conflicts.values():
            raise error
        for shown, why in found.lost.items():
            raise _lost_error(shown, why)
        return list(found.changes)

    def plan_restoration(self, session: str, entries: Sequence[UndoEntry]) -> Restoration:
        """Plans to undo these entries, the latest first, and names every file that cannot be restored."""
        found: dict[Path, _FileState] = {}
        conflicts: dict[str, ToolError] = {}
        lost: dict[str, str] = {}
        retyped: dict[Path, str] = {}
        for entry in entries:
            if entry.problem:
                raise ToolError(
                    f"call {entry.call_id} cannot be undone, since its record does not count: {entry.problem};"
                    " nothing was undone",
                    ErrorKind.PERMISSION,
                    "Undo other calls one by one with call_id, or restore the files by other means.",
                )
            retyped |= {one.location.path: one.shown for one in entry.files if one.is_retyped}
            for file in reversed(entry.files):
                if file.shown in conflicts or file.shown in lost:
                    continue
                if why := _explain_retyped(file, retyped):
                    lost[file.shown] = why
                    continue
                now = found.get(file.location.path) or found.setdefault(file.location.path, _read_state(file.location))
                if now.is_before(file):
                    continue
                try:
                    if why := self._step_back(session, entry, file, now):
                        lost[file.shown] = why
                except ToolError as error:
                    conflicts[file.shown] = error
        stuck = {*conflicts, *lost}
        left = {path: one for path, one in found.items() if one.is_changed and one.location.shown not in stuck}
        return Restoration(tuple(_change_of(one) for one in _keep_used_folders(left)), conflicts, lost)

    def session_diff(self, session: str) -> str:
        """Returns how files differ from what they were before the session's first change of them.

        Changes of the session that were undone are not in it. Changes by others since then are.
        """
        now: dict[Path, bytes | None] = {}
        then: dict[Path, bytes | str | None] = {}  # a text: why the content is not known
        shown: dict[Path, str] = {}
        for entry in self.entries(session):
            for file in reversed(entry.files):
                path = file.location.path
                if path not in now:
                    now[path] = then[path] = _read_state(file.location).content
                    shown[path] = file.shown
                then[path] = entry.problem or self._find_old_content(file, then[path])
        return "".join(_diff_since(shown[path], then[path], now[path]) for path in reversed(now))

    def _find_old_content(self, file: UndoFile, after: bytes | str | None) -> bytes | str | None:
        """Returns the content before a change; a text says why it is not known."""
        if file.before in (NOTHING, FOLDER):
            return None
        if file.before == SPECIAL or file.before.startswith(LINK):
            return "it was no regular file"
        if isinstance(after, bytes) and digest_of(after) == file.before:
            return after
        with self._store.read_transaction() as connection:
            known = after if isinstance(after, bytes) else None
            content = self._images.content(connection, file.before, file.base, known)
        return content if content is not None else "its old content is no longer stored"

    def find_other_session(self, session: str, file: UndoFile) -> str:
        """Returns the other session that changed the file last; "" if none did."""
        with self._store.read_transaction() as connection:
            row = connection.execute(
                "SELECT e.session FROM undo_files f JOIN undo_entries e ON e.id = f.entry"
                " WHERE f.root = ? AND f.path = ? AND e.session != ? AND e.undone_by IS NULL"
                " ORDER BY e.id DESC LIMIT 1",
                (_storable(file.root), _storable(file.relative), session),
            ).fetchone()
        return "" if row is None else str(row[0])

    def read_image(self, file: UndoFile) -> bytes | None:
        """Returns the old content of a file; None if it is not stored whole."""
        if file.base or file.dropped:
            return None
        with self._store.read_transaction() as connection:
            return self._images.content(connection, file.before, "", None)

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
                    and not all(_read_state(file.location).is_before(file) for file in one.files)
                ):
                    return [one]
            page = self.entries(session, before=page[-1].id, most=_PAGE)
        raise ToolError("there is nothing to undo", ErrorKind.NOT_FOUND, "No changed file can be restored.")

    def _step_back(self, session: str, entry: UndoEntry, file: UndoFile, now: _FileState) -> str:
        """Steps back over one change. Returns why the old content is lost, else ""."""
        if now.now != file.after or (file.new_mode is not None and now.bits != file.new_mode):
            raise self._conflict_error(session, entry, file)
        if file.before == SPECIAL:
            return "it was a FIFO, a socket or a device"
        if file.before == NOTHING:
            now.now, now.content, now.bits = NOTHING, None, None
            return ""
        if not file.after or file.new_mode is not None:
            now.bits = file.mode
        if file.before == file.after:
            return ""
        if file.before == FOLDER or file.before.startswith(LINK):
            now.now, now.content = file.before, None
            return ""
        if file.dropped:
            return "its old content was dropped to make room for later changes"
        with self._store.read_transaction() as connection:
            content = self._images.content(connection, file.before, file.base, now.content)
        if content is None:
            return "its old content is no longer stored"
        now.now, now.content = file.before, content
        return ""

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


def _explain_retyped(file: UndoFile, retyped: Mapping[Path, str]) -> str:
    """Returns why a path is not restored that became a folder, or was one, or lies in such a path; "" for others."""
    path = file.location.path
    for one in (path, *path.parents) if retyped else ():
        if one in retyped:
            what = "it" if one == path else f"{quote_path(retyped[one])}, in which it is or was,"
            return f"{what} changed between a folder and a file or link"
    return ""


def _diff_since(shown: str, then: bytes | str | None, now: bytes | None) -> str:
    if isinstance(then, str):
        return f"{quote_path(shown)} cannot be compared: {then}\n"
    try:
        return content_diff(then, now, shown)
    except ToolError:
        return f"{quote_path(shown)} is not text, and has changed\n"


def _content(
    entry: int, session: str, turn: str, call_id: str, tool: str, files: Sequence[_Sealed], root: str
) -> bytes:
    """Returns what the seal of an entry covers."""
    more = [root] if root else []
    return json.dumps(["undo", entry, session, turn, call_id, tool, files, *more], default=repr).encode()


def _seal_row(*row: object) -> _Sealed:
    return row if row[-1] is not None else row[:-1]


def _without_pairs(left: list[UndoEntry], found: Sequence[UndoEntry]) -> list[UndoEntry]:
    """Removes each pair of a change and its undo in the same turn."""
    if not any(one.undone for one in found):
        return left
    return [one for one in left if not one.is_undo]


def _read_state(location: Location) -> _FileState:
    status = status_of(location)
    if status is None:
        return _FileState(location, NOTHING, NOTHING)
    bits = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        target = LINK + _link_target(location)
        return _FileState(location, target, target, bits=bits, status=status)
    if not stat.S_ISREG(status.st_mode):
        kind = FOLDER if stat.S_ISDIR(status.st_mode) else SPECIAL
        return _FileState(location, kind, kind, bits=bits, status=status)
    with open(open_file(location), "rb", buffering=0) as file, explain_errors(location.shown):
        status = os.fstat(file.fileno())
        content = file.read()
    digest = digest_of(content)
    return _FileState(location, digest, digest, content, content, stat.S_IMODE(status.st_mode), status)


def _link_target(location: Location) -> str:
    directory = open_directory(location.parent)
    try:
        with explain_errors(location.shown):
            return os.readlink(location.name, dir_fd=directory)
    finally:
        os.close(directory)


def _keep_used_folders(found: Mapping[Path, _FileState]) -> list[_FileState]:
    """Leaves out the removal of folders that hold something else."""
    removed = {path for path, one in found.items() if one.now == NOTHING}

    def is_used(path: Path) -> bool:
        try:
            return any(path / name not in removed or is_used(path / name) for name in os.listdir(path))
        except OSError:  # a file
            return False

    kept = {path for path in removed if found[path].was == FOLDER and is_used(path)}
    return [one for path, one in found.items() if path not in kept]


def _change_of(one: _FileState) -> Change:
    bits = one.bits if one.bits != one.old_bits else None
    if FOLDER in (one.was, one.now):
        if {one.was, one.now} - {FOLDER, NOTHING}:
            raise ToolError(
                f"{quote_path(one.location.shown)} is a folder, and was none; nothing was undone",
                ErrorKind.USER,
                "Move the folder away, then try again.",
            )
        if one.was == NOTHING:
            return Change(one.location, None, None, one.bits, folder="make")
        kind: Literal["remove", "mode"] = "mode" if one.now == FOLDER else "remove"
        return Change(one.location, None, None, status=one.status, folder=kind, new_mode=bits if one.now else None)
    old, new = (state.removeprefix(LINK) if state.startswith(LINK) else None for state in (one.was, one.now))
    if old is not None and new is not None:
        return Change(one.location, None, b"", link=old, status=one.status, new_link=new)
    if new is not None:
        return Change(one.location, one.before, b"", link=new, status=one.status)
    if old is not None:
        return Change(one.location, None, one.content, one.bits, old, one.status)
    if one.was == NOTHING:
        return Change(one.location, None, one.content, one.bits)
    return Change(one.location, one.before, one.content, status=one.status, new_mode=bits if one.now else None)


def describe_changes(changes: Iterable[Change]) -> Effects:
    """Returns the effects of changes, to show them to a person."""
    found = []
    for one in changes:
        before, after = _describe_side(one, _before(one), new=False), _describe_side(one, _after(one), new=True)
        kind: EffectKind = "create" if before is None else "delete" if after is None else "change"
        if before is not None and after is not None and replace(before, mode=after.mode) == after:
            kind = "mode"
        read = partial(_contents_of, one)
        found.append(Effect(one.location.path, one.location.shown, kind, before, after, read))
    return Effects(tuple(found))


def _contents_of(change: Change) -> tuple[bytes | None, bytes | None]:
    return (None if change.had_link else change.before), (None if change.makes_link else change.after)


def _describe_side(change: Change, state: str, *, new: bool) -> PathState | None:
    if state == NOTHING:
        return None
    mode = _mode(change) or 0
    if new:
        mode = change.new_mode if change.new_mode is not None else mode
    if state == FOLDER:
        return PathState("folder", mode)
    if state == SPECIAL:
        return PathState("other", mode)
    if state.startswith(LINK):
        return PathState("link", mode, target=state.removeprefix(LINK))
    content = change.after if new else change.before
    return PathState("file", mode, len(content or b""), mark=state)


def _before(change: Change) -> str:
    replaced = change.status if change.folder in ("", "make") else None
    if change.folder and replaced is None:
        return NOTHING if change.folder == "make" else FOLDER
    if replaced is not None and stat.S_ISDIR(replaced.st_mode):
        return FOLDER
    if change.had_link:
        return f"{LINK}{change.link}"
    if change.before_digest is not None:
        return change.before_digest.value
    if change.before is not None:
        return digest_of(change.before)
    return SPECIAL if change.finds else NOTHING


def _after(change: Change) -> str:
    if change.folder:
        return NOTHING if change.folder == "remove" else FOLDER
    if change.makes_link:
        return f"{LINK}{change.made_target}"
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


def _lost_error(shown: str, why: str) -> ToolError:
    return ToolError(
        f"{quote_path(shown)} cannot be restored: {why}; nothing was undone",
        ErrorKind.USER,
        "Undo other calls one by one with call_id, or restore this file by other means.",
    )
