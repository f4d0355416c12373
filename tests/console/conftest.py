"""A real console on loopback: a project, a worker, a server, and a browser's cookies."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from forge.console.console_state import ConsoleState, open_project
from forge.console.guard import Entrance, new_key
from forge.console.server import make_app, serve
from forge.project.project import RunOptions
from forge.workspace.state import state_directory
from tests.durable.tables import copy_tables

PATIENCE = 60.0  # seconds


def script(folder: Path, *turns: Any) -> str:
    """A model of these turns: texts, or mappings as a script file has them."""
    (folder / "script.json").write_text(json.dumps(turns))
    return f"scripted:{folder / 'script.json'}"


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"call": tool, "arguments": arguments}


class Console:
    """A page's side of it."""

    def __init__(self, home: ConsoleState, entrance: Entrance, client: httpx2.AsyncClient, port: int) -> None:
        self.home, self.entrance, self.client, self.port = home, entrance, client, port
        self.token = ""

    async def enter(self) -> None:
        found = await self.client.get("/enter", params={"token": self.entrance.new_link()})
        assert found.status_code == 303, found.text
        self.token = found.headers["location"].removeprefix("/#/enter/")
        self.client.headers["x-forge-token"] = self.token

    async def get(self, path: str, status: int = 200, **params: Any) -> Any:
        found = await self.client.get(path, params=params)
        assert found.status_code == status, (path, found.status_code, found.text[:2_000])
        return found.json()

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        found = await self.client.post(path, json={} if body is None else body)
        assert found.status_code == status, (path, found.status_code, found.text[:2_000])
        return found.json()

    async def until(self, look: Callable[[], Any]) -> Any:
        """What `look` gives once it is something."""
        end = time.monotonic() + PATIENCE
        while True:
            found = await look()
            if found:
                return found
            assert time.monotonic() < end, "it did not come to that in time"
            await asyncio.sleep(0.02)

    async def run_is(self, run: str, *statuses: str) -> dict[str, Any]:
        async def look() -> Any:
            found = await self.get(f"/api/runs/{run}")
            return found if found["status"] in statuses else None

        found: dict[str, Any] = await self.until(look)
        return found

    async def question(self) -> dict[str, Any]:
        async def look() -> Any:
            return (await self.get("/api/questions"))["questions"]

        found: dict[str, Any] = (await self.until(look))[0]
        return found

    @asynccontextmanager
    async def stream(self, **params: Any) -> AsyncIterator[AsyncIterator[tuple[str, str, Any]]]:
        """(event, id, data) of what comes."""
        async with self.client.stream("GET", "/api/stream", params=params, timeout=PATIENCE) as answer:
            assert answer.status_code == 200, answer.status_code
            yield _events(answer.aiter_lines())


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str, Any]]:
    found: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
            continue
        if "data" in found:
            yield found.get("event", ""), found.get("id", ""), json.loads(found["data"])
        found = {}


@asynccontextmanager
async def running_console(
    workspace: Path,
    *,
    model: str | None = None,
    config: str | None = None,
    policy: str | None = None,
    database: str | None = None,
    works: bool = True,
    key: str = "",
    port: int = 0,
) -> AsyncIterator[Console]:
    """One that is entered already."""
    home = open_project(
        RunOptions(workspace=str(workspace), config=config, policy=policy), model=model, database=database
    )
    if home.is_own_database:
        copy_tables(state_directory(home.workspace) / "durable.db")
    with socket.create_server(("127.0.0.1", port)) as listening:
        port = listening.getsockname()[1]
        entrance = Entrance(key or new_key(), "born")
        async with home.opened(works=works):
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(make_app(home, entrance, port), home, listening, ready.set))
            await ready.wait()
            try:
                where, many = f"http://127.0.0.1:{port}", httpx2.Limits(max_connections=300)
                # no https here, and reading the certificates takes longer than most tests
                async with httpx2.AsyncClient(verify=False, base_url=where, timeout=PATIENCE, limits=many) as client:
                    console = Console(home, entrance, client, port)
                    await console.enter()
                    yield console
            finally:
                serving.cancel()
                await asyncio.wait({serving})


def flags_of(cookie: str) -> set[str]:
    return {re.split("=", one.strip())[0].lower() for one in cookie.split(";")[1:]}
