"""How long to wait before another try: what the server asks for, or a growing pause."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST_WAIT = 60.0  # seconds a server may ask us to wait before another try
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between tries when it does not say


def delay_before(attempt: int, asked: float | None) -> float:
    """Seconds after so many tries; jittered, so that many clients do not come back at once."""
    if asked is None:
        return float(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)) * random.uniform(0.5, 1.0)  # noqa: S311
    if asked > LONGEST_WAIT:
        return asked
    return min(asked * random.uniform(1.0, 1.1), LONGEST_WAIT)  # noqa: S311


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds, from milliseconds, seconds or a date; nothing where the header is nonsense or no wait at all."""
    written = headers.get("retry-after", "")
    milliseconds = _number(headers.get("retry-after-ms", ""))
    seconds = _number(written) if milliseconds is None else milliseconds / 1000
    if seconds is None:
        seconds = _until(written)
    return seconds if seconds is not None and seconds > 0 else None


def _number(written: str) -> float | None:
    try:
        number = float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(written: str) -> float | None:
    try:
        return parsedate_to_datetime(written).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
