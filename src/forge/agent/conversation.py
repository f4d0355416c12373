"""A history that only grows, the part of it that the model sees, and the prompts that continue it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, Usage
from forge.core.plain_values import brief
from forge.core.result import Attachment

if TYPE_CHECKING:
    from forge.core.events import ContextShortened

REPLACES = "replaces"  # in `Message.extra`: the message so many places before it, which has this digest, is not shown
REPLACED = "[A hook changed this message. A later message is the one that counts.]"


def _digest(message: Message) -> str:
    return sha256(f"{message.role}\n{message.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_replaced(messages: Sequence[Message]) -> list[int]:
    """Returns the places of messages that later ones replace."""
    found = []
    for at, message in enumerate(messages):
        back, _, digest = str(message.extra.get(REPLACES, "")).partition(" ") if message.extra else ("", "", "")
        if back.isdecimal() and 0 < int(back) <= at and _digest(messages[at - int(back)]) == digest:
            found.append(at - int(back))
    return found


class Conversation:
    """A history that only grows, and the part of it that the model sees.

    Args:
        messages: the whole history. `shown` is the same list, until older parts become a summary.
        store: stores new messages and appends them to `messages`; by default they are only appended.

    Example:
        >>> conversation = Conversation([])
        >>> conversation.append(Message("user", "Hello"))
        >>> [message.text for message in conversation.shown]
        ['Hello']
    """

    def __init__(self, messages: list[Message], store: Callable[[tuple[Message, ...]], None] | None = None) -> None:
        self.messages = messages
        self.shown = messages
        if any(message.extra and REPLACES in message.extra for message in messages):
            self.show(messages)
        self.given = len(messages)  # how many there were when its last run began
        self.paid = Usage()  # for summaries, beside what the turns cost
        self.billed = Usage()  # the part of `paid` that is in the usage of a finished run
        self._shortened: list[ContextShortened] = []  # since it was last taken
        self._store = store  # stores messages, and appends them to `messages`

    @property
    def unbilled(self) -> Usage:
        """The usage of summaries that no finished run has counted: a conversation may have several runs."""
        return self.paid.minus(self.billed)

    def append(self, *messages: Message) -> None:
        if self._store is not None:
            self._store(messages)
        else:
            self.messages.extend(messages)
        if self.shown is not self.messages:
            self.shown.extend(messages)

    def show(self, messages: Iterable[Message]) -> None:
        """Sets the messages that the model sees instead of the history so far."""
        self.shown = list(messages)
        for at in find_replaced(self.shown):
            self.shown[at] = replace(self.shown[at], text=REPLACED, attachments=())

    def replace_message(self, at: int, new: Message) -> None:
        """Shows the model a new last message instead of the one at this place. The history keeps both."""
        extra = {**new.extra, REPLACES: f"{len(self.messages) - at} {_digest(self.messages[at])}"}
        self.append(replace(new, extra=extra))
        self.show(self.shown)

    def note_shortened(self, event: ContextShortened | None) -> None:
        """Notes that the model is shown less than before."""
        if event is not None:
            self._shortened.append(event)

    def take_shortened(self) -> list[ContextShortened]:
        """Returns what was shortened since the last time."""
        if not self._shortened:
            return []
        taken, self._shortened = self._shortened, []
        return taken

    def __repr__(self) -> str:
        return f"<Conversation of {len(self.messages)} messages, {len(self.shown)} shown>"


Prepare = Callable[[Conversation], Awaitable[None]]
"""Called before every turn: may shorten what the model is shown."""


# Reads prompts: texts and files become one message.


Content = str | Message | Attachment | Sequence[str | Attachment]
"""A question: a text, or a list of texts and files."""

Prompt = Content | Sequence[str | Attachment | Message] | Conversation
"""A question, or a list of messages, which is a history to resume from."""


def read_prompt(prompt: Prompt | None, scope: Scope) -> str | Message | list[Message] | Conversation | None:
    """Returns the prompt with the files that it names. Raises `ToolError` for what is neither content nor history."""
    if prompt is None or isinstance(prompt, str | Conversation):
        return prompt
    if isinstance(prompt, Message):
        return _with_files(prompt, scope)
    if not isinstance(prompt, Sequence | Attachment):
        message = f"a prompt, which may also be a list of texts and files, is not a string: {brief(prompt)}"
        raise ToolError(message, ErrorKind.VALIDATION, 'Write run("…"), or run(["What is this?", Image("photo.png")]).')
    parts = [prompt] if isinstance(prompt, Attachment) else list(prompt)
    messages = [one for one in parts if isinstance(one, Message)]
    if len(messages) == len(parts):
        return [_with_files(one, scope) for one in messages]
    odd = next((one for one in parts if not isinstance(one, str | Attachment)), None)
    if messages or odd is not None:
        problem = "it mixes messages and content" if messages else f"{brief(odd)} is neither a text nor a file"
        hint = 'Give one kind: [Message("user", "…")] is a history, ["What is this?", Image("photo.png")] is a prompt.'
        hint = f"{hint} For both, run(prompt, history=messages)."
        raise ToolError(f"reading a prompt of {len(parts)} parts: {problem}", ErrorKind.VALIDATION, hint)
    text = "\n".join(one for one in parts if isinstance(one, str))
    files = tuple(one for one in parts if isinstance(one, Attachment))
    return _with_files(Message("user", text, attachments=files), scope)


def _with_files(message: Message, scope: Scope) -> Message:
    if not message.attachments:
        return message
    from forge.workspace.reading import read_attachments  # few prompts have files

    return replace(message, attachments=read_attachments(scope, message.attachments))
