"""One person, one agent, one session: what is asked, shown, interrupted."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from forge.agent.agent import Agent
from forge.agent.session import SessionStore
from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.running.event_log import audited
from forge.cli.running.loop_thread import LoopThread
from forge.cli.running.names import note
from forge.cli.terminal.approve import ask_on_terminal
from forge.cli.terminal.ending import Ending
from forge.cli.terminal.ndjson import Ndjson, OnlyTheAnswer
from forge.cli.terminal.output import Output
from forge.cli.terminal.render import ForPeople
from forge.cli.terminal.screen import Screen, View
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.plain_values import text_of
from forge.core.result import Failure
from forge.permissions.gate import Answer, Approver, approve_all, nobody
from forge.permissions.request import PermissionRequest
from forge.project.build.built import load_built
from forge.project.project import Project, RunOptions
from forge.project.runs.stored_conversation import (
    StoredConversation,
    new_name,
    open_conversation,
    session_store,
    unstored_conversation,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """What `forge run` was told beside the common flags."""

    model: str | None
    max_turns: int | None
    quiet: bool
    audit: str | None
    no_audit: bool
    session: str | None  # None: a new one
    built: str | None = None  # a directory that `forge build` wrote
    expect: str | None = None  # the SHA-256 of its manifest
    reads_stdin: bool = False  # it carries prompts: nobody can be asked there


class ChatSession:
    """Belongs to the person's thread; the agent works on the loop's."""

    def __init__(
        self, loop: LoopThread, view: View, project: Project, agent: Agent, questions: Questions, screen: Screen
    ) -> None:
        self.loop = loop
        self.workspace = project.workspace
        self.session = project.scope.session_id
        self.view = view
        self.agent = agent
        self.screen = screen
        self.store: SessionStore | None = None
        self.invocation = ["forge", "run"]  # what is typed to go on, but for the session
        self._questions = questions
        self._stored: StoredConversation | None = None

    @property
    def stored(self) -> StoredConversation:
        """The conversation. A session comes into being when it is first needed."""
        if self._stored is None:
            agent, name = self.agent, self.session
            self._stored = (
                open_conversation(self.store, name, agent) if self.store else unstored_conversation(agent, name)
            )
        return self._stored

    @property
    def has_begun(self) -> bool:
        return self._stored is not None

    def switch(self, name: str) -> None:
        """Go on with another session. Raises `ToolError`."""
        if self.store is not None:
            self._stored = open_conversation(self.store, name, self.agent)
            self.session = name

    def ask(self, prompt: str | None, *, wait: bool = False) -> Ending:
        """Run to the end and show it. Raises `OSError` when nobody takes the output, `KeyboardInterrupt` at the second
        Ctrl-C: even then the run has its last line."""
        started = time.monotonic()

        async def run() -> Ending:
            stored = self.stored
            stored.refresh()
            async with self._questions.turn():
                result = await self.agent.run(
                    prompt,
                    history=stored.conversation,
                    session=self.session,
                    prepare=stored.shortening,
                    wait_for_background=wait,
                )
            return Ending.of(result, time.monotonic() - started)

        self.screen.begin()
        try:
            ending = self.loop.do(run(), self._stopping)
        except asyncio.CancelledError:
            ending = Ending(reason="cancelled", seconds=time.monotonic() - started)
        except ToolError as error:  # what was said cannot be kept
            failure = Failure(error.message, error.kind, error.suggestion)
            ending = Ending(reason="error", error=failure)
        except BaseException as error:
            reason = "cancelled" if isinstance(error, KeyboardInterrupt) else "error"
            self.screen.finish(Ending(reason=reason, text="" if reason == "cancelled" else text_of(error)))
            with suppress(OSError):
                self.screen.settle(1.0)
            raise
        self.screen.finish(ending)
        self.screen.settle()
        return ending

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Something else than a run. Raises what it raises."""

        async def run() -> T:
            async with self._questions.turn():
                return await work

        self.screen.begin()
        try:
            return self.loop.do(run(), self._stopping)
        finally:
            self.screen.finish()
            self.screen.settle()

    def say_goodbye(self, ending: Ending | None = None) -> None:
        """Where the conversation can be continued; and what a script holds that nobody asked for."""
        check = getattr(self.agent.provider, "check", None)
        if check is not None and (ending is None or ending.reason != "cancelled"):
            try:
                check()
            except ToolError as error:
                self.screen.note(f"Note: {error.message}.")
        if self.has_begun and self.stored.session is not None:
            again = shlex.join([*self.invocation, "--session", self.session])
            self.screen.note(f"session {self.session} · to go on: {again}")
        self.screen.settle()

    def _stopping(self) -> None:
        self.screen.note("Stopping; Ctrl-C again leaves at once.")


class Questions:
    """An `Approver` at the terminal: one question at a time, and only while a run goes on."""

    def __init__(self) -> None:
        self.screen: Screen | None = None
        self._running = asyncio.Event()
        self._one = asyncio.Lock()

    async def __call__(self, request: PermissionRequest) -> Answer:
        assert self.screen is not None
        async with self._one:
            await self._running.wait()  # background work may ask while the person types something else
            return await ask_in_place(self.screen, request)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._running.set()
        try:
            yield
        finally:
            async with self._one:
                self._running.clear()


async def ask_in_place(screen: Screen, request: PermissionRequest) -> Answer:
    """At the terminal, while nothing else is written there."""
    async with screen.held():
        try:
            return await ask_on_terminal(request)
        except asyncio.CancelledError:
            click.echo(err=True)  # the question stays; what follows begins on a line of its own
            raise


def run_options(options: Options, asked: RunFlags, session: str, *, watch: bool = False) -> RunOptions:
    """What a project is loaded with. Raises `ToolError` where a build cannot be used."""
    built = load_built(asked.built, asked.expect, workspace=options.workspace) if asked.built is not None else None
    return RunOptions(
        built=built,
        workspace=options.workspace,
        config=options.config if built is None else None,
        policy=options.policy,
        session=asked.session or session,
        dev=options.dev,
        watch=watch,
    )


@contextmanager
def open_chat_session(options: Options, asked: RunFlags) -> Iterator[ChatSession]:
    """Everything a run needs, and its end. Raises `Refusal` for what cannot be used."""
    questions = Questions()
    at_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not asked.reads_stdin
    approve: Approver = approve_all if options.yes else questions if at_terminal else nobody
    with refusals():
        project = Project(run_options(options, asked, new_name(), watch=True), report=note)
        agent = project.agent(asked.model, turns=asked.max_turns, approve=approve)
        store = _store(project.scope, asked)
    with closing(store) if store is not None else nullcontext(), LoopThread() as loop, opened_agent(loop, agent):
        view = view_of(options, asked, agent)
        questions.screen = screen = Screen(view, broken=loop.cancel)
        agent.activity.subscribe(screen.take)
        made = ChatSession(loop, view, project, agent, questions, screen)
        made.store = store
        made.invocation += _same_again(options, asked)
        with closing(screen), audited(agent.activity, project.workspace, asked.audit, wanted=not asked.no_audit):
            yield made


@contextmanager
def opened_agent(loop: LoopThread, agent: Agent) -> Iterator[None]:
    """With the project's other tools. A person who leaves at once does not wait for their end."""
    with refusals():
        loop.do(_entered(agent))
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        loop.do(_left(agent))
        raise
    loop.do(_left(agent))


async def _entered(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _left(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


def _store(scope: Scope, asked: RunFlags) -> SessionStore | None:
    """A session that was asked for by name must be there; otherwise it is missed out loud."""
    try:
        store = session_store(scope.workspace)
        if asked.session is not None:
            _check(store, asked.session)
        return store
    except ToolError as error:
        if asked.session is not None:
            raise
        click.echo(f"forge: no session is kept: {error.message}; going on without", err=True)
        return None


def _same_again(options: Options, asked: RunFlags) -> list[str]:
    """The flags without which another command would run another agent, or look for the session elsewhere."""
    flags = {"--from": asked.built, "--expect": asked.expect, "--workspace": options.workspace}
    return [word for flag, value in flags.items() if value is not None for word in (flag, value)]


def _check(store: SessionStore, name: str) -> None:
    try:
        store.open(name)
    except BaseException:
        store.close()
        raise


def view_of(options: Options, asked: RunFlags, agent: Agent) -> View:
    out = Output(plain=options.debug)
    if options.json:
        return Ndjson(out)
    if asked.quiet:
        return OnlyTheAnswer(out)
    registry = agent.registry
    return ForPeople(
        out, lambda name, result: registry.find(name).preview(result), lambda name: registry.find(name).spec.animate
    )
