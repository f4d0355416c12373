"""What a worker is told, and where its tool counts. It needs nothing but Python: it runs in every environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

BEFORE, AFTER = 0.02, 0.02  # seconds of a call before and after its effect
AT_ONCE = 4  # runs that a worker works on


class Order(NamedTuple):
    """The runs of a storm: `runs` of them, each with `calls` calls."""

    database: str
    place: str  # a directory
    runs: int
    calls: int

    @classmethod
    def read(cls, text: str) -> Order:
        return cls(**json.loads(text))

    def write(self) -> str:
        return json.dumps(self._asdict())

    def names(self) -> list[str]:
        return [f"run{number}" for number in range(self.runs)]

    def charge(self, run: str, number: int) -> None:
        """The effect: a line of the ledger, written whole."""
        self._append("ledger", f"{run} {number}\n")

    def has_charged(self, run: str, number: int) -> bool:
        return f"{run} {number}" in self.read_ledger()

    def finish(self, run: str, unknown: int = 0) -> None:
        """Notes that a run is over, and how many of its calls are unknown."""
        self._append("finished", f"{run} {unknown}\n")

    def close(self) -> None:
        """From now on, no run begins."""
        (Path(self.place) / "closed").touch()

    def leaves_out(self, run: str, *, has_begun: bool) -> bool:
        """Decides, before a run is worked on, whether it is left out: it has not begun, and no run begins any more."""
        if has_begun or not (Path(self.place) / "closed").exists():
            return False
        self._append("left-out", f"{run}\n")
        return True

    def read_left_out(self) -> set[str]:
        return set(self._read("left-out"))

    def read_ledger(self) -> list[str]:
        return self._read("ledger")

    def read_finished(self) -> dict[str, int]:
        return {line.split()[0]: int(line.split()[1]) for line in self._read("finished")}

    def measure(self) -> tuple[int, ...]:
        """Returns the sizes of the lists, which only grow."""
        paths = [Path(self.place) / name for name in ("ledger", "finished", "left-out")]
        return tuple(path.stat().st_size if path.exists() else 0 for path in paths)

    def _append(self, name: str, line: str) -> None:
        file = os.open(Path(self.place) / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def _read(self, name: str) -> list[str]:
        path = Path(self.place) / name
        return path.read_text().splitlines() if path.exists() else []
