"""A tree of about 15,000 files to search in, the same every time."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILES = 15_000
DIRECTORIES = 1_000
ENDINGS = (".py", ".py", ".py", ".md", ".ts", ".ts", ".json", ".txt", ".html", ".css")
WORDS = ("value", "result", "import", "return", "self", "config", "index", "error", "request", "answer", "total")


@contextmanager
def tree(files: int = FILES) -> Iterator[Path]:
    """A directory that holds it, and that is gone afterwards."""
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), files)
        yield Path(top)


def grow(top: Path, files: int = FILES) -> None:
    """About fifteen files a directory, up to a dozen levels deep, forty lines a file."""
    chance = random.Random(4)
    directories = [top]
    for number in range(files * DIRECTORIES // FILES):
        made = chance.choice(directories[-200:]) / f"package_{number}"
        made.mkdir()
        directories.append(made)
    for number in range(files):
        file = chance.choice(directories) / f"module_{number}{chance.choice(ENDINGS)}"
        file.write_text(_text(chance, number))


def _text(chance: random.Random, number: int) -> str:
    lines = [" ".join(chance.choices(WORDS, k=6)) for _ in range(39)]
    return "\n".join([*lines, f"the number of this file is {number}", ""])
