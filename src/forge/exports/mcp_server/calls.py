"""The calls of MCP clients while they run: cancelled with their request, and held open while a person is asked."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from forge.core.context import Scope
from forge.core.errors import ErrorKind
from forge.core.events import ToolOutput, ToolProgress
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import text_of
from forge.core.result import ToolResult
from forge.exports.mcp_server import wire
from forge.exports.mcp_server.approver import Question, client
from forge.exports.mcp_server.progress import Reporter
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger(__name__)

MOST_AT_ONCE = 256  # calls that run
MOST_WAITING = 5_000  # calls that run or wait for their turn
MOST_QUESTIONS = 100  # that wait for their request to be made again
PATIENCE = 600.0  # seconds for a person to answer
HURRY = 60.0  # seconds, where other calls wait and the client may be gone
GRACE = 1.5  # seconds for a cancelled call to clean up
QUESTION = "approval"  # the key of our question among the client's answers


@dataclass(eq=False, slots=True)
class Session:
    """One client's connection; all clients of 2026-07-28, whose requests know no connection, share one."""

    id: str
    is_shared: bool = False  # by clients that cannot be told apart: no answer of one may count for another
    calls: set[Call] = field(default_factory=set)
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # for tools that must not run beside each other


class Calls:
    """All calls of a server."""

    def __init__(self, executor: ToolExecutor, scope: Scope) -> None:
        self.executor = executor
        self.scope = scope
        self.slots = asyncio.Semaphore(MOST_AT_ONCE)
        self.questions: dict[str, Call] = {}  # by the state that a request brings back
        self._count = 0
        self._reporters: dict[str, Reporter] = {}  # by call
        self._unsubscribe: Callable[[], None] | None = None

    async def answer(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams, session: Session
    ) -> dict[str, Any] | InputRequiredResult:
        """Run a call to its result, or to a question that the client answers by making its request again."""
        if params.request_state is None:
            if self._count >= MOST_WAITING:
                busy = ToolResult.error(
                    f"{MOST_WAITING:,} calls wait already", ErrorKind.RATE_LIMITED, "Try again later."
                )
                return wire.result(busy, "")
            call = Call(self, session, params)
        else:
            call = self._continued(params, session)
        return await call.until_news(ctx)

    async def end(self, session: Session) -> None:
        """Cancel what a session has running."""
        tasks = {call.task for call in session.calls}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    def _continued(self, params: CallToolRequestParams, session: Session) -> Call:
        call = self.questions.get(params.request_state or "")
        if call is None or call.session is not session or not call.is_of(params):
            raise MCPError(INVALID_PARAMS, "The question is not open any more: make the call without requestState.")
        del self.questions[call.state]
        call.take_answer((params.input_responses or {}).get(QUESTION))
        return call

    def started(self, call: Call) -> None:
        self._count += 1
        call.session.calls.add(call)

    def ended(self, call: Call) -> None:
        self._count -= 1
        call.session.calls.discard(call)
        self.questions.pop(call.state, None)

    def report(self, call: ToolCall, reporter: Reporter) -> None:
        """Events are only built when someone listens, so we listen only while a client wants to know."""
        self._reporters[call.id] = reporter
        if self._unsubscribe is None:
            loop = asyncio.get_running_loop()

            def heard(event: ToolOutput | ToolProgress) -> None:
                if event.call.id in self._reporters:  # a slow machine may have moved us to a thread
                    loop.call_soon_threadsafe(self._hear, event)

            self._unsubscribe = self.executor.activity.subscribe(heard, ToolOutput, ToolProgress)

    async def stop_reporting(self, call: ToolCall) -> None:
        await asyncio.sleep(0)  # what was heard just now
        if reporter := self.silence(call):
            await reporter.close()

    def silence(self, call: ToolCall) -> Reporter | None:
        reporter = self._reporters.pop(call.id, None)
        if not self._reporters and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        return reporter

    def _hear(self, event: ToolOutput | ToolProgress) -> None:
        if reporter := self._reporters.get(event.call.id):
            reporter.hear(event)


class Call:
    """One call, in a task of its own: the SDK cancels again and again, which would cut every clean-up short."""

    def __init__(self, calls: Calls, session: Session, params: CallToolRequestParams) -> None:
        self.calls = calls
        self.session = session
        self.call = ToolCall(params.name, params.arguments or {})
        self.state = ""  # of the question that is open
        self._ctx: ServerRequestContext[Any, Any] | None = None
        self._news: asyncio.Future[None] | None = None
        self._asked: tuple[str, Mapping[str, Any]] | None = None
        self._answer: asyncio.Future[Mapping[str, Any] | None] | None = None
        calls.started(self)
        inside = client.set(self)
        self.task = asyncio.create_task(self._run(), name=session.id)
        client.reset(inside)
        self.task.add_done_callback(self._ended)

    async def until_news(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any] | InputRequiredResult:
        """The result, or the question that is open. Cancelled, it cancels the call and waits until that cleaned up."""
        self._ctx = ctx
        reports = ctx.meta is not None and ctx.meta.get("progress_token") is not None
        if reports:
            self.calls.report(self.call, Reporter(ctx.session.report_progress))
        try:
            if not self.task.done() and self._asked is None:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
            if reports:
                await self.calls.stop_reporting(self.call)
        except asyncio.CancelledError:
            self.calls.silence(self.call)
            self.task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({self.task}, timeout=GRACE)
            raise
        finally:
            self._ctx = None
        return self._answered() if self._asked is None else self._question()

    async def _run(self) -> ToolResult:
        scope = replace(self.calls.scope, session_id=self.session.id, message_id=self.call.id)
        async with self.calls.slots:
            if self.calls.executor.registry.find(self.call.name).spec.parallel:
                return await self.calls.executor.execute(self.call, scope)
            async with self.session.alone:
                return await self.calls.executor.execute(self.call, scope)

    def _ended(self, task: asyncio.Task[ToolResult]) -> None:
        self.calls.ended(self)
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _answered(self) -> dict[str, Any]:
        try:
            outcome = self.task.result()
        except asyncio.CancelledError:  # with its session
            outcome = ToolResult.error("the call was cancelled: the server ends", ErrorKind.CANCELLED)
        except Exception as error:
            outcome = ToolResult.error(text_of(error), ErrorKind.SYSTEM)
        answer = wire.result(outcome, self.call.id, self.calls.executor.registry.find(self.call.name).spec)
        for call, late in self.calls.executor.background.take_completed(self.session.id):
            words = f"[The background work of {call.name}, call {call.id}, is over.]\n{late.for_llm}"
            answer["content"] += wire.result(replace(late, for_llm=words), call.id)["content"]
        return answer

    # what an approver needs of us

    @property
    def person(self) -> str:
        known = self._ctx.session.client_params if self._ctx is not None else None
        return f"mcp:{one_line(known.client_info.name, 60)}" if known is not None else "mcp"

    @property
    def remembers(self) -> bool:
        return not self.session.is_shared

    def masked(self, text: str) -> str:
        return self.calls.executor.secrets.mask(text)

    def question(self) -> Question | None:
        ctx = self._ctx
        if ctx is None or not _has_forms(ctx):
            return None
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._ask_by_return if len(self.calls.questions) < MOST_QUESTIONS else None
        return self._ask if ctx.session.can_send_request else None

    async def _ask(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The client is asked while its request stays open."""
        assert self._ctx is not None
        session, request_id = self._ctx.session, self._ctx.request_id
        try:
            async with asyncio.timeout(PATIENCE):
                return _filled(await session.elicit_form(message, dict(form), request_id))
        except (TimeoutError, MCPError, ValidationError) as error:
            log.warning("no answer to a question about %s: %s", self.call.name, one_line(text_of(error)))
            return None

    async def _ask_by_return(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The request is answered with the question, and the call goes on when it is made again with the answer."""
        self.state = secrets.token_urlsafe(24)
        self.calls.questions[self.state] = self
        self._asked = (message, form)
        self._answer = asyncio.get_running_loop().create_future()
        self._tell()
        try:
            return await self._awaited(self._answer)
        finally:
            self.calls.questions.pop(self.state, None)
            self._asked = None

    async def _awaited(self, answer: asyncio.Future[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
        """Nobody tells us that a client went away, and a session's questions are asked one after another."""
        waited = 0.0
        while waited < PATIENCE:
            done, _ = await asyncio.wait({answer}, timeout=min(HURRY, PATIENCE))
            if done:
                return answer.result()
            if len(self.session.calls) > 1:
                return None
            waited += HURRY
        return None

    def _question(self) -> InputRequiredResult:
        assert self._asked is not None
        message, form = self._asked
        asked = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(form)))
        return InputRequiredResult(input_requests={QUESTION: asked}, request_state=self.state)

    def is_of(self, params: CallToolRequestParams) -> bool:
        """Whether it is the same request once more."""
        return params.name == self.call.name and _same(params.arguments or {}, self.call.arguments)

    def take_answer(self, answer: object) -> None:
        self._asked = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(_filled(answer) if isinstance(answer, ElicitResult) else None)


def _has_forms(ctx: ServerRequestContext[Any, Any]) -> bool:
    """A client that names no mode at all means forms: once there was nothing else."""
    declared = ctx.session.client_capabilities
    found = declared.elicitation if declared is not None else None
    return found is not None and (found.form is not None or found.url is None)


def _filled(answer: ElicitResult) -> Mapping[str, Any] | None:
    return answer.content or {} if answer.action == "accept" else None


def _same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
