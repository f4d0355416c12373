"""The engine's times on an SQLite that knows no fractions of a second."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

_migration = pytest.importorskip("dbos._migration")
_sys_db = pytest.importorskip("dbos._sys_db")

NEWER = "created_at INTEGER NOT NULL DEFAULT (unixepoch('subsec') * 1000)"


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(_migration, "sqlite_migrations", [NEWER])
    monkeypatch.setattr(_sys_db.SystemDatabase, "_now_ms_sql", _sys_db.SystemDatabase._now_ms_sql)
    return _migration


def test_an_older_one_is_given_whole_seconds(engine):
    from forge.durable.engine.dbos_parts import adapt_to

    adapt_to((3, 40, 1))
    (text,) = engine.sqlite_migrations
    (expression,) = [text.partition("DEFAULT ")[2]]
    with closing(sqlite3.connect(":memory:")) as connection:
        (now,) = connection.execute(f"SELECT {expression}").fetchone()
    assert now > 1_700_000_000_000


def test_a_newer_one_keeps_its_own(engine):
    from forge.durable.engine.dbos_parts import adapt_to

    before = _sys_db.SystemDatabase._now_ms_sql
    adapt_to((3, 42, 0))
    assert engine.sqlite_migrations == [NEWER]
    assert _sys_db.SystemDatabase._now_ms_sql is before


def test_every_table_of_the_engine_has_times_here():
    import forge.durable.engine.start_segments  # noqa: F401

    version = sqlite3.sqlite_version_info
    assert version >= (3, 42) or not any("subsec" in text for text in _migration.sqlite_migrations)
