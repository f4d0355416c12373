"""`forge run` without a prompt: a conversation until the person leaves, with its commands and their completion."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from forge.cli.options import Options
from forge.cli.running.run_prompts import PromptRunner, RunFlags, is_plain, open_prompt_runner
from forge.cli.running.tool_names import describe_permissions
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.keyboard import Keyboard, is_in_front
from forge.cli.terminal.output import as_ascii
from forge.cli.terminal.print_result import as_text, colour_diff, harmless, table_lines, width_of
from forge.cli.terminal.render import ForPeople
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import install_command, is_installed
from forge.core.messages import Message, ToolCall, export_message, unanswered_calls
from forge.core.result import recognise_any
from forge.doors.session_commands import (
    ASK,
    NO_DIFF,
    PLAN,
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
from forge.project.runs.sessions import new_name
from forge.project.version import version
from forge.workspace.paths.open import read_file, read_head
from forge.workspace.reading import LARGEST_FILES, read_attachments
from forge.workspace.state import state_directory

if TYPE_CHECKING:
    from forge.cli.terminal.input_line import Suggestion

HISTORY = "history"
BREAK = "    "  # before the rest of a line that was broken
KEYS = (
    ("Alt-Enter", "begin a new line; so does Ctrl-J"),
    ("Ctrl-R", "search earlier messages; ↑ shows them"),
    ("Ctrl-O", "show a shortened output in full"),
    ("Shift-Tab", "change the mode: ask, accept edits, plan"),
    ("Esc", "stop the run; ↑ takes a queued message back"),
)


class Quit(Exception):
    """Raised to leave the conversation."""


class Reader(Protocol):
    """Reads the messages of a person: a `Keyboard`, or an `InputLine`."""

    @property
    def is_terminal(self) -> bool: ...

    def message(self, prompt: str = "> ") -> str | None:
        """None: the input is over. Ctrl-C is a `KeyboardInterrupt`."""


class ChatCommand(NamedTuple):
    """A command of the chat: its function and its help."""

    run: Callable[[str], None]
    help: str


def chat(options: Options, flags: RunFlags) -> int:
    """Returns exit code 0 at a terminal; input from a pipe ends with the code of its last run."""
    with open_prompt_runner(options, flags) as runner:
        if flags.session is not None:
            runner.stored  # noqa: B018 - read now, so that the greeting can say how long it is
        can_edit = can_edit_lines(options, flags)
        if not (can_edit and is_installed("terminal")):
            conversation = Chat(runner, Keyboard(), shows=not (options.json or flags.quiet))
            conversation.greet()
            if can_edit:
                _print_note(f"For an input line with history and completion: {install_command('terminal')}")
            return conversation.run_to_end()
        from forge.cli.terminal.input_line import InputLine  # loads prompt_toolkit, which nothing else needs

        history = state_directory(runner.workspace) / HISTORY if runner.store is not None else None
        conversation = Chat(runner, Keyboard(), shows=True)
        conversation.greet()
        with InputLine(conversation, history) as line:
            conversation.keyboard = line
            runner.use_line(line)
            return conversation.run_to_end()


def run_task(options: Options, flags: RunFlags, prompt: str | Message) -> int:
    """Runs one task for a person at a terminal: what is typed meanwhile, in an input line of its own, steers it."""
    with open_prompt_runner(options, flags) as runner:
        if not is_in_front():  # the terminal belongs to another program
            return Chat(runner, Keyboard(), shows=True).run_task(prompt)
        if not (can_edit_lines(options, flags) and is_installed("terminal")):
            runner.hear_typed()
            return Chat(runner, Keyboard(), shows=True).run_task(prompt)
        from forge.cli.terminal.input_line import InputLine

        conversation = Chat(runner, Keyboard(), shows=True)
        history = state_directory(runner.workspace) / HISTORY if runner.store is not None else None
        with InputLine(conversation, history) as line:
            conversation.keyboard = line
            runner.use_line(line)
            code = conversation.run_task(prompt)
            unsent = line.unsent()
        if unsent:
            _print_note(harmless(f"Not sent: {unsent}"))
        return code


def can_edit_lines(options: Options, flags: RunFlags) -> bool:
    """Returns whether the terminal can have an input line of its own; elsewhere lines are read as they come."""
    capable = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    wanted = not (options.json or flags.quiet or is_plain(options, flags))
    return capable and wanted and all(map(os.isatty, (0, 1, 2)))


class Chat:
    """Reads a line, runs it, reads the next. A line that begins with `/word` is a command of the chat."""

    def __init__(self, runner: PromptRunner, keyboard: Reader, *, shows: bool) -> None:
        self.runner = runner
        self.keyboard = keyboard
        self.ending: Ending | None = None  # of the last run
        self.waits = not keyboard.is_terminal  # for background work, before the next message is read
        self.shows = shows and keyboard.is_terminal
        self.prompts = ServerPrompts(runner.servers)
        self.modes = Modes(runner.agent)
        self.commands = {
            "/clear": self._printing(self._clear, "begin a new session"),
            "/context": self._printing(self._context, "what fills the model's window"),
            "/cost": self._printing(self._cost, "tokens and cost of this conversation"),
            "/diff": self._printing(self._diff, "changes of files since this session began"),
            "/export": self._printing(self._export, "write the session to a file: /export NAME.md, or NAME.json"),
            "/mcp": self._printing(self._mcp, "MCP servers and their state"),
            "/model": self._printing(self._model, "show the model; /model NAME changes it"),
            "/permissions": self._printing(self._permissions, "the mode, the rules, and what you always allow"),
            "/compact": ChatCommand(self._compact, "replace all but the latest messages by a summary"),
            "/help": ChatCommand(self._help, "this list"),
            "/quit": ChatCommand(self._quit, "leave; so does Ctrl-D"),
            "/resume": ChatCommand(self._resume, "resume the run that was stopped; /resume NAME opens another session"),
            "/rewind": ChatCommand(
                self._rewind, "list the turns; /rewind N goes back to one, /rewind back undoes that"
            ),
            "/session": self._printing(self._session, "show the name of this session, and list the others"),
            "/tools": ChatCommand(self._tools, "list the tools the agent has"),
            "/undo": ChatCommand(self._undo, "undo the last change of a file"),
        }

    def run_to_end(self) -> int:
        if self.shows and self.runner.line is None:
            self.runner.hear_typed()
        try:
            while (text := self._read()) is not None:
                if text:
                    self._receive(text)
        except Quit:
            pass
        if self.keyboard.is_terminal:
            self.runner.say_goodbye()
            return 0
        return self.ending.exit_code if self.ending is not None else 0

    def run_task(self, prompt: str | Message) -> int:
        """Runs one task, then what was typed meanwhile and came too late for it. Returns the exit code."""
        self.waits = True
        ending = self._ask(prompt)
        with suppress(Quit):
            while ending.reason != "cancelled":
                text = self._next_queued()
                if text is None and ending.reason == "question":
                    text = self.keyboard.message()
                if not text:
                    break
                self._receive(text)
                ending = self.ending or ending
        self.runner.say_goodbye(ending)
        return ending.exit_code

    def _ask(self, prompt: str | Message | None) -> Ending:
        self.ending = self.runner.ask(prompt, wait=self.waits)
        return self.ending

    def _next_queued(self) -> str | None:
        line = self.runner.line
        return line.next_queued() if line is not None else self.runner.next_typed()

    # What the input line wants; on its thread.

    def send(self, text: str) -> None:
        self.runner.agent.send(text, self.runner.session)

    def withdraw(self, text: str) -> bool:
        return self.runner.agent.withdraw(text, self.runner.session)

    def is_busy(self) -> bool:
        return self.runner.is_busy

    def stop(self) -> None:
        self.runner.stop()

    def expand(self) -> None:
        self.runner.screen.expand()

    def change_mode(self) -> None:
        """Changes to the next mode."""
        modes = self.modes.all
        self.modes.use(modes[(modes.index(self.modes.mode) + 1) % len(modes)])

    def mode(self) -> str:
        """Returns the words for the line; none for the usual mode."""
        return {ASK: "", PLAN: "plan mode"}.get(self.modes.mode, self.modes.mode)

    def suggest(self, line: str, *, asked: bool) -> Iterable[Suggestion]:
        """Completes commands with their arguments, and paths after `@`."""
        from forge.cli.terminal.input_line import Suggestion

        word = line.rpartition("\n")[2].rpartition(" ")[2]
        for path in find_paths(word[1:], self.runner.workspace) if word.startswith("@") else ():
            yield Suggestion(f"@{path}", len(word))
        if not line.startswith("/") or "\n" in line:
            return
        if " " not in line:
            found = self._find_prompts() if asked else self.prompts.listed
            known = self._describe_commands() | self.prompts.describe()
            for name in sorted(name for name in known if name.startswith(line)):
                takes_more = name in found and found[name][1].arguments
                yield Suggestion(f"{name} " if takes_more else name, len(line), known[name])
        elif asked:
            completed: list[str] = self.runner.loop.start(self.prompts.complete(line, word)).result()
            yield from (Suggestion(one, len(word)) for one in completed)

    # The conversation.

    def _read(self) -> str | None:
        """Returns the next message. Ctrl-C discards the typed line; a second Ctrl-C leaves."""
        prompt = "> " if self.shows else ""
        if (typed := self.runner.next_typed()) is not None:
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
        if word not in self.commands and (own := find_own_commands(self.runner.workspace).get(word)) is not None:
            text, word = fill_in(own.text, rest.strip()), ""
        if not re.fullmatch(r"/[a-z][a-z0-9-]*", word) or "\n" in text:
            try:
                prompt = attach_named(text, self.runner.agent.scope)
            except ToolError as error:
                _print_note("\n".join(filter(None, (error.message, error.suggestion))))
                return
            if isinstance(prompt, Message):
                names = (f"{one.name} ({one.media_type}, {len(one.data):,} bytes)" for one in prompt.attachments)
                _print_note(harmless(f"Attached: {', '.join(names)}"))
            self._ask(prompt)
            return
        command = self.commands.get(word)
        if command is None:
            _print_note(explain_unknown(word, self.commands, self.runner.workspace))
            return
        try:
            command.run(rest.strip())
        except asyncio.CancelledError:
            _print_note("Stopped.")
        except ToolError as error:
            _print_note("\n".join(filter(None, (error.message, error.suggestion))))

    def _run_prompt(self, word: str, rest: str) -> bool:
        """Sends a prompt of a server to the model. Returns False if no server has it: then it is ordinary text."""
        if word not in self._find_prompts():
            return False
        try:
            prompt = self.runner.do(self.prompts.fetch(word, rest))
        except asyncio.CancelledError:
            _print_note("Stopped.")
        except ToolError as error:
            _print_note("\n".join(filter(None, (error.message, error.suggestion))))
        else:
            _print_note(harmless(prompt.text))
            self._ask(prompt)
        return True

    def _find_prompts(self) -> Mapping[str, Any]:
        """Returns the commands of servers. Asks the servers only if the list is no longer fresh."""
        return (
            self.prompts.listed if self.prompts.is_fresh else self.runner.loop.start(self.prompts.find_all()).result()
        )

    def greet(self) -> None:
        if self.shows:
            agent = self.runner.agent
            _print_note(f"forge {version()} · {agent.model} · {len(agent.registry)} tools · {self.runner.workspace}")
            known = len(self.runner.stored.conversation.messages) if self.runner.has_begun else 0
            _print_note(f"session {self.runner.session}: {known} messages" if known else "/help lists the commands.")

    def _help(self, _: str) -> None:
        self._find_prompts()
        known = self._describe_commands() | self.prompts.describe()
        several = 'End a line with \\ to continue on the next. """ begins and ends a text of several lines.'
        keys = () if self.runner.line is None else KEYS
        rows = [*sorted(known.items()), *keys, ("@FILE", "attach an image, a sound or a document of the workspace")]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        _print_note("\n".join(lines if keys else [*lines, several]))

    def _describe_commands(self) -> dict[str, str]:
        own = {name: one.words for name, one in find_own_commands(self.runner.workspace).items()}
        return own | {name: command.help for name, command in self.commands.items()}

    @staticmethod
    def _printing(lines: Callable[[str], Iterable[str]], words: str) -> ChatCommand:
        def run(rest: str) -> None:
            for line in lines(rest):
                _print_note(line if "\x1b" in line else harmless(line))  # a diff is coloured

        return ChatCommand(run, words)

    def _quit(self, _: str) -> None:
        raise Quit

    def _tools(self, _: str) -> None:
        registry = self.runner.agent.registry
        rows = [
            (name, describe_permissions(tool.spec), tool.spec.description.partition("\n")[0])
            for name, tool in sorted(registry.items())
        ]
        for line in table_lines(rows, shutil.get_terminal_size().columns - 1):
            _print_note(line)

    def _compact(self, _: str) -> None:
        stored = self.runner.stored
        if self.runner.do(stored.shortening.compact(stored.conversation)):
            _print_note(
                f"The model reads {len(stored.conversation.shown)} messages from now on; the session keeps all of them."
            )
        else:
            _print_note("There is nothing to summarise yet.")

    def _resume(self, name: str) -> None:
        if name:
            self.runner.switch(name)
            _print_note(f"session {self.runner.session}: {len(self.runner.stored.conversation.messages)} messages")
            return
        messages = self.runner.stored.conversation.messages
        last = messages[-1].role if messages else ""
        if unanswered_calls(messages) or last in ("user", "tool"):
            self._ask(None)
        else:
            _print_note("Nothing was stopped: type what to do next. /session lists other sessions.")

    def _session(self, _: str) -> Iterable[str]:
        return describe_sessions(self.runner.store, self.runner.session)

    def _model(self, name: str) -> Iterator[str]:
        if not name:
            model = self.runner.agent.model
            yield f"The model is {model}. /model NAME changes it, such as /model anthropic:MODEL."
            return
        change_model(self.runner.agent, name)
        self.runner.use_model(name)
        yield f"The model is {name} from now on."

    def _clear(self, _: str) -> Iterator[str]:
        before, begun = self.runner.session, self.runner.has_begun
        self.runner.begin_anew(new_name())
        yield "A new session begins: the model knows nothing of the earlier messages."
        if begun and self.runner.store is not None:
            yield f"/resume {before} returns to them."

    def _cost(self, _: str) -> Iterable[str]:
        view = self.runner.view
        return describe_cost(*view.totals) if isinstance(view, ForPeople) else ()

    def _context(self, _: str) -> Iterable[str]:
        return describe_context(self.runner.agent, self.runner.session, self.runner.stored.conversation.shown)

    def _diff(self, _: str) -> Iterator[str]:
        changes = harmless(session_diff(self.runner.workspace, self.runner.session))
        yield colour_diff(changes) if changes else NO_DIFF

    def _export(self, rest: str) -> Iterator[str]:
        name = rest or f"{self.runner.session}.md"
        path = Path(self.runner.workspace, name)
        messages = self.runner.stored.conversation.messages
        text = (
            json.dumps([export_message(one) for one in messages], ensure_ascii=False, indent=2)
            if path.suffix == ".json"
            else "\n\n".join(_to_markdown(one) for one in messages if one.role != "system")
        )
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8", errors="replace") as stream:
                stream.write(f"{text}\n")
        except OSError as error:
            hint = "Name another file: /export NAME.md, or NAME.json."
            raise ToolError(f"exporting to {name}: {error.strerror}", ErrorKind.USER, hint) from None
        yield f"{len(messages)} messages are in {name}."

    def _permissions(self, _: str) -> Iterator[str]:
        yield from describe_rules(self.runner.agent, self.runner.session, self.modes.mode)
        yield "Shift-Tab changes the mode."

    def _mcp(self, _: str) -> Iterable[str]:
        return describe_servers(self.runner.servers)

    def _undo(self, rest: str) -> None:
        if "undo" not in self.runner.agent.registry:
            _print_note("There is nothing to undo: the agent has no tool that changes files.")
            return
        arguments = {"action": "list"} if rest == "list" else {"action": "apply", **({"call_id": rest} if rest else {})}
        work = self.runner.agent.call("undo", arguments, session=self.runner.session)
        result = self.runner.do(work, typed_tool="undo")  # a file that somebody else changed since is never written
        if result.is_error or rest == "list":  # a change that was taken back has been shown
            _print_note(as_text(result))

    def _rewind(self, rest: str) -> None:
        from forge.cli.running.rewind import preview_lines, turn_lines  # few conversations use it

        agent, store, name = self.runner.agent, self.runner.store, self.runner.session
        if store is None or not self.runner.has_begun:
            _print_note("There is nothing to rewind: this session is not stored.")
            return
        if rest and not rest.isdecimal() and rest != "back":
            _print_note(f"/rewind takes the number of a turn, or back, not {rest!r}. /rewind lists the turns.")
            return
        self.runner.check_runs()
        if not rest:
            for line in turn_lines(self.runner.do(agent.list_turns(name, store=store))):
                _print_note(line)
            return
        turn = None if rest == "back" else int(rest)
        plan = self.runner.do(agent.rewind(name, turn, store=store, preview=True))
        for line in preview_lines(plan):
            _print_note(line)
        if not plan.conflicts and (self.keyboard.message("Rewind? [y/N] ") or "").strip().lower() not in ("y", "yes"):
            _print_note("Nothing was changed.")
            return
        done = self.runner.do(agent.rewind(name, turn, store=store, expect=plan.digest))
        self.runner.switch(name)
        _print_note(f"This session is at turn {done.turn}. /rewind back takes this back.")


def attach_named(text: str, scope: Scope) -> str | Message:
    """Returns the prompt with the files that it names as `@photo.png`: images, sounds and PDF documents.

    Other names, such as those of text files, stay words: the model has tools to read them. Raises `ToolError` if a
    file, or all of them together, are too large.
    """
    named: list[str] = []
    for word in re.findall(r"(?<!\S)@(\S+)", text):
        for path in dict.fromkeys((word, word.rstrip(".,;:!?)\"'"))):
            with suppress(ToolError):
                if not recognise_any(read_head(scope, path), path).text:
                    named.append(path)
                break
    files = [recognise_any(read_file(scope, path, LARGEST_FILES), path) for path in dict.fromkeys(named)]
    return Message("user", text, attachments=read_attachments(scope, files)) if files else text


def _print_note(text: str) -> None:
    """Prints lines; on a terminal they break between words, and what follows a break is indented."""
    if sys.stderr.isatty():
        text = as_ascii("\n".join(_fit_note(line) for line in text.split("\n")))
    click.echo(text, err=True)


def _fit_note(line: str) -> str:
    """Breaks a line between words. A word that fits only without the indentation, or not at all, stays whole, too."""
    columns = shutil.get_terminal_size().columns - 1
    if "\x1b" in line or width_of(line) <= columns:  # a diff, whose lines stay as they are; or a line that fits
        return line
    row = re.match(r"\s*\S+(?: \S+)* {2,}", line)  # of a table: what follows a break stands below its text
    indent = " " * len(row[0]) if row and len(row[0]) <= columns // 2 else BREAK
    lines = [""]
    for word in re.findall(r"(?:^\s+)?\S+(?: ·(?= ))?\s*", line):  # no line begins with a dot that separates
        if lines[-1] and width_of(lines[-1] + word) > columns:
            lines.append(indent if width_of(indent + word) <= columns else "")
        lines[-1] += word
    return "\n".join(lines)


def _to_markdown(message: Message) -> str:
    title = {"user": "You", "assistant": "Model", "tool": "Result"}[message.role]
    calls = [f"`{call.name}` {_to_code(_arguments_text(call))}" for call in message.tool_calls]
    text = _to_block(message.text) if message.role == "tool" else message.text.strip()
    return "\n\n".join(filter(None, (f"## {title}", text, *calls)))


def _arguments_text(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=str)


def _to_code(text: str) -> str:
    """Returns Markdown that shows one line of text as it is, whatever quotes are in it."""
    marks = "`" * (_longest_quote(text) + 1)
    return f"{marks} {text} {marks}" if text.startswith("`") or text.endswith("`") else f"{marks}{text}{marks}"


def _to_block(text: str) -> str:
    """Returns a Markdown block that shows a text as it is: its own headings and quotes mean nothing there."""
    fence = "`" * max(_longest_quote(text) + 1, 3)
    return f"{fence}\n{text.strip(chr(10))}\n{fence}"


def _longest_quote(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


# Completes paths.


MOST_PATHS = 200  # paths offered at once


def find_paths(beginning: str, root: Path) -> list[str]:
    """Returns the paths that begin so; directories end with a slash, and hidden files need their dot."""
    folder, _, name = beginning.rpartition("/")
    base = f"{folder}/" if folder or beginning.startswith("/") else ""
    try:
        with os.scandir(os.path.join(root, base)) as entries:
            found = [f"{base}{one.name}{'/' if one.is_dir() else ''}" for one in entries if _fits(one.name, name)]
    except (OSError, ValueError):
        return []
    return sorted(found)[:MOST_PATHS]


def _fits(name: str, beginning: str) -> bool:
    is_hidden = name.startswith(".") and not beginning.startswith(".")
    return name.startswith(beginning) and name.isprintable() and not is_hidden
