"""An ACP agent as a sub-agent: a program that others wrote works on a task, and reaches files and commands through us.

It is started in a sandbox for one task, and speaks the Agent Client Protocol over its standard input and output. What
it asks for is a call of ours: `file_read`, `file_write`, `bash`. So rules, questions, labels, the log and trials hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from forge.core.context import Root, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import check_extra
from forge.core.plain_values import brief, visible
from forge.core.result import PRIVATE, UNTRUSTED, Label, ToolResult
from forge.core.spec import Permission
from forge.core.untrusted import has_too_many_values
from forge.network.program_secrets import put_placeholders
from forge.permissions.labels.settings import current_provenance
from forge.process.environment import shell_environment
from forge.process.running.limits import Resources
from forge.process.running.pipes import Piped
from forge.process.sandbox.layout import Confinement, make_private_folder, remove_folder
from forge.workspace.paths.open import read_file

if TYPE_CHECKING:
    from acp import Client, ClientSideConnection
    from acp.schema import RequestPermissionResponse

    from forge.network.egress import Egress
    from forge.permissions.policy import Rules

MIB = 1024 * 1024
MEMORY = 2048  # MiB that each process of the program may write to
GREETING = 60.0  # seconds for the start, the greeting and a new session
PATIENCE, GRACE = 0.7, 1.0  # seconds to end after its input was closed, and after a signal
MOST_LINE = 8 * MIB  # bytes of one message
MOST_BYTES = 256 * MIB  # of all messages of a task
MOST_VALUES = 200_000  # of one message
MOST_TEXT = 1_000_000  # characters of its answer
MOST_OPEN = 16  # requests that wait for an answer: more are not read
MOST_TERMINALS = 8
MOST_REQUESTS = 1_000  # of a task
MOST_PATHS = 50  # of one question
LONGEST_FILE = 4 * MIB  # that it may read
SAID = 4_000  # characters of its error output that are kept
READ, WRITE, RUN = "file_read", "file_write", "bash"
_KINDS: dict[str, Permission] = {
    "read": Permission.READ,
    "search": Permission.READ,
    "edit": Permission.WRITE,
    "delete": Permission.WRITE,
    "move": Permission.WRITE,
    "fetch": Permission.NETWORK,
}


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """An agent of others that speaks ACP, for `AgentType(outside=AcpAgent("their-agent"))`.

    It may use the tools that the `AgentType` lists, of `file_read`, `file_write` and `bash`; without a list only
    `file_read`. What it says is untrusted, and it gets no private results.

    Args:
        command: the program.
        args: its arguments.
        env: variables of the program, added to a minimal environment.
        sandbox: confines the program: `auto` where the system can, `required` or fail, or `off`.
        network: whether the confined program has a network.
        hosts: rules about hosts that hold for the program, such as those of the project.
        egress: the addresses that it may reach by them, and its secrets.
        placeholders: of secret values in `args` and `env`: the program gets them in place of the values, unless it has
            the whole network.
        workspace: the program's own access to the workspace, beside what it asks for: `none`, `read` or `write`.
        roots: further directories of the program, read-only unless given as a writable `Root`.
        hidden: files that the program cannot read in bubblewrap, wherever they are.
        memory: MiB of memory that each process of the program may write to.

    Example:
        >>> AcpAgent("their-agent", ["--acp"], network=True).workspace
        'none'
    """

    command: str
    args: Sequence[str] = ()
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    sandbox: Literal["auto", "required", "bubblewrap", "landlock", "off"] = "required"
    network: bool = False
    hosts: Rules | None = field(default=None, repr=False)
    egress: Egress | None = field(default=None, repr=False)
    placeholders: Mapping[str, str] = field(default_factory=dict, repr=False)
    workspace: Literal["write", "read", "none"] = "none"
    roots: Sequence[Root] = ()
    hidden: Sequence[Path | str] = ()
    memory: int = MEMORY

    def __post_init__(self) -> None:
        if not isinstance(self.command, str) or not self.command.strip():
            said = f"AcpAgent(command={self.command!r:.100})"
            raise DefinitionError(f"{said}: expected the name of a program; write its arguments as `args`")
        if isinstance(self.args, str):
            raise DefinitionError(f"AcpAgent(args={self.args!r:.100}): expected a list of words")

    async def work(
        self, ctx: ToolContext, name: str, prompt: str, *, tools: Collection[str], seconds: float | None, calls: int
    ) -> ToolResult:
        """Gives the program a task and returns its report, whose text is untrusted. Raises `ToolError`.

        `tools`: those that it may use. `seconds` and `calls`: the limits of the task.
        """
        check_extra("acp", f"the agent {name} cannot be used")
        from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, text_block
        from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation

        desk = _Desk(ctx, name, tools, calls or MOST_REQUESTS)
        files = FileSystemCapabilities(read_text_file=desk.has(READ), write_text_file=desk.has(WRITE))
        capabilities = ClientCapabilities(fs=files, terminal=desk.has(RUN))
        async with self._started(ctx, name) as program:
            wire = _Wire(program)
            told = asyncio.create_task(wire.read_errors())
            connection = connect_to_agent(cast("Client", desk), wire)
            session = ""
            try:
                async with asyncio.timeout(seconds or None):
                    async with asyncio.timeout(GREETING):
                        await connection.initialize(
                            PROTOCOL_VERSION, capabilities, Implementation(name="forge", version="1")
                        )
                        made = await connection.new_session(cwd=str(ctx.scope.workspace), mcp_servers=[])
                        session = desk.session = made.session_id
                    answer = await connection.prompt(session_id=session, prompt=[text_block(prompt)])
                return desk.report(answer.stop_reason)
            except TimeoutError:
                raise desk.error("it did not answer in time", "Give it a smaller task, or more seconds.") from None
            except RequestError as error:
                words = visible(str(error))[:500]
                raise desk.error(f"it refused: {words}", "Run its program by hand; it may want a login.") from None
            except ConnectionError:
                how = wire.problem or "it ended or closed its output"
                said = f": {visible(wire.said.strip()[-500:])}" if wire.said.strip() else ""
                raise desk.error(f"{how}{said}", "Run its program by hand to see the error.") from None
            finally:
                await desk.close()
                if session:
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(PATIENCE):
                            await connection.cancel(session_id=session)
                with contextlib.suppress(Exception):
                    await connection.close()
                told.cancel()

    @asynccontextmanager
    async def _started(self, ctx: ToolContext, name: str) -> AsyncIterator[Piped]:
        """Starts the program in its sandbox, and ends it with all that it started."""
        with contextlib.ExitStack() as stack:
            directory = Path(ctx.scope.workspace)
            if self.sandbox != "off" and self.workspace == "none":
                directory = Path(make_private_folder())
                stack.callback(remove_folder, str(directory))
            environment = {**shell_environment(), **self.env}
            limits = Resources(data=self.memory * MIB)
            confinement = None if self.sandbox == "off" else self._confine(name, directory)
            command = (self.command, *map(str, self.args))
            if confinement is not None and not confinement.network:
                environment = {key: put_placeholders(text, self.placeholders) for key, text in environment.items()}
                command = tuple(put_placeholders(word, self.placeholders) for word in command)
            program = await Piped.start(
                command,
                cwd=directory,
                env=environment,
                limits=limits,
                confinement=confinement,
            )
            try:
                yield program
            finally:
                await asyncio.shield(asyncio.ensure_future(program.stop(PATIENCE, GRACE)))

    def _confine(self, name: str, directory: Path) -> Confinement:
        only_read = [root.path for root in self.roots if not root.writable]
        confinement = Confinement(
            sandbox=self.sandbox,
            workspace=directory,
            writable=tuple(root.path for root in self.roots if root.writable),
            readable=(*only_read, *([directory] if self.workspace == "read" else [])),
            protected=tuple(map(Path, self.hidden)),
            masked=tuple(map(Path, self.hidden)),
            network=self.network,
            home=Path(self.env["HOME"]) if "HOME" in self.env else None,
        )
        if self.hosts is None:
            return confinement
        from forge.permissions.program_network import server_network  # it loads the network's rules

        opened = server_network(name, self.hosts, self.egress, opened=self.network, sandbox=self.sandbox)
        return replace(confinement, network=opened is True, proxy=None if isinstance(opened, bool) else opened)


class _Wire:
    """Carries messages between the program and the SDK, and bounds them. A program that asks too much is not read."""

    def __init__(self, program: Piped) -> None:
        self.program = program
        self.problem = ""  # why it is not heard any more
        self.said = ""  # the end of its error output
        self._rest = bytearray()
        self._size = 0
        self._open = 0  # requests without an answer
        self._room = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._open -= 1
            self._room.set()
        await self.program.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        while (line := await self._line()) is not None:
            await asyncio.sleep(0)  # what was received before is worked on first
            if not line.strip() or has_too_many_values(line, MOST_VALUES):
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a line of a log, perhaps
            if not isinstance(message, dict):
                continue
            if "method" in message and "id" in message:
                self._open += 1
                while self._open > MOST_OPEN:
                    self._room.clear()
                    await self._room.wait()
            return message
        return None

    async def _line(self) -> bytes | None:
        while (at := self._rest.find(b"\n")) < 0:
            if len(self._rest) > MOST_LINE:
                self.problem = f"it wrote more than {MOST_LINE // MIB} MiB without a line break"
                return None
            piece = await self.program.output.read(64 * 1024)
            self._size += len(piece)
            if self._size > MOST_BYTES:
                self.problem = f"it wrote more than {MOST_BYTES // MIB} MiB"
                return None
            if not piece:
                return None
            self._rest += piece
        line = bytes(self._rest[:at])
        del self._rest[: at + 1]
        return line

    async def read_errors(self) -> None:
        while piece := await self.program.errors.read(16 * 1024):
            self.said = (self.said + piece.decode("utf-8", "replace"))[-SAID:]

    async def close(self) -> None:
        self.program.end_input()


class _Terminal:
    """A command that the program started: it runs as a call of `bash`, to its end."""

    def __init__(self, work: asyncio.Task[ToolResult], most: int | None) -> None:
        self.work = work
        self._most = most

    @property
    def output(self) -> tuple[str, bool]:
        """Its output once it is over, and whether the beginning is left out."""
        if not self.work.done() or self.work.cancelled() or self.work.exception() is not None:
            return "", False
        result = self.work.result()
        text = str(result.data.get("output", "")) if result.failure is None else result.failure.text()
        encoded = text.encode("utf-8", "replace")
        if self._most is None or len(encoded) <= self._most:
            return text, False
        return encoded[len(encoded) - self._most :].decode("utf-8", "ignore"), True

    @property
    def code(self) -> int:
        if self.work.cancelled() or self.work.exception() is not None or self.work.result().failure is not None:
            return 126
        code = self.work.result().data.get("exit_code")
        return code if isinstance(code, int) and code >= 0 else 1


class _Desk:
    """Answers what the program asks for, each time with a call through our own gate. It is the SDK's `Client`."""

    def __init__(self, ctx: ToolContext, name: str, tools: Collection[str], calls: int) -> None:
        self._ctx, self._name, self._tools, self._left = ctx, name, tools, calls
        self._labels = (Label(UNTRUSTED, f"agent {name}"),)
        self._terminals: dict[str, _Terminal] = {}
        self._number = 0
        self._text: list[str] = []
        self._size = 0
        self.session = ""

    def has(self, tool: str) -> bool:
        return tool in self._tools

    def on_connect(self, connection: ClientSideConnection) -> None:
        """Nothing to do: it asks, and we answer."""

    def error(self, problem: str, hint: str) -> ToolError:
        return ToolError(f"working with the agent {self._name}: {problem}", ErrorKind.SYSTEM, hint)

    def report(self, reason: str) -> ToolResult:
        text = "".join(self._text).strip() or "The agent said nothing."
        if reason != "end_turn":
            text = f"The agent ended early ({reason}). What there is:\n{text}"
        data = {"reason": reason, "calls": self._number}
        return ToolResult(for_llm=text, title=f"{self._name}: {reason}", data=data, labels=self._labels)

    async def close(self) -> None:
        for one in self._terminals.values():
            one.work.cancel()
        if works := [one.work for one in self._terminals.values()]:
            await asyncio.wait(works)

    # What it says.

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = getattr(update, "session_update", "")
        if session_id != self.session:
            return
        if kind == "agent_message_chunk" and getattr(update.content, "type", "") == "text":
            text = update.content.text
            if self._size < MOST_TEXT:
                self._text.append(text[: MOST_TEXT - self._size])
                self._size += len(text)
                if self._size >= MOST_TEXT:
                    self._text.append("\n[its answer is longer; the rest is left out]")
        elif kind == "tool_call":
            self._ctx.progress(f"{self._name}: {visible(str(update.title))[:200]}")

    # What it asks for.

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Calls a tool of ours for it. The arguments are its words: they are labelled as untrusted."""
        from acp import RequestError

        if tool not in self._tools:
            raise RequestError.method_not_found(f"{tool} is not among the tools of this sub-agent")
        self._take_one()
        self._number += 1
        inner = f"{self._ctx.call.id}.{self._number}"  # as `run_tool` names it
        provenance = current_provenance.get()
        if provenance is not None:
            from forge.permissions.labels.provenance import ScriptArguments  # a run has loaded it

            if self._number == 1:
                provenance.note_inner(self._ctx.call.id, f"the words of the agent {self._name}", self._labels)
            labels = dict.fromkeys(arguments, self._labels)
            provenance.note_arguments(inner, ScriptArguments(self._ctx.call.id, arguments, labels, frozenset()))
        try:
            result = await self._ctx.run_tool(tool, arguments, number=self._number)
        finally:
            if provenance is not None:
                provenance.forget_arguments(inner)
        if any(label.kind == PRIVATE for label in result.labels):  # whatever the program does with it, it would leave
            raise RequestError.internal_error({"details": f"the result of {tool} is private, and does not leave"})
        return result

    def _take_one(self) -> None:
        from acp import RequestError

        if self._left <= 0:
            raise RequestError.internal_error({"details": "the limit of calls of this task is reached"})
        self._left -= 1

    async def _checked(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        from acp import RequestError

        result = await self._call(tool, arguments)
        if result.failure is not None:
            raise RequestError.internal_error({"details": result.failure.text()})
        return result

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> Any:
        from acp import RequestError
        from acp.schema import ReadTextFileResponse

        await self._checked(READ, {"path": path, "limit": 1})  # the gate, and the record of files that were read
        try:
            content = await in_thread(lambda: read_file(self._ctx.scope, path, LONGEST_FILE))
            text = self._ctx.activity.secrets.mask(content.decode())
        except ToolError as error:
            raise RequestError.internal_error({"details": error.message}) from None
        except UnicodeDecodeError:
            raise RequestError.internal_error({"details": "it is not a text file"}) from None
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            lines = text.splitlines(keepends=True)[first:]
            text = "".join(lines if limit is None else lines[: max(limit, 0)])
        return ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        from acp.schema import WriteTextFileResponse

        await self._checked(WRITE, {"path": path, "content": content})
        return WriteTextFileResponse()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Sequence[Any], **_: Any
    ) -> RequestPermissionResponse:
        """Asks our gate about something that the program does itself. A yes is always for once."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        self._take_one()
        granted = True
        try:
            for permission, target in _find_needs(tool_call):
                await self._ctx.require(permission, target)
        except ToolError:
            granted = False
        wanted = "allow_once" if granted else "reject_once"
        chosen = next((one.option_id for one in options if one.kind == wanted), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> Any:
        from acp import RequestError
        from acp.schema import CreateTerminalResponse

        if env:
            raise RequestError.invalid_params({"details": "env is not supported: write `env NAME=value` before it"})
        if sum(not one.work.done() for one in self._terminals.values()) >= MOST_TERMINALS:
            raise RequestError.internal_error({"details": f"{MOST_TERMINALS} terminals are open already"})
        if RUN not in self._tools:
            raise RequestError.method_not_found("terminal/create")
        line = shlex.join([command, *args]) if args else command
        arguments = {"command": line, **({"working_dir": cwd} if cwd else {})}
        name = f"terminal-{len(self._terminals) + 1}-{os.urandom(4).hex()}"
        self._terminals[name] = _Terminal(asyncio.create_task(self._call(RUN, arguments)), output_byte_limit)
        return CreateTerminalResponse(terminal_id=name)

    def _terminal(self, terminal_id: str) -> _Terminal:
        from acp import RequestError

        if terminal_id not in self._terminals:
            raise RequestError.resource_not_found(brief(terminal_id))
        return self._terminals[terminal_id]

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        from acp.schema import TerminalExitStatus, TerminalOutputResponse

        found = self._terminal(terminal_id)
        text, cut = found.output
        status = TerminalExitStatus(exit_code=found.code) if found.work.done() else None
        return TerminalOutputResponse(output=text, truncated=cut, exit_status=status)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        from acp.schema import WaitForTerminalExitResponse

        found = self._terminal(terminal_id)
        await asyncio.wait({found.work})
        return WaitForTerminalExitResponse(exit_code=found.code)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        from acp.schema import KillTerminalResponse

        self._terminal(terminal_id).work.cancel()
        return KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        from acp.schema import ReleaseTerminalResponse

        self._terminal(terminal_id).work.cancel()  # it stays known: its task has to end
        return ReleaseTerminalResponse()


def _find_needs(tool_call: Any) -> list[tuple[Permission, str]]:
    """Returns what a call of the program needs. Kind and places are its own words: without them it may be anything."""
    permission = _KINDS.get(tool_call.kind or "", Permission.EXECUTE)
    title = visible(str(tool_call.title or tool_call.kind or "something"))[:1_000]
    raw = tool_call.raw_input if isinstance(tool_call.raw_input, Mapping) else {}
    if permission is Permission.EXECUTE:
        command = raw.get("command")
        return [(permission, command if isinstance(command, str) and command.strip() else title)]
    if permission is Permission.NETWORK:
        url = raw.get("url")
        return [(permission, url if isinstance(url, str) and url.strip() else title)]
    paths = [one.path for one in tool_call.locations or ()]
    paths += [one.path for one in tool_call.content or () if getattr(one, "type", "") == "diff"]
    if not paths:
        return [(Permission.EXECUTE, title)]  # nobody knows where: it may be anything
    if len(paths) > MOST_PATHS:
        raise ToolError(f"asking about {len(paths)} files at once", ErrorKind.PERMISSION, f"At most {MOST_PATHS}.")
    return [(permission, path) for path in dict.fromkeys(paths)]
