"""Examines channels, memory, schedules and durable runs."""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.extras import install_command, is_installed
from forge.memory.embedders import embedder_from
from forge.project.config.declaration import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.doctor.state import check_store, read_only
from forge.project.runs.durable_runs import FILE
from forge.schedules.schedule import Status
from forge.schedules.schedule import read_declared as declared_ones
from forge.workspace.state import NAME as STATE

LATE = 60.0  # seconds after which a scheduler would have started a task


def examine_work(configuration: Configuration, scope: Scope) -> Iterator[Finding]:
    yield from _channels(configuration)
    yield _memory(configuration, scope.workspace)
    yield from _schedules(configuration, scope.workspace)


def _channels(configuration: Configuration) -> Iterator[Finding]:
    for name, entry in configuration.channels.items():
        missing = [one for one in entry.variables if not os.environ.get(one)]
        if missing:
            message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
            yield Finding(f"channel {name}", "warning", message, f"export {missing[0]}=…")
        elif entry.path is not None and not os.access(entry.path.parent, os.W_OK):
            detail = f"{entry.path} cannot be written"
            yield Finding(f"channel {name}", "warning", detail, f"Make its folder, or fix {entry.key_path}.path.")
        else:
            talk = f"; {len(entry.people)} people may talk to the agent, {len(entry.approvers)} may answer questions"
            yield Finding(f"channel {name}", "ok", f"{entry.type}{talk if entry.people or entry.approvers else ''}")


def _memory(configuration: Configuration, workspace: Path) -> Finding:
    entry = configuration.memory
    if entry is None or not entry.enabled:
        return Finding("memory", "note", "not enabled", "Write memory: {enabled: true} in forge.yaml to have one.")

    try:
        embedder = embedder_from(entry.embedder)
    except ToolError as error:
        return finding_of_error("memory", error)
    variable = entry.embedder.get("key_env", "") if isinstance(entry.embedder, dict) else ""
    if variable and not os.environ.get(variable):
        return Finding("memory", "warning", f"the embedder's {variable} is not set", f"export {variable}=…")
    notes = len(list((workspace / STATE / "memory").glob("*.md")))
    by = f", found by words and by meaning ({embedder.name})" if embedder is not None else ", found by their words"
    return Finding("memory", "ok", f"{notes} {'note' if notes == 1 else 'notes'}{by}")


def _schedules(configuration: Configuration, workspace: Path) -> Iterator[Finding]:
    """Checks the schedules. A late one shows that no scheduler runs, because a waiting scheduler leaves no trace."""
    from forge.schedules.store import FILE, ScheduleStore

    path = workspace / STATE / FILE
    try:
        declared = len(declared_ones(configuration.schedules or (), configuration.name))
    except ToolError as error:
        yield finding_of_error("schedules", error)
        return
    if not path.is_file() or not _has_schedules(path):
        if declared:
            fix = "forge schedule run, or forge worker, as a service of this machine"
            yield Finding("schedules", "warning", f"{declared} declared, and never run here", fix)
        return
    try:
        with ScheduleStore(path) as schedule_store:
            all_schedules, runs = schedule_store.list(), schedule_store.history(limit=20)
    except ToolError as error:
        yield finding_of_error("schedules", error)
        return
    found = [one for one in all_schedules if one.enabled]
    for one in all_schedules:
        if one.problem:
            fix = f"forge schedule list shows it; then: forge schedule enable {shlex.quote(one.id)}"
            yield Finding(f"schedule {one.id}", "broken", f"it does not run: {one.problem.split('. ')[0]}", fix)
    yield from (
        Finding(f"schedule {one.id}", "warning", f"there is no channel {one.channel!r}", "Add it under channels:.")
        for one in found
        if one.channel and one.channel not in configuration.channels
    )
    running = [run for run in runs if run.status is Status.RUNNING]
    due = sorted((one.next_fire, one.id) for one in found if one.next_fire is not None)
    if not due:
        if found or declared:
            yield Finding("schedules", "ok", "nothing is due")
        return
    at, first = due[0]
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    if at < time.time() - LATE and not running:
        fix = "Nobody seems to run them. Start it: forge schedule run, or forge worker"
        yield Finding("schedules", "warning", f"{first} has been due since {when}", fix)
        return
    active = f"; {running[0].schedule_id} is running" if running else ""
    yield Finding("schedules", "ok", f"{len(due)} planned, next is {first} at {when}{active}")


def _has_schedules(path: Path) -> bool:
    """Checks for schedules without opening the store, which would create tables or set a damaged file aside."""

    if check_store(path).status != "ok":
        return False
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            return connection.execute("SELECT 1 FROM schedules LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False


# Examines durable runs: the packages, and the database.


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
    message = ", ".join(f"{name} {days:g} days" for name, days in said.items())
    return f"kept after their end: {message}" if message else "ended runs are kept for ever (durable.retention)"


def _count_runs(path: Path) -> str:
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            counts = dict(connection.execute("SELECT status, count(*) FROM forge_runs GROUP BY status"))
    except sqlite3.Error:  # the tables do not exist yet
        return "none is kept here yet"
    message = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{message}; forge runs list shows them" if message else "none is kept here yet"
