"""Runs prompts of one person with one agent at the terminal: output, questions, interrupts, lines typed meanwhile.

`forge run PROMPT` runs one; `chat` reads one after the other; `durable_run` uses its parts.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from forge.agent.agent import Agent
from forge.agent.output import Structured
from forge.agent.result import ANSWER
from forge.agent.session import SessionStore
from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.running.event_log import log_events
from forge.cli.running.loop_thread import LoopThread
from forge.cli.running.tool_names import print_note
from forge.cli.terminal.approve import ask_on_terminal
from forge.cli.terminal.event_thread import Screen, View
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.keyboard import read_typed
from forge.cli.terminal.output import Ndjson, OnlyTheAnswer, Output, as_ascii
from forge.cli.terminal.render import ForPeople
from forge.core.context import Scope
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.events import Event, MessageReceived
from forge.core.messages import Message
from forge.core.plain_values import text_of
from forge.core.result import Failure
from forge.core.spec import Permission
from forge.permissions.questions import Answer, Approver, PermissionRequest, approve_all, nobody
from forge.project.project import Project, RunOptions
from forge.project.runs.sessions import (
    StoredConversation,
    new_name,
    open_conversation,
    session_store,
    title_session,
    unstored_conversation,
)

if TYPE_CHECKING:
    from forge.cli.terminal.input_line import InputLine
    from forge.models.cache import ExplainedModel

MODEL = "model"  # the key in a session's `meta`
PATIENCE = 5.0  # seconds that a person who leaves waits for the title of the session

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The flags of `forge run` beside the common flags."""

    model: str | None
    max_turns: int | None
    quiet: bool
    plain: bool  # no colours, no keys, no rendered Markdown
    audit: str | None
    no_audit: bool
    session: str | None  # None: a new one
    built: str | None = None  # a directory that `forge build` wrote
    expect: str | None = None  # the SHA-256 of its manifest
    output_schema: str | None = None  # a file
    explain_cache: bool = False
    reads_stdin: bool = False  # it carries prompts, so no one can be asked there


class PromptRunner:
    """Runs prompts of one session. It belongs to the person's thread; the agent works on the loop's thread."""

    def __init__(
        self, loop: LoopThread, view: View, project: Project, agent: Agent, questions: Questions, screen: Screen
    ) -> None:
        self.loop = loop
        self.workspace = project.workspace
        self.servers = project.sources.servers  # open while the agent is
        self.session = project.scope.session_id
        self._configuration = project.configuration
        self.view = view
        self.agent = agent
        self.screen = screen
        self.store: SessionStore | None = None
        self.chosen_model: str | None = None  # the one of --model, which the session remembers
        self.invocation = ["forge", "run"]  # the command that resumes, without the session
        self.writes_title = False  # the model writes the title of a new session
        self.typed: TypedMessages | None = None
        self.line: InputLine | None = None
        self.is_busy = False  # a run or other work that Ctrl-C stops is in progress
        self._is_stopping = False
        self._questions = questions
        self._stored: StoredConversation | None = None
        self._title: Future[None] | None = None

    @property
    def stored(self) -> StoredConversation:
        """The stored conversation. A session is created when it is first needed."""
        if self._stored is None:
            agent, name = self.agent, self.session
            self._stored = (
                open_conversation(self.store, name, agent) if self.store else unstored_conversation(agent, name)
            )
            if self._stored.session is not None and self.chosen_model is not None:
                self._stored.session.meta[MODEL] = self.chosen_model
        return self._stored

    @property
    def has_begun(self) -> bool:
        return self._stored is not None

    def switch(self, name: str) -> None:
        """Switches to another session. Raises `ToolError`."""
        if self.store is not None:
            self._stored = open_conversation(self.store, name, self.agent)
            self.session = name

    def check_runs(self) -> None:
        """Raises `ToolError` if a stored run of the session is not over."""
        from forge.project.runs.durable_runs import check_runs_are_over  # few conversations use it

        check_runs_are_over(self._configuration, self.workspace, self.session)

    def begin_anew(self, name: str) -> None:
        """Begins another session under a new name."""
        self._stored, self.session, self._title = None, name, None

    def use_model(self, name: str) -> None:
        """Remembers the model for the session; what is sent to it is shortened for its window from now on."""
        self.chosen_model, self._stored = name, None
        if isinstance(self.view, ForPeople):
            self.view.rename_model(name)

    def hear_typed(self) -> None:
        """Sends lines that are typed during a run to the run from now on."""
        self.typed = self._questions.typed = TypedMessages(lambda text: self.agent.send(text, self.session))

    def use_line(self, line: InputLine) -> None:
        """Writes above this line from now on, and takes it away for questions."""
        self.line = self.screen.line = line
        if isinstance(self.view, ForPeople):
            self.view.out.write_above(line)

        def hear(event: Event) -> None:
            if isinstance(event, MessageReceived) and event.agent == self.agent.scope.agent:
                line.received()

        self.agent.activity.subscribe(hear)

    def stop(self) -> None:
        """Stops the run in progress, once. Safe from any thread."""
        if not self._is_stopping:
            self._is_stopping = True
            self.loop.cancel()
            self.screen.note("Stopping.")

    def next_typed(self) -> str | None:
        """Returns the next line that was typed during the run and came too late for it."""
        return self.typed.waiting.popleft() if self.typed is not None and self.typed.waiting else None

    def ask(self, prompt: str | Message | None, *, wait: bool = False) -> Ending:
        """Runs a prompt to the end and shows the run. Raises `OSError` if the output cannot be written,
        `KeyboardInterrupt` at the second Ctrl-C: even then the run has its last line.
        """
        started, waited = time.monotonic(), self._questions.waited
        self.is_busy, self._is_stopping = True, False

        async def run() -> Ending:
            stored = self.stored
            turn = self.store.turn(self.session, self._note_waiting) if self.store is not None else nullcontext()
            async with turn, self._questions.turn(), self.typed.during_run() if self.typed else nullcontext():
                stored.refresh()
                result = await self.agent.run(
                    prompt,
                    history=stored.conversation,
                    session=self.session,
                    prepare=stored.shortening,
                    wait_for_background=wait,
                )
            if result.has_output:
                result.text = json.dumps(result.output_or_none, ensure_ascii=False)
            return Ending.of(result, time.monotonic() - started - (self._questions.waited - waited))

        self.screen.begin()
        try:
            ending = self.loop.do(run(), self._note_stopping)
        except asyncio.CancelledError:
            ending = Ending(reason="cancelled", seconds=time.monotonic() - started)
        except ToolError as error:  # the conversation cannot be stored
            failure = Failure(error.message, error.kind, error.suggestion)
            ending = Ending(reason="error", error=failure)
        except BaseException as error:
            reason = "cancelled" if isinstance(error, KeyboardInterrupt) else "error"
            self.screen.finish(Ending(reason=reason, text="" if reason == "cancelled" else text_of(error)))
            with suppress(OSError):
                self.screen.wait_until_shown(1.0)
            raise
        finally:
            self.is_busy = False
        if self.line is not None:  # before the end is shown: what is typed then is the next message
            self.screen.wait_until_shown()
            self.line.end_run(stopped=ending.reason == "cancelled")
        self.screen.finish(ending)
        self.screen.wait_until_shown()
        if self.line is not None:
            messages = self.stored.conversation.messages
            if ending.error is None and ending.reason != "cancelled" and messages and messages[-1].role == "user":
                return self.ask(None, wait=wait)  # a message came after the last turn: the model answers it, too
        self._start_title(ending)
        return ending

    def _start_title(self, ending: Ending) -> None:
        """Starts to write the title of a new session beside what the person does next."""
        session = self.stored.session
        is_wanted = self.writes_title and self._title is None and ending.error is None and ending.reason != "cancelled"
        if is_wanted and session is not None and not session.has_given_title:
            self._title = self.loop.start(title_session(self.agent, session))

    def wait_for_title(self, seconds: float = PATIENCE) -> None:
        """Waits for a title that is being written, then gives up on it."""
        if self._title is not None:
            with suppress(CancelledError, TimeoutError):
                self._title.result(seconds)
            self._title.cancel()

    def do(self, work: Coroutine[Any, Any, T], typed_tool: str = "") -> T:
        """Runs other work than an agent's run, such as a call of a tool by a person's command. Raises what the work
        raises.
        """
        self.is_busy, self._is_stopping = True, False

        async def run() -> T:
            async with self._questions.turn(typed_tool):
                return await work

        self.screen.begin()
        try:
            return self.loop.do(run(), self._note_stopping)
        finally:
            self.is_busy = False
            self.screen.finish()
            self.screen.wait_until_shown()

    def say_goodbye(self, ending: Ending | None = None) -> None:
        """Prints how to resume the conversation, and the unused entries of a scripted model."""
        check = getattr(self.agent.provider, "check", None)
        if check is not None and (ending is None or ending.reason != "cancelled"):
            try:
                check()
            except ToolError as error:
                self.screen.note(f"Note: {error.message}.")
        if self.has_begun and self.stored.session is not None:
            again = shlex.join([*self.invocation, "--session", self.session])
            self.screen.note(f"session {self.session} · resume: {again}")
        self.screen.wait_until_shown()

    def _note_waiting(self) -> None:
        self.screen.note(f"Another run of the session {self.session} is in progress: waiting for its end.")

    def _note_stopping(self) -> None:
        self.screen.note("Stopping; Ctrl-C again leaves at once.")


class Questions:
    """An `Approver` at the terminal: one question at a time, and only during a run."""

    def __init__(self) -> None:
        self.screen: Screen | None = None
        self.typed: TypedMessages | None = None
        self._running = asyncio.Event()
        self._one = asyncio.Lock()
        self.waited = 0.0  # seconds for a person, in all
        self._typed_tool = ""  # the tool that the person calls: they want what it does

    async def __call__(self, request: PermissionRequest) -> Answer:
        if self.screen is None:  # the agent opens its sources: nothing else is written yet
            async with self._one:
                return await ask_on_terminal(request)
        if request.spec.name == self._typed_tool and not request.scope.task:
            return Answer("once", by="terminal")
        async with self._one:
            await self._running.wait()  # background work may ask while the person types something else
            async with self.typed.paused() if self.typed is not None else nullcontext():
                started = time.monotonic()
                try:
                    return await ask_person(self.screen, request, self._keep)
                finally:
                    self.waited += time.monotonic() - started

    def _keep(self, typed: str) -> None:
        """Keeps what was typed before a question appeared: in the input line, or as messages to the run."""
        assert self.screen is not None
        if self.screen.line is not None:
            self.screen.line.add_typed(typed)
        elif self.typed is not None:
            for line in typed.split("\n"):
                self.typed.take(line.strip())

    @asynccontextmanager
    async def turn(self, typed_tool: str = "") -> AsyncIterator[None]:
        """Asks questions meanwhile; none about a tool that the person calls by a command."""
        self._running.set()
        self._typed_tool = typed_tool
        try:
            yield
        finally:
            self._typed_tool = ""
            async with self._one:
                self._running.clear()


async def ask_person(
    screen: Screen, request: PermissionRequest, keep: Callable[[str], None] = lambda typed: None
) -> Answer:
    """Asks at the terminal while nothing else is written there. `keep` gets what was typed before."""
    async with screen.hold(), screen.line.suspended() if screen.line is not None else nullcontext():
        if isinstance(screen.view, ForPeople):
            for line in screen.view.list_earlier(request):
                click.echo(as_ascii(line), err=True, color=True)
        try:
            answer = await ask_on_terminal(request, plain=screen.plain, keep=keep)
        except asyncio.CancelledError:
            click.echo(err=True)  # the question stays; what follows begins on a line of its own
            raise
        if isinstance(screen.view, ForPeople) and answer.kind != "no" and answer.arguments is None:
            screen.view.remember_question(request)
        return answer


def run_options(options: Options, flags: RunFlags, session: str, *, watch: bool = False) -> RunOptions:
    """Returns the options with which a project is loaded. Raises `ToolError` for a build that cannot be used."""
    built = None
    if flags.built is not None:
        from forge.project.build.built import load_built  # few run a build

        built = load_built(flags.built, flags.expect, workspace=options.workspace)
    return RunOptions(
        built=built,
        workspace=options.workspace,
        config=options.config if built is None else None,
        policy=options.policy,
        session=flags.session or session,
        dev=options.dev,
        watch=watch,
        trial=options.trial,
    )


@contextmanager
def open_prompt_runner(options: Options, flags: RunFlags) -> Iterator[PromptRunner]:
    """Opens everything that a run needs. Raises `Refusal` for input that cannot be used."""
    questions = Questions()
    at_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not flags.reads_stdin
    approve: Approver = approve_all if options.yes else questions if at_terminal else nobody
    with refusals():
        project = Project(run_options(options, flags, new_name(), watch=True), report=print_note)
        store = _store(project.scope, flags)
        with _closing_if_refused(store):
            model = flags.model or _remembered_model(store, flags.session)
            agent = project.agent(model, turns=flags.max_turns, approve=approve)
            if flags.output_schema is not None:
                agent = agent.replace(output=read_output_schema(flags.output_schema))
            explained = _explain_cache(agent) if flags.explain_cache else None
    with closing(store) if store is not None else nullcontext(), LoopThread() as loop, open_agent(loop, agent):
        view = make_view(options, flags, agent)
        questions.screen = screen = Screen(view, broken=loop.cancel, plain=is_plain(options, flags))
        agent.activity.subscribe(screen.take)
        runner = PromptRunner(loop, view, project, agent, questions, screen)
        runner.store, runner.chosen_model = store, flags.model
        runner.invocation += _resume_flags(options, flags)
        is_watched = sys.stderr.isatty() and not (options.json or flags.quiet)
        runner.writes_title = is_watched and project.configuration.agent.session_titles
        with closing(screen), log_events(agent.activity, project.workspace, flags.audit, wanted=not flags.no_audit):
            yield runner
            runner.wait_for_title()
        if explained is not None:
            click.echo(explained.table(), err=True)


def _explain_cache(agent: Agent) -> ExplainedModel | None:
    from forge.models.cache import explain_cache  # few runs use it

    if agent.provider is None:
        return None
    agent.provider = explained = explain_cache(agent.provider)
    return explained


@contextmanager
def open_agent(loop: LoopThread, agent: Agent) -> Iterator[None]:
    """Opens the agent with its sources. A person who leaves at once does not wait until they are closed."""
    with refusals():
        loop.do(_enter(agent))
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        loop.do(_leave(agent))
        raise
    loop.do(_leave(agent))


async def _enter(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


def _store(scope: Scope, flags: RunFlags) -> SessionStore | None:
    """Opens the session store. A named session must open; otherwise a warning says that no session is kept."""
    try:
        store = session_store(scope.workspace)
        if flags.session is not None:
            _check_session(store, flags.session)
        return store
    except ToolError as error:
        if flags.session is not None:
            raise
        click.echo(f"forge: the session is not stored: {error.message}; the run continues", err=True)
        return None


@contextmanager
def _closing_if_refused(store: SessionStore | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if store is not None:
            store.close()
        raise


def _remembered_model(store: SessionStore | None, session: str | None) -> str | None:
    """Return the model that --model named when this session was last used."""
    found = store.open(session).meta.get(MODEL) if store is not None and session is not None else None
    return found if isinstance(found, str) else None


def _resume_flags(options: Options, flags: RunFlags) -> list[str]:
    """Returns the flags that the resuming command needs to find the same agent and session."""
    values = {"--from": flags.built, "--expect": flags.expect, "--workspace": options.workspace}
    return [word for flag, value in values.items() if value is not None for word in (flag, value)]


def _check_session(store: SessionStore, name: str) -> None:
    try:
        store.open(name)
    except BaseException:
        store.close()
        raise


def is_plain(options: Options, flags: RunFlags) -> bool:
    return options.debug or flags.plain


def make_view(options: Options, flags: RunFlags, agent: Agent) -> View:
    out = Output(plain=is_plain(options, flags))
    if options.json:
        return Ndjson(out)
    if flags.quiet:
        return OnlyTheAnswer(out)
    registry = agent.registry
    return ForPeople(
        out,
        lambda name, result: registry.find(name).preview(result),
        lambda name: registry.find(name).spec.animate,
        model=str(agent.model),
        ends=lambda name: Permission.EXECUTE in registry.find(name).spec.permissions and name != "task",
    )


# Sends what a person types at the terminal during a run to that run.


class TypedMessages:
    """Reads lines while a run is in progress. Commands, and lines that come too late, wait for the next prompt."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self.waiting: deque[str] = deque()
        self._send = send
        self._reading: asyncio.Task[None] | None = None
        self._is_wanted = False

    @asynccontextmanager
    async def during_run(self) -> AsyncIterator[None]:
        self._is_wanted = True
        self._begin()
        try:
            yield
        finally:
            self._is_wanted = False
            await self._end()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Leaves the keyboard to a question."""
        await self._end()
        try:
            yield
        finally:
            if self._is_wanted:
                self._begin()

    def _begin(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _end(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self) -> None:
        rest = b""
        while typed := await read_typed():
            *lines, rest = (rest + typed).split(b"\n")
            for line in lines:
                self.take(line.decode("utf-8", "replace").strip())

    def take(self, line: str) -> None:
        """Sends a line to the run; a command waits for the prompt."""
        if not line:
            return
        if line.startswith("/"):
            self.waiting.append(line)
            return
        try:
            self._send(line)
        except ToolError:  # the run has just ended
            self.waiting.append(line)


# Reads the JSON Schema of `forge run --output-schema FILE`.


LARGEST_SCHEMA = 1024 * 1024  # bytes


def read_output_schema(path: str) -> dict[str, Any]:
    """Returns the schema in a file. Raises `ToolError` where it cannot be used."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_SCHEMA + 1)
    except OSError as error:
        raise _error(path, f"the file cannot be read: {error.strerror}", "Name a file with a JSON Schema.") from None
    if len(content) > LARGEST_SCHEMA:
        raise _error(path, f"the file is larger than {LARGEST_SCHEMA:,} bytes", "Use a smaller schema.")
    try:
        schema = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _error(path, f"the file is not JSON: {str(error)[:200]}", "Write the schema as JSON.") from None
    if not isinstance(schema, dict) or not schema:
        advice = 'Write an object such as {"type": "object", "properties": {…}}.'
        raise _error(path, "a schema is a JSON object that is not empty", advice)
    try:
        Structured(schema)
    except DefinitionError as error:
        problem = str(error).removeprefix(f"tool {ANSWER!r}: ")
        raise _error(path, problem, "Fix the schema: https://json-schema.org explains it.") from None
    return schema


def _error(path: str, problem: str, suggestion: str) -> ToolError:
    return ToolError(f"reading --output-schema {path[:200]}: {problem}", ErrorKind.CONFIG, suggestion)
