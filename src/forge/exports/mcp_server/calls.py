"""Runs the calls of MCP clients: cancels a call with its request, and keeps it open while a person is asked."""

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
from forge.exports.mcp_server import protocol_json as wire
from forge.exports.mcp_server.approver import Question, client
from forge.exports.mcp_server.progress import Reporter
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger(__name__)

MOST_AT_ONCE = 256  # calls that run
MOST_WAITING = 5_000  # calls that run or are queued
MOST_QUESTIONS = 100  # that wait for the client to repeat its request
PATIENCE = 600.0  # seconds for a person to answer
HURRY = 60.0  # seconds, if other calls wait and the client may be gone
GRACE = 1.5  # seconds for a cancelled call to clean up
QUESTION = "approval"  # the key of our question among the client's answers


@dataclass(eq=False, slots=True)
class ClientSession:
    """One client's connection. All clients of 2026-07-28 share one session, since their requests have no connection."""

    id: str
    is_shared: bool = False  # by clients that cannot be distinguished: an answer of one must not count for another
    calls: set[ClientCall] = field(default_factory=set)
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # for tools that must not run in parallel


class ClientCalls:
    """All calls of a server."""

    def __init__(self, executor: ToolExecutor, scope: Scope) -> None:
        self.executor = executor
        self.scope = scope
        self.slots = asyncio.Semaphore(MOST_AT_ONCE)
        self.questions: dict[str, ClientCall] = {}  # by request state
        self._count = 0
        self._reporters: dict[str, Reporter] = {}  # by call
        self._unsubscribe: Callable[[], None] | None = None

    async def answer(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams, session: ClientSession
    ) -> dict[str, Any] | InputRequiredResult:
        """Runs a call. Returns its result, or a question that the client answers by repeating its request."""
        if params.request_state is None:
            if self._count >= MOST_WAITING:
                busy = ToolResult.error(
                    f"{MOST_WAITING:,} calls wait already", ErrorKind.RATE_LIMITED, "Try again later."
                )
                return wire.result(busy, "")
            call = ClientCall(self, session, params)
        else:
            call = self._resume_call(params, session)
        return await call.await_answer(ctx)

    async def end(self, session: ClientSession) -> None:
        """Cancels the running calls of a session."""
        tasks = {call.task for call in session.calls}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    def _resume_call(self, params: CallToolRequestParams, session: ClientSession) -> ClientCall:
        call = self.questions.get(params.request_state or "")
        if call is None or call.session is not session or not call.is_of(params):
            raise MCPError(INVALID_PARAMS, "The question is not open any more: make the call without requestState.")
        del self.questions[call.state]
        call.take_answer((params.input_responses or {}).get(QUESTION))
        return call

    def add(self, call: ClientCall) -> None:
        self._count += 1
        call.session.calls.add(call)

    def remove(self, call: ClientCall) -> None:
        self._count -= 1
        call.session.calls.discard(call)
        self.questions.pop(call.state, None)

    def report(self, call: ToolCall, reporter: Reporter) -> None:
        """Starts progress reports of a call. Events cost time, so we subscribe only while a client wants them."""
        self._reporters[call.id] = reporter
        if self._unsubscribe is None:
            loop = asyncio.get_running_loop()

            def receive(event: ToolOutput | ToolProgress) -> None:
                if event.call.id in self._reporters:  # the listener may run in another thread
                    loop.call_soon_threadsafe(self._receive, event)

            self._unsubscribe = self.executor.activity.subscribe(receive, ToolOutput, ToolProgress)

    async def stop_reporting(self, call: ToolCall) -> None:
        await asyncio.sleep(0)  # lets the last events arrive
        if reporter := self.silence(call):
            await reporter.close()

    def silence(self, call: ToolCall) -> Reporter | None:
        reporter = self._reporters.pop(call.id, None)
        if not self._reporters and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        return reporter

    def _receive(self, event: ToolOutput | ToolProgress) -> None:
        if reporter := self._reporters.get(event.call.id):
            reporter.receive(event)


class ClientCall:
    """One call, in its own task: the SDK cancels repeatedly, which would interrupt every clean-up."""

    def __init__(self, calls: ClientCalls, session: ClientSession, params: CallToolRequestParams) -> None:
        self.calls = calls
        self.session = session
        self.call = ToolCall(params.name, params.arguments or {})
        self.state = ""  # the request state of the open question
        self._ctx: ServerRequestContext[Any, Any] | None = None
        self._news: asyncio.Future[None] | None = None
        self._open_question: tuple[str, Mapping[str, Any]] | None = None
        self._answer: asyncio.Future[Mapping[str, Any] | None] | None = None
        calls.add(self)
        inside = client.set(self)
        self.task = asyncio.create_task(self._run(), name=session.id)
        client.reset(inside)
        self.task.add_done_callback(self._finish)

    async def await_answer(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any] | InputRequiredResult:
        """Returns the result or the open question. If cancelled, cancels the call and waits for its clean-up."""
        self._ctx = ctx
        reports = ctx.meta is not None and ctx.meta.get("progress_token") is not None
        if reports:
            self.calls.report(self.call, Reporter(ctx.session.report_progress))
        try:
            if not self.task.done() and self._open_question is None:
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
        return self._make_answer() if self._open_question is None else self._question()

    async def _run(self) -> ToolResult:
        scope = replace(self.calls.scope, session_id=self.session.id, message_id=self.call.id)
        async with self.calls.slots:
            if self.calls.executor.registry.find(self.call.name).spec.parallel:
                return await self.calls.executor.execute(self.call, scope)
            async with self.session.alone:
                return await self.calls.executor.execute(self.call, scope)

    def _finish(self, task: asyncio.Task[ToolResult]) -> None:
        self.calls.remove(self)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _make_answer(self) -> dict[str, Any]:
        try:
            outcome = self.task.result()
        except asyncio.CancelledError:  # the session ended
            outcome = ToolResult.error("the call was cancelled: the server ends", ErrorKind.CANCELLED)
        except Exception as error:
            outcome = ToolResult.error(text_of(error), ErrorKind.SYSTEM)
        answer = wire.result(outcome, self.call.id, self.calls.executor.registry.find(self.call.name).spec)
        for call, late in self.calls.executor.background.take_completed(self.session.id):
            words = f"[The background work of {call.name}, call {call.id}, is over.]\n{late.for_llm}"
            answer["content"] += wire.result(replace(late, for_llm=words), call.id)["content"]
        return answer

    # the protocol `approver.Client`

    @property
    def person(self) -> str:
        known = self._ctx.session.client_params if self._ctx is not None else None
        return f"mcp:{one_line(known.client_info.name, 60)}" if known is not None else "mcp"

    @property
    def remembers(self) -> bool:
        return not self.session.is_shared

    def mask(self, text: str) -> str:
        return self.calls.executor.secrets.mask(text)

    def question(self) -> Question | None:
        ctx = self._ctx
        if ctx is None or not _has_forms(ctx):
            return None
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._ask_by_return if len(self.calls.questions) < MOST_QUESTIONS else None
        return self._ask if ctx.session.can_send_request else None

    async def _ask(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Asks the client while its request stays open."""
        assert self._ctx is not None
        session, request_id = self._ctx.session, self._ctx.request_id
        try:
            async with asyncio.timeout(PATIENCE):
                return _form_content(await session.elicit_form(message, dict(form), request_id))
        except (TimeoutError, MCPError, ValidationError) as error:
            log.warning("no answer to a question about %s: %s", self.call.name, one_line(text_of(error)))
            return None

    async def _ask_by_return(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answers the request with the question; the call resumes when the client repeats it with an answer."""
        self.state = secrets.token_urlsafe(24)
        self.calls.questions[self.state] = self
        self._open_question = (message, form)
        self._answer = asyncio.get_running_loop().create_future()
        self._wake()
        try:
            return await self._await_answer(self._answer)
        finally:
            self.calls.questions.pop(self.state, None)
            self._open_question = None

    async def _await_answer(self, answer: asyncio.Future[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
        """Waits for the answer. Gives up early if other calls wait, since a client may be gone without notice."""
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
        assert self._open_question is not None
        message, form = self._open_question
        request = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(form)))
        return InputRequiredResult(input_requests={QUESTION: request}, request_state=self.state)

    def is_of(self, params: CallToolRequestParams) -> bool:
        """Tells if a request repeats this call."""
        return params.name == self.call.name and _is_equal(params.arguments or {}, self.call.arguments)

    def take_answer(self, answer: object) -> None:
        self._open_question = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(_form_content(answer) if isinstance(answer, ElicitResult) else None)


def _has_forms(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Tells if the client supports forms. No mode at all means forms: old clients know nothing else."""
    declared = ctx.session.client_capabilities
    found = declared.elicitation if declared is not None else None
    return found is not None and (found.form is not None or found.url is None)


def _form_content(answer: ElicitResult) -> Mapping[str, Any] | None:
    return answer.content or {} if answer.action == "accept" else None


def _is_equal(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
