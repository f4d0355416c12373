"""A front end for tests: it speaks AG-UI over real HTTP, and checks each event with the SDK's models and its order."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from ag_ui import core as agui
from pydantic import TypeAdapter

from forge.network.serve import serve_app

TOKEN = "a-token-that-is-long-enough"
EVENT: TypeAdapter[Any] = TypeAdapter(agui.Event)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serves an app on loopback; yields its address."""
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(serve_app(app, listening, ready.set, lifespan="on"))
        try:
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            serving.cancel()
            await asyncio.wait({serving})


class Page:
    """A page with one thread: like a front end, it sends its messages and keeps what it got."""

    def __init__(self, url: str, thread: str = "t1", token: str | None = TOKEN) -> None:
        self.url, self.thread = url, thread
        self.headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        self.messages: list[dict[str, Any]] = []
        self.events: list[Any] = []  # of all requests
        self.runs = 0

    def say(self, text: str) -> dict[str, Any]:
        self.messages.append({"id": f"{self.thread}-u{len(self.messages)}", "role": "user", "content": text})
        return self.input()

    def input(self, **more: Any) -> dict[str, Any]:
        self.runs += 1
        return {"threadId": self.thread, "runId": f"r{self.runs}", "messages": self.messages, **more}

    async def run(self, given: dict[str, Any] | str) -> list[Any]:
        """Sends a request, and returns the events of its whole answer."""
        return [event async for event in self.stream(self.say(given) if isinstance(given, str) else given)]

    async def stream(self, given: dict[str, Any]) -> AsyncIterator[Any]:
        check = Order()
        async with (
            httpx2.AsyncClient(timeout=60.0) as client,
            client.stream("POST", self.url, json=given, headers=self.headers) as answer,
        ):
            assert answer.status_code == 200, (answer.status_code, await answer.aread())
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    wire = json.loads(line.removeprefix("data: "))
                    event = EVENT.validate_python(wire)
                    assert not event.model_extra, event
                    check.take(event)
                    self.events.append(event)
                    yield event
        check.end()

    async def load(self) -> list[Any]:
        self.messages = []
        return await self.run(self.input())

    async def answer(self, interrupt: Any, payload: Any = None, status: str = "resolved") -> list[Any]:
        entry = {"interruptId": interrupt.id, "status": status} | ({"payload": payload} if payload is not None else {})
        return await self.run(self.input(resume=[entry]))


class Order:
    """The order that AG-UI asks for: what is opened is closed, and nothing else is continued."""

    def __init__(self) -> None:
        self.open: set[tuple[str, str]] = set()
        self.first = self.last = ""

    def take(self, event: Any) -> None:
        kind = event.type.value
        assert self.last not in ("RUN_FINISHED", "RUN_ERROR"), f"{kind} after the end"
        self.first, self.last = self.first or kind, kind
        assert self.first == "RUN_STARTED"
        for suffix in ("_START", "_STARTED"):
            if kind.endswith(suffix) and kind != "RUN_STARTED":
                key = self._key(kind.removesuffix(suffix), event)
                assert key not in self.open, key
                self.open.add(key)
        for suffix in ("_END", "_FINISHED", "_ERROR"):
            if kind.endswith(suffix) and kind not in ("RUN_FINISHED", "RUN_ERROR"):
                self.open.remove(self._key(kind.removesuffix(suffix), event))
        if kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            assert self._key(kind.rpartition("_")[0], event) in self.open
            assert event.delta
        if kind == "RUN_FINISHED":
            assert not self.open

    def _key(self, kind: str, event: Any) -> tuple[str, str]:
        names = ("tool_call_id", "step_name") if kind in ("TOOL_CALL", "STEP") else ("message_id", "subagent_run_id")
        return kind, next(value for name in names if (value := getattr(event, name, None)) is not None)

    def end(self) -> None:
        assert self.last in ("RUN_FINISHED", "RUN_ERROR"), self.last


def kinds(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT")


def question_of(events: list[Any]) -> Any:
    outcome = events[-1].outcome
    assert outcome is not None, events[-1]
    assert outcome.type == "interrupt", events[-1]
    return outcome.interrupts[0]


def results_of(events: list[Any]) -> list[str]:
    return [event.content for event in events if event.type == "TOOL_CALL_RESULT"]
