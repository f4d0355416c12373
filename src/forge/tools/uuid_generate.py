"""Generates unique identifiers."""

from __future__ import annotations

import os
import threading
import time
from typing import Annotated, Literal

from forge.core.arguments.parameters import ParameterLimits
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import tool


@tool(category=Category.BUILTIN, timeout=10.0)
def uuid_generate(
    count: Annotated[int, ParameterLimits(ge=1, le=100)] = 1,
    version: Annotated[Literal[4, 7], "4: random; 7: sorts by time."] = 4,
) -> ToolResult:
    """Generate unique identifiers (UUIDs), one per line; never make them up."""
    make = uuid4 if version == 4 else uuid7
    uuids = [make() for _ in range(count)]
    return ToolResult(for_llm="\n".join(uuids), data={"uuids": uuids})


def uuid4() -> str:
    """Returns a UUID of 122 random bits."""
    return _format_uuid(_random(122), version=4)


def uuid7() -> str:
    """Returns a UUID of 48 bits of milliseconds and 74 random bits; in a process, each is greater than the last."""
    return _format_uuid(_numbers.next(), version=7)


class _MonotonicNumbers:
    """Numbers that begin with the time and always grow, even if the clock goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._last >> 74:
                self._last = now << 74 | _random(74)
            else:
                self._last += 1 + _random(60)  # a random step, so that the next one cannot be guessed
            return self._last


_numbers = _MonotonicNumbers()


def _random(bits: int) -> int:
    return int.from_bytes(os.urandom(16)) >> (128 - bits)


def _format_uuid(payload: int, version: int) -> str:
    """122 bits of payload around the fixed ones: 48, version, 12, variant, 62."""
    high, middle, low = payload >> 74, payload >> 62 & 0xFFF, payload & (1 << 62) - 1
    digits = f"{high << 80 | version << 76 | middle << 64 | 0b10 << 62 | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
