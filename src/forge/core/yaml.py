"""Reads files that may be hostile: bounded in size, and YAML in depth and aliases before anything is built."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from forge.core.files import NOT_REGULAR, open_regular

LARGEST_YAML = 256 * 1024  # bytes
MOST_READ = 8 * 1024 * 1024  # characters that are read again because of tabs

_PLAIN = (ValueError, RecursionError, OverflowError, UnicodeDecodeError)


class Bounds(NamedTuple):
    """The limits of a YAML document."""

    levels: int = 20
    aliases: int = 20
    values: int = 20_000


class Unreadable(ValueError):
    """Holds the place, the problem and the advice; the caller says what it wanted to read."""

    def __init__(self, name: str, problem: str, advice: str, *, line: int = 0, is_syntax: bool = False) -> None:
        self.place = f"{name}, line {line}" if line else name
        super().__init__(f"{self.place}: {problem}. {advice}")
        self.problem = problem
        self.advice = advice
        self.line = line  # 0: not known
        self.is_syntax = is_syntax  # the text is not YAML at all


def bounded_text(path: Path, largest: int = LARGEST_YAML) -> str:
    """Returns the text of a regular file of at most so many bytes. Raises `Unreadable`."""
    name = str(path)
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            content = stream.read(largest + 1)
        if len(content) > largest:
            raise Unreadable(name, f"it is larger than {largest // 1024} KiB", "Make it smaller.")
        return content.decode("utf-8-sig")
    except OSError as error:
        advice = "Name a text file." if error.strerror == NOT_REGULAR else "Name an existing file."
        raise Unreadable(name, str(error.strerror), advice) from None
    except UnicodeDecodeError as error:
        raise Unreadable(name, f"byte {error.start} is not UTF-8", "Save it as UTF-8.") from None
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(name, str(error), "Name an existing file.") from None  # a NUL byte in the name


def bounded_yaml(text: str, name: str, build: Any, bounds: Bounds = Bounds()) -> Any:  # noqa: B008 - frozen
    """Returns the value of `build(yaml, text)`, once its events were counted: a bomb is small as text."""
    with explain_yaml_errors(name) as yaml:

        def count(source: str) -> None:
            _count(yaml.parse(source, Loader=safe_loader()), name, yaml, bounds)

        taken, _ = read_with_tabs(text, count, yaml.scanner.ScannerError, MOST_READ)
        built = build(yaml, taken)
        return built if taken is text else restore_tabs_in(built)


@contextmanager
def explain_yaml_errors(name: str) -> Iterator[Any]:
    """Yields the library. Its errors become `Unreadable`."""
    import yaml  # heavy: only where a file is YAML

    try:
        yield yaml
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        advice = _advise(str(error.context or ""), str(error.problem), error.context_mark)
        raise Unreadable(name, f"not valid YAML: {error.problem}", advice, line=line, is_syntax=True) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2026-99-99 is a ValueError
        if type(error) not in _PLAIN and not isinstance(error, yaml.YAMLError):
            raise  # one of ours, with its own place and words
        raise Unreadable(name, f"not valid YAML: {str(error)[:200]}", "Fix the file.") from None


def _advise(context: str, problem: str, begin: Any) -> str:
    """Return what to change, by the parser's words; `begin` is where the part begins that it could not read."""
    at = f"line {begin.line + 1}" if begin is not None else "that line"
    if "flow" in context:
        return f"Close the {'brace {' if 'mapping' in context else 'bracket ['} that {at} opens."
    if "quoted scalar" in context:
        return f"Close the quote that {at} opens."
    if "alias" in f"{context} {problem}":
        return "Quote a value that begins with *."
    if "cannot start any token" in problem:
        return "Quote a value that begins with @, `, % or another special character; indent with spaces."
    if "mapping values are not allowed" in problem:
        return "Quote a value that contains a colon and a space, and check the indentation of that line."
    if "block" in context or "tab character" in problem:
        return "Check the indentation: keys of one level begin in the same column, with spaces."
    return "Check the quotes, brackets and indentation of that line."


def safe_loader() -> Any:
    """Returns the library's safe loader: the one in C where there is one."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _count(events: Any, name: str, yaml: Any, bounds: Bounds) -> None:
    levels = aliases = values = 0
    no_more = f"more than {bounds.aliases:,} aliases" if bounds.aliases else "aliases are not supported"
    too_deep, too_many = f"more than {bounds.levels:,} levels deep", f"more than {bounds.values:,} values"
    for event in events:
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        values += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.ScalarEvent) and STAND_IN in event.value and event.style not in ("|", ">"):
            raise Unreadable(name, f"not valid YAML: {PROBLEM}", "Indent with spaces.", line=_line(event))
        for count, most, problem in (
            (aliases, bounds.aliases, no_more),
            (levels, bounds.levels, too_deep),
            (values, bounds.values, too_many),
        ):
            if count > most:
                raise Unreadable(
                    name, problem, "Write it without aliases, with fewer values and levels.", line=_line(event)
                )


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


# Reads tabs at the start of lines in block scalars: YAML 1.2 allows them, and the parser in C refuses them.


Read = TypeVar("Read")

PROBLEM = "found a tab character where an indentation space is expected"
STAND_IN = "\ue0f1"  # of a private range: no document has it by accident
MOST_READ_AGAIN = 64 * 1024 * 1024  # characters that are read again in all

_BLANK = r"(?m)^[ \t]*\t[ \t]*$"


def read_with_tabs(
    text: str, read: Callable[[str], Read], refusal: type[Exception], most: int = MOST_READ_AGAIN
) -> tuple[str, Read]:
    """Returns the value of `read` and the text that it took: where a tab stops it, it reads again with a stand-in."""
    again, first, is_free = 0, True, STAND_IN not in text
    while True:
        try:
            return text, read(text)
        except refusal as error:
            again += len(text)
            if getattr(error, "problem", "") != PROBLEM or again > most or not is_free:
                raise
            changed = _without_blanks(text) if first else text
            if changed == text:
                changed = _with_stand_in(text, error.problem_mark.line) or text  # type: ignore[attr-defined]
            if changed == text:
                raise
            text, first = changed, False


def _without_blanks(text: str) -> str:
    """Empties lines of nothing but white space, which mean the same."""
    return re.sub(_BLANK, "", text)


def _with_stand_in(text: str, line: int) -> str | None:
    """Replaces the first tab of that line, after its spaces; None where there is no such tab."""
    lines = text.split("\n")
    if line >= len(lines):
        return None
    spaces = len(lines[line]) - len(lines[line].lstrip(" "))
    if not spaces or lines[line][spaces : spaces + 1] != "\t":
        return None
    lines[line] = f"{lines[line][:spaces]}{STAND_IN}{lines[line][spaces + 1 :]}"
    return "\n".join(lines)


def restore_tabs(value: str) -> str:
    return value.replace(STAND_IN, "\t") if STAND_IN in value else value


def restore_tabs_in(value: Any) -> Any:
    """Restores the tabs of every text in plain data."""
    if isinstance(value, str):
        return restore_tabs(value)
    if isinstance(value, dict):
        return {key: restore_tabs_in(one) for key, one in value.items()}
    if isinstance(value, list):
        return [restore_tabs_in(one) for one in value]
    if isinstance(value, tuple):
        made = [restore_tabs_in(one) for one in value]
        return type(value)._make(made) if hasattr(value, "_make") else tuple(made)
    return value
