"""Keeps the shown messages within the model's window: old outputs go first, then older messages become a summary."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from forge.agent.conversation import Conversation
from forge.agent.shown_results import (
    PER_TOKEN,
    ContextRules,
    ShownResults,
    Store,
    restore_references,
)
from forge.agent.summary import is_summary, summarise
from forge.agent.tokens import TokenTally, estimate_message, estimate_messages, find_weights
from forge.core.events import ContextShortened
from forge.core.messages import Message, unanswered_calls
from forge.core.provider import Provider, window_of
from forge.models.known_models import known_of

WINDOW = 128_000  # tokens, where the model's window is not known


def find_window(provider: Provider) -> int:
    """Returns the tokens that a model can see: as its provider says, else as published, else a common size."""
    known = known_of(provider)
    return window_of(provider) or (known.window if known is not None else 0) or WINDOW


RESERVE = 0.2  # of the window: for the answer, and for what the tools of a turn put out
RECENT = 0.25  # of the window: the latest messages, which stay as they are
CROWDED = 0.5  # of the window: from then on, old outputs make room
BATCH = 1 / 16  # of the window: that much is freed at once, or nothing
KEY = "summary"  # in a session's meta


class Shortening:
    """A `Prepare` of one conversation. `meta` stores the summary, so that resuming later does not need another.

    It looks only at what is new since the turn before: the cost of a turn does not grow with the history. A window of
    0 is never full: then results are shortened, and nothing else.
    """

    def __init__(
        self,
        provider: Provider,
        window: int = 0,
        meta: MutableMapping[str, Any] | None = None,
        rules: ContextRules | None = None,
        store: Store = lambda message, name: "",
    ) -> None:
        self._provider = provider
        self._meta: MutableMapping[str, Any] = {} if meta is None else meta
        self._tally = TokenTally(find_weights(provider))
        self._looked_at = 0  # tokens when room was last made
        self._results = ShownResults(rules if rules is not None else ContextRules(), store)
        self.window = window

    async def __call__(self, conversation: Conversation) -> None:
        conversation.note_shortened(self._shorten_results(conversation))
        if not self.window:
            return
        tokens = self._tally.of(conversation.shown)
        if tokens > self.window * CROWDED and tokens - self._looked_at > self.window * BATCH:
            outputs, characters = self._results.make_room(conversation, int(self.window * BATCH))
            if outputs:
                conversation.note_shortened(ContextShortened(outputs=outputs, tokens=characters // PER_TOKEN))
            self._looked_at = self._tally.of(conversation.shown)
        if needs_summary(conversation.shown, self.window, int(self.window * RESERVE), self._tally):
            await self.compact(conversation, int(self.window * RECENT))

    async def compact(self, conversation: Conversation, keep_tokens: int = 0) -> bool:
        """Puts all but the latest messages into a summary. Returns False if there was nothing to summarise."""
        summary = await shorten(conversation, self._provider, keep_tokens)
        if summary is None:
            return False
        self._looked_at = 0
        conversation.note_shortened(ContextShortened(summaries=1))
        after = len(conversation.shown) - conversation.shown.index(summary) - 1
        self._meta[KEY] = {"text": summary.text, "covers": len(conversation.messages) - after}
        return True

    def recall(self, conversation: Conversation) -> None:
        """Shows the messages that were shown when the conversation was last compacted, and the later ones."""
        stored = self._meta.get(KEY)
        stored = stored if isinstance(stored, dict) and isinstance(stored.get("text"), str) else {}
        covers = stored.get("covers")
        if isinstance(covers, int) and 0 < covers <= len(conversation.messages):
            first = [message for message in conversation.messages[:covers] if message.role == "system"]
            conversation.show([*first, Message("user", stored["text"]), *conversation.messages[covers:]])
        self._shorten_results(conversation)

    def _shorten_results(self, conversation: Conversation) -> ContextShortened | None:
        repeats, outputs, characters = self._results.apply(conversation)
        if not repeats and not outputs:
            return None
        return ContextShortened(repeats, outputs, tokens=characters // PER_TOKEN)


async def shorten(conversation: Conversation, provider: Provider, keep_tokens: int) -> Message | None:
    """Puts everything but the latest tokens into a summary; None when there is nothing old enough."""
    old, recent = split(conversation.shown, keep_tokens)
    if not old:
        return None
    summary = await summarise(provider, old)
    conversation.paid = conversation.paid.plus(summary.usage)
    conversation.show(insert_summary(restore_references(recent, conversation.messages), summary))
    return summary


__all__ = ["insert_summary", "is_summary", "needs_summary", "split", "summarise"]


def needs_summary(messages: Sequence[Message], window: int, reserve: int, tally: TokenTally | None = None) -> bool:
    """Returns whether less than `reserve` tokens of the window are left. A window of 0 is unknown, and never full.

    With a `tally` the answer costs only what is new since it was last asked, and uses what the provider has counted.
    """
    if window <= 0:
        return False
    used = tally.of(messages) if tally is not None else estimate_messages(messages)
    return used > window - min(reserve, window // 2)


def split(messages: list[Message], keep_tokens: int) -> tuple[list[Message], list[Message]]:
    """Splits messages into those for a summary and those that stay: system messages, and the last that fit.

    A call and its results are never torn apart, and at least the last turn stays, however long it is.
    Nothing is old when only an earlier summary would be.
    """
    cut = _find_cut(messages, keep_tokens)
    old = [message for message in messages[:cut] if message.role != "system"]
    if all(map(is_summary, old)):
        return [], list(messages)
    return old, [message for message in messages[:cut] if message.role == "system"] + messages[cut:]


def insert_summary(recent: Sequence[Message], summary: Message) -> list[Message]:
    """Returns the history to resume with: the messages that stay, the summary behind the first system messages."""
    first = next((index for index, message in enumerate(recent) if message.role != "system"), len(recent))
    return [*recent[:first], summary, *recent[first:]]


def _find_cut(messages: Sequence[Message], keep_tokens: int) -> int:
    """Returns the first index of the messages that stay."""
    tied = _find_ties(messages)
    cut = earliest = len(messages)
    tokens = 0
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role != "system":
            tokens += estimate_message(messages[index])
        earliest = min(earliest, tied[index])
        if tokens > keep_tokens and cut < len(messages):
            break
        if earliest >= index:
            cut = index
    return cut


def _find_ties(messages: Sequence[Message]) -> list[int]:
    """Returns for every message the index that must stay with it: a result's call, an open call's own message."""
    tied = list(range(len(messages)))
    calls_at: dict[str, int] = {}
    before = 0  # the last one that can become part of a summary
    for index, message in enumerate(messages):
        calls_at.update((call.id, index) for call in message.tool_calls)
        if message.role == "tool":
            tied[index] = calls_at.get(message.call_id, before)  # a stray result stays with the message before it
        if message.role != "system":
            before = index
    if messages and (owed := unanswered_calls(messages)):
        tied[-1] = min(tied[-1], calls_at[owed[0].id])
    return tied
