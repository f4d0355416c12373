"""Reads a YAML file that may be hostile: bounded in size, depth and aliases before anything is built."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError

LARGEST = 256 * 1024  # bytes
DEEPEST = 20  # levels
MOST_ALIASES = 20
MOST_NODES = 20_000


def read_yaml(path: str) -> Any:
    """The document as plain data. Raises `ToolError` of kind `config_error`, with the line where there is one."""
    import yaml  # heavy: only where a file is given

    text = _content(path)
    loader: Any = _loader(yaml)
    try:
        _check_events(yaml.parse(text, Loader=loader), path, yaml)
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _unreadable(f"{path}{line}", f"not valid YAML: {error.problem}", "Mend the file.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2026-99-99 is a ValueError
        raise _unreadable(path, f"not valid YAML: {str(error)[:200]}", "Mend the file.") from None


def _content(path: str) -> str:
    try:
        file = Path(path)
        if not stat.S_ISREG(file.stat().st_mode):  # opening a FIFO would wait for ever
            raise _unreadable(path, "it is not a regular file", "Name a YAML file.")
        with file.open("rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _unreadable(path, f"it is larger than {LARGEST // 1024} KiB", "Make it smaller.")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(path, str(error.strerror), "Name an existing file.") from None
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start} is not UTF-8", "Save it as UTF-8.") from None
    except ValueError as error:  # a NUL byte in the name
        raise _unreadable(path, str(error), "Name an existing file.") from None


def _check_events(events: Any, path: str, yaml: Any) -> None:
    """An alias or depth bomb is small as text."""
    depth = aliases = nodes = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        for count, most, what in (
            (depth, DEEPEST, "levels deep"),
            (aliases, MOST_ALIASES, "aliases"),
            (nodes, MOST_NODES, "values"),
        ):
            if count > most:
                place = f"{path}, line {event.start_mark.line + 1}"
                raise _unreadable(place, f"more than {most:,} {what}", "Write it plainly.")


def _loader(yaml: Any) -> Any:
    """The safe loader, with a key given twice refused: the second would silently win."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.value in seen and isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is there twice", key.start_mark
                    )
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            return super().construct_mapping(node, deep)

    return Loader


def _unreadable(place: str, problem: str, advice: str) -> ToolError:
    return ToolError(f"{place}: cannot read the configuration: {problem}", ErrorKind.CONFIG, advice)
