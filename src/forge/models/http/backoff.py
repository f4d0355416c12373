"""Computes the backoff before another try: the server's request, or a growing pause."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST_WAIT = 60.0  # seconds a server may ask us to wait before another try
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between tries when it does not say


def delay_before(attempt: int, requested: float | None) -> float:
    """Returns the seconds to wait after so many tries, with jitter, so that clients do not return together."""
    if requested is None:
        return float(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)) * random.uniform(0.5, 1.0)  # noqa: S311
    if requested > LONGEST_WAIT:
        return requested
    return min(requested * random.uniform(1.0, 1.1), LONGEST_WAIT)  # noqa: S311


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Reads the wait in seconds from milliseconds, seconds or a date; None if the header is absent or invalid."""
    written = headers.get("retry-after", "")
    milliseconds = _number(headers.get("retry-after-ms", ""))
    seconds = _number(written) if milliseconds is None else milliseconds / 1000
    if seconds is None:
        seconds = _seconds_until(written)
    return seconds if seconds is not None and seconds > 0 else None


def read_retry_delay(body: bytes) -> float | None:
    """Reads the wait in seconds from an error's body, where Google's servers write it: `"retryDelay": "34s"`."""
    found = re.search(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"', body)
    seconds = float(found[1]) if found else 0.0
    return seconds if seconds > 0 else None


def _number(written: str) -> float | None:
    try:
        number = float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(written: str) -> float | None:
    try:
        return parsedate_to_datetime(written).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
