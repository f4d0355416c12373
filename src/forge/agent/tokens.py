"""How many tokens a text will cost, estimated without a tokenizer.

Every byte of the UTF-8 text falls into a class, and runs of letters, digits and punctuation are counted: byte pair
encodings cost about a token a word, half a token a digit, a token a line, and most of a token a Han character.
The weights were fitted to five vocabularies (cl100k, o200k, Qwen, Tekken, an old Claude) over prose in 22 languages,
code, JSON, logs and tables, then raised a tenth: too high costs an early summary, too low a refused request.
English, code, JSON and Chinese came out between 0.75 and 1.75 times the counts of each; scripts that vocabularies
themselves disagree about (Hindi, Thai, Hebrew) within 2.5 times. A text takes some 15 nanoseconds a byte.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from typing import Any

from forge.core.messages import Message
from forge.core.plain import plain

MESSAGE = 4  # tokens around a message: its role and the marks between messages
CALL = 8  # around a tool call: its id and the marks
IMAGE = 1_500  # the most that the large providers charge for one, scaled down by them
ATTACHED = 50  # anything else is only mentioned to the model
CACHED = 8 * 1024 * 1024  # characters of the messages whose estimates are remembered

_WORD, _NUMBER, _MARKS = b"w", b"0", b"!"
_CLASSES = bytes(  # one letter a class; `.` for the bytes inside a character, which cost nothing
    b"a"[0] if chr(byte) in string.ascii_lowercase
    else b"A"[0] if chr(byte) in string.ascii_uppercase
    else b"0"[0] if chr(byte) in string.digits
    else b"n"[0] if chr(byte) in "\r\n"
    else b" "[0] if chr(byte) in "\t "
    else b"!"[0] if byte < 0x80
    else b"."[0] if byte < 0xC0
    else b"G"[0] if byte in (0xCE, 0xCF)  # Greek
    else b"L"[0] if byte < 0xD0  # accented Latin
    else b"C"[0] if byte < 0xE0  # Cyrillic, Hebrew, Arabic
    else b"I"[0] if byte == 0xE0  # Hindi, Thai and their neighbours
    else b"S"[0] if byte < 0xE3  # symbols
    else b"K"[0] if 0xEA <= byte < 0xEE  # Hangul
    else b"E"[0] if byte >= 0xF0  # emoji
    else b"H"[0]  # Han and kana
    for byte in range(256)
)  # fmt: skip
