"""Makes and migrates the tables of the run store, once, however many processes start together."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from forge.core.errors import ErrorKind
from forge.durable.store.database import Database, is_forbidden, no_rights_error
from forge.durable.store.encoding import figures_of
from forge.durable.store.tables import ADDED, RELEASED, VERSION, create_tables, metadata, questions, runs, versions
from forge.workspace.state.store import StoreError

PART = "runs"
_MIGRATING = 0x666F726765  # advisory lock for changing tables
_AT_ONCE = 500  # rows that are read at once

Migration = Callable[[sa.Connection], None]

OLDEST = max(RELEASED, VERSION - 1)  # tables that this Forge reads and writes as they are
NEWEST = VERSION + 1  # … since a version only adds, and uses what it added from the next version on


def prepare(database: Database) -> None:
    """Makes or migrates our tables. Raises `StoreError` if they are needed and this user may not make them."""
    if database.is_sqlite:
        database.make_file()
    else:
        _make_database(database)
    version = database.read(_version)
    if version < VERSION:
        _migrate_if_allowed(database, version)


def update(database: Database) -> None:
    """Migrates tables of an older version; makes none if there are none."""
    version = database.read(_version)
    if 0 < version < VERSION:
        _migrate_if_allowed(database, version)


def _migrate_if_allowed(database: Database, version: int) -> None:
    """Migrates the tables. A user who may not change tables works with those of the version before."""
    try:
        database.write(lambda connection: _migrate(connection, database.label))
    except StoreError as error:
        if not is_forbidden(error):
            raise
        if version >= OLDEST:
            return
        raise _old_error(database.label, version) from error


def _old_error(label: str, version: int) -> StoreError:
    state = f"have version {version}, and this Forge needs {OLDEST}" if version else "are missing"
    return no_rights_error(f"the tables of {label} {state}")


def open_tables(connection: sa.Connection, label: str) -> None:
    """Refuses tables of a newer Forge, and migrates tables that are too old to be read. Raises `StoreError`."""
    version = refuse_newer(connection, label)
    if 0 < version < OLDEST:
        try:
            _migrate(connection, label)
        except SQLAlchemyError as error:
            if is_forbidden(error):
                raise _old_error(label, version) from error
            raise


def make_if_allowed(database: Database, make: Migration) -> None:
    """Makes tables of another part. Raises `StoreError` if this user may not."""
    try:
        database.write(make)
    except StoreError as error:
        if not is_forbidden(error):
            raise
        raise no_rights_error(f"tables of {database.label} are missing") from error


def _migrate(connection: sa.Connection, label: str) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
    version = refuse_newer(connection, label)
    if version >= VERSION:  # another process was faster
        return
    for migrate in MIGRATIONS[version:]:
        migrate(connection)
    connection.execute(sa.delete(versions).where(versions.c.part == PART))
    connection.execute(sa.insert(versions).values(part=PART, version=VERSION))


def refuse_newer(connection: sa.Connection, label: str) -> int:
    """Returns the version of the tables, 0 if there are none. Raises `StoreError` for a newer one."""
    version = _version(connection)
    if version > NEWEST:
        message = (
            f"{label} was written by a newer Forge (its tables have version {version}; this Forge supports up to"
            f" {NEWEST})"
        )
        raise StoreError(message, ErrorKind.CONFIG, "Update Forge on this machine, or use another database.")
    return version


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(versions.name):
        return 0
    return connection.execute(sa.select(versions.c.version).where(versions.c.part == PART)).scalar() or 0


def _create_tables(connection: sa.Connection) -> None:
    create_tables(connection, metadata)


def _add_figures(connection: sa.Connection) -> None:
    """Adds the marks, and the columns of runs that a query filters and adds up, filled for the runs that are stored."""
    create_tables(connection, metadata)
    known = {column["name"] for column in sa.inspect(connection).get_columns(runs.name)}
    missing = [column for column in ADDED if column.name not in known]
    for column in missing:
        declared = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {runs.name} ADD COLUMN {declared}")
    for index in (*runs.indexes, *questions.indexes):
        index.create(connection, checkfirst=True)
    after: str | None = "" if missing else None
    while after is not None:
        query = sa.select(runs.c.id, runs.c.scope, runs.c.spent, runs.c.result).where(runs.c.id > after)
        rows = connection.execute(query.order_by(runs.c.id).limit(_AT_ONCE)).all()
        for row in rows:
            change = sa.update(runs).where(runs.c.id == row.id)
            connection.execute(change.values(figures_of(row.scope, row.spent, row.result)))
        after = rows[-1].id if len(rows) == _AT_ONCE else None


# the version of the tables is how many of these have run; the second adds the tables of queues
MIGRATIONS: tuple[Migration, ...] = (_create_tables, _create_tables, _add_figures)
assert len(MIGRATIONS) == VERSION


def _make_database(database: Database) -> None:
    """Creates the database if the server lacks it and we may; otherwise connecting reports the error."""
    name = str(database.engine.url.database)
    try:
        with database.engine.connect():
            return
    except SQLAlchemyError as error:
        if f'"{name}"' not in str(error):  # another error
            return
    server = sa.create_engine(
        database.engine.url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    try:
        with server.connect() as connection:
            known = sa.text("SELECT 1 FROM pg_database WHERE datname = :name")
            if connection.execute(known, {"name": name}).first() is None:
                quoted = connection.dialect.identifier_preparer.quote_identifier(name)
                connection.execute(sa.text(f"CREATE DATABASE {quoted}".replace(":", "\\:")))
    except SQLAlchemyError:
        return
    finally:
        server.dispose()
