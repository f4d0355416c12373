"""Embedders turn texts into vectors: a server with OpenAI's API, or the model of the `memory` extra."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from forge.core.errors import ErrorKind, ToolError

Vector = Sequence[float]

BATCH = 64  # texts of one request
LONGEST = 8_000  # characters of a text
MAX_BYTES = 32 * 1024 * 1024  # of an answer
SECONDS = 30.0


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
        from forge.memory.minilm import MiniLM  # loads numpy and the model

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
        seconds: float = SECONDS,
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
                [text[:LONGEST] or " " for text in texts[start : start + self._batch]]
            )
        return vectors

    async def _request_vectors(self, texts: list[str]) -> list[Vector]:
        from forge.network.client import fetch  # loaded by the first request
        from forge.network.headers import Limits

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
            limits=Limits(read=self._seconds, total=self._seconds, size=MAX_BYTES),
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
