"""Makes DBOS's connections: they wait for an unreachable server, hold no lock for long, and load no pickles."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DisconnectionError

from forge.durable.engine.dbos_private import refuse_pickles
from forge.durable.store import RunStore
from forge.durable.store.database import PATIENCE, ReadOnlyState, engine_for, set_up_connection

CONNECTION_HOLDS = 60.0  # seconds that a client may be idle in a transaction
PING_AFTER = 5.0  # seconds without use after which a connection is tried first
_USED = "forge_used"  # in a connection's record: when it was used last

_CONNECTING = {
    "application_name": "forge-engine",
    "connect_timeout": 10,
    # a network that drops packets is noticed within seconds, and a frozen client holds no lock for long
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def make_connections(store: RunStore, size: int, ended: threading.Event) -> sa.Engine:
    """Makes the engine's connections. DBOS does not make them itself, because it would load pickles, because it retries
    only for some of psycopg's messages about an unreachable server and would fail the run otherwise, and because it
    doubles its waits, so that it would reconnect long after the server is back.
    """
    if store.database.is_sqlite:
        engine = engine_for(store.engine.url, PATIENCE, ReadOnlyState(allowed=False), pool_size=size, max_overflow=0)
        refuse_pickles(engine)
        return engine
    engine = sa.create_engine(
        store.engine.url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=120,  # longer than a database is likely to be unreachable
        hide_parameters=True,
        connect_args=_CONNECTING,
    )
    sa.event.listen(engine, "connect", partial(set_up_connection, idle=CONNECTION_HOLDS))
    refuse_pickles(engine)
    sa.event.listen(engine, "handle_error", _mark_disconnect)
    sa.event.listen(engine, "checkin", _note_use)
    sa.event.listen(engine, "checkout", partial(_ping_idle, engine.dialect))

    def connect(dialect: sa.Dialect, _record: object, args: Any, kwargs: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return dialect.connect(*args, **kwargs)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() > until or ended.wait(0.3):
                    raise

    sa.event.listen(engine, "do_connect", connect)
    return engine


def _note_use(_: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _ping_idle(dialect: sa.Dialect, connection: Any, record: Any, _: object) -> None:
    """Tries a connection that was idle for long: its server may have ended. A ping before each use would be a fifth of
    an idle worker's statements.
    """
    if time.monotonic() - record.info.get(_USED, time.monotonic()) < PING_AFTER:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error  # the pool makes another one


def _mark_disconnect(context: sa.ExceptionContext) -> None:
    error = context.original_exception
    if type(error).__name__ in ("OperationalError", "ConnectionTimeout") and getattr(error, "sqlstate", None) is None:
        context.is_disconnect = True  # no reply: the server was not reached
