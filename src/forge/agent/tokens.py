"""Estimates the tokens of a text without a tokenizer.

Byte pair encodings cost about a token a word, a line and a run of punctuation, half a token a digit and most of a
token a Han character. So the bytes of the UTF-8 text are put into classes, and the classes and their runs counted;
`token_weights` has their weights. `docs/models.md` has the errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forge.agent.token_weights import DENSE_CAPITAL, GENERAL, LONG_WORD, SCRIPTS, UNBROKEN, Weights
from forge.core.messages import Message
from forge.core.plain_values import plain
from forge.core.spec import ToolSpec

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
    known = _known.get(id(message))
    if known is not None and known[0] is message and known[2] is weights:
        return known[1]
    tokens = MESSAGE + estimate(message.text, weights)
    for call in message.tool_calls:
        arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
        tokens += CALL + estimate(call.name, weights) + estimate(arguments, weights)
    for attachment in message.attachments:
        tokens += IMAGE if attachment.media_type.startswith("image/") else ATTACHED
    if message.extra and message.role == "assistant":  # of other messages nothing is sent
        tokens += estimate(_json(message.extra), weights)
    _remember(message, tokens, weights)
    return tokens


def estimate_definition(spec: ToolSpec) -> int:
    """Estimates a tool's definition, as a request has it."""
    from forge.core.arguments.dialects import openai  # only if costs are shown

    return estimate(_json(openai(spec)))


def estimate_messages(messages: Sequence[Message], weights: Weights = GENERAL) -> int:
    return sum(estimate_message(message, weights) for message in messages)


class Tally:
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
            self._tokens = estimate_messages(messages, self._weights)
        for index in range(self._seen, len(messages)):
            message = messages[index]
            counted = message.usage.input if message.role == "assistant" else 0
            if counted * 3 > self._tokens:  # some servers count only what they had not cached
                self._beside = max(0, counted - self._tokens)
                self._tokens = min(counted, self._tokens)
            self._tokens += estimate_message(message, self._weights)
        self._seen = len(messages)
        return self._tokens + self._beside


_known: dict[int, tuple[Message, int, Weights]] = {}  # by identity: a message cannot be hashed, nor referred to weakly
_held = 0


def _remember(message: Message, tokens: int, weights: Weights) -> None:
    global _held
    size = len(message.text) + sum(len(one.data) for one in message.attachments) + 500
    if _held + size > REMEMBERED:
        _known.clear()
        _held = 0
    if size <= REMEMBERED:
        _known[id(message)] = (message, tokens, weights)
        _held += size


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
