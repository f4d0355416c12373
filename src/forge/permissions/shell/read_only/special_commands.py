"""Reads commands that only read, but have a language of their own: find, sed, jq, test, printf, date and cd."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from forge.permissions.shell.read_only.flags import COMMANDS, FIND_PATHS, FIND_TESTS, FIND_VALUED, ReadOnlyFlags
from forge.permissions.shell.read_only.options import options_of
from forge.permissions.shell.working_directories import destination

# Every conversion of a format that is known to assign nothing: `%n` sets a variable.
_FORMAT = re.compile(
    r"(?:[^%]|%%|%[-+ #0']*(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]*))?(?:hh?|ll?|[jztL])?[diouxXeEfFgGaAcsbq]|%\([^()%]*\)T)*"
)
_UNARY_OF_FILES = frozenset("-b -c -d -e -f -g -h -k -L -p -r -s -S -u -w -x -O -G -N".split())
_UNARY = frozenset({"-n", "-z"})
_BINARY_OF_FILES = frozenset({"-nt", "-ot", "-ef"})
_BINARY = frozenset("= == != < > -eq -ne -lt -le -gt -ge".split())
_NUMBER = re.compile(r"[+-]?[0-9]+")
# A pattern may hold a bracket expression only without the character that ends the pattern: seds differ about it.
_ADDRESS = r"(?:[0-9]+|\$|/(?:[^/\\\[\n]|\\.|\[[^\]\[/\n]+\])*/I?)"
_SED = re.compile(
    rf"\s*(?:{_ADDRESS}(?:[,~][+~]?{_ADDRESS})?)?\s*!?\s*"
    r"(?:[pdDPqQ=lnNgGhHx][0-9]*|s(?P<mark>[/|#,:@%])(?:(?!(?P=mark))[^\\\[\n]|\\.|\[(?:(?!(?P=mark))[^\]\[\n])+\])*(?P=mark)"
    r"(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gpiIM0-9]*)?\s*"
)
_JQ_REACHES_OUT = re.compile(r"\$__|\benv\b|\bENV\b|import|include|module|input_filename|get_search_list")


def _find(words: Sequence[str]) -> list[str] | None:
    start = next((i for i, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    paths = list(words[:start])
    rest = iter(words[start:])
    for word in rest:
        if word in FIND_VALUED:
            next(rest, None)
        elif word in FIND_PATHS:
            paths.append(next(rest, "/"))
        elif word not in FIND_TESTS:
            return None
    return paths or ["."]


def _sed(words: Sequence[str]) -> list[str] | None:
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("-e", "-ne", "-nEe", "-Ee", "--expression"):
            scripts.append(next(rest, "w"))
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("-"):
            if word.strip("-nErsuz") and word not in ("--quiet", "--silent", "--regexp-extended"):
                return None
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    return operands if scripts and all(map(_is_reading_script, scripts)) else None


def _is_reading_script(script: str) -> bool:
    """Says whether a sed script only prints, deletes and replaces: no `w`, `r` or `e`."""
    at = 0
    while at < len(script):
        command = _SED.match(script, at)
        if command is None or (command.end() < len(script) and script[command.end()] not in ";\n"):
            return False
        at = command.end() + 1
    return True


def _jq(words: Sequence[str]) -> list[str] | None:
    flags = ReadOnlyFlags(
        "rcnsSMCaej",
        "",
        frozenset("raw-output compact-output null-input slurp sort-keys exit-status join-output tab".split()),
        frozenset({"indent"}),
    )
    options = options_of(words, flags)
    if options is None or not options[1] or _JQ_REACHES_OUT.search(options[1][0]):
        return None
    return options[1][1:]


def _date(words: Sequence[str]) -> list[str] | None:
    """Refuses `date 01011200`, which sets the clock."""
    options = options_of(words, COMMANDS["date"])
    return [] if options and all(word.startswith("+") for word in options[1]) else None


def _printf(words: Sequence[str]) -> list[str] | None:
    """Refuses `printf -v PATH` and `printf %n PATH`, which assign."""
    words = words[1:] if words[:1] == ("--",) else words
    return [] if words and not words[0].startswith("-") and _FORMAT.fullmatch(words[0]) else None


def _test(words: Sequence[str]) -> list[str] | None:
    """Refuses `test -v 'a[…]'`, which evaluates the brackets."""
    match [*(words[1:] if words[:1] == ("!",) else words)]:
        case [_]:
            return []
        case [operator, path] if operator in _UNARY_OF_FILES:
            return [path]
        case [operator, _] if operator in _UNARY:
            return []
        case [one, operator, other] if operator in _BINARY_OF_FILES:
            return [one, other]
        case [one, operator, other] if operator in _BINARY:
            are_numbers = bool(_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other))
            return [] if are_numbers or not operator.startswith("-") else None
    return None


def _cd(words: Sequence[str]) -> list[str] | None:
    return None if destination(("cd", *words)) is None else []


BUILTINS: dict[str, Callable[[Sequence[str]], list[str] | None]] = {"cd": _cd, "printf": _printf, "test": _test}
SPECIAL: dict[str, Callable[[Sequence[str]], list[str] | None]] = {
    "date": _date,
    "find": _find,
    "jq": _jq,
    "sed": _sed,
}
