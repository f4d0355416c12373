"""What a log may say about an exception of somebody's policy or approver: what and where, not a word of its message."""

from __future__ import annotations

import traceback
from pathlib import PurePath


def describe_failure(error: BaseException) -> str:
    """Its type, and the innermost place: messages and source lines may hold what the arguments held."""
    places = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (
        f" ({PurePath(places[-1].filename).name}, line {places[-1].lineno})" if places else ""
    )
