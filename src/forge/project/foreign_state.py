"""Describes a state directory that came with a project to the person who decides about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.mcp.pins import reseal_pins
from forge.project.trust_summary import TrustItem
from forge.workspace.state import NAME, is_foreign, mark_own

MOST = 50  # schedules that are shown
LARGEST = 16 * 1024 * 1024  # bytes of a file of pins that is read


def list_foreign_state(workspace: Path) -> list[TrustItem] | None:
    """Lists the contents; None if there is no such directory, or it was made here. Nothing is changed."""
    folder = workspace / NAME
    if folder.is_symlink() or not is_foreign(folder):
        return None
    return [*_schedules(folder), *_pins(folder), *_files(folder)]


def accept_state(workspace: Path) -> Path:
    """Accepts the directory as made here. Raises `ToolError`."""
    folder = workspace / NAME
    try:
        mark_own(folder)
        with suppress(FileNotFoundError, ValueError):  # a damaged file is set aside when it is read
            reseal_pins(folder / "pins.json")
        if next(_schedules(folder), None) is not None:
            from forge.schedules.store import FILE, ScheduleStore  # SQLite

            with ScheduleStore(folder / FILE) as store:
                store.reseal()
        if (folder / "state.db").is_file():
            from forge.agent.session import SessionStore  # SQLite

            with SessionStore(folder / "state.db") as sessions:
                sessions.reseal()
    except OSError as error:
        problem = f"cannot trust {folder}: {error.strerror or error}"
        raise ToolError(problem, ErrorKind.CONFIG, "Make it writable, or move it away.") from None
    return folder


def _schedules(folder: Path) -> Iterator[TrustItem]:
    import sqlite3

    from forge.project.doctor.state import read_only

    path = folder / "state.db"
    if path.is_symlink() or not path.is_file():
        return
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")  # a planted file runs no code of its own
            rows = connection.execute("SELECT id, cron, task FROM schedules LIMIT ?", (MOST,)).fetchall()
    except sqlite3.Error as error:
        if "no such table" not in str(error):
            yield TrustItem("runs on a schedule", "state.db, which cannot be read")
        return
    for id, cron, task in rows:
        yield TrustItem("runs on a schedule", f"schedule {id}: {cron}: {task}")


def _pins(folder: Path) -> Iterator[TrustItem]:
    path = folder / "pins.json"
    try:
        if not os.path.lexists(path):
            return
        servers = json.loads(read_regular(path, LARGEST, os.O_NOFOLLOW))["servers"]
        for name, entry in servers.items():
            yield TrustItem("approves", f"MCP server {name}: {', '.join(map(str, entry['tools']))}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield TrustItem("approves", "pins.json, which cannot be read")


def _files(folder: Path) -> Iterator[TrustItem]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    yield TrustItem("holds", ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else ""), False)
