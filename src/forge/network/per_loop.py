"""Stores objects of one event loop, such as connections, and closes them with the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _LoopValue(NamedTuple, Generic[Value]):
    keeper: AsyncGenerator[Value, None]
    value: Value


class PerLoop(Generic[Key, Value]):
    """Stores values by key, separately for each event loop."""

    def __init__(self, close: Callable[[Value], Awaitable[None]]) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._held: dict[tuple[asyncio.AbstractEventLoop, Key], _LoopValue[Value]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def find(self, key: Key) -> Value | None:
        """Returns the running loop's value for the key."""
        found = self._held.get((asyncio.get_running_loop(), key))
        return None if found is None else found.value

    async def hold(self, key: Key, value: Value) -> Value:
        """Stores a value for the running loop, which must have none for this key."""
        loop = asyncio.get_running_loop()
        keeper = self._hold_until_close(loop, key, value)
        await anext(keeper)
        with self._lock:
            for stale in [one for one in self._held if one[0].is_closed()]:
                del self._held[stale]
            self._held[loop, key] = _LoopValue(keeper, value)
        return value

    async def close_oldest(self, most: int, is_idle: Callable[[Value], bool]) -> None:
        """Closes the running loop's oldest idle values beyond `most`."""
        loop = asyncio.get_running_loop()
        mine = [held.keeper for (of, _), held in self._held.items() if of is loop and is_idle(held.value)]
        for keeper in mine[: max(0, len(mine) - most)]:
            await keeper.aclose()

    async def _hold_until_close(
        self, loop: asyncio.AbstractEventLoop, key: Key, value: Value
    ) -> AsyncGenerator[Value, None]:
        """Yields the value. A generator, because an ending loop closes its unfinished generators."""
        try:
            yield value
        finally:
            with self._lock:
                self._held.pop((loop, key), None)
            await self._close(value)
