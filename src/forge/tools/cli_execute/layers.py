"""The layers of `cli_execute` that judge a command before it runs, in the order in which they are documented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.safe_regex import Clock, Pattern, PatternError, TooLong
from forge.tools.cli_execute.binaries import AllowedPrograms, Binary, refuse_shells, require_allowed, resolve
from forge.tools.cli_execute.flags import refuse_exec_flags
from forge.tools.cli_execute.paths import confine_paths
from forge.workspace.paths import PathValidator

LONGEST = 128 * 1024 - 1  # bytes of one argument that the kernel takes
MOST = 2 * 1024 * 1024  # bytes of all of them

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
    if sum(map(len, args)) > MOST:
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
        if size > LONGEST:
            raise ToolError(
                f"argument {index}: {size:,} bytes; the limit is {LONGEST:,}",
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


def apply_guardrails(name: str, args: Sequence[str], guardrails: Iterable[Guardrail]) -> None:
    """Layer 12: commands that skills and the project deny, matched with and without quotes."""
    lines = [_replace_surrogates(line) for line in (shlex.join([name, *args]), " ".join([name, *args]))]
    clock = Clock()
    for guardrail in guardrails:
        if _is_found(guardrail.pattern, lines, clock):
            raise ToolError(f"skill guardrail: {guardrail.message}", ErrorKind.SECURITY, "Do it in another way.")


def _is_found(pattern: Pattern, lines: Iterable[str], clock: Clock) -> bool:
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
