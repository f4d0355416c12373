"""The questions of one call that its client answers later, by repeating the request or by updating a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.exports.mcp_server.input_requests import InputRequest, result_type

APPROVAL = "approval"  # the key of Forge's own questions
MOST = 20  # open questions of one call
LONGEST_KEY = 100  # characters


@dataclass(frozen=True, slots=True)
class _Question:
    request: InputRequest
    answer: asyncio.Future[object]


class OpenQuestions:
    """`notify` is called when a question opens."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._open: dict[str, _Question] = {}
        self.given: dict[str, object] = {}  # answers that came with the first request

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def requests(self) -> dict[str, InputRequest]:
        return {key: one.request for key, one in self._open.items()}

    def take_given(self, key: str, request: InputRequest) -> object | None:
        """Returns an answer that the client sent before it was asked. An approval is never given in advance."""
        if key == APPROVAL or not isinstance(self.given.get(key), result_type(request)):
            return None
        return self.given.pop(key)

    async def ask(
        self, key: str, request: InputRequest, wait: Callable[[asyncio.Future[object]], Any]
    ) -> object | None:
        """Opens a question and awaits its answer with `wait`; None if there was none."""
        if len(self._open) >= MOST:
            raise ToolError(f"a call can have {MOST} open questions", ErrorKind.RATE_LIMITED, "Ask fewer at once.")
        key = self._free_key(key[:LONGEST_KEY])
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._open[key] = _Question(request, answer)
        self._notify()
        try:
            found: object | None = await wait(answer)
            return found
        finally:
            self._open.pop(key, None)

    def answer(self, responses: Mapping[str, object]) -> None:
        """Takes the client's answers. Unknown keys and answers of another kind are ignored."""
        for key, response in responses.items():
            question = self._open.get(key)
            answer = _read(response, question.request) if question is not None else None
            if question is not None and answer is not None:
                del self._open[key]
                if not question.answer.done():
                    question.answer.set_result(answer)

    def _free_key(self, key: str) -> str:
        free, number = key, 1
        while free in self._open:
            number += 1
            free = f"{key}-{number}"
        return free


def _read(response: object, request: InputRequest) -> object | None:
    """Returns an answer of the right kind, which may have arrived as plain JSON; else None."""
    kind = result_type(request)
    if not isinstance(response, Mapping):
        return response if isinstance(response, kind) else None
    try:
        found: object = kind.model_validate(response, by_name=False)
        return found
    except ValidationError:
        return None
