"""One call of an MCP client: it runs in its own task, asks its client questions, and may become a task."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, InputRequiredResult, ListRootsRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from forge.core.client import Capability, ClientRoot, LogLevel, MissingCapability
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import text_of
from forge.core.provider import Provider
from forge.core.result import ToolResult
from forge.core.untrusted import one_line
from forge.mcp.client.questions import ask_model
from forge.mcp.server import protocol_json
from forge.mcp.server.input_requests import (
    InputRequest,
    declares,
    form_request,
    read_form,
    read_roots,
    read_sample,
    required_capabilities,
    result_type,
    sample_request,
)
from forge.mcp.server.notifications import DEFAULT, LogSender, Reporter, levels_for
from forge.permissions.gate import Grant, PolicyGate
from forge.permissions.questions import ROUNDS, check_answer, check_form

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import ClientCapabilities


log = logging.getLogger(__name__)

PATIENCE = 600.0  # seconds for a person to answer
HURRY = 60.0  # seconds, if other calls wait and the client may be gone
GRACE = 1.5  # seconds for a cancelled call to clean up
TASK_AFTER = 10.0  # seconds after which a call becomes a task, if the client follows tasks


@dataclass(frozen=True, slots=True)
class CallRequest:
    """The work of one request: a call through an executor, and the protocol's format of its result."""

    method: str
    executor: ToolExecutor
    call: ToolCall
    convert: Callable[[ToolResult, str], dict[str, Any]]

    def is_like(self, other: CallRequest) -> bool:
        """Returns whether another request repeats this one."""
        return (self.method, self.call.name) == (other.method, other.call.name) and json.dumps(
            self.call.arguments, sort_keys=True
        ) == json.dumps(other.call.arguments, sort_keys=True)


@dataclass(eq=False, slots=True)
class ClientSession:
    """One client's connection. All clients of 2026-07-28 share one session, since their requests have no connection."""

    id: str
    user: str = ""  # of its access token
    is_shared: bool = False  # by clients that cannot be distinguished: an answer of one must not count for another
    calls: set[Any] = field(default_factory=set)
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # for tools that must not run in parallel
    log_level: LogLevel = DEFAULT


class TaskKeeper(Protocol):
    """Follows calls that outlive their request."""

    @property
    def has_room(self) -> bool: ...
    def start(self, call: Any) -> dict[str, Any]: ...
    def complete(self, call_id: str, result: ToolResult) -> bool: ...


class CallKeeper(Protocol):
    """The owner of all calls of a server."""

    executor: ToolExecutor
    scope: Scope
    model: Callable[[], Provider] | None
    slots: asyncio.Semaphore

    @property
    def tasks(self) -> TaskKeeper: ...
    @property
    def takes_questions(self) -> bool: ...
    def add(self, call: Any) -> None: ...
    def remove(self, call: Any) -> None: ...
    def open_questions(self, call: Any) -> None: ...
    def report(self, call: ToolCall, reporter: Reporter) -> None: ...
    async def stop_reporting(self, call: ToolCall) -> None: ...
    def silence(self, call: ToolCall) -> Reporter | None: ...
    def discard(self, work: Coroutine[Any, Any, ToolResult]) -> None: ...


class ClientCall:
    """One call, in its own task: the SDK cancels repeatedly, which would interrupt every clean-up.

    It is the `CallClient` of its tool.
    """

    def __init__(
        self, calls: CallKeeper, session: ClientSession, job: CallRequest, given: Mapping[str, object]
    ) -> None:
        self.calls = calls
        self.session = session
        self.job = job
        self.call = job.call
        self.state = ""  # the request state of the open questions
        self.is_detached = False  # its work continues after the answer
        self.is_task = False
        self.questions = OpenQuestions(self._wake_for_question)
        self.questions.given.update(given)
        self._ctx: ServerRequestContext[Any, Any] | None = None
        self._capabilities: ClientCapabilities | None = None
        self._version = ""
        self._person = "mcp"
        self._news: asyncio.Future[None] | None = None
        self._log: LogSender | None = None
        calls.add(self)
        self.task = asyncio.create_task(self._run(), name=session.id)
        self.task.add_done_callback(self._finish)

    async def await_answer(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any] | InputRequiredResult:
        """Returns the result, the open questions or a task. If cancelled, cancels the call and waits for its
        clean-up."""
        self._meet(ctx)
        reports = ctx.meta is not None and ctx.meta.get("progress_token") is not None
        if reports:
            self.calls.report(self.call, Reporter(ctx.session.report_progress))
        try:
            if not self.task.done() and not self.questions:
                await self._await_news()
            if reports:
                await self.calls.stop_reporting(self.call)
            if self._log is not None:
                await self._log.close()
        except asyncio.CancelledError:
            await self._abort()
            raise
        finally:
            self._ctx = self._log = None
        return self._make_answer()

    def _meet(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Learns about the client from its request."""
        self._ctx = ctx
        self._version = ctx.protocol_version
        self._capabilities = ctx.session.client_capabilities
        known = ctx.session.client_params
        self._person = f"mcp:{one_line(known.client_info.name, 60)}" if known is not None else "mcp"

    async def _await_news(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        if self._may_be_task:
            await asyncio.wait({self._news}, timeout=TASK_AFTER)
        else:
            await self._news

    async def _abort(self) -> None:
        self.calls.silence(self.call)
        if self._log is not None:
            self._log.drop()
        self.task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self.task}, timeout=GRACE)

    async def _run(self) -> ToolResult:
        outcome = await self._execute()
        if not outcome.pending or not self._waits:
            return outcome
        background, ids = self.job.executor.background, (self.session.id, self.call.id)
        try:
            return await background.await_call(*ids)
        except asyncio.CancelledError:
            background.cancel_call(*ids)
            self.calls.discard(background.await_call(*ids))
            raise

    async def _execute(self) -> ToolResult:
        executor = self.job.executor
        scope = self._make_scope()
        async with self.calls.slots:
            if executor.registry.find(self.call.name).spec.parallel:
                return await executor.execute(self.call, scope)
            async with self.session.alone:
                return await executor.execute(self.call, scope)

    def _make_scope(self) -> Scope:
        scope = self.calls.scope
        user = self.session.user or scope.user
        return replace(scope, session_id=self.session.id, message_id=self.call.id, user=user, client=self)

    def _finish(self, task: asyncio.Task[ToolResult]) -> None:
        self.calls.remove(self)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _wake_for_question(self) -> None:
        if not self.is_detached:
            self._wake()

    @property
    def _waits(self) -> bool:
        """True if background work is awaited: its client has no tasks, and a later result could reach another one."""
        return self.session.is_shared and not self._may_be_task

    @property
    def _may_be_task(self) -> bool:
        return self.job.method == "tools/call" and self.can("tasks") and self.calls.tasks.has_room

    def _make_answer(self) -> dict[str, Any] | InputRequiredResult:
        if not self.task.done() and self.questions and not self.is_detached:
            return self._ask_by_return()
        outcome = self.outcome() if self.task.done() else None
        if (outcome is None or outcome.pending) and self._may_be_task:
            return self.calls.tasks.start(self)
        assert outcome is not None
        self.check_capability(outcome)
        answer = self.convert(outcome)
        for call, late in self._take_late() if "content" in answer else ():
            if not self.calls.tasks.complete(call.id, late):
                message = f"[The background work of {call.name}, call {call.id}, is over.]\n{late.for_llm}"
                answer["content"] += protocol_json.result(replace(late, for_llm=message), call.id)["content"]
        return answer

    def _take_late(self) -> Iterable[tuple[ToolCall, ToolResult]]:
        """Returns the results of background work of this client. In a shared session they could be another's."""
        return () if self.session.is_shared else self.calls.executor.background.take_completed(self.session.id)

    def outcome(self) -> ToolResult:
        """Returns the result of the call once it is over."""
        try:
            return self.task.result()
        except asyncio.CancelledError:  # the session ended
            return ToolResult.error("the call was cancelled, because the server is shutting down", ErrorKind.CANCELLED)
        except Exception as error:
            return ToolResult.error(text_of(error), ErrorKind.SYSTEM)

    def convert(self, outcome: ToolResult) -> dict[str, Any]:
        return self.job.convert(outcome, self.call.id)

    def check_capability(self, outcome: ToolResult) -> None:
        """Raises the protocol's error if the tool needs what the client cannot do; older clients see a plain error."""
        cause = outcome.failure.cause if outcome.failure is not None else None
        if isinstance(cause, MissingCapability) and self._version in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                cause.message,
                {"requiredCapabilities": required_capabilities(cause.capability)},
            )

    def _ask_by_return(self) -> InputRequiredResult:
        """Answers the request with the questions; the call resumes when the client repeats it with answers."""
        self.state = secrets.token_urlsafe(24)
        self.calls.open_questions(self)
        return InputRequiredResult(input_requests=dict(self.questions.requests), request_state=self.state)

    # the protocol `CallClient`

    @property
    def person(self) -> str:
        return self._person

    @property
    def remembers(self) -> bool:
        return not self.session.is_shared

    def mask(self, text: str) -> str:
        return self.calls.executor.secrets.mask(text)

    def can(self, capability: Capability) -> bool:
        if not declares(self._capabilities, capability, self._version):
            return False
        if capability == "tasks" or self.is_task:
            return True
        if self._version in MODERN_PROTOCOL_VERSIONS:
            if self.is_detached:
                return self._may_be_task
            return self.calls.takes_questions
        return self._ctx is not None and self._ctx.session.can_send_request

    def require(self, capability: Capability) -> None:
        if not self.can(capability):
            raise MissingCapability(capability)

    async def show_form(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return read_form(await self._request(APPROVAL, form_request(message, form)))

    async def ask(self, message: str, form: Mapping[str, Any], *, key: str = "") -> Mapping[str, Any] | None:
        self.require("elicitation")
        check_form(form)
        problem = ""
        for _ in range(ROUNDS):
            request = form_request(self.mask(f"{problem}{message}"), form)
            filled = read_form(await self._request(key or "question", request))
            if filled is None:
                return None
            try:
                return check_answer(form, filled)
            except ToolError as error:
                problem = f"The answer does not fit: {one_line(error.message, 500)}\n"
        return None

    async def sample(
        self,
        prompt: str | Sequence[tuple[str, str]],
        *,
        system: str = "",
        max_tokens: int = 1_000,
        temperature: float | None = None,
        key: str = "",
    ) -> str:
        turns = [("user", prompt)] if isinstance(prompt, str) else prompt
        masked = [(role, self.mask(text)) for role, text in turns]
        request = sample_request(masked, self.mask(system), max_tokens, temperature)
        if not self.can("sampling") and self.calls.model is not None:
            return await self._sample_own_model(request)
        self.require("sampling")
        return read_sample(await self._request(key or "sample", request))

    async def list_roots(self, *, key: str = "") -> list[ClientRoot]:
        self.require("roots")
        return read_roots(await self._request(key or "roots", ListRootsRequest()))

    def log(self, level: LogLevel, text: str) -> None:
        if self._ctx is not None:
            if self._log is None:
                levels = levels_for(self._ctx, self.session.log_level)
                self._log = LogSender(self._ctx, self.call.name, levels, self.task.get_loop())
            self._log.write(level, self.mask(text))

    def detach(self) -> None:
        self.is_detached = not self._waits

    async def _request(self, key: str, request: InputRequest) -> object | None:
        """Sends a request to the client. Returns its answer; None if there is none."""
        if self._version in MODERN_PROTOCOL_VERSIONS or self.is_task:
            given = self.questions.take_given(key, request)
            return given if given is not None else await self.questions.ask(key, request, self._await_answer)
        if self._ctx is None:
            return None
        related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            async with asyncio.timeout(PATIENCE):
                found: object = await self._ctx.session.send_request(request, result_type(request), metadata=related)
                return found
        except (TimeoutError, MCPError, ValidationError) as error:
            log.warning("no answer to a question about %s: %s", self.call.name, one_line(text_of(error)))
            return None

    async def _await_answer(self, answer: asyncio.Future[object]) -> object | None:
        """Waits for the answer. Gives up early if other calls wait, since a client may be gone without notice."""
        waited = 0.0
        while waited < PATIENCE:
            done, _ = await asyncio.wait({answer}, timeout=min(HURRY, PATIENCE))
            if done:
                return answer.result()
            if len(self.session.calls) > 1 and not self.is_task:
                return None
            waited += HURRY
        return None

    async def _sample_own_model(self, request: Any) -> str:
        """Asks the server's own model, after an approval."""
        assert self.calls.model is not None
        registry = self.job.executor.registry
        scope = self._make_scope()
        ctx = ToolContext(self.call, registry.find(self.call.name), {}, scope, self.calls.executor.activity)
        gate = self.calls.executor.gate
        if isinstance(gate, PolicyGate):
            ctx.gate = Grant(gate)
        wire = request.params.model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await ask_model(self.call.name, ctx, wire, self.calls.model(), asker=f"The tool {self.call.name}")
        return str(answer["content"]["text"])


# --- The questions of one call that its client answers later, by repeating the request or by updating a task.


APPROVAL = "approval"  # the key of Forge's own questions
MOST_QUESTIONS = 20  # open questions of one call
LONGEST_KEY = 100  # characters


@dataclass(frozen=True, slots=True)
class _Question:
    request: InputRequest
    answer: asyncio.Future[object]


class OpenQuestions:
    """`notify` is called when a question opens."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._open: dict[str, _Question] = {}
        self.given: dict[str, object] = {}  # answers that came with the first request

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def requests(self) -> dict[str, InputRequest]:
        return {key: one.request for key, one in self._open.items()}

    def take_given(self, key: str, request: InputRequest) -> object | None:
        """Returns an answer that the client sent before it was asked. An approval is never given in advance."""
        if key == APPROVAL or not isinstance(self.given.get(key), result_type(request)):
            return None
        return self.given.pop(key)

    async def ask(
        self, key: str, request: InputRequest, wait: Callable[[asyncio.Future[object]], Any]
    ) -> object | None:
        """Opens a question and awaits its answer with `wait`; None if there was none."""
        if len(self._open) >= MOST_QUESTIONS:
            raise ToolError(
                f"a call can have {MOST_QUESTIONS} open questions", ErrorKind.RATE_LIMITED, "Ask fewer at once."
            )
        key = self._free_key(key[:LONGEST_KEY])
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._open[key] = _Question(request, answer)
        self._notify()
        try:
            found: object | None = await wait(answer)
            return found
        finally:
            self._open.pop(key, None)

    def answer(self, responses: Mapping[str, object]) -> None:
        """Takes the client's answers. Unknown keys and answers of another kind are ignored."""
        for key, response in responses.items():
            question = self._open.get(key)
            answer = _read(response, question.request) if question is not None else None
            if question is not None and answer is not None:
                del self._open[key]
                if not question.answer.done():
                    question.answer.set_result(answer)

    def _free_key(self, key: str) -> str:
        free, number = key, 1
        while free in self._open:
            number += 1
            free = f"{key}-{number}"
        return free


def _read(response: object, request: InputRequest) -> object | None:
    """Returns an answer of the right kind, which may have arrived as plain JSON; else None."""
    kind = result_type(request)
    if not isinstance(response, Mapping):
        return response if isinstance(response, kind) else None
    try:
        found: object = kind.model_validate(response, by_name=False)
        return found
    except ValidationError:
        return None
