"""The memory of a project: its notes, their search, and summaries of sessions. The index is updated automatically."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.result import Label
from forge.core.secrets import Secrets
from forge.memory.embedders import Embedder, EmbeddingClient
from forge.memory.notes import EVERGREEN, Notes, day_of, mark_entry

if TYPE_CHECKING:
    from forge.memory.search import IndexFollower


PATIENCE = 2.0  # seconds that a search waits for missing vectors; `reindex` makes all

Target = Literal["today", "memory"]
T = TypeVar("T")

log = logging.getLogger(__name__)


class Hit(NamedTuple):
    """A piece of a note that a search returned."""

    text: str
    source: str  # the note's name
    line_start: int
    line_end: int
    score: float


class SearchResult(NamedTuple):
    """The hits of a search, and remarks for a person."""

    hits: list[Hit]
    remarks: list[str]


class WrittenEntry(NamedTuple):
    """The note and the lines of a new entry."""

    source: str
    line_start: int
    line_end: int


class ReindexReport(NamedTuple):
    """The result of an update of the index."""

    notes: int  # all of them
    changed: int
    chunks: int
    embedded: int
    seconds: float
    remarks: list[str]


class Memory:
    """Notes in a directory, found by words and by meaning. Any thread, and several processes at once, may use it.

    Args:
        directory: where the notes are.
        embedder: finds notes by meaning; None: by words alone.
        clock: the time of new notes.
        writes: False: nothing may be written.

    Example:
        >>> memory = Memory(Path("notes"))
        >>> _ = memory.write("We deploy on Mondays.")
        >>> memory.names()[0].endswith(".md")
        True
    """

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
        self._follower: IndexFollower | None = None
        self._embedding = EmbeddingClient(embedder) if embedder is not None else None

    async def search(self, query: str, max_results: int = 5) -> SearchResult:
        """Returns the pieces that match a query best. Raises `ToolError`."""
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        if not self.notes.exists:
            return SearchResult([], [])
        remarks: list[str] = await in_thread(self.follow)
        waiting, vector = 0, None
        if self._embedding is not None:
            _, waiting = await self._embed(self._embedding, PATIENCE, remarks)
            vector = await self._embedding.embed_query(query, remarks)
        hits: list[Hit] = await in_thread(
            lambda: self._with_repair(lambda: self._find(query, vector, max_results), remarks)
        )
        remarks = list(dict.fromkeys(remarks))
        if waiting:
            remarks.append(
                f"{waiting:,} parts of notes are found by keywords only; `forge memory reindex` adds their vectors"
            )
        return SearchResult(hits, remarks)

    async def reindex(self, *, anew: bool = False) -> ReindexReport:
        """Updates the index, including vectors. `anew`: deletes and rebuilds it."""
        from forge.core.execution.threads import in_thread

        started = time.monotonic()
        if not self.notes.exists:
            return ReindexReport(0, 0, 0, 0, 0.0, [])
        remarks: list[str] = []

        def work() -> int:
            with self._lock:
                if anew:
                    self._open_follower().discard()
                    self._follower = None
                follower = self._open_follower()
                changed: int = self._with_repair(lambda: follower.follow(remarks, thorough=True), remarks)
                return changed

        changed: int = await in_thread(work)
        embedded, waiting = 0, 0
        if self._embedding is not None:
            self._embedding.clear_backoff()
            embedded, waiting = await self._embed(self._embedding, float("inf"), remarks)
        if waiting:
            remarks.append(f"{waiting:,} parts of notes have no vector yet")
        counts = await in_thread(lambda: self._open_follower().index.counts())
        return ReindexReport(
            int(counts["notes"]),
            changed,
            int(counts["chunks"]),
            embedded,
            time.monotonic() - started,
            list(dict.fromkeys(remarks)),
        )

    def today(self) -> str:
        """Returns the name of today's note."""
        return f"{self._clock():%Y-%m-%d}.md"

    def name_of(self, target: Target) -> str:
        return EVERGREEN if target == "memory" else self.today()

    def entry(self, content: str, target: Target = "today", title: str = "") -> str:
        """Formats an entry: in a daily note it has the time as its heading, so that each entry is a piece."""
        if target == "memory":
            return content
        heading = f"## {self._clock():%H:%M}" + (f" {title}" if title else "")
        return f"{heading}\n\n{content}"

    def write(
        self, content: str, target: Target = "today", title: str = "", labels: Sequence[Label] = ()
    ) -> WrittenEntry:
        """Appends to today's note, or to `MEMORY.md`, which does not age. It blocks. Raises `ToolError`.

        The labels are written beside the entry, so that it is still untrusted or private when it is read again.
        """
        if not content.strip():
            raise ToolError("there is nothing to remember", ErrorKind.VALIDATION, "Write the content to remember.")
        name = self.name_of(target)
        first, last = self.notes.append(name, self.entry(mark_entry(content, labels), target, title))
        return WrittenEntry(name, first, last)

    def read(self, path: str) -> str:
        """Returns the text of a note. Raises `ToolError`."""
        return self.notes.text(path)

    def names(self) -> list[str]:
        """Returns the names of the notes: first `MEMORY.md`, then the latest."""
        return sorted(self.notes.stamps(), key=lambda name: (name != EVERGREEN, -(_ordinal(name)), name))

    def stats(self) -> dict[str, Any]:
        """Returns the size and state of the memory, for people and programs."""
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
        index = self._open_follower().index
        counts: dict[str, Any] = self._with_repair(index.counts, remarks)
        if self.embedder is None:
            counts["without_vector"] = 0
        return {**stats, **counts, "index": str(index.path or ""), "index_bytes": index.size, "remarks": remarks}

    def close(self) -> None:
        with self._lock:
            if self._follower is not None:
                self._follower.close()
                self._follower = None

    def follow(self) -> list[str]:
        """Updates the keyword index from the notes. Returns remarks for a person."""
        remarks: list[str] = []
        with self._lock:
            follower = self._open_follower()
            try:
                self._with_repair(lambda: follower.follow(remarks), remarks)
            except ToolError as error:  # the old index can still be searched
                log.warning("the index of the notes could not be updated: %s", error)
                remarks.append(f"the index could not be updated: {error.message}")
        return remarks

    def _open_follower(self) -> IndexFollower:
        from forge.memory.search import IndexFollower

        with self._lock:
            if self._follower is None:
                self._follower = IndexFollower(self.notes)
            return self._follower

    def _with_repair(self, work: Callable[[], T], remarks: list[str]) -> T:
        """Runs work on the index. A damaged index is set aside and rebuilt from the notes, and a remark is added."""
        from forge.memory.index import is_damage
        from forge.workspace.state.store import StoreError

        with self._lock:
            for is_last in (False, False, True):
                try:
                    return work()
                except StoreError as error:
                    if is_last or not is_damage(error):
                        raise
                    message = self._open_follower().set_aside_damaged(error)
                    log.warning("%s", message)
                    remarks.append(message)
                    self._open_follower().follow(remarks, thorough=True)
        raise AssertionError("not reached")

    def _find(self, query: str, vector: Sequence[float] | None, most: int) -> list[Hit]:
        found = self._open_follower().find(query, vector, self._clock().date(), most)
        return [Hit(row.text, row.name, row.line_start, row.line_end, score) for row, score in found]

    async def _embed(self, embedding: EmbeddingClient, patience: float, remarks: list[str]) -> tuple[int, int]:
        """Embeds pieces without vectors. Returns how many are done and how many are left."""
        from forge.core.execution.threads import in_thread

        index = self._open_follower().index
        name, dimensions = embedding.embedder.name, embedding.embedder.dimensions
        await in_thread(lambda: self._with_repair(lambda: index.use_embedder(name, dimensions), remarks))
        return await embedding.embed_missing(index, patience, remarks)

    def __repr__(self) -> str:
        return f"<Memory {self.notes.directory}>"


def _ordinal(name: str) -> int:
    day = day_of(name)
    return day.toordinal() if day is not None else 0


# Writes summaries of sessions into the memory, so that a later session can recall them.

LONGEST_SUMMARY = 8_000  # characters of a summary

Summarise = Callable[[Sequence[Message]], Awaitable[str | Message]]


async def remember_session(
    memory: Memory,
    messages: Sequence[Message],
    summarise: Summarise,
    *,
    title: str = "session",
    secrets: Secrets | None = None,
    labels: Sequence[Label] = (),
) -> WrittenEntry | None:
    """Writes a summary of a session into today's note; None if there are no messages. Secrets are masked.

    `labels`: of everything in the messages; the summary may repeat it.
    """
    from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

    if not any(message.role == "user" and message.text.strip() for message in messages):
        return None
    summary = await summarise(messages)
    text = sendable(summary.text if isinstance(summary, Message) else summary).strip()
    text = (secrets or Secrets()).mask_all(text)
    if not text:
        return None
    if len(text) > LONGEST_SUMMARY:
        text = f"{text[:LONGEST_SUMMARY].rstrip()} [… {len(text) - LONGEST_SUMMARY:,} more characters]"
    heading = " ".join((secrets or Secrets()).mask_all(title).split())[:100]
    written: WrittenEntry = await in_thread(lambda: memory.write(text, "today", heading, labels))
    return written
