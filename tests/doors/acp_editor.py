"""An editor for tests: the SDK's own client over real pipes. Every message, both ways, is checked by its schema."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema_rs
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, spawn_agent_process, text_block
from acp.connection import StreamDirection, StreamEvent
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    WriteTextFileResponse,
)
from pydantic import TypeAdapter

import forge
from forge.doors.acp import AcpSettings, serve_streams
from forge.project.project import RunOptions

SHAPES: dict[str, tuple[Any, Any]] = {
    "initialize": (schema.InitializeRequest, schema.InitializeResponse),
    "authenticate": (schema.AuthenticateRequest, schema.AuthenticateResponse),
    "session/new": (schema.NewSessionRequest, schema.NewSessionResponse),
    "session/load": (schema.LoadSessionRequest, schema.LoadSessionResponse),
    "session/resume": (schema.ResumeSessionRequest, schema.ResumeSessionResponse),
    "session/fork": (schema.ForkSessionRequest, schema.ForkSessionResponse),
    "session/list": (schema.ListSessionsRequest, schema.ListSessionsResponse),
    "session/delete": (schema.DeleteSessionRequest, schema.DeleteSessionResponse),
    "session/close": (schema.CloseSessionRequest, schema.CloseSessionResponse),
    "session/set_mode": (schema.SetSessionModeRequest, schema.SetSessionModeResponse),
    "session/set_config_option": (
        schema.SetSessionConfigOptionSelectRequest | schema.SetSessionConfigOptionBooleanRequest,
        schema.SetSessionConfigOptionResponse,
    ),
    "session/prompt": (schema.PromptRequest, schema.PromptResponse),
    "session/cancel": (schema.CancelNotification, None),
    "session/update": (schema.SessionNotification, None),
    "session/request_permission": (schema.RequestPermissionRequest, schema.RequestPermissionResponse),
    "fs/read_text_file": (schema.ReadTextFileRequest, schema.ReadTextFileResponse),
    "fs/write_text_file": (schema.WriteTextFileRequest, schema.WriteTextFileResponse),
    "terminal/create": (schema.CreateTerminalRequest, schema.CreateTerminalResponse),
    "terminal/output": (schema.TerminalOutputRequest, schema.TerminalOutputResponse),
    "terminal/release": (schema.ReleaseTerminalRequest, schema.ReleaseTerminalResponse),
    "terminal/wait_for_exit": (schema.WaitForTerminalExitRequest, schema.WaitForTerminalExitResponse),
    "terminal/kill": (schema.KillTerminalRequest, schema.KillTerminalResponse),
    "elicitation/create": (schema.CreateElicitationRequest, schema.CreateElicitationResponse),
}


@cache
def _validator(method: str, part: int) -> Any:
    """The SDK's models forgive what is wrong in many fields; their JSON Schemas do not."""
    return jsonschema_rs.validator_for(TypeAdapter(SHAPES[method][part]).json_schema(by_alias=True))


class Checked:
    """Checks every message against the schema of its method. `observer` hears each, its direction and its method."""

    def __init__(
        self, observer: Callable[[str, str, dict[str, Any]], None] = lambda way, method, message: None
    ) -> None:
        self._observer = observer
        self.messages: list[tuple[str, str, dict[str, Any]]] = []  # the direction, the method, the message
        self.problems: list[str] = []
        self._asked: dict[tuple[str, Any], str] = {}

    def __call__(self, event: StreamEvent) -> None:
        way = "out" if event.direction is StreamDirection.OUTGOING else "in"
        message = event.message
        method = message.get("method")
        if method is not None:
            self._check(way, method, 0, message.get("params"))
            if "id" in message:
                self._asked[way, message["id"]] = method
        else:
            back = "in" if way == "out" else "out"
            method = self._asked.pop((back, message["id"]), "")
            if "result" in message and method:
                self._check(way, method, 1, message["result"])
            elif "error" in message:
                error = message["error"]
                assert isinstance(error["code"], int)
                assert isinstance(error["message"], str)
        self.messages.append((way, method or "", message))
        self._observer(way, method or "", message)

    def _check(self, way: str, method: str, part: int, value: Any) -> None:
        if method.startswith("_") or method not in SHAPES:
            return
        for error in _validator(method, part).iter_errors(value):
            self.problems.append(f"{way} {method} {error.message[:300]}")


class Editor:
    """The client: what it saw, what it answers."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)  # to permission requests, by the kind or the id of an option
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.buffers: dict[str, str] = {}  # unsaved text by path
        self.written: list[tuple[str, str]] = []
        self.forms: list[Any] = []
        self.reason = "Not like this."
        self.question = asyncio.Event()  # a permission request came
        self.hold = asyncio.Event()  # set: they are answered
        self.hold.set()
        self.changed = asyncio.Event()
        self.agent: Any

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def wait_for(self, seen: Callable[[], bool]) -> None:
        while not seen():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.asked.append((tool_call, options))
        self.question.set()
        await self.hold.wait()
        wanted = self.answers.pop(0) if self.answers else "cancelled"
        if wanted == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next((one.option_id for one in options if wanted in (one.kind, one.option_id)), wanted)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        try:
            return ReadTextFileResponse(content=Path(path).read_text())
        except OSError:
            raise RequestError.resource_not_found(path) from None

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        self.written.append((path, content))
        self.buffers.pop(path, None)
        Path(path).write_text(content)
        return WriteTextFileResponse()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        return schema.AcceptElicitationResponse(action="accept", content={"reason": self.reason})

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        return

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return

    # What the tests ask for.

    def of(self, kind: str) -> list[Any]:
        return [one for one in self.updates if one.session_update == kind]

    @property
    def said(self) -> str:
        return "".join(one.content.text for one in self.of("agent_message_chunk"))

    def calls(self) -> dict[str, list[Any]]:
        """The updates of each call, by its id."""
        found: dict[str, list[Any]] = {}
        for one in self.updates:
            if one.session_update in ("tool_call", "tool_call_update"):
                found.setdefault(one.tool_call_id, []).append(one)
        return found

    async def delete(self, session: str) -> Any:
        """The SDK's client has no method for it."""
        return await self.agent._conn.send_request("session/delete", {"sessionId": session})

    async def say(self, session: str, *blocks: Any) -> Any:
        given = [text_block(one) if isinstance(one, str) else one for one in blocks]
        return await asyncio.wait_for(self.agent.prompt(session_id=session, prompt=given), 60)


ALL = ClientCapabilities(
    fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
    elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()),
)
FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
TERMINALS = ClientCapabilities.model_validate({"_meta": {"terminal_output": True}})  # as Zed asks for them


@asynccontextmanager
async def forge_in(
    editor: Editor,
    workspace: Path,
    model: str,
    *,
    capabilities: ClientCapabilities | None = None,
    **settings: Any,
) -> AsyncIterator[Checked]:
    """The agent in this process, over pipes, initialized. At the end no message had a wrong shape."""
    theirs, ours = os.pipe(), os.pipe()
    serving = asyncio.create_task(
        serve_streams(
            AcpSettings(options=RunOptions(workspace=str(workspace)), model=model, **settings), theirs[0], ours[1]
        )
    )
    serving.add_done_callback(lambda _: os.close(ours[1]))  # as the end of a process does
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours[0], "rb"))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(theirs[1], "wb")
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    checked = Checked()
    client: Any = editor  # without terminals, which no test offers
    connection = connect_to_agent(client, writer, reader, observers=[checked], use_unstable_protocol=True)
    try:
        await asyncio.wait_for(connection.initialize(PROTOCOL_VERSION, capabilities or ClientCapabilities()), 60)
        yield checked
    finally:
        await connection.close()
        transport.close()
        await asyncio.wait_for(serving, 30)
        incoming.close()
        os.close(theirs[0])
    assert checked.problems == []


@asynccontextmanager
async def forge_process(
    editor: Editor,
    workspace: Path,
    *flags: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    capabilities: ClientCapabilities | None = None,
    **checks: Any,
) -> AsyncIterator[tuple[Checked, Any]]:
    """`forge acp` in a process of its own, over its standard streams, initialized."""
    checked = Checked(**checks)
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1]), **environment}
    client: Any = editor
    async with spawn_agent_process(
        client,
        sys.executable,
        "-m",
        "forge",
        "acp",
        *flags,
        env=environment,
        cwd=workspace,
        observers=[checked],
        use_unstable_protocol=True,
    ) as (connection, process):
        await asyncio.wait_for(connection.initialize(PROTOCOL_VERSION, capabilities or ClientCapabilities()), 60)
        yield checked, process
    assert checked.problems == []
