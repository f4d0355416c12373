"""Writes summaries of sessions into the memory, so that a later session can recall them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from forge.core.label import Label
from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.secrets import Secrets
from forge.memory.memory import Memory, WrittenEntry

LONGEST = 8_000  # characters of a summary

Summarise = Callable[[Sequence[Message]], Awaitable[str | Message]]


async def remember_session(
    memory: Memory,
    messages: Sequence[Message],
    summarise: Summarise,
    *,
    title: str = "session",
    secrets: Secrets | None = None,
    labels: Sequence[Label] = (),
) -> WrittenEntry | None:
    """Writes a summary of a session into today's note; None if there are no messages. Secrets are masked.

    `labels`: of everything in the messages; the summary may repeat it.
    """
    from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

    if not any(message.role == "user" and message.text.strip() for message in messages):
        return None
    summary = await summarise(messages)
    text = sendable(summary.text if isinstance(summary, Message) else summary).strip()
    text = (secrets or Secrets()).mask_all(text)
    if not text:
        return None
    if len(text) > LONGEST:
        text = f"{text[:LONGEST].rstrip()} [… {len(text) - LONGEST:,} more characters]"
    heading = " ".join((secrets or Secrets()).mask_all(title).split())[:100]
    written: WrittenEntry = await in_thread(lambda: memory.write(text, "today", heading, labels))
    return written
