"""AG-UI: a front end runs an agent over HTTP and gets its events as a stream. An ASGI app for FastAPI and Starlette.

A thread is a stored session: its history is ours, and of what a front end sends only its new messages count. A
question for a person ends the request with an interrupt; the run waits, in memory or in the store, for the request that
answers it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ag_ui import core as agui
from ag_ui.encoder import EventEncoder
from pydantic import ValidationError

from forge.agent.agent import Agent
from forge.agent.conversation import Conversation
from forge.agent.result import ENDINGS, RunResult
from forge.agent.session import SessionStore
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.events import Event, ToolFinished
from forge.core.execution.threads import in_thread
from forge.core.messages import InnerCall, Message, unanswered_calls
from forge.core.plain_values import plain, sendable
from forge.core.provider import name_model
from forge.doors.agui_events import (
    Translation,
    client_ids,
    custom,
    make_interrupt,
    snapshot,
    usage_of,
)
from forge.doors.agui_input import (
    PREFIX,
    check_ids,
    explain_invalid,
    find_ignored,
    make_prompt,
    read_answers,
)
from forge.network.asgi import read_body, send_until_disconnect
from forge.network.request_guard import RequestGuard
from forge.permissions.questions import Answer, PermissionRequest, ask_approver
from forge.project.project import Project
from forge.project.runs.sessions import open_conversation, session_store

if TYPE_CHECKING:
    from starlette.types import Receive, Send
    from starlette.types import Scope as Request

log = logging.getLogger(__name__)

MAX_BODY = 8 * 1024 * 1024  # bytes of a request: a front end may send its whole history, which nobody reads
BODY = 30.0  # seconds for a body to arrive
MOST_RUNS = 20  # at once
MOST_HELD = 100  # runs that wait for a person in memory; the oldest goes on from the store later
HOLD = 600.0  # seconds that a run waits for a person in memory
MOST_BEHIND = 50_000  # events that wait for a reader
MOST_BYTES = 8 * 1024 * 1024  # characters of them, about
BEAT = 15.0  # seconds between two signs of life
PATIENCE = 30.0  # seconds that a reader may take for a piece: then it is gone
CLOSING = 5.0  # seconds for runs to end when the server does
QUESTIONS = "agui questions"  # the key in a session's `meta` of what a person is asked

NameSession = Callable[["Request", str], str]


def agui_app(
    agent: Agent | Project,
    *,
    token: str | None,
    hosts: Collection[str] = (),
    store: SessionStore | None = None,
    model: str | None = None,
    name_session: NameSession | None = None,
    path: str = "/",
    most_runs: int = MOST_RUNS,
) -> AguiApp:
    """Returns an ASGI app that serves an agent to AG-UI front ends.

    Mount it in FastAPI or Starlette, and enter it in the lifespan of that app: `async with front: yield`. Without that,
    the first request opens the agent, and only the end of the process closes it.

    Args:
        agent: a project, or an agent. Where nobody answers an agent's questions, front ends do.
        token: what front ends send as `Authorization: Bearer TOKEN`. None: the app around it checks who calls, and from
            which origin.
        hosts: host names, beside this machine's own, that requests and pages may come from.
        store: where threads are stored; by default the workspace's.
        model: of a project: another model than the configured one.
        name_session: returns the session of a thread, from the ASGI scope of the request and the thread's id. Raise
            `ToolError` to refuse. By default the id with "agui-" before it: whoever knows the id can read the thread.
        path: where it answers, below the place where it is mounted.
        most_runs: how many runs may work at once.

    Example:
        >>> front = agui_app(Agent(Scripted("Hello!")), token=None)
        >>> front.path
        '/'
    """
    if token is not None and not token:
        raise ValueError('agui_app(token=""): give a token, or None where the app around it checks who calls')
    if isinstance(agent, Project):
        store = store if store is not None else session_store(agent.workspace)
        agent = agent.agent(model)
    elif model is not None:
        raise ValueError("agui_app(model=…): the agent has a model; agent.replace(model=…) gives it another")
    store = store if store is not None else SessionStore.of(agent.scope.workspace)
    return AguiApp(agent, store, token, hosts, name_session or _name_session, path, most_runs)


def _name_session(request: Request, thread: str) -> str:
    return f"{PREFIX}{thread}"


class _Question(NamedTuple):
    """A question that waits for a person in memory."""

    interrupt: agui.Interrupt
    answer: asyncio.Future[Answer]
    can_wait: bool  # nothing of its call has happened: it may run later, from the store


@dataclass(eq=False)
class _Thread:
    """A thread with a run in this process, or with a request that is about to start one."""

    name: str
    translation: Translation
    task: asyncio.Task[RunResult[Any]] | None = None
    conversation: Conversation | None = None
    queue: deque[tuple[Event, int]] = field(default_factory=deque)
    size: int = 0  # of the queue, about
    is_lost: bool = False  # the queue was too long, and is gone
    reader: object | None = field(default_factory=object)  # the request that reads it
    news: asyncio.Event = field(default_factory=asyncio.Event)
    questions: dict[str, _Question] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)  # to questions that are asked again
    sent: dict[str, str] = field(default_factory=dict)  # ids of messages to the run, by their text
    held: asyncio.TimerHandle | None = None

    @property
    def is_working(self) -> bool:
        return self.task is not None and not self.task.done() and not self.questions

    def take(self) -> tuple[Event, int] | None:
        if not self.queue:
            self.size = 0
            return None
        return self.queue.popleft()


class AguiApp:
    """The app of `agui_app`."""

    def __init__(
        self,
        agent: Agent,
        store: SessionStore,
        token: str | None,
        hosts: Collection[str],
        name_session: NameSession,
        path: str,
        most_runs: int,
    ) -> None:
        self.agent, self.store, self.path = agent, store, path
        self._name_session, self._most_runs = name_session, most_runs
        self._guarded = self._serve if token is None else RequestGuard(self._serve, token, hosts)
        self._threads: dict[str, _Thread] = {}
        self._otherwise = agent.gate.approve
        agent.gate.approve = self._ask
        self._encoder = EventEncoder()
        self._holding: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    # Opening and closing: one task holds the agent, since what it opens must be closed where it was opened.

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closing.set()
        if self._holding is not None:
            await asyncio.wait({self._holding})

    async def _open(self) -> None:
        if self._holding is None:
            self._loop = asyncio.get_running_loop()
            self._opened = self._loop.create_future()
            self._holding = asyncio.create_task(self._hold(self._opened))
        assert self._opened is not None
        await asyncio.shield(self._opened)

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        stop: Callable[[], None] = self.agent.activity.subscribe(self._hear)
        try:
            async with self.agent:
                opened.set_result(None)
                await self._closing.wait()
                await self._end_runs()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error if isinstance(error, Exception) else RuntimeError("the server is stopping"))
        finally:
            stop()
            await self.agent.activity.drain()
            self._holding, self._opened = None, None
            self._closing.clear()

    async def _end_runs(self) -> None:
        """Puts away the runs that wait for a person, and stops the others."""
        left = [thread for thread in self._threads.values() if thread.task is not None and not thread.task.done()]
        for thread in left:
            self._put_away(thread) if thread.questions else self._stop(thread)
        tasks = {thread.task for thread in left if thread.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSING)
            for task in late:
                task.cancel()

    # HTTP.

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._guarded(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._open()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.__aexit__()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Request, receive: Receive, send: Send) -> None:
        if self._closing.is_set():
            await _refuse(send, 503, "starting a run: the server is stopping", "Try again when it is back.")
            return
        if _route(scope).rstrip("/") != self.path.rstrip("/"):
            await _refuse(send, 404, "answering a request: there is nothing at this path", f"POST to {self.path}.")
            return
        if scope["method"] != "POST":
            await _refuse(send, 405, "answering a request: only POST is known here", "POST a RunAgentInput as JSON.")
            return
        kind = [value for name, value in scope["headers"] if name.lower() == b"content-type"]
        if [one.partition(b";")[0].strip().lower() for one in kind] != [b"application/json"]:
            hint = "Send a RunAgentInput with the Content-Type application/json."
            await _refuse(send, 415, "reading a request: it is not JSON", hint)
            return
        body = None
        with suppress(TimeoutError):
            async with asyncio.timeout(BODY):
                body = await read_body(receive, MAX_BODY)
        if body is None:
            hint = "Send only the new messages: the history is stored here."
            await _refuse(send, 413, f"reading a request: it may have {MAX_BODY:,} bytes, in {BODY:g} s", hint)
            return
        try:
            given = agui.RunAgentInput.model_validate_json(body)
            check_ids(given)
            name = self._name_session(scope, given.thread_id)
        except (ValidationError, ToolError, RecursionError) as error:
            problem = error.message if isinstance(error, ToolError) else explain_invalid(error)
            await _refuse(send, 422, f"reading a RunAgentInput: {problem}", "Send what AG-UI 1.0 describes.")
            return
        await self._stream(given, name, receive, send)

    async def _stream(self, given: agui.RunAgentInput, name: str, receive: Receive, send: Send) -> None:
        """Sends the events until the end, or until the front end leaves: then its run is cancelled."""
        await send_until_disconnect(receive, self._send(given, name, send))

    async def _send(self, given: agui.RunAgentInput, name: str, send: Send) -> None:
        headers = [
            (b"content-type", f"{self._encoder.get_content_type()}; charset=utf-8".encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self._events(given, name)) as events:
            async for event in events:
                text = ": still here\n\n" if event is None else self._encoder.encode(event)
                async with asyncio.timeout(PATIENCE):
                    body = text.encode("utf-8", "replace")
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    # One request: its events, from the first to the last. None is a sign of life.

    async def _events(self, given: agui.RunAgentInput, name: str) -> AsyncGenerator[agui.BaseEvent | None, None]:
        yield agui.RunStartedEvent(
            thread_id=given.thread_id, run_id=given.run_id, protocol_version=agui.PROTOCOL_VERSION
        )
        if ignored := find_ignored(given):
            yield custom("ignored", ignored)
        try:
            await self._open()
            async with aclosing(self._answer(given, name)) as events:
                async for event in events:
                    yield event
        except ToolError as error:
            yield self._error(error.message, error.suggestion, str(error.kind))
        except Exception:
            log.exception("a request of a front end failed")
            yield self._error("working on a request: it failed inside Forge", "The server's log says why.", "internal")

    async def _answer(self, given: agui.RunAgentInput, name: str) -> AsyncGenerator[agui.BaseEvent | None, None]:
        known = self._threads.get(name)
        if known is not None:
            async with aclosing(self._join(known, given)) as events:
                async for event in events:
                    yield event
            return
        thread = self._threads[name] = _Thread(name, Translation(self.agent.scope.agent, self._take_id(name)))
        try:
            async with aclosing(self._begin(thread, given)) as events:
                async for event in events:
                    yield event
        finally:
            if thread.task is None:  # it started no run
                self._forget(thread)

    async def _begin(self, thread: _Thread, given: agui.RunAgentInput) -> AsyncGenerator[agui.BaseEvent | None, None]:
        """Starts a run of a thread that has none here, or shows what is stored of it."""
        messages, asked = await in_thread(lambda: self._read(thread.name))
        prompt = make_prompt(given.messages, {id for one in messages for id in client_ids(one)})
        questions = {one.id: one for one, _ in asked}
        if given.resume:
            answers = read_answers(questions, given.resume)
            says_no = all(answer.kind == "no" for answer in answers.values())
            if prompt is not None and not says_no:
                message = "continuing a thread: it got an answer to a question and a new message at once"
                raise ToolError(message, ErrorKind.USER, "Send the answer first, and the message with the next run.")
            await in_thread(lambda: self._keep(thread.name, []))
            thread.answers = answers
            self._start(thread, prompt, [call for _, call in asked if call])
        elif questions and prompt is not None:
            raise _unanswered(questions)
        elif prompt is None:
            yield from_snapshot(snapshot(messages, self.agent.secrets))
            yield _finish(given, _interrupted(questions.values()))
            return
        else:
            self._start(thread, prompt, ())
        async for event in self._follow(thread, given):
            yield event

    async def _join(self, thread: _Thread, given: agui.RunAgentInput) -> AsyncGenerator[agui.BaseEvent | None, None]:
        """Answers the questions of a run that waits, or sends a message to one that works."""
        known = {*thread.sent.values()}
        messages = (
            thread.conversation.messages
            if thread.conversation is not None
            else (await in_thread(lambda: self._read(thread.name)))[0]
        )
        prompt = make_prompt(given.messages, known | {id for one in messages for id in client_ids(one)})
        questions = {id: one.interrupt for id, one in thread.questions.items()}
        if given.resume:
            if thread.reader is not None and not questions:
                message = "answering a question: the thread has none, and its run is in progress"
                raise ToolError(message, ErrorKind.NOT_FOUND, "Wait for the end of the run.")
            answers = read_answers(questions, given.resume)
            if prompt is not None:
                self._say(thread, prompt)
            await in_thread(lambda: self._keep(thread.name, []))
            if {*thread.questions} != {*questions} or any(one.answer.done() for one in thread.questions.values()):
                raise ToolError("answering a question: another request answered it", ErrorKind.USER, "Load the thread.")
            self._release(thread)
            for id, answer in answers.items():
                thread.questions.pop(id).answer.set_result(answer)
            async for event in self._follow(thread, given):
                yield event
        elif prompt is None:
            yield from_snapshot(snapshot(messages, self.agent.secrets))
            yield _finish(given, _interrupted(questions.values()), None if questions else {"inProgress": True})
        elif questions:
            raise _unanswered(questions)
        else:
            self._say(thread, prompt)
            yield _finish(given, None, {"sentToRun": True})

    def _say(self, thread: _Thread, prompt: Message) -> None:
        """Sends a message to the run in progress. Raises `ToolError`."""
        if prompt.attachments:
            message = "sending a message to the run in progress: it has files"
            raise ToolError(message, ErrorKind.USER, "Send text, or wait for the end of the run.")
        thread.sent[prompt.text] = client_ids(prompt)[-1]
        while len(thread.sent) > MOST_HELD:
            del thread.sent[next(iter(thread.sent))]
        self.agent.send(prompt.text, thread.name)

    async def _follow(self, thread: _Thread, given: agui.RunAgentInput) -> AsyncGenerator[agui.BaseEvent | None, None]:
        """Yields what happens in the run, until it is over or asks a person."""
        assert thread.task is not None
        thread.reader = reader = object()
        thread.translation.has_state = False
        try:
            if thread.is_lost and thread.conversation is not None:
                thread.is_lost = False
                yield from_snapshot(snapshot(thread.conversation.messages, self.agent.secrets))
            while True:
                while (found := thread.take()) is not None:
                    for event in thread.translation.events(*found):
                        yield event
                if thread.is_lost:
                    message = "following a run: this reader was too slow, so the run was cancelled"
                    raise ToolError(message, ErrorKind.RATE_LIMITED, "Load the thread: what was done is stored.")
                if thread.task.done():
                    for event in self._last_events(thread, thread.task, given):
                        yield event
                    return
                if thread.questions:
                    for event in thread.translation.close(suspended=True):
                        yield event
                    asked = _interrupted(one.interrupt for one in thread.questions.values())
                    self._leave(thread)  # before the last event: its reader may answer at once
                    yield _finish(given, asked)
                    return
                thread.news.clear()
                try:
                    async with asyncio.timeout(BEAT):
                        await thread.news.wait()
                except TimeoutError:
                    yield None
        finally:
            if thread.reader is reader:
                self._leave(thread)

    def _last_events(
        self, thread: _Thread, task: asyncio.Task[RunResult[Any]], given: agui.RunAgentInput
    ) -> Iterable[agui.BaseEvent]:
        yield from thread.translation.close()
        if task.cancelled():
            yield _finish(given, agui.RunFinishedCancelledOutcome())
            return
        if (error := task.exception()) is not None:
            if not isinstance(error, ToolError):
                raise error
            yield self._error(error.message, error.suggestion, str(error.kind))
            return
        result = task.result()
        usage = usage_of(result, *name_model(self.agent.provider))
        if result.error is not None:
            yield self._error(result.error.message, result.error.suggestion, str(result.error.kind), usage)
        elif result.reason == "cancelled":
            yield _finish(given, agui.RunFinishedCancelledOutcome(), usage=usage)
        elif result.reason.startswith("max_") or result.reason in ("loop", "length"):
            problem = f"working on the prompt: the run ended early ({result.reason})"
            yield self._error(problem, "Send a message to go on.", result.reason, usage)
        elif result.reason == "waiting":
            asked = [one for one, _ in self._read(thread.name)[1]]
            yield _finish(given, _interrupted(asked), usage=usage)
        else:
            if result.reason in ENDINGS.values() and result.text:
                yield from thread.translation.say(self.agent.secrets.mask_all(result.text))
            value: dict[str, Any] = {"reason": result.reason}
            if result.has_output:
                value["output"] = plain(result.output_or_none)
            yield _finish(given, agui.RunFinishedSuccessOutcome(), value, usage)

    def _error(self, message: str, hint: str, code: str, usage: Any = None) -> agui.RunErrorEvent:
        text = self.agent.secrets.mask_all(f"{message}. {hint}" if hint else message)
        return agui.RunErrorEvent(message=sendable(text), code=code, usage=usage)

    # The run of a thread.

    def _start(self, thread: _Thread, prompt: Message | None, not_started: Sequence[str]) -> None:
        if sum(one.is_working for one in self._threads.values()) >= self._most_runs:
            message = f"starting a run: {self._most_runs} runs work already"
            raise ToolError(message, ErrorKind.RATE_LIMITED, "Try again when one is over.")
        thread.task = asyncio.create_task(self._work(thread, prompt, not_started), name=f"agui {thread.name}")
        thread.task.add_done_callback(lambda _: self._ended(thread))

    async def _work(self, thread: _Thread, prompt: Message | None, not_started: Sequence[str]) -> RunResult[Any]:
        name = thread.name
        result: RunResult[Any] | None = None
        try:
            async with self.store.turn(name):
                stored = await in_thread(lambda: open_conversation(self.store, name, self.agent))
                thread.conversation = stored.conversation
                while True:
                    result = await self.agent.run(
                        prompt,
                        history=stored.conversation,
                        session=name,
                        prepare=stored.shortening,
                        not_started=not_started,
                    )
                    last = stored.conversation.messages[-1:]
                    is_over = result.error is not None or result.reason in ("cancelled", "waiting")
                    if is_over or not last or last[0].role != "user":
                        return result
                    prompt, not_started = None, ()  # a message came after the last turn: the model answers it, too
        finally:
            if (result is None or result.reason != "waiting") and thread.conversation is not None:
                with suppress(ToolError):
                    self._keep(name, [])

    def _ended(self, thread: _Thread) -> None:
        thread.news.set()
        if thread.reader is None:
            self._forget(thread)

    def _leave(self, thread: _Thread) -> None:
        """Notes that nobody reads any more: a run that waits for a person is kept, another one is cancelled."""
        thread.reader = None
        assert thread.task is not None
        if thread.task.done():
            self._forget(thread)
        elif not thread.questions:
            if not thread.is_lost:
                self._stop(thread)
        elif thread.held is None:
            thread.held = asyncio.get_running_loop().call_later(HOLD, self._put_away, thread)
            held = [one for one in self._threads.values() if one.held is not None]
            if len(held) > MOST_HELD:
                self._put_away(min(held, key=lambda one: one.held.when() if one.held is not None else 0.0))

    def _forget(self, thread: _Thread) -> None:
        self._release(thread)
        if self._threads.get(thread.name) is thread:
            del self._threads[thread.name]
        if thread.task is not None and thread.task.done() and not thread.task.cancelled():
            thread.task.exception()  # it is told, or nobody is there to be told

    def _release(self, thread: _Thread) -> None:
        if thread.held is not None:
            thread.held.cancel()
            thread.held = None

    def _stop(self, thread: _Thread) -> None:
        if not self.agent.cancel(thread.name) and thread.task is not None:
            thread.task.cancel()

    def _put_away(self, thread: _Thread) -> None:
        """Ends a run that waits for a person. If nothing of the call has happened, the answer starts it again."""
        self._release(thread)
        if any(not one.can_wait for one in thread.questions.values()):
            self._stop(thread)
            return
        for one in thread.questions.values():
            if not one.answer.done():
                one.answer.set_exception(Waiting("it waits for a person at a front end"))

    def _hear(self, event: Event) -> None:
        loop = self._loop
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._take(event)
        elif loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        """Queues an event for its reader. A reader that is too far behind loses its run."""
        thread = self._threads.get(event.session)
        if thread is None or thread.is_lost:
            return
        thread.queue.append((event, len(thread.conversation.messages) if thread.conversation is not None else 0))
        thread.size += _size(event)
        if len(thread.queue) > MOST_BEHIND or thread.size > MOST_BYTES:
            thread.queue.clear()
            thread.size, thread.is_lost = 0, True
            if thread.reader is not None:
                self._stop(thread)
        thread.news.set()

    # Questions.

    async def _ask(self, request: PermissionRequest) -> Answer | bool:
        """Asks the front end of the session: an `Approver`."""
        thread = self._threads.get(request.scope.session_id)
        if thread is None or thread.task is None or thread.task.done():
            return await ask_approver(self._otherwise, request)
        interrupt = make_interrupt(request, self.agent.secrets)
        if (given := thread.answers.pop(interrupt.id, None)) is not None:
            return given
        await self.agent.activity.drain()  # what led to the question comes before it
        is_own = request.scope.agent == self.agent.scope.agent and not isinstance(request.call, InnerCall)
        question = _Question(interrupt, asyncio.get_running_loop().create_future(), request.is_before_call and is_own)
        kept = [(interrupt, request.call.id if question.can_wait else "")]
        await in_thread(lambda: self._keep(thread.name, kept))
        thread.questions[interrupt.id] = question
        thread.news.set()
        if thread.reader is None:
            self._leave(thread)
        try:
            return await question.answer
        finally:
            thread.questions.pop(interrupt.id, None)

    def _read(self, name: str) -> tuple[list[Message], list[tuple[agui.Interrupt, str]]]:
        """Returns what is stored of a thread: its messages, and its open questions with the calls they are about."""
        try:
            session = self.store.show(name)
        except ToolError as error:
            if error.kind is not ErrorKind.NOT_FOUND:
                raise
            return [], []
        if session.problem:
            raise ToolError(f"opening the thread: {session.problem}", ErrorKind.SECURITY, "Begin another thread.")
        stored = session.meta.get(QUESTIONS)
        left = {call.id for call in unanswered_calls(session.messages)}
        asked = []
        for one in stored if isinstance(stored, list) else ():
            with suppress(ValidationError, LookupError, TypeError):
                interrupt = agui.Interrupt.model_validate(one["interrupt"])
                call = str(one["call"])
                if call in left if call else left:  # else the session went on elsewhere
                    asked.append((interrupt, call))
        return session.messages, asked

    def _keep(self, name: str, asked: Sequence[tuple[agui.Interrupt, str]]) -> None:
        """Stores the open questions of a thread."""
        meta = self.store.open(name).meta
        if asked:
            meta[QUESTIONS] = [
                {"interrupt": one.model_dump(mode="json", by_alias=True), "call": call} for one, call in asked
            ]
        else:
            with suppress(KeyError):
                del meta[QUESTIONS]

    def _take_id(self, name: str) -> Callable[[str], str]:
        def take(text: str) -> str:
            thread = self._threads.get(name)
            return thread.sent.get(text, "") if thread is not None else ""

        return take


def from_snapshot(made: tuple[agui.MessagesSnapshotEvent, int]) -> agui.MessagesSnapshotEvent:
    """Returns the snapshot, which says how many older messages it leaves out."""
    event, left_out = made
    if left_out:
        event.metadata = {"forge": {"olderMessages": left_out}}
    return event


def _size(event: Event) -> int:
    text = getattr(event, "text", "")
    size = 500 + (len(text) if isinstance(text, str) else 0)
    if isinstance(event, ToolFinished):
        size += len(event.result.for_llm) + sum(len(one.data) * 4 // 3 for one in event.result.attachments)
    return size


def _finish(
    given: agui.RunAgentInput, outcome: Any = None, result: Any = None, usage: Any = None
) -> agui.RunFinishedEvent:
    return agui.RunFinishedEvent(
        thread_id=given.thread_id, run_id=given.run_id, outcome=outcome, result=result, usage=usage
    )


def _interrupted(asked: Iterable[agui.Interrupt]) -> agui.RunFinishedInterruptOutcome | None:
    found = [*asked]
    return agui.RunFinishedInterruptOutcome(interrupts=found) if found else None


def _unanswered(questions: Mapping[str, agui.Interrupt]) -> ToolError:
    message = f"sending a message: the thread waits for answers to {len(questions)} question(s)"
    return ToolError(message, ErrorKind.USER, "Answer or cancel them first, with `resume`.")


def _route(scope: Request) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


async def _refuse(send: Send, status: int, problem: str, hint: str) -> None:
    body = json.dumps({"error": {"message": problem, "hint": hint}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", b"5")] if status == 503 else []
    headers += [(b"allow", b"POST")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
