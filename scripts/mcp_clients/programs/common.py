"""The steps that every client takes; they end with one JSON line on the standard output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds for a call to begin


class Steps:
    """Where the server is, and what was seen there."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.url: str = said.get("url", "")
        self.headers: dict[str, str] = {"Authorization": f"Bearer {said['token']}"} if "token" in said else {}
        self.command: list[str] = said.get("command", [])
        self.begun = Path(said["begun"])
        self.arguments = {"command": said["waits"]}
        self.seen: dict[str, Any] = {}

    def listed(self, names: list[str]) -> None:
        self.seen["list"] = "math_calculate" in names and "bash" in names

    def called(self, text: object) -> None:
        self.seen["call"] = "42" in str(text)

    def failed(self, is_error: bool, text: object) -> None:
        self.seen["error"] = bool(is_error) and "6 *" in str(text)

    async def cancel(self, call: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        """Starts a call that would wait for an hour, and cancels it once its program runs."""
        waiting = asyncio.ensure_future(call(self.arguments))
        async with asyncio.timeout(PATIENCE):
            while not self.begun.exists() and not waiting.done():  # noqa: ASYNC110 - another process makes the file
                await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=10)
        self.seen["cancel"] = waiting.done() and self.begun.exists()


def main(use: Callable[[Steps], Awaitable[None]]) -> None:
    steps = Steps(json.loads(sys.argv[1]))
    try:
        asyncio.run(use(steps))  # type: ignore[arg-type]
    except BaseException as error:  # what was seen before counts
        steps.seen["problem"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(steps.seen), flush=True)
