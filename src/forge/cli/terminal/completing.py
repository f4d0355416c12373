"""Completes what a person types in a conversation: commands and their arguments, and paths after `@`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

MOST = 200  # paths offered at once


def install_completer(
    commands: Iterable[str], root: Path, more: Callable[[str, str], list[str]] = lambda line, word: []
) -> None:
    """Makes Tab complete, where lines can be edited. `root` is the directory of the paths.

    `more` receives a line that begins with a slash, and its last word.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    with suppress(ImportError):  # some builds of Python lack it
        import readline

        names = sorted(commands)

        found: list[str] = []

        def complete(text: str, state: int) -> str | None:
            if state == 0:
                found[:] = find_completions(text, names, root, at_start=readline.get_begidx() == 0)
                line = readline.get_line_buffer()[: readline.get_endidx()]
                if line.startswith("/"):
                    found.extend(more(line, text))
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n")
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


def find_completions(word: str, commands: Iterable[str], root: Path, *, at_start: bool) -> list[str]:
    """Returns what the word may become."""
    if word.startswith("@"):
        return [f"@{path}" for path in _find_paths(word[1:], root)]
    return [name for name in commands if name.startswith(word)] if at_start and word.startswith("/") else []


def _find_paths(beginning: str, root: Path) -> list[str]:
    """Returns the paths that begin so; directories end with a slash, and hidden files need their dot."""
    folder, _, name = beginning.rpartition("/")
    base = f"{folder}/" if folder or beginning.startswith("/") else ""
    try:
        with os.scandir(os.path.join(root, base)) as entries:
            found = [f"{base}{one.name}{'/' if one.is_dir() else ''}" for one in entries if _fits(one.name, name)]
    except (OSError, ValueError):
        return []
    return sorted(found)[:MOST]


def _fits(name: str, beginning: str) -> bool:
    is_hidden = name.startswith(".") and not beginning.startswith(".")
    return name.startswith(beginning) and name.isprintable() and not is_hidden
