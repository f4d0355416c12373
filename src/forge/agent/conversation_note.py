"""Summarises a conversation for a note that a later conversation reads."""

from __future__ import annotations

from collections.abc import Sequence

from forge.agent.summary import HEADING, REQUESTS, summarise
from forge.core.messages import Message
from forge.core.provider import Provider


async def recollect(provider: Provider, messages: Sequence[Message]) -> str:
    """Returns the model's summary, or an outline where it cannot be asked. Never raises, except to be cancelled."""
    dialogue = [message for message in messages if message.role != "system"]
    text = (await summarise(provider, dialogue)).text.removeprefix(HEADING)
    return text.partition(REQUESTS)[0].strip()
