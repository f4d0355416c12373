"""Finds the commands that a shell line could reach, and tells whether the line is literal.

Both answers err on the strict side: only a literal line can be allowed by a pattern, and denies look at all it reaches.
A word that is known only when the line runs (`$x`, `r$1m`, `$(…)`) counts as anything it could be, and so does what a
shell reads from a pipe. What other languages do (`python -c …`) cannot be seen here; such commands are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.shell import hidden_programs
from forge.permissions.shell import parse as shell
from forge.permissions.shell.hidden_programs import hides, is_descriptor, may_run_input, may_start_others, sets_path
from forge.permissions.shell.literal_line import Area, LiteralCommand, directories, split_literal, unwrap_builtin
from forge.permissions.shell.programs import (
    FETCHERS,
    FETCHING_COMMANDS,
    FILE_OPTIONS,
    INTERPRETERS,
    NETWORK_COMMANDS,
    READS_COMMANDS,
    SHELLS,
    SOMETIMES_FETCHERS,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.words import (
    ANY,
    GLOB,
    SOME,
    CommandRange,
    Redirection,
    ShellCommand,
    ShellLine,
    is_known,
    may_fit,
)
from forge.permissions.shell.wrappers import InnerLine, Started, VariableValue, WrappedTooDeep, option_values, starts
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

LONGEST_LINE = shell.LONGEST_LINE
MOST_WORDS = 200_000  # words of all commands that are found in one line
MOST_CHARACTERS = 1_000_000  # characters of all of them
_DEEPEST_LINES = 8  # lines inside each other
_CACHED = 2_000  # characters of a line whose commands are remembered
MOST_LINKS = 40  # links behind each other
MOST_FOLDERS = 16
MOST_COPIED = 200  # variables whose value is looked for in the line
MOST_WRITTEN = 50  # files that the line writes, among which a wildcard is looked for
MOST_INNER = 3  # lines inside each other that may run a file which the line writes
_MOVES = frozenset({"cd", "pushd"})
_HERE = re.compile(rf"^(?:[{ANY}{SOME}]|~[+-]?)/+")
_GIVES_INPUT = re.compile(  # to a command inside
    r"\(\)|\bfunction\b|>\(|\bcoproc\b|\bexec\b|[{(;]\s*$|<|[|]\s*(?:[{(]|(?:while|until|if|for|case|select)\b|[\w./]{0,60}sh\b)"
)
_MANY_PROGRAMS = ("busybox", "toybox", "coreutils", "snap")  # they are what their own name says
_WRITES_OPERANDS = frozenset(
    [
        "tee",
        "cp",
        "mv",
        "ln",
        "install",
        "dd",
        "curl",
        "wget",
        "base64",
        "split",
        "gpg",
        "gunzip",
        "iconv",
        "openssl",
        "patch",
        "rsync",
        "scp",
        "sponge",
        "unxz",
        "xxd",
        "zstd",
    ]
)
_WRITES_SOMETIMES = {  # they write a file that a word names, if a word looks like this
    **dict.fromkeys(("sed", "gsed"), re.compile(r"-\w*i|--in-place|(?:.*[^\w-])?[wW]\s*\S", re.DOTALL)),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), re.compile(r".*>", re.DOTALL)),
    "sort": re.compile(r"-\w*o|--o"),
}
_NAME_OF_FILE = re.compile(r"[\w./+-]+")
_TAKES_TEXT = frozenset(["cat", "tee", "wc", "grep", "sort", "head", "tail"])
_READS_TEXT = _TAKES_TEXT | frozenset(["read", "mapfile", "readarray", "cut", "tr", "jq", "uniq", "base64"])
_SETTINGS = {"git": ("config", ".gitconfig"), "make": ("Makefile", "makefile", "GNUmakefile"), "ssh": ("config",)}
_STARTUP = (".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".zshrc", ".zshenv", ".kshrc")
_COUNTERS = frozenset(["wc", "seq", "date", "nproc", "expr", "id", "stat", "pgrep"])
_PRINTS_OPERANDS = frozenset(["seq", "expr"])
_ARITHMETIC = re.compile(
    r"\$\[(.*?)\]|\blet\s+([^;&|\n]*)|\[\[(.*?-(?:eq|ne|lt|le|gt|ge|v).*?)\]\]"
    r"|\b(?:declare|typeset|local)\s+(?:-\w+\s+)*-\w*i\w*\s+([^;&|\n]*)"
    r"|\$\{[\w@*]+(?:\[[@*]\])?:((?:\s+-?|(?=[\w($`]))[^}]*)\}|\$\{#?\w+\[([^\]]*)\]"
    r"|\$\{!(\w+)|\$\{(\w+)(?:\[[^\]]*\])?@P\}"
    r"|\b\w+\[([^\]]*)\]\+?=",
    re.DOTALL,
)
_PIECE_OF_WORD = r"(?:\$\([^)]{0,200}\)|`[^`]{0,200}`|[^\s;&|<>])+"
_EVALUATES_NAME = re.compile(
    rf"(?:\btest\s+-v|\[\s+-v|\bprintf\s+-v)\s+({_PIECE_OF_WORD})|\b(?:read|unset)((?:[ \t]+{_PIECE_OF_WORD})+)"
)
_SUBSTITUTED = re.compile(r"\$\(|`")
_ASSIGNS = r"(?<![\w$]){}\+?=((?:\"[^\"]*\"|\$\([^)]*\)|`[^`]*`|[^\s;&|])*)"
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
    """Returns whether the line is provably one command with literal words."""
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


@lru_cache(maxsize=16)
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
    found = read(line, setting.has_input) if len(line) <= LONGEST_LINE else None
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
    """Returns whether the line may print what a server sends. A line or a program that is not known may."""
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


def needs_network(line: str) -> bool:
    """Returns whether the line names a program that does nothing without the network, such as `curl` or `git push`."""
    try:
        reached = find_reached(line)
    except UnreadableLine:
        return False
    return any(
        words[0] in FETCHERS
        or (words[0] == "rsync" and any(":" in word for word in words[1:]))
        or (words[0] != "rsync" and any(may_fit(words, f"{command} *") for command in NETWORK_COMMANDS))
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
    starts_in = _find_folders(reached, folder)
    found: dict[tuple[str, str], None] = {}
    for number, word in dict.fromkeys((min(n, 1), word) for words in reached for n, word in enumerate(words[:3])):
        path = _HERE.sub("./", word, count=1)  # "$PWD/zap"
        if not is_known(path) or not word or len(word) > paths.LONGEST_PATH or word.startswith("-"):
            continue
        places = [os.path.join(start, path) for start in starts_in]
        if number == 0 and "/" not in word:
            places = _list_programs(word)
        for target in (one for place in places for one in _follow(place)):
            if number == 0 or is_descriptor(target):
                found[word, target] = None
    return tuple(found)


def _find_folders(reached: Words, folder: str) -> list[str]:
    """Returns the folders in which a command may run: each `cd` may stand behind each other one."""
    named = [words[-1] for words in reached if words[0] in _MOVES and len(words) > 1]
    for words in reached:
        if words[0] == "env":
            named += [*option_values("env", words[1:], {"env": frozenset({"-C", "--chdir"})})]
    if not all(map(is_known, named)):  # D=sub; cd $D
        named += [value for words in reached if len(words) == 1 for value in words[0].partition("=")[2:]]
    known = [one for one in dict.fromkeys(named) if one and is_known(one)]
    found = {folder: None}
    for _ in range(2):
        found |= {os.path.normpath(os.path.join(start, one)): None for start in found for one in known}
    return [*found][:MOST_FOLDERS]


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
            if total > MOST_WORDS or size > MOST_CHARACTERS:
                return None
            if isinstance(words, AnyCommand):
                unseen[known] = None
                continue
            found[known] = None
            found[os.path.basename(known[0]) or known[0], *known[1:]] = None
    except (UnreadableLine, WrappedTooDeep):
        return None
    return ReachedCommands(tuple(found), tuple(dict.fromkeys((*unseen, *filter(hides, found)))))


_remembered = lru_cache(maxsize=1_024)(_find_commands)


class _Reader:
    """Reads the commands of a line, with the lines inside it."""

    def __init__(self, links: Links, has_input: bool) -> None:
        self.links = links
        self.has_input = has_input  # a command that is not fed may read something

    def read(self, line: str, depth: int) -> Iterator[Sequence[str]]:
        if depth > _DEEPEST_LINES:
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
                    if is_read or isinstance(started, VariableValue):
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
                    is_text = command.words[:1] and command.words[0] in _READS_TEXT and not found.functions
                    pieces = (one for one in split_loosely(redirection.target) if one)
                    yield from (LooseCommand(one) for one in pieces if is_known(one[0]) or not is_text)
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
    """Returns whether arithmetic or a subscript evaluates data: `read x; ((x))`, `$(($(cat f)))` run `a[$(rm y)]`."""
    contexts = [text for match in _ARITHMETIC.finditer(line) for text in match.groups() if text]
    contexts += _find_in_parentheses(line, "((")
    builtins = [text for match in _EVALUATES_NAME.finditer(line) for text in match.groups() if text]
    if not contexts and not builtins:
        return False
    if any(_substitutes_data(text) for text in (*contexts, *builtins)):
        return True
    named = {name for text in contexts for name in _NAME.findall(text)}
    named |= {name for text in builtins for name in _EXPANDED.findall(text)}
    if found.functions and "1" in named:
        return True
    return bool(named & _find_unknown_variables(line, found))


def _find_in_parentheses(text: str, opening: str) -> list[str]:
    """Returns what stands behind each opening, up to the parenthesis that closes it."""
    found: list[str] = []
    at = text.find(opening)
    while at >= 0:
        depth, end = 0, at + len(opening) - opening.count("(")
        while end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
            if depth == 0:
                break
        found.append(text[at + len(opening) : end])
        at = text.find(opening, end)
    return found


def _substitutes_data(text: str) -> bool:
    """Returns whether a text has the output of a command in it that is more than a number."""
    inner = [one.removesuffix(")") for one in _find_in_parentheses(text.replace("$((", "(("), "$(")]
    return text.count("`") > 1 or not all(map(_prints_number, inner))


def _prints_number(line: str) -> bool:
    found = shell.read_inner(line)
    return bool(found.commands) and not found.is_broken and not re.search(r"[;&\n]", line) and _counts(found.commands)


def _find_unknown_variables(line: str, found: ShellLine) -> set[str]:
    """Returns the variables that hold data when the line runs, other than numbers that programs count."""
    unknown = set(_find_filled(found))
    copied: list[tuple[str, set[str]]] = []
    for command in found.commands:
        inside = found.commands[command.inside.start : command.inside.end]
        is_number = bool(inside) and _is_pipeline(command.inside, found) and _counts(inside)
        for name, value in command.assignments:
            if is_known(value) or is_number:
                continue
            is_read = bool(inside) or len(copied) >= MOST_COPIED
            texts = [] if is_read else re.findall(_ASSIGNS.format(re.escape(name)), line)
            if is_read or any(one.lstrip('"').startswith(("$(<", "`<")) for one in texts):
                unknown.add(name)
            else:
                sources = {one for text in texts if "$((" not in text for one in _EXPANDED.findall(text)}
                copied.append((name, sources))
    size = -1
    while size != len(unknown):
        size = len(unknown)
        unknown |= {name for name, sources in copied if sources & unknown}
    return unknown


def _is_pipeline(inside: CommandRange, found: ShellLine) -> bool:
    return inside.end - inside.start == 1 or any(
        stages[0].start == inside.start and stages[-1].end == inside.end for stages in found.pipes
    )


def _find_filled(found: ShellLine) -> Iterator[str]:
    """Yields the variables that builtins and loops fill with data."""
    for command in found.commands:
        name = command.words[0] if command.words else ""
        if name in ("read", "mapfile", "readarray", "getopts"):
            yield from (word for word in command.words[1:] if not word.startswith("-"))
            yield "REPLY" if name == "read" else "MAPFILE"
        elif name == "printf" and not all(map(is_known, command.words)):
            yield from (more for word, more in pairwise(command.words) if word == "-v")
        elif name == "set" and not all(map(is_known, command.words)):
            yield from "123456789"
    for name, values in found.loops:
        if any(value in (ANY, SOME) for value in values) and not any(
            command.words[:1] == ("seq",) for command in found.commands
        ):
            yield name


def _counts(commands: Sequence[ShellCommand]) -> bool:
    """Returns whether the last command of a pipeline prints nothing but numbers."""
    words = commands[-1].words
    if not words:
        return False
    if words[0] in _PRINTS_OPERANDS and not all(map(is_known, words)):
        return False
    if words[0] == "date" and any(word.startswith(("+", ANY, SOME)) and not is_known(word) for word in words):
        return False
    is_git = words[:2] == ("git", "rev-list") and "--count" in words
    is_grep = words[0] == "grep" and any(word.startswith("-") and "c" in word for word in words)
    return words[0] in _COUNTERS or is_grep or is_git


def _find_run_files(found: ShellLine) -> Iterator[Started]:
    """Returns what a shell or an interpreter runs from a file that the line itself writes: its text, or anything."""
    texts: dict[str, list[str | None]] = {}
    for command in found.commands:
        for path, text in _find_written(command):
            texts.setdefault(os.path.basename(path.rstrip("/")), []).append(text)
    if not texts:
        return
    for command in found.commands:
        for started in _find_inner(command.words, 0):
            is_shell, candidates = _find_programs(started, command)
            for candidate in candidates:
                for text in _find_texts(candidate, texts):
                    yield from [AnyCommand(started)] if text is None or not is_shell else _read_input(text)


def _find_inner(words: Sequence[str], depth: int) -> Iterator[Sequence[str]]:
    """Yields a command and what it starts, with the commands of the lines inside it."""
    for started, _ in starts(words):
        if not isinstance(started, InnerLine):
            yield from [started] if started else ()
        elif depth < MOST_INNER and started.strip() != " ".join(words):
            for command in shell.read_inner(started).commands:
                yield from _find_inner(command.words, depth + 1)


def _find_programs(words: Sequence[str], command: ShellCommand) -> tuple[bool, list[str]]:
    """Returns the files that a command may run, and whether it is a shell, or the file is a program itself."""
    name = base_name(os.path.basename(words[0]))
    settings = list(_SETTINGS.get(os.path.basename(words[0]), ()))
    if name in SHELLS or name in (".", "source"):
        return True, [*words[1:], *_STARTUP, *(one.target for one in command.redirections if one.operator == "<")]
    files = [*option_values(name, words[1:], FILE_OPTIONS)]
    if name in INTERPRETERS:
        operands = [word for word in words[1:] if not word.startswith("-")]
        files += [*operands[:1], *(f"{operands[0]}.py" for word in words if operands and word.endswith("m"))]
    return not files, [*files] if files else [*words[:1], *settings]


def _find_texts(path: str, texts: Mapping[str, list[str | None]]) -> Iterator[str | None]:
    """Yields the texts of the files that a path may name; of a file in a folder that the line made, None."""
    path = path.replace(GLOB, ANY)
    name = os.path.basename(path)
    if is_known(name):
        yield from texts.get(name, ())
    elif name.strip(ANY + SOME):
        if len(texts) > MOST_WRITTEN:
            yield None
        else:
            yield from (one for written, found in texts.items() if may_fit((name,), written) for one in found)
    if any(folder in texts for folder in path.split("/")[:-1]):
        yield None


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
    writes = _WRITES_SOMETIMES.get(name)
    if writes is not None and any(map(writes.match, command.words[1:])):
        yield from ((path, None) for word in command.words[1:] for path in _NAME_OF_FILE.findall(word))


def _is_only_data(command: ShellCommand, document: Redirection, found: ShellLine) -> bool:
    """Returns whether a here-document is text for `cat` and the like, and nothing in it is expanded."""
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
    """Returns whether the command, or one it starts, is a shell that runs its input."""
    try:
        return any(
            not isinstance(started, InnerLine | VariableValue) and hidden_programs.runs_input(started)
            for started, _ in starts(words)
        )
    except WrappedTooDeep:
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
