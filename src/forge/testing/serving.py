"""An MCP server for a test: real streams or real HTTP around functions that run in the test's own process."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.testing.called import Calls
from forge.testing.workbench import Bench

if TYPE_CHECKING:  # the client's side, which a server that is only looked at does without
    from forge.mcp.client.link import Http, Stdio
    from forge.mcp.client.source import McpSource
    from forge.mcp.server.offer import Offer

PATIENCE = 30.0  # seconds until it serves, and until it has ended
RELAY = Path(__file__).with_name("_relay.py")


def mcp_server(
    *tools: Tool | Callable[..., Any] | Iterable[Tool | Callable[..., Any]],
    over: Literal["stdio", "http"] = "stdio",
    name: str = "server",
    **settings: Any,
) -> ToolServer:
    """A server that offers these tools inside `with`. `settings` are those of the `Bench` they stand on."""
    return ToolServer(Bench(*tools, **settings), over, name)


class ToolServer:
    """`with mcp_server(add) as server:`, then `server.source()` is what `Agent(tools=[…])` and `bench(…)` mount.

    Over "stdio" the client starts a real program, connected to this process; over "http" it talks to a real server on
    the loopback, behind a token. Either way the functions run here, in a thread of their own, so they may be closures
    and change what the test looks at. `calls` are the calls that arrived. `registry` may be changed meanwhile: clients
    hear of it within a second.
    """

    def __init__(self, bench: Bench, over: str, name: str) -> None:
        if over not in ("stdio", "http"):
            raise ValueError(f"mcp_server(over={over!r}): expected stdio or http")
        self.bench = bench
        self.over = over
        self.name = name
        self.token = secrets.token_urlsafe(24)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._problem: BaseException | None = None
        self._ready = threading.Event()
        self._listening: socket.socket | None = None
        self._folder = ""
        self._connections: set[socket.socket] = set()

    @property
    def calls(self) -> Calls:
        return self.bench.calls

    @property
    def registry(self) -> ToolRegistry:
        return self.bench.registry

    @property
    def command(self) -> list[str]:
        """The program and its arguments, for any client that starts servers."""
        self._check("stdio")
        return [sys.executable, "-I", "-S", str(RELAY), self._address]

    @property
    def url(self) -> str:
        self._check("http")
        assert self._listening is not None
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that requests over HTTP must have."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def entry(self) -> dict[str, Any]:
        """The server as `forge.yaml` names it: `{"mcpServers": {"sums": server.entry}}`."""
        if self.over == "http":
            return {"url": self.url, "headers": self.headers}
        program, *arguments = self.command
        return {"command": program, "args": arguments, "sandbox": "off"}  # it connects to this process

    @property
    def transport(self) -> Stdio | Http:
        """The transport to the server, for `mcp(server.transport, …)`."""
        from forge.mcp.client.link import Http, Stdio

        if self.over == "http":
            return Http(self.url, headers=self.headers)
        program, *arguments = self.command
        return Stdio(program, arguments, sandbox="off")  # it connects to this process

    def source(self) -> McpSource:
        """Returns the server as a source of tools, under its name."""
        from forge.mcp.client.source import mcp

        return mcp(self.transport, name=self.name)

    def crash(self) -> None:
        """Ends every connected program, as if it had crashed; the next one is served again."""
        self._check("stdio")
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._ready, self._problem = threading.Event(), None
        self._listen()
        self._thread = threading.Thread(target=self._work, name="forge-mcp-server", daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE) or self._problem is not None:
            problem = self._problem
            self._stop()
            raise RuntimeError(f"the server {self.name} did not start") from problem
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._stop()
        if self._problem is not None and kind is None:
            raise RuntimeError(f"the server {self.name} ended too early") from self._problem

    def _listen(self) -> None:
        if self.over == "http":
            self._listening = socket.create_server(("127.0.0.1", 0))
            return
        self._folder = tempfile.mkdtemp(prefix="forge-mcp-")  # readable by nobody else, so there is no token
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._address)
        self._listening.listen()
        self._listening.setblocking(False)

    def _stop(self) -> None:
        if self._loop is not None and self._ended is not None:
            with suppress(RuntimeError):  # it is over already
                self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread is not None:
            self._thread.join(PATIENCE)
        if self._listening is not None:
            self._listening.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._thread = self._loop = None

    def _work(self) -> None:
        try:
            asyncio.run(self._until_ended())
        except BaseException as error:
            self._problem = error
        finally:
            self._ready.set()

    async def _until_ended(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with self.bench:
            serving = asyncio.create_task(self._over_http() if self.over == "http" else self._over_stdio())
            ended = asyncio.create_task(self._ended.wait())
            await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def _over_http(self) -> None:
        from forge.mcp.server import serve_http

        assert self._listening is not None
        await serve_http(
            self.bench.executor,
            self.bench.scope,
            listening=self._listening,
            token=self.token,
            name=self.name,
            everything=True,
            ready=self._ready.set,
        )

    async def _over_stdio(self) -> None:
        from forge.mcp.server.offer import Offer

        assert self._listening is not None
        offer = Offer(self.bench.executor, self.bench.scope, name=self.name, everything=True)
        tasks: set[asyncio.Task[None]] = set()
        async with offer.open():
            self._ready.set()
            try:
                while True:
                    connection, _ = await asyncio.get_running_loop().sock_accept(self._listening)
                    _keep(tasks, self._serve(offer, connection))
            finally:
                self.crash()
                if tasks:
                    await asyncio.wait(tasks, timeout=PATIENCE)

    async def _serve(self, offer: Offer, connection: socket.socket) -> None:
        import anyio

        from forge.mcp.server.handlers import make_server
        from forge.mcp.server.stdio import StreamInput, StreamOutput

        self._connections.add(connection)
        connection.setblocking(True)
        server, output = make_server(offer), StreamOutput(connection.fileno())
        try:
            await server.run(StreamInput(connection.fileno(), output), output, server.create_initialization_options())
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # the client is gone
        finally:
            self._connections.discard(connection)
            connection.close()

    @property
    def _address(self) -> str:
        return f"{self._folder}/s"  # as short as can be: addresses have a hundred bytes

    def _check(self, over: str) -> None:
        if self.over != over:
            raise RuntimeError(f"this server uses {self.over}, so it has no {'url' if over == 'http' else 'command'}")
        if self._listening is None:
            raise RuntimeError("the server runs only inside `with`")

    def __repr__(self) -> str:
        return f"<ToolServer {self.name} over {self.over}, {len(self.registry)} tools, {len(self.calls)} calls>"


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
