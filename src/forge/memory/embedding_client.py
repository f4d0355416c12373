"""Asks the embedder, for pieces and for queries; one that fails is left alone for a while, and the words must do."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.core.plain_values import text_of
from forge.memory.embed import Embedder, Vector

if TYPE_CHECKING:  # it loads SQLite
    from forge.memory.index import Index

FEW, MANY = 16, 128  # pieces embedded at once, where somebody waits and where nobody does
PAUSE = 60.0  # seconds in which an embedder that failed is not asked again

log = logging.getLogger(__name__)


class EmbeddingClient:
    """An embedder, and how it fares."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._rest_until = 0.0
        self._why = ""

    def try_again(self) -> None:
        """Somebody wants it asked, whether or not it failed."""
        self._rest_until = 0.0

    async def of(self, query: str, remarks: list[str]) -> Vector | None:
        """The vector of a query; None where there is none to be had, and a remark why."""
        vectors = await self._asked([query], remarks)
        return None if vectors is None else vectors[0]

    async def embed_missing(self, index: Index, patience: float, remarks: list[str]) -> tuple[int, int]:
        """Give pieces their vectors, the latest first. How many got one, and how many still wait."""
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        done, until = 0, time.monotonic() + patience
        batch = MANY if math.isinf(patience) else FEW
        while time.monotonic() < until:
            pieces: list[tuple[int, str]] = await in_thread(lambda: index.without_vector(batch))
            if not pieces:
                return done, 0
            vectors = await self._asked([text for _, text in pieces], remarks)
            if vectors is None:
                break
            made = {id_: vector for (id_, _), vector in zip(pieces, vectors, strict=True)}
            await in_thread(lambda made=made: self._keep(index, made))  # type: ignore[misc]
            done += len(pieces)
        waiting: int = await in_thread(index.waiting)
        return done, waiting

    def _keep(self, index: Index, vectors: Mapping[int, Vector]) -> None:
        from forge.memory.vectors import packed  # loads numpy

        dimensions = len(next(iter(vectors.values())))
        index.use_embedder(self.embedder.name, dimensions)
        index.put_vectors({id_: packed(vector) for id_, vector in vectors.items()}, self.embedder.name, dimensions)

    async def _asked(self, texts: Sequence[str], remarks: list[str]) -> Sequence[Vector] | None:
        if time.monotonic() < self._rest_until:
            remarks.append(self._why)
            return None
        try:
            return await self._embedded(texts)
        except Exception as error:
            said = error.message if isinstance(error, ToolError) else text_of(error)
            log.warning("the embedder %s failed: %s", self.embedder.name, said)
            self._why = f"only words were compared, not meanings: the embedder failed ({said})"
            self._rest_until = time.monotonic() + PAUSE
            remarks.append(self._why)
            return None

    async def _embedded(self, texts: Sequence[str]) -> Sequence[Vector]:
        from forge.core.execution.threads import in_thread

        embed = self.embedder.embed
        found = embed(texts) if inspect.iscoroutinefunction(embed) else await in_thread(lambda: embed(texts))
        vectors: Sequence[Vector] = await found if inspect.isawaitable(found) else found
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"it gave {len(vectors)} vectors, of lengths {sorted(lengths)}, for {len(texts)} texts")
        return vectors
