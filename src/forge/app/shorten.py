"""Keeps what the model is shown within its window: old outputs go first, then the older part becomes a summary."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from forge.agent.compact import CROWDED, compacted, needs_summary, prune, split, summarise
from forge.agent.conversation import Conversation
from forge.agent.tokens import Tally
from forge.core.messages import Message
from forge.core.provider import Provider

WINDOW = 128_000  # tokens, where a provider does not say how many its model takes
RESERVE = 24_000  # tokens for the answer, and for what the tools of a turn put out
KEPT = 0.25  # of the window: the latest messages, which stay as they are
KEPT_TURNS = 4  # whose outputs stay as they are
KEY = "summary"  # in a session's meta


class Shortening:
    """A `Prepare` of one conversation. `meta` remembers the summary, so that going on later does not need another."""

    def __init__(self, provider: Provider, meta: MutableMapping[str, Any] | None = None) -> None:
        self._provider = provider
        self._meta: MutableMapping[str, Any] = {} if meta is None else meta
        self._tally = Tally()
        self.window = int(getattr(provider, "window", 0)) or WINDOW

    async def __call__(self, conversation: Conversation) -> None:
        if self._tally.of(conversation.shown) <= self.window * CROWDED:
            return
        pruned = prune(conversation.shown, keep_turns=KEPT_TURNS, window=self.window)
        if pruned is not conversation.shown:
            conversation.show(pruned)
        if needs_summary(conversation.shown, self.window, RESERVE, self._tally):
            await self.compact(conversation, int(self.window * KEPT))

    async def compact(self, conversation: Conversation, keep_tokens: int = 0) -> bool:
        """Put all but the latest messages into a summary; whether there was anything to put there."""
        old, recent = split(conversation.shown, keep_tokens)
        if not old:
            return False
        summary = await summarise(self._provider, old)
        conversation.show(compacted(recent, summary))
        latest = sum(message.role != "system" for message in recent)
        self._meta[KEY] = {"text": summary.text, "covers": len(conversation.messages) - latest}
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
