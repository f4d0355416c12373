"""Finds lines that run unseen code: a server's response, another command's output, themselves without end."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence

from forge.permissions import shell
from forge.permissions.shell.commands import find_printed_text, find_runners, runs_input
from forge.permissions.shell.hidden_programs import hides
from forge.permissions.shell.parsed_line import ShellCommand, ShellLine
from forge.permissions.shell.programs import FETCHERS, SHELLS
from forge.permissions.shell.word_patterns import is_known
from forge.permissions.shell.wrappers import InnerLine, starts

_INTERPRETER = re.compile(
    r"(?:python|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|osascript|pwsh|tclsh|Rscript)[\d.]*"
)
_REMOVERS = frozenset({"rm", "unlink", "shred"})
_CODE = re.compile(r"-[A-Za-z]*[ceEr]|--eval|--command|--print|-p|-m|-n[ep]*|-pe")


def is_interpreter(name: str) -> bool:
    return name in SHELLS or bool(_INTERPRETER.fullmatch(name))


def is_fork_bomb(found: ShellLine) -> bool:
    """Says whether a function starts itself twice at once, or continues in the background."""
    for function in found.functions:
        own = [i for i in range(*function.body) if found.commands[i].words[:1] == (function.name,)]
        if any(sum(stage.start <= i < stage.end for i in own for stage in stages) > 1 for stages in found.pipes):
            return True
        if any(span.start <= i < span.end for i in own for span in found.background):
            return True
    return False


def runs_fetched_code(found: ShellLine) -> bool:
    """Recognises `curl … | sh`, `bash <(curl …)`, `eval "$(curl …)"`."""
    for stages in found.pipes:
        fetches = False
        for stage in stages:
            commands = found.commands[stage.start : stage.end]
            if fetches and any(map(_runs_input, commands)):
                return True
            fetches = fetches or any(map(_fetches, commands))
    for command in found.commands:
        inner = found.commands[command.inside.start : command.inside.end]
        if any(map(_fetches, inner)) and (
            _runs_input(command) or any(map(_runs_unknown_code, _words_started_by(command)))
        ):
            return True
        sends = [command] if command.words else found.commands
        if any(map(_runs_input, inner)) and any(map(_fetches, sends)):  # curl … > >(sh)
            return True
    return False


def find_printed_lines(found: ShellLine) -> Iterator[str]:
    """Returns the lines that `echo` and `printf` print into a shell, or into `xargs` as the words of its command."""
    for stages in found.pipes:
        texts: dict[str, None] = {}
        searches: dict[str, None] = {}
        for number, stage in enumerate(stages[1:]):  # `tee` and `cat` hand on what they read
            before = found.commands[stages[number].start : stages[number].end]
            texts |= dict.fromkeys(text for command in before for text in _texts(command))
            searches |= dict.fromkeys(text for command in before for text in _removals_by_find(command))
            for command in found.commands[stage.start : stage.end]:
                if runs_input(command.words):
                    yield from texts
                elif any(os.path.basename(word) == "xargs" for word in command.words):
                    line = " ".join(command.words)
                    yield from (f"{line.replace('{}', text)} {text}" for text in texts)
                    if any(os.path.basename(word) in _REMOVERS for word in command.words):
                        yield from searches

    if find_runners(found):  # a function, a coprocess or `>(sh)` may get any text of the line
        yield from (text for command in found.commands for text in _texts(command))
    for command in found.commands:
        if _runs_what_is_inside(command):
            inner = found.commands[command.inside.start : command.inside.end]
            yield from (text for one in inner if (text := find_printed_text(one.words)))


def _removals_by_find(command: ShellCommand) -> Iterator[str]:
    """Returns `find / -delete` for `find / | xargs rm`, which removes the same."""
    words = command.words
    if words and os.path.basename(words[0]) == "find" and all(map(is_known, words)):
        yield f"{shlex.join(words)} -delete"


def _texts(command: ShellCommand) -> Iterator[str]:
    """Returns the texts that a command prints, and the texts it reads."""
    if text := find_printed_text(command.words):
        yield text
    yield from (one.target for one in command.redirections if one.operator in ("<<", "<<<"))


def _runs_what_is_inside(command: ShellCommand) -> bool:
    """Recognises `bash < <(echo …)`, `. <(echo …)`."""
    if command.inside.start == command.inside.end:
        return False
    is_given = any(one.operator == "<" and not is_known(one.target) for one in command.redirections)
    if is_given and runs_input(command.words):
        return True
    name = os.path.basename(command.words[0]) if command.words else ""
    return (name in SHELLS or name in (".", "source")) and hides(command.words)


def _fetches(command: ShellCommand) -> bool:
    if command.words[:2] in (("command", "-v"), ("command", "-V")):
        return False
    return any(words and os.path.basename(words[0]) in FETCHERS for words in _words_started_by(command))


def _runs_input(command: ShellCommand) -> bool:
    """Says whether the command is an interpreter whose program is its input."""
    if runs_input(command.words):
        return True
    for words in _words_started_by(command):
        name = os.path.basename(words[0]) if words else ""
        if name in ("xargs", "parallel") and any(os.path.basename(word) in SHELLS for word in words[1:]):
            return True
        if _INTERPRETER.fullmatch(name) and all(word.startswith("-") for word in words[1:]):
            return not any(_CODE.fullmatch(word) or word in ("--version", "--help", "-V", "-h") for word in words[1:])
        if name in SHELLS and _is_line_that_runs_input(_code(words[1:])):
            return True
    return False


def _is_line_that_runs_input(word: str) -> bool:
    """Recognises `sh -c sh`, `sh -c "$(cat)"`."""
    return not is_known(word) or any(runs_input(command.words) for command in shell.read_inner(word).commands)


def _runs_unknown_code(words: Sequence[str]) -> bool:
    """Says whether its code, in its words or in the file they name, is known only when the line runs."""
    if not words:
        return False
    name, more = os.path.basename(words[0]), words[1:]
    if not is_known(words[0]):
        return True
    if name == "eval":
        return not all(map(is_known, more))
    if name not in SHELLS and name not in (".", "source") and not _INTERPRETER.fullmatch(name):
        return False
    return not is_known(_code(more) or next((word for word in more if not word.startswith("-")), ""))


def _code(words: Sequence[str]) -> str:
    """Returns the words behind `-c` or `-e`."""
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if _CODE.fullmatch(word) and word != "-m"), "")


def _words_started_by(command: ShellCommand) -> Iterator[Sequence[str]]:
    for started, _ in starts(command.words):
        if isinstance(started, InnerLine):
            yield from (inner.words for inner in shell.read_inner(started).commands)
        else:
            yield started
