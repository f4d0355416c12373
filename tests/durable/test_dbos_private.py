"""What Forge knows of DBOS beyond its public interface is so in the installed version."""

from __future__ import annotations

import ast
import asyncio
import base64
import pickle
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, _serialization
from dbos._utils import INTERNAL_QUEUE_NAME

from forge import Agent
from forge.durable.engine import dbos_private
from forge.durable.engine.dbos_private import (
    JsonSerializer,
    NoOutcome,
    refuse_pickles,
    run_migrations,
    use_whole_seconds,
)
from forge.durable.engine.engine import Engine, make_context
from forge.durable.engine.start_segments import SEGMENT_WORKFLOW, Starter
from forge.durable.store import RunStore
from tests.durable.working import begun, ended, script, working

SOURCE = Path(dbos_private.__file__).parents[2]


def test_the_installed_version_is_the_one_that_the_private_parts_were_verified_with() -> None:
    assert version("dbos") == dbos_private.VERIFIED, (
        f"DBOS {version('dbos')} is installed. Check each part of src/forge/durable/engine/dbos_private.py with the"
        " source of this version. Then set VERIFIED."
    )


def test_nothing_private_of_dbos_is_used_in_another_file() -> None:
    """Private modules of it, and private attributes of its objects."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "dbos" not in text.lower() or path.name == "dbos_private.py":
            continue
        names = set(_private_uses(ast.parse(text)))
        if names:
            found[path.relative_to(SOURCE).as_posix()] = names
    assert found == {}
    assert set(_private_uses(ast.parse(Path(dbos_private.__file__).read_text()))) == {"client._sys_db"}


def _private_uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dbos":
            yield from (f"{node.module}.{one.name}" for one in node.names if one.name.startswith("_"))
            if "._" in (node.module or ""):
                yield str(node.module)
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("dbos._"))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner.rpartition(".")[2].lower().lstrip("_") in ("dbos", "client", "sys_db", "registry"):
                yield f"{owner}.{node.attr}"


def test_no_attribute_of_a_foreign_object_is_assigned_in_the_engine() -> None:
    """A setting of our own connection to SQLite is the only one: the driver has no other way."""
    found = []
    for path in sorted(Path(dbos_private.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AugAssign)
                else []
            )
            for target in targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Attribute) and ast.unparse(one.value) in (
                        "connection",
                        "dbos",
                        "DBOS",
                        "client",
                        "queue",
                    ):
                        found.append(f"{path.name}: {ast.unparse(one)}")
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
                found.append(f"{path.name}: {ast.unparse(node)}")
    assert found == ["dbos_private.py: connection.text_factory"]


def test_it_calls_pickles_by_the_name_that_is_refused_and_does_not_know_the_other() -> None:
    assert _serialization.DBOSDefaultSerializer.name() == dbos_private.PICKLE
    data = base64.b64encode(pickle.dumps({"args": (), "kwargs": {}})).decode()
    assert _serialization.deserialize_args(data, dbos_private.PICKLE, JsonSerializer()) == {"args": (), "kwargs": {}}
    with pytest.raises(TypeError, match="which Forge refuses is not available"):
        _serialization.deserialize_args(data, dbos_private.REFUSED, JsonSerializer())


def test_connections_give_pickles_another_name_and_all_else_as_it_is(database: str) -> None:
    with RunStore(database) as store:
        engine = sa.create_engine(store.engine.url)
        refuse_pickles(engine)
        with engine.connect() as connection:
            said = connection.execute(sa.text("SELECT 'py_pickle', 'forge_json', 'é py_pickle', NULL, 3")).one()
        engine.dispose()
    assert said == (dbos_private.REFUSED, "forge_json", "é py_pickle", None, 3)


async def test_a_pickle_in_its_own_queue_is_not_loaded(database: str, tmp_path: Path) -> None:
    """Its threads poll a queue of its own, which whoever writes to the database can fill."""
    mark = tmp_path / "pwned"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    with RunStore(database) as store, closing(Starter(store)) as starter:
        for name, inputs, how in (
            ("bomb", base64.b64encode(pickle.dumps(Bomb())).decode(), "py_pickle"),
            ("twin", JsonSerializer().serialize({"args": ["no such run", 1], "kwargs": {}}), "forge_json"),
        ):
            options = {
                "workflow_name": SEGMENT_WORKFLOW,
                "queue_name": "nobody's",
                "workflow_id": name,
                "app_version": "0",
            }
            starter.client.enqueue(options, "no such run", 1)  # type: ignore[arg-type]
            schema = "" if store.database.is_sqlite else "dbos."
            with store.engine.begin() as connection:
                for change in (
                    f"UPDATE {schema}workflow_input SET inputs = :inputs WHERE workflow_uuid = :id",
                    f"UPDATE {schema}workflow_status SET serialization = :how, queue_name = :queue"
                    " WHERE workflow_uuid = :id",
                ):
                    given = {"inputs": inputs, "how": how, "queue": INTERNAL_QUEUE_NAME, "id": name}
                    names = {key: value for key, value in given.items() if f":{key}" in change}
                    connection.execute(sa.text(change), names)
        client = starter.client
        async with working(database, Agent(script("done")), tmp_path) as worker:
            states: dict[str, str] = {}
            while states.get("twin") != "SUCCESS" or states["bomb"] == "ENQUEUED":
                ids: dict[str, Any] = {"workflow_ids": ["bomb", "twin"], "load_input": False, "load_output": False}
                found = await asyncio.to_thread(partial(client.list_workflows, **ids))
                states = {one.workflow_id: one.status for one in found}
                await asyncio.sleep(0.05)
            assert states["bomb"] in ("PENDING", "ERROR")  # it was claimed and refused
            await begun(worker, run_id="after")
            assert (await ended(worker, "after")).status == "finished"
    assert not mark.exists()


def test_an_old_sqlite_writes_whole_seconds_and_a_new_one_its_own(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    changed = use_whole_seconds(engine)
    with changed.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (a INTEGER DEFAULT (unixepoch('subsec') * 1000), b INTEGER)"))
        newer = sa.cast(sa.func.unixepoch("subsec") * 1000, sa.BigInteger)  # as DBOS writes it from Python 3.12 on
        connection.execute(sa.insert(sa.table("t", sa.column("b"))).values(b=newer))
        times = connection.execute(sa.text("SELECT a, b FROM t")).one()
    assert all(one % 1000 == 0 and abs(one / 1000 - time.time()) < 60 for one in times)
    with engine.connect() as connection:  # our own statements stay as they are
        assert connection.execute(sa.text("SELECT 'unixepoch(?)'")).scalar() == "unixepoch(?)"
    engine.dispose()


@pytest.mark.parametrize("is_old", [True, False])
def test_every_table_of_dbos_has_times_here(tmp_path: Path, is_old: bool) -> None:
    if not is_old and sqlite3.sqlite_version_info < (3, 42):
        engine = dbos_private.with_old_times(sa.create_engine(f"sqlite:///{tmp_path / 'dbos.db'}"))
    else:
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'dbos.db'}")
        engine = use_whole_seconds(engine) if is_old else engine
    run_migrations(engine)
    client = DBOSClient(system_database_engine=engine, serializer=JsonSerializer())
    client.enqueue({"workflow_name": "any", "queue_name": "any", "workflow_id": "w"})
    (found,) = client.list_workflows()
    assert abs((found.created_at or 0) / 1000 - time.time()) < 60
    client.cancel_workflow("w")
    (found,) = client.list_workflows()
    assert abs((found.updated_at or 0) / 1000 - time.time()) < 60
    client.destroy()
    engine.dispose()


@DBOS.workflow(name="test_outcomes")
async def _end(run_id: str, number: int) -> str:
    if run_id == "left":
        raise NoOutcome
    if run_id == "failed":
        raise ValueError(f"number {number}")
    return await asyncio.to_thread(lambda: threading.current_thread().name)


async def test_a_workflow_without_an_outcome_stays_begun_and_another_error_ends_it(sqlite: str) -> None:
    async with Engine(make_context(RunStore(sqlite)), _end, listen=False) as engine:
        for name, error in (("left", asyncio.CancelledError), ("failed", ValueError)):
            handle = await DBOS.start_workflow_async(_end, name, 1)
            with pytest.raises(error):
                await handle.get_result()
        found = await asyncio.to_thread(partial(engine.context.starter.client.list_workflows, name="test_outcomes"))
        assert {one.status for one in found} == {"PENDING", "ERROR"}, "see part 4 of dbos_private.py"


async def test_it_takes_the_threads_of_the_loop_and_they_are_renewed(sqlite: str) -> None:
    name = await asyncio.to_thread(lambda: threading.current_thread().name)
    assert name.startswith("asyncio")
    async with Engine(make_context(RunStore(sqlite)), _end, listen=False):
        handle = await DBOS.start_workflow_async(_end, "threads", 1)
        taken = await handle.get_result()
        assert not taken.startswith("asyncio"), "DBOS leaves the loop's threads alone: part 5 of dbos_private.py may go"
    assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("forge")


def test_the_table_of_steps_has_the_columns_that_are_written_and_read(database: str) -> None:
    with RunStore(database) as store, closing(Starter(store)) as starter:
        starter.prepare_engine()
        schema = None if store.database.is_sqlite else "dbos"
        inspector = sa.inspect(store.engine)
        columns = {one["name"]: one for one in inspector.get_columns("operation_outputs", schema)}
        key = inspector.get_pk_constraint("operation_outputs", schema)["constrained_columns"]
    statement = str(dbos_private._INSERTS[True])
    written = {name.strip() for name in statement.partition("(")[2].partition(")")[0].split(",")}
    assert len(written) == 9, statement
    assert written <= columns.keys(), "see part 6 of dbos_private.py"
    needed = {name for name, one in columns.items() if not one["nullable"] and one["default"] is None}
    assert needed <= written, "DBOS requires more of a step: see part 6 of dbos_private.py"
    assert sorted(key) == ["function_id", "workflow_uuid"], "two steps of one number would both be stored"
