"""A model whose answers are looked at before anybody sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from forge.core.errors import ToolError
from forge.core.events import TextDelta
from forge.core.messages import Message
from forge.core.provider import ModelRequest, Provider
from forge.pipeline.guard import MARK

Check = Callable[[str], None]


class Guarded:
    """Says nothing until an answer is complete and not refused: what was streamed cannot be unsaid.

    `check` gives what refuses a text by raising `ToolError`, or None where nothing is refused.
    """

    def __init__(self, provider: Provider, check: Callable[[], Check | None]) -> None:
        self.provider = provider
        self._check = check

    def of(self, provider: Provider) -> Guarded:
        """Another model, looked at in the same way."""
        return Guarded(provider, self._check)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        check = self._check()
        held: list[TextDelta | Message] = []
        async with aclosing(cast(Any, self.provider.stream(request))) as parts:
            async for part in parts:
                if check is None:
                    yield part
                else:
                    held.append(part)
        if check is None:
            return
        said = next((part.text for part in held if isinstance(part, Message)), "")
        streamed = "".join(part.text for part in held if isinstance(part, TextDelta))
        if not is_refused(said, check) and not is_refused(streamed, check):
            for part in held:
                yield part
            return
        yield TextDelta(MARK)
        for part in held:
            if isinstance(part, Message):
                yield replace(part, text=MARK)


def is_refused(text: str, check: Check) -> bool:
    try:
        check(text)
    except ToolError:
        return True
    return False
