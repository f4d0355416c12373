"""The database under the runs: private, explained in words, patient when it goes away, and discreet about passwords."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from forge import Agent, Answer, tool
from forge.core.errors import ErrorKind
from forge.core.messages import Message, ToolCall
from forge.durable.client import Runs
from forge.durable.store import RunStore, StoreError, migrate
from forge.durable.store.find import RunFilter
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import NewRun, Outcome, Question
from forge.durable.store.tables import ADDED, VERSION, metadata, runs, versions
from forge.durable.worker.schedules import Schedules, fire_due
from forge.schedules.schedule import Schedule, Source
from tests.durable.working import ended, rested, script, working

ROOT = Path(__file__).parents[2]

SECRET = "hunter2secret"


@tool(permissions={"write"})
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def test_the_file_is_private_and_so_are_those_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "durable.db"
    path.parent.mkdir()
    with RunStore(f"sqlite:///{path}") as store:
        store.prepare()
        store.create(NewRun(id="one"))
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
        assert set(modes) == {"durable.db", "durable.db-wal", "durable.db-shm"}
        assert set(modes.values()) == {0o600}


def test_looking_makes_no_file_and_nothing_makes_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "durable.db"
    with RunStore(f"sqlite:///{path}") as store:
        for look in (store.counts, store.list, lambda: store.get("one")):
            with pytest.raises(
                StoreError, match="does not contain Forge's tables yet: there is no such file"
            ) as caught:
                look()
            assert caught.value.suggestion
        assert list(tmp_path.iterdir()) == []
        store.prepare()
        assert store.counts() == {}
    refused(f"sqlite:///{tmp_path}/new/durable.db", f"there is no directory {tmp_path}/new", ErrorKind.CONFIG)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("url", [5, None, b"sqlite:///a.db", "sqlite:///a\0.db", "postgresql://h/\ud800", "a" * 10_000])
def test_what_is_no_url_is_refused_in_words(url: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        RunStore(url)
    assert caught.value.kind is ErrorKind.CONFIG
    assert "sqlite:///" in caught.value.suggestion
    assert RunStore(f"sqlite:///{tmp_path}/ü.db").label.endswith("ü.db")


def test_a_file_on_a_disk_without_room_can_be_looked_at(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one"))
    opened = sqlite3.connect

    class Full(sqlite3.Connection):
        """As where the index beside the file cannot be made."""

        def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
            if "sqlite_master" in statement:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
                raise error
            return super().execute(statement, *more)

    def connect(path: str, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        return opened(path, *args, **kwargs) if "immutable" in path else opened(path, *args, factory=Full, **kwargs)

    monkeypatch.setattr("sqlite3.dbapi2.connect", connect)
    with RunStore(sqlite) as store:
        assert store.get("one").id == "one"
        assert [run.id for run in store.list()] == ["one"]
        with pytest.raises(StoreError, match="cannot be opened or written"):
            store.create(NewRun(id="two"))
        with pytest.raises(StoreError, match="disk full"):
            store.prepare()
    monkeypatch.undo()
    with RunStore(sqlite) as store:
        store.prepare()
        assert store.create(NewRun(id="two")).id == "two"


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "durable.db"
    path.touch(0o644)
    with RunStore(f"sqlite:///{path}") as store:
        store.prepare()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "durable.db").symlink_to(tmp_path / "target")
    refused(f"sqlite:///{tmp_path}/durable.db", "is a link", ErrorKind.CONFIG)
    assert (tmp_path / "target").read_bytes() == b""


def test_a_relative_path_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = RunStore("sqlite:///a b/durable.db")
    monkeypatch.chdir("/")
    assert store.label == str(tmp_path / "a b" / "durable.db")
    assert store.url == f"sqlite:///{tmp_path}/a b/durable.db"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "durable.db",
        "/var/durable.db",
        "mysql://u:hunter2secret@host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite://host/x",
        "postgresql://u:hunter2secret@host",
        "postgresql://u:hunter2secret@host:port/db",
        "postgresql://u:hunter2secret@more@host/db",
        "postgresql://u:hunter2secret@[::1/db",
        "postgresql+asyncpg://u:hunter2secret@host/db",
        "://hunter2secret",
    ],
)
def test_a_url_of_something_else_is_refused_before_anything_happens(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        RunStore(url)
    assert caught.value.kind is ErrorKind.CONFIG
    assert caught.value.suggestion
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("postgres://u:hunter2secret@host/db", "postgresql://host/db"),
        ("postgresql://u:hunter2secret@host:5433/db", "postgresql://host:5433/db"),
        ("postgresql+psycopg://u@host/db?password=hunter2secret", "postgresql://host/db"),
        ("postgresql:///db?host=/var/run&password=hunter2secret", "postgresql:///var/run/db"),
    ],
)
def test_people_are_never_shown_the_password(url: str, label: str) -> None:
    store = RunStore(url)
    assert store.label == label
    assert SECRET not in repr(store)
    assert SECRET in store.url, "which is for engines"
    assert store.url.startswith("postgresql://")


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    begun = time.monotonic()
    store = RunStore("postgresql://u:hunter2secret@127.0.0.1:1/db?sslpassword=hunter2secret")
    for call in (store.prepare, store.counts):
        with pytest.raises(StoreError, match=r"postgresql://127.0.0.1:1/db cannot be reached: .*refused") as caught:
            call()
        assert caught.value.passing
        assert SECRET not in told(caught.value)
    assert time.monotonic() - begun < 60


def test_a_database_that_is_missing_is_made(postgres_server: sa.URL) -> None:
    url = postgres_server.set(database=f'forge "new": {os.getpid()}')
    with RunStore(url.render_as_string(hide_password=False)) as store:
        with pytest.raises(StoreError, match="does not exist: its server has no such database") as caught:
            store.counts()
        assert not caught.value.passing
        assert "cannot be reached" not in told(caught.value)
        store.prepare()
        assert store.counts() == {}
    admin = sa.create_engine(
        postgres_server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with admin.connect() as connection:
        connection.exec_driver_sql(f'DROP DATABASE "forge ""new"": {os.getpid()}" WITH (FORCE)')


def test_a_user_who_may_not_is_told_so(postgres: str) -> None:
    url = sa.make_url(postgres)
    with RunStore(postgres) as store:
        store.prepare()
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE guest{os.getpid()} LOGIN")
    guest = url.set(username=f"guest{os.getpid()}", password=SECRET).render_as_string(hide_password=False)
    with RunStore(guest) as store:
        with pytest.raises(StoreError, match="denied access: permission denied for table forge_") as caught:
            store.create(NewRun(id="one"))
        assert caught.value.kind is ErrorKind.CONFIG
        assert SECRET not in told(caught.value)
    with RunStore(postgres) as store, store.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP ROLE guest{os.getpid()}")


def test_a_database_without_our_tables_is_said_to_have_none(empty_database: str) -> None:
    with RunStore(empty_database) as store:
        with pytest.raises(StoreError, match="does not contain Forge's tables yet") as caught:
            store.counts()
        assert caught.value.kind is ErrorKind.CONFIG
        store.prepare()
        assert store.counts() == {}


def test_a_newer_database_is_left_alone(empty_database: str) -> None:
    with RunStore(empty_database) as store:
        store.prepare()
        store.prepare()
        with store.engine.begin() as connection:
            connection.execute(sa.update(versions).values(version=VERSION + 2))
    with RunStore(empty_database) as store:
        with pytest.raises(
            StoreError, match=f"newer Forge .*version {VERSION + 2}; this Forge supports up to {VERSION + 1}"
        ) as caught:
            store.prepare()
        assert caught.value.kind is ErrorKind.CONFIG
        with store.engine.begin() as connection:
            assert connection.execute(sa.select(versions.c.version)).scalar_one() == VERSION + 2


async def test_tables_that_a_worker_of_the_next_version_migrated_are_read_and_written(
    database: str, tmp_path: Path
) -> None:
    """An update begins with one worker: those who submit, and the other workers, are of this version for a while."""
    with Runs(database) as runs:
        runs.submit("go", run_id="before")
        with runs.store.engine.begin() as connection:
            for table in metadata.sorted_tables:  # a version only adds
                if table is not versions:
                    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN added_later TEXT")
            connection.exec_driver_sql("CREATE TABLE forge_added_later (id TEXT PRIMARY KEY)")
        _set_version(runs.store, VERSION + 1)
    with Runs(database) as runs:
        runs.submit("go", run_id="after")
        async with working(database, Agent(script("done")), tmp_path) as worker:
            for name in ("before", "after"):
                assert (await ended(worker, name)).status == "finished"
        assert runs.result("after").text == "done"
        assert runs.events("after")
        runs.delete("after")
        assert [run.id for run in runs.list()] == ["before"]
        with runs.store.engine.begin() as connection:  # nobody takes it back
            assert connection.execute(sa.select(versions.c.version)).scalar_one() == VERSION + 1


ROLES = ("forge_owner", "forge_worker", "forge_client", "forge_reader")


@pytest.fixture
def roles(empty_postgres: str) -> Iterator[dict[str, str]]:
    """The URLs of the roles of docs/operate.md, by name, for a database that belongs to the first of them."""
    admin = sa.create_engine(
        sa.make_url(empty_postgres).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    url = sa.make_url(empty_postgres)
    with admin.connect() as connection:
        for role in ROLES:
            connection.exec_driver_sql(f"CREATE ROLE {role}_{os.getpid()} LOGIN")
        connection.exec_driver_sql(f"ALTER DATABASE {url.database} OWNER TO forge_owner_{os.getpid()}")
        yield {role: url.set(username=f"{role}_{os.getpid()}").render_as_string(hide_password=False) for role in ROLES}
        for role in ROLES:
            connection.exec_driver_sql(f"DROP OWNED BY {role}_{os.getpid()} CASCADE")
            if role == "forge_owner":
                connection.exec_driver_sql(f"ALTER DATABASE {url.database} OWNER TO CURRENT_USER")
            connection.exec_driver_sql(f"DROP ROLE {role}_{os.getpid()}")
    admin.dispose()


def grant_as_documented(owner: str) -> None:
    """Runs the statements of docs/operate.md as the owner."""
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```sql title=\"grants.sql\"\n(.*?)```", page, re.DOTALL)
    engine = sa.create_engine(sa.make_url(owner).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(re.sub(r"\b(forge_(?:owner|worker|client|reader))\b", rf"\1_{os.getpid()}", text))


async def test_workers_and_clients_need_no_rights_to_make_tables(
    roles: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("forge_worker", "forge_client"):
        with Runs(roles[role]) as runs, pytest.raises(StoreError, match="may not make or change them") as caught:
            runs.submit("go")
        assert "forge worker --migrate" in caught.value.suggestion
    migrate_all = [sys.executable, "-m", "forge", "worker", "--migrate", "--database", roles["forge_owner"]]
    for _ in range(2):  # again changes nothing
        said = await asyncio.to_thread(subprocess.run, migrate_all, cwd=tmp_path, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert "are up to date" in said.stderr
    grant_as_documented(roles["forge_owner"])
    with Runs(roles["forge_client"]) as client, Runs(roles["forge_reader"]) as reader:
        client.submit("go", run_id="r")
        client.submit("go", run_id="other", queue="night")
        assert client.cancel("other").status == "cancelled"
        asked = ToolCall("pay", {"amount": 1}, "c")
        agent = Agent(script(asked, "done"), tools=[pay])
        schedule = Schedule(id="s", cron="0 3 * * *", task="Say hello.", source=Source.CONFIG)
        async with working(roles["forge_worker"], agent, tmp_path) as worker:
            assert (await rested(worker, "r")).status == "waiting"
            client.answer("r", Answer.ONCE)
            assert (await ended(worker, "r")).status == "finished"
            await fire_due(worker.engine.context, Schedules(lambda: [schedule], agent="main", prompt=str))
            assert [one.state for one in list_workers(reader.store.database)] == ["working"]
        assert client.resume("r", "again").status == "queued"
        assert {run.id for run in reader.list()} == {"r", "other"}
        assert reader.events("r")
        for runs, what in ((reader, lambda: reader.submit("no")), (client, lambda: client.delete("other"))):
            with pytest.raises(StoreError, match="permission denied"):
                what()
            with pytest.raises(sa.exc.ProgrammingError, match="permission denied"), runs.store.engine.begin() as one:
                one.exec_driver_sql("CREATE TABLE forge_no (id TEXT)")
    # tables of the version before, which the owner migrates later, are used as they are
    _add_a_version(monkeypatch)
    monkeypatch.setattr(migrate, "OLDEST", VERSION + 1)  # as in a release that needs what it adds
    with (
        Runs(roles["forge_client"]) as client,
        pytest.raises(StoreError, match=f"have version {VERSION}, and .* needs"),
    ):
        client.submit("go", run_id="early")
    monkeypatch.setattr(migrate, "OLDEST", VERSION)
    with Runs(roles["forge_client"]) as client:
        assert client.submit("go", run_id="early").status == "queued"


def test_nothing_of_a_newer_database_is_read_or_changed(database: str) -> None:
    with Runs(database) as runs:
        over = runs.submit("go", run_id="over")
        runs.cancel(over.id)
        waits = runs.submit("go", run_id="waits")
        _set_version(runs.store, VERSION + 2)
    uses = (
        lambda runs: runs.list(),
        lambda runs: runs.get("over"),
        lambda runs: runs.delete("over"),
        lambda runs: list(runs.prune(0)),
        lambda runs: runs.cancel("waits"),
        lambda runs: runs.resume("over", "more"),
        lambda runs: runs.answer("waits", "yes"),
        lambda runs: runs.migrate("waits", "2"),
        lambda runs: runs.submit("go", run_id="new"),
        lambda runs: runs.questions(),
    )
    for use in uses:
        with Runs(database) as runs, pytest.raises(StoreError, match="was written by a newer Forge") as caught:
            use(runs)
        assert caught.value.suggestion
    with Runs(database) as runs:
        _set_version(runs.store, VERSION)
    with Runs(database) as runs:
        assert {run.id: (run.status, run.version) for run in runs.list()} == {
            "over": ("cancelled", over.version),
            "waits": ("queued", waits.version),
        }
        runs.delete("over")
        assert [run.id for run in runs.list()] == ["waits"]


def test_the_next_version_brings_the_tables_up_to_date(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="kept"))
    _add_a_version(monkeypatch)
    for _ in range(2):  # again changes nothing
        with RunStore(database) as store:
            store.prepare()
            assert store.get("kept").id == "kept"
            assert _added(store) == (VERSION + 1, [])


def test_tables_of_the_second_version_are_migrated_with_what_is_stored_in_them(database: str) -> None:
    spent = {"cost": 0.5, "seconds": 3.0, "model": "m:x", "usage": {"input": 10, "output": 2, "cached": 4}}
    failed = {"reason": "error", "error": {"kind": "timeout", "message": "late"}}
    with RunStore(database) as store:
        store.prepare()
        for number in range(600):  # more than are read at once
            store.create(NewRun(id=f"r{number:03}", scope={"user": "ada" if number == 599 else "bob"}))
        store.begin("r000", 1, "w")
        store.close_segment("r000", 1, Outcome(status="failed", messages=(), spent=spent, result=failed))
        with store.engine.begin() as connection:
            for index in ("forge_runs_roots", "forge_runs_ended", "forge_questions_asked"):
                connection.exec_driver_sql(f"DROP INDEX {index}")
            for column in ADDED:
                connection.exec_driver_sql(f'ALTER TABLE forge_runs DROP COLUMN "{column.name}"')
            connection.exec_driver_sql("DROP TABLE forge_marks")
            connection.execute(sa.update(versions).values(version=2))
    with RunStore(database) as store:  # reading alone
        assert [run.id for run in store.list(RunFilter(user="ada"))] == ["r599"]
        wanted: tuple[dict[str, Any], ...] = ({"failure": "timeout"}, {"cost": 0.5}, {"model": "m:x"})
        for one in wanted:
            assert [run.id for run in store.list(RunFilter(**one))] == ["r000"]
        with store.engine.begin() as connection:
            query = sa.select(runs.c.worked, runs.c.input, runs.c.output, runs.c.cached).where(runs.c.id == "r000")
            assert tuple(connection.execute(query).one()) == (3.0, 10, 2, 4)
            assert connection.execute(sa.select(versions.c.version)).scalar_one() == VERSION
            assert "forge_runs_roots" in {one["name"] for one in sa.inspect(connection).get_indexes("forge_runs")}
        assert store.mark("r000", "bad", "late").by == "person"


USES: dict[str, Callable[[RunStore], object]] = {
    "answers": lambda store: store.answer("q", {"kind": "no"}, "me"),
    "stops": lambda store: store.request_cancel("stops"),
    "deletes": lambda store: store.delete("over"),
    "reads events": lambda store: store.events("over"),
}


@pytest.mark.parametrize("use", USES)
def test_whoever_changes_a_run_brings_the_tables_up_to_date(
    database: str, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    with RunStore(database) as store:
        store.prepare()
        for name in ("asks", "stops", "over"):
            store.create(NewRun(id=name))
            store.begin(name, 1, "w")
        store.ask(Question(id="q", run="asks", call="c", tool="t", digest="d", request={}))
        store.close_segment("over", 1, Outcome(status="finished", messages=(), spent={}))
    _add_a_version(monkeypatch)
    with RunStore(database) as store:
        assert len(store.list()) == 3  # looking changes nothing
        with store.engine.begin() as connection:
            assert not sa.inspect(connection).has_table("forge_added_later")
        USES[use](store)
        assert _added(store) == (VERSION + 1, [])


def _add_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process be a Forge with one more version of the tables."""

    def add(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE forge_added_later (id TEXT PRIMARY KEY)")

    monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, add))
    monkeypatch.setattr(migrate, "VERSION", VERSION + 1)


def _added(store: RunStore) -> tuple[int, list[Any]]:
    with store.engine.begin() as connection:
        version = connection.execute(sa.select(versions.c.version)).scalar_one()
        return version, list(connection.exec_driver_sql("SELECT id FROM forge_added_later"))


def test_a_file_that_cannot_be_written_is_read_and_says_so(sqlite: str) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one"))
    with RunStore(sqlite) as store:
        sa.event.listen(store.engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only = ON"))
        assert store.get("one").id == "one"
        with pytest.raises(StoreError, match=r"cannot be opened or written: .*readonly") as caught:
            store.create(NewRun(id="two"))
        assert caught.value.kind is ErrorKind.CONFIG


def test_a_directory_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(f"sqlite:///{tmp_path}/file/durable.db", "cannot be opened", ErrorKind.CONFIG)
    (tmp_path / "folder.db").mkdir()
    refused(f"sqlite:///{tmp_path}/folder.db", "not a regular file", ErrorKind.CONFIG)


def test_a_full_disk_loses_nothing_that_was_there(sqlite: str) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one", messages=[Message("user", "kept")]))
        store.begin("one", 1, "w")
    said = tuple(Message("assistant", "x" * 10_000) for _ in range(50))
    with RunStore(sqlite) as store:

        def fill(raw: sqlite3.Connection, _: object) -> None:
            pages = raw.execute("PRAGMA page_count").fetchone()[0]
            raw.execute(f"PRAGMA max_page_count = {pages + 2}")

        sa.event.listen(store.engine, "connect", fill)
        before = store.get("one")
        with pytest.raises(StoreError, match="is the disk full") as caught:
            store.close_segment("one", 1, Outcome(status="finished", messages=said, spent={}))
        assert caught.value.kind is ErrorKind.SYSTEM
        assert store.get("one") == before
        assert [message.text for message in store.messages("one")] == ["kept"]
    with RunStore(sqlite) as store:
        closed = store.close_segment("one", 1, Outcome(status="finished", messages=said, spent={}))
        assert closed.status == "finished"


def test_what_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "durable.db"
    path.write_bytes(b"something else entirely" * 1_000)
    refused(f"sqlite:///{path}", "is damaged, or not a SQLite database", ErrorKind.SYSTEM)
    assert path.read_bytes() == b"something else entirely" * 1_000


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed in /proc")
@pytest.mark.parametrize("wrong", ["no database", "locked while its log is switched on", "nothing"])
def test_a_file_that_cannot_be_used_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr("forge.durable.store.database.PATIENCE", 0.1)
    path = tmp_path / "durable.db"
    store = RunStore(f"sqlite:///{path}")
    if wrong == "nothing":
        store.prepare()
        assert count_open(path) > 0
        store.close()
    elif wrong == "no database":
        path.write_bytes(b"something else entirely" * 1_000)
        with pytest.raises(StoreError, match="not a SQLite database"):
            store.prepare()
    else:
        writer = subprocess.Popen(
            [sys.executable, "-c", _HOLDS_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "locked\n"
            with pytest.raises(StoreError, match="has been locked by another process"):
                store.prepare()
            writer.communicate("\n")
    assert count_open(path) == 0


_HOLDS_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE something (x)")
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def count_open(path: Path) -> int:
    """How many of this process's open files are this one, or one that SQLite keeps beside it."""
    numbers = list(Path("/proc/self/fd").iterdir())
    return sum(os.path.lexists(one) and os.readlink(one).startswith(str(path)) for one in numbers)


def test_a_row_that_somebody_spoilt_is_said_in_words(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        with store.engine.begin() as connection:
            connection.execute(sa.text("UPDATE forge_runs SET waits = '[{}]'"))
        with pytest.raises(StoreError, match="cannot be read: ValueError: kind is missing"):
            store.get("one")


def test_what_was_deleted_is_not_left_in_the_file(sqlite: str, tmp_path: Path) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one", messages=[Message("user", "very private words")]))
        store.request_cancel("one")
        store.delete("one")
        kept = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert b"very private words" not in kept
    assert b"forge_runs" in kept


def test_what_was_said_is_in_no_error(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        wrong = sa.insert(versions).values(part="private words", version=None)
        with pytest.raises(StoreError, match=r"(?i)not.null") as caught:
            store.database.write(lambda connection: connection.execute(wrong))
        assert "private words" not in caught.value.message


def test_connections_that_are_cut_are_made_anew(postgres: str) -> None:
    with RunStore(postgres) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        cut(postgres)
        assert store.begin("one", 1, "w")
        cut(postgres)
        assert store.get("one").status == "running"


def test_a_database_that_goes_away_for_a_moment_is_waited_for(postgres: str) -> None:
    name = sa.make_url(postgres).database
    with RunStore(postgres) as store, Admin(postgres) as admin:
        store.prepare()
        store.create(NewRun(id="one"))
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        cut(postgres)
        with RunStore(postgres, patience=0) as impatient, pytest.raises(StoreError, match="cannot be reached"):
            impatient.get("one")
        began = threading.Event()
        done: list[bool] = []

        def work() -> None:
            began.set()
            done.append(store.begin("one", 1, "w") is not None)

        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        thread.join(0.3)
        assert thread.is_alive()
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        thread.join(60)
        assert done == [True]


def test_a_writer_waits_for_another_and_then_says_so(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forge.durable.store.database.PATIENCE", 0.2)
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        other = sqlite3.connect(store.label, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert store.get("one").status == "queued", "reading waits for nobody"
        with pytest.raises(StoreError, match="has been locked by another process") as caught:
            store.begin("one", 1, "w")
        assert caught.value.passing
        other.execute("ROLLBACK")
        assert store.begin("one", 1, "w")
        other.close()


def test_others_may_use_the_engine_as_they_would_their_own(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        with store.engine.begin() as reader, store.engine.begin() as writer:
            assert reader.execute(sa.select(sa.func.count()).select_from(runs)).scalar_one() == 1
            writer.execute(sa.update(runs).values(worker="w"))


def test_only_events_do_not_wait_for_the_disk(empty_sqlite: str) -> None:
    with RunStore(empty_sqlite) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        store.add_events("one", [(None, {})])
        with pytest.raises(StoreError):
            store.add_events("nothing", [(None, {})])
        assert store.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_both_sides_of_a_fork_may_go_on(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="one"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if store.begin("one", 1, "child") else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.get("one").worker == "child"
        assert store.begin("one", 1, "parent")


def test_a_store_that_nobody_closed_leaves_nothing_open(database: str) -> None:
    store = RunStore(database)
    store.prepare()
    raw = store.engine.raw_connection()
    inner: Any = raw.dbapi_connection
    raw.close()
    del store
    gc.collect()
    with pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError), match="closed"):
        inner.execute("SELECT 1")


def _set_version(store: RunStore, version: int) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.update(versions).values(version=version))


def refused(url: str, words: str, kind: ErrorKind) -> None:
    store = RunStore(url)
    with pytest.raises(StoreError, match=words) as caught:
        store.prepare()
    assert caught.value.kind is kind
    assert caught.value.suggestion


def told(error: StoreError) -> str:
    """All that a log could show of it."""
    return error.message + error.suggestion + "".join(traceback.format_exception(error))


def cut(url: str) -> None:
    with Admin(url) as admin:
        name = sa.make_url(url).database
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


class Admin:
    """Somebody else on the same server."""

    def __init__(self, url: str) -> None:
        server = sa.make_url(url).set(drivername="postgresql+psycopg", database="postgres")
        self._engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *exception: object) -> None:
        self._engine.dispose()

    def execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(statement)


def test_a_write_is_told_when_others_can_read_it_and_a_look_is_not(database: str) -> None:
    with RunStore(database) as store, RunStore(database) as other:
        store.prepare()
        seen: list[int] = []
        store.database.on_write(lambda: seen.append(sum(other.counts().values())))
        store.create(NewRun(id="one"))
        assert seen[-1] == 1
        told = len(seen)
        store.counts()
        assert len(seen) == told
