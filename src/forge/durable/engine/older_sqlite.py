"""Lets the engine run on SQLite before 3.42: it assumes that Python 3.12 and later have a newer one."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import Any

import sqlalchemy as sa
from dbos import _migration, _sys_db  # private: the engine's version is pinned

_NEWER = "(unixepoch('subsec') * 1000)"  # NULL before 3.42
_OLDER = "(strftime('%s','now') * 1000)"


@cache
def adapt_to(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Writes times in whole seconds if this SQLite has no finer ones, as the engine does on Python 3.11."""
    if version >= (3, 42):
        return
    _migration.sqlite_migrations[:] = [text.replace(_NEWER, _OLDER) for text in _migration.sqlite_migrations]
    newer = _sys_db.SystemDatabase._now_ms_sql

    def now(system: Any) -> Any:
        if system.engine.dialect.name != "sqlite":
            return newer(system)
        return sa.cast(sa.func.strftime("%s", "now") * 1000, sa.BigInteger)

    setattr(_sys_db.SystemDatabase, "_now_ms_sql", now)  # noqa: B010
