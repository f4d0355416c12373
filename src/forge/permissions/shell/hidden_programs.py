"""Finds commands that may start programs which the line does not show: code of another language, commands in data."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from forge.permissions.shell.programs import (
    ANYWHERE,
    CODE_OPTIONS,
    CODE_VARIABLE,
    DATA_MODULES,
    FILE_OPTIONS,
    INTERPRETERS,
    LINE_OPTIONS,
    POSITIONALS,
    PROGRAM_VARIABLE,
    READING_MODULES,
    READS_COMMANDS,
    READS_LINES,
    RUNS_OPERANDS,
    SHELL_WITHOUT_COMMAND,
    SHELLS,
    TAKES_DATA,
    UNSEEN,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.words import ANY, SOME, is_known, may_fit
from forge.permissions.shell.wrappers import option_values

_ASSIGNED = re.compile(r"(\w+)(?:\[[^\]]*\]|[^\w=+])?\+?=(.*)", re.DOTALL)
_HISTORY = re.compile(r"-[a-zA-Z]*H")
_HANDS_ON = frozenset({"env", "export", "declare", "typeset", "local", "readonly", "sudo", "doas"})
DECLARES = _HANDS_ON - {"env", "sudo", "doas"}
_FILLS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})  # they give a variable a value of the input
_DESCRIPTOR = re.compile(r"(?:.*/)?(?:-|stdin|[0-9]+|fd(?:/.*)?)", re.DOTALL)
_SYSTEM_PATH = re.compile(
    r"(?:/(?:usr|bin|sbin|opt|snap|nix|home|root|Users)[^$`*?]*|\$\{?(?:PATH|HOME)\}?[^$`*?]*|~(?![+-])[^$`*?]*)"
)
_SETS_DEFAULT = re.compile(r"\$\{(\w+)(?:\[[^\]]*\])?:?=")
_SETS_PATH = re.compile(r"(?<![\w$])PATH\+?=(\"[^\"]*\"|'[^']*'|[^\s;&|<>()]*)")
_SHELL_OPTION = re.compile(r"-[A-Za-z]*[si]")  # of sudo
_TAKE_COMMAND = frozenset({"su", "script", "sg", "runuser", "nix-shell", "runscript"})
_COMMAND_OPTION = re.compile(r"-[A-Za-z]*c")
_GIT_STARTS = re.compile(
    r"alias\.|include|pager|editor|cmd|command|program|helper|hookspath|fsmonitor|external|textconv|filter|askpass|proxy"
    r"|driver|process|clean|smudge|tool",
    re.IGNORECASE,
)
_SSH_STARTS = re.compile(r"command|exec|include|match|askpass", re.IGNORECASE)
_VALUED_OF_PARALLEL = frozenset("-j --jobs -a --arg-file -S --sshlogin --joblog --delay --timeout --retries -P".split())
_ONLY_ASKS = frozenset({"--version", "--help", "-V", "-h", "-v", "version", "-l", "--list"})
_ASKS_OF_INTERPRETERS = {  # these print something and end; -v and -l of others do not
    **dict.fromkeys(
        ("python", "pypy", "micropython", "ipython", "pdb"), frozenset({"--version", "--help", "-V", "-h"})
    ),
    **dict.fromkeys(("perl", "perl5"), frozenset({"--version", "--help", "-V", "-v", "-h"})),
    **dict.fromkeys(("ruby", "jruby"), frozenset({"--version", "--help", "-h"})),
    **dict.fromkeys(("tclsh", "wish", "jimsh", "expect", "sqlite3", "sqlite"), frozenset({"--version", "--help"})),
    **dict.fromkeys(("ed", "red", "ex", "dc", "m4"), frozenset({"--version", "--help", "-V", "-h"})),
    **dict.fromkeys(("mysql", "mariadb", "ftp", "lftp", "gdb"), frozenset({"--version", "--help", "-V"})),
}
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_AWK_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<slash>/)|(?P<space>\s+|#[^\n]*)|\w+|\|\||.', re.DOTALL)
_AWK_PATTERN = re.compile(r"/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/")
_AWK_BEFORE_PATTERN = frozenset("{}();,~!&|\n=") | {"||", "", "in", "return", "print"}
_AWK_STARTS = frozenset({"system", "|", "@", '"'})
_AWK_MAY_START = re.compile(r"system|[|@\"#]")
_SED_ADDRESS = re.compile(
    r"(?:(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/[IM]*)(?:\s*[,~]\s*[+~]?(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/[IM]*))?)?"
    r"\s*!*\s*"
)
_SED_PLAIN = re.compile(
    r"[=dDgGhHnNpPxzF}{]|[qQlL][ \t]*\d*|[btT:][^;\n}]*|#[^\n]*|[rRwW][^\n]*|[aic](?:[^\\\n]|\\.)*", re.DOTALL
)
_SED_CLUSTER = re.compile(r"-[nErsuzb]*(?:(?P<kind>[efl])(?P<value>.*)|i.*)?", re.DOTALL)
_SED_LONG = {  # options, and the letter of those that take a value
    "expression": "e",
    "file": "f",
    "line-length": "l",
    **dict.fromkeys(
        "quiet silent regexp-extended null-data zero-terminated separate posix in-place unbuffered".split(), ""
    ),
    **dict.fromkeys("follow-symlinks debug sandbox binary help version".split(), ""),
}
_MODULE = re.compile(r"-[A-Zbdisuvqx]*m(.*)", re.DOTALL)
_GIT_TAKES_PROGRAMS = frozenset(
    "archive bisect clone config daemon difftool fetch fetch-pack filter-branch grep instaweb ls-remote mergetool pull"
    " push rebase send-email send-pack submodule".split()
)


def hides(words: Sequence[str]) -> bool:
    """Returns whether a command may start a program that its words do not show."""
    name = base_name(os.path.basename(words[0])) if words else ""
    more = words[1:]
    if _sets_program(name, words):
        return True
    if len(more) == 1 and more[0] in _only_asks(name):
        return False
    if name == "fc" or (name == "set" and any(word == "histexpand" or _HISTORY.match(word) for word in more)):
        return not any(word.startswith("-") and "l" in word for word in more)  # they run lines of the history
    if name in SHELLS or name in (".", "source"):
        return _runs_unknown_file(more)
    if _names_descriptor(name, more):
        return True
    if name in _AWKS:
        return _awk_hides(more)
    if name in ("sed", "gsed"):
        return _sed_hides(more)
    if name in INTERPRETERS:
        return _interpreter_hides(name, more)
    if name in UNSEEN or (name == "parallel" and not _operands(more)):
        return True
    if name in CODE_OPTIONS and any(_is_code(word, CODE_OPTIONS[name]) for word in more):
        return True
    if name == "git":
        return _git_hides(more)
    if name in LINE_OPTIONS and any(map(_may_be_program, option_values(name, more))):
        return True
    takes_programs = name in LINE_OPTIONS or name in CODE_OPTIONS or name in ANYWHERE
    return takes_programs and name not in TAKES_DATA and _may_be_option(more)


def _only_asks(name: str) -> frozenset[str]:
    """Returns the options with which a program prints its version or a list, and does not read its input."""
    return _ASKS_OF_INTERPRETERS.get(name, _ONLY_ASKS)


def may_start_others(word: str) -> bool:
    """Recognises `/bin/b?sh -c 'rm x'`: the name may be that of a shell or a wrapper."""
    name = os.path.basename(word)
    if is_known(name) or not is_known(word[:1]):  # a name that begins with anything counts as any command already
        return False
    others = (*SHELLS, *WRAPPERS, *INTERPRETERS, "ld.so", "ld-linux.so.2", "ld-linux-x86-64.so.2", "ld-musl.so.1")
    return any(may_fit((name,), other) for other in others)


def runs_input(words: Sequence[str]) -> bool:
    """Returns whether a command is a shell, or one that starts a shell, and runs its input or a descriptor."""
    name = os.path.basename(words[0]) if words else ""
    if name in (".", "source"):
        return any(map(is_descriptor, words[1:2]))
    if name in READS_LINES or (name in SHELL_WITHOUT_COMMAND and _has_no_command(name, words[1:])):
        return True
    if base_name(name) not in SHELLS or words[1:] in (["--version"], ("--version",)):
        return False
    options = [word for word in words[1:] if word.startswith("-") and not word.startswith("--")]
    if any("c" in option for option in options):
        return False
    values = {value for option, value in pairwise(words[1:]) if _has_shell_value(option)}
    operands = [word for word in words[1:] if word == "-" or not (word.startswith(("-", "+")) or word in values)]
    return (
        not operands
        or is_descriptor(operands[0])
        or any("s" in option for option in options)
        or any(is_descriptor(value) for value in values)
    )


def may_run_input(words: Sequence[str], *, has_input: bool) -> bool:
    """Returns whether a command may run its input as a program, or as commands one of which starts programs.

    `has_input`: there may be some. A shell counts in any case.
    """
    name = base_name(os.path.basename(words[0])) if words else ""
    if name == "screen":  # it needs a terminal
        return False
    if name not in READS_COMMANDS:
        return runs_input(words)
    if not has_input:
        return False
    given = [word for word in words[1:] if not word.startswith("-")]
    if len(words) == 2 and words[1] in _only_asks(name):
        return False
    if name in ("sqlite3", "sqlite"):
        return len(given) < 2
    if name in ("psql", "mysql", "mariadb"):
        return not any(word.startswith(("-c", "-e", "-l", "--command", "--execute", "--list", "-f")) for word in words)
    return name not in ("vi", "vim", "nvim", "view", "gvim", "rvim", "rview") or bool(_descriptors(words[1:]))


def is_descriptor(word: str) -> bool:
    """Returns whether a word names an open file of the process: `-`, `/dev/stdin`, `/dev/fd/3`, `/proc/self/fd/0`.

    A plain number counts, for a line that is in /dev/fd.
    """
    return bool(_DESCRIPTOR.fullmatch(os.path.normpath(word))) if word else False


def _has_shell_value(option: str) -> bool:
    return option in ("--rcfile", "--init-file") or (
        option.startswith(("-", "+")) and not option.startswith("--") and option[-1:] in ("o", "O")
    )


def _has_no_command(name: str, words: Sequence[str]) -> bool:
    """Recognises `su`, `sudo -s`, `script log`: they start a shell. A word behind an option may be its value."""
    if name in ("sudo", "doas") and not any(
        word in ("--shell", "--login") or _SHELL_OPTION.match(word) for word in words
    ):
        return False
    if name in _TAKE_COMMAND and any(word.startswith(("--c", "--r")) or _COMMAND_OPTION.match(word) for word in words):
        return False
    before = ("", *words)
    operands = [
        word for option, word in zip(before, words, strict=False) if not word.startswith("-") and option[:1] != "-"
    ]
    return len(operands) <= POSITIONALS.get(name, 0)


def names_program(name: str) -> bool:
    """Returns whether a variable makes programs run or load something."""
    return name == "PATH" or bool(PROGRAM_VARIABLE.fullmatch(name) or CODE_VARIABLE.fullmatch(name))


def sets_path(line: str) -> bool:
    """Returns whether a line looks for programs where a tool may write, as PATH=. ls; or sets such a default."""
    if any(names_program(found[1]) for found in _SETS_DEFAULT.finditer(line)):
        return True
    return any(
        not _SYSTEM_PATH.fullmatch(folder)
        for found in _SETS_PATH.finditer(line)
        for folder in found[1].strip("\"'").split(":")
    )


def _sets_program(name: str, words: Sequence[str]) -> bool:
    """Recognises `BASH_ENV=x`, `export PAGER="$x"`, `read EDITOR`: a variable makes another program run something."""
    given = words if name in _HANDS_ON else words[:1]
    for found in filter(None, map(_ASSIGNED.fullmatch, given)):
        if CODE_VARIABLE.fullmatch(found[1]) or (PROGRAM_VARIABLE.fullmatch(found[1]) and not is_known(found[2])):
            return True
    if name in DECLARES:
        options = [word for word in words[1:] if word.startswith("-")]
        return _may_be_option(words[1:]) or (name != "export" and any("n" in option for option in options))
    if name in _FILLS:
        filled = words[1:] if name != "printf" else [more for word, more in pairwise(words) if word == "-v"]
        return any(map(names_program, filled))
    return False


def _names_descriptor(name: str, words: Sequence[str]) -> bool:
    """Recognises `awk -f -`, `make -f/dev/stdin`, `m4 -`, `gcc @/dev/stdin`: the program is the input."""
    if name in RUNS_OPERANDS:
        return not any(not word.startswith("-") for word in words) or bool(_descriptors(words))
    if any(word.startswith("@") and is_descriptor(word[1:]) and not word[1:].isdecimal() for word in words):
        return True
    if name in ("tar", "bsdtar") and any(word in ("--null", "--verbatim-files-from") for word in words):
        return False  # then no line of the list is an option
    return any(
        is_descriptor(value) or not is_known(value[:1])
        for value in option_values(name, words, FILE_OPTIONS)
        if not (name in ("tmux", "screen") and value.isdecimal())
    )


def _descriptors(words: Sequence[str]) -> list[str]:
    return [word for word in words if is_descriptor(word) and not word.isdecimal()]


def _may_be_program(value: str) -> bool:
    """Returns whether the value of an option that holds a program begins with an unknown text."""
    head, has_value, text = value.partition("=")
    if has_value and is_known(head):
        return not is_known(text[:1]) and bool(_SSH_STARTS.search(head))
    return not is_known(value[:1])


def _operands(words: Sequence[str]) -> list[str]:
    """Returns the words that are neither options of `parallel` nor their values; without any, it reads commands."""
    before = ("", *words)
    return [
        word
        for option, word in zip(before, words, strict=False)
        if not word.startswith("-") and option not in _VALUED_OF_PARALLEL
    ]


def _may_be_option(words: Sequence[str]) -> bool:
    """Returns whether a word that is known only later could be an option."""
    return any(word.startswith((ANY, SOME)) for word in words[: words.index("--") if "--" in words else None])


def _is_code(word: str, options: frozenset[str]) -> bool:
    if word in options:
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 4 and any(option.startswith(name) for option in options)
    if word.startswith("-") and len(word) > 1:
        letters = {option[1] for option in options if len(option) == 2 and option[0] == "-"}
        return word.partition("=")[0] in options or any(letter in letters for letter in word[1:])
    return any(not option.startswith("-") and len(option) > 0 and word.startswith(option) for option in options)


def _interpreter_hides(name: str, words: Sequence[str]) -> bool:
    code, valued = INTERPRETERS[name]
    rest = iter(words)
    for word in rest:
        if is_descriptor(word) or not is_known(word[:1]) or "data:" in word:
            return True
        if not word.startswith("-"):
            return word in code or (word == "run" and is_descriptor(next(rest, "")))
        if name in ("python", "pypy") and (module := _MODULE.fullmatch(word)):
            return "i" in word[: module.start(1)] or module_hides(module[1] or next(rest, ""), [*rest])
        if word[:2] in valued and len(word) > 2:
            continue
        if _is_code(word, code):
            return True
        if word in valued and ("data:" in (value := next(rest, "")) or is_descriptor(value)):
            return True
    return not words or not set(words) & _only_asks(name)  # it reads its program


def module_hides(name: str, words: Sequence[str]) -> bool:
    """Recognises `python -m asyncio`, `python -m pickle /dev/stdin`: a module that may run what it reads."""
    if not is_known(name) or name.partition(".")[0] in READING_MODULES:
        return True
    if name.partition(".")[0] in sys.stdlib_module_names and name not in DATA_MODULES:
        return True
    return name in ("doctest", "unittest", "pytest") and bool(_descriptors(words))


def _runs_unknown_file(words: Sequence[str]) -> bool:
    """Recognises `bash <(…)`, `. "$x"`: the file is not known, not even by its last name."""
    operands = [word for word in words if not word.startswith(("-", "+"))]
    return (
        bool(operands)
        and not any("c" in word for word in words if word.startswith("-"))
        and not (operands[0].strip(ANY + SOME))
    )


def _git_hides(words: Sequence[str]) -> bool:
    if any(word.startswith("ext::") for word in words):
        return True
    for number, word in enumerate(words):
        if word.startswith((ANY, SOME, "--exec-path=")):
            return True
        setting = word[2:] if word.startswith("-c") and len(word) > 2 else word if words[number - 1] == "-c" else ""
        key, _, value = setting.partition("=")
        if key.lower().startswith("include") or (_GIT_STARTS.search(key) and not is_known(value)):
            return True
        if not word.startswith("-") and words[number - 1 : number] not in (["-C"], ["-c"], ("-C",), ("-c",)):
            return word in _GIT_TAKES_PROGRAMS and _may_be_option(words[number + 1 :])
    return False


def _awk_hides(words: Sequence[str]) -> bool:
    return any(_is_code(word, CODE_OPTIONS["awk"]) for word in words if word.startswith("-")) or any(
        not word.startswith("-") and awk_starts(word) for word in words
    )


def awk_starts(program: str) -> bool:
    """Returns whether a program of awk may start another one."""
    if not is_known(program):
        return True
    before, at = "", 0
    while at < len(program):
        pattern = _AWK_PATTERN.match(program, at) if before in _AWK_BEFORE_PATTERN else None
        piece = pattern or _AWK_PIECE.match(program, at)
        if piece is None or piece[0] in _AWK_STARTS:
            return True
        if pattern and before == ")" and _AWK_MAY_START.search(piece[0]):  # perhaps two divisions
            return True
        if pattern or not piece["space"] or "\n" in piece[0]:
            before = "\n" if not pattern and piece["space"] else piece[0]
        at = piece.end()
    return False


def _sed_hides(words: Sequence[str]) -> bool:
    if any(word.startswith((ANY, SOME)) for word in words if not word.startswith("-")):
        return True
    return any(script is None or not _sed_is_seen(script) for _, script in sed_scripts(words))


def sed_scripts(words: Sequence[str]) -> Iterator[tuple[int, str | None]]:
    """Yields the scripts of a sed command with their places; "" for a file, None for an option that is not known.

    The first word that is not an option is one, unless an option gives one.
    """
    operands: list[tuple[int, str]] = []
    is_given = False
    rest = iter(enumerate(words))
    for index, word in rest:
        if word == "--":
            operands += rest
        elif not word.startswith("-") or word == "-":
            operands.append((index, word))
        else:
            kind, value = _read_sed_option(word)
            place: int = index
            if kind and value is None:
                place, value = next(rest, (index, None))
            if kind != "l" and kind != "":
                is_given = True
                yield place, value if kind == "e" else "" if kind == "f" else None
    if not is_given:
        yield from operands[:1]


def _read_sed_option(word: str) -> tuple[str, str | None]:
    """Returns the letter of an option that takes a value, and the value attached; `?` for one that is not known."""
    if word.startswith("--"):
        name, has_value, value = word[2:].partition("=")
        kind = next((letter for long, letter in _SED_LONG.items() if long.startswith(name)), "?")
        return kind, value if has_value or kind == "?" else None
    cluster = _SED_CLUSTER.fullmatch(word)
    return (cluster["kind"] or "", cluster["value"] or None) if cluster else ("?", "")


def _sed_is_seen(script: str) -> bool:
    """Returns whether every command of a script is known, and none starts a program."""
    if not is_known(script):
        return False
    at = 0
    while at < len(script):
        if script[at] in " \t\n;":
            at += 1
            continue
        found = _SED_ADDRESS.match(script, at)
        at = found.end() if found else at
        if script[at : at + 1] in ("s", "y"):
            end = _end_of_replacement(script, at)
            if end < 0:
                return False
            at = end
            continue
        plain = _SED_PLAIN.match(script, at)
        if plain is None or not plain[0]:
            return False
        at = plain.end()
    return True


def _end_of_replacement(script: str, at: int) -> int:
    """Returns the end of an `s` or `y` command; -1 if it may start something."""
    mark = script[at + 1 : at + 2]
    if not mark or mark in "\\\n[":
        return -1
    piece = rf"(?:(?!{re.escape(mark)})[^\\\n\[]|\\.|\[)*?"
    bracketed = rf"(?:(?!{re.escape(mark)})[^\\\n\[]|\\.|\[\^?\]?(?:(?!{re.escape(mark)})[^\]\n])*\])*"
    found = re.compile(
        rf".{re.escape(mark)}{bracketed}{re.escape(mark)}{piece}{re.escape(mark)}(?P<flags>[gpiIMm0-9]*)(?P<file>w[^\n]*)?",
        re.DOTALL,
    ).match(script, at)
    if found is None or script[found.end() : found.end() + 1] not in ("", ";", "\n", "}", " ", "\t", "#"):
        return -1
    return found.end()
