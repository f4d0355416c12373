"""Slack and Telegram on loopback: real HTTP and WebSocket in the shapes that their public documentation gives.

Every request that Forge makes is checked against the documented shape of its method. A person's side is `say`, `press`
and the like; what Forge posted is in `calls`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any, Self
from urllib.parse import parse_qsl

import jsonschema_rs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "integer"}


def shape(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The schema of an object with these properties, and no others."""
    known = {**required, **(optional or {})}
    return {"type": "object", "required": [*required], "properties": known, "additionalProperties": False}


PREFORMATTED = shape(
    {
        "type": {"const": "rich_text_preformatted"},
        "elements": {"type": "array", "items": shape({"type": {"const": "text"}, "text": TEXT})},
    }
)
RICH_TEXT = shape({"type": {"const": "rich_text"}, "elements": {"type": "array", "items": PREFORMATTED}})
SLACK_BUTTON = shape(
    {
        "type": {"const": "button"},
        "action_id": {**TEXT, "maxLength": 255},
        "text": shape({"type": {"const": "plain_text"}, "text": {**TEXT, "maxLength": 75}}),
        "value": {**TEXT, "maxLength": 2000},
    }
)
ACTIONS = shape(
    {"type": {"const": "actions"}, "elements": {"type": "array", "minItems": 1, "maxItems": 25, "items": SLACK_BUTTON}}
)
BLOCKS = {"type": "array", "maxItems": 50, "items": {"anyOf": [RICH_TEXT, ACTIONS]}}
SHORT = {**TEXT, "maxLength": 40_000}
STAMP = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+$"}
BOOLEAN = {"type": "boolean"}

SLACK_METHODS = {
    "chat.postMessage": shape(
        {"channel": TEXT, "text": SHORT},
        {"thread_ts": STAMP, "blocks": BLOCKS, "unfurl_links": BOOLEAN, "unfurl_media": BOOLEAN},
    ),
    "chat.update": shape({"channel": TEXT, "ts": STAMP, "text": SHORT}, {"blocks": BLOCKS}),
    "files.getUploadURLExternal": shape({"filename": TEXT, "length": {"type": "string", "pattern": "^[0-9]+$"}}),
    "files.completeUploadExternal": shape(
        {"files": {"type": "array", "minItems": 1, "items": shape({"id": TEXT}, {"title": {"type": "string"}})}},
        {"channel_id": TEXT, "thread_ts": STAMP, "initial_comment": TEXT},
    ),
    "apps.connections.open": shape({}),
}
"""The arguments of the methods of Slack's Web API that a channel may call."""

ENTITIES = {"type": "array", "items": shape({"type": {"const": "pre"}, "offset": NUMBER, "length": NUMBER})}
KEYBOARD = shape(
    {
        "inline_keyboard": {
            "type": "array",
            "items": {
                "type": "array",
                "items": shape({"text": TEXT, "callback_data": {**TEXT, "maxLength": 64}}),
            },
        }
    }
)
CHAT = {"anyOf": [NUMBER, TEXT]}
PREVIEW = shape({"is_disabled": BOOLEAN})
MESSAGE_TEXT = {**TEXT, "maxLength": 4096}
TELEGRAM_METHODS = {
    "getMe": shape({}),
    "getUpdates": shape(
        {},
        {
            "offset": NUMBER,
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "timeout": NUMBER,
            "allowed_updates": {"type": "array", "items": TEXT},
        },
    ),
    "setWebhook": shape(
        {"url": TEXT},
        {
            "secret_token": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,256}$"},
            "allowed_updates": {"type": "array", "items": TEXT},
        },
    ),
    "sendMessage": shape(
        {"chat_id": CHAT, "text": MESSAGE_TEXT},
        {
            "message_thread_id": CHAT,
            "entities": ENTITIES,
            "link_preview_options": PREVIEW,
            "reply_markup": KEYBOARD,
        },
    ),
    "sendDocument": shape({"chat_id": CHAT}, {"message_thread_id": CHAT}),
    "editMessageText": shape(
        {"chat_id": CHAT, "message_id": NUMBER, "text": MESSAGE_TEXT},
        {"entities": ENTITIES, "link_preview_options": PREVIEW, "reply_markup": KEYBOARD},
    ),
    "answerCallbackQuery": shape({"callback_query_id": TEXT}, {"text": {"type": "string", "maxLength": 200}}),
    "getFile": shape({"file_id": TEXT}),
}
"""The arguments of the methods of Telegram's Bot API that a channel may call."""


NUMBERS = count(100)  # of events and messages: no two are the same, also of two servers


@dataclass
class Called:
    """One request of Forge."""

    method: str
    said: dict[str, Any]
    token: str = ""
    body: bytes = b""
    number: str = ""  # of the message that it made

    @property
    def buttons(self) -> dict[str, str]:
        """The values of the buttons by their labels."""
        found: dict[str, str] = {}
        for block in self.said.get("blocks", ()):
            found |= {one["text"]["text"]: one["value"] for one in block["elements"] if one["type"] == "button"}
        for row in self.said.get("reply_markup", {}).get("inline_keyboard", ()):
            found |= {one["text"]: one["callback_data"] for one in row}
        return found


@dataclass
class Service:
    """What both have: the calls so far, answers that a test puts in their place, and files."""

    calls: list[Called] = field(default_factory=list)
    instead: deque[Response] = field(default_factory=deque)  # answers to the next calls
    problems: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    url: str = ""
    checked: dict[str, int] = field(default_factory=dict)  # requests by method that had the documented shape
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    numbers: Any = NUMBERS
    record: Callable[[str, Called | str], None] = lambda who, said: None  # hears what both sides say

    async def note(self, called: Called, methods: Mapping[str, Any]) -> None:
        self.record("forge", called)
        known = methods.get(called.method)
        if known is None:
            self.problems.append(f"{called.method} is not a method that the documentation has")
        else:
            wrong = [error.message for error in jsonschema_rs.validator_for(known).iter_errors(called.said)]
            self.problems += [f"{called.method}: {one}" for one in wrong]
            if not wrong:
                self.checked[called.method] = self.checked.get(called.method, 0) + 1
        async with self.news:
            self.calls.append(called)
            self.news.notify_all()

    async def wait_for(self, wanted: Callable[[Called], bool], number: int = 1) -> Called:
        """Waits until so many calls are as wanted, and returns the last of them."""
        try:
            async with asyncio.timeout(60), self.news:
                await self.news.wait_for(lambda: sum(map(wanted, self.calls)) >= number)
        except TimeoutError:
            raise AssertionError(f"this is all that was posted: {self.texts}") from None
        return [one for one in self.calls if wanted(one)][number - 1]

    async def wait_for_text(self, text: str, number: int = 1) -> Called:
        """Waits for a posted message with this text in it."""
        posts = ("chat.postMessage", "sendMessage", "chat.update", "editMessageText")
        return await self.wait_for(lambda one: one.method in posts and text in one.said["text"], number)

    async def wait_for_question(self, text: str = "", number: int = 1) -> Called:
        return await self.wait_for(lambda one: bool(one.buttons) and text in one.said["text"], number)

    @property
    def texts(self) -> list[str]:
        """All texts that were posted, in order."""
        return [one.said["text"] for one in self.calls if one.method in ("chat.postMessage", "sendMessage")]


@dataclass
class FakeSlack(Service):
    """Slack: the Web API, Socket Mode, and events that it sends to a URL."""

    BOT = "U0LAN0Z89"
    sockets: list[WebSocket] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    opened: int = 0  # connections so far
    open: bool = True  # new connections are accepted

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/{method}", self._answer, methods=["POST"]),
                Route("/upload/{file}", self._take_file, methods=["POST"]),
                Route("/files/{file}", self._give_file, methods=["GET"]),
                WebSocketRoute("/link", self._link),
            ]
        )

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        is_json = request.headers["content-type"].startswith("application/json")
        said = json.loads(body) if is_json else dict(parse_qsl(body.decode()))
        called = Called(request.path_params["method"], said, request.headers.get("authorization", ""), body)
        if self.instead:
            return self.instead.popleft()
        called.number = f"1503435956.{next(self.numbers):06}"
        await self.note(called, SLACK_METHODS)
        host = request.headers["host"]
        replies: dict[str, dict[str, Any]] = {
            "chat.postMessage": {"channel": said.get("channel"), "ts": called.number},
            "chat.update": {"channel": said.get("channel"), "ts": said.get("ts")},
            "files.getUploadURLExternal": {"upload_url": f"http://{host}/upload/F1", "file_id": "F1"},
            "files.completeUploadExternal": {"files": said.get("files")},
            "apps.connections.open": {"url": f"ws://{host}/link?ticket=secret"},
        }
        return JSONResponse({"ok": True, **replies.get(called.method, {})})

    async def _take_file(self, request: Request) -> Response:
        self.files[request.path_params["file"]] = await request.body()
        return Response("OK")

    async def _give_file(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer xoxb-1":
            return Response("login page", 302, {"Location": "https://slack.com/login"})
        return Response(self.files[request.path_params["file"]])

    async def _link(self, link: WebSocket) -> None:
        if not self.open:
            await link.close()
            return
        await link.accept()
        await link.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}})
        async with self.news:
            self.opened += 1
            self.sockets.append(link)
            self.news.notify_all()
        try:
            while True:
                said = await link.receive_json()
                wrong = [error.message for error in jsonschema_rs.validator_for(ACK).iter_errors(said)]
                self.problems += wrong
                async with self.news:
                    self.acknowledged.append(said.get("envelope_id", ""))
                    self.news.notify_all()
        except WebSocketDisconnect:
            pass
        finally:
            if link in self.sockets:
                self.sockets.remove(link)

    async def connected(self, times: int = 1) -> WebSocket:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: self.opened >= times and bool(self.sockets))
        return self.sockets[-1]

    async def push(self, payload: Mapping[str, Any], kind: str = "events_api") -> None:
        """Sends an envelope by Socket Mode, and waits until it is acknowledged."""
        envelope = f"dbdd0ef3-{next(self.numbers)}"
        link = await self.connected()
        said = {"envelope_id": envelope, "type": kind, "accepts_response_payload": False, "payload": payload}
        await link.send_json(said)
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: envelope in self.acknowledged)

    async def say(self, text: str, *, thread: str = "", user: str = "U1", **more: Any) -> str:
        """Says something to the bot in the channel C1. Returns the thread."""
        self.record("ann", text)
        event = self.mention(text, thread=thread, user=user, **more)
        await self.push(event)
        return thread or event["event"]["ts"]

    def mention(self, text: str, *, thread: str = "", user: str = "U1", **more: Any) -> dict[str, Any]:
        stamp = f"1515449522.{next(self.numbers):06}"
        event = {"type": "app_mention", "user": user, "text": f"<@{self.BOT}> {text}", "ts": stamp, "channel": "C1"}
        event |= {"event_ts": stamp, **({"thread_ts": thread} if thread else {}), **more}
        return self.wrap(event)

    def wrap(self, event: dict[str, Any]) -> dict[str, Any]:
        """The outer event, as the documentation of the Events API has it."""
        return {
            "token": "XXYYZZ",
            "team_id": "T1",
            "api_app_id": "A1",
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self.numbers)}",
            "event_time": 1515449522,
            "authorizations": [{"team_id": "T1", "user_id": self.BOT, "is_bot": True}],
        }

    def pressed(self, question: Called, label: str, *, user: str = "U1", **more: Any) -> dict[str, Any]:
        """The payload of a pressed button, as the documentation of `block_actions` has it."""
        message = {"type": "message", "ts": question.number, "text": question.said["text"], "user": self.BOT}
        message |= {"thread_ts": question.said["thread_ts"]} if "thread_ts" in question.said else {}
        action = {"type": "button", "action_id": "choice_0", "block_id": "b1", "value": question.buttons[label]}
        return {
            "type": "block_actions",
            "user": {"id": user, "username": "ann", "team_id": "T1"},
            "api_app_id": "A1",
            "container": {"type": "message", "message_ts": question.number, "channel_id": question.said["channel"]},
            "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
            "team": {"id": "T1", "domain": "example"},
            "channel": {"id": question.said["channel"], "name": "general"},
            "message": message,
            "response_url": "https://hooks.slack.com/actions/A1/1/x",
            "actions": [{**action, "action_ts": f"1548426417.{next(self.numbers):06}"}],
            **more,
        }

    async def press(self, question: Called, label: str, *, user: str = "U1") -> None:
        self.record("ann", f"[presses {label}]")
        await self.push(self.pressed(question, label, user=user), "interactive")

    @staticmethod
    def sign(body: bytes, secret: str = "8f742231b10e8888abcd99yyyzzz85a5", at: float | None = None) -> dict[str, str]:
        """The headers of a request that Slack signed."""
        stamp = str(int(time.time() if at is None else at))
        made = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, sha256).hexdigest()
        return {
            "content-type": "application/json",
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": f"v0={made}",
        }


ACK = shape({"envelope_id": TEXT}, {"payload": {"type": "object"}})


@dataclass
class FakeTelegram(Service):
    """Telegram: the Bot API with long polling. Updates stay until an offset confirms them."""

    TOKEN = "123:abc"
    updates: list[dict[str, Any]] = field(default_factory=list)
    confirmed: int = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(f"/bot{self.TOKEN}/{{method}}", self._answer, methods=["POST"]),
                Route(f"/file/bot{self.TOKEN}/{{path:path}}", self._give_file, methods=["GET"]),
            ]
        )

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        method = request.path_params["method"]
        if request.headers["content-type"].startswith("application/json"):
            said = json.loads(body)
        else:
            async with request.form() as form:
                said = {key: value for key, value in form.items() if isinstance(value, str)}
        if self.instead:
            return self.instead.popleft()
        called = Called(method, said, body=body, number=str(next(self.numbers)))
        if method == "getUpdates":
            return await self._give_updates(called)
        await self.note(called, TELEGRAM_METHODS)
        result: Any = {"message_id": int(called.number), "date": 1, "chat": {"id": 42, "type": "private"}}
        if method == "getMe":
            result = {"id": 123, "is_bot": True, "first_name": "Forge", "username": "forge_bot"}
        elif method == "getFile":
            result = {"file_id": said["file_id"], "file_unique_id": "u", "file_path": f"photos/{said['file_id']}.jpg"}
        elif method in ("setWebhook", "answerCallbackQuery"):
            result = True
        return JSONResponse({"ok": True, "result": result})

    async def _give_updates(self, called: Called) -> Response:
        offset = called.said.get("offset", 0)
        self.confirmed = max(self.confirmed, offset)
        async with self.news:
            self.updates = [one for one in self.updates if one["update_id"] >= offset]
            self.news.notify_all()
        await self.note(called, TELEGRAM_METHODS)
        try:
            async with asyncio.timeout(5), self.news:
                await self.news.wait_for(lambda: bool(self.updates))
        except TimeoutError:
            pass
        return JSONResponse({"ok": True, "result": self.updates[: called.said.get("limit", 100)]})

    async def _give_file(self, request: Request) -> Response:
        return Response(self.files[request.path_params["path"]])

    async def push(self, **update: Any) -> int:
        """Adds an update, and waits until Forge has confirmed it."""
        number = next(self.numbers)
        async with self.news:
            self.updates.append({"update_id": number, **update})
            self.news.notify_all()
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: self.confirmed > number)
        return number

    def message(self, text: str, *, user: int = 42, chat: int = 42, **more: Any) -> dict[str, Any]:
        kind = "private" if chat > 0 else "supergroup"
        return {
            "message_id": next(self.numbers),
            "from": {"id": user, "is_bot": False, "first_name": "Ann"},
            "chat": {"id": chat, "type": kind},
            "date": 1441645532,
            **({"text": text} if text else {}),
            **more,
        }

    async def say(self, text: str, *, user: int = 42, chat: int = 42, **more: Any) -> None:
        self.record("ann", text)
        await self.push(message=self.message(text, user=user, chat=chat, **more))

    def pressed(self, question: Called, label: str, *, user: int = 42, chat: int | None = None) -> dict[str, Any]:
        where = int(question.said["chat_id"]) if chat is None else chat
        return {
            "id": f"4382bfdwdsb323b2d9{next(self.numbers)}",
            "from": {"id": user, "is_bot": False, "first_name": "Ann"},
            "message": {"message_id": int(question.number), "date": 1, "chat": {"id": where, "type": "private"}},
            "chat_instance": "-3141",
            "data": question.buttons[label],
        }

    async def press(self, question: Called, label: str, *, user: int = 42, chat: int | None = None) -> None:
        self.record("ann", f"[presses {label}]")
        await self.push(callback_query=self.pressed(question, label, user=user, chat=chat))


@dataclass
class FakeModel:
    """A model that speaks Chat Completions: `think` returns a text, or the name and the arguments of a call."""

    think: Callable[[list[dict[str, Any]]], Any]
    asked: list[list[dict[str, Any]]] = field(default_factory=list)
    left: int = 0  # requests that were given up before their answer
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        async with self.news:
            self.asked.append(messages)
            self.news.notify_all()
        said = self.think(messages)
        if asyncio.iscoroutine(said):
            thinking, leaving = asyncio.ensure_future(said), asyncio.ensure_future(request.receive())
            await asyncio.wait({thinking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not thinking.done():
                thinking.cancel()
                async with self.news:
                    self.left += 1
                    self.news.notify_all()
                return Response(status_code=499)
            said = thinking.result()
        head = {"id": "chat", "created": 1, "model": "m", "object": "chat.completion.chunk"}
        delta: dict[str, Any] = {"role": "assistant"}
        if isinstance(said, str):
            delta |= {"content": said}
        else:
            function = {"name": said[0], "arguments": json.dumps(said[1])}
            delta |= {
                "tool_calls": [{"index": 0, "id": f"call_{len(messages)}", "type": "function", "function": function}]
            }
        end = "stop" if isinstance(said, str) else "tool_calls"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        events: list[dict[str, Any]] = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**head, "choices": [], "usage": usage},
        ]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return Response(f"{text}data: [DONE]\n\n", media_type="text/event-stream")

    async def wait_until_asked(self, times: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: len(self.asked) >= times)
        return self.asked[times - 1]

    async def wait_until_left(self, times: int) -> None:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: self.left >= times)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serves an app on loopback. Yields its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by every connection
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


class Inbox(list[Any]):
    """Takes what a channel receives, as the door does."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Condition()

    async def __call__(self, incoming: Any) -> None:
        async with self.news:
            self.append(incoming)
            self.news.notify_all()

    async def wait_for(self, number: int) -> Self:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: len(self) >= number)
        return self
