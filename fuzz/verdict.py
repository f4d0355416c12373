"""What is wrong with a result, and with the sizes of a process over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from forge.core.errors import ErrorKind
from fuzz.ground import KEY, SECRET
from fuzz.stream import Size

KEYS = {"id", "name", "success", "is_error", "for_llm", "silent", "async", "title", "data", "attachments", "error"}
UNFORESEEN = ("failed unexpectedly", "its result is withheld", "Traceback (most recent call last)", "should not happen")
LONGEST = 1_000_000  # characters for the model
SLACK = 16_000  # kilobytes of memory that come and go
GROWTH = 0.10


def wrong_with(result: Any, line: bytes) -> str:
    """In words; empty if it is as it should be."""
    if not isinstance(result, dict) or not result.keys() >= KEYS:
        return f"this is no result: {str(result)[:300]}"
    sent = _sent_id(line)
    if sent is not None and result["id"] != sent:
        return f"the result has the id {result['id']!r}, the call {sent!r}"
    if result["success"] == result["is_error"] or result["success"] == bool(result["error"]):
        return "the result does not know whether it failed"
    if result["is_error"] and result.get("error_type") not in list(ErrorKind):
        return f"there is no kind of error {result.get('error_type')!r}"
    if len(result["for_llm"]) > LONGEST:
        return f"{len(result['for_llm'])} characters for the model"
    if result["is_error"] and any(words in result["for_llm"] + str(result["error"]) for words in UNFORESEEN):
        return f"an error that nobody foresaw: {result['for_llm'][:300]}"
    told = json.dumps(result)
    if SECRET in told:
        return "the result shows what lies outside the workspace"
    if KEY in told:
        return "the result shows a registered secret"
    return ""


def grown(sizes: Sequence[Size], slack: int = SLACK) -> str:
    """Whether the second half of a run holds more than the end of its first half; what starts up is not counted.

    `slack`: kilobytes that a single large call may leave behind, in pieces that the allocator does not give back.
    """
    if len(sizes) < 8:
        return ""
    middle, last = sizes[len(sizes) * 3 // 8 : len(sizes) // 2], sizes[-len(sizes) // 8 :]
    before, after = median(one.kilobytes for one in middle), median(one.kilobytes for one in last)
    if after > before * (1 + GROWTH) + slack:
        return f"memory grows: {before / 1024:.0f} MiB in the middle, {after / 1024:.0f} MiB at the end"
    for what in ("descriptors", "threads"):
        first, end = (median(getattr(one, what) for one in part) for part in (middle, last))
        if end > first + 8:  # some are those of calls on their way
            return f"{what} grow: {first:g} in the middle, {end:g} at the end"
    return ""


def _sent_id(line: bytes) -> str | None:
    try:
        sent = json.loads(line)
    except ValueError:
        return None
    return sent.get("id") if isinstance(sent, dict) and isinstance(sent.get("id"), str) else None
