"""Stores conversations in one SQLite file that only grows and that many processes share: its API and its tables."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import sqlite3
import stat
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import quote
from threading import Lock
from typing import Any, NamedTuple, Self

from forge.agent.conversation import Conversation
from forge.core.arguments.names import near
from forge.core.context import entered
from forge.core.errors import ErrorKind
from forge.core.messages import Message, export_message, import_message, pack_message, unpack_message
from forge.core.plain_values import brief, sendable
from forge.core.result import Attachment
from forge.core.untrusted import clean_title
from forge.workspace.state import NAME, state_directory
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Migration, Store, StoreError

log = logging.getLogger(__name__)

# Reads and writes the tables of the session store.


LONGEST_NAME = 200
LONGEST_TITLE = 80  # characters of a title that is the beginning of a message
SUMMARY = "summary"  # the key in a session's `meta` of the summary that the model is shown
TITLED_BY = "titled by"  # the key in a session's `meta` of who gave it its title: person or model


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session in a list of sessions. Times are seconds since 1970; a turn is one answer of the model."""

    name: str
    created: float
    updated: float
    messages: int
    turns: int
    title: str


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
            updated REAL NOT NULL, messages INTEGER NOT NULL, turns INTEGER NOT NULL, title TEXT NOT NULL,
            chain TEXT NOT NULL DEFAULT '', seal TEXT NOT NULL DEFAULT '')""",
        """CREATE TABLE session_messages (
            id INTEGER PRIMARY KEY, session INTEGER NOT NULL,
            at REAL NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL)""",
        "CREATE INDEX session_messages_of ON session_messages (session, id)",
        "CREATE TABLE session_blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL)",
        """CREATE TABLE session_attached (
            session INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (session, hash)) WITHOUT ROWID""",
        """CREATE TABLE session_meta (
            session INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (session, key)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


def _create_rewinds(connection: sqlite3.Connection) -> None:
    """Creates the table of rewinds. Its keys decide whether the files of a rewind count: see the journal."""
    connection.execute(
        """CREATE TABLE rewinds (
            id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, session INTEGER NOT NULL, at REAL NOT NULL,
            turn INTEGER NOT NULL, position INTEGER NOT NULL, kept INTEGER NOT NULL, removed TEXT NOT NULL,
            takes_back INTEGER, seal TEXT NOT NULL)"""
    )


MIGRATIONS: list[Migration] = [
    _create_tables,
    _create_rewinds,
]  # the version of the tables is how many of these have run

_INFO = "name, created, updated, messages, turns, title"


def has_session(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone() is not None


def find_session(connection: sqlite3.Connection, name: str) -> tuple[int, SessionInfo]:
    row = connection.execute(f"SELECT id, {_INFO} FROM sessions WHERE name = ?", (sendable(name),)).fetchone()  # noqa: S608
    if row is not None:
        return row[0], SessionInfo(*row[1:])
    names = [one for (one,) in connection.execute("SELECT name FROM sessions ORDER BY updated DESC LIMIT 1000")]
    meant = near(name, names) or names[:3]
    hint = f"Did you mean {' or '.join(map(brief, meant))}?" if meant else "There are no sessions yet."
    raise StoreError(f"there is no session {brief(name)}", ErrorKind.NOT_FOUND, hint)


def create_session(connection: sqlite3.Connection, name: str) -> int:
    if has_session(connection, name):
        raise StoreError(f"there is a session {brief(name)} already", suggestion="Choose another name, or delete it.")
    now = time.time()
    row = (name, now, now)
    insertion = "INSERT INTO sessions (name, created, updated, messages, turns, title) VALUES (?, ?, ?, 0, 0, '')"
    number = connection.execute(insertion, row).lastrowid
    assert number is not None
    _write_seal(connection, number, "")
    return number


def list_infos(connection: sqlite3.Connection) -> list[SessionInfo]:
    rows = connection.execute(f"SELECT {_INFO} FROM sessions ORDER BY updated DESC, id DESC")  # noqa: S608
    return [SessionInfo(*row) for row in rows]


def copy_session(connection: sqlite3.Connection, name: str, new_name: str, upto: int | None, trust: bool) -> str:
    """Creates a session with the first messages of another and all its values. Returns the new name.

    `trust`: also copies what something else than Forge may have written.
    """
    old, info = find_session(connection, name)
    if not trust:
        check_session(connection, old, name)
    new = create_session(connection, new_name)
    connection.execute(
        "INSERT INTO session_messages (session, at, role, body) SELECT ?, at, role, body"
        " FROM session_messages WHERE session = ? ORDER BY id LIMIT ?",
        (new, old, -1 if upto is None else upto),
    )
    connection.execute(
        "INSERT INTO session_attached SELECT ?, hash FROM session_attached WHERE session = ?", (new, old)
    )
    for key, value, _ in _read_values(connection, old):
        write_value(connection, new, key, value)
    _write_seal(connection, new, _chain_of(connection, new))
    counts = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE role = 'assistant') FROM session_messages WHERE session = ?", (new,)
    ).fetchone()
    title = info.title if counts[0] else ""
    connection.execute("UPDATE sessions SET title = ?, messages = ?, turns = ? WHERE id = ?", (title, *counts, new))
    return new_name


def remove_session(connection: sqlite3.Connection, name: str) -> None:
    session, _ = find_session(connection, name)
    connection.execute(
        "DELETE FROM session_blobs WHERE hash IN (SELECT hash FROM session_attached WHERE session = ?)"
        " AND hash NOT IN (SELECT hash FROM session_attached WHERE session <> ?)",
        (session, session),
    )
    for table in ("session_messages", "session_attached", "session_meta", "rewinds"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def rename_session(connection: sqlite3.Connection, name: str, title: str, by: str) -> None:
    """Sets the title. The model's title (`by` is "model") replaces neither a person's nor an earlier one of its own."""
    session, _ = find_session(connection, name)
    key = (session, TITLED_BY)
    before = connection.execute("SELECT 1 FROM session_meta WHERE session = ? AND key = ?", key).fetchone()
    if before is not None and by == "model":
        return
    connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, session))
    write_value(connection, *key, f'"{by}"')


def check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise StoreError(
            f"{brief(name)} cannot be the name of a session",
            ErrorKind.VALIDATION,
            f"Use 1 to {LONGEST_NAME} printable characters.",
        )


def insert(connection: sqlite3.Connection, session: int, messages: Sequence[Message]) -> None:
    now = time.time()

    def store_attachment(attachment: Attachment) -> dict[str, str]:
        key = sha256(attachment.data).hexdigest()
        connection.execute("INSERT OR IGNORE INTO session_blobs VALUES (?, ?)", (key, attachment.data))
        connection.execute("INSERT OR IGNORE INTO session_attached VALUES (?, ?)", (session, key))
        return {"hash": key}

    rows = [(session, now, message.role, pack_message(message, store_attachment)) for message in messages]
    _extend_seal(connection, session, [(role, body) for _, _, role, body in rows])
    connection.executemany("INSERT INTO session_messages (session, at, role, body) VALUES (?, ?, ?, ?)", rows)
    title = next((_title(one.text) for one in messages if one.role == "user" and one.text.strip()), "")
    turns = sum(message.role == "assistant" for message in messages)
    connection.execute(
        "UPDATE sessions SET updated = max(updated, ?), messages = messages + ?, turns = turns + ?,"
        " title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
        (now, len(messages), turns, title, session),
    )


def _title(text: str) -> str:
    words = " ".join(sendable(text.lstrip()[: 4 * LONGEST_TITLE]).split())
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"


def read_messages(connection: sqlite3.Connection, session: int) -> list[Message]:
    messages = _read_rows(connection, session)
    return [messages[at] for at in _order_results(messages)]


def _read_rows(connection: sqlite3.Connection, session: int) -> list[Message]:
    blobs = dict(
        connection.execute(
            "SELECT hash, data FROM session_blobs WHERE hash IN (SELECT hash FROM session_attached WHERE session = ?)",
            (session,),
        ).fetchall()
    )
    messages = []
    rows = connection.execute("SELECT body FROM session_messages WHERE session = ? ORDER BY id", (session,))
    for number, (body,) in enumerate(rows, 1):
        try:
            messages.append(unpack_message(body, lambda one: _check_bytes(blobs[one["hash"]], one["hash"])))
        except (ValueError, LookupError, RecursionError) as error:
            message = f"message {number} of the session cannot be read: {error}"
            raise StoreError(
                message, suggestion=f"Fork the session with upto={number - 1} to go on from there."
            ) from error
    return messages


def _order_results(messages: Sequence[Message]) -> list[int]:
    """Returns the order with results directly behind their calls, also where another process appended in between."""
    groups: list[list[int]] = []
    by_call: dict[str, list[int]] = {}
    for at, message in enumerate(messages):
        group = by_call.get(message.call_id) if message.role == "tool" else None
        if group is not None:
            group.append(at)
            continue
        groups.append([at])
        by_call.update((call.id, groups[-1]) for call in message.tool_calls)
    return [at for group in groups for at in group]


StoredMessage = tuple[float, str, str]
"""When a message was stored, its role and its body."""


def find_turns(messages: Sequence[Message]) -> list[tuple[int, int, int]]:
    """Returns where each turn is: its first message, the model's answer, and the end of the results of its calls."""
    found = []
    begin = 0
    for at, message in enumerate(messages):
        if message.role == "assistant":
            end = at + 1
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            found.append((begin, at, end))
            begin = end
    return found


class RewindRecord(NamedTuple):
    """A rewind that was made: what it kept of the conversation, and where it was in the undo log."""

    id: int
    key: str
    at: float
    turn: int
    position: int  # the last entry of the undo log before it
    kept: int  # messages
    removed: tuple[StoredMessage, ...]
    takes_back: int | None  # the rewind that this one took back


@dataclass(frozen=True, slots=True)
class ConversationCut:
    """A cut of a conversation, with the messages that are added after it."""

    turn: int
    position: int
    expected: int  # messages that there are now
    kept: int
    restored: tuple[StoredMessage, ...] = ()
    takes_back: int | None = None


def cut_session(connection: sqlite3.Connection, name: str, key: str, cut: ConversationCut) -> None:
    """Removes the last messages of a session and keeps them in `rewinds`, then adds those that are restored."""
    session, _ = find_session(connection, name)
    check_session(connection, session, name)
    rows = connection.execute(
        "SELECT id, at, role, body FROM session_messages WHERE session = ? ORDER BY id", (session,)
    ).fetchall()
    if len(rows) != cut.expected:
        message = f"session {brief(name)} has {len(rows)} messages now, and had {cut.expected} when it was looked at"
        raise StoreError(message, ErrorKind.USER, "Look at it again, then try again.")
    order = _order_results(_read_rows(connection, session))
    gone = [rows[at] for at in order[cut.kept :]]
    connection.executemany("DELETE FROM session_messages WHERE id = ?", [(row[0],) for row in gone])
    added = [(session, *row) for row in cut.restored]
    connection.executemany("INSERT INTO session_messages (session, at, role, body) VALUES (?, ?, ?, ?)", added)
    removed = json.dumps([row[1:] for row in gone])
    values = (key, session, time.time(), cut.turn, cut.position, cut.kept, removed, cut.takes_back)
    path = _sealed_file(connection)
    seal = "" if path is None else seal_part(path, _pack("rewind", *values))
    connection.execute(
        "INSERT INTO rewinds (key, session, at, turn, position, kept, removed, takes_back, seal)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, seal),
    )
    summary = connection.execute(
        "SELECT value FROM session_meta WHERE session = ? AND key = ?", (session, SUMMARY)
    ).fetchone()
    if summary is not None and _covers(summary[0]) > cut.kept:  # it tells what is no longer there
        connection.execute("DELETE FROM session_meta WHERE session = ? AND key = ?", (session, SUMMARY))
    _write_seal(connection, session, _chain_of(connection, session))
    counts = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE role = 'assistant') FROM session_messages WHERE session = ?",
        (session,),
    ).fetchone()
    connection.execute(
        "UPDATE sessions SET messages = ?, turns = ?, updated = max(updated, ?) WHERE id = ?",
        (*counts, time.time(), session),
    )


def _covers(summary: str) -> int:
    try:
        covers = json.loads(summary).get("covers")
    except (ValueError, AttributeError):
        return 0
    return covers if isinstance(covers, int) else 0


def read_rewinds(connection: sqlite3.Connection, name: str) -> list[RewindRecord]:
    """Returns the rewinds of a session, the first one first. Raises `StoreError` if something else wrote one."""
    session, _ = find_session(connection, name)
    rows = connection.execute(
        "SELECT id, key, session, at, turn, position, kept, removed, takes_back, seal FROM rewinds WHERE session = ?"
        " ORDER BY id",
        (session,),
    ).fetchall()
    path = _sealed_file(connection)
    found = []
    for id_, key, _, at, turn, position, kept, removed, takes_back, seal in rows:
        content = _pack("rewind", key, session, at, turn, position, kept, removed, takes_back)
        if path is not None and (problem := find_problem(path, content, str(seal))):
            raise _unusable(name, f"its rewind {id_}: {problem}")
        gone = tuple((one[0], one[1], one[2]) for one in json.loads(removed))
        found.append(RewindRecord(id_, key, at, turn, position, kept, gone, takes_back))
    return found


def _count_rewinds(connection: sqlite3.Connection, session: int) -> int:
    count = connection.execute("SELECT count(*) FROM rewinds WHERE session = ?", (session,)).fetchone()[0]
    return int(count)


def read_times(connection: sqlite3.Connection, session: int) -> list[float]:
    """Returns when each message was stored, in the order of `read_messages`."""
    rows = connection.execute("SELECT at FROM session_messages WHERE session = ? ORDER BY id", (session,)).fetchall()
    return [rows[at][0] for at in _order_results(_read_rows(connection, session))]


def _check_bytes(data: bytes, digest: str) -> bytes:
    if sha256(data).hexdigest() != digest:
        raise ValueError("an attachment was changed outside Forge")
    return data


def check_session(connection: sqlite3.Connection, session: int, name: str) -> None:
    """Raises `StoreError` if something else than Forge wrote or changed its messages or values."""
    if problem := find_session_problem(connection, session):
        raise _unusable(name, problem)


def find_session_problem(connection: sqlite3.Connection, session: int) -> str:
    """Returns why what is stored of a session does not count; "" if it does, or if programs cannot reach the file."""
    if _sealed_file(connection) is None:
        return ""
    values = (_find_value_problem(connection, session, *one) for one in _read_values(connection, session))
    return _find_seal_problem(connection, session, _chain_of(connection, session)) or next(filter(None, values), "")


def read_value(connection: sqlite3.Connection, session: int, key: str) -> str | None:
    """Returns the JSON text of a value. Raises `StoreError` if something else than Forge wrote it."""
    row = connection.execute(
        "SELECT value, seal FROM session_meta WHERE session = ? AND key = ?", (session, key)
    ).fetchone()
    if row is None:
        return None
    if problem := _find_value_problem(connection, session, key, *row):
        (name,) = connection.execute("SELECT name FROM sessions WHERE id = ?", (session,)).fetchone() or ("",)
        raise _unusable(name, problem)
    return str(row[0])


def write_value(connection: sqlite3.Connection, session: int, key: str, value: str) -> None:
    path = _sealed_file(connection)
    seal = "" if path is None else seal_part(path, _pack("session value", session, key, value))
    row = (session, key, value, seal)
    connection.execute("INSERT OR REPLACE INTO session_meta (session, key, value, seal) VALUES (?, ?, ?, ?)", row)


def reseal(connection: sqlite3.Connection) -> None:
    """Seals all sessions as they are: a person accepts them."""
    for (session,) in connection.execute("SELECT id FROM sessions").fetchall():
        _write_seal(connection, session, _chain_of(connection, session))
        for key, value, _ in _read_values(connection, session):
            write_value(connection, session, key, value)
    path = _sealed_file(connection)
    columns = "key, session, at, turn, position, kept, removed, takes_back"
    for row in connection.execute(f"SELECT {columns} FROM rewinds").fetchall() if path is not None else ():  # noqa: S608
        assert path is not None
        connection.execute(
            "UPDATE rewinds SET seal = ? WHERE key = ?", (seal_part(path, _pack("rewind", *row)), row[0])
        )


def _read_values(connection: sqlite3.Connection, session: int) -> list[tuple[str, str, str]]:
    return connection.execute("SELECT key, value, seal FROM session_meta WHERE session = ?", (session,)).fetchall()


def _find_value_problem(connection: sqlite3.Connection, session: int, key: str, value: object, seal: object) -> str:
    path = _sealed_file(connection)
    problem = "" if path is None else find_problem(path, _pack("session value", session, key, value), str(seal))
    return f"its value {brief(key)}: {problem}" if problem else ""


def _unusable(name: str, problem: str) -> StoreError:
    return StoreError(
        f"session {brief(name)} cannot be continued: {problem}",
        ErrorKind.SECURITY,
        f"Read it: forge session show {quote(name)}. Then start a new session, or accept it as it is:"
        f" forge session fork {quote(name)} NEW --trust",
    )


def _extend_seal(connection: sqlite3.Connection, session: int, rows: Sequence[tuple[str, str]]) -> None:
    """Seals the session with messages that are about to be added. Raises `StoreError` if its seal does not count."""
    if _sealed_file(connection) is None:
        return
    name, chain = connection.execute("SELECT name, chain FROM sessions WHERE id = ?", (session,)).fetchone()
    if problem := _find_seal_problem(connection, session, chain):
        raise _unusable(name, problem)
    for role, body in rows:
        chain = _extend_chain(chain, role, body)
    _write_seal(connection, session, chain)


def _find_seal_problem(connection: sqlite3.Connection, session: int, chain: str) -> str:
    path = _sealed_file(connection)
    seal = connection.execute("SELECT seal FROM sessions WHERE id = ?", (session,)).fetchone()[0]
    return "" if path is None else find_problem(path, _session_content(connection, session, chain), str(seal))


def _write_seal(connection: sqlite3.Connection, session: int, chain: str) -> None:
    path = _sealed_file(connection)
    if path is not None:
        seal = seal_part(path, _session_content(connection, session, chain))
        connection.execute("UPDATE sessions SET chain = ?, seal = ? WHERE id = ?", (chain, seal, session))


def _session_content(connection: sqlite3.Connection, session: int, chain: str) -> bytes:
    name, created = connection.execute("SELECT name, created FROM sessions WHERE id = ?", (session,)).fetchone()
    return _pack("session", session, name, created, chain)


def _chain_of(connection: sqlite3.Connection, session: int) -> str:
    if _sealed_file(connection) is None:
        return ""
    chain = ""
    query = "SELECT role, body FROM session_messages WHERE session = ? ORDER BY id"
    for role, body in connection.execute(query, (session,)):
        chain = _extend_chain(chain, role, body)
    return chain


def _extend_chain(chain: str, role: object, body: object) -> str:
    return sha256(f"{chain}\0{role}\0{body}".encode("utf-8", "surrogatepass")).hexdigest()


def _pack(*content: Any) -> bytes:
    return json.dumps(content, default=repr).encode()


def _sealed_file(connection: sqlite3.Connection) -> Path | None:
    """Returns the file of the store if programs may reach it: in a state directory."""
    file = next((path for _, name, path in connection.execute("PRAGMA database_list") if name == "main"), "")
    return Path(file) if file and Path(file).parent.name == NAME else None


__all__ = ["Session", "SessionInfo", "SessionStore", "StoreError"]

FILE = "state.db"
LARGEST_VALUE = 1024 * 1024  # characters of one value of `meta`

Messages = list[Message]  # named here, because a store's `list` is something else
Infos = list[SessionInfo]
Times = list[float]
Rewinds = list[RewindRecord]
Exported = list[dict[str, Any]]


class SessionStore:
    """All sessions of a project. Every method is one transaction; a failed one changes nothing.

    The methods are synchronous. Opening a session takes as long as reading its history, everything else well under a
    millisecond, unless another process holds the file. Open long histories in a thread.

    Args:
        path: the file of the store. `SessionStore.of(workspace)` uses the file of a project.

    Example:
        >>> with SessionStore("sessions.db") as store:
        ...     store.open("alice").append(Message("user", "Hello"))
        ...     [session.name for session in store.list()]
        ['alice']
    """

    def __init__(self, path: Path | str) -> None:
        self._store = Store(Path(path), "sessions", MIGRATIONS)

    @classmethod
    def of(cls, workspace: Path) -> Self:
        """Returns the store of a workspace, in its `.forge` directory."""
        return cls(state_directory(workspace) / FILE)

    @property
    def path(self) -> Path:
        return self._store.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        self._store.close()

    def open(self, name: str) -> Session:
        """Opens the session of this name, created or continued.

        Raises `StoreError` if something else than Forge wrote to it, where programs may reach the file.
        """
        check_name(name)
        with self._store.read_transaction() as connection:
            if has_session(connection, name):
                return self._load(connection, name, check=True)
        with self._store.write_transaction() as connection:
            if not has_session(connection, name):
                create_session(connection, name)
            return self._load(connection, name)

    @asynccontextmanager
    async def turn(self, name: str, waits: Callable[[], None] | None = None) -> AsyncIterator[None]:
        """Holds a session for one run: inside, no other run of it is in progress, in any process.

        Another run waits until the first is over; those of one process come in order. `waits` is called where it has to
        wait. `Agent.run` uses this for its `store`. Raises `StoreError` inside a run of the same session, which would
        wait for itself.
        """
        check_name(name)
        async with _take_turn(_find_turn_file(self.path, name), name, waits):
            yield

    def show(self, name: str) -> Session:
        """Opens an existing session to look at it. Raises an error if there is none.

        Its `problem` says why `open` would refuse it.
        """
        with self._store.read_transaction() as connection:
            return self._load(connection, name)

    def read_meta(self, name: str, key: str) -> Any:
        """Returns a value of a session's `meta`, without reading its messages; None if there is none."""
        with self._store.read_transaction() as connection:
            if not has_session(connection, name):
                return None
            value = read_value(connection, find_session(connection, name)[0], key)
        return None if value is None else json.loads(value)

    def list(self) -> Infos:
        """Lists all sessions, the one used last first."""
        with self._store.read_transaction() as connection:
            return list_infos(connection)

    def fork(
        self, name: str, new_name: str, upto: int | None = None, *, at: int | None = None, trust: bool = False
    ) -> Session:
        """Copies the first `upto` messages, or all, under a new name; both sessions then continue independently.

        `at`: a turn, counted from 1. The copy ends before it and what the person said to begin it, so that the turn can
        be done again with another prompt or model. `trust`: a person has read the session, and accepts what something
        else than Forge may have written.
        """
        check_name(new_name)
        if at is not None:
            turns = find_turns(self.show(name).messages)
            if upto is not None or not 1 <= at <= len(turns):
                message = f"fork({name!r}, at={at}): the session has {len(turns)} turns, and upto is left out with at"
                raise StoreError(message, ErrorKind.VALIDATION, "Choose one of its turns.")
            upto = turns[at - 1][0]
        if upto is not None and upto < 0:
            raise StoreError(f"fork({name!r}, upto={upto}): a number of messages is needed", ErrorKind.VALIDATION)
        with self._store.write_transaction() as connection:
            return self._load(connection, copy_session(connection, name, new_name, upto, trust))

    def read_history(self, name: str) -> tuple[Messages, Times, Rewinds]:
        """Returns the messages of a session, when each was stored, and the rewinds that were made."""
        with self._store.read_transaction() as connection:
            session, _ = find_session(connection, name)
            check_session(connection, session, name)
            rewinds = read_rewinds(connection, name)
            return read_messages(connection, session), read_times(connection, session), rewinds

    def cut(self, name: str, key: str, cut: ConversationCut) -> None:
        """Cuts a conversation, which `read_history` then lists as a rewind with this key. `Agent.rewind` uses it."""
        with self._store.write_transaction() as connection:
            cut_session(connection, name, key, cut)
        self._store.checkpoint()  # it must be on disk before the journal forgets the files

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Holds a session as `turn` does. Raises `StoreError` if a run of it is in progress, instead of waiting."""
        check_name(name)
        turn = _Turn(_find_turn_file(self.path, name))
        try:
            if not turn.take():
                message = f"a run of the session {brief(name)} is in progress"
                raise StoreError(message, ErrorKind.USER, "Wait until it is over, or stop it, then try again.")
            yield
        finally:
            turn.end()

    def export(self, name: str) -> Exported:
        """Returns the messages as JSON data, which `import_` reads."""
        return [export_message(message) for message in self.show(name).messages]

    def import_(self, name: str, messages: Iterable[Mapping[str, Any]]) -> Session:
        """Creates a session from exported messages."""
        check_name(name)
        read = []
        for number, message in enumerate(messages, 1):
            try:
                read.append(import_message(message))
            except ValueError as error:
                words = f"message {number} of the imported session cannot be read: {error}"
                raise StoreError(words, ErrorKind.VALIDATION, "Give what `export` wrote.") from error
        with self._store.write_transaction() as connection:
            insert(connection, create_session(connection, name), read)
            return self._load(connection, name)

    def rename(self, name: str, title: str) -> str:
        """Gives a session a title. Returns the title as it is stored: on one line, of at most 60 characters."""
        if not (cleaned := clean_title(title)):
            message = f"{brief(title)} cannot be the title of a session"
            raise StoreError(message, ErrorKind.VALIDATION, "Write a few words.")
        with self._store.write_transaction() as connection:
            rename_session(connection, name, cleaned, "person")
        return cleaned

    def delete(self, name: str) -> None:
        """Removes a session for good, with the attachments that no other session has."""
        with self._store.write_transaction() as connection:
            remove_session(connection, name)
        self._store.checkpoint()

    def reseal(self) -> None:
        """Accepts all sessions as they are: a person trusts the directory."""
        with self._store.write_transaction() as connection:
            reseal(connection)

    def _load(self, connection: sqlite3.Connection, name: str, *, check: bool = False) -> Session:
        session, info = find_session(connection, name)
        if check:
            check_session(connection, session, name)
        found = Session(self._store, session, info, read_messages(connection, session))
        found._rewinds = _count_rewinds(connection, session)
        found.problem = "" if check else find_session_problem(connection, session)
        return found

    def __repr__(self) -> str:
        return f"<SessionStore {self.path}>"


class Session:
    """One conversation. `messages` is read once; `append` saves and appends, at a cost that does not grow with it."""

    def __init__(self, store: Store, number: int, info: SessionInfo, messages: Messages) -> None:
        self.name = info.name
        self.messages = messages
        self.problem = ""  # why it cannot be continued
        self.meta = Meta(store, number)
        self._store = store
        self._number = number
        self._created = info.created
        self._saved = len(messages)
        self._rewinds = 0  # that were made when the messages were read

    @property
    def info(self) -> SessionInfo:
        """The session as it is now, with messages that other processes appended."""
        with self._store.read_transaction() as connection:
            return self._read_info(connection)

    def append(self, *messages: Message) -> None:
        """Saves the messages, all or none, then appends them to the list."""
        if not messages:
            return
        with self._store.write_transaction() as connection:
            self._read_info(connection)
            insert(connection, self._number, messages)
        self.messages.extend(messages)
        self._saved += len(messages)

    def continue_conversation(self) -> Conversation:
        """Returns the conversation for a run: what is added to it is stored at once."""
        return Conversation(self.messages, lambda messages: self.append(*messages))

    def catch_up(self, source: str, messages: Sequence[Message]) -> int:
        """Appends the messages of a growing list that were not taken from `source` before. Returns how many. Each is
        appended once, with any number of processes and whenever one of them dies.
        """
        key = f"taken from {source}"
        with self._store.write_transaction() as connection:
            self._read_info(connection)
            taken = read_value(connection, self._number, key)
            new = messages[json.loads(taken) if taken else 0 :]
            if new:
                insert(connection, self._number, new)
                write_value(connection, self._number, key, json.dumps(len(messages)))
        self.messages.extend(new)
        self._saved += len(new)
        return len(new)

    @property
    def has_given_title(self) -> bool:
        """True if a person or the model gave the session its title; otherwise it is its first message."""
        return TITLED_BY in self.meta

    def suggest_title(self, title: str) -> None:
        """Sets the model's title, unless the session has a given one."""
        with self._store.write_transaction() as connection:
            self._read_info(connection)
            rename_session(connection, self.name, clean_title(title), "model")

    def refresh(self) -> bool:
        """Adds messages that other processes appended to the same list. Returns whether there were any."""
        with self._store.read_transaction() as connection:
            rewinds = _count_rewinds(connection, self._number)
            if self._read_info(connection).messages == self._saved and rewinds == self._rewinds:
                return False
            check_session(connection, self._number, self.name)
            self.messages[:] = read_messages(connection, self._number)
        self._saved, self._rewinds = len(self.messages), rewinds
        return True

    def _read_info(self, connection: sqlite3.Connection) -> SessionInfo:
        number, info = find_session(connection, self.name)
        if (number, info.created) != (self._number, self._created):
            message = f"session {brief(self.name)} was deleted by another process, and a new one has its name"
            raise StoreError(message, ErrorKind.NOT_FOUND, "Open the session again.")
        return info

    def __repr__(self) -> str:
        return f"<Session {self.name}: {len(self.messages)} messages>"


class Meta(MutableMapping[str, Any]):
    """Small JSON values that belong to a session. Nothing is cached: every process sees the latest value."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number

    def __getitem__(self, key: str) -> Any:
        with self._store.read_transaction() as connection:
            value = read_value(connection, self._number, key)
        if value is None:
            raise KeyError(key)
        return json.loads(value)

    def __setitem__(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        if len(text) > LARGEST_VALUE:
            message = f"{brief(key)} of a session may have {LARGEST_VALUE} characters, and has {len(text)}"
            raise StoreError(message, ErrorKind.VALIDATION, "Keep large things in a file, and its path here.")
        with self._store.write_transaction() as connection:
            if not connection.execute("SELECT 1 FROM sessions WHERE id = ?", (self._number,)).fetchone():
                raise StoreError("the session was deleted by another process", ErrorKind.NOT_FOUND, "Open it again.")
            write_value(connection, self._number, key, text)

    def __delitem__(self, key: str) -> None:
        with self._store.write_transaction() as connection:
            gone = connection.execute(
                "DELETE FROM session_meta WHERE session = ? AND key = ?", (self._number, key)
            ).rowcount
        if not gone:
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._store.read_transaction() as connection:
            rows = connection.execute("SELECT key FROM session_meta WHERE session = ? ORDER BY key", (self._number,))
            return iter([key for (key,) in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)


# One run at a time in a session: a file is locked while a run is in progress. A process that dies unlocks it.


SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.25  # seconds between two tries to take a turn
_NO_LOCKS = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})  # of a file system


class _Turn:
    """The turn of one run, waiting or taken."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.descriptor = -1
        self.is_over = False

    def take(self) -> bool:
        """Tries to lock the file; False where another run has it. Raises `OSError`."""
        opened = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if not _lock_file(opened) or not _is_at(opened, self.file):  # the last holder has removed it meanwhile
                return False
            self.descriptor, opened = opened, -1
            return True
        finally:
            if opened >= 0:
                os.close(opened)

    def end(self) -> None:
        self.is_over = True
        if self.descriptor >= 0:
            with suppress(OSError):
                self.file.unlink()  # while it is locked: whoever waits for it looks again
            os.close(self.descriptor)
            self.descriptor = -1


_turns: dict[Path, deque[_Turn]] = {}  # of this process, in order, by file
_turns_lock = Lock()


def _find_turn_file(store: Path, name: str) -> Path:
    path = Path(os.path.realpath(store))
    return path.with_name(f"{path.name}-run-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}")


@asynccontextmanager
async def _take_turn(file: Path, name: str, waits: Callable[[], None] | None) -> AsyncIterator[None]:
    import asyncio  # heavy: reading sessions does without

    around = tuple(one for one in entered.get() if not (isinstance(one, _Turn) and one.is_over))
    if any(isinstance(one, _Turn) and one.file == file for one in around):
        message = (
            f"a run of the session {brief(name)} was begun inside a run of the same session, and would wait for it"
        )
        raise StoreError(message, ErrorKind.USER, "Give the inner run another session, or leave the store out.")
    turn, pause = _Turn(file), SHORTEST_PAUSE
    with _turns_lock:
        queue = _turns.setdefault(file, deque())
        queue.append(turn)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not (queue[0] is turn and turn.take()):
            if pause == SHORTEST_PAUSE:
                log.info("a run waits for another run of the session %s", brief(name))
                if waits is not None:
                    waits()
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)
        entered.set((*around, turn))
        yield
    except OSError as error:
        if turn.descriptor >= 0:
            raise  # of the run
        message = f"holding the session {brief(name)} for a run: {file} cannot be locked: {error.strerror or error}"
        raise StoreError(message, ErrorKind.CONFIG, "It must be your own file, where you can write.") from error
    finally:
        turn.end()
        with _turns_lock:
            queue.remove(turn)
            if not queue and _turns.get(file) is queue:
                del _turns[file]


def _lock_file(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_at(opened: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.lstat(file))
    except FileNotFoundError:
        return False


def _forget_turns() -> None:
    """After a fork: the runs of the other process hold their sessions, not this one."""
    global _turns_lock
    _turns_lock = Lock()
    for queue in _turns.values():
        for turn in queue:
            turn.is_over = True
            if turn.descriptor >= 0:
                os.close(turn.descriptor)
    _turns.clear()


os.register_at_fork(after_in_child=_forget_turns)
