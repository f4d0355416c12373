"""Finds arguments with which a program starts others, loads code, or chooses its own files, without a shell around it.

These are options of the tables in `programs`, options and subcommands of Git, and programs in arguments: patterns and
scripts. What a script or a module may start is judged as in a shell line (`hidden_programs`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from forge.permissions.shell.hidden_programs import awk_starts, module_hides, sed_scripts
from forge.permissions.shell.programs import AWKS, INTERPRETERS, SEDS, ExecFlags, exec_flags, family_of
from forge.permissions.shell.read_only import is_reading_script
from forge.permissions.shell.read_only.git import find_repository

_TELLING = frozenset("-V -VV -v -h -help --help --version -copyright".split())
_HARMLESS = frozenset({"-", "/dev/null", "/dev/stdout"})  # where what is written does not matter


def find_exec_option(names: Sequence[str], args: Sequence[str], stdin: str, workspace: str) -> tuple[int, str] | None:
    """Returns the index and text of the first such argument; the index is -1 if an option is missing.

    `names`: those of the program, such as the name of a link and of its target.
    """
    for name in names:
        family, flags = family_of(name), exec_flags(name)
        if family == "git" and (found := find_git_option(args, workspace)) is not None:
            return found
        own, given = _count_own_arguments(args, flags) if flags.script else (len(args), True)
        for index, argument in enumerate(args[:own]):
            if _is_listed(argument, index, args, flags):
                return index, f'"{argument}"'
        if not given or (family in INTERPRETERS and not args):
            return -1, "a program from its input"
        if family == "python" and (module := _find_module(args[:own])) is not None:
            return module, f'"{args[module]}"'
    code = _find_reaching_code(names, args, stdin)
    return None if code is None else (code, "a script that may do more than process its input")


def _count_own_arguments(args: Sequence[str], flags: ExecFlags) -> tuple[int, bool]:
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


def _is_listed(argument: str, index: int, args: Sequence[str], flags: ExecFlags) -> bool:
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


def _in_cluster(letters: str, following: str, flags: ExecFlags) -> bool:
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
    plain = argument.partition("=")[0] if argument.startswith("-") else argument
    return any(
        argument.startswith(word[:-1]) if word.endswith("*") else word in (argument, plain) for word in words.split()
    )


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


def find_git_option(args: Sequence[str], workspace: str) -> tuple[int, str] | None:
    """Returns the first argument that makes Git start a program of the caller's choice, with its index."""
    directory = workspace
    index = 0
    while index < len(args) and args[index].startswith("-"):
        if args[index].startswith(_BEFORE):
            return index, f'"{args[index]}"'
        if args[index] == "-C" and index + 1 < len(args):
            directory = os.path.join(directory, args[index + 1])
        index += 2 if args[index] in _VALUED else 1
    if find_repository(directory, workspace) is None:
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

_GREPS = frozenset({"grep", "egrep", "fgrep", "rg", "ripgrep"})

# Only options without a value may come before the pattern: of others the value would be taken for it, and the pattern,
# or a path, for what it is not.
_BEFORE_PATTERN = re.compile(r"-[abcEFGHhiIlLnNoPqrsSUvwxz]+")
_NAMES_PATTERN = re.compile(r"-[A-Za-z0-9]*[ef]|--[rft]")

_AWK_REACHES = re.compile(r"\b(?:getline|ARGV|ENVIRON|ARGC)\b")
_JQ_REACHES = re.compile(r"\b(?:import|include|modulemeta|get_search_list|input_filename)\b")
_SQL_REACHES = re.compile(r"^\s*\.|\b(?:load_extension|readfile|writefile|attach|edit|fsdir|zipfile)\b", re.IGNORECASE)
_YQ_REACHES = re.compile(r"\b(?:load\w*|env|envsubst|strenv|eval)\b")
_EXEC_ADDRESS = re.compile(r"\b(?:exec|system|open|create|gopen)\s*:", re.IGNORECASE)
_PSQL_REACHES = re.compile(r"\\[!egiosw]|\\copy|\bprogram\b|\bpg_read|\blo_import\b", re.IGNORECASE)
_MYSQL_REACHES = re.compile(
    r"\\[!.TPe]|(?:^|;)\s*(?:system|source|tee|pager|edit)\b|\b(?:load_file|outfile|dumpfile|infile)\b", re.IGNORECASE
)
_READ_COMMANDS = frozenset({"psql", "sqlite3", "mysql", "mariadb"})
_ASKS_FOR_HELP = frozenset({"--version", "--help", "-W version"})
_SEARCHED: dict[str, Callable[[str], object]] = {
    "jq": _JQ_REACHES.search,
    "yq": _YQ_REACHES.search,
    "sqlite3": _SQL_REACHES.search,
    "psql": _PSQL_REACHES.search,
    "mysql": _MYSQL_REACHES.search,
    "mariadb": _MYSQL_REACHES.search,
    "socat": _EXEC_ADDRESS.search,
}


def find_patterns(names: Sequence[str], args: Sequence[str]) -> set[int]:
    """Returns the indexes of regular expressions and scripts, which may begin like an absolute path."""
    if AWKS & set(names):
        found = _find_awk_program(args)
        return set() if found is None else {found}
    if SEDS & set(names):
        return {index for index, script in sed_scripts(args) if script}
    if not _GREPS & set(names) or any(map(_NAMES_PATTERN.match, args)):
        return set()
    for index, argument in enumerate(args):
        if not argument.startswith("-") or argument == "-":
            return {index}
        if not _BEFORE_PATTERN.fullmatch(argument):
            break
    return set()


def _find_reaching_code(names: Sequence[str], args: Sequence[str], stdin: str) -> int | None:
    """Returns the first argument whose code starts programs, or reads or writes files of its own choice.

    -1: it is in what the program reads.
    """
    for name in names:
        if name in AWKS and not _ASKS_FOR_HELP & set(args):
            program = _find_awk_program(args)
            return program or 0 if program is None or _awk_reaches(args[program]) else None
        if name in SEDS and not _ASKS_FOR_HELP & set(args):
            return next((index for index, script in sed_scripts(args) if not is_reading_script(script or "e")), None)
        if search := _SEARCHED.get(name):
            if found := [index for index, argument in enumerate(args) if search(argument)]:
                return found[0]
            if name in _READ_COMMANDS and any(map(search, stdin.splitlines())):
                return -1
    return None


def _find_module(args: Sequence[str]) -> int | None:
    """Returns the index of a Python module that may run what it reads."""
    for index, argument in enumerate(args):
        if found := re.fullmatch(r"-[bBdEhiIOPqRsSuvVx]*m(.*)", argument):
            name = found[1] or (args[index + 1] if index + 1 < len(args) else "")
            return index if module_hides(name, ()) else None
    return None


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
    writes = printing is not None and ">" in program[printing.end() :]
    return writes or _AWK_REACHES.search(program) is not None or awk_starts(program)
