"""`forge run` without a prompt: a conversation, until the person leaves."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import click

from forge.cli.options import Options
from forge.cli.running.chat_session import ChatSession, RunFlags, open_chat_session
from forge.cli.running.names import needed_permissions
from forge.cli.terminal.keyboard import Keyboard
from forge.cli.terminal.output import clip
from forge.cli.terminal.show import as_text, harmless
from forge.core.arguments.checks import near
from forge.core.errors import ToolError
from forge.core.messages import unanswered_calls
from forge.project.version import version
from forge.workspace.state import state_directory

HISTORY = "history"
NEWEST = 20  # sessions that are listed


class Quit(Exception):
    """The person leaves."""


class Command(NamedTuple):
    run: Callable[[str], None]
    words: str


def chat(options: Options, asked: RunFlags) -> int:
    """At a terminal the exit code is 0; what comes from a pipe ends like its last run."""
    with open_chat_session(options, asked) as made:
        if asked.session is not None:
            made.stored  # noqa: B018 - read now, so that the greeting can say how long it is
        history = state_directory(made.workspace) / HISTORY if made.store is not None else None
        return Chat(made, Keyboard(history), shows=not (options.json or asked.quiet)).until_the_end()


class Chat:
    """Reads a line, runs it, reads the next. A line that begins with `/word` is for the chat itself."""

    def __init__(self, made: ChatSession, keyboard: Keyboard, *, shows: bool) -> None:
        self.chat = made
        self.keyboard = keyboard
        self.code = 0
        self.shows = shows and keyboard.is_terminal
        self.commands = {
            "/compact": Command(self._compact, "put all but the latest messages into a summary"),
            "/help": Command(self._help, "this list"),
            "/quit": Command(self._quit, "leave; Ctrl-D does, too"),
            "/resume": Command(self._resume, "go on where a run was stopped; /resume NAME with another session"),
            "/session": Command(self._session, "say which session this is, and list the others"),
            "/tools": Command(self._tools, "list the tools the agent has"),
            "/undo": Command(self._undo, "take back the last change of a file"),
        }

    def until_the_end(self) -> int:
        self._greet()
        try:
            while (text := self._read()) is not None:
                if text:
                    self._hear(text)
        except Quit:
            pass
        finally:
            self.keyboard.save()
        if self.keyboard.is_terminal:
            self.chat.say_goodbye()
            return 0
        return self.code

    def _read(self) -> str | None:
        """The next message. Ctrl-C takes back what was typed; a second one leaves."""
        prompt = "> " if self.shows else ""
        try:
            return self.keyboard.message(prompt)
        except KeyboardInterrupt:
            _say("\nCtrl-C again leaves; so do Ctrl-D and /quit.")
        try:
            return self.keyboard.message(prompt)
        except KeyboardInterrupt:
            _say("")
            return None

    def _hear(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if not re.fullmatch(r"/[a-z]+", word) or "\n" in text:
            self.code = self.chat.ask(text, wait=not self.keyboard.is_terminal).exit_code
            return
        command = self.commands.get(word)
        if command is None:
            hint = near(word, self.commands, 1)
            _say(f"There is no command {word}. " + (f"Did you mean {hint[0]}?" if hint else "/help lists them."))
            return
        try:
            command.run(rest.strip())
        except asyncio.CancelledError:
            _say("Stopped.")
        except ToolError as error:
            _say("\n".join(filter(None, (error.message, error.suggestion))))

    def _greet(self) -> None:
        if self.shows:
            agent = self.chat.agent
            _say(f"forge {version()} · {agent.model} · {len(agent.registry)} tools · {self.chat.workspace}")
            known = len(self.chat.stored.conversation.messages) if self.chat.has_begun else 0
            _say(f"session {self.chat.session}: {known} messages" if known else "/help lists the commands.")

    def _help(self, _: str) -> None:
        width = max(map(len, self.commands))
        lines = [f"{name:<{width}}  {command.words}" for name, command in sorted(self.commands.items())]
        _say("\n".join([*lines, 'A line that ends in \\ goes on in the next; """ begins and ends several lines.']))

    def _quit(self, _: str) -> None:
        raise Quit

    def _tools(self, _: str) -> None:
        registry = self.chat.agent.registry
        width, columns = max(map(len, registry)), shutil.get_terminal_size().columns
        for name, tool in sorted(registry.items()):
            words = tool.spec.description.partition("\n")[0]
            _say(clip(f"{name:<{width}}  {needed_permissions(tool.spec):<10}  {words}", columns))

    def _compact(self, _: str) -> None:
        stored = self.chat.stored
        if self.chat.do(stored.shortening.compact(stored.conversation)):
            _say(f"The model is shown {len(stored.conversation.shown)} messages from now on; the session keeps all.")
        else:
            _say("There is nothing to put into a summary yet.")

    def _resume(self, name: str) -> None:
        if name:
            self.chat.switch(name)
            _say(f"session {self.chat.session}: {len(self.chat.stored.conversation.messages)} messages")
            return
        messages = self.chat.stored.conversation.messages
        last = messages[-1].role if messages else ""
        if unanswered_calls(messages) or last in ("user", "tool"):
            self.code = self.chat.ask(None).exit_code
        else:
            _say("Nothing was stopped: say what to do next. /session lists other sessions to go on with.")

    def _session(self, _: str) -> None:
        store = self.chat.store
        _say(f"This is {self.chat.session}" + ("." if store is not None else ", which is not kept."))
        for one in (store.list() if store is not None else ())[:NEWEST]:
            when = datetime.fromtimestamp(one.updated).strftime("%Y-%m-%d %H:%M")
            _say(f"  {one.name}  {when}  {one.messages} messages  {harmless(one.title)}")

    def _undo(self, rest: str) -> None:
        if "undo" not in self.chat.agent.registry:
            _say("There is nothing to undo: none of the agent's tools changes files.")
            return
        arguments = {"action": "list"} if rest == "list" else {"action": "apply", **({"call_id": rest} if rest else {})}
        result = self.chat.do(self.chat.agent.call("undo", arguments, session=self.chat.session))
        if result.is_error or rest == "list":  # a change that was taken back has been shown
            _say(as_text(result))


def _say(text: str) -> None:
    click.echo(text, err=True)
