"""Estimates the tokens of a text without a tokenizer.

Byte pair encodings cost about a token a word, a line and a run of punctuation, half a token a digit and most of a
token a Han character. So the bytes of the UTF-8 text are put into classes, and the classes and their runs counted.
The weights were fitted to five vocabularies (cl100k, o200k, Qwen, Tekken, an old Claude) over prose in 20 languages,
code, JSON, logs and tables, then raised a tenth: too high costs an early summary, too low a refused request.
English, code, JSON and Chinese came out at 0.75 to 1.75 times the count of each; scripts that the vocabularies
themselves disagree about (Hindi, Thai, Hebrew, Arabic) within 2.5 times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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

# tokens a character of the class: fitted, see above
_LETTER = 0.05  # a word is paid for as a run
_CAPITAL = 0.75  # begins a new part of a camelCase word
_DIGIT = 0.6
_MARK = 0.07  # ASCII punctuation
_LINE = 1.15
_BLANK = 0.01
_OTHERS = {
    b"L": 1.4,  # accented Latin, which breaks words apart
    b"G": 0.85,  # Greek
    b"C": 0.5,  # Cyrillic
    b"R": 0.65,  # Hebrew, Arabic
    b"I": 0.9,  # Hindi, Thai and their neighbours
    b"S": 0.75,  # symbols
    b"H": 0.95,  # Han and kana
    b"K": 1.1,  # Hangul
    b"E": 2.8,  # emoji
    b".": 0.0,  # the further bytes of all these
}
_WORD, _NUMBER, _MARKS = 0.85, 0.8, 0.7  # tokens a run of letters, digits, punctuation
_LONG_WORD = 8  # letters; what is longer on average is no language, and costs
_NO_LANGUAGE = 0.35  # a letter


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


def estimate(text: str) -> int:
    """Estimates the tokens of the text; 0 for nothing, else at least 1. Only samples of a long text are read."""
    if len(text) <= LOOKED_AT:
        return max(1, round(_tokens(text))) if text else 0
    size = LOOKED_AT // SAMPLES
    samples = (
        text[start : start + size] for start in range(0, len(text) - size + 1, (len(text) - size) // (SAMPLES - 1))
    )
    return round(sum(map(_tokens, samples)) * len(text) / (size * SAMPLES))


def _tokens(text: str) -> float:
    classes = text.encode("utf-8", "surrogatepass").translate(_CLASSES)
    capitals, digits, marks = classes.count(b"A"), classes.count(b"0"), classes.count(b"!")
    lines, blanks = classes.count(b"n"), classes.count(b" ")
    letters = len(classes) - capitals - digits - marks - lines - blanks
    total = _CAPITAL * capitals + _DIGIT * digits + _MARK * marks + _LINE * lines + _BLANK * blanks
    if len(classes) != len(text):
        for kind, weight in _OTHERS.items():
            count = classes.count(kind)
            total += weight * count
            letters -= count
    words = _runs(classes, _IN_WORDS)
    total += _LETTER * letters + _WORD * words + _NO_LANGUAGE * max(0, letters - _LONG_WORD * (words + capitals))
    if digits:
        total += _NUMBER * _runs(classes, _IN_NUMBERS)
    if marks:
        total += _MARKS * _runs(classes, _IN_MARKS)
    return total


def _runs(classes: bytes, members: bytes) -> int:
    marked = classes.translate(members)
    return marked.count(b" x") + marked.startswith(b"x")


def estimate_message(message: Message) -> int:
    """Estimates a whole message: text, calls, attachments, and data that its provider wants to see again."""
    known = _known.get(id(message))
    if known is not None and known[0] is message:
        return known[1]
    tokens = MESSAGE + estimate(message.text)
    for call in message.tool_calls:
        arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
        tokens += CALL + estimate(call.name) + estimate(arguments)
    for attachment in message.attachments:
        tokens += IMAGE if attachment.media_type.startswith("image/") else ATTACHED
    if message.extra and message.role == "assistant":  # of other messages nothing is sent
        tokens += estimate(_json(message.extra))
    _remember(message, tokens)
    return tokens


def estimate_definition(spec: ToolSpec) -> int:
    """Estimates a tool's definition, as a request has it."""
    from forge.core.arguments.provider_dialects import openai  # only if costs are shown

    return estimate(_json(openai(spec)))


def estimate_messages(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))


class Tally:
    """Counts the tokens of a growing history: each count costs only the new messages.

    What a provider has counted replaces the estimates, so that tool definitions, which no message holds, count too.
    A list other than the last one (a pruned history, say) is estimated afresh.
    """

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._seen = 0
        self._tokens = 0
        self._beside = 0  # what the provider counted beyond the estimates

    def of(self, messages: Sequence[Message]) -> int:
        if messages is not self._messages or len(messages) < self._seen:
            self._messages, self._seen = messages, len(messages)
            self._tokens = estimate_messages(messages)
        for index in range(self._seen, len(messages)):
            message = messages[index]
            counted = message.usage.input if message.role == "assistant" else 0
            if counted * 3 > self._tokens:  # some servers count only what they had not cached
                self._beside = max(0, counted - self._tokens)
                self._tokens = min(counted, self._tokens)
            self._tokens += estimate_message(message)
        self._seen = len(messages)
        return self._tokens + self._beside


_known: dict[int, tuple[Message, int]] = {}  # by identity: a message cannot be hashed, nor referred to weakly
_held = 0


def _remember(message: Message, tokens: int) -> None:
    global _held
    size = len(message.text) + sum(len(one.data) for one in message.attachments) + 500
    if _held + size > REMEMBERED:
        _known.clear()
        _held = 0
    if size <= REMEMBERED:
        _known[id(message)] = (message, tokens)
        _held += size


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
