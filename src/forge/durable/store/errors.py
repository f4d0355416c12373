"""Explains database errors to people, never with a password."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from forge.core.errors import ErrorKind
from forge.core.plain_values import clip_bytes
from forge.workspace.state.store import StoreError

LONGEST = 500  # bytes of the database's own words

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHUT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH})
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})

_NO_DATABASE = re.compile(r'database ".*" does not exist')

# Postgres: connection lost, server starting or stopping, too many connections, or a transaction to be tried again
_AGAIN = ("08", "57P0", "25P03", "53300", "40001", "40P01", "55P03")


def is_passing(error: SQLAlchemyError) -> bool:
    """Returns True if Postgres may succeed in a moment."""
    if not isinstance(error, DBAPIError):
        return type(error).__name__ == "TimeoutError"  # of the pool: all connections are in use
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the server was not reached
        return type(error.orig).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
    return str(state).startswith(_AGAIN)


def is_away(error: BaseException) -> bool:
    """Returns True if the database is the cause, not a run."""
    if isinstance(error, StoreError):
        return error.kind in (ErrorKind.SYSTEM, ErrorKind.CONFIG)
    return isinstance(error, OperationalError | InterfaceError | PoolTimeoutError)


def is_forbidden(error: BaseException) -> bool:
    """Returns True if the database's user lacks a right."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", None) == "42501"


def no_rights_error(problem: str) -> StoreError:
    way = "Let the owner of the database run `forge worker --migrate --database URL`, and grant the rights again."
    return StoreError(f"{problem}, and the user of this URL may not make or change them", ErrorKind.CONFIG, way)


def explain_error(label: str, error: SQLAlchemyError, secrets: set[str]) -> StoreError:
    """Turns a database error into a `StoreError`. `label` is the database's name for people."""
    words = _database_message(error, secrets)
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        return _of_sqlite(label, words, original)
    return _of_postgres(label, words, str(getattr(original, "sqlstate", None) or ""), is_passing(error))


def _database_message(error: SQLAlchemyError, secrets: set[str]) -> str:
    original: Any = error.orig if isinstance(error, DBAPIError) else error
    primary = getattr(getattr(original, "diag", None), "message_primary", None)  # Postgres's details quote whole rows
    text = " ".join((primary or str(original)).split())
    for secret in secrets:
        text = text.replace(secret, "***")
    return clip_bytes(text, LONGEST)


def _of_sqlite(label: str, words: str, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        text = f"{label} has been locked by another process for too long"
        return StoreError(text, ErrorKind.SYSTEM, "Wait until that process ends, then try again.", passing=True)
    if code in _FULL:
        text = f"{label} could not be written: {words} (is the disk full?)"
        return StoreError(text, ErrorKind.SYSTEM, "Free some space and try again; earlier data is safe.")
    if code in _SHUT:
        text = f"{label} cannot be opened or written: {words}"
        return StoreError(text, ErrorKind.CONFIG, "Check the permissions of the file and of its directory.")
    if code in _DAMAGED:
        text = f"{label} is damaged, or not a SQLite database: {words}"
        suggestion = f'Move it away to start a new one. To recover the readable data: sqlite3 "{label}" .recover'
        return StoreError(text, ErrorKind.SYSTEM, suggestion)
    if "no such table" in words:
        return _no_tables_error(label)
    return StoreError(
        f"{label}: {words}", ErrorKind.SYSTEM, "If the error stays, move the file away to start a new one."
    )


def _of_postgres(label: str, words: str, state: str, passing: bool) -> StoreError:
    if state == "42P01":
        return _no_tables_error(label)
    if state == "3D000" or _NO_DATABASE.search(words):  # a failed connection has no state
        text = f"{label} does not exist: its server has no such database"
        way = "Check the name in its URL. A worker or a run creates the database if the URL's user is allowed to."
        return StoreError(text, ErrorKind.CONFIG, way)
    if state.startswith("28") or state == "42501" or "authentication failed" in words:
        text = f"{label} denied access: {words}"
        return StoreError(text, ErrorKind.CONFIG, "Check the user and password in its URL, and the user's rights.")
    if state.startswith("53") and state != "53300":
        text = f"{label} could not be written: {words}"
        return StoreError(text, ErrorKind.SYSTEM, "Free some space on its server; earlier data is safe.")
    if passing:
        text = f"{label} cannot be reached: {words}"
        return StoreError(
            text, ErrorKind.SYSTEM, "Check its URL, and that the server is running; then try again.", passing=True
        )
    return StoreError(f"{label}: {words}", ErrorKind.SYSTEM, "See the database's log.")


def no_file_error(label: str) -> StoreError:
    return _no_tables_error(label, ": there is no such file")


def _no_tables_error(label: str, why: str = "") -> StoreError:
    text = f"{label} does not contain Forge's tables yet{why}"
    return StoreError(
        text, ErrorKind.CONFIG, "Start a worker or a run with this database to create them, or check the URL."
    )
