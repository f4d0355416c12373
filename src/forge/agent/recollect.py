"""What a conversation was about, in words for a note that a later one reads."""

from __future__ import annotations

from collections.abc import Sequence

from forge.agent._summary import HEADING, SAID, summarise
from forge.core.messages import Message
from forge.core.provider import Provider


async def recollect(provider: Provider, messages: Sequence[Message]) -> str:
    """The model's summary, or an outline where it cannot be asked. Never raises, except to be cancelled."""
    told = [message for message in messages if message.role != "system"]
    text = (await summarise(provider, told)).text.removeprefix(HEADING)
    return text.partition(SAID)[0].strip()
