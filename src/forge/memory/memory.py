"""The memory of a project: its notes, found again. The index follows the notes by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.memory.embed import Embedder
from forge.memory.embedding_client import EmbeddingClient
from forge.memory.notes import EVERGREEN, Notes, day_of

if TYPE_CHECKING:  # they load SQLite, which listing tools does without
    from forge.memory.follow import Following

PATIENCE = 2.0  # seconds after which a search goes without the vectors that are still to be made; `reindex` makes all

Target = Literal["today", "memory"]
T = TypeVar("T")

log = logging.getLogger(__name__)


class Hit(NamedTuple):
    """A piece of a note that was found."""

    text: str
    source: str  # the note's name
    line_start: int
    line_end: int
    score: float


class Found(NamedTuple):
    """What a search found, and what a person should know about it."""

    hits: list[Hit]
    remarks: list[str]


class Written(NamedTuple):
    """Where something was written down."""

    source: str
    line_start: int
    line_end: int


class Indexed(NamedTuple):
    """What bringing the index up to date did."""

    notes: int  # all of them
    changed: int
    chunks: int
    embedded: int
    seconds: float
    remarks: list[str]


class Memory:
    """Notes in a directory. Usable from any thread, and by several processes at once."""

    def __init__(
        self,
        directory: Path,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = datetime.now,
        *,
        writes: bool = True,
    ) -> None:
        self.notes = Notes(directory, writes=writes)
        self.embedder = embedder
        self._clock = clock
        self._lock = RLock()
        self._following: Following | None = None
        self._meaning = EmbeddingClient(embedder) if embedder is not None else None

    async def search(self, query: str, max_results: int = 5) -> Found:
        """The pieces that answer a query best. Raises `ToolError`."""
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        if not self.notes.exists:
            return Found([], [])
        remarks: list[str] = await in_thread(self.follow)
        waiting, vector = 0, None
        if self._meaning is not None:
            _, waiting = await self._embed(self._meaning, PATIENCE, remarks)
            vector = await self._meaning.of(query, remarks)
        hits: list[Hit] = await in_thread(lambda: self._safely(lambda: self._find(query, vector, max_results), remarks))
        remarks = list(dict.fromkeys(remarks))
        if waiting:
            remarks.append(f"{waiting:,} pieces are found by their words only so far: `forge memory reindex` does more")
        return Found(hits, remarks)

    async def reindex(self, *, anew: bool = False) -> Indexed:
        """Bring the index up to date, vectors included; or make it anew."""
        from forge.core.execution.threads import in_thread

        started = time.monotonic()
        if not self.notes.exists:
            return Indexed(0, 0, 0, 0, 0.0, [])
        remarks: list[str] = []

        def work() -> int:
            with self._lock:
                if anew:
                    self._followed().discard()
                    self._following = None
                following = self._followed()
                changed: int = self._safely(lambda: following.follow(remarks, thorough=True), remarks)
                return changed

        changed: int = await in_thread(work)
        embedded, waiting = 0, 0
        if self._meaning is not None:
            self._meaning.try_again()
            embedded, waiting = await self._embed(self._meaning, float("inf"), remarks)
        if waiting:
            remarks.append(f"{waiting:,} pieces have no vector yet")
        counts = await in_thread(lambda: self._followed().index.counts())
        return Indexed(
            counts["notes"],
            changed,
            counts["chunks"],
            embedded,
            time.monotonic() - started,
            list(dict.fromkeys(remarks)),
        )

    def today(self) -> str:
        """The name of today's note."""
        return f"{self._clock():%Y-%m-%d}.md"

    def name_of(self, target: Target) -> str:
        return EVERGREEN if target == "memory" else self.today()

    def entry(self, content: str, target: Target = "today", title: str = "") -> str:
        """The paragraph as it is written: in a daily note under the time, so that each is found by itself."""
        if target == "memory":
            return content
        heading = f"## {self._clock():%H:%M}" + (f" {title}" if title else "")
        return f"{heading}\n\n{content}"

    def write(self, content: str, target: Target = "today", title: str = "") -> Written:
        """Append to today's note, or to the one that does not age. It blocks. Raises `ToolError`."""
        if not content.strip():
            raise ToolError("there is nothing to remember", ErrorKind.VALIDATION, "Say what is to be remembered.")
        name = self.name_of(target)
        first, last = self.notes.append(name, self.entry(content, target, title))
        return Written(name, first, last)

    def read(self, path: str) -> str:
        """All of a note. Raises `ToolError`."""
        return self.notes.text(path)

    def names(self) -> list[str]:
        """The notes: first the one that does not age, then the latest."""
        return sorted(self.notes.stamps(), key=lambda name: (name != EVERGREEN, -(_ordinal(name)), name))

    def stats(self) -> dict[str, Any]:
        """How much there is, for people and programs."""
        stats: dict[str, Any] = {
            "directory": str(self.notes.directory),
            "embedder": self.embedder.name if self.embedder else "none",
            "notes": 0,
            "chunks": 0,
            "vectors": 0,
            "without_vector": 0,
            "index": "",
            "index_bytes": 0,
            "remarks": [],
        }
        if not self.notes.exists:
            return stats
        remarks = self.follow()
        index = self._followed().index
        counts: dict[str, Any] = self._safely(index.counts, remarks)
        if self.embedder is None:
            counts["without_vector"] = 0
        return {**stats, **counts, "index": str(index.path or ""), "index_bytes": index.size, "remarks": remarks}

    def close(self) -> None:
        with self._lock:
            if self._following is not None:
                self._following.close()
                self._following = None

    def follow(self) -> list[str]:
        """Bring the words up to date with the notes. What a person should know."""
        remarks: list[str] = []
        with self._lock:
            following = self._followed()
            try:
                self._safely(lambda: following.follow(remarks), remarks)
            except ToolError as error:  # what was indexed before can still be searched
                log.warning("the index of the notes could not be brought up to date: %s", error)
                remarks.append(f"the index could not be brought up to date: {error.message}")
        return remarks

    def _followed(self) -> Following:
        from forge.memory.follow import Following

        with self._lock:
            if self._following is None:
                self._following = Following(self.notes)
            return self._following

    def _safely(self, work: Callable[[], T], remarks: list[str]) -> T:
        """Where the index is damaged it is set aside and made anew from the notes, and that is said."""
        from forge.memory.index import is_damage
        from forge.workspace.state.store import StoreError

        with self._lock:
            for is_last in (False, False, True):
                try:
                    return work()
                except StoreError as error:
                    if is_last or not is_damage(error):
                        raise
                    said = self._followed().start_anew(error)
                    log.warning("%s", said)
                    remarks.append(said)
                    self._followed().follow(remarks, thorough=True)
        raise AssertionError("not reached")

    def _find(self, query: str, vector: Sequence[float] | None, most: int) -> list[Hit]:
        found = self._followed().find(query, vector, self._clock().date(), most)
        return [Hit(row.text, row.name, row.line_start, row.line_end, score) for row, score in found]

    async def _embed(self, meaning: EmbeddingClient, patience: float, remarks: list[str]) -> tuple[int, int]:
        """Give pieces their vectors. How many got one, and how many still wait."""
        from forge.core.execution.threads import in_thread

        index = self._followed().index
        name, dimensions = meaning.embedder.name, meaning.embedder.dimensions
        await in_thread(lambda: self._safely(lambda: index.use_embedder(name, dimensions), remarks))
        return await meaning.embed_missing(index, patience, remarks)


def _ordinal(name: str) -> int:
    day = day_of(name)
    return day.toordinal() if day is not None else 0
