"""The layers of `cli_execute` that judge a command before it runs, in the order in which they are documented.

One of them keeps the paths in the arguments inside the workspace and the declared roots.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.safe_regex import Pattern, PatternError, SearchClock, TooLong
from forge.permissions.shell.exec_options import find_exec_option, find_patterns
from forge.tools.cli_execute.binaries import AllowedPrograms, Binary, refuse_shells, require_allowed, resolve
from forge.workspace.paths import MAX_NAME, MAX_PATH, PathValidator, quote_path

LONGEST_ARGUMENT = 128 * 1024 - 1  # bytes of one argument that the kernel takes
MOST_ARGUMENT_BYTES = 2 * 1024 * 1024  # bytes of all of them

_FORBIDDEN = {"$(": '"$("', "`": "a backtick", "\n": "a newline", "\r": "a newline", "\0": "a NUL byte"}
_FILE = re.compile(r"file://|(?<![a-z0-9])file:[/\\]", re.IGNORECASE)
_AFTER_SCHEME = re.compile(r":[/\\]")
_CHOICE = re.compile(r"[\[{][a-z0-9,\-\[\]{}]*[\]}][a-z0-9,\-\[\]{}]*\Z", re.IGNORECASE)
_LONGEST_SCHEME = 64


class Guardrail(NamedTuple):
    """Commands that a skill or a project forbids: a pattern found in the command line, and why."""

    pattern: Pattern
    message: str


class CheckedCommand(NamedTuple):
    """A command that passed every layer."""

    binary: Binary
    paths: list[str]  # that its arguments may name
    exec_flag: str  # that is allowed only in a sandbox


def judge(
    name: str,
    args: Sequence[str],
    scope: Scope,
    allowed: AllowedPrograms,
    *,
    stdin: str = "",
    allow_exec_flags: bool = False,
    guardrails: Iterable[Guardrail] = (),
    sandboxed: Callable[[], bool] = lambda: False,
) -> CheckedCommand:
    """Layers 1 to 6 and 12. Raises `ToolError` for what must not run. `sandboxed`: as in `confine_paths`."""
    refuse_shells(name, allowed)
    require_allowed(name, allowed)
    paths = PathValidator.of(scope)
    binary = resolve(name, allowed, [root.path for root in paths.roots if root.writable])
    validate_arguments(args)
    refuse_file_protocol(args)
    named = confine_paths(binary, args, paths, sandboxed=sandboxed)
    flag = refuse_exec_flags(binary, args, paths, stdin=stdin, allowed=allow_exec_flags)
    apply_guardrails(name, args, guardrails)
    return CheckedCommand(binary, named, flag)


def validate_arguments(args: Sequence[str]) -> None:
    """Layer 4: nothing that has a meaning for a shell."""
    if sum(map(len, args)) > MOST_ARGUMENT_BYTES:
        raise ToolError(
            "the arguments are too long", ErrorKind.VALIDATION, "Put long text into a file, or pass it as stdin."
        )
    for index, argument in enumerate(args):
        for text, shown in _FORBIDDEN.items():
            if text in argument:
                raise ToolError(
                    f"argument {index}: contains {shown}",
                    ErrorKind.SECURITY,
                    "No shell is used: leave it out, or pass such text to the program as stdin or in a file.",
                )
        try:
            size = len(argument.encode())
        except UnicodeEncodeError:
            raise ToolError(
                f"argument {index}: not valid Unicode", ErrorKind.VALIDATION, "Send valid Unicode."
            ) from None
        if size > LONGEST_ARGUMENT:
            raise ToolError(
                f"argument {index}: {size:,} bytes; the limit is {LONGEST_ARGUMENT:,}",
                ErrorKind.VALIDATION,
                "Pass it to the program as stdin, or in a file.",
            )


def refuse_file_protocol(args: Sequence[str]) -> None:
    """Layer 5: no URL of a file, in any case or encoding, and no scheme that a program assembles from parts."""
    for index, argument in enumerate(args):
        for text in _decode_variants(argument):
            if _FILE.search(text) or _has_built_scheme(text):
                raise ToolError(
                    f"argument {index}: file:// is not allowed",
                    ErrorKind.SECURITY,
                    "Name a file inside the workspace by its path, or use the file tools.",
                )


def refuse_exec_flags(
    binary: Binary, args: Sequence[str], paths: PathValidator, *, stdin: str = "", allowed: bool = False
) -> str:
    """Layer 6, second half: refuses an option that starts other programs, or returns it if allowed."""
    found = find_exec_option(binary.names, args, stdin, str(paths.workspace))
    if found is None:
        return ""
    index, flag = found
    if allowed:
        return flag
    where = f"argument {index}: " if index >= 0 else ""
    raise ToolError(
        f'{where}{flag[:200]} is not allowed for "{binary.names[0]}": it can start programs, or use unnamed files',
        ErrorKind.SECURITY,
        "Do it without this. The person can allow it in a sandbox: allow_exec_flags: true in the tool's config.",
    )


def apply_guardrails(name: str, args: Sequence[str], guardrails: Iterable[Guardrail]) -> None:
    """Layer 12: commands that skills and the project deny, matched with and without quotes."""
    lines = [_replace_surrogates(line) for line in (shlex.join([name, *args]), " ".join([name, *args]))]
    clock = SearchClock()
    for guardrail in guardrails:
        if _is_found(guardrail.pattern, lines, clock):
            raise ToolError(f"skill guardrail: {guardrail.message}", ErrorKind.SECURITY, "Do it in another way.")


def _is_found(pattern: Pattern, lines: Iterable[str], clock: SearchClock) -> bool:
    try:
        return any(pattern.is_in(line, clock) for line in lines)
    except TooLong:
        return True


def _replace_surrogates(line: str) -> str:
    """Replaces lone surrogates, which stand for bytes that are not text."""
    return line.encode("utf-8", "replace").decode()


def read_guardrails(entries: Iterable[Mapping[str, str]]) -> tuple[Guardrail, ...]:
    """Reads configured `{pattern, message}` entries. An invalid one is an error, never skipped."""
    found = []
    for number, entry in enumerate(entries):
        try:
            pattern = Pattern(entry["pattern"])
        except (KeyError, TypeError, PatternError) as error:
            raise ToolError(
                f"deny_commands[{number}]: not a pattern: {error}",
                ErrorKind.CONFIG,
                'Write {pattern: "regular expression", message: "why"}, without look-around and back-references.',
            ) from None
        found.append(Guardrail(pattern, str(entry.get("message") or f"rule deny_commands[{number}] forbids it")))
    return tuple(found)


def _has_built_scheme(text: str) -> bool:
    """Returns True for schemes that curl assembles, as in `{file}:///x` or `[f-f]ile:///x`."""
    ends = (found.start() for found in _AFTER_SCHEME.finditer(text))
    return any(_CHOICE.search(text[max(0, end - _LONGEST_SCHEME) : end]) for end in ends)


def _decode_variants(argument: str) -> list[str]:
    """Returns the argument and its forms after decoding once and twice."""
    spellings = [argument]
    while "%" in spellings[-1] and len(spellings) < 4:
        spellings.append(unquote(spellings[-1]))
    return list(dict.fromkeys(spellings))


# Keeps the paths in a command's arguments inside the workspace and the declared roots.
#
# An absolute argument may be no path of this machine, such as `/healthz` or `pod:/tmp/x`. In a sandbox, the sandbox
# confines the files, and only paths into the home directory and out of the workspace by `..` or a link are refused.
# Without a sandbox, an absolute path is refused if it, or its parent, exists here.


MOST_LOOKED_UP = 200  # parts of one argument

_MOST_WHOLE = 20  # parts of an argument that are looked at to its end, though that is more than a path can have
_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_SEPARATOR = re.compile(r"[=:,;@<>]")
_URL = re.compile(
    r"(?<![a-z0-9+.\-])(?:https?|wss?|ftps?|sftp|ssh|git|git\+ssh|git\+https|svn|rsync|s3|gs|az|oci|docker|redis"
    r"|postgres(?:ql)?|mysql)(?P<colon>:)//[^/\s,][^\s,]*",
    re.IGNORECASE,
)
_DELIMITING = {"cut": "-d", "sort": "-t", "join": "-t", "paste": "-d", "column": "-s", "awk": "-F", "mawk": "-F"}


def confine_paths(
    binary: Binary, args: Sequence[str], paths: PathValidator, *, sandboxed: Callable[[], bool] = lambda: False
) -> list[str]:
    """Layer 6: every possible path in every argument stays inside. Returns the paths inside.

    `sandboxed`: returns True if the command will run in a sandbox; it is called only for absolute paths outside.
    """
    named: dict[str, None] = {}
    spared = find_patterns(binary.names, args) | _find_delimiters(binary, args)
    for index, argument in enumerate(args):
        if index in spared:
            continue
        looked_up = 0
        for piece in dict.fromkeys(find_paths(argument)):
            if piece in _DEVICES or not _may_lead_somewhere(piece, paths):
                continue
            looked_up += 1
            if looked_up > MOST_LOOKED_UP:
                raise _outside_error(index, argument)
            if not leads_outside(piece, paths):
                named[piece] = None
            elif _is_refused(piece) or (not sandboxed() and _exists_here(piece)):
                raise _outside_error(index, piece)
    return list(named)


def find_paths(argument: str) -> Iterator[str]:
    """Yields the possible paths: the whole argument, and the text after `-x`, `--flag=`, `key=`, `@` or `host:`."""
    yield from _cut_at_separators(argument)
    if argument.startswith("-") and not argument.startswith("--"):
        end = argument.find("/") if "/" in argument else len(argument)
        for start in range(max(1, end - MAX_NAME), end + 1):  # after a cluster of flags of any length
            yield from _cut_at_separators(argument[start : start + MAX_PATH + 1])
    for number, separator in enumerate(_find_separators(argument)):
        yield from _cut_at_separators(argument, separator, whole=number < _MOST_WHOLE)


def leads_outside(piece: str, paths: PathValidator) -> bool:
    """Returns whether the path leaves the roots, as the kernel follows it or after normalisation."""
    for spelling in dict.fromkeys((piece, os.path.normpath(piece))):
        try:
            paths.resolve(spelling)
        except ToolError as error:
            if error.kind is ErrorKind.SECURITY:
                return True
            if error.kind is ErrorKind.VALIDATION and paths.location_of(paths.normalize(piece)) is None:
                return True  # too long for the kernel, but not once it is tidied up
    return False


def _is_refused(piece: str) -> bool:
    """Returns True for a path outside that is refused in a sandbox, too: only a plain absolute path may be none."""
    return not piece.startswith("/") or ".." in piece.split("/") or _is_in_home(piece)


def _is_in_home(piece: str) -> bool:
    homes = {os.path.expanduser("~"), os.path.expanduser(f"~{_user_name()}")}
    spellings = {_normalize(piece), os.path.realpath(piece)}
    return any(
        spelling == home or spelling.startswith(f"{home}/")
        for one in homes
        for home in (_normalize(one), os.path.realpath(one))
        if home.startswith("/") and home != "/"
        for spelling in spellings
    )


def _user_name() -> str:
    """Returns the name of this user, whose home directory may not be HOME; "" if the system does not know it."""
    import pwd  # only for a path outside

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _exists_here(piece: str) -> bool:
    """Returns whether an absolute path, or its parent other than `/`, exists on this machine."""
    path = _normalize(piece)
    parent = os.path.dirname(path)
    return os.path.lexists(path) or (parent != "/" and os.path.lexists(parent))


def _normalize(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")  # two slashes at the start mean one


def _cut_at_separators(argument: str, start: int = 0, *, whole: bool = True) -> Iterator[str]:
    """Yields the text from `start` to the end, and to the next separator, where a program may end a path."""
    if whole or len(argument) - start <= MAX_PATH:
        yield argument[start:]
    if separator := _SEPARATOR.search(argument, start + 1):
        yield argument[start : separator.start()]


def _find_separators(argument: str) -> Iterator[int]:
    """Yields possible starts; inside a URL only after a colon, where a list of paths could continue."""
    urls = _URL.finditer(argument) if "://" in argument else iter(())
    url = next(urls, None)
    for separator in _SEPARATOR.finditer(argument):
        while url is not None and url.end() <= separator.start():
            url = next(urls, None)
        is_inside = url is not None and url.start() <= separator.start()
        if not is_inside or (separator[0] == ":" and url is not None and separator.start() != url.start("colon")):
            yield separator.end()


def _may_lead_somewhere(piece: str, paths: PathValidator) -> bool:
    """Returns whether the path must be looked up: a missing name can only lie in the workspace."""
    if not piece.strip():
        return False
    if piece.startswith(("/", "~")) or ".." in piece:
        return True
    first = piece.partition("/")[0]
    return len(first) <= MAX_NAME and os.path.lexists(os.path.join(paths.workspace, first))


def _find_delimiters(binary: Binary, args: Sequence[str]) -> set[int]:
    """Returns the indexes of slashes that only delimit fields."""
    flags = {_DELIMITING[name] for name in binary.names if name in _DELIMITING}
    return {
        index
        for index, argument in enumerate(args)
        if any(argument == f"{flag}/" or (argument == "/" and index and args[index - 1] == flag) for flag in flags)
    }


def _outside_error(index: int, piece: str) -> ToolError:
    return ToolError(
        f"argument {index}: {quote_path(piece)} resolves outside the working directory",
        ErrorKind.SECURITY,
        "Use a path inside the workspace, relative to it. The person can add a directory to workspace.roots.",
    )
