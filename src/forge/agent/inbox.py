"""Holds messages that a person sends to a run in progress, until its next turn."""

from __future__ import annotations

from collections import deque
from threading import Lock

from forge.core.errors import ErrorKind, ToolError

MOST = 100  # messages that wait for one run
LONGEST = 1024 * 1024  # characters of one message
SENT = "sent"  # in `Message.extra`: a person sent it while the run was in progress


class Inbox:
    """The waiting messages of each session with a run in progress. Any thread may use it."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}
        self._lock = Lock()

    def open(self, session: str) -> None:
        with self._lock:
            self._waiting.setdefault(session, deque())

    def close(self, session: str) -> None:
        with self._lock:
            self._waiting.pop(session, None)

    def put(self, session: str, text: str) -> None:
        """Adds a message for a session; without a name, for the only run. Raises `ToolError` where there is none."""
        with self._lock:
            if not session and len(self._waiting) == 1:
                session = next(iter(self._waiting))
            waiting = self._waiting.get(session)
            if waiting is None:
                raise _no_run_error(session, [*self._waiting])
            if len(waiting) >= MOST or len(text) > LONGEST:
                words = f"sending a message to a run: at most {MOST} messages of {LONGEST:,} characters may wait"
                raise ToolError(words, ErrorKind.USER, "Wait until the run has received the earlier ones.")
            waiting.append(text)

    def find(self, session: str) -> str:
        """Returns the session that a message without a name is for; the name itself where there is one."""
        with self._lock:
            return next(iter(self._waiting)) if not session and len(self._waiting) == 1 else session

    def take(self, session: str) -> list[str]:
        """Returns the waiting messages, each once."""
        with self._lock:
            waiting = self._waiting.get(session)
            found = list(waiting or ())
            if waiting:
                waiting.clear()
        return found


def _no_run_error(session: str, known: list[str]) -> ToolError:
    if not session and known:
        words = f"sending a message to a run: {len(known)} runs are in progress"
        return ToolError(words, ErrorKind.USER, "Name the session of one: agent.send(text, session=…).")
    which = f"the session {session[:80]!r} has" if session else "the agent has"
    words = f"sending a message to a run: {which} no run in progress"
    return ToolError(words, ErrorKind.NOT_FOUND, "Start a run: agent.run(prompt).")
