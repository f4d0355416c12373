"""Finds rows of the run store. Every function works inside the caller's transaction."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from forge.core.errors import ErrorKind
from forge.core.messages import Message, import_message
from forge.core.plain_values import brief
from forge.durable.store.check_input import is_id
from forge.durable.store.encoding import wait_from_json
from forge.durable.store.rows import SCHEDULED, SINGLE_CALL, RunInfo
from forge.durable.store.tables import IS_ROOT, marks, messages, runs
from forge.durable.store.waits import IN_WORDS_BEGIN
from forge.workspace.state.store import StoreError

MOST_ROWS = 1_000_000  # rows at once
INBOX = 2**31 - 1  # the place of messages that a run has not received yet
_PAGE = 4  # rows of messages that are read at once
_LAST = "\U0010ffff"  # sorts after every other character
_NEAR = 2_000  # newest runs that a mistyped id is compared with
COLUMNS = [runs.c[name] for name in RunInfo.__dataclass_fields__]


def now(connection: sa.Connection) -> sa.ColumnElement[float]:
    """Returns the database's clock, which all machines share: when the statement began."""
    if connection.dialect.name == "sqlite":
        return sa.literal(time.time(), sa.Double)
    return sa.cast(sa.func.extract("epoch", sa.func.statement_timestamp()), sa.Double)


def insert_into(connection: sa.Connection, table: sa.Table) -> Any:
    """Returns an INSERT that supports ON CONFLICT."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # takes 40 ms, which users of SQLite do without

    return postgresql.insert(table)


def insert_rows(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    returning: Sequence[sa.Column[Any]] = (),
) -> list[tuple[Any, ...]]:
    """Inserts rows that have the same columns, in one statement. Returns these columns of each."""
    if not rows:
        return []
    new = insert_into(connection, table)
    if connection.dialect.name == "sqlite":
        if not returning:
            connection.execute(new, rows)
            return []
        return [tuple(connection.execute(new.values(row).returning(*returning)).one()) for row in rows]
    from sqlalchemy.dialects.postgresql import ARRAY

    names = list(rows[0])
    # arrays: one text of the statement for any number of rows, which the server prepares once
    columns = [
        sa.func.unnest(sa.bindparam(f"{name}s", type_=ARRAY(table.c[name].type, dimensions=1))) for name in names
    ]
    values = {f"{name}s": [row[name] for row in rows] for name in names}
    new = new.from_select(names, sa.select(*columns))
    if not returning:
        connection.execute(new, values)
        return []
    return [tuple(row) for row in connection.execute(new.returning(*returning), values)]


def find_run(connection: sa.Connection, run_id: str, *, lock: bool = False) -> RunInfo:
    """Returns the run of exactly this id; with `lock`, locked until the end of the transaction."""
    row = _row(connection, run_id, lock)
    if row is None:
        raise missing_error(connection, run_id)
    return run_info(row)


def find_by_prefix(connection: sa.Connection, beginning: str) -> RunInfo:
    """Returns the run of this id, or the only one whose id begins so: for people.

    Ids of sub-runs begin with their parent's id: they count only if no other run matches.
    """
    row = _row(connection, beginning, lock=False)
    if row is not None:
        return run_info(row)
    begun = _find_prefixed(connection, beginning, runs.c.parent == "") or _find_prefixed(connection, beginning)
    if len(begun) == 1:
        return find_run(connection, begun[0])
    if begun:
        message = f"several run ids begin with {brief(beginning)}: {', '.join(begun)}"
        raise StoreError(message, ErrorKind.NOT_FOUND, "Use a longer part of the id.")
    raise missing_error(connection, beginning)


def missing_error(connection: sa.Connection, run_id: str) -> StoreError:
    from difflib import get_close_matches  # only for a mistyped id

    begun = _find_prefixed(connection, run_id)[:3]
    newest = connection.execute(sa.select(runs.c.id).order_by(runs.c.created.desc()).limit(_NEAR)).scalars()
    near = begun or get_close_matches(run_id, list(newest), n=3, cutoff=0.7)
    find_by_prefix = f"Did you mean {' or '.join(near)}?" if near else "`forge runs list` shows all runs."
    return StoreError(f"there is no run {brief(run_id)}", ErrorKind.NOT_FOUND, find_by_prefix)


class RunFilter(NamedTuple):
    """Selects runs. A condition that is None selects all."""

    status: str | Sequence[str] | None = None
    agent: str | None = None
    queue: str | None = None
    tenant: str | None = None
    session: str | None = None
    parent: str | None = None  # "": only runs that no other run started
    user: str | None = None  # of the run's scope
    model: str | None = None
    failure: str | None = None  # why it did not end well: "any", the reason of its end, or the kind of its error
    mark: str | None = None  # "good", "bad", "any" or "none"
    cost: float | None = None  # it cost at least so much
    kind: str | None = None  # "chat": a run of an agent; "call": a single call of a tool
    text: str | None = None  # in the prompt, the id, the session or the answer, in upper or lower case
    since: float | None = None  # when it was created: seconds since 1970
    until: float | None = None  # … and before then
    before: tuple[float, str] | None = None  # `created` and id of the last run of the page before


def list_runs(connection: sa.Connection, wanted: RunFilter, limit: int) -> list[RunInfo]:
    """Lists runs, the newest first."""
    c = runs.c
    query = sa.select(*COLUMNS).where(*_conditions(wanted)).order_by(c.created.desc(), c.id.desc())
    return [run_info(row) for row in connection.execute(query.limit(clamp_limit(limit)))]


class RunPage(NamedTuple):
    """Runs, the newest first, and the `before` of the next page. None: there are no older runs."""

    runs: list[RunInfo]
    following: tuple[float, str] | None


def list_page(connection: sa.Connection, wanted: RunFilter, limit: int, looked: int) -> RunPage:
    """Lists some of the runs that no other run started. It looks at so many runs, however many are stored: a page may
    have fewer runs than asked for, or none, and still a next page.
    """
    c, newest_first = runs.c, (runs.c.created.desc(), runs.c.id.desc())
    times = RunFilter(since=wanted.since, until=wanted.until, before=wanted.before)
    window = sa.select(c.created, c.id).where(IS_ROOT, *_conditions(times)).order_by(*newest_first)
    last = connection.execute(window.offset(looked - 1).limit(1)).first()
    query = sa.select(*COLUMNS).where(IS_ROOT, *_conditions(wanted._replace(parent=None))).order_by(*newest_first)
    if last is not None:
        query = query.where(c.created >= last.created, sa.or_(c.created > last.created, c.id >= last.id))
    found = [run_info(row) for row in connection.execute(query.limit(limit + 1))]
    if len(found) > limit:
        return RunPage(found[:limit], (found[limit - 1].created, found[limit - 1].id))
    return RunPage(found, None if last is None else (last.created, last.id))


def _conditions(wanted: RunFilter) -> list[sa.ColumnElement[bool]]:
    c = runs.c
    made: list[sa.ColumnElement[bool]] = []
    for name in ("status", "agent", "queue", "tenant", "session", "parent", "user", "model"):
        value = getattr(wanted, name)
        if isinstance(value, str):
            made.append(c[name] == value)
        elif value is not None:
            made.append(c[name].in_(value))
    if wanted.failure is not None:
        made.append(c.failure != "" if wanted.failure == "any" else c.failure == wanted.failure)
    if wanted.mark is not None:
        is_marked = sa.exists().where(marks.c.run == c.id, marks.c.verdict.in_(_VERDICTS.get(wanted.mark, ())))
        made.append(sa.not_(is_marked) if wanted.mark == "none" else is_marked)
    if wanted.cost is not None:
        made.append(c.cost >= wanted.cost)
    if wanted.kind is not None:
        is_call = sa.type_coerce(c.scope, sa.Text).contains(f'"{SINGLE_CALL}":true')
        made.append(is_call if wanted.kind == "call" else sa.not_(is_call))
    if wanted.text:
        places = (c.prompt, c.id, c.session, sa.func.coalesce(sa.type_coerce(c.result, sa.Text), ""))
        made.append(sa.or_(*(sa.type_coerce(one, sa.Text).icontains(wanted.text, autoescape=True) for one in places)))
    if wanted.since is not None:
        made.append(c.created >= wanted.since)
    if wanted.until is not None:
        made.append(c.created < wanted.until)
    if wanted.before is not None:
        moment, name = wanted.before
        made += [c.created <= moment, sa.or_(c.created < moment, c.id < name)]  # so an index finds where it begins
    return made


_VERDICTS = {"good": ("good",), "bad": ("bad",), "any": ("good", "bad"), "none": ("good", "bad")}


def list_scheduled(connection: sa.Connection, schedule: str | None, limit: int) -> list[RunInfo]:
    """Lists scheduled runs by their names, which end with a time; names of another schedule may begin alike."""
    prefix = SCHEDULED if schedule is None else f"{SCHEDULED}{schedule}-"
    named = [runs.c.id >= prefix, runs.c.id < prefix + _LAST, runs.c.parent == ""]
    if schedule is not None:
        named.append(sa.func.length(runs.c.id) == len(prefix) + len("20261115T000000Z"))
    query = (
        sa.select(*COLUMNS).where(*named).order_by(runs.c.created.desc(), runs.c.id.desc()).limit(clamp_limit(limit))
    )
    find_run = [run_info(row) for row in connection.execute(query)]
    return [run for run in find_run if schedule in (None, run.scope.get("schedule")) and "schedule" in run.scope]


def list_messages(connection: sa.Connection, run_id: str, upto_segment: int | None) -> list[Message]:
    query = sa.select(messages.c.message).where(messages.c.run == run_id, messages.c.place < INBOX)
    if upto_segment is not None:
        query = query.where(messages.c.place < 2 * upto_segment)
    rows = connection.execute(query.order_by(messages.c.place, messages.c.position)).scalars()
    return [message for row in rows for message in _messages_in(row)]


def last_turn(connection: sa.Connection, run_id: str) -> list[Message]:
    """Returns the messages from the model's last one on; reads only the end of a long history."""
    newest_first = messages.c.place.desc(), messages.c.position.desc()
    query = sa.select(messages.c.message).where(messages.c.run == run_id, messages.c.place < INBOX)
    query = query.order_by(*newest_first)
    found: list[Message] = []
    rows = 0
    while page := connection.execute(query.offset(rows).limit(_PAGE)).scalars().all():
        rows += len(page)
        for message in (one for row in page for one in reversed(_messages_in(row))):
            found.append(message)
            if message.role == "assistant":
                return found[::-1]
    return found[::-1]


def _messages_in(row: Any) -> list[Message]:
    """Reads a row: one message, or the list of those that were stored together."""
    return [import_message(wire) for wire in (row if isinstance(row, list) else [row])]


def find_due(connection: sa.Connection, moment: float, limit: int) -> list[RunInfo]:
    query = sa.select(*COLUMNS).where(runs.c.status == "waiting", runs.c.look <= moment).order_by(runs.c.look)
    return [run_info(row) for row in connection.execute(query.limit(clamp_limit(limit)))]


_ASKS_IN_WORDS = sa.type_coerce(runs.c.waits, sa.Text).startswith(IN_WORDS_BEGIN, autoescape=True)


def list_asking(connection: sa.Connection, limit: int, after: tuple[float, str] | None) -> list[RunInfo]:
    """Lists runs that wait for an answer in words, the oldest first. `after`: `updated` and id of the last known."""
    query = sa.select(*COLUMNS).where(runs.c.status == "waiting", _ASKS_IN_WORDS)
    if after is not None:
        moment, name = after
        is_later = sa.and_(runs.c.updated == moment, runs.c.id > name)
        query = query.where(sa.or_(runs.c.updated > moment, is_later))
    query = query.order_by(runs.c.updated, runs.c.id).limit(clamp_limit(limit))
    return [run_info(row) for row in connection.execute(query)]


def count_asking(connection: sa.Connection) -> int:
    query = sa.select(sa.func.count()).select_from(runs).where(runs.c.status == "waiting", _ASKS_IN_WORDS)
    return int(connection.execute(query).scalar_one())


def find_with_roots(connection: sa.Connection, ids: Collection[str], most_up: int) -> dict[str, RunInfo]:
    """Returns the runs of these ids and those above them, by id, with one query for each level."""
    found: dict[str, RunInfo] = {}
    wanted = set(ids)
    for _ in range(most_up):
        if not wanted:
            break
        rows = connection.execute(sa.select(*COLUMNS).where(runs.c.id.in_(wanted)))
        found.update({run.id: run for run in map(run_info, rows)})
        wanted = {run.parent for run in found.values() if run.parent} - found.keys() - wanted
    return found


def clamp_limit(number: int) -> int:
    """Clamps a number of rows to what both databases accept."""
    return max(0, min(number, MOST_ROWS))


def run_info(row: sa.Row[Any]) -> RunInfo:
    values: dict[str, Any] = {name: getattr(row, name) for name in RunInfo.__dataclass_fields__}
    values["waits"] = tuple(wait_from_json(wire) for wire in values["waits"])
    return RunInfo(**values)


def _row(connection: sa.Connection, run_id: str, lock: bool) -> sa.Row[Any] | None:
    if not is_id(run_id):
        return None
    query = sa.select(*COLUMNS).where(runs.c.id == run_id)
    return connection.execute(query.with_for_update() if lock else query).first()


def _find_prefixed(connection: sa.Connection, prefix: str, *conditions: sa.ColumnElement[bool]) -> list[str]:
    if not is_id(prefix):
        return []
    query = sa.select(runs.c.id).where(runs.c.id >= prefix, runs.c.id < prefix + _LAST, *conditions)
    return list(connection.execute(query.order_by(runs.c.id).limit(4)).scalars())
