"""Follows the history of a run, so that labels know what entered the context and who said it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from forge.core.executor import ToolExecutor
from forge.core.messages import Message, ToolCall, server_calls
from forge.core.result import LONGEST_ORIGIN, UNTRUSTED, Label, ToolResult, merge_labels, read_labels
from forge.core.spec import ToolSpec
from forge.permissions.labels.provenance import Provenance
from forge.permissions.labels.settings import current_provenance
from forge.permissions.labels.texts import ReadText, find_fields
from forge.pipeline.label_results import LabelResults

LABELS, FIELDS = "labels", "fields"  # in `Message.extra` of a tool's message
FROM_FORGE = "from_forge"  # in `Message.extra`: Forge wrote it in the person's place, and may repeat a model's words
SAID = "said"  # in `Message.extra` of a message in the person's place: the part that the person said
NOT_FROM_PERSON = "[This is not from the person:"  # how a message about background work begins


class LabelHistory(Provenance):
    """Notes each new message of a history once: a run that is resumed notes the stored ones, in the same way.

    Messages are noted when something is looked up. In many runs nothing is, and the turns cost less.
    """

    def __init__(self, parent: Provenance | None = None) -> None:
        super().__init__(parent)
        self._followed = 0  # how many messages of the history were taken
        self._pending: list[Message] = []  # taken, and not noted yet
        self._calls: dict[str, ToolCall] = {}
        self._lock = Lock()  # tools in threads look up, too

    def follow(self, messages: Sequence[Message]) -> None:
        """Takes the messages that are new. Text that the model no longer sees stays noted."""
        self._pending += messages[self._followed :]
        self._followed = len(messages)
        self.end_turn()

    def catch_up(self) -> None:
        pending = self._pending
        if not pending:
            return
        with self._lock:  # another thread waits until all are noted
            noted = 0
            try:
                for message in pending[:]:
                    self._note_message(message)
                    noted += 1
            finally:
                del pending[:noted]

    def _note_message(self, message: Message) -> None:
        labels = read_labels(message.extra.get(LABELS)) if message.extra else ()
        if message.attachments and labels:
            self._add_unread(labels)
        if message.role == "assistant":
            for call in message.tool_calls:
                self._calls[call.id] = call
            for made in server_calls(message):
                self._add_result(str(made.get("text", "")), labels, made.get("input", {}), ())
                if made.get("unread"):  # the model read more than we see
                    self._add_unread(labels)
            return
        if message.role == "tool":
            answered = self._calls.pop(message.call_id, None)
            fields = message.extra.get(FIELDS, ()) if message.extra else ()
            self._add_result(message.text, labels, answered.arguments if answered else "", fields)
        elif labels or message.text.startswith(NOT_FROM_PERSON):
            self._add_result(message.text, labels, "", message.extra.get(FIELDS, ()))
            self._add_words(str(message.extra.get(SAID, "")))
        elif message.extra.get(FROM_FORGE):
            return
        elif message.role == "system" or self.parent is None:
            self._add_words(message.text)  # the task of a sub-agent is in the words of a model


@contextmanager
def follow_labels(executor: ToolExecutor, messages: Sequence[Message]) -> Iterator[LabelHistory | None]:
    """Follows a history, if a step of the executor labels results. A sub-agent's labels are then its parent's, too."""
    if not any(isinstance(step, LabelResults) for step in executor.steps):
        yield None
        return
    parent = current_provenance.get()
    history = LabelHistory(parent)
    before = current_provenance.set(history)
    try:
        yield history
    finally:
        current_provenance.reset(before)
        if parent is not None:
            history.follow(messages)
            parent.note_agent(history.own_labels)


def export_context(provenance: Provenance | None) -> tuple[Message, ...]:
    """Returns messages from which another process learns what a run has read, and what the person said.

    Empty where nothing has a label.
    """
    if provenance is None or not provenance.labels:
        return ()
    said, read = provenance.list_texts()
    words = (Message("system", one.text) for one in said)
    return (*words, *(Message("system", one.text, extra=_extra_of(one)) for one in read))


def _extra_of(text: ReadText) -> dict[str, Any]:
    extra: dict[str, Any] = {LABELS: [*map(list, text.labels)]}
    return {**extra, FIELDS: text.fields} if text.fields else extra


def collect_labels(messages: Iterable[Message]) -> tuple[Label, ...]:
    """Returns the labels of everything in a history: an agent that read it may repeat it."""
    return merge_labels(*(read_labels(message.extra.get(LABELS)) for message in messages))


def quote_text(text: str, origin: str, said: str) -> Message:
    """Returns a message in the person's place whose text others wrote, such as a prompt of a server.

    `said`: what the person said to get it.
    """
    return Message("user", text, extra={LABELS: [list(Label(UNTRUSTED, origin[:LONGEST_ORIGIN]))], SAID: said})


def label_extra(result: ToolResult, spec: ToolSpec | None) -> dict[str, Any]:
    """Returns the part of a message that stores the labels of a result, and the values of the data that it shows."""
    extra: dict[str, Any] = {LABELS: [list(label) for label in result.labels]}
    fields = find_fields(result, spec)
    return {**extra, FIELDS: fields} if fields else extra
