"""A memory in a project of its own, with a clock that stands still and an embedder that knows a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from forge.memory.memory import Memory, SearchResult

NOW = datetime(2026, 11, 20, 14, 5)


class Topics:
    """Meaning as three numbers: animals, software, food."""

    name = "topics"
    dimensions = 3
    TOPICS = (("cat", "kitten", "dog"), ("deploy", "release", "ship"), ("bread", "soup", "eat"))

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.fails:
            raise RuntimeError("the model is asleep")
        self.asked += texts
        return [[float(sum(text.lower().count(word) for word in topic)) for topic in self.TOPICS] for text in texts]


def memory_in(tmp_path: Path, **settings: Any) -> Memory:
    return Memory(tmp_path / ".forge" / "memory", clock=lambda: NOW, **settings)


def note(memory: Memory, name: str, text: str) -> Path:
    """What a person writes with an editor."""
    path = memory.notes.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def search(memory: Memory, query: str, most: int = 5) -> SearchResult:
    return asyncio.run(memory.search(query, most))


def sources(memory: Memory, query: str, most: int = 5) -> list[str]:
    return [hit.source for hit in search(memory, query, most).hits]


def pieces(memory: Memory) -> list[tuple[str, int, int, str]]:
    """Everything the index holds, once it is up to date."""
    memory.follow()
    query = "SELECT name, line_start, line_end, text FROM pieces JOIN notes ON notes.id = pieces.id >> 20"
    with memory._open_follower().index.reading() as connection:
        return sorted(connection.execute(query).fetchall())
