"""Stores conversations in one SQLite file that only grows and that many processes share."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Self

from forge.agent.message_json import export_message, import_message
from forge.agent.session_rows import (
    MIGRATIONS,
    TITLED_BY,
    SessionInfo,
    check_name,
    check_session,
    copy_session,
    create_session,
    find_session,
    find_session_problem,
    has_session,
    insert,
    list_infos,
    read_messages,
    read_value,
    remove_session,
    rename_session,
    reseal,
    write_value,
)
from forge.agent.session_title import clean_title
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.workspace.state import state_directory
from forge.workspace.state.store import Store, StoreError

__all__ = ["Session", "SessionInfo", "SessionStore", "StoreError"]

FILE = "state.db"
LARGEST_VALUE = 1024 * 1024  # characters of one value of `meta`

Messages = list[Message]  # named here, because a store's `list` is something else
Infos = list[SessionInfo]
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

    def show(self, name: str) -> Session:
        """Opens an existing session to look at it. Raises an error if there is none.

        Its `problem` says why `open` would refuse it.
        """
        with self._store.read_transaction() as connection:
            return self._load(connection, name)

    def list(self) -> Infos:
        """Lists all sessions, the one used last first."""
        with self._store.read_transaction() as connection:
            return list_infos(connection)

    def fork(self, name: str, new_name: str, upto: int | None = None, *, trust: bool = False) -> Session:
        """Copies the first `upto` messages, or all, under a new name; both sessions then continue independently.

        `trust`: a person has read the session, and accepts what something else than Forge may have written.
        """
        check_name(new_name)
        if upto is not None and upto < 0:
            raise StoreError(f"fork({name!r}, upto={upto}): a number of messages is needed", ErrorKind.VALIDATION)
        with self._store.write_transaction() as connection:
            return self._load(connection, copy_session(connection, name, new_name, upto, trust))

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
            words = f"{brief(title)} cannot be the title of a session"
            raise StoreError(words, ErrorKind.VALIDATION, "Write a few words.")
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
            if self._read_info(connection).messages == self._saved:
                return False
            check_session(connection, self._number, self.name)
            self.messages[:] = read_messages(connection, self._number)
        self._saved = len(self.messages)
        return True

    def _read_info(self, connection: sqlite3.Connection) -> SessionInfo:
        number, info = find_session(connection, self.name)
        if (number, info.created) != (self._number, self._created):
            words = f"session {brief(self.name)} was deleted by another process, and a new one has its name"
            raise StoreError(words, ErrorKind.NOT_FOUND, "Open the session again.")
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
            words = f"{brief(key)} of a session may have {LARGEST_VALUE} characters, and has {len(text)}"
            raise StoreError(words, ErrorKind.VALIDATION, "Keep large things in a file, and its path here.")
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
