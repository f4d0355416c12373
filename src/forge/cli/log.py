"""Where the program's log goes: to the standard error with --debug, otherwise only what a person must know."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # slow to load; listing tools does without it
    from logging import LogRecord


def listen(*, debug: bool) -> None:
    """Set up the log, now or as soon as `logging` is loaded."""
    if debug or "logging" in sys.modules:
        _set_up(debug)
    elif not any(isinstance(one, _SetUpWhenLoaded) for one in sys.meta_path):
        sys.meta_path.insert(0, _SetUpWhenLoaded())


class _SetUpWhenLoaded:
    """Finds the module `logging` as usual, and sets up the log behind its last line."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "logging":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_set_up(module: Any) -> None:
            load(module)
            _set_up(debug=False)

        spec.loader.exec_module = load_and_set_up  # type: ignore[method-assign]
        return spec


def _set_up(debug: bool) -> None:
    """Failed calls are logged as warnings too: their results say so already."""
    import logging

    class Terse(logging.Handler):
        """Errors alone, one line each, no message twice."""

        def __init__(self) -> None:
            super().__init__(logging.ERROR)
            self.told: set[str] = set()

        def emit(self, record: LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            text = f"forge: {record.getMessage()}{f': {cause}' if cause else ''}"
            if text not in self.told:
                self.told.add(text)
                print(text[:1_000], file=sys.stderr)  # noqa: T201

    log = logging.getLogger("forge")
    log.propagate = False
    log.handlers = [logging.StreamHandler() if debug else Terse()]
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    log.handlers[0].setFormatter(logging.Formatter("%(relativeCreated)6d ms %(name)s: %(message)s"))
