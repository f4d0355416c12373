"""Stores conversations in one SQLite file that only grows and that many processes share."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import sqlite3
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self

from forge.agent.conversation import Conversation
from forge.agent.session_tables import (
    MIGRATIONS,
    TITLED_BY,
    ConversationCut,
    RewindRecord,
    SessionInfo,
    check_name,
    check_session,
    copy_session,
    count_rewinds,
    create_session,
    cut_session,
    find_session,
    find_session_problem,
    find_turns,
    has_session,
    insert,
    list_infos,
    read_messages,
    read_rewinds,
    read_times,
    read_value,
    remove_session,
    rename_session,
    reseal,
    write_value,
)
from forge.core.context import entered
from forge.core.errors import ErrorKind
from forge.core.messages import Message, export_message, import_message
from forge.core.plain_values import brief
from forge.core.untrusted import clean_title
from forge.workspace.state import state_directory
from forge.workspace.state.store import Store, StoreError

__all__ = ["Session", "SessionInfo", "SessionStore", "StoreError"]

log = logging.getLogger(__name__)

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
        found._rewinds = count_rewinds(connection, session)
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
            rewinds = count_rewinds(connection, self._number)
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
