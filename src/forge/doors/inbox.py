"""Keeps what arrives from chats until it is answered, and the answers until they are sent: in the project's state.

A message is stored before its service is told that it arrived, so a killed process loses nothing. Each has one of these
states: `new`, `running` (a run works on it), `steering` (a run in progress was told), `done`. An answer is stored
together with the end of its message: `waiting`, `sending` (it may have been sent), `sent`, `failed`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from forge.channels.channel import Incoming, IncomingFile
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Migration, Store

FILE = "state.db"
KEPT = 7 * 24 * 3600.0  # seconds for which what is done is kept, so that a duplicate is noticed
MOST_REFUSED = 1_000  # strangers who are remembered
REFUSED_FOR = 24 * 3600.0  # seconds in which a stranger gets one answer

State = Literal["new", "running", "steering", "done"]


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE chat_conversations (
            channel TEXT NOT NULL, chat TEXT NOT NULL, session TEXT NOT NULL, seal TEXT NOT NULL,
            PRIMARY KEY (channel, chat)) WITHOUT ROWID""",
        """CREATE TABLE chat_messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, key TEXT NOT NULL, chat TEXT NOT NULL,
            body TEXT NOT NULL, seal TEXT NOT NULL, at REAL NOT NULL, state TEXT NOT NULL,
            before INTEGER NOT NULL DEFAULT 0, UNIQUE (channel, key))""",
        "CREATE INDEX chat_messages_open ON chat_messages (channel, chat, id) WHERE state <> 'done'",
        """CREATE TABLE chat_replies (
            id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, chat TEXT NOT NULL, text TEXT NOT NULL,
            at REAL NOT NULL, state TEXT NOT NULL)""",
        "CREATE INDEX chat_replies_open ON chat_replies (channel, chat, id) WHERE state IN ('waiting', 'sending')",
        """CREATE TABLE chat_files (
            id INTEGER PRIMARY KEY, reply INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
            data BLOB NOT NULL)""",
        "CREATE INDEX chat_files_of ON chat_files (reply)",
        """CREATE TABLE chat_questions (
            id TEXT PRIMARY KEY, channel TEXT NOT NULL, chat TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL,
            state TEXT NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE chat_strangers (
            channel TEXT NOT NULL, person TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (channel, person)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


MIGRATIONS: list[Migration] = [_create_tables]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a person that was stored."""

    id: int
    incoming: Incoming
    state: State
    before: int  # messages that the session had when its run began


@dataclass(frozen=True, slots=True)
class StoredReply:
    """An answer that is to be sent. `is_repeated`: it may have been sent already."""

    id: int
    chat: str
    text: str
    files: tuple[Attachment, ...]
    is_repeated: bool


class Inbox:
    """The messages and answers of one channel of a project. Raises `StoreError` where they cannot be stored."""

    def __init__(self, directory: Path, channel: str) -> None:
        self.channel = channel
        self.path = directory / FILE
        self._store = Store(self.path, "chats", MIGRATIONS)

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lets one process listen to the channel. Raises `ToolError` if another one does."""
        name = sha256(self.channel.encode()).hexdigest()[:16]
        file = os.open(
            self.path.with_name(f"listen-{name}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                message = f"listening to the channel {self.channel}: another process does so already"
                raise ToolError(message, ErrorKind.USER, "Stop the other `forge listen` first.") from None
            yield
        finally:
            os.close(file)

    # Messages.

    def add(self, incoming: Incoming) -> bool:
        """Stores a message. Returns False for a duplicate, which is dropped."""
        body = json.dumps(asdict(incoming))
        seal = seal_part(self.path, self._sealed("message", body))
        row = (self.channel, incoming.id, incoming.chat, body, seal, time.time())
        with self._store.write_transaction() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO chat_messages (channel, key, chat, body, seal, at, state)"
                " VALUES (?, ?, ?, ?, ?, ?, 'new')",
                row,
            )
            return added.rowcount == 1

    def list_open(self, chat: str | None = None) -> list[StoredMessage]:
        """Returns the messages that are not done, in order; of all conversations, or of one.

        A message that something else than Forge stored is left out for good.
        """
        where, values = ("AND chat = ?", (self.channel, chat)) if chat is not None else ("", (self.channel,))
        with self._store.read_transaction() as connection:
            rows = connection.execute(
                "SELECT id, body, seal, state, before FROM chat_messages"  # noqa: S608
                f" WHERE channel = ? {where} AND state <> 'done' ORDER BY id",
                values,
            ).fetchall()
        found = []
        for id, body, seal, state, before in rows:
            if find_problem(self.path, self._sealed("message", body), seal):
                self.set_state([id], "done")
                continue
            found.append(StoredMessage(id, _read_incoming(body), state, before))
        return found

    def set_state(self, ids: Sequence[int], state: State, before: int = 0) -> None:
        with self._store.write_transaction() as connection:
            connection.executemany(
                "UPDATE chat_messages SET state = ?, before = ? WHERE id = ?", [(state, before, id) for id in ids]
            )

    def finish(self, ids: Sequence[int], chat: str, text: str, files: Sequence[Attachment] = ()) -> None:
        """Notes in one step that messages are done, and what is to be sent about them; "" and no files: nothing."""
        with self._store.write_transaction() as connection:
            connection.executemany("UPDATE chat_messages SET state = 'done' WHERE id = ?", [(id,) for id in ids])
            if text.strip() or files:
                reply = connection.execute(
                    "INSERT INTO chat_replies (channel, chat, text, at, state) VALUES (?, ?, ?, ?, 'waiting')",
                    (self.channel, chat, text, time.time()),
                ).lastrowid
                rows = [(reply, one.name, one.media_type, one.data) for one in files]
                connection.executemany("INSERT INTO chat_files (reply, name, kind, data) VALUES (?, ?, ?, ?)", rows)

    # Answers.

    def next_reply(self, chat: str) -> StoredReply | None:
        """Returns the next answer of a conversation, which counts as being sent from now on."""
        with self._store.write_transaction() as connection:
            row = connection.execute(
                "SELECT id, text, state FROM chat_replies WHERE channel = ? AND chat = ?"
                " AND state IN ('waiting', 'sending') ORDER BY id LIMIT 1",
                (self.channel, chat),
            ).fetchone()
            if row is None:
                return None
            id, text, state = row
            connection.execute("UPDATE chat_replies SET state = 'sending' WHERE id = ?", (id,))
            files = connection.execute("SELECT kind, data, name FROM chat_files WHERE reply = ? ORDER BY id", (id,))
            return StoredReply(id, chat, text, tuple(Attachment(*one) for one in files), state == "sending")

    def end_reply(self, id: int, state: Literal["waiting", "sent", "failed"]) -> None:
        """Notes that an answer was sent, cannot be sent, or is to be tried again."""
        with self._store.write_transaction() as connection:
            connection.execute("UPDATE chat_replies SET state = ? WHERE id = ?", (state, id))
            if state != "waiting":
                connection.execute("DELETE FROM chat_files WHERE reply = ?", (id,))

    def list_chats(self) -> list[str]:
        """Returns the conversations with something to do or to send."""
        with self._store.read_transaction() as connection:
            rows = connection.execute(
                "SELECT chat FROM chat_messages WHERE channel = ? AND state <> 'done' UNION"
                " SELECT chat FROM chat_replies WHERE channel = ? AND state IN ('waiting', 'sending')",
                (self.channel, self.channel),
            )
            return [chat for (chat,) in rows]

    # Conversations.

    def find_session(self, chat: str) -> str | None:
        """Returns the session of a conversation; None if there is none yet."""
        with self._store.read_transaction() as connection:
            row = connection.execute(
                "SELECT session, seal FROM chat_conversations WHERE channel = ? AND chat = ?", (self.channel, chat)
            ).fetchone()
        if row is None or find_problem(self.path, self._sealed("conversation", chat, row[0]), row[1]):
            return None
        return str(row[0])

    def begin_session(self, chat: str, session: str) -> None:
        """Gives a conversation this session from now on."""
        seal = seal_part(self.path, self._sealed("conversation", chat, session))
        with self._store.write_transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO chat_conversations VALUES (?, ?, ?, ?)", (self.channel, chat, session, seal)
            )

    # Questions.

    def open_question(self, id: str, chat: str) -> None:
        with self._store.write_transaction() as connection:
            row = (id, self.channel, chat, "", time.time(), "open")
            connection.execute("INSERT INTO chat_questions VALUES (?, ?, ?, ?, ?, ?)", row)

    def note_posted(self, id: str, message: str) -> None:
        """Notes the message that shows a question."""
        with self._store.write_transaction() as connection:
            connection.execute("UPDATE chat_questions SET message = ? WHERE id = ?", (message, id))

    def use_question(self, id: str) -> bool:
        """Closes a question. Returns False if it was closed before: an answer counts once."""
        with self._store.write_transaction() as connection:
            done = connection.execute("UPDATE chat_questions SET state = 'over' WHERE id = ? AND state = 'open'", (id,))
            return done.rowcount == 1

    def take_stale_questions(self) -> list[tuple[str, str]]:
        """Closes the questions of a process that has ended. Returns the chat and the message of each."""
        with self._store.write_transaction() as connection:
            rows = connection.execute(
                "SELECT chat, message FROM chat_questions WHERE channel = ? AND state = 'open' ORDER BY at",
                (self.channel,),
            ).fetchall()
            connection.execute(
                "UPDATE chat_questions SET state = 'over' WHERE channel = ? AND state = 'open'", (self.channel,)
            )
        return [(chat, message) for chat, message in rows if message]

    # People who are not named.

    def may_refuse(self, person: str) -> bool:
        """Returns whether a stranger gets an answer: once a day, and only some of them."""
        now = time.time()
        with self._store.write_transaction() as connection:
            connection.execute("DELETE FROM chat_strangers WHERE at < ?", (now - REFUSED_FOR,))
            count = connection.execute(
                "SELECT count(*) FROM chat_strangers WHERE channel = ?", (self.channel,)
            ).fetchone()[0]
            if count >= MOST_REFUSED:
                return False
            row = (self.channel, person[:200], now)
            return connection.execute("INSERT OR IGNORE INTO chat_strangers VALUES (?, ?, ?)", row).rowcount == 1

    def forget_old(self) -> None:
        """Removes what was done long ago."""
        old = time.time() - KEPT
        with self._store.write_transaction() as connection:
            connection.execute("DELETE FROM chat_messages WHERE state = 'done' AND at < ?", (old,))
            connection.execute("DELETE FROM chat_replies WHERE state IN ('sent', 'failed') AND at < ?", (old,))
            connection.execute("DELETE FROM chat_questions WHERE state = 'over' AND at < ?", (old,))

    def _sealed(self, kind: str, *parts: str) -> bytes:
        return json.dumps(["chat", kind, self.channel, *parts]).encode()


def _read_incoming(body: str) -> Incoming:
    said: dict[str, Any] = json.loads(body)
    files = tuple(IncomingFile(**one) for one in said.pop("files"))
    return Incoming(**said, files=files)
