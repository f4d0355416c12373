"""Reads and writes the tables of the session store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from forge.agent.message_json import pack_message, unpack_message
from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.plain_values import brief, sendable
from forge.core.result import Attachment
from forge.workspace.state.store import Migration, StoreError

LONGEST_NAME = 200
LONGEST_TITLE = 80  # characters of a title that is the beginning of a message
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


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
            updated REAL NOT NULL, messages INTEGER NOT NULL, turns INTEGER NOT NULL, title TEXT NOT NULL)""",
        """CREATE TABLE session_messages (
            id INTEGER PRIMARY KEY, session INTEGER NOT NULL,
            at REAL NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL)""",
        "CREATE INDEX session_messages_of ON session_messages (session, id)",
        "CREATE TABLE session_blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL)",
        """CREATE TABLE session_attached (
            session INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (session, hash)) WITHOUT ROWID""",
        """CREATE TABLE session_meta (
            session INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (session, key)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


MIGRATIONS: list[Migration] = [_first_tables]  # the version of the tables is how many of these have run

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
    number = connection.execute("INSERT INTO sessions VALUES (NULL, ?, ?, ?, 0, 0, '')", row).lastrowid
    assert number is not None
    return number


def list_infos(connection: sqlite3.Connection) -> list[SessionInfo]:
    rows = connection.execute(f"SELECT {_INFO} FROM sessions ORDER BY updated DESC, id DESC")  # noqa: S608
    return [SessionInfo(*row) for row in rows]


def copy_session(connection: sqlite3.Connection, name: str, new_name: str, upto: int | None) -> str:
    """Creates a session with the first messages of another and all its values. Returns the new name."""
    old, info = find_session(connection, name)
    new = create_session(connection, new_name)
    connection.execute(
        "INSERT INTO session_messages (session, at, role, body) SELECT ?, at, role, body"
        " FROM session_messages WHERE session = ? ORDER BY id LIMIT ?",
        (new, old, -1 if upto is None else upto),
    )
    connection.execute(
        "INSERT INTO session_attached SELECT ?, hash FROM session_attached WHERE session = ?", (new, old)
    )
    connection.execute("INSERT INTO session_meta SELECT ?, key, value FROM session_meta WHERE session = ?", (new, old))
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
    for table in ("session_messages", "session_attached", "session_meta"):
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
    connection.execute("INSERT OR REPLACE INTO session_meta VALUES (?, ?, ?)", (*key, f'"{by}"'))


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

    connection.executemany(
        "INSERT INTO session_messages (session, at, role, body) VALUES (?, ?, ?, ?)",
        [(session, now, message.role, pack_message(message, store_attachment)) for message in messages],
    )
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
            messages.append(unpack_message(body, lambda one: blobs[one["hash"]]))
        except (ValueError, LookupError, RecursionError) as error:
            words = f"message {number} of the session cannot be read: {error}"
            raise StoreError(
                words, suggestion=f"Fork the session with upto={number - 1} to go on from there."
            ) from error
    return _order_results(messages)


def _order_results(messages: list[Message]) -> list[Message]:
    """Puts results directly behind their calls, also where another process appended in between."""
    groups: list[list[Message]] = []
    by_call: dict[str, list[Message]] = {}
    for message in messages:
        group = by_call.get(message.call_id) if message.role == "tool" else None
        if group is not None:
            group.append(message)
            continue
        groups.append([message])
        by_call.update((call.id, groups[-1]) for call in message.tool_calls)
    return [message for group in groups for message in group]
