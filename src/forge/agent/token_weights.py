"""Holds what a character costs in tokens, by family of models.

The weights of a family were fitted to its own vocabulary, over about 800 texts: code, JSON, logs, pages and catalogues
of messages in 90 languages. `python -m benchmarks tokens` prints the error on other texts. The vocabularies of Claude,
Gemini and Grok are not published: these models have the general weights.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from forge.core.provider import name_model


class Weights(NamedTuple):
    """Tokens for a character of each class, and for a run of letters, digits and punctuation."""

    letter: float  # a word is paid for as a run
    capital: float  # begins a new part of a camelCase word
    digit: float
    mark: float  # ASCII punctuation
    line: float
    blank: float
    scripts: tuple[float, ...]  # of other scripts: `SCRIPTS`
    word: float
    number: float
    marks: float
    no_language: float  # a letter beyond the average of `LONG_WORD` in a word


# accented Latin (which breaks words apart), Greek, Cyrillic, Hebrew and Arabic, Hindi and Thai with their neighbours,
# symbols, Han and kana, Hangul, emoji
SCRIPTS = (b"L", b"G", b"C", b"R", b"I", b"S", b"H", b"K", b"E")


def _weights(*values: float) -> Weights:
    letter, capital, digit, mark, line, blank, *scripts = values[:-4]
    return Weights(letter, capital, digit, mark, line, blank, tuple(scripts), *values[-4:])


LONG_WORD = 8  # letters; what is longer on average is no language, and costs
UNBROKEN = 20  # bytes between blanks and marks; what is longer on average is encoded data, such as base64
DENSE_CAPITAL = 0.8  # tokens of a capital letter there

# for all vocabularies together, raised a tenth: too high costs an early summary, too low a refused request
GENERAL = _weights(
    *(0.05, 0.75, 0.6, 0.07, 1.15, 0.01, 1.4, 0.85, 0.5, 0.65, 0.9, 0.75, 0.95, 1.1, 2.8, 0.85, 0.8, 0.7, 0.35)
)
WEIGHTS = {
    "o200k": _weights(
        *(0.167, 0.241, 0.34, 0.138, 1.187, 0.043, 1.129, 0.412, 0.334, 0.45),
        *(0.466, 0.485, 0.823, 0.766, 2.002, 0.4, 1.118, 0.3, 0.5),
    ),
    "cl100k": _weights(
        *(0.179, 0.234, 0.34, 0.1, 1.199, 0.039, 1.944, 1.048, 0.568, 1.016),
        *(1.378, 1.761, 1.158, 1.19, 2.678, 0.4, 1.128, 0.3, 0.5),
    ),
    "deepseek": _weights(
        *(0.184, 0.361, 0.34, 0.159, 1.011, 0.052, 1.696, 0.528, 0.405, 0.577),
        *(0.657, 0.951, 0.723, 0.877, 2.04, 0.4, 1.071, 0.308, 0.5),
    ),
    "llama-3": _weights(
        *(0.184, 0.23, 0.34, 0.1, 1.151, 0.04, 1.523, 0.428, 0.411, 0.597),
        *(0.77, 1.563, 0.804, 0.805, 2.682, 0.4, 1.121, 0.3, 0.5),
    ),
    "llama-4": _weights(
        *(0.165, 0.264, 0.34, 0.105, 1.205, 0.054, 1.008, 0.39, 0.308, 0.516),
        *(0.512, 0.542, 0.616, 0.657, 2.322, 0.4, 1.132, 0.3, 0.5),
    ),
    "qwen": _weights(
        *(0.178, 0.208, 0.9, 0.1, 1.134, 0.055, 1.728, 1.01, 0.45, 0.579),
        *(1.024, 1.147, 0.755, 0.883, 1.69, 0.4, 1.124, 0.3, 0.5),
    ),
    "tekken": _weights(
        *(0.169, 0.414, 0.9, 0.102, 1.102, 0.074, 1.216, 0.42, 0.381, 0.469),
        *(0.577, 0.632, 0.851, 0.728, 4.0, 0.4, 1.093, 0.3, 0.5),
    ),
    "mistral-v3": _weights(
        *(0.211, 0.35, 0.9, 0.148, 1.796, 0.045, 2.012, 1.143, 0.501, 1.155),
        *(1.373, 1.249, 1.137, 1.453, 2.756, 0.4, 1.028, 0.421, 0.5),
    ),
}

_OPENAI = ("openai", "openai-chat", "openai-responses", "azure", "azure-responses")
_NAMES = (  # the first that fits counts: a distilled model has the vocabulary of the smaller one
    (r"gpt-oss|gpt-(?:4o|4\.\d|[5-9])|chatgpt|\bo[1-9](?:-|$)", "o200k"),
    (r"gpt-(?:3\.5|4)", "cl100k"),
    (r"llama-?4", "llama-4"),
    (r"llama-?3", "llama-3"),
    (r"qw[ae]n|qwq", "qwen"),
    (r"deepseek", "deepseek"),
    (r"mixtral|mistral-(?:7b|tiny)|mathstral|codestral-(?:22b|2405)", "mistral-v3"),
    (r"(?:mini|magi|code|dev|vox)stral|mistral|pixtral", "tekken"),
)


def find_family(label: str, model: str) -> str:
    """Returns the vocabulary of a model, as its name tells it; "" where it is not known."""
    found = model and next((family for pattern, family in _NAMES if re.search(pattern, model.lower())), "")
    return found or ("o200k" if label in _OPENAI else "")


def find_weights(provider: Any) -> Weights:
    """Returns the weights for the model of a provider."""
    return WEIGHTS.get(find_family(*name_model(provider)), GENERAL)
