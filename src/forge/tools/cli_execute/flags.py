"""Finds options with which an allowed program starts others, loads code, or chooses its own files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forge.core.errors import ErrorKind, ToolError
from forge.permissions.shell.programs import ANY, OTHER_NAMES, TABLE, RefusedFlags, starting_options
from forge.tools.cli_execute.binaries import Binary
from forge.tools.cli_execute.code import find_inline_module, find_reaching_code
from forge.tools.cli_execute.git import find_git_flag
from forge.workspace.paths import PathValidator

_TELLING = frozenset("-V -VV -v -h -help --help --version -copyright".split())
_HARMLESS = frozenset({"-", "/dev/null", "/dev/stdout"})  # where what is written does not matter


def refuse_exec_flags(
    binary: Binary, args: Sequence[str], paths: PathValidator, *, stdin: str = "", allowed: bool = False
) -> str:
    """Layer 6, second half: refuses an option that starts other programs, or returns it if allowed."""
    found = find_exec_flag(binary, args, stdin, paths)
    if found is None:
        return ""
    index, flag = found
    if allowed:
        return flag
    name = binary.names[0]
    where = f"argument {index}: " if index >= 0 else ""
    raise ToolError(
        f'{where}{flag[:200]} is not allowed for "{name}": it can start programs, or use unnamed files',
        ErrorKind.SECURITY,
        "Do it without this. The person can allow it in a sandbox: allow_exec_flags: true in the tool's config.",
    )


def find_exec_flag(binary: Binary, args: Sequence[str], stdin: str, paths: PathValidator) -> tuple[int, str] | None:
    """Returns the index and text of the first such option; the index is -1 if an option is missing."""
    for name in dict.fromkeys(map(_family, binary.names)):
        if name == "git" and (found := find_git_flag(args, paths)) is not None:
            return found
        flags, starting = TABLE.get(name, ANY), tuple(starting_options((name, *binary.names)))
        own, given = _count_own_arguments(args, flags) if flags.script else (len(args), True)
        for index, argument in enumerate(args[:own]):
            if _is_listed(argument, index, args, flags) or _starts(argument, starting):
                return index, f'"{argument}"'
        if not given:
            return -1, "a program from its input"
        if name == "python" and (module := find_inline_module(args[:own])) is not None:
            return module, f'"{args[module]}"'
    code = find_reaching_code(binary, args, stdin, paths)
    return None if code is None else (code, "a script that may do more than process its input")


def _count_own_arguments(args: Sequence[str], flags: RefusedFlags) -> tuple[int, bool]:
    """Returns the number of the interpreter's own arguments, and True if a script is among them."""
    is_value = False
    for index, argument in enumerate(args):
        if not argument.startswith("-"):
            if not is_value:
                return index + 1, True
            is_value = False
        elif argument in _TELLING:
            return index + 1, True
        elif re.fullmatch(r"-[A-Za-z]*m.*", argument) and "m" in flags.valued:
            return index + (1 if re.search(r"m.+", argument) else 2), True
        else:
            is_value = "=" not in argument if argument.startswith("--") else argument[-1] in flags.valued
    return len(args), False


def _family(name: str) -> str:
    plain = re.sub(r"-?\d[\d.]*$", "", name) or name
    for one in (name, plain):
        if one in TABLE or one in OTHER_NAMES or one == "git":
            return OTHER_NAMES.get(one, one)
    return plain


def _is_listed(argument: str, index: int, args: Sequence[str], flags: RefusedFlags) -> bool:
    following = args[index + 1] if index + 1 < len(args) else ""
    if _matches(argument, flags.words):
        return True
    if argument.startswith("--"):
        name, _, value = argument[2:].partition("=")
        if not name:
            return False
        if name in flags.long_writes.split():
            return (value or following) not in _HARMLESS
        return _abbreviates(name, f"{flags.long} {flags.long_writes}")
    if not argument.startswith("-") and not (flags.first_is_cluster and index == 0):
        return False
    return _in_cluster(argument.removeprefix("-"), following, flags)


def _starts(argument: str, options: Sequence[str]) -> bool:
    """Returns True if the argument is one of these options, with or without an attached value."""
    if argument.startswith("--"):
        name = argument[2:].partition("=")[0]
        return bool(name) and any(option[2:].startswith(name) for option in options if option.startswith("--"))
    letters = argument[:2]
    return argument in options or (argument[:1] == "-" and len(letters) == 2 and letters in options)


def _in_cluster(letters: str, following: str, flags: RefusedFlags) -> bool:
    for position, letter in enumerate(letters):
        if letter in flags.short:
            return True
        if letter in flags.writes:
            return (letters[position + 1 :] or following) not in _HARMLESS
        if letter in flags.valued and not flags.first_is_cluster:
            return False
        if letter in flags.valued and position + 1 < len(letters) and not letters[position + 1 :].isalpha():
            return False
    return False


def _matches(argument: str, words: str) -> bool:
    return any(argument.startswith(word[:-1]) if word.endswith("*") else argument == word for word in words.split())


def _abbreviates(name: str, long: str) -> bool:
    return any(
        name.startswith(one[:-1]) or one[:-1].startswith(name) if one.endswith("*") else one.startswith(name)
        for one in long.split()
    )
