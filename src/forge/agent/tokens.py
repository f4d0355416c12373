"""Estimates the tokens of a text without a tokenizer.

Byte pair encodings cost about a token a word, a line and a run of punctuation, half a token a digit and most of a
token a Han character. So the bytes of the UTF-8 text are put into classes, and the classes and their runs counted;
`token_weights` has their weights. `docs/models.md` has the errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forge.core.arguments.tool_formats import openai
from forge.core.messages import Message, context_edits
from forge.core.plain_values import plain
from forge.core.provider import name_model
from forge.core.spec import ToolSpec

# What a character costs in tokens, by family of models. The weights of a family were fitted to its own vocabulary, over
# about 800 texts: code, JSON, logs, pages and catalogues of messages in 90 languages. `python -m benchmarks tokens`
# prints the error on other texts. The vocabularies of Claude, Gemini and Grok are not published: these models have the
# general weights.


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


MESSAGE = 4  # tokens around a message: its role and the marks between messages
CALL = 8  # around a tool call
IMAGE = 1_500  # about the most that the large providers charge for one
ATTACHED = 50  # anything else is only mentioned to the model
LOOKED_AT = 32 * 1024  # characters of a longer text
SAMPLES = 16  # into which these are divided, spread evenly
REMEMBERED = 8 * 1024 * 1024  # characters of the messages whose estimates are kept

_SCRIPTS = (  # by the first byte of a character
    (0xCE, "L"),
    (0xD0, "G"),
    (0xD6, "C"),
    (0xE0, "R"),
    (0xE1, "I"),
    (0xE3, "S"),
    (0xEA, "H"),
    (0xEE, "K"),
    (0xF0, "H"),
    (0x100, "E"),
)


def _class_of(byte: int) -> str:
    if byte < 0x80:
        character = chr(byte)
        if character.isalpha():
            return "a" if character.islower() else "A"
        return "0" if character.isdigit() else "n" if character in "\r\n" else " " if character in "\t " else "!"
    if byte < 0xC0:
        return "."
    return next(name for below, name in _SCRIPTS if byte < below)


_CLASSES = "".join(map(_class_of, range(256))).encode()
_IN_WORDS, _IN_NUMBERS, _IN_MARKS = (
    bytes(b"x"[0] if kind in members else b" "[0] for kind in range(256)) for members in (b"aA", b"0", b"!")
)


def estimate(text: str, weights: Weights = GENERAL) -> int:
    """Estimates the tokens of the text; 0 for nothing, else at least 1. Only samples of a long text are read."""
    if len(text) <= LOOKED_AT:
        return max(1, round(_tokens(text, weights))) if text else 0
    size = LOOKED_AT // SAMPLES
    samples = (
        text[start : start + size] for start in range(0, len(text) - size + 1, (len(text) - size) // (SAMPLES - 1))
    )
    return round(sum(_tokens(sample, weights) for sample in samples) * len(text) / (size * SAMPLES))


def _tokens(text: str, weights: Weights) -> float:
    classes = text.encode("utf-8", "surrogatepass").translate(_CLASSES)
    capitals, digits, marks = classes.count(b"A"), classes.count(b"0"), classes.count(b"!")
    lines, blanks = classes.count(b"n"), classes.count(b" ")
    letters = len(classes) - capitals - digits - marks - lines - blanks
    is_dense = len(classes) > UNBROKEN * (lines + blanks + marks + 1)
    capital = max(weights.capital, DENSE_CAPITAL) if is_dense else weights.capital
    total = capital * capitals + weights.digit * digits + weights.mark * marks
    total += weights.line * lines + weights.blank * blanks
    if len(classes) != len(text):
        letters -= classes.count(b".")  # the further bytes of a character
        for kind, weight in zip(SCRIPTS, weights.scripts, strict=True):
            count = classes.count(kind)
            total += weight * count
            letters -= count
    words = _runs(classes, _IN_WORDS)
    total += weights.letter * letters + weights.word * words
    total += weights.no_language * max(0, letters - LONG_WORD * (words + capitals))
    if digits:
        total += weights.number * _runs(classes, _IN_NUMBERS)
    if marks:
        total += weights.marks * _runs(classes, _IN_MARKS)
    return total


def _runs(classes: bytes, members: bytes) -> int:
    marked = classes.translate(members)
    return marked.count(b" x") + marked.startswith(b"x")


def estimate_message(message: Message, weights: Weights = GENERAL) -> int:
    """Estimates a whole message: text, calls, attachments, and data that its provider wants to see again."""
    if (known := _counted.find(message, weights)) is not None:
        return known
    tokens = MESSAGE + estimate(message.text, weights)
    for call in message.tool_calls:
        arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
        tokens += CALL + estimate(call.name, weights) + estimate(arguments, weights)
    for attachment in message.attachments:
        text = attachment.text if message.role == "user" else ""
        tokens += IMAGE if attachment.media_type.startswith("image/") else estimate(text, weights) + ATTACHED
    if message.extra and message.role == "assistant":  # of other messages nothing is sent
        tokens += estimate(_json(message.extra), weights)
    _counted.add(message, weights, tokens)
    return tokens


def estimate_definition(spec: ToolSpec) -> int:
    """Estimates a tool's definition, as a request has it."""

    return estimate(_json(openai(spec)))


def estimate_messages(messages: Sequence[Message], weights: Weights = GENERAL) -> int:
    return sum(estimate_message(message, weights) for message in messages)


class TokenTally:
    """Counts the tokens of a growing history: each count costs only the new messages.

    What a provider has counted replaces the estimates, so that tool definitions, which no message holds, count too.
    A list other than the last one (a pruned history, say) is estimated afresh.
    """

    def __init__(self, weights: Weights = GENERAL) -> None:
        self._weights = weights
        self._messages: Sequence[Message] = ()
        self._seen = 0
        self._tokens = 0
        self._beside = 0  # what the provider counted beyond the estimates

    def of(self, messages: Sequence[Message]) -> int:
        if messages is not self._messages or len(messages) < self._seen:
            self._messages, self._seen = messages, len(messages)
            self._tokens = self._estimate(messages)
        for index in range(self._seen, len(messages)):
            message = messages[index]
            counted = message.usage.input if message.role == "assistant" else 0
            if counted and context_edits(message):  # the provider saw less than the history holds
                self._tokens, self._beside = counted, 0
            elif counted * 3 > self._tokens:  # some servers count only what they had not cached
                self._beside = max(0, counted - self._tokens)
                self._tokens = min(counted, self._tokens)
            self._tokens += estimate_message(message, self._weights)
        self._seen = len(messages)
        return self._tokens + self._beside

    def _estimate(self, messages: Sequence[Message]) -> int:
        for at in range(len(messages) - 1, -1, -1):
            if messages[at].usage.input and context_edits(messages[at]):
                self._beside = 0
                return messages[at].usage.input + estimate_messages(messages[at:], self._weights)
        return estimate_messages(messages, self._weights)


class _CountedMessages:
    """Remembers the tokens of messages, by identity: a message cannot be hashed, nor referred to weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, Weights, int]] = {}
        self._size = 0  # characters and bytes of the messages

    def find(self, message: Message, weights: Weights) -> int | None:
        known = self._known.get(id(message))
        return known[2] if known is not None and known[0] is message and known[1] is weights else None

    def add(self, message: Message, weights: Weights, tokens: int) -> None:
        size = len(message.text) + sum(len(one.data) for one in message.attachments) + 500
        if self._size + size > REMEMBERED:
            self._known.clear()
            self._size = 0
        if size <= REMEMBERED:
            self._known[id(message)] = (message, weights, tokens)
            self._size += size


_counted = _CountedMessages()


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
