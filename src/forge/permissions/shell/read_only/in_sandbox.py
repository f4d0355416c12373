"""Finds shell lines that are meant to only read, for a sandbox that enforces it.

The sandbox of such a line is read-only and has no network, so a wrong verdict does no harm. This judge decides whether
the line can do its work there: wildcards, variables, loops and pipes are fine, a program or an option that writes is
not. What a word stands for is often not known, so the line counts as one that reads the whole workspace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.shell import parse as shell
from forge.permissions.shell.literal_line import Area, destination
from forge.permissions.shell.programs import CODE_VARIABLE, PROGRAM_VARIABLE
from forge.permissions.shell.read_only.flags import FIND_PATHS, FIND_TESTS, FIND_VALUED
from forge.permissions.shell.read_only.git import is_harmless_repository
from forge.permissions.shell.words import ANY, GLOB, SOME, ShellCommand, ShellLine, is_known

LONGEST_LINE = 10_000  # characters of a line
MOST_COMMANDS = 200
_DEEPEST_LINES = 3  # lines inside each other

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_FILES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|stdin|stdout|stderr|fd/\d+)|/etc/os-release"
    r"|/proc/(?:cpuinfo|meminfo|version|uptime|loadavg|stat|filesystems|self/\w+)"
)
_HOME = re.compile(r"\$\{?(?:HOME|OLDPWD|TMPDIR)\b|(?:^|[\s=:'\"(])~")
_SETTING = re.compile(r"PATH$|GIT_")  # they say which program or repository is meant, or name a file to write
_OUTPUT = re.compile(r"/dev/(?:null|stdout|stderr|fd/[12])|[0-9]+|-")
_UNKNOWN = re.compile(f"[{ANY}{SOME}{GLOB}]")
_ASKS = frozenset({"--version", "-version", "-V", "-v", "--help"})
_TELLS_VERSION = frozenset("go npm yarn pnpm git openssl terraform helm hugo deno bun cargo".split())
_SHELLS = frozenset({"sh", "bash", "dash"})
_EVALUATE = frozenset("[ [[ test printf declare typeset local export readonly read unset let".split())
_SUBSTITUTES = re.compile(r"\$\(|`")
_REFUSED_LETTERS = {"history": "warncsd", "jobs": "x", "mapfile": "C", "readarray": "C", "hash": "p", "printf": "v"}
_DURATION = re.compile(r"[0-9.]+[smhd]?")
_REDIRECTS_IN_AWK = re.compile(r"\bprintf?\b[^;}\n]*>|>>|\bsystem\s*\(|(?<!\|)\|(?!\|)|@\w|\binplace\b")
_TEXT_OF_AWK = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<![\w)\]])\s*/(?:[^/\\\n]|\\.)*/')
_WRITES_IN_SED = re.compile(
    r"(?:^|[;{}\n!0-9$/])\s*[wWe](?:\s|$)|/[gpiIMm0-9]*[we][gpiIMm0-9]*(?:\s+\S|\s*$|\s*[;}\n])"
)
_DECLARES_IN_GIT = re.compile(
    r"color\.|core\.(?:quotepath|abbrev|pager=cat$)|log\.|diff\.(?:renames|algorithm|noprefix)|grep\."
)
_GIT_WRITES = re.compile(
    r"--o(?:u|ut|utp|utpu|utput)(?:=|$)|--ext-diff|--lost-found|--write-tree|-O|--open-files-in-pager|--exec|--upload-pack|--edit|--global|--system|--file|-f$"
)


class _Flow(NamedTuple):
    """The areas that a line may read, and the directories that it runs in."""

    area: Area
    where: tuple[str, ...]  # the directories that the command may run in, seen from the workspace
    is_lost: bool = False  # … which are not known


class _Reader(NamedTuple):
    """A program that reads: which of its operands are text, and which of its options write."""

    texts: int = 0  # the first operands, which are no paths; -1: all of them
    writes: str = ""  # letters of options that write or start something
    long: tuple[str, ...] = ()  # … and long ones
    most: int = 1_000  # operands


def _readers(names: str, texts: int = 0, writes: str = "", long: str = "", most: int = 1_000) -> dict[str, _Reader]:
    return dict.fromkeys(names.split(), _Reader(texts, writes, tuple(long.split()), most))


_READERS: dict[str, _Reader] = {
    **_readers(
        "cat tac rev nl head tail wc od hexdump hd strings cut paste join comm cmp diff diff3 colordiff fold fmt expand"
        " unexpand column pr tsort ls dir vdir du df stat realpath readlink cksum md5sum sha1sum sha224sum sha256sum"
        " sha384sum sha512sum b2sum sum base64 base32 zcat bzcat xzcat zstdcat lz4cat zless zmore zipinfo nm objdump"
        " readelf size ldd cloc tokei scc more most csvlook csvcut csvstat csvgrep csvsort namei"
        " lsattr getfacl pdfinfo ffprobe mediainfo zdiff zcmp look"
    ),
    **_readers("file", writes="C", long="--compile"),
    **_readers("sort", writes="o", long="--output --compress-program"),
    **_readers("shuf iconv sdiff tree", writes="o", long="--output"),
    **_readers("less", writes="oOk", long="--log-file --LOG-FILE --lesskey-src --lesskey-content"),
    **_readers("bat batcat", long="--pager"),
    **_readers("uniq xxd", most=1),
    **_readers("grep egrep fgrep zgrep zegrep zfgrep bzgrep xzgrep ag ack", texts=1),
    **_readers("rg", texts=1, long="--pre --hostname-bin"),
    **_readers("jq gojq", texts=1),
    **_readers("yq", texts=1, writes="i", long="--inplace"),
    **_readers("xmllint", writes="o", long="--output"),
    **_readers(
        "echo printf true false : basename dirname seq expr bc factor tr date cal ncal sleep numfmt pwd test [ [[ let"
        " type which whereis hash ps pgrep pidof pstree uptime free vmstat iostat mpstat nproc arch uname hostname"
        " hostid whoami id groups users who w last lastlog logname tty locale getconf lscpu lsblk lsusb lspci lsmod"
        " lsof fuser tput printenv times umask ulimit jobs dirs history exit return break"
        " continue shift set unset export declare local typeset readonly read wait getopts mapfile readarray cd dmesg"
        " sysctl getent yes help shopt finger",
        texts=-1,
    ),
}
# Options without which, or words behind which, they only read.
_NEEDS: dict[str, re.Pattern[str]] = {
    "unzip": re.compile(r"-[A-Za-z]*[lptvZzc][A-Za-z]*"),
    "gzip": re.compile(r"-[a-z]*[lct][a-z]*|--list|--stdout|--test"),
    "gunzip": re.compile(r"-[a-z]*[lct][a-z]*|--list|--stdout|--test"),
    "bzip2": re.compile(r"-[a-z]*[ct][a-z]*|--stdout|--test"),
    "bunzip2": re.compile(r"-[a-z]*[ct][a-z]*|--stdout|--test"),
    "xz": re.compile(r"-[a-z]*[lct][a-z]*|--list|--stdout|--test"),
    "unxz": re.compile(r"-[a-z]*[lct][a-z]*|--list|--stdout|--test"),
    "zstd": re.compile(r"-[a-z]*[lct][a-z]*|--list|--stdout|--test"),
    "7z": re.compile(r"[lt]"),
    "7za": re.compile(r"[lt]"),
    "ar": re.compile(r"-?[tp]v?"),
    "unrar": re.compile(r"l[bt]?|v[bt]?|t"),
    "cpio": re.compile(r"-[a-z]*t[a-z]*|--list"),
    "top": re.compile(r"-[a-z]*b.*"),
    "pip": re.compile(r"list|show|freeze|check|inspect"),
    "pip3": re.compile(r"list|show|freeze|check|inspect"),
    "npm": re.compile(r"ls|list|ll|la|prefix|root|bin"),
    "yarn": re.compile(r"list|why"),
    "pnpm": re.compile(r"ls|list|why"),
    "gem": re.compile(r"list|environment|contents"),
    "go": re.compile(r"version|env|doc"),
    "mount": re.compile(r"-l"),
}
_CHANGES_ANYWAY = re.compile(
    r"--(?:log|script-shell|userconfig|globalconfig|outdated|index|decompress|compress|force)|-[a-zA-Z]*[xo]"
)
_TAR = re.compile(r"-?[a-zA-Z]*t[a-zA-Z]*")
_TAR_REFUSED = re.compile(
    r"-[IFTxg]|--(?:use|to|check|rsh|rmt|in|new|del|ex|ge|listed|append|update|create|conc|files)"
)
_TAR_TO_OUTPUT = re.compile(r"-?[vzjJ]*c[vzjJ]*")  # without `f`, what it makes is its output
_TAR_CHANGES = re.compile(r"-?[a-zA-Z]*[xcruA][a-zA-Z]*")
_GIT_READS = frozenset(
    "annotate blame cat-file check-attr check-ignore check-mailmap check-ref-format cherry count-objects describe diff"
    " diff-files diff-index diff-tree for-each-ref fsck grep help log ls-files ls-tree merge-base merge-tree name-rev"
    " patch-id range-diff rev-list rev-parse shortlog show show-branch show-index show-ref status var verify-pack"
    " version whatchanged".split()
)
_GIT_LISTS: dict[str, re.Pattern[str]] = {  # with words that make them list
    "branch": re.compile(
        r"-[arvl]+|--(?:list|all|remotes|verbose|show-current|sort=.*|format=.*|color(?:=.*)?|no-color|column(?:=.*)?|abbrev=.*"
        r"|ignore-case)"
    ),
    "tag": re.compile(r"-l|-n\d*|--(?:list|sort=.*|format=.*|column(?:=.*)?)"),
    "remote": re.compile(r"-v|--verbose"),
    "stash": re.compile(r"list|show|-p|--stat|stash@\{\d+\}|\d+"),
    "reflog": re.compile(r"show|-\d+|-n\d*|\d+|--(?!expire|rewrite|updateref|stale|dry)[a-z-]+(?:=.*)?|HEAD|[\w/.-]+"),
    "worktree": re.compile(r"list|-v|--verbose|--porcelain"),
    "submodule": re.compile(r"status|summary|--recursive|--cached"),
    "notes": re.compile(r"list|show|[\w/.^~-]+"),
    "bisect": re.compile(r"log|view|visualize"),
    "symbolic-ref": re.compile(r"HEAD|--short|-q|--quiet|refs/[\w/.-]+"),
    "sparse-checkout": re.compile(r"list"),
    "config": re.compile(
        r"-l|--list|--get|--get-all|--get-regexp|--get-urlmatch|get|list|--show-origin|--show-scope|--local|--name-only"
        r"|-z|--null|--includes|--type=\w+|--bool|--int|--path|[\w.^$*][\w.^$*-]*"
    ),
}
_NEEDS_FIRST = {"stash": ("list", "show"), "worktree": ("list",), "submodule": ("status", "summary"),
                "notes": ("list", "show"), "bisect": ("log",), "sparse-checkout": ("list",)}  # fmt: skip
_VALUED_OF_LISTS = frozenset("--contains --no-contains --merged --no-merged --points-at --sort --format".split())
_VALUED_OF_XARGS = frozenset(
    "-n -P -I -d -L -s -a -E --max-args --max-procs --delimiter --max-lines --arg-file".split()
)
_SHOWS_LITTLE = frozenset(
    "ps pgrep pidof pstree top w who users last lastlog lsof fuser mount df history free vmstat iostat"
    " mpstat uptime dmesg sysctl pip pip3".split()
)


def find_read_in_sandbox(line: str, scope: Scope, directory: str = "") -> list[str] | None:
    """Returns the paths that a line means to read, the whole workspace as `.`; None if it means to do more.

    Only a read-only sandbox makes this verdict safe. `directory` is where the line runs, the workspace if empty.
    """
    if len(line) > LONGEST_LINE or _HOME.search(line):
        return None
    found = shell.read(line)
    flow = _Flow(Area(scope), (directory,))
    return _judge_line(found, flow, 0)


def shows_little(line: str) -> bool:
    """Returns whether a line asks about the system, of which a sandbox shows little."""
    return any(command.words[:1] and command.words[0] in _SHOWS_LITTLE for command in shell.read(line).commands)


def _judge_line(found: ShellLine, flow: _Flow, depth: int) -> list[str] | None:
    if found.is_broken or found.functions or found.background or not 0 < len(found.commands) <= MOST_COMMANDS:
        return None
    reading: dict[str, None] = {}
    values = (value for _, values in found.loops for value in values)
    if depth > _DEEPEST_LINES or not _are_inside(values, flow):
        return None
    for command in found.commands:
        paths = _judge_command(command, flow, depth)
        if paths is None:
            return None
        reading |= dict.fromkeys(paths)
        flow = _follow_move(command, flow)
    return list(reading)


def _follow_move(command: ShellCommand, flow: _Flow) -> _Flow:
    words = _unwrap(command.words)
    if not words or words[0] != "cd":
        return flow
    target = destination(words)
    if target is None or not is_known(target):
        return flow._replace(is_lost=True)
    more = (os.path.join(path, target) for path in flow.where)
    return flow._replace(where=tuple(dict.fromkeys((*flow.where, *more)))[:16])


def _judge_command(command: ShellCommand, flow: _Flow, depth: int) -> list[str] | None:
    for name, value in command.assignments:
        if _SETTING.match(name) or PROGRAM_VARIABLE.fullmatch(name) or CODE_VARIABLE.fullmatch(name):
            return None
        if not _are_inside([value], flow):
            return None
    given: list[str] = []
    for operator, target, _ in command.redirections:
        if ">" in operator and not _OUTPUT.fullmatch(target):
            return None
        if operator == "<":
            given.append(target)
    if not command.words:
        return _find_paths(given, flow)
    paths = _judge_words(command.words, flow, depth)
    more = _find_paths(given, flow)
    return None if paths is None or more is None else [*paths, *more]


def _judge_words(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    """Returns the paths that one command reads; None if it may be meant to do more."""
    words = _unwrap(words)
    if not words:
        return []
    name, more = _program(words[0]), list(words[1:])
    if not name or not is_known(name):
        return None
    if (len(more) == 1 and more[0] in _ASKS) or (more == ["version"] and name in _TELLS_VERSION):
        return []
    if name in _SPECIAL:
        return _SPECIAL[name](more, flow, depth)
    if name in _NEEDS:
        is_meant = any(_NEEDS[name].fullmatch(word) for word in more[:3]) or (name == "mount" and not more)
        is_meant = is_meant and not any(map(_CHANGES_ANYWAY.match, more))
        return _find_paths(_operands(more), flow) if is_meant else None
    reader = _READERS.get(name)
    if reader is None or _writes(more, reader):
        return None
    operands = _operands(more)
    if len(operands) > reader.most or (name in ("less", "more") and any(word.startswith("+") for word in more)):
        return None
    if reader.texts < 0:
        return _judge_text(name, more, flow)
    skipped = 0 if any(word.startswith(("-e", "-f", "--regexp", "--file")) for word in more) else reader.texts
    return _find_paths(operands[skipped:], flow) if operands[skipped:] else ["."]


def _judge_text(name: str, words: Sequence[str], flow: _Flow) -> list[str] | None:
    """Judges programs and builtins whose words are mostly no paths."""
    if name in _EVALUATE and any(map(_SUBSTITUTES.search, words)):
        return None  # they evaluate what stands in brackets
    if any(word.startswith("-") and set(word) & set(_REFUSED_LETTERS.get(name, "")) for word in words):
        return None
    if name in ("test", "[", "[["):  # the grammar gives these words as they are written
        pieces = (piece.strip("\"'") for piece in " ".join(words).split())
        known = (ANY if "$" in piece else piece for piece in pieces if piece not in ("]", "]]"))
        return _find_paths((piece for piece in known if not piece.startswith("-")), flow)
    if name == "cd":
        return _find_paths((word for word in words if not word.startswith("-")), flow)
    if name in ("date", "hostname", "sysctl", "dmesg", "umask"):
        changes = {"date": ("-s", "--set"), "sysctl": ("-w", "-p", "--write"), "dmesg": ("-c", "-C", "-D", "-n")}
        operands = [word for word in words if not word.startswith(("-", "+"))]
        if any(word.startswith(changes.get(name, ())) for word in words if changes.get(name)):
            return None
        if name == "date":
            following = {after for before, after in pairwise(words) if before in ("-d", "-r", "--date")}
            return None if set(operands) - following else []
        if operands and (name != "sysctl" or any("=" in word for word in operands)):
            return None
    if name in ("export", "declare", "local", "typeset", "readonly", "read", "mapfile", "readarray"):
        named = (word.strip("\"'").partition("=")[0] for word in words)
        if any(one == "PATH" or PROGRAM_VARIABLE.fullmatch(one) or CODE_VARIABLE.fullmatch(one) for one in named):
            return None
    if name == "fuser" and any(word.startswith(("-k", "--kill")) for word in words):
        return None
    return []


def _unwrap(words: Sequence[str]) -> Sequence[str]:
    """Returns the words behind `time`, `nice -n 5`, `timeout 5`, `env A=b` and the like."""
    while words:
        name, more = words[0], words[1:]
        if name in ("time", "command", "builtin", "nohup", "!"):
            if name == "command" and more[:1] in (("-v",), ("-V",), ["-v"], ["-V"]):
                return ["which", *more[1:]]
            words = more[1:] if more[:1] in (("-p",), ("--",)) else more
        elif name == "nice":
            words = more[2:] if more[:1] == ("-n",) else more[1:] if more[:1] and more[0].startswith("-") else more
        elif name == "timeout" and more and _DURATION.fullmatch(more[0]):
            words = more[1:]
        elif name == "stdbuf":
            words = more[1:] if more[:1] and more[0].startswith("-") else more
            if words and words[0].startswith("-"):
                return ["stdbuf"]
        elif name == "env" and (more[:1] in (("-i",), ["-i"]) or not any(word.startswith("-") for word in more[:1])):
            more = more[1:] if more[:1] in (("-i",), ["-i"]) else more
            assigned = 0
            while assigned < len(more) and re.match(r"\w+=", more[assigned]):
                if CODE_VARIABLE.fullmatch(more[assigned].partition("=")[0]):
                    return ["env"]
                assigned += 1
            words = more[assigned:] or ("printenv",)
        else:
            return words
    return words


def _program(word: str) -> str:
    folder, name = os.path.split(word)
    return name if folder in ("", "/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin") else ""


def _operands(words: Sequence[str]) -> list[str]:
    if "--" in words:
        at = list(words).index("--")
        return [*(word for word in words[:at] if not word.startswith("-") or word == "-"), *words[at + 1 :]]
    return [word for word in words if not word.startswith("-")]


def _writes(words: Sequence[str], reader: _Reader) -> bool:
    for word in words:
        if word == "--":
            return False
        if word.startswith("--"):
            if any(one.startswith(word.partition("=")[0]) and len(word) > 3 for one in reader.long):
                return True
        elif word.startswith("-") and any(letter in reader.writes for letter in word[1:]):
            return True
    return False


def _find_paths(words: Iterable[str], flow: _Flow) -> list[str] | None:
    """Returns the paths of words; None if one lies outside. A word that is not known stands for the whole workspace."""
    found: dict[str, None] = {}
    for word in words:
        if not _are_inside([word], flow):
            return None
        if _UNKNOWN.search(word) or flow.is_lost:
            found["."] = None
        elif word not in ("", "-"):
            found |= dict.fromkeys(os.path.join(start, word) for start in flow.where)
    return list(found)


def _are_inside(words: Iterable[str], flow: _Flow) -> bool:
    """Returns whether no word names a path outside the workspace, its roots and the system."""
    for word in words:
        known = _UNKNOWN.split(word)[0]
        if ".." in word.split("/") and _UNKNOWN.search(word):
            return False
        if known != word and not known.startswith("/"):
            continue  # seen from a folder of the workspace
        path = os.path.dirname(known) if known != word else word
        if (
            not path
            or _SYSTEM_FILES.fullmatch(path)
            or any(path == one or path.startswith(f"{one}/") for one in _SYSTEM)
        ) and ".." not in path.split("/"):
            continue
        if not all(flow.area.has(path, start) for start in flow.where):
            return False
    return True


def _judge_xargs(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        taken = 2 if rest[0] in _VALUED_OF_XARGS else 1
        if rest[0] in ("-p", "--interactive"):
            return None
        rest = rest[taken:]
    inner = _judge_words([*rest, ANY], flow, depth) if rest else []
    return None if inner is None else [*inner, "."]


def _judge_find(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    start = next((i for i, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    named = list(words[:start])
    rest = list(words[start:])
    while rest:
        word = rest.pop(0)
        if word in ("-exec", "-execdir"):
            end = next((i for i, one in enumerate(rest) if one in (";", "+")), None)
            if end is None or _judge_words([SOME if one == "{}" else one for one in rest[:end]], flow, depth) is None:
                return None
            rest = rest[end + 1 :]
        elif word in FIND_VALUED or word in ("-context", "-fstype") or re.fullmatch(r"-newer[aBcm][aBcmt]", word):
            rest = rest[1:]
        elif word in FIND_PATHS:
            named += rest[:1]
            rest = rest[1:]
        elif word not in FIND_TESTS and word not in (
            "-L",
            "-H",
            "-follow",
            "-O3",
            "-warn",
            "-nowarn",
            "-ignore_readdir_race",
        ):
            return None
    return _find_paths(named or ["."], flow)


def _judge_awk(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    operands: list[str] = []
    rest = list(words)
    has_file = False
    while rest:
        word = rest.pop(0)
        if word in ("-F", "-v", "--field-separator", "--assign"):
            rest = rest[1:]
        elif word in ("-f", "--file"):
            has_file = True
            operands += rest[:1]
            rest = rest[1:]
        elif word.startswith(("-F", "-v", "--")) or word == "-":
            if word.startswith(("--include", "--load", "--exec", "--in-place", "--source")):
                return None
        elif word.startswith("-"):
            return None
        else:
            operands.append(word)
    if not has_file:
        if not operands or not is_known(operands[0]) or _REDIRECTS_IN_AWK.search(_TEXT_OF_AWK.sub('""', operands[0])):
            return None
        operands = operands[1:]
    return _find_paths((word for word in operands if not re.match(r"\w+=", word)), flow)


def _judge_sed(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    scripts: list[str] = []
    operands: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            if word.startswith(("--in", "--file")):
                return None
            if word.startswith("--exp"):
                scripts.append(word.partition("=")[2] or (rest.pop(0) if rest else ""))
        elif word.startswith("-") and len(word) > 1:
            if "i" in word or "f" in word:
                return None
            if "e" in word:
                scripts.append(word.partition("e")[2] or (rest.pop(0) if rest else ""))
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if any(_WRITES_IN_SED.search(script) for script in scripts):
        return None
    return _find_paths(operands, flow)


def _judge_tar(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    lists = [word for word in words if word == "--list"] or [
        word for word in words[:2] if _TAR.fullmatch(word) or _TAR_TO_OUTPUT.fullmatch(word)
    ]
    if not lists:
        return None
    makes = bool(_TAR_TO_OUTPUT.fullmatch(lists[0]))
    if _TAR_CHANGES.fullmatch(lists[0]) and not makes:
        return None
    if any(_TAR_REFUSED.match(word) or (makes and word.startswith(("-f", "--fi"))) for word in words):
        return None
    return _find_paths((word for word in words if word not in lists and not word.startswith("-")), flow)


def _judge_shell(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    if len(words) < 2 or words[0] not in ("-c", "-lc", "-ec") or not is_known(words[1]):
        return None
    if _HOME.search(words[1]) or not _are_inside(words[2:], flow):
        return None
    inner = _judge_line(shell.read(words[1]), flow, depth + 1)
    return None if inner is None else [*inner, "."]


def _judge_python(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    if list(words[:2]) == ["-m", "json.tool"]:
        operands = _operands(words[2:])
        return _find_paths(operands, flow) if len(operands) < 2 else None
    if list(words[:2]) == ["-m", "pip"]:
        return _judge_words(["pip", *words[2:]], flow, depth)
    return None


def _judge_git(words: Sequence[str], flow: _Flow, depth: int) -> list[str] | None:
    rest = list(words)
    where = list(flow.where)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "-C" and rest:
            folder = rest.pop(0)
            if not is_known(folder) or not _are_inside([folder], flow):
                return None
            where = [os.path.join(one, folder) for one in where]
        elif word == "-c" and rest:
            if not _DECLARES_IN_GIT.match(rest.pop(0)):
                return None
        elif word not in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"):
            return None
    if not rest or flow.is_lost or not _git_only_reads(rest[0], rest[1:]):
        return None
    root = flow.area.workspace
    folders = [os.path.normpath(os.path.join(root, one)) for one in where]
    if not all(flow.area.has(one) and is_harmless_repository(one, root, rest[0], rest[1:]) for one in folders):
        return None
    named = rest[list(rest).index("--") + 1 :] if "--" in rest else []
    named += [word for word in rest[1:] if word.startswith(("/", "../")) or word == ".."]
    paths = _find_paths(named, flow)
    return None if paths is None else [*paths, *where, "."]


def _git_only_reads(name: str, words: Sequence[str]) -> bool:
    if any(_GIT_WRITES.match(word) for word in words if name != "ls-files" or word.startswith("--")):
        return name == "grep" and not any(word.startswith(("-O", "--open")) for word in words)
    if name in _GIT_READS:
        return True
    if name == "hash-object":
        return "-w" not in words
    if name == "remote" and words[:1] in (["get-url"], ["show"]):
        return words[0] == "get-url" or "-n" in words
    lists = _GIT_LISTS.get(name)
    if lists is None or (name in _NEEDS_FIRST and (not words or words[0] not in _NEEDS_FIRST[name])):
        return False
    rest = list(words)
    free = name in ("branch", "tag") and any(word in ("-l", "--list") or word.startswith("-n") for word in words)
    while rest:
        word = rest.pop(0)
        if word in _VALUED_OF_LISTS and name in ("branch", "tag"):
            rest = rest[1:]
        elif not lists.fullmatch(word) and not (free and not word.startswith("-")):
            return False
    if name == "config":
        plain = [word for word in words if not word.startswith("-") and word not in ("get", "list")]
        return len(plain) <= (1 if not any(word.startswith("--get") for word in words) else 2)
    return name not in ("symbolic-ref",) or len([word for word in words if not word.startswith("-")]) == 1


_SPECIAL: dict[str, Callable[[Sequence[str], _Flow, int], list[str] | None]] = {
    "find": _judge_find,
    "sed": _judge_sed,
    "tar": _judge_tar,
    "git": _judge_git,
    "xargs": _judge_xargs,
    "python": _judge_python,
    "python3": _judge_python,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _judge_awk),
    **dict.fromkeys(_SHELLS, _judge_shell),
}
