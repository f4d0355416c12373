"""Finds programs inside arguments: patterns and scripts, and scripts that could start or reach something."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from forge.core.context import Scope
from forge.permissions.shell.programs import AWKS, SEDS
from forge.tools.cli_execute.binaries import Binary
from forge.workspace.paths import PathValidator

GREPS = frozenset({"grep", "egrep", "fgrep", "rg", "ripgrep"})

# Only options without a value may come before the pattern: of others the value would be taken for it, and the pattern,
# or a path, for what it is not.
_BEFORE_PATTERN = re.compile(r"-[abcEFGHhiIlLnNoPqrsSUvwxz]+")
_NAMES_PATTERN = re.compile(r"-[A-Za-z0-9]*[ef]|--[rft]")
_BEFORE_SCRIPT = re.compile(r"-[nErsuz]+|-i[^/]*|--(?:quiet|silent|regexp-extended|null-data|separate|posix|in-place)")
_NAMES_SCRIPT = re.compile(r"-[^-il]*[ef]|--[ef]")

_AWK_REACHES = re.compile(r"\bsystem\b|\bgetline\b|\bARGV\b|\bENVIRON\b|\bARGC\b|(?<!\|)\|(?!\|)|\|&|@[ \t]*[A-Za-z_]")
_JQ_REACHES = re.compile(r"\b(?:import|include|modulemeta|get_search_list|input_filename)\b")
_SQL_REACHES = re.compile(r"^\s*\.|\b(?:load_extension|readfile|writefile|attach|edit|fsdir|zipfile)\b", re.IGNORECASE)
_YQ_REACHES = re.compile(r"\b(?:load\w*|env|envsubst|strenv|eval)\b")
_EXEC_ADDRESS = re.compile(r"\b(?:exec|system|open|create|gopen)\s*:", re.IGNORECASE)
_PSQL_REACHES = re.compile(r"\\[!egiosw]|\\copy|\bprogram\b|\bpg_read|\blo_import\b", re.IGNORECASE)
_READ_COMMANDS = frozenset({"psql", "sqlite3"})
_TELLING = frozenset({"--version", "--help", "-W version"})
_INLINE_MODULES = frozenset("asyncio code pdb sqlite3 timeit".split())  # they run the code in their arguments or input


def find_patterns(binary: Binary, args: Sequence[str]) -> set[int]:
    """Returns the indexes of regular expressions and scripts, which may begin like an absolute path."""
    names = set(binary.names)
    if names & AWKS:
        found = _find_awk_program(args)
        return set() if found is None else {found}
    if names & SEDS:
        return {index for index, _ in _find_sed_scripts(args)}
    if names & GREPS and not any(map(_NAMES_PATTERN.match, args)):
        return _find_first_operand(args, _BEFORE_PATTERN)
    return set()


def find_reaching_code(binary: Binary, args: Sequence[str], stdin: str, paths: PathValidator) -> int | None:
    """Returns the first argument whose code starts programs, or reads or writes files of its own choice.

    -1: it is in what the program reads.
    """
    for name in binary.names:
        if name in AWKS and not _TELLING & set(args):
            program = _find_awk_program(args)
            return program or 0 if program is None or _awk_reaches(args[program]) else None
        if name in SEDS and not _TELLING & set(args):
            scripts = _find_sed_scripts(args) or [(0, "e")]  # not found: an option that is not known here
            return next((index for index, script in scripts if not _only_edits(script, paths)), None)
        if search := _SEARCHED.get(name):
            if found := [index for index, argument in enumerate(args) if search(argument)]:
                return found[0]
            if name in _READ_COMMANDS and any(map(search, stdin.splitlines())):
                return -1
    return None


def find_inline_module(args: Sequence[str]) -> int | None:
    """Returns the index of a Python module that runs the code in its own arguments."""
    for index, argument in enumerate(args):
        if not argument.startswith("-"):
            return None
        if found := re.fullmatch(r"-[bBdEhiIOPqRsSuvVx]*m(.*)", argument):
            module = found[1] or (args[index + 1] if index + 1 < len(args) else "")
            return index if module.partition(".")[0] in _INLINE_MODULES else None
        if argument in ("-W", "-X"):
            return None
    return None


_SEARCHED: dict[str, Callable[[str], object]] = {
    "jq": _JQ_REACHES.search,
    "yq": _YQ_REACHES.search,
    "sqlite3": _SQL_REACHES.search,
    "psql": _PSQL_REACHES.search,
    "socat": _EXEC_ADDRESS.search,
}


def _find_awk_program(args: Sequence[str]) -> int | None:
    rest = iter(enumerate(args))
    for index, argument in rest:
        if argument in ("-F", "-v"):
            next(rest, None)
        elif not argument.startswith("-"):
            return index
        elif argument != "--" and not argument.startswith(("-F", "-v")):
            return None
    return None


def _awk_reaches(program: str) -> bool:
    """Returns True also for output into a file: a comparison after a print looks the same."""
    printing = re.search(r"\bprintf?\b", program)
    return _AWK_REACHES.search(program) is not None or (printing is not None and ">" in program[printing.end() :])


def _find_sed_scripts(args: Sequence[str]) -> list[tuple[int, str]]:
    if not any(map(_NAMES_SCRIPT.match, args)):
        return [(index, args[index]) for index in _find_first_operand(args, _BEFORE_SCRIPT)]
    found = []
    for index, argument in enumerate(args):
        if given := re.fullmatch(r"--e\w*=(.*)|-[^-efil]*e(.+)", argument):
            found.append((index, given[1] or given[2] or ""))
        elif re.fullmatch(r"--e\w*|-[^-efil]*e", argument):
            found.append((index + 1, args[index + 1]) if index + 1 < len(args) else (index, "e"))
    return found


def _find_first_operand(args: Sequence[str], before: re.Pattern[str]) -> set[int]:
    for index, argument in enumerate(args):
        if not argument.startswith("-") or argument == "-":
            return {index}
        if not before.fullmatch(argument):
            return set()
    return set()


def _only_edits(script: str, paths: PathValidator) -> bool:
    """Returns True if a sed script provably only prints, deletes and replaces."""
    from forge.permissions.shell.read_only import only_reads  # it loads a parser of shell lines

    return only_reads(shlex.join(["sed", "-e", script]), Scope(workspace=paths.workspace)) is not None
