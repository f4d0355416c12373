"""Writes the log of events of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from forge.cli.refusal import Refusal
from forge.core.activity import ActivityStream
from forge.project.audit.write_log import audit_log
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory


@contextmanager
def log_events(activity: ActivityStream, workspace: Path, path: str | None, *, wanted: bool = True) -> Iterator[None]:
    """Logs every event. A log that was named must be writable; for the default log a warning is enough."""
    if not wanted:
        yield
        return
    try:
        stop = audit_log(activity, path if path is not None else _default_log(workspace))
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if path is not None:
            hint = "Name a writable file with --audit, or write no log with --no-audit."
            raise Refusal(f"cannot write the audit log {path!r}: {problem}\n{hint}") from None
        click.echo(f"forge: no audit log: {problem}; the run continues without one", err=True)
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
