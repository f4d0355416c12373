"""Changes DBOS for Forge: data is JSON instead of pickles, and SQLite before 3.42 works, which DBOS does not expect on
Python 3.12 and later.
"""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from typing import Any

import sqlalchemy as sa
from dbos import Serializer, _migration, _serialization, _sys_db  # private: the engine's version is pinned

from forge.durable.store.steps import FORMAT

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


# The engine's data is JSON: with a pickle, anyone who can write to the database could run code.


class RecordedError(Exception):
    """An exception that a step or a workflow raised in some process, as recorded."""


class JsonSerializer(Serializer):
    """Stores JSON in plain ASCII (so that no NUL reaches Postgres), never a pickle."""

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"__error__": f"{type(data).__name__}: {data}"}
        return json.dumps(data, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> Any:
        data = json.loads(serialized_data)
        if isinstance(data, dict) and data.keys() == {"__error__"}:
            return RecordedError(data["__error__"])
        return data

    def decode(self, serialized_data: str, name: str | None) -> Any:
        """Decodes what a serializer of this name wrote. Raises `TypeError` if it was not ours."""
        return self.deserialize(serialized_data) if name in (FORMAT, None) else _refuse_pickle(serialized_data)

    def name(self) -> str:
        return FORMAT


def refuse_pickles() -> None:
    """Refuses pickles in this process until `allow_pickles`. DBOS unpickles rows marked as pickles with any
    serializer.
    """
    # private: there is no setting for it. DBOS is one for the whole process
    _serialization.DBOSDefaultSerializer.deserialize = _refuse_pickle  # type: ignore[method-assign]


def allow_pickles() -> None:
    vars(_serialization.DBOSDefaultSerializer).pop("deserialize", None)


def _refuse_pickle(serialized_data: str) -> Any:
    raise TypeError(
        "a pickle in the durable database was not loaded: Forge never writes pickles, and a pickle could run any code"
    )
