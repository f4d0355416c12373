"""Examines durable runs: the packages, and the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from forge.core.errors import ToolError
from forge.core.extras import install_command, is_installed
from forge.project.config import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.doctor.state import check_store, read_only
from forge.project.runs.durable_runs import FILE
from forge.workspace.state import NAME as STATE

CHECK = "durable runs"


def examine_durable(configuration: Configuration, workspace: Path) -> Iterator[Finding]:
    """Yields the findings. A remote database is only named, never contacted."""
    own = workspace / STATE / FILE
    is_wanted = configuration.durable is not None or own.exists()
    if not is_installed("durable"):
        status = "warning" if is_wanted else "note"
        yield Finding(CHECK, status, "the extra durable is not installed", install_command("durable"))
        return
    try:
        if configuration.durable is not None and (url := configuration.durable.url()):
            from forge.durable.store.database import label_of, parse_url

            where = label_of(parse_url(url))
            kept = describe_retention(configuration)
            yield Finding(CHECK, "ok", f"kept in {where}, which was not contacted; forge worker status asks it; {kept}")
            return
    except ToolError as error:
        yield finding_of_error(CHECK, error)
        return
    if not own.exists():
        yield Finding(CHECK, "note", "none is kept here yet", "forge run --durable begins one.")
        return
    finding = check_store(own)
    yield (
        finding._replace(check=CHECK)
        if finding.status != "ok"
        else Finding(CHECK, "ok", f"{_count_runs(own)}; {describe_retention(configuration)}")
    )


def describe_retention(configuration: Configuration) -> str:
    """Returns how long ended runs are kept, in words."""
    said = configuration.durable.retention if configuration.durable is not None else {}
    words = ", ".join(f"{name} {days:g} days" for name, days in said.items())
    return f"kept after their end: {words}" if words else "ended runs are kept for ever (durable.retention)"


def _count_runs(path: Path) -> str:
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            counts = dict(connection.execute("SELECT status, count(*) FROM forge_runs GROUP BY status"))
    except sqlite3.Error:  # the tables do not exist yet
        return "none is kept here yet"
    words = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{words}; forge runs list shows them" if words else "none is kept here yet"
