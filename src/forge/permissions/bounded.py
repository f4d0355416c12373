"""Reads files that may be hostile: bounded in size, and YAML in depth and aliases before anything is built."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from forge.permissions import tabs

LARGEST = 256 * 1024  # bytes
DEEPEST = 20  # levels of YAML
MOST_ALIASES = 20
MOST_NODES = 20_000
MOST_READ = 8 * 1024 * 1024  # characters that are read again because of tabs


_PLAIN = (ValueError, RecursionError, OverflowError, UnicodeDecodeError)


class Unreadable(ValueError):
    """Where, what is wrong, and what to do; the caller says what it wanted to read."""

    def __init__(self, place: str, problem: str, advice: str) -> None:
        super().__init__(f"{place}: {problem}. {advice}")
        self.place = place
        self.problem = problem
        self.advice = advice


def bounded_text(path: Path) -> str:
    """The text of a regular file of at most 256 KiB."""
    name = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for ever
            raise Unreadable(name, "it is not a regular file", "Name a text file.")
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise Unreadable(name, f"it is larger than {LARGEST // 1024} KiB", "Make it smaller.")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise Unreadable(name, str(error.strerror), "Name an existing file.") from None
    except UnicodeDecodeError as error:
        raise Unreadable(name, f"byte {error.start} is not UTF-8", "Save it as UTF-8.") from None
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(name, str(error), "Name an existing file.") from None  # a NUL byte in the name


def bounded_yaml(text: str, name: str, build: Any) -> Any:
    """What `build(yaml, text)` makes of the text, once its events were counted: a bomb is small as text."""
    import yaml  # heavy: only where a file is YAML

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

        def count(source: str) -> None:
            _count(yaml.parse(source, Loader=loader), name, yaml)

        taken, _ = tabs.read_with_tabs(text, count, yaml.scanner.ScannerError, MOST_READ)
        built = build(yaml, taken)
        return built if taken is text else tabs.restored_in(built)
    except yaml.MarkedYAMLError as error:
        place = f"{name}, line {error.problem_mark.line + 1}" if error.problem_mark else name
        advice = "Quote values that begin with * and the like."
        raise Unreadable(place, f"not valid YAML: {error.problem}", advice) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2026-99-99 is a ValueError
        if type(error) not in _PLAIN and not isinstance(error, yaml.YAMLError):
            raise  # one of ours, with its own place and words
        raise Unreadable(name, f"not valid YAML: {str(error)[:200]}", "Mend the file.") from None


def _count(events: Any, name: str, yaml: Any) -> None:
    depth = aliases = nodes = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.ScalarEvent) and tabs.STAND_IN in event.value and event.style not in ("|", ">"):
            place = f"{name}, line {event.start_mark.line + 1}"
            raise Unreadable(place, f"not valid YAML: {tabs.PROBLEM}", "Indent with spaces.")
        for count, most, what in (
            (depth, DEEPEST, "levels deep"),
            (aliases, MOST_ALIASES, "aliases"),
            (nodes, MOST_NODES, "values"),
        ):
            if count > most:
                place = f"{name}, line {event.start_mark.line + 1}"
                raise Unreadable(place, f"more than {most:,} {what}", "Write it plainly.")
