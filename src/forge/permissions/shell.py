"""Splits a shell line into the words of its commands, as a POSIX shell or bash does.

What is known only when the line runs is `ANY` in its word, or `SOME` inside quotes: variables, substitutions,
wildcards, escapes in `$'…'`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forge.permissions.globs import ANY, SOME

DEEPEST = 100  # substitutions and groups inside each other

_TOKEN = re.compile(
    r"""
      (?P<joined>      \\\n )
    | (?P<blank>       [ \t]+ )
    | (?P<newline>     \n )
    | (?P<inside>      [<>]\( | \$\( )
    | (?P<redirection> &>>? | <<< | <<-? | <> | >> | >\| | [<>]& | [<>] )
    | (?P<separator>   [;&|]+ )
    | (?P<group>       \( )
    | (?P<close>       \) )
    | (?P<quotes>      \$?" )
    | (?P<literal>     '[^']*' )
    | (?P<escaped>     \$'(?:[^'\\]|\\.)*' )
    | (?P<braced>      \$\{ )
    | (?P<backquoted>  `(?:[^`\\]|\\.)*` )
    | (?P<folder>      \$[A-Za-z_]\w*(?=/) )
    | (?P<variable>    \$(?:[0-9@*\#?$!-]|[A-Za-z_]\w*|\[[^\]]*\]) )
    | (?P<character>   \\. )
    | (?P<wildcard>    [*?]+ )
    | (?P<bracket>     [\[\]{},] | \.\. )
    | (?P<unclosed>    ['`] )
    | (?P<plain>       [^ \t\n\\<>;&|()"'$`*?\[\]{},.]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED_TOKEN = re.compile(
    r"""
      (?P<joined>      \\\n )
    | (?P<inside>      \$\( )
    | (?P<quotes>      " )
    | (?P<braced>      \$\{ )
    | (?P<backquoted>  `(?:[^`\\]|\\.)*` )
    | (?P<several>     \$@ )
    | (?P<variable>    \$(?:[0-9*\#?$!-]|[A-Za-z_]\w*|\[[^\]]*\]) )
    | (?P<character>   \\["\\$`] )
    | (?P<unclosed>    ` )
    | (?P<plain>       [^"\\$`]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"#[^\n]*")
_DESCRIPTOR = re.compile(r"[0-9]+|\{\w+\}")
_BRACES = re.compile(r"\\.|'[^']*'|[{}]", re.DOTALL)


class Unclosed(Exception):
    """A quote or a bracket has no end: no shell runs it like that."""


@dataclass(slots=True)
class Split:
    """What a line is made of."""

    commands: list[list[str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # further lines in it: what backquotes and `${…}` hold
    data: list[str] = field(default_factory=list)  # what commands are given to read: here-documents, here-strings


@dataclass(slots=True)
class _Level:
    """The line itself, or what is inside `$(…)`, `<(…)` or `(…)`."""

    is_word: bool = False  # its output is a part of a word around it
    words: list[str] = field(default_factory=list)
    word: list[str] | None = None
    brackets: list[str] = field(
        default_factory=list
    )  # those of the word that stand outside quotes, with the commas between
    is_quoted: bool = False  # inside "…"
    redirection: str = ""  # whose file the next word is


def split(line: str) -> Split:
    """The commands of a line. Raises `Unclosed`."""
    return _Splitter(line).split()


class _Splitter:
    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0
        self.found = Split()
        self.levels = [_Level()]
        self.documents: list[tuple[str, bool]] = []  # the ends of here-documents that begin at the next line

    def split(self) -> Split:
        while self.at < len(self.line):
            level = self.levels[-1]
            if not level.is_quoted and level.word is None and (comment := _COMMENT.match(self.line, self.at)):
                self.at = comment.end()
                continue
            token = (_QUOTED_TOKEN if level.is_quoted else _TOKEN).match(self.line, self.at)
            assert token is not None
            self.at = token.end()
            self._take(level, str(token.lastgroup), token[0])
        if len(self.levels) > 1 or self.levels[0].is_quoted:
            raise Unclosed
        self._end_command(self.levels[0])
        return self.found

    def _take(self, level: _Level, kind: str, text: str) -> None:
        match kind:
            case "blank" | "newline" | "separator" | "group" | "close" | "redirection":
                self._between_words(level, kind, text)
            case "quotes":
                level.is_quoted = not level.is_quoted
                self._add(level, "")
            case "inside":
                self._open(is_word=True)
            case "unclosed":
                raise Unclosed
            case "joined":
                pass
            case _:
                self._add(level, self._part(level, kind, text))

    def _part(self, level: _Level, kind: str, text: str) -> str:
        """What a token adds to its word."""
        match kind:
            case "literal":
                return text[1:-1]
            case "escaped":
                return SOME if "\\" in text else text[2:-1]
            case "character":
                return text[1:]
            case "wildcard" | "several":
                return ANY
            case "folder":
                return SOME
            case "variable":
                return _unknown(level)
            case "braced":
                return ANY if "@" in self._read_parameter() else _unknown(level)
            case "backquoted":
                self.found.lines.append(re.sub(r"\\([$`\\])", r"\1", text[1:-1]))
                return _unknown(level)
            case "bracket":
                level.brackets.append(text)
        return text

    def _between_words(self, level: _Level, kind: str, text: str) -> None:
        if kind == "redirection":
            if level.word is not None and _DESCRIPTOR.fullmatch("".join(level.word)):
                level.word, level.brackets = None, []  # the 2 of 2>
            self._end_word(level)
            level.redirection = text
            return
        if kind == "blank":
            self._end_word(level)
            return
        self._end_command(level)
        if kind == "group":
            self._open(is_word=False)
        elif kind == "close" and len(self.levels) > 1:
            self.levels.pop()
            if level.is_word:
                self._add(self.levels[-1], _unknown(self.levels[-1]))
        elif kind == "newline":
            self._read_documents()

    def _add(self, level: _Level, text: str) -> None:
        if level.word is None:
            level.word = []
        level.word.append(text)

    def _read_parameter(self) -> str:
        """What is inside `${…}`."""
        depth = 1
        start = self.at
        while depth:
            brace = _BRACES.search(self.line, self.at)
            if brace is None:
                raise Unclosed
            self.at = brace.end()
            depth += (brace[0] == "{") - (brace[0] == "}")
        inner = self.line[start : self.at - 1]
        if "$(" in inner or "`" in inner:
            self.found.lines.append(inner)
        return inner

    def _open(self, *, is_word: bool) -> None:
        if len(self.levels) > DEEPEST:
            raise Unclosed
        self.levels.append(_Level(is_word))

    def _end_word(self, level: _Level) -> None:
        if level.word is None:
            return
        word, brackets = "".join(level.word), "".join(level.brackets)
        level.word, level.brackets = None, []
        listed = brackets[brackets.find("{") : brackets.rfind("}") + 1]
        if "," in listed or ".." in listed:
            word = word[: word.index("{")] + ANY  # {a,b}: several words
        elif 0 <= brackets.find("[") < brackets.rfind("]"):
            word = word[: word.index("[")] + ANY + word[word.rindex("]") + 1 :]
        if level.redirection:
            self._redirect(level.redirection, word)
            level.redirection = ""
        elif brackets and word in ("{", "}"):
            self._end_command(level)
        else:
            level.words.append(word)

    def _redirect(self, operator: str, word: str) -> None:
        if operator == "<<<":
            self.found.data.append(word)
        elif operator.startswith("<<"):
            self.documents.append((word, operator.endswith("-")))

    def _end_command(self, level: _Level) -> None:
        self._end_word(level)
        level.redirection = ""
        if level.words:
            self.found.commands.append(level.words)
            level.words = []

    def _read_documents(self) -> None:
        for end, indented in self.documents:
            start = self.at
            while self.at < len(self.line):
                stop = self.line.find("\n", self.at)
                stop = len(self.line) if stop < 0 else stop
                line = self.line[self.at : stop]
                self.at = min(stop + 1, len(self.line))
                if (line.lstrip("\t") if indented else line) == end:
                    break
            self.found.data.append(self.line[start : self.at])
        self.documents.clear()


def _unknown(level: _Level) -> str:
    return SOME if level.is_quoted else ANY
