"""Talks to the person: three tools that end the turn, and one that does not."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool, tool

Deliver = Callable[[str, str, str], Awaitable[bool | None]]
"""Sends a text to a channel and a chat: `await deliver(content, channel, chat_id)`. False: show the text here."""

MAX_CONVERSATIONS = 1_000  # remembered at once
MAX_MESSAGES = 100  # remembered in each


@tool(category=Category.BUILTIN, ends_turn=True, parallel=False, idempotent=True, timeout=10.0)
async def task_completion(
    result: Annotated[str, "The complete answer, for the person."],
) -> ToolResult:
    """Finish the task and give the answer. Call it once, when everything is done and checked."""
    return _message_result(result, "result")


@tool(category=Category.BUILTIN, ends_turn=True, parallel=False, idempotent=True, timeout=10.0)
async def ask_question(
    question: str,
    suggestions: Annotated[tuple[str, ...], ParameterLimits(max_length=4)] = (),
) -> ToolResult:
    """Ask the person a question and wait for the answer, only when you cannot continue without it."""
    _check_text(question, "question")
    for index, suggestion in enumerate(suggestions):
        _check_text(suggestion, f"suggestions[{index}]")
    choices = [f"{number}. {suggestion}" for number, suggestion in enumerate(suggestions, 1)]
    text = "\n".join([question, "", *choices]) if choices else question
    return ToolResult(for_llm=text, for_user=text, data={"question": question, "suggestions": list(suggestions)})


@tool(category=Category.BUILTIN, ends_turn=True, parallel=False, idempotent=True, timeout=10.0)
async def converse(message: str) -> ToolResult:
    """Reply and let the person speak next, without claiming that a task is done."""
    return _message_result(message, "message")


CONVERSATION = frozenset(one.spec.name for one in (task_completion, ask_question, converse))
"""Tools that hand over to the person. Once registered, they can be neither replaced nor removed."""


class SendMessage(Tool, category=Category.BUILTIN, aliases=("message",), parallel=False, timeout=30.0):
    """Send the person a message now and keep working. Not for the final answer."""

    def __init__(self, deliver: Deliver | None = None) -> None:
        self._deliver = deliver
        self._sent: OrderedDict[tuple[str, str, str], OrderedDict[str, None]] = OrderedDict()
        self._lock = threading.Lock()

    async def run(
        self,
        content: str,
        ctx: ToolContext,
        channel: Annotated[str, "Empty: this conversation."] = "",
        chat_id: Annotated[str, "Empty: this conversation."] = "",
    ) -> ToolResult:
        _check_text(content, "content")
        channel, chat_id = channel or ctx.scope.channel, chat_id or ctx.scope.chat_id
        is_delivered = self._deliver is not None and await self._deliver(content, channel, chat_id) is not False
        self._remember((ctx.scope.session_id, channel, chat_id), content)
        return ToolResult(
            for_llm="Message sent.",
            for_user="" if is_delivered else content,
            silent=True,
            data={"sent": True, "delivered": is_delivered, "channel": channel, "chat_id": chat_id},
        )

    def already_sent(self, scope: Scope, text: str) -> bool:
        """Returns whether this text was sent to the scope's conversation since `forget`."""
        with self._lock:
            return _digest(text) in self._sent.get(_conversation(scope), ())

    def forget(self, scope: Scope) -> None:
        """Forgets the messages of an earlier run: they do not affect the next answer."""
        with self._lock:
            self._sent.pop(_conversation(scope), None)

    def _remember(self, conversation: tuple[str, str, str], text: str) -> None:
        with self._lock:
            messages = self._sent.setdefault(conversation, OrderedDict())
            messages[_digest(text)] = None
            self._sent.move_to_end(conversation)
            if len(messages) > MAX_MESSAGES:
                messages.popitem(last=False)
            if len(self._sent) > MAX_CONVERSATIONS:
                self._sent.popitem(last=False)


def _message_result(text: str, parameter: str) -> ToolResult:
    _check_text(text, parameter)
    return ToolResult(for_llm=text, for_user=text, data={parameter: text})


def _check_text(text: str, parameter: str) -> None:
    if not text.strip():
        raise ToolError(f"{parameter} is empty", ErrorKind.VALIDATION, "Write what the person should read.")


def _conversation(scope: Scope) -> tuple[str, str, str]:
    return scope.session_id, scope.channel, scope.chat_id


def _digest(text: str) -> str:
    from hashlib import sha256  # memory stays small, however long the messages are

    return sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()
