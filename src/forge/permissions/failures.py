"""Describes exceptions of a custom policy or approver for the log: type and position, never the message."""

from __future__ import annotations

import traceback
from pathlib import PurePath


def describe_failure(error: BaseException) -> str:
    """Returns the type and the innermost position: messages and source lines may hold the arguments."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (
        f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    )
