"""The tables of stored sessions: their rows are read and written here, sealed, and copied, cut or removed together."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind
from forge.core.messages import Message, pack_message, unpack_message
from forge.core.plain_values import brief, sendable
from forge.core.result import Attachment
from forge.workspace.state import NAME
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Migration, StoreError

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


def count_rewinds(connection: sqlite3.Connection, session: int) -> int:
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
