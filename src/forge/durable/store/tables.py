"""Defines the tables of the run store, the same in SQLite and in Postgres."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from forge.core.plain_values import is_sendable, plain

VERSION = 3  # of these tables
RELEASED = VERSION  # the version that the first release has: it works with tables of the version before and after it

_ESCAPED = "\x01"  # prefix of a text stored as JSON


class AnyText(sa.types.TypeDecorator[str]):
    """Any text. Postgres refuses NUL, and both databases refuse lone surrogates: such a text is stored as JSON.

    Compared byte by byte, so that both databases sort alike and an index finds prefixes.
    """

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[str]:
        return dialect.type_descriptor(sa.Text(collation="C") if dialect.name == "postgresql" else sa.Text())

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None or _is_storable(value):
            return value
        return _ESCAPED + json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None or not value.startswith(_ESCAPED):
            return value
        text: str = json.loads(value[len(_ESCAPED) :])
        return text


class Json(sa.types.TypeDecorator[Any]):
    """Data as JSON text (Postgres's own JSON type refuses NUL); values that JSON cannot hold are described."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not text.startswith(_ESCAPED) and is_sendable(text)


Seconds = sa.Double  # since 1970
Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts only INTEGER up by itself

metadata = sa.MetaData()


def create_tables(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Makes the missing tables. The condition of a partial index is that of SQLite, in Postgres too: to declare it
    twice would load the dialect of Postgres, which takes 40 ms, wherever the tables are imported.
    """
    if connection.dialect.name == "postgresql":
        for index in (index for table in metadata.tables.values() for index in table.indexes):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    metadata.create_all(connection)


versions = sa.Table(
    "forge_durable",
    metadata,
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
)

runs = sa.Table(
    "forge_runs",
    metadata,
    sa.Column("id", AnyText, primary_key=True),
    sa.Column("agent", AnyText, nullable=False),
    sa.Column("session", AnyText, nullable=False),
    sa.Column("tenant", AnyText, nullable=False),
    sa.Column("queue", AnyText, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("version", AnyText, nullable=False),
    sa.Column("prompt", AnyText, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("waits", Json, nullable=False),
    sa.Column("spent", Json, nullable=False),
    sa.Column("scope", Json, nullable=False),
    sa.Column("carrier", Json, nullable=False),
    sa.Column("parent", AnyText, nullable=False),
    sa.Column("parent_call", AnyText, nullable=False),
    sa.Column("worker", AnyText, nullable=False),
    sa.Column("created", Seconds, nullable=False),
    sa.Column("updated", Seconds, nullable=False),
    sa.Column("cancelling", sa.Boolean, nullable=False),
    sa.Column("result", Json),
    sa.Column("look", Seconds),  # when to check it: its wait ends, or its workflow may be missing
    sa.Column("attempt", sa.Text, nullable=False),  # the attempt that runs it, or ran it last
    sa.Column("waited", Seconds, nullable=False, server_default="0"),  # seconds it has waited, without the present wait
    # copies from `scope`, `spent` and `result`, which a query can filter and add up
    sa.Column("model", AnyText, nullable=False, server_default=""),
    sa.Column("user", AnyText, nullable=False, server_default=""),
    sa.Column("failure", AnyText, nullable=False, server_default=""),  # why it did not end well: a reason, or a kind
    sa.Column("cost", sa.Double),
    sa.Column("worked", Seconds, nullable=False, server_default="0"),
    sa.Column("input", Number, nullable=False, server_default="0"),  # tokens
    sa.Column("output", Number, nullable=False, server_default="0"),
    sa.Column("cached", Number, nullable=False, server_default="0"),
)
ADDED = [runs.c[name] for name in "waited model user failure cost worked input output cached".split()]  # in version 3
sa.Index("forge_runs_created", runs.c.created)
sa.Index("forge_runs_status", runs.c.status, runs.c.created)
sa.Index("forge_runs_session", runs.c.session, runs.c.created)
sa.Index("forge_runs_tenant", runs.c.tenant, runs.c.created)
sa.Index("forge_runs_look", runs.c.status, runs.c.look)
# a literal, not a parameter: only then a query uses the partial index
HAS_PARENT = runs.c.parent != sa.literal_column("''")
sa.Index("forge_runs_parent", runs.c.parent, sqlite_where=HAS_PARENT)
IS_ROOT = runs.c.parent == sa.literal_column("''")  # no other run started it
sa.Index("forge_runs_roots", runs.c.created, runs.c.id, sqlite_where=IS_ROOT)
sa.Index("forge_runs_ended", runs.c.updated, sqlite_where=IS_ROOT)

segments = sa.Table(
    "forge_segments",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("queue", AnyText, nullable=False),
    sa.Column("tenant", AnyText, nullable=False),
    sa.Column("key", AnyText, nullable=False),  # what a worker must have to claim it
    sa.Column("priority", sa.Integer, nullable=False),  # the lower one goes first
    sa.Column("queued", Seconds, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # queued, begun, over, failed, or lost: begun too often
    sa.Column("worker", AnyText, nullable=False),  # that claimed it last
    sa.Column("starts", sa.Integer, nullable=False),  # how often it was claimed
    sa.Column("tries", sa.Integer, nullable=False),  # … without those that were handed back in good order
    sa.Column("counted", Seconds),  # when it was claimed, in a queue with a rate
)
# literals, not parameters: only then a query uses the partial indexes
IS_QUEUED = segments.c.state == sa.literal_column("'queued'")
IS_BEGUN = segments.c.state == sa.literal_column("'begun'")
_is_counted = segments.c.counted.is_not(None)
for _name, _columns, _rows in (
    ("queued", (segments.c.queue, segments.c.priority, segments.c.queued), IS_QUEUED),
    ("tenants", (segments.c.queue, segments.c.tenant, segments.c.priority, segments.c.queued), IS_QUEUED),
    ("begun", (segments.c.queue, segments.c.tenant), IS_BEGUN),
    ("worker", (segments.c.worker,), IS_BEGUN),
    ("counted", (segments.c.queue, segments.c.counted), _is_counted),
):
    sa.Index(f"forge_segments_{_name}", *_columns, sqlite_where=_rows)

queue_limits = sa.Table(
    "forge_queues",
    metadata,
    sa.Column("name", AnyText, primary_key=True),
    sa.Column("concurrency", sa.Integer),
    sa.Column("calls", sa.Integer),
    sa.Column("seconds", sa.Double),
    sa.Column("per_tenant", sa.Integer),
)

messages = sa.Table(
    "forge_messages",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),  # 2n: in segment n; 2n-1: just before it
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("message", Json, nullable=False),
)

questions = sa.Table(
    "forge_questions",
    metadata,
    sa.Column("id", AnyText, primary_key=True),
    sa.Column("run", AnyText, nullable=False),
    sa.Column("call", AnyText, nullable=False),
    sa.Column("tool", AnyText, nullable=False),
    sa.Column("digest", AnyText, nullable=False),
    sa.Column("request", Json, nullable=False),
    sa.Column("asked", Seconds, nullable=False),
    sa.Column("answer", Json),
    sa.Column("answered", Seconds),
    sa.Column("by", AnyText, nullable=False),
    sa.Column("always", Json),  # digests that the answer allows in this run from now on
)
sa.Index("forge_questions_run", questions.c.run)
_is_always = questions.c.always.is_not(None)
sa.Index("forge_questions_always", questions.c.run, sqlite_where=_is_always)
_is_open = questions.c.answered.is_(None)
sa.Index("forge_questions_open", questions.c.asked, sqlite_where=_is_open)

sa.Index("forge_questions_asked", questions.c.asked)

marks = sa.Table(
    "forge_marks",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("verdict", sa.Text, nullable=False),  # good or bad; "": the mark was withdrawn
    sa.Column("note", AnyText, nullable=False),
    sa.Column("by", AnyText, nullable=False),
    sa.Column("at", Seconds, nullable=False),
)

events = sa.Table(
    "forge_events",
    metadata,
    sa.Column("number", Number, primary_key=True),
    sa.Column("run", AnyText, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),  # in which its events happened
    sa.Column("size", sa.Integer, nullable=False),  # how many events
    sa.Column("packed", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,  # a number is never used again, even if the last ones were deleted
)
sa.Index("forge_events_run", events.c.run, events.c.number)

background = sa.Table(
    "forge_background",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("worker", sa.Text, nullable=False),  # the worker that holds background work of this segment
)

intents = sa.Table(
    "forge_intents",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("call", AnyText, primary_key=True),  # a call that must not be repeated, and is about to begin
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("detail", Json),  # what the tool's `reconcile` needs, if it has one
)

files = sa.Table(
    "forge_files",
    metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("name", AnyText, primary_key=True),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
