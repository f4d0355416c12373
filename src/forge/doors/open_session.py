"""One session of a project that a person elsewhere talks to: it runs prompts, and takes messages and commands."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from forge.agent.agent import Agent
from forge.agent.result import RunResult
from forge.agent.session import SessionStore
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, Usage
from forge.core.plain_values import visible
from forge.doors.session_commands import (
    NO_DIFF,
    PROMPT,
    Modes,
    ServerPrompts,
    change_model,
    describe_context,
    describe_cost,
    describe_rules,
    describe_servers,
    describe_sessions,
    explain_unknown,
    fill_in,
    find_own_commands,
    session_diff,
)
from forge.permissions.questions import Approver
from forge.project.audit.write_log import log_project
from forge.project.project import Project, RunOptions, require_trust
from forge.project.runs.sessions import (
    StoredConversation,
    new_name,
    open_conversation,
    session_store,
    title_session,
    unstored_conversation,
)

if TYPE_CHECKING:
    from forge.mcp.client.source import McpSource

log = logging.getLogger(__name__)

MODEL = "model"  # the key in a session's `meta`
COMMANDS = {
    "/compact": "replace all but the latest messages by a summary",
    "/context": "what fills the model's window",
    "/cost": "tokens and cost of this conversation",
    "/diff": "changes of files since this session began",
    "/help": "this list",
    "/mcp": "MCP servers and their state",
    "/mode": "show the mode; /mode NAME changes it",
    "/model": "show the model; /model NAME changes it",
    "/permissions": "the mode, the rules, and what you always allow",
    "/session": "show the name of this session, and list the others",
    "/tools": "list the tools the agent has",
    "/undo": "undo the last change of a file; /undo list lists them",
}


class OpenSession:
    """A session that is open: the project's agent, its stored conversation, and what a person does with both.

    Everything that a person does here passes the gate of the agent. `open_session` makes one.
    """

    def __init__(self, project: Project, agent: Agent, store: SessionStore | None, name: str) -> None:
        self.name = name
        self.project = project
        self.agent = agent
        self.store = store  # None: nothing is stored
        self._stored: StoredConversation | None = None
        self.prompts = ServerPrompts(self.servers)
        self.writes_title = False  # the model writes the title of a new session
        self.runs, self.usage = 0, Usage()
        self.cost: float | None = None  # of its runs; None: the price of tokens is not known
        self._modes = Modes(agent)
        self._one = asyncio.Lock()
        self._chosen_model: str | None = None  # which the session remembers
        self._running: asyncio.Task[object] | None = None
        self._is_stopping = False
        self._title: asyncio.Task[None] | None = None

    @property
    def servers(self) -> Mapping[str, McpSource]:
        """The MCP servers of the project."""
        return self.project.sources.servers

    @property
    def stored(self) -> StoredConversation:
        """The stored conversation. A new session is stored when this is first used."""
        if self._stored is None:
            self._stored = (
                open_conversation(self.store, self.name, self.agent)
                if self.store is not None
                else unstored_conversation(self.agent, self.name)
            )
            if self._stored.session is not None and self._chosen_model is not None:
                self._stored.session.meta[MODEL] = self._chosen_model
        return self._stored

    @property
    def messages(self) -> list[Message]:
        """The messages that are stored."""
        return self.stored.conversation.messages

    @property
    def is_busy(self) -> bool:
        """True while a prompt runs, or waits for another run of the session."""
        return self._running is not None

    async def run(self, prompt: str | Message | None) -> RunResult:
        """Runs a prompt to the end; None resumes a run that was stopped. One runs at a time, also in other processes.

        A text that begins with a command of the project, or with a prompt of an MCP server, is filled in. A message of
        `send` that comes after the last turn is answered, too. Raises `ToolError` for a prompt that cannot be run.
        """
        async with self._one:
            self._running, self._is_stopping = asyncio.current_task(), False
            try:
                result = await self._run(await self._fill_in(prompt) if isinstance(prompt, str) else prompt)
                while result.error is None and result.reason != "cancelled" and self._has_late_message(result):
                    result = await self._run(None)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._is_stopping or task is None or task.uncancel():
                    raise
                result = RunResult(text="", reason="cancelled", turns=0, messages=self.messages)
            finally:
                self._running = None
        self._start_title(result)
        return result

    async def _run(self, prompt: str | Message | None) -> RunResult:
        async with self.store.turn(self.name) if self.store is not None else nullcontext():
            stored = self.stored
            stored.refresh()
            if self._is_stopping:
                return RunResult(text="", reason="cancelled", turns=0, messages=self.messages)
            result = await self.agent.run(
                prompt, history=stored.conversation, session=self.name, prepare=stored.shortening
            )
        self.count(result)
        return result

    def count(self, result: RunResult) -> None:
        """Adds a run to what `/cost` shows."""
        self.runs, self.usage = self.runs + 1, self.usage.plus(result.usage)
        if result.cost is not None:
            self.cost = (self.cost or 0.0) + result.cost

    def send(self, text: str) -> None:
        """Sends a message to the run in progress: the model sees it before its next turn. Raises `ToolError`."""
        self.agent.send(text, self.name)

    def withdraw(self, text: str) -> bool:
        """Takes back a message of `send`. Returns False where the run has received it already."""
        return self.agent.withdraw(text, self.name)

    def cancel(self) -> bool:
        """Stops the run in progress, with its tools. Returns False where there is none."""
        if self._running is None:
            return False
        self._is_stopping = True
        if not self.agent.cancel(self.name):  # it waits for another run of the session
            self._running.cancel()
        return True

    @property
    def mode(self) -> str:
        return self._modes.mode

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that there are: `ask`, and with rules also `accept edits` and `plan`."""
        return self._modes.all

    def set_mode(self, mode: str) -> None:
        """Changes the mode for the calls from now on. Raises `ToolError` for a mode that there is not."""
        self._modes.use(mode)

    def use_model(self, name: str) -> None:
        """Gives the session another model, from its next run on. Raises `ToolError` if the model cannot be used."""
        change_model(self.agent, name)
        self.remember_model(name)

    def remember_model(self, name: str) -> None:
        """Uses the model again when the session is opened again."""
        self._chosen_model, self._stored = name, None  # what is sent is shortened for the window of the model

    def commands(self) -> Mapping[str, str]:
        """Returns the commands with their help: built-in ones, those of the project, prompts of MCP servers."""
        own = {name: one.words for name, one in find_own_commands(self.project.workspace).items()}
        return {**self.prompts.describe(), **own, **COMMANDS}

    async def command(self, line: str) -> str | None:
        """Runs a command, such as `/cost`, and returns its words; None for a line that `run` takes.

        Raises `ToolError` where the command fails.
        """
        word, _, rest = line.strip().partition(" ")
        if not re.fullmatch(r"/[a-z][a-z0-9-]*", word) or "\n" in line.strip():
            return None
        if word in COMMANDS:
            return await self._do(word, rest.strip())
        if word in find_own_commands(self.project.workspace):
            return None
        return explain_unknown(word, self.commands(), self.project.workspace)

    async def _do(self, word: str, rest: str) -> str:
        agent, name = self.agent, self.name
        match word:
            case "/compact":
                return await self._compact()
            case "/context":
                return "\n".join(describe_context(agent, name, self.stored.conversation.shown))
            case "/cost":
                return "\n".join(describe_cost(self.runs, self.usage, self.cost))
            case "/diff":
                return session_diff(self.project.workspace, name) or NO_DIFF
            case "/help":
                await self.prompts.find_all()
                return "\n".join(f"{command}  {text}" for command, text in sorted(self.commands().items()))
            case "/mcp":
                return "\n".join(describe_servers(self.servers))
            case "/mode" if not rest:
                return f"The mode is {self.mode}. /mode NAME changes it: {', '.join(self.modes)}."
            case "/mode":
                self.set_mode(rest)
                return f"The mode is {self.mode} from now on."
            case "/model" if not rest:
                return f"The model is {agent.model}. /model NAME changes it, such as /model anthropic:MODEL."
            case "/model":
                self.use_model(rest)
                return f"The model is {visible(rest)} from now on."
            case "/permissions":
                return "\n".join(describe_rules(agent, name, self.mode))
            case "/session":
                return "\n".join(describe_sessions(self.store, name))
            case "/tools":
                tools = sorted(agent.registry.items())
                return "\n".join(f"{key}: {visible(one.spec.description.split(chr(10))[0])}" for key, one in tools)
        return await self._undo(rest)

    async def _compact(self) -> str:
        if self.is_busy:
            message = "summarising the conversation: a run is in progress"
            raise ToolError(message, ErrorKind.USER, "Wait until it is over, or stop it.")
        async with self._one, self.store.turn(self.name) if self.store is not None else nullcontext():
            self.stored.refresh()
            if not await self.stored.shortening.compact(self.stored.conversation):
                return "There is nothing to summarise yet."
        count = len(self.stored.conversation.shown)
        return f"The model reads {count} messages from now on; the session keeps all of them."

    async def _undo(self, rest: str) -> str:
        if "undo" not in self.agent.registry:
            return "There is nothing to undo: the agent has no tool that changes files."
        arguments = {"action": "list"} if rest == "list" else {"action": "apply", **({"call_id": rest} if rest else {})}
        result = await self.agent.call("undo", arguments, session=self.name)
        if result.failure is not None:
            return "\n".join(filter(None, (result.failure.message, result.failure.suggestion)))
        return visible(result.for_user or result.for_llm)

    async def close(self) -> None:
        """Stops what is in progress. `open_session` does this."""
        self.cancel()
        if self._title is not None:
            self._title.cancel()
            with suppress(asyncio.CancelledError):
                await self._title
        async with self._one:  # a run that was stopped cleans up
            pass

    async def _fill_in(self, text: str) -> str | Message:
        word, _, rest = text.strip().partition(" ")
        if PROMPT.fullmatch(word) and word in await self.prompts.find_all():
            return await self.prompts.fetch(word, rest)
        if word not in COMMANDS and (own := find_own_commands(self.project.workspace).get(word)) is not None:
            return fill_in(own.text, rest.strip())
        return text

    def _has_late_message(self, result: RunResult) -> bool:
        """Returns whether a message came after the last turn."""
        added = result.new_messages
        return result.turns > 0 and bool(added) and added[-1].role == "user"

    def _start_title(self, result: RunResult) -> None:
        session = self.stored.session
        is_wanted = self.writes_title and self._title is None and result.error is None and result.reason != "cancelled"
        if is_wanted and session is not None and not session.has_given_title:
            self._title = asyncio.create_task(title_session(self.agent, session))


@asynccontextmanager
async def open_session(
    options: RunOptions,
    name: str | None = None,
    *,
    approve: Approver,
    model: str | None = None,
    turns: int | None = None,
    audit: str | None = None,
    logs: bool = True,
    report: Callable[[str], None] = log.warning,
    prepare: Callable[[Project], None] = lambda project: None,
) -> AsyncIterator[OpenSession]:
    """Opens a session of a project, with its agent, its sources and its log of events.

    Raises `ToolError` for a `forge.yaml` that no one trusts (`forge trust`), and for parts that cannot be used.

    Args:
        options: the workspace and the flags. Without a `config`, the workspace's own counts once it is trusted.
        name: the session, new or continued; None: a new one.
        approve: answers what the rules ask.
        model: instead of the configured model, and of the one that the session remembers.
        turns: the maximum number of turns of a run.
        audit: the file of the log; by default the one of the workspace.
        logs: False: no log is written.
        report: receives what is left out, such as a server that does not answer.
        prepare: gets the project before its agent is made, such as to add MCP servers.

    Example:
        >>> _ = Path("hello.yaml").write_text("- Hello!")
        >>> async def main():
        ...     async with open_session(RunOptions(), approve=nobody, model="scripted:hello.yaml") as session:
        ...         return (await session.run("Hi")).text
        >>> asyncio.run(main())
        'Hello!'
    """
    if options.config is None and options.built is None:
        options = replace(options, config=require_trust(options.workspace or "."))
    is_new, name = name is None, name or new_name()
    project = Project(replace(options, session=name), report)
    async with AsyncExitStack() as stack:
        store = _open_store(project, report, is_new=is_new)
        if store is not None:
            stack.enter_context(closing(store))
        remembered = store.read_meta(name, MODEL) if store is not None and not is_new else None
        chosen = model or (remembered if isinstance(remembered, str) else None)
        prepare(project)
        agent = project.agent(chosen, turns=turns, approve=approve)
        await stack.enter_async_context(agent)
        if logs:
            stack.enter_context(log_project(agent.activity, project.workspace, audit, report))
        session = OpenSession(project, agent, store, name)
        if model is not None:
            session.remember_model(model)
        if not is_new:
            session.stored  # noqa: B018 - read now: it may be unusable
        stack.push_async_callback(agent.activity.drain)
        stack.push_async_callback(session.close)
        yield session


def _open_store(project: Project, report: Callable[[str], None], *, is_new: bool) -> SessionStore | None:
    """Opens the store. A session that was named must open; without a store, a new one is not stored."""
    try:
        return session_store(project.workspace)
    except ToolError as error:
        if not is_new:
            raise
        report(f"the session is not stored: {error.message}; it continues")
        return None
