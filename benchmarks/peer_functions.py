"""The tools that every system is given; their annotations are real types, since not every system reads them as text."""

import asyncio
import time
from types import FunctionType
from typing import Any, Literal, Optional

GOT: list[Any] = []  # the arguments that reached a function


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def plain_add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


async def nap(number: int) -> int:
    """Sleep for ten milliseconds.

    Args:
        number: any number
    """
    await asyncio.sleep(0.01)
    return number


def plain_nap(number: int) -> int:
    """Sleep for ten milliseconds.

    Args:
        number: any number
    """
    time.sleep(0.01)
    return number


def doze(number: int) -> int:
    """Sleep for 300 milliseconds.

    Args:
        number: any number
    """
    started = time.perf_counter()
    time.sleep(0.3)
    GOT.append((started, time.perf_counter()))
    return number


def save(count: int) -> str:
    """Save so many rows.

    Args:
        count: how many rows
    """
    GOT.append(count)
    if count == 13:
        raise ValueError("the disk is full")
    return f"saved {count}"


def label(tags: list[str]) -> str:
    """Set the tags.

    Args:
        tags: the tags to set
    """
    GOT.append(tags)
    return "labelled"


def move(file_path: str) -> str:
    """Move a file.

    Args:
        file_path: the file to move
    """
    GOT.append(file_path)
    return "moved"


def dump(table: str) -> str:
    """Dump a table, as a megabyte of text.

    Args:
        table: the name of the table
    """
    return "\n".join(f"row {number:08d} of {table:<26}: {'x' * 57}" for number in range(10_000))


def search_files(
    pattern: str,
    path: str,
    limit: int = 100,
    mode: Literal["content", "files", "count"] = "content",
    globs: Optional[list[str]] = None,  # noqa: UP045 - as many people write it
) -> str:
    """Search files for a pattern.

    Args:
        pattern: the regular expression to search for
        path: the directory to search in
        limit: the largest number of results
        mode: what to return
        globs: only search files matching these globs
    """
    return "ok"


def another(name: str = "search_files") -> FunctionType:
    """`search_files` as a new function: some systems remember what they read of one."""
    made = FunctionType(search_files.__code__, search_files.__globals__, name, search_files.__defaults__)
    made.__doc__, made.__annotations__ = search_files.__doc__, dict(search_files.__annotations__)
    made.__qualname__, made.__module__ = name, search_files.__module__
    return made
