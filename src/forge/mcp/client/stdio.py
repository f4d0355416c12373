"""Runs a server as a program in its sandbox: one message per line, in and out; its error output is its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import ToolCall
from forge.core.spec import ToolSpec
from forge.core.untrusted import has_too_many_values
from forge.mcp.bounds import MIB, MOST_LINE, MOST_MESSAGE, MOST_VALUES
from forge.mcp.client.link import ReachedHosts, Stdio, Wire
from forge.mcp.programs.fetching import how_to_pin, is_fetching
from forge.mcp.programs.installed import find_installed
from forge.network.program_secrets import put_placeholders
from forge.permissions.questions import PermissionRequest, show_invisible
from forge.process.environment import shell_environment
from forge.process.running.limits import Resources
from forge.process.running.pipes import Piped
from forge.process.running.run import describe_refusals, find_tier
from forge.process.sandbox import Tier
from forge.process.sandbox.layout import Confinement, find_hidden, make_private_folder, remove_folder
from forge.workspace.state import make_key

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

DEPTH = "FORGE_MCP_DEPTH"  # the variable with the nesting depth of servers
DEEPEST_NESTING = 4
PATIENCE, GRACE = 0.7, 1.0  # seconds to end after its input was closed, and after a signal
_PIECE = MIB  # bytes read at once
_PART = 4 * 1024  # bytes of the beginning and of the end of a line that is too long
_TELLING = 1.0  # seconds to learn how the program ended, after its last output
_WAITING = 64  # queued messages

_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?([0-9]{1,15})"?\s*,\s*"(?:result|error)"'
)
_ID_LAST = re.compile(rb'[}\]]\s*,\s*"id"\s*:\s*"?([0-9]{1,15})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


@asynccontextmanager
async def over_stdio(server: Stdio, wire: Wire) -> AsyncIterator[Streams]:
    """Runs a program and yields its streams. Raises `ToolError` if it cannot be started."""
    variables = {**server.env, DEPTH: str(_read_depth() + 1)}
    async with _start_program(wire, server, variables) as program:
        streams = _ProgramStreams(program, wire, lambda said: _explain_hidden(server, variables, said))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(streams.read)
                tasks.start_soon(streams.read_errors)
                tasks.start_soon(streams.write)
                try:
                    yield streams.incoming, streams.outgoing
                finally:
                    with anyio.CancelScope(shield=True):
                        await streams.stop()
                    tasks.cancel_scope.cancel()
        finally:
            streams.close()


def _explain_hidden(server: Stdio, variables: Mapping[str, str], said: str) -> str:
    """Returns what to do if the sandbox hides a file that the command or its output names; "" if it hides none."""
    found = _find_hidden_files(server, variables, said)
    if not found:
        return ""
    folder = found[0] if os.path.isdir(found[0]) else os.path.dirname(found[0])
    return (
        f'The sandbox hides "{found[0]}" from the server: add its directory to the server in forge.yaml, as'
        f' `roots: ["{folder}"]`, or set `sandbox: off` for it.'
    )


def _read_depth() -> int:
    """Returns the nesting depth of servers. Raises `ToolError` if it is too deep."""
    said = os.environ.get(DEPTH, "")
    depth = int(said) if said.isdecimal() and len(said) < 3 else 0
    if depth >= DEEPEST_NESTING:
        raise ToolError(
            f"MCP servers started other MCP servers, {depth} levels deep",
            ErrorKind.CONFIG,
            "Check whether a served project lists itself under mcpServers.",
        )
    return depth


class _ProgramStreams:
    """Carries messages between a program and the SDK."""

    def __init__(self, program: Piped, wire: Wire, explain: Callable[[str], str]) -> None:
        """`explain`: returns what to do if the sandbox hid a file from the program, given its last output."""
        self._explain = explain
        self.program = program
        self.wire = wire
        self._arrived, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._to_send = anyio.create_memory_object_stream[SessionMessage](_WAITING)
        self._errors_read = asyncio.Event()
        self._sent = asyncio.Event()
        self._wanted = True
        wire.reached = ReachedHosts(lambda: program.network)
        self._told: set[str] = set()  # about hosts that the program did not reach

    async def read(self) -> None:
        lines = LineSplitter()
        while piece := await self.program.output.read(_PIECE):
            for line in lines.split(piece):
                await self._receive_line(line)
            if lines.waiting > MOST_LINE:
                self.wire.lose(f"it wrote more than {MOST_LINE // MIB} MiB without a line break")
                break
        else:
            await self._report_end()
        self._arrived.close()

    async def read_errors(self) -> None:
        lines = LineSplitter(most=_PART)
        try:
            while piece := await self.program.errors.read(_PART * 16):
                for line in lines.split(piece):
                    self.wire.receive_line("info", "stderr", line.text)
                await self.wire.rate_limit.pause()
            if rest := lines.take_rest():
                self.wire.receive_line("info", "stderr", rest.text)
        finally:
            self._errors_read.set()

    async def write(self) -> None:
        try:
            async for item in self._to_send:
                content = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self.program.write(content.encode() + b"\n")
        except ConnectionError:
            self._to_send.close()  # it reads no more; if it also ended, the end of its output reports that
        finally:
            self._sent.set()

    async def stop(self) -> None:
        self._wanted = False
        self.incoming.close()
        self.outgoing.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._sent.wait()
        await self.program.stop(PATIENCE, GRACE)
        for line in self.program.put_back:
            self.wire.receive_line("warning", "sandbox", line)

    def close(self) -> None:
        for stream in (self._arrived, self.incoming, self.outgoing, self._to_send):
            stream.close()

    async def _receive_line(self, line: ServerLine) -> None:
        if not self._wanted or not line.head.strip():
            return
        item = _read_message(line)
        if item is None:
            self.wire.receive_line("warning", "stdout", line.text)
            await self.wire.rate_limit.pause()
            return
        self._tell_refusals()
        try:
            await self._arrived.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._wanted = False  # the rest is still read: the program may have to write before it can end

    def _tell_refusals(self) -> None:
        """Reports hosts that the program did not reach since its last message, with the call that it answers."""
        for said in describe_refusals(self.program.network):
            if said not in self._told:
                self._told.add(said)
                self.wire.receive_line("warning", "network", said)

    async def _report_end(self) -> None:
        how = "it closed its output"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TELLING):
                try:
                    how = await self.program.wait_ended()
                except ToolError as error:
                    self.wire.unstartable = error
                await self._errors_read.wait()
                if problem := self.program.explain_failed_start(self.wire.last_output):
                    self.wire.unstartable = problem
        if self.program.sandbox != "none" and (hint := self._explain(self.wire.last_output)):
            self.wire.hint = hint
        self.wire.lose(self.wire.describe_end(how))


class ServerLine(NamedTuple):
    """A received line; of a line that is too long, the beginning and the end."""

    head: bytes
    tail: bytes = b""
    size: int = 0  # if it is too long

    @property
    def text(self) -> str:
        return self.head[:_PART].decode(errors="replace")


class LineSplitter:
    """Splits pieces into lines, and never buffers more than the largest message."""

    def __init__(self, most: int = MOST_MESSAGE) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._tail = b""
        self.waiting = 0  # bytes of the incomplete line

    def split(self, piece: bytes) -> Iterator[ServerLine]:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._add(end)
            if line := self.take_rest():
                yield line
        self._add(rest)

    def take_rest(self) -> ServerLine | None:
        """Takes the bytes since the last end of line."""
        pieces, tail, size = self._pieces, self._tail, self.waiting
        self._pieces, self._tail, self.waiting = [], b"", 0
        if not size:
            return None
        return ServerLine(b"".join(pieces)) if size <= self._most else ServerLine(pieces[0], tail, size)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self.waiting += len(piece)
        if self.waiting <= self._most:
            self._pieces.append(piece)
            return
        if not self._tail:
            self._pieces = [b"".join([*self._pieces, piece])[:_PART]]
        self._tail = (self._tail + piece)[-_PART:]


def _read_message(line: ServerLine) -> SessionMessage | None:
    """Reads a message; None if it is none. An unusable answer to a call becomes an error answer."""
    problem = f"its response has {line.size:,} bytes; the maximum is {MOST_MESSAGE:,}"
    if not line.size and has_too_many_values(line.head, MOST_VALUES):
        problem = f"its response has more than {MOST_VALUES:,} values"
    elif not line.size:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.head, by_name=False))
        except ValueError:
            problem = "its response is not a valid message"
    found = _ID_FIRST.match(line.head[:_PART]) or _ID_LAST.search((line.tail or line.head)[-_PART:])
    if found is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message=problem)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


# --- Starts the program of a server in its sandbox, with its limits.


@asynccontextmanager
async def _start_program(wire: Wire, server: Stdio, variables: Mapping[str, str]) -> AsyncIterator[Piped]:
    """Starts the program of a server and removes its private folder at the end; the caller stops the program.

    `variables` are added to the minimal environment. Raises `ToolError` if the program cannot be started, or if there
    is no sandbox and one is wanted.
    """
    with contextlib.ExitStack() as stack:
        directory = server.directory
        if server.is_confined and server.workspace == "none":
            directory = Path(make_private_folder())
            stack.callback(remove_folder, str(directory))
        yield await _start(wire, server, directory, variables)


async def _start(wire: Wire, server: Stdio, directory: Path, variables: Mapping[str, str]) -> Piped:
    name = wire.name
    make_key()  # the program may make a state directory of its own
    environment = {**shell_environment(), **variables}
    command: Sequence[str] = server.command_line
    folders: tuple[Path, ...] = ()
    if server.integrity:
        installed = await in_thread(lambda: find_installed(name, server.integrity, server.command_line, environment))
        command, folders = installed
    elif server.is_confined and is_fetching(command):
        raise _unpinned(name, command)
    limits = Resources(data=server.memory * MIB)
    if not server.is_confined:
        return await Piped.start(command, cwd=directory, env=environment, limits=limits)
    if await _runs_unconfined(wire, server):
        return await Piped.start(command, cwd=directory, env=environment, limits=limits)
    confinement = _confine(server, directory, folders, variables.get("HOME"))
    if server.hosts is not None:
        from forge.permissions.program_network import server_network  # it loads the network's rules

        opened = server_network(name, server.hosts, server.egress, opened=server.network, sandbox=server.sandbox)
        proxy = None if isinstance(opened, bool) else opened
        confinement = replace(confinement, network=opened is True, proxy=proxy)
    if not confinement.network:
        environment = {key: put_placeholders(text, server.placeholders) for key, text in environment.items()}
        command = [put_placeholders(word, server.placeholders) for word in command]
    try:
        return await Piped.start(command, cwd=directory, env=environment, limits=limits, confinement=confinement)
    except ToolError as error:
        raise _explain(name, error) from None


async def _runs_unconfined(wire: Wire, server: Stdio) -> bool:
    """Returns whether there is no sandbox on this machine, and a person said that the program may run without one.

    Raises `ToolError` if rules about hosts would not hold for the program.
    """
    if not server.ask_unconfined or await in_thread(lambda: find_tier("auto")) is not Tier.NONE:
        return False
    if server.hosts is not None:
        from forge.permissions.program_network import server_network

        server_network(wire.name, server.hosts, server.egress, opened=True, sandbox="off")
    name, line = wire.name, shlex.join(server.command_line)
    spec = ToolSpec(name=name, description="the program of an MCP server", parameters={})
    question = (
        f"There is no sandbox on this machine. The program of the MCP server {name} would have all your permissions: it"
        f" could read and change your files, and use the network. Start it?\n{show_invisible(line, 2_000)}"
    )
    return await wire.listener.allow_start(
        PermissionRequest(
            spec,
            ToolCall(name, {}),
            {},
            None,
            "",
            Scope(workspace=server.directory),
            question=question,
            editable=False,
            personal=True,
        )
    )


def _confine(server: Stdio, directory: Path, installed: tuple[Path, ...], home: str | None) -> Confinement:
    """Returns the confinement: the working directory, the declared roots and the installation."""
    only_read = [root.path for root in server.mounted if not root.writable]
    return Confinement(
        sandbox=server.sandbox,
        workspace=directory,
        writable=tuple(root.path for root in server.mounted if root.writable),
        readable=(*only_read, *installed, *([directory] if server.workspace == "read" else [])),
        protected=tuple(map(Path, server.hidden)),
        masked=tuple(map(Path, server.hidden)),
        network=server.network,
        home=Path(home) if home else None,
    )


def _find_hidden_files(server: Stdio, variables: Mapping[str, str], said: str) -> list[str]:
    """Returns existing files that the command, or the program's last output, names and its sandbox hides."""
    if not server.is_confined or server.integrity:
        return []
    environment = {**shell_environment(), **variables}
    directory = server.directory
    shown = directory if server.workspace != "none" else Path(os.devnull)
    confinement = _confine(server, shown, (), variables.get("HOME"))
    texts = [*server.command_line, said]
    found = (os.path.join(directory, one) for one in find_hidden(texts, confinement, environment, directory))
    return [path for path in found if os.path.exists(path)]


def _explain(name: str, error: ToolError) -> ToolError:
    if not error.message.startswith("sandbox: "):
        return error
    return ToolError(
        f"the server {name} cannot be started in a sandbox: {error.message.removeprefix('sandbox: ')}",
        ErrorKind.CONFIG,
        f"{error.suggestion.partition(' Or set ')[0]} Or set `sandbox: off` for this server in forge.yaml; then it has"
        " all your permissions.",
    )


def _unpinned(name: str, command: Sequence[str]) -> ToolError:
    return ToolError(
        f"the server {name} is fetched when it starts ({' '.join(command)[:200]}): its code may be another each time,"
        " and the sandbox keeps no download",
        ErrorKind.CONFIG,
        how_to_pin(name, command),
    )
