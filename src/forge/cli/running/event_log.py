"""Writes the log of events of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forge.cli.refusal import refusals
from forge.cli.running.tool_names import print_note
from forge.core.activity import ActivityStream
from forge.project.audit.write_log import log_project


@contextmanager
def log_events(activity: ActivityStream, workspace: Path, path: str | None, *, wanted: bool = True) -> Iterator[None]:
    """Logs every event. A log that was named must be writable; for the default log a warning is enough."""
    with ExitStack() as stack:
        if wanted:
            with refusals():
                stack.enter_context(log_project(activity, workspace, path, print_note))
        yield
