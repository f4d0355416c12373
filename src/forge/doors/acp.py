"""`forge acp`: a project's agent in an editor, over the Agent Client Protocol.

Each session is an `OpenSession` in a task of its own. The SDK reads and checks the messages; the transport below it is
ours, since lines, requests and waiting updates must be bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError
from acp.agent.connection import AgentSideConnection
from acp.helpers import ContentBlock
from acp.interfaces import Client
from acp.meta import AGENT_METHODS
from acp.schema import (
    AcceptElicitationResponse,
    AgentCapabilities,
    AllowedOutcome,
    AuthenticateResponse,
    AuthMethodAgent,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ClientCapabilities,
    CloseSessionResponse,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    DeleteSessionRequest,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    StopReason,
    UnstructuredCommandInput,
    Usage,
)

from forge.agent.result import RunResult
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import visible
from forge.doors.acp_files import add_editor
from forge.doors.acp_input import LineTransport, check_folder, check_stored, errors, invalid, read_blocks, read_servers
from forge.doors.acp_updates import (
    TERMINAL_OUTPUT,
    WHY,
    RunView,
    Update,
    UpdateQueue,
    make_options,
    make_question,
    read_choice,
    replay,
    text_chunk,
)
from forge.doors.open_session import COMMANDS, OpenSession, open_session
from forge.models.vendors import default_model
from forge.permissions.questions import Answer, Approver, PermissionRequest
from forge.process.running.standard_streams import own_streams
from forge.project.project import Project, RunOptions
from forge.project.runs.sessions import session_store
from forge.project.version import version
from forge.workspace.history.tracking import SessionState
from forge.workspace.state import NAME as STATE

log = logging.getLogger(__name__)

MOST_SESSIONS = 20  # that are open at once; the one used longest ago is closed, and opened again when it is needed
MOST_KNOWN = 1_000  # sessions that can be opened again
PAGE = 50  # sessions of one list
SETUP = "set-up"
MODE, MODEL = "mode", "model"  # the config options of a session
MODES = {
    "ask": "Ask before anything changes, unless a rule allows it",
    "accept edits": "Files of the workspace change without a question; everything else asks",
    "plan": "Nothing changes: read and plan",
}
STOPS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests",
    "max_calls": "max_turn_requests",
    "max_cost": "max_turn_requests",
    "max_time": "max_turn_requests",
    "loop": "max_turn_requests",
    "cancelled": "cancelled",
}

Servers = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSettings:
    """The settings of every session of an editor."""

    options: RunOptions
    model: str | None = None
    turns: int | None = None
    audit: str | None = None
    logs: bool = True
    approve: Approver | None = None  # instead of the person at the editor
    report: Callable[[str], None] = log.warning


async def serve_acp(workspace: str | os.PathLike[str] = ".", *, model: str | None = None) -> None:
    """Serves a project's agent to the editor that started this program, over the standard streams, until it ends.

    Args:
        workspace: the directory of sessions that name none.
        model: instead of the configured model.

    Example:
        >>> asyncio.run(serve_acp("project"))  # doctest: +SKIP
    """
    await serve(AcpSettings(options=RunOptions(workspace=os.fspath(workspace)), model=model))


async def serve(settings: AcpSettings) -> None:
    """Serves over the standard streams until the editor closes them, or this is cancelled."""
    with own_streams() as (given, taken):
        await serve_streams(settings, given, taken)


async def serve_streams(settings: AcpSettings, given: int, taken: int) -> None:
    """Serves an editor that writes to one file descriptor and reads from the other."""
    transport = LineTransport(given, taken)
    agent = AcpAgent(settings, transport.close_soon)
    connection = AgentSideConnection(agent, transport, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
    finally:
        await agent.close()
        await connection.close()


class AcpAgent:
    """The agent's side of the protocol: its methods are called by the SDK, with checked messages."""

    def __init__(self, settings: AcpSettings, give_up: Callable[[], None]) -> None:
        self.settings = settings
        self.give_up = give_up
        self.client: Client
        self.capabilities = ClientCapabilities()
        self._home = os.path.abspath(settings.options.workspace or ".")
        self._sessions: dict[str, AcpSession] = {}  # the one used last is the last
        self._listed: dict[str, Path] = {}  # the directories of sessions that were listed

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        self.capabilities = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_info=Implementation(name="forge", title="Forge", version=version()),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    fork=SessionForkCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                ),
            ),
            auth_methods=[
                AuthMethodAgent(
                    id=SETUP,
                    name="Set up a model",
                    description="Set an API key, such as ANTHROPIC_API_KEY, in the environment of the editor's entry"
                    " for Forge, or name a model with `forge acp --model`.",
                )
            ],
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Looks whether there is a model now: Forge has no login of its own."""
        if method_id != SETUP:
            raise invalid(f"authenticating: there is no method {visible(method_id[:60])!r}", f"Use {SETUP}.")
        if self.settings.model is None and await in_thread(default_model) is None:
            raise RequestError.auth_required({"details": "No model is set.", "hint": "Set an API key, then try again."})
        return AuthenticateResponse()

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        session = await self._open(cwd, None, mcp_servers, additional_directories)
        session.announce_soon()
        return NewSessionResponse(
            session_id=session.id, modes=session.mode_state(), config_options=session.config_options()
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Servers | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        session = await self._open(cwd, session_id, mcp_servers, additional_directories)
        await session.replay()
        session.announce_soon()
        return LoadSessionResponse(modes=session.mode_state(), config_options=session.config_options())

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        session = await self._open(cwd, session_id, mcp_servers, additional_directories)
        session.announce_soon()
        return ResumeSessionResponse(modes=session.mode_state(), config_options=session.config_options())

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        folder = check_folder(cwd)
        name = f"{session_id[:150]}-{os.urandom(3).hex()}"
        with errors(f"copying the session {visible(session_id[:60])}"), session_store(folder) as store:
            store.fork(session_id, name)
        session = await self._open(cwd, name, mcp_servers, additional_directories)
        session.announce_soon()
        return ForkSessionResponse(
            session_id=session.id, modes=session.mode_state(), config_options=session.config_options()
        )

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """Lists the stored sessions of a directory, a page at a time."""
        folder = check_folder(cwd or self._home)
        if cursor is not None and not re.fullmatch(r"\d{1,9}", cursor):
            raise invalid(f"listing sessions: {visible(cursor[:60])!r} is no cursor", "Use the one of the last answer.")
        first = int(cursor or 0)
        if not (folder / STATE).is_dir():
            return ListSessionsResponse(sessions=[])
        with errors("listing the sessions"), session_store(folder) as store:
            infos = store.list()
        listed = [
            SessionInfo(
                session_id=one.name,
                cwd=str(folder),
                title=visible(one.title).replace("\n", " ") or None,
                updated_at=datetime.fromtimestamp(one.updated, UTC).isoformat(),
            )
            for one in infos[first : first + PAGE]
        ]
        self._listed |= {one.session_id: folder for one in listed}
        for name in [*self._listed][:-MOST_KNOWN]:
            del self._listed[name]
        more = str(first + PAGE) if len(infos) > first + PAGE else None
        return ListSessionsResponse(sessions=listed, next_cursor=more)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._find(session_id)
        del self._sessions[session_id]
        await session.close()
        return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        session = await self._use(session_id)
        with errors("changing the mode"):
            session.set_mode(mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = await self._use(session_id)
        with errors(f"setting {visible(config_id[:60])!r}"):
            await session.set_option(config_id, value)
        return SetSessionConfigOptionResponse(config_options=session.config_options())

    async def prompt(self, session_id: str, prompt: list[ContentBlock], **_: Any) -> PromptResponse:
        session = await self._use(session_id)
        return await session.prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stops the run of a session. A notification has no answer, so an unknown session is only logged."""
        session = self._sessions.get(session_id)
        if session is None:
            log.warning("the editor cancelled a session that is not open")
            return
        session.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == AGENT_METHODS["session_delete"]:
            await self._delete_session(DeleteSessionRequest.model_validate(params).session_id)
            return {}
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignores extensions, as the protocol asks for."""

    async def _delete_session(self, name: str) -> None:
        """Removes a session for good. A run of it is stopped. The protocol wants no error for one that there is not."""
        folder = self._listed.pop(name, Path(self._home))
        if (session := self._sessions.pop(name, None)) is not None:
            folder = session.folder
            session.cancel()
            await session.close()
        if not (folder / STATE).is_dir():
            return
        with errors(f"deleting the session {visible(name[:60])!r}"), session_store(folder) as store:
            try:
                store.delete(name)
            except ToolError as error:
                if error.kind is ErrorKind.NOT_FOUND:
                    return
                raise
            SessionState(folder).remove(name)

    async def close(self) -> None:
        """Ends all sessions; their runs are stopped."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for one in sessions:
            one.cancel()
        await asyncio.gather(*(one.close() for one in sessions), return_exceptions=True)

    async def _open(
        self, cwd: str, name: str | None, servers: Servers | None, directories: list[str] | None
    ) -> AcpSession:
        if directories:
            raise invalid("opening a session: additionalDirectories cannot be used", "Open a session in each of them.")
        folder = check_folder(cwd)
        if name is not None:
            with errors(f"opening the session {visible(name[:60])!r}"):
                check_stored(folder, name)
            if (before := self._sessions.get(name)) is not None:
                if before.is_busy:
                    raise invalid(f"opening the session {name}: a prompt runs in it", "Wait for its end, or cancel it.")
                del self._sessions[name]
                await before.close()
        session = AcpSession(self, folder, servers or ())
        await session.open(name)
        self._sessions[session.id] = session
        await self._close_oldest()
        return session

    async def _use(self, session_id: str) -> AcpSession:
        """Returns a session, opened again if it was closed because others were used."""
        session = self._find(session_id)
        self._sessions[session_id] = self._sessions.pop(session_id)
        async with session.opening:
            if not session.is_open:
                await session.open(session_id)
                await self._close_oldest()
        return session

    def _find(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise invalid(
                f"there is no open session {visible(session_id[:60])!r}", "Open it with session/new or session/load."
            )
        return session

    async def _close_oldest(self) -> None:
        is_open = [one for one in self._sessions.values() if one.is_open]
        for one in [one for one in is_open[:-1] if not one.is_busy][: max(0, len(is_open) - MOST_SESSIONS)]:
            await one.close()
        for name in [name for name, one in self._sessions.items() if not one.is_open][:-MOST_KNOWN]:
            del self._sessions[name]


class AcpSession:
    """One session of the editor: its `OpenSession`, its questions and its updates."""

    def __init__(self, agent: AcpAgent, folder: Path, servers: Servers) -> None:
        self.id = ""
        self.folder = folder
        self._agent, self._servers = agent, servers
        self._session: OpenSession | None = None
        self._view: RunView
        self._queue: UpdateQueue
        self._holding: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.opening = asyncio.Lock()
        self._question = asyncio.Lock()
        self._prompts = 0
        self._notes: list[str] = []  # such as servers that are left out; the person reads them with the next answer
        self._steered: asyncio.Future[StopReason] | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None

    @property
    def is_busy(self) -> bool:
        return self._prompts > 0

    @property
    def session(self) -> OpenSession:
        assert self._session is not None
        return self._session

    async def open(self, name: str | None) -> None:
        """Opens the session in a task of its own, which also closes it. Raises `RequestError`."""
        opened: asyncio.Future[OpenSession] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._holding = asyncio.create_task(self._hold(name, opened))
        try:
            with errors(f"opening a session in {self.folder}"):
                await asyncio.shield(opened)
        except BaseException:
            self._closing.set()
            if not opened.done():
                self._holding.cancel()
            raise

    async def _hold(self, name: str | None, opened: asyncio.Future[OpenSession]) -> None:
        settings = self._agent.settings
        options = replace(settings.options, workspace=str(self.folder))
        try:
            async with open_session(
                options,
                name,
                approve=settings.approve or self._ask,
                model=settings.model if name is None else None,
                turns=settings.turns,
                audit=settings.audit,
                logs=settings.logs,
                report=self._note,
                prepare=self._add_servers,
            ) as session:
                self._take(session)
                opened.set_result(session)
                try:
                    await self._closing.wait()
                finally:
                    self._session = None
                    await session.close()
                    await self._queue.close()
        except (ToolError, DefinitionError, ValueError, OSError) as error:
            if opened.done():
                log.error("closing the session %s: %s", self.id, error)
            else:
                opened.set_exception(error)
        except asyncio.CancelledError:
            opened.cancel()
            raise

    def _take(self, session: OpenSession) -> None:
        self.id, self._session = session.name, session
        session.writes_title = session.project.configuration.agent.session_titles
        self._queue = UpdateQueue(self._send, self._agent.give_up)
        meta = self._agent.capabilities.field_meta or {}
        self._view = RunView(session.agent, self._queue.put, terminals=meta.get(TERMINAL_OUTPUT) is True)
        session.agent.activity.subscribe(self._view.take)
        fs = self._agent.capabilities.fs
        if fs is not None and fs.read_text_file:
            session.agent.steps = add_editor(session.agent.steps, EditorMethods(self._agent, self.id))

    def _note(self, text: str) -> None:
        self._agent.settings.report(text)
        self._notes.append(text)

    def _add_servers(self, project: Project) -> None:
        entries = read_servers(self._servers, taken=project.sources.servers)
        if entries:
            project.sources.add_servers(entries, project.workspace)

    async def close(self) -> None:
        self._closing.set()
        if self._holding is not None:
            await asyncio.wait([self._holding])

    async def _send(self, update: Update) -> None:
        await self._agent.client.session_update(self.id, update)

    async def replay(self) -> None:
        """Sends the stored conversation. The answer to the request follows."""
        for update in replay(self.session.messages, self.session.agent):
            await self._send(update)

    def announce_soon(self) -> None:
        """Tells which commands there are, once the request that opened the session is answered."""
        asyncio.get_running_loop().call_soon(self.announce)

    def announce(self) -> None:
        """Tells which commands there are."""
        if self._session is None:
            return
        commands = [
            AvailableCommand(
                name=name[1:],
                description=visible(text) or name,
                input=AvailableCommandInput(root=UnstructuredCommandInput(hint="what follows the command"))
                if name in ("/mode", "/model", "/undo") or name not in COMMANDS
                else None,
            )
            for name, text in sorted(self._session.commands().items())
        ]
        self._queue.put(
            AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        )

    # Prompts.

    async def prompt(self, blocks: Sequence[ContentBlock]) -> PromptResponse:
        """Runs a prompt; while one runs, its text is a message to that run. Raises `RequestError`."""
        session = self.session
        with errors("reading the prompt"):
            prompt = read_blocks(blocks, session)
        self._prompts += 1
        try:
            with errors("running the prompt"):
                if isinstance(prompt, str) and (words := await session.command(prompt)) is not None:
                    self._queue.put(text_chunk(f"```\n{words}\n```"))
                    self._report_settings()
                    return await self._finish("end_turn")
                if isinstance(prompt, str) and self._steered is not None and self._steer(prompt):
                    return await self._finish(await asyncio.shield(self._steered))
                return await self._run(prompt)
        finally:
            self._prompts -= 1

    def _steer(self, text: str) -> bool:
        try:
            self.session.send(text)
        except ToolError:  # the run has just ended
            return False
        return True

    async def _run(self, prompt: str | Message) -> PromptResponse:
        running: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        if self._steered is None:
            self._steered = running
        for note in self._notes:
            self._queue.put(text_chunk(f"Note: {visible(note)}\n\n"))
        self._notes.clear()
        self._view.begin()
        stop: StopReason = "end_turn"
        try:
            result = await self.session.run(prompt)
            stop = find_stop(result)
            self._add_last_words(result)
        finally:
            running.set_result(stop)
            if self._steered is running:
                self._steered = None
        if result.error is not None:
            await self._queue.flush()
            raise ToolError(result.error.message, result.error.kind, result.error.suggestion)
        return await self._finish(stop, result)

    def _add_last_words(self, result: RunResult) -> None:
        """Sends what the model said through a tool, such as a question, and why a limit ended the run."""
        if result.text and result.text[-1_000:] not in self._view.said:
            self._queue.put(text_chunk(result.text))
        if result.reason.startswith("max_") or result.reason in ("loop", "length"):
            self._queue.put(text_chunk(f"\n\nStopped by a limit: {result.reason.replace('_', ' ')}."))

    async def _finish(self, stop: StopReason, result: RunResult | None = None) -> PromptResponse:
        await self._queue.flush()
        if result is None:
            return PromptResponse(stop_reason=stop)
        spent = result.usage
        usage = Usage(
            total_tokens=spent.total,
            input_tokens=spent.input,
            output_tokens=spent.output,
            thought_tokens=spent.reasoning,
            cached_read_tokens=spent.cached,
            cached_write_tokens=spent.cache_writes,
        )
        return PromptResponse(stop_reason=stop, usage=usage)

    def cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()

    # Questions.

    async def _ask(self, request: PermissionRequest) -> Answer:
        """Asks the person at the editor. Everything but a clear yes is a no."""
        async with self._question:
            await self._queue.flush()
            if request.form is not None:
                return await self._ask_form(request)
            options = make_options(request, can_say_why=self._has_forms)
            question = make_question(request, self._view, self.session.project.workspace)
            try:
                response = await self._agent.client.request_permission(self.id, question, options)
            except ConnectionError:  # the editor is gone: the run ends, and does not go on with a no
                self.cancel()
                raise
            if not isinstance(response.outcome, AllowedOutcome):
                return Answer.no(by="cancelled")
            answer = read_choice(response.outcome.option_id, options)
            if response.outcome.option_id == WHY:
                return Answer.no(await self._ask_why(), by="editor")
            return answer

    @property
    def _has_forms(self) -> bool:
        can = self._agent.capabilities.elicitation
        return can is not None and can.form is not None

    async def _ask_why(self) -> str:
        fields = {"reason": {"type": "string", "title": "Reason for the model", "maxLength": 4000}}
        given = await self._fill_in("Why not? The model reads it.", {"type": "object", "properties": fields})
        reason = (given or {}).get("reason")
        return reason[:4000] if isinstance(reason, str) else ""

    async def _ask_form(self, request: PermissionRequest) -> Answer:
        if not self._has_forms:
            return Answer.no("the editor cannot show forms, so the question was not asked", by="error")
        given = await self._fill_in(request.question, dict(request.form or {}))
        return Answer.no(by="editor") if given is None else Answer.edit(given, by="editor")

    async def _fill_in(self, message: str, form: Mapping[str, Any]) -> dict[str, Any] | None:
        schema = ElicitationSchema.model_validate(form)
        mode = ElicitationFormSessionMode(session_id=self.id, requested_schema=schema)
        try:
            response = await self._agent.client.create_elicitation(message, mode)
        except RequestError:
            return None
        return dict(response.content or {}) if isinstance(response, AcceptElicitationResponse) else None

    # The mode and the model.

    def mode_state(self) -> SessionModeState:
        modes = [SessionMode(id=one, name=one.capitalize(), description=MODES[one]) for one in self.session.modes]
        return SessionModeState(current_mode_id=self.session.mode, available_modes=modes)

    def config_options(self) -> list[Any]:
        """Returns what the person can choose: the mode and the model."""
        session = self.session
        models = [SessionConfigSelectOption(value=one, name=one) for one in self._list_models()]
        modes = [
            SessionConfigSelectOption(value=one, name=one.capitalize(), description=MODES[one]) for one in session.modes
        ]
        return [
            SessionConfigOptionSelect(
                type="select", id=MODE, name="Mode", category="mode", current_value=session.mode, options=modes
            ),
            SessionConfigOptionSelect(
                type="select",
                id=MODEL,
                name="Model",
                category="model",
                description="/model NAME uses another one",
                current_value=session.agent.model,
                options=models,
            ),
        ]

    def _list_models(self) -> list[str]:
        """Returns the models that are configured; the current one is the first."""
        configuration = self.session.project.configuration
        named = [self.session.agent.model, self._agent.settings.model, configuration.agent.model]
        named += [getattr(one, "model", None) for one in configuration.agents.values()]
        return list(dict.fromkeys(one for one in named if one))

    async def set_option(self, option: str, value: str | bool) -> None:
        """Raises `ToolError` for an option or a value that there is not."""
        if option == MODE and isinstance(value, str):
            self.set_mode(value)
        elif option == MODEL and value in self._list_models():
            self.session.use_model(str(value))
        else:
            known = ", ".join(self._list_models()) if option == MODEL else f"{MODE}, {MODEL}"
            raise ToolError(f"there is no {visible(str(value)[:60])!r}", ErrorKind.USER, f"Choose one of: {known}.")

    def set_mode(self, mode: str) -> None:
        self.session.set_mode(mode)
        self._queue.put(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.session.mode))

    def _report_settings(self) -> None:
        """Tells the mode and the model after a command, which may have changed them."""
        self._queue.put(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.session.mode))
        update = ConfigOptionUpdate(session_update="config_option_update", config_options=self.config_options())
        self._queue.put(update)  # type: ignore[arg-type]


def find_stop(result: RunResult) -> StopReason:
    """Returns why a run ended, in the words of the protocol."""
    if result.reason in STOPS:
        return STOPS[result.reason]
    last = result.messages[-1] if result.messages else None
    return "refusal" if last is not None and last.finish == "refused" else "end_turn"


class EditorMethods:
    """The file methods of the editor, for one session."""

    def __init__(self, agent: AcpAgent, session: str) -> None:
        self._agent, self._session = agent, session

    @property
    def can_write(self) -> bool:
        fs = self._agent.capabilities.fs
        return fs is not None and bool(fs.write_text_file)

    async def read(self, path: str) -> str | None:
        try:
            return (await self._agent.client.read_text_file(self._session, path)).content
        except RequestError:  # the editor does not have it
            return None

    async def write(self, path: str, text: str) -> None:
        try:
            await self._agent.client.write_text_file(self._session, path, text)
        except RequestError as error:
            problem = f"writing {path}: the editor refused: {visible(str(error)[:200])}"
            raise ToolError(problem, ErrorKind.SYSTEM, "Ask the person to save the file, then try again.") from None
