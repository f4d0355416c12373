"""Refuses shell lines that no rule can allow: they would destroy the system, the home directory or the workspace.

Judged on the words of commands and what they really name, through wrappers, substitutions and variables that the line
itself sets; never on the text: `echo "rm -rf /"` is fine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from forge.core.context import Scope
from forge.permissions import shell
from forge.permissions.shell.commands import runs_input, split_loosely
from forge.permissions.shell.destructive.expansion import expand_line
from forge.permissions.shell.destructive.protected_locations import Locations
from forge.permissions.shell.destructive.unseen_code import (
    find_printed_lines,
    is_fork_bomb,
    is_interpreter,
    runs_fetched_code,
)
from forge.permissions.shell.destructive.variables import find_known_values
from forge.permissions.shell.literal_line import split_literal
from forge.permissions.shell.parsed_line import Redirection, ShellCommand, ShellLine
from forge.permissions.shell.programs import (
    ANYWHERE,
    EVALUATING,
    LINE_OPTIONS,
    PROGRAM_VARIABLE,
    SHELLS,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.word_patterns import ANY, SOME, is_known
from forge.permissions.shell.working_directories import destination
from forge.permissions.shell.wrappers import InnerLine, TooDeep, starts

_DEEPEST = 5  # lines inside each other
_REDIRECTED = re.compile(r">[|&>]?[ \t]*([^\s;&|<>()]+)")


def explain_destruction(line: str, scope: Scope, directory: str = "") -> str:
    """Explains why a line must not run, as the end of a sentence; empty if nothing is known against it.

    `directory` is where it runs, the workspace if it is empty.
    """
    if len(line) > shell.LONGEST:
        return f"it has more than {shell.LONGEST:,} characters, too many to check"
    if _is_plain(line):
        return ""
    texts = [(text, ()) for text in dict.fromkeys((line, expand_line(line, scope)))]
    for text, values in [*texts, *((line, way) for way in find_known_values(line, scope).ways if way)]:
        try:
            if reason := _judge_line(text, Locations(scope, directory, values), 0):
                return reason
        except TooDeep:
            return "its commands are nested too deeply to check"
    return ""


def explain_unresolved(line: str, scope: Scope) -> str:
    """Names a program that could destroy unnamed targets, as the end of a sentence; empty if there is none.

    `rm -rf "$x"`, where the value of `x` is not known.
    """
    if len(line) > shell.LONGEST or _is_plain(line):
        return ""
    for values in find_known_values(line, scope).sure():
        locations = Locations(scope, "", values)
        try:
            _judge_line(line, locations, 0)
        except TooDeep:
            return "its commands are nested too deeply to check"
        if locations.doubts:
            return f"the targets of {locations.doubts[0]} are known only when the line runs"
    return ""


def _is_plain(line: str) -> bool:
    """Says whether it is a literal line without any command that is judged here."""
    found = split_literal(line)
    names = [base_name(os.path.basename(part.words[0]).lower()) for part in found]
    return bool(names) and not any(
        name in _JUDGES
        or name in _STARTS
        or "/" in part.words[0]  # perhaps a link
        or name.startswith(("mkfs", "ld", "qemu-"))
        or (part.joint == "|" and is_interpreter(name))
        or (name in EVALUATING and any("$(" in word or "`" in word for word in part.words))
        for name, part in zip(names, found, strict=True)
    )


def _judge_line(line: str, locations: Locations, depth: int) -> str:
    if depth > _DEEPEST:
        raise TooDeep
    found = shell.read_inner(line, locations.values) if depth else shell.read(line, locations.values)
    if found.is_broken:
        commands = [ShellCommand(words=tuple(words)) for words in split_loosely(line)]
        files = [Redirection(">", target.strip("'\"")) for target in _REDIRECTED.findall(line)]
        commands.append(ShellCommand(redirections=files))
        found = ShellLine(commands=[*found.commands, *commands], pipes=found.pipes, functions=found.functions)
    for command in found.commands:
        locations.begin_command(command.joint)
        if reason := _judge_command(command, locations, depth):
            return reason
    if is_fork_bomb(found):
        return "it starts itself without end (a fork bomb)"
    if runs_fetched_code(found):
        return "it would run downloaded code that no one has checked"
    inner = (_judge_line(text, locations, depth + 1) for text in find_printed_lines(found))
    return next((reason for reason in inner if reason), "")


def _judge_command(command: ShellCommand, locations: Locations, depth: int) -> str:
    for redirection in command.redirections:
        if ">" in redirection.operator and (reason := _judge_write(redirection.target, locations)):
            return reason
        if redirection.operator in ("<<", "<<<"):
            for text in _lines_run_by(command.words, redirection.target):
                if reason := _judge_line(text, locations, depth + 1):
                    return reason
    for name, value in command.assignments:
        if PROGRAM_VARIABLE.fullmatch(name) and (reason := _judge_line(value.lstrip("!|- "), locations, depth + 1)):
            return reason
    is_find = os.path.basename(command.words[0]) == "find" if command.words else False
    for number, (started, _) in enumerate(starts(command.words)):
        doubts = len(locations.doubts)
        reason = (
            _judge_line(started, locations, depth + 1)
            if isinstance(started, InnerLine)
            else _judge_words(started, locations)
        )
        if reason:
            return reason
        if is_find and number and not isinstance(started, InnerLine):
            del locations.doubts[doubts:]  # what find gives it lies below the locations that find was judged by
    return ""


def _lines_run_by(words: Sequence[str], text: str) -> list[str]:
    """Returns the lines that a command runs from its input text."""
    if runs_input(words) or (os.path.basename(words[0]) if words else "") in ("make", "gmake"):
        return [text]
    if any(os.path.basename(word) == "xargs" for word in words):
        line = " ".join(words)
        return [f"{line.replace('{}', text.strip())} {text}"]
    return []


def _judge_words(words: Sequence[str], locations: Locations) -> str:
    name = os.path.basename(words[0]).lower() if words else ""
    if name in ("cd", "pushd"):
        target = destination(words)
        if target is not None:
            locations.change_directory(target)
        locations.is_lost = target is None or not is_known(target)
        return ""
    if name.startswith("mkfs") or name in ("mke2fs", "mkswap"):
        return "" if _asks_for_help(words) else f"{name} erases a file system"
    judge = _JUDGES.get(name) or _JUDGES.get(locations.find_program(words[0]) if words else "")
    if judge is None and not is_known(name) and {"r", "f"} <= _letters(words):
        judge = _rm  # $x -rf /
    return judge(words, locations) if judge else ""


def _rm(words: Sequence[str], locations: Locations) -> str:
    if not (_letters(words) & {"r", "R"} or _has_long(words, "recursive", 3)):
        if any(word.startswith((ANY, SOME)) for word in words[1:]) and any(map(locations.find_vital, _operands(words))):
            locations.doubts.append(words[0])  # rm "$options" /
        return _unlink(words, locations)
    locations.note_doubt(words[0], _operands(words))
    return next((f"it would remove {found}" for found in map(locations.find_vital, _operands(words)) if found), "")


def _unlink(words: Sequence[str], locations: Locations) -> str:
    return next((f"it would remove {file}" for file in map(locations.find_system_file, _operands(words)) if file), "")


def _mv(words: Sequence[str], locations: Locations) -> str:
    operands = _operands(words)
    moved = operands if _letters(words) & {"t"} else operands[:-1]
    gone = next((f"it would move {found} away" for found in map(locations.find_vital, moved) if found), "")
    return gone or _overwrite(words, locations)


def _overwrite(words: Sequence[str], locations: Locations) -> str:
    operands = _operands(words)
    return _judge_write(operands[-1], locations) if operands else ""


def _tee(words: Sequence[str], locations: Locations) -> str:
    return next((reason for word in _operands(words) if (reason := _judge_write(word, locations))), "")


def _dd(words: Sequence[str], locations: Locations) -> str:
    targets = [word[3:] for word in words if word.startswith("of=")]
    locations.note_doubt("dd", [*targets, *(word for word in words if word.startswith((ANY, SOME)))])
    return next((reason for word in targets if (reason := _judge_write(word, locations))), "")


def _erase(words: Sequence[str], locations: Locations) -> str:
    locations.note_doubt(words[0], _operands(words))
    erased = (
        found for word in _operands(words) if (found := locations.find_device(word) or locations.find_system_file(word))
    )
    return next((f"it would erase {found}" for found in erased), "")


def _partition(words: Sequence[str], locations: Locations) -> str:
    """Judges programs that write to a disk unless they are asked to show something."""
    name = os.path.basename(words[0])
    if _asks_for_help(words) or any(word.partition("=")[0] in _SHOWING.get(name, ()) for word in words):
        return ""
    return next((f"it would change {found}" for found in map(locations.find_device, _operands(words)) if found), "")


def _judge_write(word: str, locations: Locations) -> str:
    if device := locations.find_device(word):
        return f"it would overwrite the device {device}"
    file = locations.find_system_file(word)
    return f"it would overwrite {file}" if file else ""


def _mode(words: Sequence[str], locations: Locations) -> str:
    if not (_letters(words) & {"R"} or _has_long(words, "recursive", 3)):
        return ""
    locations.note_doubt(words[0], _operands(words)[1:])
    for word in _operands(words):
        if found := locations.find_vital(word, with_workspace=False):
            return f"it would change the permissions of everything in {found}"
    return ""


def _find(words: Sequence[str], locations: Locations) -> str:
    words = [word for word in words if word not in ("-L", "-H", "-P")]
    start = next((i for i, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    expression = words[start:]
    removes = "-delete" in expression or any(
        word in ("-exec", "-execdir", "-ok", "-okdir") and os.path.basename(following) in ("rm", "shred", "unlink")
        for word, following in pairwise(expression)
    )
    if not removes:
        return ""
    locations.note_doubt("find", words[1:start] or ["."])
    is_filtered = any(word.startswith(("-name", "-iname", "-path", "-type", "-regex", "-newer")) for word in expression)
    for word in words[1:start] or ["."]:
        if found := locations.find_vital(word, with_workspace=not is_filtered):
            return f"it would remove everything in {found}"
    return ""


def _rsync(words: Sequence[str], locations: Locations) -> str:
    operands = _operands(words)
    if not operands or not any(word.startswith("--del") for word in words):
        return ""
    locations.note_doubt("rsync", operands[-1:])
    found = locations.find_vital(operands[-1], with_workspace=False)
    return f"it would remove everything in {found}" if found else ""


def _power(words: Sequence[str], locations: Locations) -> str:
    return "" if set(words) & {"--help", "--version", "-c"} else "it would stop or restart this computer"


def _init(words: Sequence[str], locations: Locations) -> str:
    return "it would stop or restart this computer" if words[1:2] and words[1] in ("0", "6") else ""


def _systemctl(words: Sequence[str], locations: Locations) -> str:
    verbs = {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "suspend", "hibernate", "soft-reboot"}
    return "it would stop or restart this computer" if set(_operands(words)[:1]) & verbs else ""


def _kill(words: Sequence[str], locations: Locations) -> str:
    return "it would kill every process" if "-1" in words[2:] or words[1:] == ("--", "-1") else ""


_JUDGES: dict[str, Callable[[Sequence[str], Locations], str]] = {
    "rm": _rm,
    "mv": _mv,
    "dd": _dd,
    "find": _find,
    "init": _init,
    "telinit": _init,
    "kill": _kill,
    "rsync": _rsync,
    "systemctl": _systemctl,
    "tee": _tee,
    "truncate": _tee,
    "cp": _overwrite,
    "install": _overwrite,
    **dict.fromkeys(("shred", "wipefs", "blkdiscard"), _erase),
    "unlink": _unlink,
    **dict.fromkeys(("fdisk", "sfdisk", "cfdisk", "sgdisk", "gdisk", "parted", "pvcreate", "pvremove"), _partition),
    "cryptsetup": _partition,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr"), _mode),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _power),
}
_SHOWING = {  # words with which they only read
    "cryptsetup": frozenset({"luksDump", "luksUUID", "isLuks", "luksOpen", "open", "status", "close", "luksClose"}),
    "parted": frozenset({"print", "-l", "--list"}),
    "sfdisk": frozenset({"-l", "-d", "-J", "-s", "-F", "-V", "--list", "--dump", "--json", "--list-free", "--verify"}),
    "sgdisk": frozenset({"-p", "-i", "-v", "--print", "--info", "--verify"}),
    **dict.fromkeys(("fdisk", "gdisk", "cfdisk"), frozenset({"-l", "-s", "-x", "--list", "--list-details"})),
}
_STARTS = WRAPPERS | SHELLS | set(ANYWHERE) | set(LINE_OPTIONS) | {"alias", "mke2fs", "mkswap", ".", "source"}


def _letters(words: Sequence[str]) -> set[str]:
    return {letter for word in words[1:] if word.startswith("-") and not word.startswith("--") for letter in word[1:]}


def _has_long(words: Sequence[str], name: str, least: int) -> bool:
    """Says whether a long option is given; it may be shortened."""
    return any(
        word.startswith("--") and len(word) >= least + 2 and name.startswith(word[2:].partition("=")[0])
        for word in words
    )


def _operands(words: Sequence[str]) -> list[str]:
    if "--" in words:
        end = list(words).index("--")
        return [*(word for word in words[1:end] if not word.startswith("-")), *words[end + 1 :]]
    return [word for word in words[1:] if not word.startswith("-")]


def _asks_for_help(words: Sequence[str]) -> bool:
    return bool(set(words[1:]) & {"--help", "--version", "-V", "-h"})
