"""Finds the commands that a shell line could reach, and tells whether the line is literal.

Both answers err on the strict side: only a literal line can be allowed by a pattern, and denies look at all it reaches.
A word that is known only when the line runs (`$x`, `r$1m`, `$(…)`) counts as anything it could be, and so does what a
shell reads from a pipe. What other languages do (`python -c …`) cannot be seen here; such commands are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions import shell
from forge.permissions.shell import hidden_programs
from forge.permissions.shell.hidden_programs import hides, is_descriptor, may_run_input, may_start_others, sets_path
from forge.permissions.shell.literal_line import LiteralCommand, split_literal
from forge.permissions.shell.parsed_line import Redirection, ShellCommand, ShellLine
from forge.permissions.shell.programs import (
    FETCHERS,
    FETCHING_COMMANDS,
    READS_COMMANDS,
    SHELLS,
    SOMETIMES_FETCHERS,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.word_patterns import ANY, SOME, is_known, may_fit
from forge.permissions.shell.words import GLOB
from forge.permissions.shell.working_directories import Area, directories, unwrap_builtin
from forge.permissions.shell.wrappers import InnerLine, Started, TooDeep, Value, starts
from forge.permissions.targets import paths

__all__ = [
    "SHELLS",
    "WRAPPERS",
    "LiteralCommand",
    "ReachedCommands",
    "RunSetting",
    "UnreadableLine",
    "collapse_spaces",
    "find_commands",
    "find_reached",
    "is_simple",
    "literal_commands",
    "may_fetch",
    "split_literal",
]

LONGEST = shell.LONGEST
MOST = 200_000  # words of all commands that are found in one line
LARGEST = 1_000_000  # characters of all of them
_DEEPEST = 8  # lines inside each other
_CACHED = 2_000  # characters of a line whose commands are remembered
MOST_LINKS = 40  # links behind each other
MOST_FOLDERS = 16
_MOVES = frozenset({"cd", "pushd"})
_GIVES_INPUT = re.compile(r"\(\)|\bfunction\b|>\(|\bcoproc\b|\bexec\b|[{(;]\s*$|[|]\s*[{(]")  # to a command inside
_MANY_PROGRAMS = ("busybox", "toybox", "coreutils", "snap")  # they are what their own name says
_WRITES_OPERANDS = frozenset("tee cp mv ln install dd curl wget base64 split".split())
_TAKES_TEXT = frozenset("cat tee wc grep sort head tail".split())
_SETTINGS = {"git": ("config", ".gitconfig"), "make": ("Makefile", "makefile", "GNUmakefile"), "ssh": ("config",)}
_COUNTERS = frozenset("wc seq date nproc expr id stat pgrep".split())
_ARITHMETIC = re.compile(
    r"\(\((.*?)\)\)|\$\[(.*?)\]|\blet\s+([^;&|\n]*)|\[\[(.*?-(?:eq|ne|lt|le|gt|ge|v).*?)\]\]"
    r"|\b(?:declare|typeset|local)\s+-\w*i\w*\s+([^;&|\n]*)|\$\{#?\w+\[([^\]]*)\]|\$\{\w+:(\s*[\w(][^}]*)\}|\$\{!(\w+)"
    r"|\b\w+\[([^\]]*)\]\+?=",
    re.DOTALL,
)
_EVALUATES_NAME = re.compile(r"(?:\btest\s+-v|\[\s+-v|\bprintf\s+-v|\bread|\bunset)\s+([^;&|\n]*)")
_EXPANDED = re.compile(r"\$\{?(\w+)")
_NAME = re.compile(r"(?<!\w)(?:[A-Za-z_]\w*|(?<=\$)[0-9])")
_EXPANDS = re.compile(r"[$`\\]")
_DOCUMENT = re.compile(  # one here-document behind words that need no quotes
    r"[\w \t./>=-]*(?P<mark><<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote))(?P<more>[\w \t./>|-]*)\n"
)

_KEYWORDS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!"})
_SAYS = frozenset({"echo", "printf"})
_FORMATTED = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)|%[^a-zA-Z%]*.")  # what printf makes of it
_ESCAPED = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,4}|.)")  # what `echo -e` makes of it
_OPTION_OF_ECHO = re.compile(r"-[neE]+|--")
_SPACE_OUTSIDE_QUOTES = re.compile(r"(\"[^\"]*\"|'[^']*')|[ \t]+")
_MISLEADING = re.compile(r"[$`\\#{}\n\r]")  # here shells, and the grammar, differ about what quotes mean
_EXPANSION = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|`[^`]*`")
_QUOTES = re.compile(r"[\"'\\]")
_BRACES = re.compile(r"\{[^{}]*\}")
_REDIRECTION = re.compile(r"(?:[0-9]+|&|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>])[ \t]*[^\s;&|<>()`]*")
_SEPARATOR = re.compile(r"[;&|<>$`(){}\n\r]+")
_WILDCARD = re.compile(r"[*?]+|\[[^\]]+\]")


class UnreadableLine(Exception):
    """The line is too long or too deep, or no shell would run it: its commands are not known."""


def is_simple(line: str) -> bool:
    """Says whether the line is provably one command with literal words."""
    return len(split_literal(line)) == 1


def literal_commands(line: str, scope: Scope) -> tuple[LiteralCommand, ...]:
    """Returns the commands of a literal line that means the same wherever it runs; empty for other lines.

    A `cd` must stay in the workspace, and behind it no program may be named by a relative path.
    """
    found = split_literal(line)
    if all(unwrap_builtin(part.words)[:1] != ("cd",) for part in found[:-1]):
        return found
    run_in = directories(found, "")
    if run_in is None:
        return ()
    area = Area(scope)
    for part, where in zip(found, run_in, strict=True):
        name = next(iter(unwrap_builtin(part.words)), "")
        if any(where) and (("/" in name and not name.startswith("/")) or not area.has_all(["."], where)):
            return ()
    return found


def collapse_spaces(line: str) -> str:
    """Returns the line with single spaces between its words; quoted text stays as it is."""
    return _SPACE_OUTSIDE_QUOTES.sub(lambda found: found[1] or " ", line).strip()


class RunSetting(NamedTuple):
    """The folder that a line runs in, and its input."""

    folder: str = ""  # empty: links are not followed
    has_input: bool = False


class ReachedCommands(NamedTuple):
    """The words of the commands that a line could run."""

    words: tuple[tuple[str, ...], ...]
    unseen: tuple[tuple[str, ...], ...]  # those that may start something the line does not show
    linked: frozenset[tuple[str, ...]] = frozenset()  # those that have another name because the program is a link


def find_commands(line: str, setting: RunSetting) -> ReachedCommands:
    """Returns every command the line could run, and those that may start something else. Raises `UnreadableLine`."""
    read = _remembered if len(line) <= _CACHED else _find_commands
    found = read(line, setting.has_input) if len(line) <= LONGEST else None
    if found is None:
        raise UnreadableLine
    links = _find_links(found.words, setting.folder) if setting.folder else ()
    system = [(name, path) for name, path in links if "/" not in name and not is_descriptor(path)]
    if system:  # their own names are in the tables, so the line need not be read again
        added = tuple(
            (os.path.basename(path), *words[1:]) for words in found.words for name, path in system if words[0] == name
        )
        found = ReachedCommands((*found.words, *added), found.unseen, frozenset(added) - frozenset(found.words))
    links = tuple(link for link in links if link not in system)
    if not links:
        return found
    more = read(line, setting.has_input, links)
    if more is None:
        raise UnreadableLine
    known = {words[1:] for words in found.unseen}
    unseen = (*found.unseen, *(words for words in more.unseen if words[1:] not in known))
    every = dict.fromkeys((*found.words, *more.words))
    linked = (frozenset(every) - frozenset(found.words)) | found.linked
    return ReachedCommands(tuple(every), unseen, linked)


def find_reached(line: str) -> tuple[tuple[str, ...], ...]:
    """Returns the words of every command the line could run, without quotes, wrappers and directories.

    `ANY` and `SOME` in a word stand for what is not known. Raises `UnreadableLine`.
    """
    return find_commands(line, RunSetting()).words


def may_fetch(line: str) -> bool:
    """Says whether the line may print what a server sends. A line or a program that is not known may."""
    try:
        reached = find_reached(line)
    except UnreadableLine:
        return True
    return any(
        not is_known(words[0])
        or words[0] in FETCHERS
        or (words[0] in SOMETIMES_FETCHERS and any(may_fit(words, f"{command} *") for command in FETCHING_COMMANDS))
        for words in reached
    )


Words = tuple[tuple[str, ...], ...]


Links = tuple[tuple[str, str], ...]
"""The words that are links to programs or descriptors, with their targets."""


class FedCommand(tuple[str, ...]):
    """The words of a command whose input was read as a line, or is a file that the line names."""

    __slots__ = ()


class LooseCommand(FedCommand):
    """Words that stand in the line, perhaps in quotes, and may be no command at all."""

    __slots__ = ()


class AnyCommand(tuple[str, ...]):
    """The words of a command that may run its input, or a file the line writes, which are not known."""

    __slots__ = ()


def _find_links(reached: Words, folder: str) -> Links:
    """Returns the programs, and the files that programs run, that are links to something of another name."""
    folders = [folder, *(words[-1] for words in reached if words[0] in _MOVES and len(words) > 1)][:MOST_FOLDERS]
    starts_in = [os.path.join(folder, one) for one in folders]
    found: dict[tuple[str, str], None] = {}
    for number, word in dict.fromkeys((min(n, 1), word) for words in reached for n, word in enumerate(words[:3])):
        if not is_known(word) or not word or len(word) > paths.LONGEST or word.startswith("-"):
            continue
        places = [os.path.join(start, word) for start in starts_in]
        if number == 0 and "/" not in word:
            places = _list_programs(word)
        for target in (one for place in places for one in _follow(place)):
            if number == 0 or is_descriptor(target):
                found[word, target] = None
    return tuple(found)


def _follow(path: str) -> Iterator[str]:
    """Yields the targets of a link that have another name, one behind the other, up to a descriptor."""
    name, steps = os.path.basename(path), 0
    real = paths.resolve_links(os.path.dirname(path))
    path = os.path.join(real, name)
    while steps < MOST_LINKS and os.path.islink(path):
        path = paths.normalise(os.path.join(os.path.dirname(path), os.readlink(path)))
        if os.path.basename(path) not in (name, *_MANY_PROGRAMS):
            yield path
        if path.startswith(("/dev/", "/proc/")):
            return
        steps += 1


def _list_programs(name: str) -> list[str]:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [path for folder in folders if os.path.islink(path := os.path.join(folder, name))]


def _find_commands(line: str, has_input: bool, links: Links = ()) -> ReachedCommands | None:
    found: dict[tuple[str, ...], None] = {}
    unseen: dict[tuple[str, ...], None] = {}
    total = size = 0
    if sets_path(line):
        unseen[("PATH",)] = None
    try:
        for words in filter(None, _Reader(links, has_input or bool(_GIVES_INPUT.search(line))).read(line, 0)):
            known = tuple(word.replace(GLOB, ANY) for word in words)
            total += len(known)
            size += sum(map(len, known))
            if total > MOST or size > LARGEST:
                return None
            if isinstance(words, AnyCommand):
                unseen[known] = None
                continue
            found[known] = None
            found[os.path.basename(known[0]) or known[0], *known[1:]] = None
    except (UnreadableLine, TooDeep):
        return None
    return ReachedCommands(tuple(found), tuple(dict.fromkeys((*unseen, *filter(hides, found)))))


_remembered = lru_cache(maxsize=1_024)(_find_commands)


class _Reader:
    """Reads the commands of a line, with the lines inside it."""

    def __init__(self, links: Links, has_input: bool) -> None:
        self.links = links
        self.has_input = has_input  # a command that is not fed may read something

    def read(self, line: str, depth: int) -> Iterator[Sequence[str]]:
        if depth > _DEEPEST:
            raise UnreadableLine
        for words in _split_segments(line, depth):
            if isinstance(words, InnerLine):
                yield from self.read(words, depth + 1)
            elif isinstance(words, AnyCommand):
                yield words
            else:
                yield from self._read_segment(words, depth)

    def _read_segment(self, words: Sequence[str], depth: int) -> Iterator[Sequence[str]]:
        is_fed, is_loose = isinstance(words, FedCommand), isinstance(words, LooseCommand)
        is_run = is_fed and runs_input(words)  # then its input was read as a line
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        for spelling in _spellings(words, self.links):
            for started, level in starts(spelling, depth):
                if isinstance(started, InnerLine):
                    yield from self.read(started, level)
                    continue
                for one in _spellings(started, self.links):
                    yield list(one)
                    if not is_loose and len(one) > 1 and may_start_others(one[0].replace(GLOB, ANY)):
                        yield AnyCommand(one)
                    is_read = is_run or (is_fed and one is started and spelling is words)
                    if is_read or isinstance(started, Value):
                        continue
                    if may_run_input(one, has_input=self.has_input):
                        yield AnyCommand(one)


def _spellings(words: Sequence[str], links: Links) -> Iterator[Sequence[str]]:
    """Yields the words, and the words with each link replaced by a target."""
    yield words
    for link, target in links:
        for number, word in enumerate(words[:3]):
            if word == link and (number == 0 or is_descriptor(target)):
                yield [*words[:number], target, *words[number + 1 :]]


def _split_segments(line: str, depth: int) -> Iterator[Started]:
    """Returns the words of each command, without quotes and redirections, in each reading that shells have."""
    plain = split_literal(line)
    if plain:
        for before, part in zip((None, *plain), plain, strict=False):
            is_piped = before is not None and part.joint == "|"
            yield FedCommand(part.words) if is_piped else part.words
            if before is not None and is_piped:
                if runs_input(part.words):
                    yield from _read_from_pipe(before.words)
                yield from _add_unknown_input(part.words)
        yield from _find_run_files(ShellLine(commands=[ShellCommand(words=part.words) for part in plain]))
        return
    found = shell.read_inner(line) if depth else shell.read(line)
    if found.is_broken:
        if depth == 0:
            raise UnreadableLine
        yield from split_loosely(line)  # perhaps no line at all, but a text in an argument
        return
    yield from _words_of(found)
    if _evaluates_unknown(line, found):
        yield AnyCommand(("((",))
    if "&>" in line:  # one redirection to bash, the end of a command to others
        yield from _words_of(shell.read_inner(line.replace("&>", "& >")))
    if _MISLEADING.search(line):
        yield from map(LooseCommand, split_loosely(_without_documents(line, found)))


def _words_of(found: ShellLine) -> Iterator[Started]:
    fed = _find_fed(found)
    for number, command in enumerate(found.commands):
        yield FedCommand(command.words) if number in fed else command.words
        for name, value in command.assignments:
            yield [f"{name}={value}"]
        if command.words[:1] and command.words[0] in hidden_programs.DECLARES:  # their words are as they are written
            yield [_EXPANSION.sub(ANY, _QUOTES.sub("", word)) for word in command.words]
        for redirection in command.redirections:
            if redirection.operator in ("<", "<<", "<<<"):
                yield from _add_unknown_input(command.words)
            if redirection.operator in ("<<", "<<<"):
                if redirection.operator == "<<<" or not _is_only_data(command, redirection, found):
                    yield from map(LooseCommand, split_loosely(redirection.target))
                if runs_input(command.words):
                    yield from _read_input(redirection.target)
            elif redirection.operator == "<" and not is_known(redirection.target) and runs_input(command.words):
                inside = found.commands[command.inside.start : command.inside.end]
                yield from (one for inner in inside for one in _read_from_pipe(inner.words))  # bash < <(echo rm x)
    for name, values in found.loops:
        if hidden_programs.names_program(name):
            yield AnyCommand((name,))
            yield from ([f"{name}={value}"] for value in values)
    for stages in found.pipes:
        for before, stage in pairwise(stages):
            if any(runs_input(command.words) for command in found.commands[stage.start : stage.end]):
                for command in found.commands[before.start : before.end]:
                    yield from _read_from_pipe(command.words)
            for command in found.commands[stage.start : stage.end]:
                yield from _add_unknown_input(command.words)
    yield from _find_run_files(found)


def find_runners(found: ShellLine) -> list[ShellCommand]:
    """Returns the commands that may run their input, where the input is known only when the line runs."""
    fed = _find_fed(found)
    return [
        command
        for number, command in enumerate(found.commands)
        if number not in fed and command.words and runs_input(command.words)
    ]


def _find_fed(found: ShellLine) -> set[int]:
    """Returns the numbers of the commands whose input is read as a line elsewhere, or is a file that the line names."""
    functions = {function.name for function in found.functions}
    fed: set[int] = set()
    piped: set[int] = set()
    for stages in found.pipes:
        for before, stage in pairwise(stages):
            printers = found.commands[before.start : before.end]
            names = {command.words[0] for command in printers if command.words}
            if stage.end - stage.start == 1 and printers and not names & functions:
                piped.add(stage.start)
    for number, command in enumerate(found.commands):
        given = [one for one in command.redirections if "<" in one.operator]
        if not given:
            fed |= {number} & piped
        elif len(given) == 1 and given[0].descriptor in ("", "0"):
            operator, target, _ = given[0]
            is_file = operator == "<" and is_known(target) and not target.startswith(("/dev/", "/proc/"))
            is_substituted = operator == "<" and target == SOME and command.inside.start < command.inside.end
            if operator in ("<<", "<<<") or is_file or is_substituted:
                fed.add(number)
    for function in found.functions:
        fed -= set(range(*function.body)) & piped  # what a function is given depends on its caller
    return fed


def _evaluates_unknown(line: str, found: ShellLine) -> bool:
    """Says whether arithmetic or a subscript evaluates a variable with data: `read x; ((x))` runs `a[$(rm y)]`."""
    contexts = [text for match in _ARITHMETIC.finditer(line) for text in match.groups() if text]
    builtins = [match[1] for match in _EVALUATES_NAME.finditer(line)]
    if not contexts and not builtins:
        return False
    named = {name for text in contexts for name in _NAME.findall(text)}
    named |= {name for text in builtins for name in _EXPANDED.findall(text)}
    if found.functions and "1" in named:
        return True
    return bool(named & set(_find_unknown_variables(found)))


def _find_unknown_variables(found: ShellLine) -> Iterator[str]:
    """Yields the variables that hold data when the line runs, other than numbers that programs count."""
    for command in found.commands:
        inside = found.commands[command.inside.start : command.inside.end]
        is_number = bool(inside) and bool(inside[-1].words) and _counts(inside[-1].words)
        for name, value in command.assignments:
            if inside and not is_known(value) and not is_number:
                yield name
        if command.words[:1] and command.words[0] in ("read", "mapfile", "readarray", "getopts"):
            yield from (word for word in command.words[1:] if not word.startswith("-"))
    for name, values in found.loops:
        if any(value in (ANY, SOME) for value in values) and not any(
            command.words[:1] == ("seq",) for command in found.commands
        ):
            yield name


def _counts(words: Sequence[str]) -> bool:
    return words[0] in _COUNTERS or (words[0] == "grep" and any(word.startswith("-") and "c" in word for word in words))


def _find_run_files(found: ShellLine) -> Iterator[Started]:
    """Returns what a shell runs from a file that the line itself writes: its text, or anything."""
    texts: dict[str, list[str | None]] = {}
    for command in found.commands:
        for path, text in _find_written(command):
            texts.setdefault(os.path.basename(path), []).append(text)
    if not texts:
        return
    for command in found.commands:
        for started, _ in starts(command.words):
            if not started or isinstance(started, InnerLine):
                continue
            is_shell = base_name(os.path.basename(started[0])) in (*SHELLS, ".", "source")
            candidates = [one.target for one in command.redirections if one.operator == "<"] if is_shell else []
            candidates += started[1:] if is_shell else started[:1]
            candidates += _SETTINGS.get(os.path.basename(started[0]), ())
            for name in dict.fromkeys(map(os.path.basename, candidates)):
                for text in texts.get(name, ()):
                    yield from [AnyCommand(started)] if text is None else _read_input(text)


def _find_written(command: ShellCommand) -> Iterator[tuple[str, str | None]]:
    """Returns the files that a command writes, with the text where it is known."""
    given = [one.target for one in command.redirections if one.operator in ("<<", "<<<")]
    name = os.path.basename(command.words[0]) if command.words else ""
    text = given[0] if name in ("cat", "tee") and len(given) == 1 else find_printed_text(command.words)
    for one in command.redirections:
        if ">" in one.operator and is_known(one.target) and one.target:
            yield one.target, text
    if name in _WRITES_OPERANDS:
        yield from ((word.rpartition("=")[2], text if name == "tee" else None) for word in command.words[1:])


def _is_only_data(command: ShellCommand, document: Redirection, found: ShellLine) -> bool:
    """Says whether a here-document is text for `cat` and the like, and nothing in it is expanded."""
    name = command.words[0] if command.words else ""
    return name in _TAKES_TEXT and not _EXPANDS.search(document.target) and not found.functions


def _without_documents(line: str, found: ShellLine) -> str:
    """Returns a line without the here-documents that are text for `cat`, where the grammar is surely right."""
    head = _DOCUMENT.match(line)
    documents = [(command, one) for command in found.commands for one in command.redirections if one.operator == "<<"]
    if head is None or len(documents) != 1 or not _is_only_data(*documents[0], found):
        return line
    body = documents[0][1].target
    if any(one.lstrip("\t") == head["end"] for one in body.split("\n")):
        return line  # to a shell it ends there
    rest = line[head.end() :]
    if not rest.startswith(body) or rest[len(body) :].lstrip("\n").split("\n")[0] != head["end"]:
        return line
    return line[: head.start("mark")] + head["more"] + "\n" + rest[len(body) :].lstrip("\n").removeprefix(head["end"])


def _read_from_pipe(words: Sequence[str]) -> Iterator[Started]:
    """Returns the commands that a shell reads from a pipe: the words of `echo`, or anything."""
    text = find_printed_text(words)
    yield from [[ANY]] if text is None else _read_input(text)


def _add_unknown_input(words: Sequence[str]) -> Iterator[Started]:
    """Returns commands that read commands of their own, with an unknown word added."""
    for started, _ in starts(words):
        if started and not isinstance(started, InnerLine) and os.path.basename(started[0]) in READS_COMMANDS:
            yield [*started, ANY]


def _read_input(text: str) -> Iterator[Started]:
    """Returns the commands in a shell's input."""
    yield InnerLine(text)
    if shell.read_inner(text).is_broken:
        yield [ANY]


def find_printed_text(words: Sequence[str]) -> str | None:
    """Returns the text that `echo` and `printf` print; None for all other commands."""
    name, more = os.path.basename(words[0]) if words else "", list(words[1:])
    if name not in _SAYS:
        return None
    while more and _OPTION_OF_ECHO.fullmatch(more[0]) and (name == "echo" or more[0] == "--"):
        del more[0]
    text = " ".join(more).replace("\\n", "\n")
    return (_FORMATTED if name == "printf" else _ESCAPED).sub(ANY, text)  # of `echo` it depends on the shell


def runs_input(words: Sequence[str]) -> bool:
    """Says whether the command, or one it starts, is a shell that runs its input."""
    try:
        return any(
            not isinstance(started, InnerLine | Value) and hidden_programs.runs_input(started)
            for started, _ in starts(words)
        )
    except TooDeep:
        return True


def split_loosely(line: str) -> Iterator[list[str]]:
    """Splits a line at anything that separates commands, quoted or not."""
    text = line.replace("\\\n", "")
    listed = _BRACES.sub(lambda braces: braces[0].replace(",", " "), text)
    unquoted = [_QUOTES.sub("", spelling) for spelling in (text, listed, _EXPANSION.sub("", text))]
    for spelling in dict.fromkeys((*unquoted, _EXPANSION.sub("", unquoted[0]))):
        for reading in dict.fromkeys((spelling, _REDIRECTION.sub(" ", spelling))):
            for piece in _SEPARATOR.split(reading):
                yield [_WILDCARD.sub(ANY, word) if word.strip("*?") else word for word in piece.split()]
