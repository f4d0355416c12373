"""Databases that have their tables already: making the tables takes a second, copying them takes milliseconds."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore


def make_tables(url: str) -> None:
    """Make the tables of Forge and of its engine, as the first process that uses a database does."""
    with RunStore(url) as store:
        starter = Starter(store)
        starter.prepare_engine()
        starter.close()
        store.database.checkpoint()


def copy_tables(file: Path) -> None:
    """Put a SQLite database with its tables where there is none yet."""
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_tables())


@cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory(prefix="forge-tests-") as folder:
        file = Path(folder, "durable.db")
        make_tables(f"sqlite:///{file}")
        return file.read_bytes()
