"""Reads a shell line into its commands, wherever they stand: in lists, loops, functions, substitutions, here-documents.

The grammar is tree-sitter's for bash. It is close to bash, not equal to it: rules that forbid read a line
loosely too (see `commands`), and rules that allow take only lines that need no such grammar (`literal_line`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

from forge.core.context import Scope
from forge.permissions.shell.words import (
    ANY,
    UNKNOWN,
    CommandRange,
    LineSource,
    Redirection,
    ShellCommand,
    ShellFunction,
    ShellLine,
    is_known,
    word,
)
from forge.permissions.targets import paths

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree


LONGEST_LINE = 50_000  # characters of a line that is read
PATIENCE = 0.5  # seconds of processor time: repairing a broken line may take the parser hours
_AT_ONCE = 1_000  # bytes that are parsed without looking at the clock
_CHUNK = 512
MOST_PIPES = 3_000  # a broken line with more takes the parser seconds, after it has read everything


def read(line: str, values: tuple[tuple[str, str], ...] = ()) -> ShellLine:
    """Returns the commands of a line."""
    return ShellLine(is_broken=True) if ANY in line else read_inner(line, values)


def read_inner(text: str, values: tuple[tuple[str, str], ...] = ()) -> ShellLine:
    """Returns the commands of a line that another one makes: parts of its text may be `ANY`.

    `values` are of variables, and stand in the place of their names.
    """
    if len(text) > LONGEST_LINE:
        return ShellLine(is_broken=True)
    return _short(text, values) if len(text) <= _AT_ONCE else _long(text, values)


def _read(line: str, values: tuple[tuple[str, str], ...]) -> ShellLine:
    source = LineSource(line.replace(ANY, UNKNOWN).encode("utf-8", "replace"))
    source.values = dict(values)
    tree = _parse_source(source)
    if tree is None:
        return ShellLine(is_broken=True)
    reader = CommandReader(source)
    reader.found.is_broken = tree.root_node.has_error
    try:
        reader.walk(tree.root_node, 0)
    except NestedTooDeep:
        reader.found.is_broken = True
    return reader.found


_short = lru_cache(maxsize=512)(_read)
_long = lru_cache(maxsize=8)(_read)


def _parse_source(source: bytes) -> Tree | None:
    """Parses a line; None where it takes too long."""
    from tree_sitter import Parser  # only where a line is no plain one

    parser = Parser(_language())  # of its own: parsers may not be shared by threads
    if len(source) <= _AT_ONCE:
        return parser.parse(source)
    if source.count(b"|") > MOST_PIPES:
        return None
    deadline = time.thread_time() + PATIENCE
    is_late = False

    def chunk(start: int, _: object) -> bytes:
        nonlocal is_late
        is_late = is_late or time.thread_time() > deadline
        return b"" if is_late else source[start : start + _CHUNK]

    tree = parser.parse(chunk)
    return None if is_late else tree


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


# Finds the commands in the tree of a shell line, and handles the grammar's peculiarities.


DEEPEST_GROUPS = 120  # groups and substitutions inside each other
_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*")
_DESCRIPTOR = re.compile(rb"\{\w+\}")
_OPERATORS = frozenset({"&&", "||", ";", "\n", "|", "|&", "&", ";;"})


class NestedTooDeep(Exception):
    """The line nests more groups and substitutions than anyone writes."""


class CommandReader:
    """Finds the commands of a tree, wherever they stand."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.found = ShellLine()

    def walk(self, node: Node, depth: int) -> CommandRange:
        """Reads everything in a node. Returns its commands."""
        start = len(self.found.commands)
        if depth > DEEPEST_GROUPS:
            raise NestedTooDeep
        match node.type:
            case "command":
                self._read_command(node, depth)
            case "redirected_statement":
                self._read_redirected(node, depth)
            case "pipeline":
                self._read_pipeline([], node, depth)
            case "list":
                self._read_list(node, depth)
            case "declaration_command" | "unset_command" | "test_command":
                self._read_simple(node, depth)
            case "variable_assignment":
                self._read_assignment(node, self._begin(), depth)
            case "for_statement":
                self._read_loop(node, depth)
            case "function_definition":
                self._read_function(node, depth)
            case _:
                self._read_children(node, depth)
        return self._since(start)

    def _since(self, start: int) -> CommandRange:
        return CommandRange(start, len(self.found.commands))

    def _begin(self) -> ShellCommand:
        command = ShellCommand()
        self.found.commands.append(command)
        return command

    def _read_children(self, node: Node, depth: int) -> None:
        before: CommandRange | None = None
        for child in node.children:
            if child.type == "&":
                if before:
                    self.found.background.append(before)
            elif child.child_count:
                before = self.walk(child, depth + 1)

    def _read_list(self, node: Node, depth: int) -> None:
        """Reads `a && b && c`, which nests to the left, as deep as it is long."""
        right: list[Node] = []
        while node.type == "list":
            children = node.children
            right += reversed(children[1:])
            node = children[0]
        self.walk(node, depth + 1)
        joint = ""
        for child in reversed(right):
            if not child.child_count:
                joint = child.type
                continue
            span = self.walk(child, depth + 1)
            if joint == "&&" and span.start < span.end:
                self.found.commands[span.start].joint = joint

    def _read_pipeline(self, stages: list[CommandRange], node: Node, depth: int) -> None:
        self.found.pipes.append(stages)
        for child in node.children:
            if child.type not in _OPERATORS:
                stages.append(self.walk(child, depth + 1))

    def _read_function(self, node: Node, depth: int) -> None:
        start = len(self.found.commands)
        self._read_children(node, depth)
        name = node.child_by_field_name("name")
        self.found.functions.append(ShellFunction(word(self.source, [name]) if name else "", self._since(start)))

    def _read_loop(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("variable")
        values = tuple(word(self.source, [value]) for value in node.children_by_field_name("value"))
        if name is not None:
            self.found.loops.append((word(self.source, [name]), values))
        self._read_children(node, depth)

    def _read_command(self, node: Node, depth: int) -> None:
        self._fill(self._begin(), node.children, depth)

    def _read_simple(self, node: Node, depth: int) -> None:
        """Reads a declaration or a test: all its parts are words."""
        command = self._begin()
        start = len(self.found.commands)
        words = [self.source[child.start_byte : child.end_byte].decode("utf-8", "replace") for child in node.children]
        command.words = tuple(words)
        self._read_children(node, depth)
        command.inside = self._since(start)

    def _read_redirected(self, node: Node, depth: int) -> None:
        children = node.children
        body = node.child_by_field_name("body")
        if body is not None and body.type == "command":
            self._fill(self._begin(), [*body.children, *children[1:]], depth)
            return
        if body is not None:
            self.walk(body, depth + 1)
            children = [child for child in children if child.id != body.id]
        self._fill(self._begin(), children, depth)

    def _fill(self, command: ShellCommand, children: list[Node], depth: int) -> None:
        number = len(self.found.commands)
        words: list[list[Node]] = []
        for child in children:
            kind = child.type
            if kind == "word":
                self._add(words, child)
            elif kind == "variable_assignment":
                self._read_assignment(child, command, depth)
            elif kind == "file_redirect":
                if words and _names_descriptor(self.source, words[-1], child):
                    words.pop()
                for more in self._read_file(child, command, depth):
                    self._add(words, more)
            elif kind == "herestring_redirect":
                self._read_data(child, command, depth)
            elif kind == "heredoc_redirect":
                for more in self._read_document(child, command, CommandRange(number - 1, number), depth):
                    self._add(words, more)
            else:
                self._look_into(child, depth)
                self._add(words, child.children[0] if kind == "command_name" and child.child_count == 1 else child)
        command.words = tuple(word(self.source, nodes) for nodes in words)
        command.inside = self._since(number)

    def _add(self, words: list[list[Node]], node: Node) -> None:
        """Adds a node; without a blank before it, the node belongs to the previous word."""
        gap = self.source[words[-1][-1].end_byte : node.start_byte] if words else b" "
        if gap == b" ":
            words.append([node])
        elif not gap.replace(b"\\\n", b""):
            words[-1].append(node)
        else:
            words.append([node])
            self._check_gap(words[-2][-1], node)

    def _check_gap(self, before: Node, node: Node) -> None:
        """Checks that text which the grammar skips between two words is blank to bash too; redirections aside."""
        if before.next_sibling == node and not _BLANK.fullmatch(self.source, before.end_byte, node.start_byte):
            self.found.is_broken = True

    def _look_into(self, node: Node, depth: int) -> None:
        if node.child_count:
            self.walk(node, depth + 1)

    def _read_assignment(self, node: Node, command: ShellCommand, depth: int) -> None:
        start = len(self.found.commands)
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        self._read_children(node, depth)
        if value is not None and value.type == "array":
            self._read_array(value)
        if name is not None:
            command.assignments.append((word(self.source, [name]), word(self.source, [value]) if value else ""))
        if self._since(start) != CommandRange(start, start):
            command.inside = self._since(start)

    def _read_array(self, node: Node) -> None:
        """Reads `c=(rm x); "${c[@]}"`: the words of an array may be a command."""
        self._begin().words = tuple(word(self.source, [child]) for child in node.children if child.is_named)

    def _read_file(self, node: Node, command: ShellCommand, depth: int) -> list[Node]:
        """Reads a redirection. The grammar counts the words behind its file as files too."""
        operator = next((child.type for child in node.children if not child.is_named), ">")
        files = node.children_by_field_name("destination")
        for child in node.children:
            self._look_into(child, depth)
        if operator.endswith("-"):  # `2>&-` has no file
            return files
        if files:
            command.redirections.append(Redirection(operator, word(self.source, files[:1]), self._descriptor(node)))
        return files[1:]

    def _descriptor(self, node: Node) -> str:
        """Returns the number before a redirection: `3` of `3<file`."""
        found = next((child for child in node.children if child.type == "file_descriptor"), None)
        return "" if found is None else self.source[found.start_byte : found.end_byte].decode("utf-8", "replace")

    def _read_data(self, node: Node, command: ShellCommand, depth: int) -> None:
        texts = [child for child in node.children if child.is_named]
        for child in texts:
            self._look_into(child, depth)
        command.redirections.append(Redirection("<<<", word(self.source, texts[-1:]), self._descriptor(node)))

    def _read_document(self, node: Node, command: ShellCommand, span: CommandRange, depth: int) -> list[Node]:
        """Reads a here-document; the grammar puts the rest of its line inside it."""
        more = []
        for child in node.children:
            kind = child.type
            if kind == "heredoc_body":
                text = self.source[child.start_byte : child.end_byte].decode("utf-8", "replace")
                command.redirections.append(Redirection("<<", text, self._descriptor(node)))
                self._read_children(child, depth)
            elif kind == "file_redirect":
                more += self._read_file(child, command, depth)
            elif kind == "herestring_redirect":
                self._read_data(child, command, depth)
            elif kind == "pipeline":
                self._read_pipeline([span], child, depth)
            elif kind in ("word", "number", "string", "raw_string", "concatenation", "ansi_c_string"):
                self._look_into(child, depth)
                more.append(child)
            else:
                self._look_into(child, depth)
        return more


def _names_descriptor(source: bytes, nodes: list[Node], redirection: Node) -> bool:
    """Returns whether the word is the {name} of {name}>file."""
    end = nodes[-1].end_byte
    return end == redirection.start_byte and bool(_DESCRIPTOR.fullmatch(source, nodes[0].start_byte, end))


# The values that variables of a line may have, as far as the line itself assigns them.


MOST_FILLINGS = 16  # ways to fill the variables of one line
_LONGEST_FILLING = 4_096  # characters of a value
_ROUNDS = 3  # values that name other variables
# They assign in ways that are not looked at here.
_ASSIGNS_OTHERWISE = re.compile(
    r"\b(?:eval|source|read|mapfile|readarray|declare|typeset|local|export|readonly|let|getopts|unset|select|printf|set|shift"
    r"|coproc|trap|wait)\b|(?:^|[\s;&|(])\.\s|\(\(|\$\[|:?="
)
_PLAIN_ASSIGNMENT = re.compile(r"(?:(?<=^)|(?<=[\s;&|({]))\w+=")
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")

Values = tuple[tuple[str, str], ...]


class KnownValues(NamedTuple):
    """Ways to fill the variables, and the names of doubtful ones, which may have other values too."""

    ways: tuple[Values, ...]
    doubtful: frozenset[str]

    def sure(self) -> tuple[Values, ...]:
        """Returns the ways without doubtful variables."""
        sure = (tuple(pair for pair in way if pair[0] not in self.doubtful) for way in self.ways)
        return tuple(dict.fromkeys(sure))


def find_known_values(line: str, scope: Scope) -> KnownValues:
    """Returns the values that `D=…` and `for d in …` assign, with the home directory and the workspace."""
    if "$" not in line:
        return KnownValues(((),), frozenset())
    base = {"HOME": [paths.home_directory()], "PWD": [str(scope.workspace)]}
    options: dict[str, list[str]] = dict(base)
    doubtful: set[str] = set()
    for _ in range(_ROUNDS):
        found: dict[str, list[str]] = {}
        doubtful = {"PWD"} if _MOVES.search(line) else set()
        for way in _ways(options):
            for name, value in _find_assignments(line, way):
                if is_known(value) and len(value) <= _LONGEST_FILLING:
                    found.setdefault(name, []).append(value)
                else:
                    doubtful.add(name)
        before, options = options, {**base, **{name: list(dict.fromkeys(values)) for name, values in found.items()}}
        if options == before:
            break
    rest = _PLAIN_ASSIGNMENT.sub("", line)
    if _ASSIGNS_OTHERWISE.search(rest) or len([*islice(_all_ways(options), MOST_FILLINGS + 1)]) > MOST_FILLINGS:
        doubtful |= set(options)
    return KnownValues(tuple(_ways(options)), frozenset(doubtful))


def _find_assignments(line: str, way: Values) -> Iterator[tuple[str, str]]:
    found = read(line, way)
    for command in found.commands:
        yield from command.assignments
    for name, values in found.loops:
        yield from ((name, value) for value in values)


def _all_ways(options: dict[str, list[str]]) -> Iterator[Values]:
    for values in product(*options.values()):
        yield tuple(zip(options, values, strict=True))


def _ways(options: dict[str, list[str]]) -> Iterator[Values]:
    return islice(_all_ways(options), MOST_FILLINGS)


# Replaces the variables and braces of a line by the values that are known before it runs.


_ASSIGNED = re.compile(r"(?:^|[\s;&|(])(\w+)=(?:'([^'\n]*)'|\"([^\"$`\n]*)\"|([^\s;&|<>()$`\"'{}]*))(?=[\s;&|)]|$)")
_LOOPED = re.compile(r"\bfor\s+(\w+)\s+in\s+([^;\n$`]*)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^{}$`]*)|[^\w{}][^{}]*)?\})")
_BRACES = re.compile(r"([^\s{}'\"]{0,200})\{([^{}\s]{0,500},[^{}\s]{0,500})\}([^\s{}'\";|&)]*)")
_SAYS = re.compile(r"\$\((?:echo|printf(?: ['\"]?%s['\"]?)?) +([^()$`;|&<>]*)\)|`(?:echo|printf) +([^`$;|&<>]*)`")
_LONGEST_VALUE = 200  # characters
_PWD = re.compile(r"\$\(pwd\)|`pwd`")


def expand_line(line: str, scope: Scope) -> str:
    """Returns the line with braces, and variables with known values, expanded."""
    values = {"HOME": paths.home_directory(), "PWD": str(scope.workspace), "IFS": " "}
    for name, *texts in [*_ASSIGNED.findall(line), *_LOOPED.findall(line)]:
        values[name] = next((text for text in texts if text), "")[:_LONGEST_VALUE]

    def value(variable: re.Match[str]) -> str:
        name = variable[1] or variable[2]
        return values.get(name, variable[3] if variable[3] is not None else variable[0])

    text = _PWD.sub("$PWD", line)
    for _ in range(3):  # values that name other variables
        text = _VARIABLE.sub(value, text)[:LONGEST_LINE]
    text = _SAYS.sub(lambda found: (found[1] or found[2] or "").strip("'\" "), text)
    return _BRACES.sub(_expand_braces, text)[:LONGEST_LINE]


def _expand_braces(braces: re.Match[str]) -> str:
    return " ".join(f"{braces[1]}{one}{braces[3]}" for one in braces[2].split(",")[:50])
