"""Calls the embedder for pieces and queries. After a failure it backs off, and search uses keywords only."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.core.plain_values import text_of
from forge.memory.embedders import Embedder, Vector

if TYPE_CHECKING:  # it loads SQLite
    from forge.memory.index import Index

FEW, MANY = 16, 128  # pieces per batch during a search, and during a reindex
PAUSE = 60.0  # seconds of backoff after a failure

log = logging.getLogger(__name__)


class EmbeddingClient:
    """An embedder with a backoff after failures."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._backoff_until = 0.0
        self._failure = ""

    def clear_backoff(self) -> None:
        """Ends the backoff: the next request is sent even if the last one failed."""
        self._backoff_until = 0.0

    async def embed_query(self, query: str, remarks: list[str]) -> Vector | None:
        """Returns the vector of a query; None, and a remark with the reason, if the embedder fails."""
        vectors = await self._try_embed([query], remarks)
        return None if vectors is None else vectors[0]

    async def embed_missing(self, index: Index, patience: float, remarks: list[str]) -> tuple[int, int]:
        """Embeds pieces without vectors, the latest first. Returns how many are done and how many are left."""
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        done, until = 0, time.monotonic() + patience
        batch = MANY if math.isinf(patience) else FEW
        while time.monotonic() < until:
            pieces: list[tuple[int, str]] = await in_thread(lambda: index.pieces_without_vector(batch))
            if not pieces:
                return done, 0
            vectors = await self._try_embed([text for _, text in pieces], remarks)
            if vectors is None:
                break
            made = {id_: vector for (id_, _), vector in zip(pieces, vectors, strict=True)}
            await in_thread(lambda made=made: self._store_vectors(index, made))  # type: ignore[misc]
            done += len(pieces)
        waiting: int = await in_thread(index.count_without_vector)
        return done, waiting

    def _store_vectors(self, index: Index, vectors: Mapping[int, Vector]) -> None:
        from forge.memory.vectors import pack_vector  # loads numpy

        dimensions = len(next(iter(vectors.values())))
        index.use_embedder(self.embedder.name, dimensions)
        index.store_vectors(
            {id_: pack_vector(vector) for id_, vector in vectors.items()}, self.embedder.name, dimensions
        )

    async def _try_embed(self, texts: Sequence[str], remarks: list[str]) -> Sequence[Vector] | None:
        if time.monotonic() < self._backoff_until:
            remarks.append(self._failure)
            return None
        try:
            return await self._embed(texts)
        except Exception as error:
            reason = error.message if isinstance(error, ToolError) else text_of(error)
            log.warning("the embedder %s failed: %s", self.embedder.name, reason)
            self._failure = f"keyword search only: the embedder failed ({reason})"
            self._backoff_until = time.monotonic() + PAUSE
            remarks.append(self._failure)
            return None

    async def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        from forge.core.execution.threads import in_thread

        embed = self.embedder.embed
        found = embed(texts) if inspect.iscoroutinefunction(embed) else await in_thread(lambda: embed(texts))
        vectors: Sequence[Vector] = await found if inspect.isawaitable(found) else found
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"it returned {len(vectors)} vectors of lengths {sorted(lengths)} for {len(texts)} texts")
        return vectors
