"""Shortens the results that a model is sent: repeated ones become references, old ones become notes.

The stored messages stay as they are. What is sent depends only on those messages: a session or run that is loaded
again sends the same texts as before, so that the provider's cache still holds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from zlib import crc32

from forge.agent.conversation import Conversation
from forge.agent.tokens import ATTACHED, IMAGE, estimate_message
from forge.core.messages import Message, ToolCall, render_call
from forge.pipeline.limit_output import MOST_SPILLED, MOST_SPILLS
from forge.workspace.state import keep_newest, state_directory, write_private

SHORT = 400  # characters of an output that is not worth leaving out
REPEATED = 800  # characters of a result from which on a reference is shorter
PER_TOKEN = 4  # characters of a token, about
REWRITTEN = 1.0  # times what a clearing frees: more of the cached prompt must not change for it
NEVER_CLEARED = frozenset({"read_skill"})  # instructions, which hold for the whole conversation

_STORED_IN = re.compile(r'the whole text is in "([^"\n]+)"')
_CLEARED = re.compile(r"\[left out: [^\n]*\]")
_REFERENCE = re.compile(r'\[the same [0-9]+ characters as the result of your call "([^"\n]*)" above: .*\]', re.DOTALL)
_BEGINNING = "[the same "

Store = Callable[[Message, str], str]
"""Stores the output of a call of the named tool. Returns the file, or nothing where the call can be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRules:
    """Rules for what is sent to the model: when results and histories are shortened. Sessions store them whole.

    Args:
        window: the tokens that the model can see. Near the end, older parts become a summary; 0: never.
        refer_to_repeats: a long result that the model still sees is not sent twice: the second is a reference.
        clear_outputs: old outputs are replaced by notes as soon as that many tokens can be freed at once, and whenever
            half of the model's window is used; 0: only then.
        keep_turns: outputs of that many latest turns are never replaced.

    Example:
        >>> Agent(Scripted("Hi"), context=ContextRules(clear_outputs=0)).run_sync("Hello").text
        'Hi'
    """

    window: int = 0
    refer_to_repeats: bool = True
    clear_outputs: int = 20_000
    keep_turns: int = 6

    def __post_init__(self) -> None:
        if self.clear_outputs < 0 or self.keep_turns < 1:
            raise ValueError(f"{self}: clear_outputs is 0 (never) or more, keep_turns at least 1")


@dataclass(slots=True, eq=False, repr=False)
class _Output:
    """A long result that the model sees."""

    call: ToolCall
    turn: int  # in which the model last got it, or a reference to it


class ShownResults:
    """Shortens the results of one conversation. A turn costs only what is new since the turn before."""

    def __init__(self, rules: ContextRules, store: Store) -> None:
        self.rules = rules
        self._store = store
        self._begin([])

    def _begin(self, messages: list[Message]) -> None:
        self._messages = messages
        self._seen = self._turn = self._characters = 0
        self._calls: dict[str, ToolCall] = {}
        self._outputs: dict[int, _Output] = {}  # by the index of the message, as are the following ones
        self._at_of_id: dict[str, int] = {}  # some models use an id again: the latest one counts
        self._at_of_text: dict[tuple[str, bool], int] = {}
        self._recent: deque[tuple[int, int]] = deque()  # turns and indexes; `_outputs` has the latest turn of each
        self._old: dict[int, int] = {}  # outputs that can be cleared, and the characters that this frees
        self._before: list[int] = []  # of every message: the characters up to and with it

    def apply(self, conversation: Conversation) -> tuple[int, int, int]:
        """Shortens what is new. Returns the numbers of references and cleared outputs, and the characters freed."""
        if conversation.shown is not self._messages or len(conversation.shown) < self._seen:
            self._begin(conversation.shown)  # another list: after a summary, or loaded again
        referred = freed = 0
        cleared: dict[int, Message] = {}
        while self._seen < len(self._messages):
            message = self._messages[self._seen]
            if message.role == "assistant":  # before it was a request
                freed += self._clear(cleared)
                self._turn += 1
                self._calls.update((call.id, call) for call in message.tool_calls)
            elif message.role == "tool" and (
                len(message.text) > SHORT or message.attachments or message.text.startswith(_BEGINNING)
            ):
                shorter = self._take(message)
                if shorter is not message:
                    self._change(conversation, self._seen, shorter)
                    referred, freed = referred + 1, freed + len(message.text) - len(shorter.text)
                    message = shorter
            self._characters += _size(message)
            self._before.append(self._characters)
            self._seen += 1
        freed += self._clear(cleared)
        self._show(conversation, cleared)
        return referred, len(cleared), freed

    def make_room(self, conversation: Conversation, batch: int) -> tuple[int, int]:
        """Replaces old outputs by notes in whole batches of so many tokens, whatever must be cached again for it.

        It follows `apply`. Returns the numbers of cleared outputs and of characters freed. Batches are counted from the
        beginning: between two of them the older messages stay as they are, and so does the provider's cache of them.
        """
        self._find_old()
        chosen: list[int] = []
        waiting: list[int] = []
        for at in sorted(self._old):
            waiting.append(at)
            if sum(self._old[one] for one in waiting) >= batch * PER_TOKEN:
                chosen += waiting
                waiting = []
        cleared: dict[int, Message] = {}
        freed = self._replace(chosen, cleared)
        self._show(conversation, cleared)
        return len(cleared), freed

    def _show(self, conversation: Conversation, cleared: dict[int, Message]) -> None:
        if cleared:
            conversation.show(cleared.get(at, message) for at, message in enumerate(self._messages))
            self._messages = conversation.shown

    def _change(self, conversation: Conversation, at: int, message: Message) -> None:
        """Replaces a message that was not sent yet. The history keeps it as it is."""
        if self._messages is conversation.messages:
            conversation.show(self._messages)
            self._messages = conversation.shown
        self._messages[at] = message

    def _take(self, message: Message) -> Message:
        """Notes a long result; returns a reference where the model sees the same text already."""
        if (found := _REFERENCE.fullmatch(message.text)) is not None:
            self._renew(self._at_of_id.get(found[1], -1))
            return message
        call = self._calls.get(message.call_id)
        if call is None or _CLEARED.fullmatch(message.text):
            return message
        if self.rules.refer_to_repeats and len(message.text) >= REPEATED and not message.attachments:
            key = _key(message)
            if (earlier := self._at_of_text.get(key)) is not None:
                self._renew(earlier)
                return replace(message, text=_refer(self._outputs[earlier].call, message.text))
            if '"' not in call.id and "\n" not in call.id:
                self._at_of_text[key] = self._seen
        self._outputs[self._seen] = _Output(call, self._turn)
        self._at_of_id[call.id] = self._seen
        if call.name not in NEVER_CLEARED:
            self._recent.append((self._turn, self._seen))
        return message

    def _renew(self, at: int) -> None:
        """Notes a reference: the result that it means stays as long as one that is new."""
        if (output := self._outputs.get(at)) is not None:
            output.turn = self._turn
            if self._old.pop(at, None) is not None:
                self._recent.append((self._turn, at))

    def _find_old(self) -> None:
        """Notes the outputs that are no longer among the latest turns, and the characters that each would free."""
        latest = self._turn - self.rules.keep_turns
        while self._recent and self._recent[0][0] <= latest:
            _, at = self._recent.popleft()
            if self._outputs[at].turn > latest:  # a reference came later
                self._recent.append((self._outputs[at].turn, at))
            elif frees := _count_freed(self._messages[at]):
                self._old[at] = frees

    def _clear(self, cleared: dict[int, Message]) -> int:
        """Replaces all old outputs by notes if that frees enough. Returns the characters that it frees."""
        self._find_old()
        frees = sum(self._old.values())
        if not self._old or not self.rules.clear_outputs or frees < self.rules.clear_outputs * PER_TOKEN:
            return 0
        after = self._characters - self._before[min(self._old)] - frees
        return self._replace(list(self._old), cleared) if after <= frees * REWRITTEN else 0

    def _replace(self, chosen: Sequence[int], cleared: dict[int, Message]) -> int:
        """Replaces these outputs by notes. Returns the characters that it frees."""
        freed = 0
        for at in chosen:
            message, output = self._messages[at], self._outputs.pop(at)
            self._at_of_text.pop(_key(message), None)
            cleared[at] = note = replace_by_note(message, self._store(message, output.call.name))
            freed += _size(message) - _size(note)
            del self._old[at]
        if chosen:
            self._count_again(cleared)
        return freed

    def _count_again(self, cleared: dict[int, Message]) -> None:
        sizes = (_size(cleared.get(at, self._messages[at])) for at in range(self._seen))
        self._before = list(accumulate(sizes))
        self._characters = self._before[-1]


def replace_by_note(message: Message, file: str = "") -> Message:
    """Replaces the output by a note that says how to get it back; keeps a short message or an earlier note."""
    if len(message.text) <= SHORT or _CLEARED.fullmatch(message.text):
        if not message.attachments:
            return message
        return replace(message, text=f"{message.text}\n[left out: what was attached]".strip(), attachments=())
    file = find_file(message.text) or file
    where = f'the whole text is in "{file}"' if file else "call the tool again if you need it"
    return replace(
        message, text=f"[left out: an old output of {len(message.text)} characters; {where}]", attachments=()
    )


def find_file(text: str) -> str:
    """Returns the file with the whole text of an output that was cut."""
    files = _STORED_IN.findall(text, max(0, len(text) - 6_000))  # the cut's own note is the end of it
    return files[-1] if files else ""


def restore_references(recent: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Returns messages whose references all have their result: others get their own text back."""
    seen: set[str] = set()
    restored = list(recent)
    for at, message in enumerate(recent):
        if message.role != "tool":
            continue
        found = _REFERENCE.fullmatch(message.text)
        if found is None:
            seen.add(message.call_id)
        elif found[1] not in seen:
            whole = next((one for one in reversed(messages) if one.call_id == message.call_id), message)
            restored[at] = whole
    return restored


def make_store(workspace: Path, can_repeat: Callable[[str], bool]) -> Store:
    """Returns a function that stores outputs in the workspace's state, beside outputs that were cut."""

    def store(message: Message, name: str) -> str:
        if can_repeat(name) or find_file(message.text):
            return ""
        text = message.text
        mark = crc32(text.encode("utf-8", "replace"))
        label = re.sub(r"[^A-Za-z0-9_-]", "_", f"{name}-{message.call_id[:200]}")[:90]
        try:
            folder = state_directory(workspace, "spill")
            path = folder / f"{label}-{mark:08x}.old.txt"
            try:
                write_private(path, text)
                keep_newest(folder, MOST_SPILLS, MOST_SPILLED)
            except FileExistsError:  # the conversation was loaded again
                pass
        except OSError:
            return ""
        return str(path)

    return store


def _refer(call: ToolCall, text: str) -> str:
    """Returns the reference to the result of a call. An output that was cut has a file of its own."""
    file = find_file(text)
    also = f'; the whole text is in "{file}"' if file else ""
    return f'[the same {len(text)} characters as the result of your call "{call.id}" above: {render_call(call)}{also}]'


def _key(message: Message) -> tuple[str, bool]:
    """Returns equal keys for equal outputs. The file of an output that was cut has another name each time."""
    file = find_file(message.text)
    return message.text.replace(file, "") if file else message.text, message.is_error


def _count_freed(message: Message) -> int:
    """Returns the characters that a note in place of the output frees; 0 where a note would cost as much."""
    note = replace_by_note(message)
    is_shorter = estimate_message(note) < estimate_message(message)
    return max(0, _size(message) - max(_size(note), SHORT // 2)) if is_shorter else 0


def _size(message: Message) -> int:
    """Returns the characters of a message, with those of its calls; what is attached counts as much as it costs."""
    size = len(message.text)
    for attachment in message.attachments:
        size += PER_TOKEN * (IMAGE if attachment.media_type.startswith("image/") else ATTACHED)
    for call in message.tool_calls:
        size += len(call.arguments if isinstance(call.arguments, str) else str(call.arguments))
    return size
