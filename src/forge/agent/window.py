"""Keeps what the model is shown within its window: old outputs go first, then the older part becomes a summary."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from forge.agent.compact import BATCH, CROWDED, compacted, needs_summary, prune, split, summarise
from forge.agent.conversation import Conversation
from forge.agent.tokens import Tally
from forge.core.messages import Message
from forge.core.provider import Provider, window_of

WINDOW = 128_000  # tokens, where nobody says how many the model takes
RESERVE = 0.2  # of the window: for the answer, and for what the tools of a turn put out
RECENT = 0.25  # of the window: the latest messages, which stay as they are
KEEP_TURNS = 4  # whose outputs stay as they are
KEY = "summary"  # in a session's meta


class Shortening:
    """A `Prepare` of one conversation. `meta` remembers the summary, so that going on later does not need another.

    It looks only at what is new since the turn before: the cost of a turn does not grow with the history.
    """

    def __init__(self, provider: Provider, window: int = 0, meta: MutableMapping[str, Any] | None = None) -> None:
        self._provider = provider
        self._meta: MutableMapping[str, Any] = {} if meta is None else meta
        self._tally = Tally()
        self._looked_at = 0  # tokens when pruning was last tried
        self.window = window or window_of(provider) or WINDOW

    async def __call__(self, conversation: Conversation) -> None:
        tokens = self._tally.of(conversation.shown)
        if tokens > self.window * CROWDED and tokens - self._looked_at > self.window * BATCH:
            pruned = prune(conversation.shown, keep_turns=KEEP_TURNS, window=self.window)
            if pruned is not conversation.shown:
                conversation.show(pruned)
            self._looked_at = self._tally.of(conversation.shown)
        if needs_summary(conversation.shown, self.window, int(self.window * RESERVE), self._tally):
            await self.compact(conversation, int(self.window * RECENT))

    async def compact(self, conversation: Conversation, keep_tokens: int = 0) -> bool:
        """Put all but the latest messages into a summary; whether there was anything to put there."""
        summary = await shorten(conversation, self._provider, keep_tokens)
        if summary is None:
            return False
        self._looked_at = 0
        after = len(conversation.shown) - conversation.shown.index(summary) - 1
        self._meta[KEY] = {"text": summary.text, "covers": len(conversation.messages) - after}
        return True

    def recall(self, conversation: Conversation) -> None:
        """Show what was shown when the conversation was last compacted, and what came after."""
        kept = self._meta.get(KEY)
        if not isinstance(kept, dict) or not isinstance(kept.get("text"), str):
            return
        covers = kept.get("covers")
        if isinstance(covers, int) and 0 < covers <= len(conversation.messages):
            first = [message for message in conversation.messages[:covers] if message.role == "system"]
            conversation.show([*first, Message("user", kept["text"]), *conversation.messages[covers:]])


async def shorten(conversation: Conversation, provider: Provider, keep_tokens: int) -> Message | None:
    """Put everything but the latest tokens into a summary; None when there is nothing old enough."""
    old, recent = split(conversation.shown, keep_tokens)
    if not old:
        return None
    summary = await summarise(provider, old)
    conversation.paid = conversation.paid.plus(summary.usage)
    conversation.show(compacted(recent, summary))
    return summary
