"""`forge run` without a prompt: a conversation until the person leaves."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import click

from forge.agent.labels import quote_text
from forge.cli.options import Options
from forge.cli.running.chat_prompts import ChatPrompts
from forge.cli.running.chat_session import ChatSession, RunFlags, open_chat_session
from forge.cli.running.tool_names import describe_permissions
from forge.cli.terminal.columns import clip
from forge.cli.terminal.completing import install_completer
from forge.cli.terminal.keyboard import Keyboard
from forge.cli.terminal.print_result import as_text, harmless
from forge.core.arguments.explain import near
from forge.core.errors import ToolError
from forge.core.messages import unanswered_calls
from forge.project.version import version
from forge.workspace.state import state_directory

HISTORY = "history"
NEWEST = 20  # sessions that are listed
PROMPT = re.compile(r"/[A-Za-z][\w-]*:\S+")  # a prompt of an MCP server


class Quit(Exception):
    """Raised to leave the conversation."""


class ChatCommand(NamedTuple):
    """A command of the chat: its function and its help."""

    run: Callable[[str], None]
    words: str


def chat(options: Options, flags: RunFlags) -> int:
    """Returns exit code 0 at a terminal; input from a pipe ends with the code of its last run."""
    with open_chat_session(options, flags) as session:
        if flags.session is not None:
            session.stored  # noqa: B018 - read now, so that the greeting can say how long it is
        history = state_directory(session.workspace) / HISTORY if session.store is not None else None
        return Chat(session, Keyboard(history), shows=not (options.json or flags.quiet)).run_to_end()


class Chat:
    """Reads a line, runs it, reads the next. A line that begins with `/word` is a command of the chat."""

    def __init__(self, chat: ChatSession, keyboard: Keyboard, *, shows: bool) -> None:
        self.chat = chat
        self.keyboard = keyboard
        self.code = 0
        self.shows = shows and keyboard.is_terminal
        self.prompts = ChatPrompts(chat, chat.servers)
        if self.shows:
            chat.hear_typed()
        self.commands = {
            "/compact": ChatCommand(self._compact, "replace all but the latest messages by a summary"),
            "/help": ChatCommand(self._help, "this list"),
            "/quit": ChatCommand(self._quit, "leave; so does Ctrl-D"),
            "/resume": ChatCommand(self._resume, "resume the run that was stopped; /resume NAME opens another session"),
            "/session": ChatCommand(self._session, "show the name of this session, and list the others"),
            "/tools": ChatCommand(self._tools, "list the tools the agent has"),
            "/undo": ChatCommand(self._undo, "undo the last change of a file"),
        }

    def run_to_end(self) -> int:
        self._greet()
        install_completer(self.commands, self.chat.workspace, self.prompts.complete)
        try:
            while (text := self._read()) is not None:
                if text:
                    self._receive(text)
        except Quit:
            pass
        finally:
            self.keyboard.save()
        if self.keyboard.is_terminal:
            self.chat.say_goodbye()
            return 0
        return self.code

    def _read(self) -> str | None:
        """Returns the next message. Ctrl-C discards the typed line; a second Ctrl-C leaves."""
        prompt = "> " if self.shows else ""
        if (typed := self.chat.next_typed()) is not None:
            return typed
        try:
            return self.keyboard.message(prompt)
        except KeyboardInterrupt:
            _print_note("\nCtrl-C again leaves; so do Ctrl-D and /quit.")
        try:
            return self.keyboard.message(prompt)
        except KeyboardInterrupt:
            _print_note("")
            return None

    def _receive(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if PROMPT.fullmatch(word) and self._run_prompt(word, rest):
            return
        if not re.fullmatch(r"/[a-z]+", word) or "\n" in text:
            self.code = self.chat.ask(text, wait=not self.keyboard.is_terminal).exit_code
            return
        command = self.commands.get(word)
        if command is None:
            hint = near(word, self.commands, 1)
            _print_note(f"There is no command {word}. " + (f"Did you mean {hint[0]}?" if hint else "/help lists them."))
            return
        try:
            command.run(rest.strip())
        except asyncio.CancelledError:
            _print_note("Stopped.")
        except ToolError as error:
            _print_note("\n".join(filter(None, (error.message, error.suggestion))))

    def _run_prompt(self, word: str, rest: str) -> bool:
        """Sends a prompt of a server to the model. Returns False if no server has it: then it is ordinary text."""
        if word not in self.prompts.find_all():
            return False
        try:
            text = self.prompts.fetch(word, rest)
        except asyncio.CancelledError:
            _print_note("Stopped.")
        except ToolError as error:
            _print_note("\n".join(filter(None, (error.message, error.suggestion))))
        else:
            _print_note(harmless(text))
            prompt = quote_text(text, f"prompt {word[1:]}", rest)
            self.code = self.chat.ask(prompt, wait=not self.keyboard.is_terminal).exit_code
        return True

    def _greet(self) -> None:
        if self.shows:
            agent = self.chat.agent
            _print_note(f"forge {version()} · {agent.model} · {len(agent.registry)} tools · {self.chat.workspace}")
            known = len(self.chat.stored.conversation.messages) if self.chat.has_begun else 0
            _print_note(f"session {self.chat.session}: {known} messages" if known else "/help lists the commands.")

    def _help(self, _: str) -> None:
        known = {name: command.words for name, command in self.commands.items()} | self.prompts.describe()
        width = max(map(len, known))
        lines = [f"{name:<{width}}  {words}" for name, words in sorted(known.items())]
        _print_note(
            "\n".join(
                [*lines, 'End a line with \\ to continue on the next. """ begins and ends a text of several lines.']
            )
        )

    def _quit(self, _: str) -> None:
        raise Quit

    def _tools(self, _: str) -> None:
        registry = self.chat.agent.registry
        width, columns = max(map(len, registry)), shutil.get_terminal_size().columns
        for name, tool in sorted(registry.items()):
            words = tool.spec.description.partition("\n")[0]
            _print_note(clip(f"{name:<{width}}  {describe_permissions(tool.spec):<10}  {words}", columns))

    def _compact(self, _: str) -> None:
        stored = self.chat.stored
        if self.chat.do(stored.shortening.compact(stored.conversation)):
            _print_note(
                f"The model reads {len(stored.conversation.shown)} messages from now on; the session keeps all of them."
            )
        else:
            _print_note("There is nothing to summarise yet.")

    def _resume(self, name: str) -> None:
        if name:
            self.chat.switch(name)
            _print_note(f"session {self.chat.session}: {len(self.chat.stored.conversation.messages)} messages")
            return
        messages = self.chat.stored.conversation.messages
        last = messages[-1].role if messages else ""
        if unanswered_calls(messages) or last in ("user", "tool"):
            self.code = self.chat.ask(None).exit_code
        else:
            _print_note("Nothing was stopped: type what to do next. /session lists other sessions.")

    def _session(self, _: str) -> None:
        store = self.chat.store
        _print_note(f"This is {self.chat.session}" + ("." if store is not None else ", which is not stored."))
        for one in (store.list() if store is not None else ())[:NEWEST]:
            when = datetime.fromtimestamp(one.updated).strftime("%Y-%m-%d %H:%M")
            _print_note(f"  {one.name}  {when}  {one.messages} messages  {harmless(one.title)}")

    def _undo(self, rest: str) -> None:
        if "undo" not in self.chat.agent.registry:
            _print_note("There is nothing to undo: the agent has no tool that changes files.")
            return
        arguments = {"action": "list"} if rest == "list" else {"action": "apply", **({"call_id": rest} if rest else {})}
        result = self.chat.do(self.chat.agent.call("undo", arguments, session=self.chat.session))
        if result.is_error or rest == "list":  # a change that was taken back has been shown
            _print_note(as_text(result))


def _print_note(text: str) -> None:
    click.echo(text, err=True)
