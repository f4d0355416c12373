"""Runs that survive: whether they can be kept, and where."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from forge.core.errors import ToolError
from forge.project.config import Configuration
from forge.project.doctor.finding import Finding, broken
from forge.project.doctor.state import read_only, store
from forge.project.runs.durable_runs import FILE, check_installed
from forge.workspace.state import NAME as STATE

CHECK = "durable runs"


def examine_durable(configuration: Configuration, workspace: Path) -> Iterator[Finding]:
    """Databases elsewhere are only named: a doctor contacts nobody."""
    own = workspace / STATE / FILE
    is_wanted = configuration.durable is not None or own.exists()
    try:
        check_installed()
    except ToolError as error:
        yield Finding(CHECK, "warning" if is_wanted else "note", "the packages are not installed", error.suggestion)
        return
    try:
        if configuration.durable is not None and (url := configuration.durable.url()):
            from forge.durable.store.database import label_of, parsed

            where = label_of(parsed(url))
            yield Finding(CHECK, "ok", f"kept in {where}, which was not contacted; forge worker status asks it")
            return
    except ToolError as error:
        yield broken(CHECK, error)
        return
    if not own.exists():
        yield Finding(CHECK, "note", "none is kept here yet", "forge run --durable begins one.")
        return
    looked = store(own)
    yield looked._replace(check=CHECK) if looked.status != "ok" else Finding(CHECK, "ok", _counted(own))


def _counted(path: Path) -> str:
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            counts = dict(connection.execute("SELECT status, count(*) FROM forge_runs GROUP BY status"))
    except sqlite3.Error:  # not prepared yet
        return "none is kept here yet"
    words = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{words}; forge runs list shows them" if words else "none is kept here yet"
