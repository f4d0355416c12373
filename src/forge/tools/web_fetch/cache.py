"""Caches recently fetched pages, and limits the requests per host."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from forge.core.errors import ErrorKind, ToolError

MOST = 200  # pages
LARGEST = 64 * 1024 * 1024  # characters and bytes of all of them together
MOST_HOSTS = 1_000

T = TypeVar("T")


class Cache(Generic[T]):
    """Bounded in time, number and size; the least recently used page is dropped first."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self._kept: OrderedDict[tuple[str, ...], tuple[float, int, T]] = OrderedDict()
        self._size = 0

    def find(self, *key: str) -> T | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] + self.seconds <= self.clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found[2]

    def keep(self, value: T, size: int, *key: str) -> None:
        self._drop(key)
        if size > LARGEST // 2 or self.seconds <= 0:
            return
        self._kept[key] = (self.clock(), size, value)
        self._size += size
        while len(self._kept) > MOST or self._size > LARGEST:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, ...]) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found[1]


class HostRateLimit:
    """Limits the requests per minute and host."""

    def __init__(self, calls: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.calls = calls
        self.seconds = seconds
        self.clock = clock
        self._taken: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, host: str, patience: float) -> float:
        """Takes a turn and returns the seconds to wait; raises `ToolError` if they exceed `patience`."""
        if self.calls <= 0:
            return 0.0
        now = self.clock()
        times = self._taken[host] = self._taken.pop(host, deque())
        if len(self._taken) > MOST_HOSTS:
            self._taken.popitem(last=False)
        while times and times[0] <= now - self.seconds:
            times.popleft()
        free_at = now if len(times) < self.calls else times[-self.calls] + self.seconds
        if free_at - now > patience:
            raise ToolError(
                f"{host} got {self.calls} requests within {self.seconds:g} s; the next one is allowed in "
                f"{free_at - now:.0f} s",
                ErrorKind.RATE_LIMITED,
                "Continue with what you have, or do something else first.",
            )
        times.append(free_at)
        return free_at - now
