"""Clocks that only tests move, and moments that people can read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo


class Clocks:
    """What time it is, and a count that nobody sets back."""

    def __init__(self, start: str = "2026-11-15 12:00") -> None:
        self.wall = at(start)
        self.steady = 1_000.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def set(self, moment: str) -> None:
        """As somebody sets a clock: no time passes."""
        self.wall = at(moment)


def at(moment: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(moment: float | None, zone: str = "UTC") -> str:
    assert moment is not None
    text = datetime.fromtimestamp(moment, UTC if zone == "UTC" else ZoneInfo(zone))
    return text.strftime("%Y-%m-%d %H:%M" if not text.second else "%Y-%m-%d %H:%M:%S")


class Waiting:
    """Time that passes only in `go`, for those who wait with `wait`."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    async def wait(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self.clocks.steady + seconds, future))
        await future

    async def go(self, seconds: float) -> None:
        end = self.clocks.steady + seconds
        await self.settle()
        while True:
            self._waiting = [one for one in self._waiting if not one[1].done()]
            moment, future = min(self._waiting, key=lambda one: one[0], default=(end + 1, None))
            if moment > end or future is None:
                break
            self.clocks.pass_(moment - self.clocks.steady)
            future.set_result(None)
            await self.settle()
        self.clocks.pass_(end - self.clocks.steady)

    async def settle(self) -> None:
        """Everything that can go on without time does."""
        for _ in range(30):
            await asyncio.sleep(0)
