"""Refuses shell lines that no rule can allow: they would destroy the system, the home directory or the workspace.

Judged on the words of commands and what they really name, through wrappers, substitutions and variables that the line
itself sets; never on the text: `echo "rm -rf /"` is fine.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from forge.core.context import Scope
from forge.permissions.shell import parse as shell
from forge.permissions.shell.commands import find_printed_text, find_runners, runs_input, split_loosely
from forge.permissions.shell.hidden_programs import hides
from forge.permissions.shell.literal_line import destination, split_literal
from forge.permissions.shell.parse import expand_line, find_known_values
from forge.permissions.shell.programs import (
    ANYWHERE,
    EVALUATING,
    FETCHERS,
    LINE_OPTIONS,
    PROGRAM_VARIABLE,
    SHELLS,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.words import ANY, GLOB, SOME, Redirection, ShellCommand, ShellLine, is_known
from forge.permissions.shell.wrappers import InnerLine, WrappedTooDeep, starts
from forge.permissions.targets import paths

_DEEPEST_LINES = 5  # lines inside each other
_REDIRECTED = re.compile(r">[|&>]?[ \t]*([^\s;&|<>()]+)")


def explain_destruction(line: str, scope: Scope, directory: str = "") -> str:
    """Explains why a line must not run, as the end of a sentence; empty if nothing is known against it.

    `directory` is where it runs, the workspace if it is empty.
    """
    if len(line) > shell.LONGEST_LINE:
        return f"it has more than {shell.LONGEST_LINE:,} characters, too many to check"
    if _is_plain(line):
        return ""
    texts = [(text, ()) for text in dict.fromkeys((line, expand_line(line, scope)))]
    for text, values in [*texts, *((line, way) for way in find_known_values(line, scope).ways if way)]:
        try:
            if reason := _judge_line(text, Locations(scope, directory, values), 0):
                return reason
        except WrappedTooDeep:
            return "its commands are nested too deeply to check"
    return ""


def explain_unresolved(line: str, scope: Scope) -> str:
    """Names a program that could destroy unnamed targets, as the end of a sentence; empty if there is none.

    `rm -rf "$x"`, where the value of `x` is not known.
    """
    if len(line) > shell.LONGEST_LINE or _is_plain(line):
        return ""
    for values in find_known_values(line, scope).sure():
        locations = Locations(scope, "", values)
        try:
            _judge_line(line, locations, 0)
        except WrappedTooDeep:
            return "its commands are nested too deeply to check"
        if locations.doubts:
            return f"the targets of {locations.doubts[0]} are known only when the line runs"
    return ""


def _is_plain(line: str) -> bool:
    """Returns whether it is a literal line without any command that is judged here."""
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
    if depth > _DEEPEST_LINES:
        raise WrappedTooDeep
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
    """Returns whether a long option is given; it may be shortened."""
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


# Finds paths and devices that no command may destroy: the system, the home directory, the workspace and above.


MOST_DIRECTORIES = 8  # directories a command may run in

_SYSTEM = frozenset(
    f"/{name}"
    for name in [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "usr",
        "var",
        "usr/bin",
        "usr/lib",
        "usr/sbin",
        "usr/local",
        "usr/share",
        "var/lib",
        "Applications",
        "Library",
        "System",
        "Users",
        "Volumes",
        "private",
    ]
)
_DISK = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z]|nvme\d|mmcblk\d|disk|rdisk|mapper/|dm-\d|md\d|loop\d|nbd\d|sr\d|mem$|kmem$|port$|root$)"
)
_FILES = re.compile(
    r"/etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|hosts|crontab|ld\.so\.preload)$|/etc/sudoers\.d/|/boot/"
    r"|/proc/sysrq-trigger$|/proc/kcore$|/proc/sys/|/sys/firmware/"
)

# Where other processes have their root, directory and files: links that only look like names.
_OF_A_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd|fd)(?:/|$)")


class Locations:
    """The paths that words of a line may name, seen from the directories it may be in."""

    def __init__(self, scope: Scope, directory: str, values: tuple[tuple[str, str], ...] = ()) -> None:
        self.values = values  # of variables
        self.doubts: list[str] = []  # programs whose targets are not known
        self.is_lost = False  # where the line is, is not known
        self.workspace = paths.roots(str(scope.workspace))
        self.home_directory = paths.normalise(paths.home_directory())
        self.directories: list[str] = [paths.normalise(os.path.join(self.workspace[0], directory))]
        self._before: list[str] = []  # where it is if a `cd` failed

    def change_directory(self, target: str) -> None:
        """Follows a `cd`."""
        ahead = [*self.possible_paths(target)]
        if ahead:
            self._before = [*self._before, *self.directories][:MOST_DIRECTORIES]
            self.directories = ahead[:MOST_DIRECTORIES]

    def begin_command(self, joint: str) -> None:
        """Begins the next command, which runs whether the `cd` worked or not unless it is joined by `&&`."""
        if joint != "&&" and self._before:
            self.directories = list(dict.fromkeys([*self._before, *self.directories]))[:MOST_DIRECTORIES]
            self._before = []

    def possible_paths(self, word: str) -> Iterator[str]:
        """Returns the absolute paths a word may mean; none where it is known only when the line runs."""
        if word == "~" or word.startswith("~/"):
            word = self.home_directory + word[1:]
        elif word.startswith("~") and "/" not in word.rstrip("/"):
            word = f"/home/{word[1:]}"
        if word and ANY not in word and SOME not in word and len(word) <= paths.LONGEST_PATH:
            for path in self.directories:
                yield from self._resolve_links(os.path.join(path, word))

    def _resolve_links(self, path: str) -> Iterator[str]:
        """Returns the paths behind a path: a named link is only a link; behind a slash its target counts."""
        lexical = paths.normalise(path)
        yield lexical
        if ".." in path and GLOB not in path:  # behind a link it leads elsewhere than the text says
            folder, name = os.path.split(path.rstrip("/"))
            yield path
            yield paths.normalise(os.path.join(paths.resolve_links(folder), name))
        if GLOB not in path:
            parent = os.path.dirname(lexical)
            through = path.endswith(("/", "/.", "/.."))
            yield (
                paths.resolve_links(path)
                if through
                else os.path.join(paths.resolve_links(parent), os.path.basename(lexical))
            )

    def find_program(self, word: str) -> str:
        """Returns the name of the program behind a link: `rm` for `./zap` that leads to /bin/rm."""
        if "/" not in word:
            return ""
        places = (os.path.join(folder, word) for folder in self.directories if is_known(word))
        return next((os.path.basename(paths.resolve_links(place)) for place in places if os.path.islink(place)), "")

    def note_doubt(self, program: str, words: Iterable[str]) -> None:
        """Notes a program that destroys, where one of its targets is not known."""
        if any(not is_known(word) or (self.is_lost and not word.startswith("/")) for word in words):
            self.doubts.append(os.path.basename(program.replace(ANY, "").replace(SOME, "")) or "an unknown program")

    def find_vital(self, word: str, *, with_workspace: bool = True) -> str:
        """Returns the vital path that is destroyed with the word's target, by its whole content or itself."""
        for path in self.possible_paths(word):
            folder, name = os.path.split(path)
            if GLOB in name and not name.strip(f"{GLOB}.") and GLOB not in folder:
                if folder not in self.workspace and self._is_vital(folder):
                    return path.replace(GLOB, "*")
            elif GLOB in path:
                fixed = path[: path.index(GLOB)].rsplit("/", 1)[0] or "/"
                if fixed == "/":
                    return path.replace(GLOB, "*")
            elif self._is_vital(path) and (with_workspace or path not in self.workspace):
                return path
        return ""

    def _is_vital(self, path: str) -> bool:
        if (
            path in ("/", self.home_directory)
            or path in _SYSTEM
            or _OF_A_PROCESS.match(path)
            or re.fullmatch(r"/(?:home|Users)/[^/]+", path)
        ):
            return True
        return any(root == path or root.startswith(f"{path.rstrip('/')}/") for root in self.workspace)

    def find_device(self, word: str) -> str:
        """Returns the disk or memory that would be written."""
        return next((path for path in self.possible_paths(word) if _DISK.match(path) or _is_block_device(path)), "")

    def find_system_file(self, word: str) -> str:
        return next((path for path in self.possible_paths(word) if _FILES.match(path)), "")


def _is_block_device(path: str) -> bool:
    if not path.startswith("/dev/"):
        return False
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


# Finds lines that run unseen code: a server's response, another command's output, themselves without end.


_INTERPRETER = re.compile(
    r"(?:python|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|osascript|pwsh|tclsh|Rscript)[\d.]*"
)
_REMOVERS = frozenset({"rm", "unlink", "shred"})
_CODE = re.compile(r"-[A-Za-z]*[ceEr]|--eval|--command|--print|-p|-m|-n[ep]*|-pe")


def is_interpreter(name: str) -> bool:
    return name in SHELLS or bool(_INTERPRETER.fullmatch(name))


def is_fork_bomb(found: ShellLine) -> bool:
    """Returns whether a function starts itself twice at once, or continues in the background."""
    for function in found.functions:
        own = [i for i in range(*function.body) if found.commands[i].words[:1] == (function.name,)]
        if any(sum(stage.start <= i < stage.end for i in own for stage in stages) > 1 for stages in found.pipes):
            return True
        if any(span.start <= i < span.end for i in own for span in found.background):
            return True
    return False


def runs_fetched_code(found: ShellLine) -> bool:
    """Recognises `curl … | sh`, `bash <(curl …)`, `eval "$(curl …)"`."""
    for stages in found.pipes:
        fetches = False
        for stage in stages:
            commands = found.commands[stage.start : stage.end]
            if fetches and any(map(_runs_input, commands)):
                return True
            fetches = fetches or any(map(_fetches, commands))
    for command in found.commands:
        inner = found.commands[command.inside.start : command.inside.end]
        if any(map(_fetches, inner)) and (
            _runs_input(command) or any(map(_runs_unknown_code, _words_started_by(command)))
        ):
            return True
        sends = [command] if command.words else found.commands
        if any(map(_runs_input, inner)) and any(map(_fetches, sends)):  # curl … > >(sh)
            return True
    return False


def find_printed_lines(found: ShellLine) -> Iterator[str]:
    """Returns the lines that `echo` and `printf` print into a shell, or into `xargs` as the words of its command."""
    for stages in found.pipes:
        texts: dict[str, None] = {}
        searches: dict[str, None] = {}
        for number, stage in enumerate(stages[1:]):  # `tee` and `cat` hand on what they read
            before = found.commands[stages[number].start : stages[number].end]
            texts |= dict.fromkeys(text for command in before for text in _texts(command))
            searches |= dict.fromkeys(text for command in before for text in _removals_by_find(command))
            for command in found.commands[stage.start : stage.end]:
                if runs_input(command.words):
                    yield from texts
                elif any(os.path.basename(word) == "xargs" for word in command.words):
                    line = " ".join(command.words)
                    yield from (f"{line.replace('{}', text)} {text}" for text in texts)
                    if any(os.path.basename(word) in _REMOVERS for word in command.words):
                        yield from searches

    if find_runners(found):  # a function, a coprocess or `>(sh)` may get any text of the line
        yield from (text for command in found.commands for text in _texts(command))
    for command in found.commands:
        if _runs_what_is_inside(command):
            inner = found.commands[command.inside.start : command.inside.end]
            yield from (text for one in inner if (text := find_printed_text(one.words)))


def _removals_by_find(command: ShellCommand) -> Iterator[str]:
    """Returns `find / -delete` for `find / | xargs rm`, which removes the same."""
    words = command.words
    if words and os.path.basename(words[0]) == "find" and all(map(is_known, words)):
        yield f"{shlex.join(words)} -delete"


def _texts(command: ShellCommand) -> Iterator[str]:
    """Returns the texts that a command prints, and the texts it reads."""
    if text := find_printed_text(command.words):
        yield text
    yield from (one.target for one in command.redirections if one.operator in ("<<", "<<<"))


def _runs_what_is_inside(command: ShellCommand) -> bool:
    """Recognises `bash < <(echo …)`, `. <(echo …)`."""
    if command.inside.start == command.inside.end:
        return False
    is_given = any(one.operator == "<" and not is_known(one.target) for one in command.redirections)
    if is_given and runs_input(command.words):
        return True
    name = os.path.basename(command.words[0]) if command.words else ""
    return (name in SHELLS or name in (".", "source")) and hides(command.words)


def _fetches(command: ShellCommand) -> bool:
    if command.words[:2] in (("command", "-v"), ("command", "-V")):
        return False
    return any(words and os.path.basename(words[0]) in FETCHERS for words in _words_started_by(command))


def _runs_input(command: ShellCommand) -> bool:
    """Returns whether the command is an interpreter whose program is its input."""
    if runs_input(command.words):
        return True
    for words in _words_started_by(command):
        name = os.path.basename(words[0]) if words else ""
        if name in ("xargs", "parallel") and any(os.path.basename(word) in SHELLS for word in words[1:]):
            return True
        if _INTERPRETER.fullmatch(name) and all(word.startswith("-") for word in words[1:]):
            return not any(_CODE.fullmatch(word) or word in ("--version", "--help", "-V", "-h") for word in words[1:])
        if name in SHELLS and _is_line_that_runs_input(_code(words[1:])):
            return True
    return False


def _is_line_that_runs_input(word: str) -> bool:
    """Recognises `sh -c sh`, `sh -c "$(cat)"`."""
    return not is_known(word) or any(runs_input(command.words) for command in shell.read_inner(word).commands)


def _runs_unknown_code(words: Sequence[str]) -> bool:
    """Returns whether its code, in its words or in the file they name, is known only when the line runs."""
    if not words:
        return False
    name, more = os.path.basename(words[0]), words[1:]
    if not is_known(words[0]):
        return True
    if name == "eval":
        return not all(map(is_known, more))
    if name not in SHELLS and name not in (".", "source") and not _INTERPRETER.fullmatch(name):
        return False
    return not is_known(_code(more) or next((word for word in more if not word.startswith("-")), ""))


def _code(words: Sequence[str]) -> str:
    """Returns the words behind `-c` or `-e`."""
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if _CODE.fullmatch(word) and word != "-m"), "")


def _words_started_by(command: ShellCommand) -> Iterator[Sequence[str]]:
    for started, _ in starts(command.words):
        if isinstance(started, InnerLine):
            yield from (inner.words for inner in shell.read_inner(started).commands)
        else:
            yield started
