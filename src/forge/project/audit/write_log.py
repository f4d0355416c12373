"""Writes an NDJSON log of all events, one per line, with secrets masked."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.files import open_regular
from forge.workspace.state import NAME as STATE
from forge.workspace.state import append_whole, explain_unusable, state_directory

log = logging.getLogger(__name__)

MODE = 0o600
MOST_NAMED = 100  # attachments of one result
LONGEST_TEXT = 16 * 1024  # characters of one text in the log; the rest is in the result itself


def audit_log(activity: ActivityStream, path: str | os.PathLike[str]) -> Callable[[], None]:
    """Appends every event to a file that only its owner can read. Returns the function that stops it.

    The file is opened at once, so that a file that cannot be written is an error here and not a silent gap later. Every
    line is one write to a file opened for appending: several processes may share it, and a crash loses at most what
    came after it. A line for which there is no room is left out whole, with a warning in the program's log.

    Args:
        activity: the stream of events.
        path: the file.

    Example:
        >>> agent = Agent(Scripted("Hello!"))
        >>> stop = audit_log(agent.activity, "audit.ndjson")
        >>> _ = agent.run_sync("Hi")
        >>> stop()
        >>> Path("audit.ndjson").read_text().count("run_finished")
        1
    """
    file = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)

    def write(event: Event) -> None:
        if isinstance(event, TextDelta | ReasoningDelta | ToolArgumentsDelta):
            return  # the whole message is in another event
        line = json.dumps(_shorten(_render_event(event)), ensure_ascii=False)
        content = f"{line}\n".encode("utf-8", "backslashreplace")  # half a surrogate pair becomes its escape in JSON
        try:
            append_whole(file, content)
        except OSError as error:
            log.warning("the audit log lacks %s: %s", event.type, error.strerror)

    unsubscribe = activity.subscribe(write)

    def stop() -> None:
        unsubscribe()
        os.close(file)

    return stop


@contextmanager
def log_project(
    activity: ActivityStream, workspace: Path, path: str | None, report: Callable[[str], None]
) -> Iterator[None]:
    """Logs every event in a file, by default in the workspace's own log.

    Raises `ToolError` if a log that was named cannot be written; the default log is then left out, and `report`
    receives the reason.
    """
    try:
        stop = audit_log(activity, path if path is not None else _default_log(workspace))
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if path is not None:
            hint = "Name a writable file with --audit, or write no log with --no-audit."
            raise ToolError(f"cannot write the audit log {path!r}: {problem}", ErrorKind.CONFIG, hint) from None
        report(f"no audit log: {problem}; the run continues without one")
        yield
        return
    try:
        yield
    finally:
        stop()


def _default_log(workspace: Path) -> Path:
    folder = state_directory(workspace)
    if folder != workspace / STATE:
        raise PermissionError(0, explain_unusable(workspace)[0])
    return folder / "audit.ndjson"


def _render_event(event: Event) -> dict[str, Any]:
    """Returns the wire form, in which attachments have a name and a path but no content."""
    wire = event.to_dict()
    result = wire.get("result")
    if isinstance(result, dict) and result.get("attachments"):
        named = result["attachments"][:MOST_NAMED]
        result["attachments"] = [{key: item for key, item in one.items() if key != "data"} for one in named]
    return wire


def _shorten(value: object) -> object:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}[… {len(value) - LONGEST_TEXT} more characters]"
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if isinstance(value, list) else value
