"""Finds commands that may start programs which the line does not show: code of another language, commands in data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from forge.permissions.shell.programs import (
    ANYWHERE,
    CODE_OPTIONS,
    INTERPRETERS,
    LINE_OPTIONS,
    SHELLS,
    TAKES_DATA,
    UNSEEN,
    base_name,
)
from forge.permissions.shell.word_patterns import ANY, SOME, is_known

_LOADS = re.compile(  # variables that make programs load code
    r"(?:LD_PRELOAD|LD_AUDIT|LD_LIBRARY_PATH|GCONV_PATH|BASH_ENV|ENV|PERL5OPT|PERL5DB|RUBYOPT|NODE_OPTIONS|PYTHONSTARTUP"
    r"|PYTHONPATH|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|GIT_EXEC_PATH|GIT_CONFIG_\w+)="
)
_HANDS_ON = frozenset({"env", "export", "declare", "typeset", "sudo", "doas"})
_VALUED_OF_PARALLEL = frozenset("-j --jobs -a --arg-file -S --sshlogin --joblog --delay --timeout --retries -P".split())
_ONLY_ASKS = frozenset({"--version", "--help", "-V", "-h", "-v", "version", "-l", "--list"})
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_AWK_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<slash>/)|(?P<space>\s+)|\w+|\|\||.', re.DOTALL)
_AWK_PATTERN = re.compile(r"/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/")
_AWK_BEFORE_PATTERN = frozenset("{}();,~!&|\n=") | {"||", "", "in", "return", "print"}
_AWK_STARTS = frozenset({"system", "|", "@"})
_SED_ADDRESS = re.compile(
    r"(?:(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/[IM]*)(?:\s*[,~]\s*[+~]?(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])*/[IM]*))?)?"
    r"\s*!*\s*"
)
_SED_PLAIN = re.compile(
    r"[=dDgGhHnNpPxzF}{]|[qQlL][ \t]*\d*|[btT:][^;\n}]*|#[^\n]*|[rRwW][^\n]*|[aic](?:[^\\\n]|\\.)*", re.DOTALL
)
_MODULE = re.compile(r"-[A-Zbdisuvqx]*m(.*)", re.DOTALL)
_MODULES = frozenset({"timeit", "pdb", "trace", "cProfile", "profile", "code"})  # python -m timeit CODE
_GIT_TAKES_PROGRAMS = frozenset(
    "archive bisect clone config daemon difftool fetch fetch-pack filter-branch grep instaweb ls-remote mergetool pull"
    " push rebase send-email send-pack submodule".split()
)


def hides(words: Sequence[str]) -> bool:
    """Says whether a command may start a program that its words do not show."""
    name = base_name(os.path.basename(words[0])) if words else ""
    more = words[1:]
    if any(map(_LOADS.match, more if name in _HANDS_ON else words[:1])):
        return True
    if len(more) == 1 and more[0] in _ONLY_ASKS:
        return False
    if name in SHELLS or name in (".", "source"):
        return _runs_unknown_file(more)
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
    takes_programs = name in LINE_OPTIONS or name in CODE_OPTIONS or name in ANYWHERE
    return takes_programs and name not in TAKES_DATA and _may_be_option(more)


def _operands(words: Sequence[str]) -> list[str]:
    """Returns the words that are neither options of `parallel` nor their values; without any, it reads commands."""
    before = ("", *words)
    return [
        word
        for option, word in zip(before, words, strict=False)
        if not word.startswith("-") and option not in _VALUED_OF_PARALLEL
    ]


def _may_be_option(words: Sequence[str]) -> bool:
    """Says whether a word that is known only later could be an option."""
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
        if word == "-" or not is_known(word[:1]):
            return True
        if not word.startswith("-"):
            return word in code
        if name in ("python", "pypy") and (module := _MODULE.fullmatch(word)):
            return (module[1] or next(rest, "")) in _MODULES
        if _is_code(word, code):
            return True
        if word in valued:
            next(rest, None)
    return not words or not set(words) & _ONLY_ASKS  # it reads its program


def _runs_unknown_file(words: Sequence[str]) -> bool:
    """Recognises `bash <(…)`, `. "$x"`: the file is not known, not even by its last name."""
    operands = [word for word in words if not word.startswith(("-", "+"))]
    return (
        bool(operands)
        and not any("c" in word for word in words if word.startswith("-"))
        and not (operands[0].strip(ANY + SOME))
    )


def _git_hides(words: Sequence[str]) -> bool:
    for number, word in enumerate(words):
        if word.startswith((ANY, SOME, "--exec-path=")):
            return True
        if not word.startswith("-") and words[number - 1 : number] not in (["-C"], ["-c"], ("-C",), ("-c",)):
            return word in _GIT_TAKES_PROGRAMS and _may_be_option(words[number + 1 :])
    return False


def _awk_hides(words: Sequence[str]) -> bool:
    return any(_is_code(word, CODE_OPTIONS["awk"]) for word in words if word.startswith("-")) or any(
        not word.startswith("-") and _awk_starts(word) for word in words
    )


def _awk_starts(program: str) -> bool:
    if not is_known(program):
        return True
    before, at = "", 0
    while at < len(program):
        pattern = _AWK_PATTERN.match(program, at) if before in _AWK_BEFORE_PATTERN else None
        piece = pattern or _AWK_PIECE.match(program, at)
        if piece is None or piece[0] in _AWK_STARTS:
            return True
        if pattern or not piece["space"] or "\n" in piece[0]:
            before = "\n" if not pattern and piece["space"] else piece[0]
        at = piece.end()
    return False


def _sed_hides(words: Sequence[str]) -> bool:
    return not all(map(_sed_is_seen, _sed_scripts(words)))


def _sed_scripts(words: Sequence[str]) -> Iterator[str]:
    """Returns the scripts of a sed command; the first word that is not an option is one, unless an option gives one."""
    has_script = False
    rest = iter(words)
    operands = []
    for word in rest:
        if word.startswith(("--expression=", "--file=")):
            has_script = True
            yield word.partition("=")[2] if word.startswith("--e") else ""
        elif word in ("--expression", "--file"):
            has_script = True
            value = next(rest, "")
            yield value if word == "--expression" else ""
        elif word.startswith("-") and not word.startswith("--") and set(word) & {"e", "f"} and "i" not in word:
            has_script = True
            letter = min(word.find(one) for one in "ef" if one in word)
            value = word[letter + 1 :] or next(rest, "")
            yield value if word[letter] == "e" else ""
        elif word.startswith("-"):
            if word.startswith("-") and "i" not in word and not word.startswith("--") and word.strip("-nErsuz"):
                yield "e"  # an option that is not known
        else:
            operands.append(word)
    if not has_script:
        yield from operands[:1]
    yield from ("e" for word in operands if word.startswith((ANY, SOME)))


def _sed_is_seen(script: str) -> bool:
    """Says whether every command of a script is known, and none starts a program."""
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
