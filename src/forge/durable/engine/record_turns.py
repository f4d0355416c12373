"""Records the turns of a model: another attempt gets the recorded answers, and does not ask again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from forge.agent.loop import with_unique_ids
from forge.core.errors import ErrorKind
from forge.core.messages import Message, ToolCall, export_message, import_message
from forge.core.plain_values import text_of
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart
from forge.durable.engine.attempt import Attempt
from forge.durable.engine.tasks import end_tasks
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.pipeline.trace import chat_span

_ERRORS: dict[str, type[ProviderError]] = {"BrokeOff": BrokeOff, "PromptTooLong": PromptTooLong}


class RecordedProvider:
    """Streams text on the first attempt alone; records the message or the error."""

    traces_itself = True  # a recorded answer is not asked for again, and has no span

    def __init__(self, provider: Provider, attempt: Attempt, said: Sequence[Message] = ()) -> None:
        """`said`: the whole conversation, as it grows."""
        self._provider = provider
        self._attempt = attempt
        self._said = said
        self._heard = 0  # messages whose calls are in `_used`
        self._used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)  # such as its window

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        parts: asyncio.Queue[StreamPart | None] = asyncio.Queue()
        name = "model" if request.tools else "model alone"  # distinguishes a summary from a turn
        asking = asyncio.ensure_future(self._attempt.record(name, lambda: self._ask_traced(request, parts)))
        asking.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
            answer = await asking
        finally:
            if not asking.done():
                asking.cancel()
                await end_tasks([asking])
        if "error" in answer:
            raise _decode_error(answer["error"])
        yield import_message(answer["message"])

    async def _ask_traced(self, request: ModelRequest, parts: asyncio.Queue[StreamPart | None]) -> Mapping[str, Any]:
        with chat_span(self._provider) as operation:
            operation.add_request(request.messages)
            began = time.monotonic()
            answer = await self._ask(request, parts)
            self._attempt.context.counters.turn_seconds.add(time.monotonic() - began)
            if "error" in answer:
                operation.fail(answer["error"]["kind"])
            elif operation.is_traced:
                operation.add_reply(import_message(answer["message"]))
            self._attempt.context.counters.turns += 1
            return answer

    async def _ask(self, request: ModelRequest, parts: asyncio.Queue[StreamPart | None]) -> Mapping[str, Any]:
        try:
            stream: Any = self._provider.stream(request)
            async with aclosing(stream):
                async for part in stream:
                    if isinstance(part, Message):
                        return {"message": export_message(self._with_new_ids(part))}
                    parts.put_nowait(part)
            raise ProviderError(
                "the provider ended its stream without a message", suggestion="Its last item must be a Message."
            )
        except ProviderError as error:
            return {"error": _encode_error(error)}
        except Exception as error:  # a custom provider
            return {"error": _encode_error(ProviderError(f"the provider failed: {text_of(error)}"))}

    def _with_new_ids(self, reply: Message) -> Message:
        """Gives calls with an id used earlier in the run a new one: questions, tasks and events are keyed by call."""
        reply = with_unique_ids(reply)
        used = self._used
        used.update(call.id for message in self._said[self._heard :] for call in message.tool_calls)
        self._heard = len(self._said)
        if used.isdisjoint(call.id for call in reply.tool_calls):
            return reply
        calls = (
            ToolCall(one.name, one.arguments, server=one.server) if one.id in used else one for one in reply.tool_calls
        )
        return replace(reply, tool_calls=tuple(calls))


def _encode_error(error: ProviderError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": error.message,
        "kind": str(error.kind),
        "suggestion": error.suggestion,
        "passing": error.passing,
        "status": error.status,
    }


def _decode_error(recorded: Mapping[str, Any]) -> ProviderError:
    error = _ERRORS.get(recorded["type"], ProviderError)(recorded["message"])
    error.kind, error.suggestion = ErrorKind(recorded["kind"]), recorded["suggestion"]
    error.passing, error.status = recorded["passing"], recorded["status"]
    return error
