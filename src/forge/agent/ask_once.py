"""Asks a model one question outside the loop, such as for a summary or a title."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from forge.core.messages import Message
from forge.core.provider import ModelRequest, Provider, ProviderError
from forge.pipeline.spans import chat_span


async def ask_once(provider: Provider, request: ModelRequest, seconds: float) -> Message:
    """Returns the model's answer. Raises `ProviderError` or, after so many seconds, `TimeoutError`."""
    stream = provider.stream(request)
    with chat_span(provider) as operation:
        try:
            async with asyncio.timeout(seconds):
                async for part in stream:
                    if isinstance(part, Message):
                        operation.add_reply(part)
                        return part
        finally:
            if close := getattr(stream, "aclose", None):
                with suppress(Exception):
                    await close()
        raise ProviderError("the provider ended its stream without a message")
