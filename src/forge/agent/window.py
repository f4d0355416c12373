"""Keeps what the model is shown within its window: old outputs go first, then the older part becomes a summary."""

from __future__ import annotations

from forge.agent.compact import BATCH, CROWDED, compacted, needs_summary, prune, split, summarise
from forge.agent.conversation import Conversation, Prepare
from forge.agent.tokens import Tally
from forge.core.provider import Provider

KEEP_TURNS = 8  # whose outputs are never left out
RESERVE = 0.15  # of the window: kept free for the answer and the next results
RECENT = 0.3  # of the window: stays word for word when the rest is summarised


def within(window: int, provider: Provider) -> Prepare:
    """For `Run.prepare`. Looks only at what is new since the turn before: the cost of a turn does not grow."""
    tally = Tally()
    looked_at = 0  # tokens when pruning was last tried

    async def prepare(conversation: Conversation) -> None:
        nonlocal looked_at
        tokens = tally.of(conversation.shown)
        if tokens > window * CROWDED and tokens - looked_at > window * BATCH:
            shorter = prune(conversation.shown, keep_turns=KEEP_TURNS, window=window)
            if shorter is not conversation.shown:
                conversation.show(shorter)
            looked_at = tally.of(conversation.shown)
        if needs_summary(conversation.shown, window, int(window * RESERVE), tally):
            await shorten(conversation, provider, int(window * RECENT))
            looked_at = 0

    return prepare


async def shorten(conversation: Conversation, provider: Provider, keep_tokens: int) -> bool:
    """Put everything but the latest tokens into a summary; False when there is nothing old enough."""
    old, recent = split(conversation.shown, keep_tokens)
    if not any(message.role != "system" for message in old):
        return False
    conversation.show(compacted(recent, await summarise(provider, old)))
    return True
