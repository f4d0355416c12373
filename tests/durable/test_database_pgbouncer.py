"""A real PgBouncer in transaction mode between a worker and Postgres, as docs/scale.md describes it."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from forge.agent.agent import Agent
from forge.core.messages import ToolCall
from forge.core.tool import tool
from forge.durable.store import RunStore
from forge.durable.store.inbox import Notices
from tests.durable.working import LONGEST, begun, ended, script, told, working

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@tool(permissions={"read"})
def look(name: str) -> str:
    """Look at something."""
    return f"saw {name}"


@pytest.fixture
def pooled(postgres: str, tmp_path: Path) -> Iterator[str]:
    """The URL of the same database through PgBouncer."""
    with through_pgbouncer(postgres, tmp_path) as url:
        yield url


@pytest.fixture
def pooled_empty(empty_postgres: str, tmp_path: Path) -> Iterator[str]:
    """The same of a database without tables."""
    with through_pgbouncer(empty_postgres, tmp_path) as url:
        yield url


@contextmanager
def through_pgbouncer(postgres: str, tmp_path: Path) -> Iterator[str]:
    if PROGRAM is None:
        pytest.skip("PGBOUNCER IS NOT TESTED: install the Debian package pgbouncer")
    url = sa.make_url(postgres)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = url.host or url.query.get("host", "127.0.0.1")
    where = f"host={host} port={url.port or 5432} user={url.username or 'postgres'}"
    where += f" password={url.password}" if url.password else ""
    (tmp_path / "users.txt").write_text(f'"{url.username or "postgres"}" "{url.password or ""}"\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n{url.database} = {where}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"auth_type = any\nauth_file = {tmp_path}/users.txt\npool_mode = transaction\ndefault_pool_size = 5\n"
        f"unix_socket_dir =\nlogfile = {tmp_path}/pgbouncer.log\npidfile = {tmp_path}/pgbouncer.pid\n"
    )
    command = [PROGRAM, "-q", str(tmp_path / "pgbouncer.ini")]
    if os.geteuid() == 0:  # it refuses to run as root, and needs to reach the server's socket
        owner = pwd.getpwuid(Path(str(host)).stat().st_uid if str(host).startswith("/") else 65534).pw_name
        command[1:1] = ["-u", owner if owner != "root" else "nobody"]
        tmp_path.chmod(0o777)
        for folder in tmp_path.parents[: 2 + tmp_path.parent.name.startswith("popen-")]:
            folder.chmod(0o711)
    with subprocess.Popen(command) as bouncer:
        try:
            _await_port(port)
            yield f"postgresql://{url.username or 'postgres'}@127.0.0.1:{port}/{url.database}"
        finally:
            bouncer.terminate()


def _await_port(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


async def test_a_worker_runs_behind_a_pooler_in_transaction_mode(pooled: str, tmp_path: Path) -> None:
    calls = [ToolCall("look", {"name": str(number)}, f"c{number}") for number in range(12)]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with working(pooled, Agent(script(*calls, "done"), tools=[look]), workspace) as worker:
        await begun(worker)
        run = await ended(worker)
        assert run.status == "finished"
        assert told(worker) == [f"saw {number}" for number in range(12)]


async def test_all_tables_are_made_through_a_pooler(pooled_empty: str, tmp_path: Path) -> None:
    """No direct connection is needed, neither for our tables nor for the engine's."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with working(
        pooled_empty, Agent(script(ToolCall("look", {"name": "x"}, "c"), "done"), tools=[look]), workspace
    ) as worker:
        await begun(worker)
        assert (await ended(worker)).status == "finished"


@pytest.mark.slow  # they may wait half a minute for each other
def test_several_processes_make_the_tables_through_a_pooler_at_once(pooled_empty: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forge", "worker", "--migrate", "--database", pooled_empty]
    making = [
        subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "HOME": "/tmp"})
        for _ in range(3)
    ]
    said = [one.communicate(timeout=LONGEST)[1] for one in making]
    assert [one.returncode for one in making] == [0, 0, 0], said
    with RunStore(pooled_empty) as store:
        assert store.counts() == {}


def test_behind_a_pooler_nobody_listens(pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    with RunStore(pooled) as store, caplog.at_level(logging.INFO, "forge.durable"):
        notices = Notices(store.database, ["default"], lambda: None)
        notices.start()
        notices.join(LONGEST)
        assert "behind a pooler" in caplog.text
