"""Finds arguments with which an allowed program starts others, loads code, or chooses its own files.

These are options, options and subcommands of Git, and programs in arguments: patterns and scripts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.permissions.shell.programs import ANY, AWKS, OTHER_NAMES, SEDS, TABLE, RefusedFlags, starting_options
from forge.tools.cli_execute.binaries import Binary
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
    """Returns whether the argument is one of these options, with or without an attached value."""
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


# Finds Git options and subcommands that start other programs.

_VALUED = frozenset({"-C", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_BEFORE = ("-c", "--config-env", "--exec-path=", "--git-dir", "--bare")
_REFUSED = frozenset(
    (
        "citool credential credential-cache credential-store cvsserver daemon difftool fast-import "
        "filter-branch filter-repo for-each-repo gui hook http-backend instaweb maintenance mergetool p4 "
        "receive-pack remote-ext remote-fd send-email shell sh-setup sh-i18n svn upload-archive upload-pack "
        "web--browse"
    ).split()
)
_WITH = {"bisect": "run", "submodule": "foreach"}
_LONG = "exec ext-diff extcmd open-files-in-pager receive-pack unsafe-paths upload-pack".split()
_LONG_OF = {"clone": ("config", "template"), "init": ("template",)}
_SHORT = {"clone": "cu", "grep": "O", "rebase": "x"}
_TRANSPORT = re.compile(r"(?:^|[=\s])(?:ext|fd)::")
_READS_CONFIG = frozenset("--get --get-all --get-regexp --get-urlmatch --list -l get list".split())
_OWN_SETTINGS = frozenset({"user.name", "user.email"})


def find_git_flag(args: Sequence[str], paths: PathValidator) -> tuple[int, str] | None:
    """Returns the first argument that makes Git start a program of the caller's choice, with its index."""
    directory = str(paths.workspace)
    index = 0
    while index < len(args) and args[index].startswith("-"):
        if args[index].startswith(_BEFORE):
            return index, f'"{args[index]}"'
        if args[index] == "-C" and index + 1 < len(args):
            directory = os.path.join(directory, args[index + 1])
        index += 2 if args[index] in _VALUED else 1
    if _passes_for_repository(directory, str(paths.workspace)):
        return -1, "a directory that looks like a repository and has no .git"
    found = _find_in_subcommand(args[index:])
    return None if found is None else (index + found, f'"{args[index + found]}"')


def _find_in_subcommand(words: Sequence[str]) -> int | None:
    name, more = (words[0], words[1:]) if words else ("", ())
    if name in _REFUSED or name.startswith("remote-") or _WITH.get(name, "\0") in more:
        return 0
    if name == "config":
        return None if _only_reads(more) else 0
    listed = (at for at, word in enumerate(words) if at and (_TRANSPORT.search(word) or _is_git_option(word, name)))
    return next(listed, None)


def _passes_for_repository(directory: str, workspace: str) -> bool:
    """Returns whether Git would use a repository here that a tool may have filled: settings start programs."""
    directory = os.path.normpath(directory)
    while not os.path.lexists(os.path.join(directory, ".git")):
        if os.path.lexists(os.path.join(directory, "HEAD")):
            return True
        if directory in (workspace, os.path.dirname(directory)):
            return False
        directory = os.path.dirname(directory)
    return False


def _only_reads(words: Sequence[str]) -> bool:
    if _READS_CONFIG & set(words) and not {"--edit", "-e"} & set(words):
        return True
    named = [word for word in words if not word.startswith("-")]
    return (len(named) == 1 and len(words) == 1) or (bool(named) and named[0] in _OWN_SETTINGS)


def _is_git_option(word: str, name: str) -> bool:
    if word.startswith("--"):
        long = word[2:].partition("=")[0]
        return bool(long) and any(one.startswith(long) for one in (*_LONG, *_LONG_OF.get(name, ())))
    letters = word[1:] if word.startswith("-") else ""
    return any(letter in _SHORT.get(name, "") for letter in letters)


# Finds programs inside arguments: patterns and scripts, and scripts that could start or reach something.

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
_ASKS_FOR_HELP = frozenset({"--version", "--help", "-W version"})
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
        if name in AWKS and not _ASKS_FOR_HELP & set(args):
            program = _find_awk_program(args)
            return program or 0 if program is None or _awk_reaches(args[program]) else None
        if name in SEDS and not _ASKS_FOR_HELP & set(args):
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
    """Returns whether a sed script provably only prints, deletes and replaces."""
    from forge.permissions.shell.read_only import only_reads  # it loads a parser of shell lines

    return only_reads(shlex.join(["sed", "-e", script]), Scope(workspace=paths.workspace)) is not None
