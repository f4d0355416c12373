"""Messages of a server during a call: its progress, log and questions reach the call, the person or the model."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from forge.core.arguments.schema import check_schema
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.deadline import is_cancelled_itself
from forge.core.messages import Message
from forge.core.provider import ModelRequest
from forge.core.secrets import Secrets
from forge.core.untrusted import clean, clean_schema, one_line, show_both_ends
from forge.mcp.client.link import current_call_key
from forge.network.address import read_url
from forge.permissions.gate import gate_of
from forge.permissions.questions import Answer, PermissionRequest, describe_field, fill_form, required_names

if TYPE_CHECKING:
    from forge.core.messages import Message
    from forge.core.provider import Provider
    from forge.permissions.questions import OpeningQuestions


OFTEN = 20  # notes per second of one call, and log lines of one server; more are dropped
MOST_QUESTIONS = 10  # of one call
LONGEST_NOTE = 500  # characters of a note
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}

T = TypeVar("T")
log = logging.getLogger(__name__)


class CallListener:
    """The connection's listener. It tracks the running calls by key."""

    def __init__(
        self, name: str, secrets: Secrets, changed: Callable[[], None], sampling: Provider | None = None
    ) -> None:
        self.name = name
        self.secrets = secrets
        self.sampling = sampling
        self.opening: OpeningQuestions | None = None  # None: no one is asked while the server starts
        self._changed = changed
        self._calls: dict[object, _RunningCall] = {}
        self._lines = _PerSecondLimit()

    @property
    def can_sample(self) -> bool:
        """True if the server may ask the model."""
        return self.sampling is not None

    @contextmanager
    def track_call(self, ctx: ToolContext) -> Iterator[object]:
        """Registers a call while it runs, to receive the server's events. Its open questions end with it."""
        call = _RunningCall(ctx)
        self._calls[call] = call
        try:
            yield call
        finally:
            del self._calls[call]
            for task in call.questions:
                task.cancel()

    async def allow_start(self, request: PermissionRequest) -> bool:
        return self.opening is not None and await self.opening.ask(request)

    def tools_changed(self) -> None:
        self._changed()

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        running = self._calls.get(call)
        if running is None or not running.notes.admits():
            return
        numbers = {
            key: value
            for key, value in (("done", done), ("total", total))
            if isinstance(value, int | float) and math.isfinite(value)
        }
        title = one_line(message, LONGEST_NOTE) or " of ".join(f"{value:g}" for value in numbers.values())
        running.ctx.progress(title or "working", **numbers)

    def log(self, level: str, logger: str, text: str) -> None:
        """Shows a message with its call if the call is unambiguous; otherwise logs it."""
        line = one_line(text, LONGEST_NOTE)
        if not line:
            return
        running = self._calls.get(current_call_key.get())
        if running is None and len(self._calls) == 1 and logger not in ("stderr", "stdout"):
            (running,) = self._calls.values()
        if running is not None:
            if running.notes.admits():
                running.ctx.progress(f"{self.name}: {line}", level=one_line(level, 20))
        elif self._lines.admits():
            number = logging.DEBUG if logger in ("stderr", "stdout") else _LEVELS.get(level, logging.ERROR)
            log.log(number, "%s says: %s", self.name, self.secrets.mask_all(line))

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        running = self._find_asking_call()
        if running is None:
            log.warning("%s asks a question that does not belong to a single call: declined", self.name)
            return None

        if url:
            return await self._ask_within(running, visit(self.name, running.ctx, message, url), False)
        return await self._ask_within(running, fill_in(self.name, running.ctx, message, schema or {}), False)

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        refused = ToolError("servers cannot ask the model here", ErrorKind.PERMISSION)
        running = self._find_asking_call()
        if self.sampling is None or running is None:
            raise refused

        answer: Mapping[str, Any] | None = await self._ask_within(
            running, ask_model(self.name, running.ctx, request, self.sampling), None
        )
        if answer is None:
            raise refused
        return answer

    def went_down(self, reason: str, seconds: float) -> None:
        log.warning("%s is down (%s): restarting in %g s", self.name, self.secrets.mask_all(one_line(reason)), seconds)

    def came_back(self) -> None:
        log.info("%s is available again", self.name)

    def _find_asking_call(self) -> _RunningCall | None:
        """Returns the call behind a question. If the server does not name it, the latest call of the only session with
        calls; None if there are several sessions, since it is unclear whom to ask."""
        found = self._calls.get(current_call_key.get())
        if found is None:
            if len({one.ctx.scope.session_id for one in self._calls.values()}) != 1:
                return None
            *_, found = self._calls.values()
        found.question_count += 1
        return found if found.question_count <= MOST_QUESTIONS else None

    async def _ask_within(self, call: _RunningCall, work: Coroutine[Any, Any, T], gone: T) -> T:
        """Asks a question that ends with its call. It runs in the context of the call, which determines who is asked;
        the server's messages arrive in another task."""
        task = asyncio.get_running_loop().create_task(work, context=call.context.copy())
        call.questions.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            if is_cancelled_itself():
                raise
            return gone
        finally:
            call.questions.discard(task)


class _RunningCall:
    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self.context = copy_context()
        self.notes = _PerSecondLimit()
        self.question_count = 0
        self.questions: set[asyncio.Future[Any]] = set()


class _PerSecondLimit:
    """A rate limit of `OFTEN` per second."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def admits(self) -> bool:
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= OFTEN


# --- Answers a server's questions during a call: asks the person by form or link, or the model. A person must agree.


LONGEST_QUESTION = 2_000  # characters of a question
LONGEST_URL = 2_000  # characters of a page that the person is asked to open: it is shown as a whole
MOST_FIELDS = 50
LARGEST_FORM = 50_000  # characters of its schema
MOST_TOKENS = 4_096  # of one answer of the model to a server
MOST_MESSAGES = 50
LONGEST_PROMPT = 200_000  # characters
LONGEST_SHOWN = 3_500  # characters of the prompt that the person sees
_TYPES = ("string", "number", "integer", "boolean", "array")


async def fill_in(
    server: str, ctx: ToolContext, message: str, schema: Mapping[str, Any]
) -> Mapping[str, Any] | Literal[False] | None:
    """Asks a person to fill in a form. Returns the answer; None: declined; False: the question was cancelled.

    The person edits the arguments of the request: these are the fields, with the server's defaults.
    """
    fields = _fields(schema)
    if fields is None:
        log.warning("%s asks for something that is not a simple form: declined", server)
        return None
    lines = [
        f"The server {server} asks:",
        *_indent_message(message),
        "The server asks for these fields. Edit them, or deny:",
        *(describe_field(name, schema["properties"][name], schema) for name in fields),
    ]
    question = "\n".join(lines)
    return await fill_form(gate_of(ctx), ctx, question, _form(fields, schema))


async def visit(server: str, ctx: ToolContext, message: str, url: str) -> Mapping[str, Any] | Literal[False] | None:
    """Asks the person to open a page; the URL is shown and never opened here. Raises `ToolError` if it cannot be shown
    as a whole, or is no page of the web.
    """
    try:
        if len(url) > LONGEST_URL:
            raise ToolError(f"its URL has {len(url):,} characters, and at most {LONGEST_URL:,} are shown")
        shown = one_line(url, LONGEST_URL)
        there = read_url(shown)
    except ToolError as error:
        reason = f"the page that the server {server} wants you to open is declined: {error.message}"
        log.warning("%s", reason)
        ctx.progress(reason, level="warning")
        raise ToolError(reason, ErrorKind.VALIDATION) from None
    lines = [  # the URL comes first, where no message can push it out of sight
        f"The server {server} asks you to open this page of {there.origin} yourself. Approve once it is open:",
        f"  {shown}",
        "It says:",
        *_indent_message(message),
    ]
    answer = await _ask(ctx, "\n".join(lines))
    if answer.kind == "no":
        return False if answer.by in ("cancelled", "error") else None
    return {}


async def ask_model(
    server: str, ctx: ToolContext, request: Mapping[str, Any], provider: Provider, *, asker: str = ""
) -> dict[str, Any]:
    """Returns the model's answer to a server's messages, after a yes. Raises `ToolError` if it is refused.

    `asker` is named in the question instead of the server.

    The model receives only these messages: no tools, and nothing of the conversation.
    """

    messages = _messages(request)
    tokens = request.get("maxTokens")
    most = min(tokens, MOST_TOKENS) if isinstance(tokens, int) and tokens > 0 else MOST_TOKENS
    shown = "\n".join(f"{message.role}: {message.text}" for message in messages)
    question = [
        f"{asker or f'The server {server}'} wants to send a prompt to your model, for up to {most:,} tokens:",
        show_both_ends(shown, LONGEST_SHOWN, " of the prompt"),
    ]
    answer = await _ask(ctx, "\n".join(question), personal=False)
    if answer.kind == "no":
        raise ToolError("the person refused to send this prompt to the model", ErrorKind.PERMISSION)
    options: dict[str, Any] = {"max_tokens": most}
    temperature = request.get("temperature")
    if isinstance(temperature, int | float):
        options["temperature"] = temperature
    said: Message | None = None
    async for piece in provider.stream(ModelRequest(messages=messages, options=options)):
        if isinstance(piece, Message):
            said = piece
    if said is None:
        raise ToolError("the model gave no answer", ErrorKind.SYSTEM, "Try again later.")
    return {
        "role": "assistant",
        "content": {"type": "text", "text": said.text},
        "model": str(getattr(provider, "model", "")) or type(provider).__name__,
        "stopReason": "maxTokens" if said.finish == "length" else "endTurn",
    }


async def _ask(ctx: ToolContext, question: str, *, personal: bool = True) -> Answer:
    """Asks the call's approver; without a gate nobody is asked."""
    request = PermissionRequest(
        ctx.spec, ctx.call, {}, None, "", ctx.scope, question=question, editable=False, personal=personal
    )
    return await gate_of(ctx).ask(ctx, request)


def _indent_message(message: str) -> list[str]:
    return [f"  {line}" for line in show_both_ends(message, LONGEST_QUESTION).split("\n")]


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]] | None:
    """Returns the fields of a form: flat, few, of simple types. None for any other schema."""
    fields = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(fields, Mapping) or len(fields) > MOST_FIELDS:
        return None
    try:
        check_schema("answer", schema)
    except DefinitionError:
        return None
    if len(str(schema)) > LARGEST_FORM or "$ref" in str(schema):
        return None
    if not all(isinstance(field, Mapping) and field.get("type") in _TYPES for field in fields.values()):
        return None
    if any(field["type"] == "array" and not _is_choice(field.get("items")) for field in fields.values()):
        return None
    try:
        return clean_schema(fields)  # other approvers show it, too
    except ValueError:
        return None


def _is_choice(items: Any) -> bool:
    return isinstance(items, Mapping) and ("enum" in items or "anyOf" in items or "oneOf" in items)


def _form(fields: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema that validates an answer, without the rest of the server's schema."""
    required = [name for name in required_names(schema) if name in fields]
    return {"type": "object", "properties": dict(fields), "required": required}


def _messages(request: Mapping[str, Any]) -> list[Message]:
    """Reads the messages: text only, bounded. Raises `ToolError`."""

    if request.get("tools"):
        raise ToolError("a server may not give tools to the model", ErrorKind.PERMISSION)
    raw = request.get("messages")
    if not isinstance(raw, list) or not 0 < len(raw) <= MOST_MESSAGES:
        raise ToolError(f"the request has no messages, or more than {MOST_MESSAGES}", ErrorKind.VALIDATION)
    system = request.get("systemPrompt")
    found = [Message("system", clean(system, LONGEST_PROMPT))] if isinstance(system, str) and system else []
    for one in (item if isinstance(item, Mapping) else {} for item in raw):
        content = one.get("content")
        blocks: list[Any] = content if isinstance(content, list) else [content]
        if not all(isinstance(block, Mapping) and block.get("type") == "text" for block in blocks):
            raise ToolError("its messages contain something other than text", ErrorKind.VALIDATION)
        text = "\n".join(str(block.get("text", "")) for block in blocks)
        found.append(Message("assistant" if one.get("role") == "assistant" else "user", clean(text, LONGEST_PROMPT)))
    if sum(len(message.text) for message in found) > LONGEST_PROMPT:
        raise ToolError(f"its messages are longer than {LONGEST_PROMPT:,} characters", ErrorKind.VALIDATION)
    return found
