"""Where the program's log goes: to the standard error with --debug, otherwise only what a person must know."""

from __future__ import annotations

import logging
import sys


class Terse(logging.Handler):
    """Errors alone, one line each, no message twice."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        text = f"forge: {record.getMessage()}{f': {cause}' if cause else ''}"
        if text not in self.told:
            self.told.add(text)
            print(text[:1_000], file=sys.stderr)  # noqa: T201


def listen(*, debug: bool) -> None:
    """Failed calls are logged as warnings too: their results say so already."""
    log = logging.getLogger("forge")
    log.propagate = False
    log.handlers = [logging.StreamHandler() if debug else Terse()]
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    log.handlers[0].setFormatter(logging.Formatter("%(relativeCreated)6d ms %(name)s: %(message)s"))
