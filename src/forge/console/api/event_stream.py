"""Streams everything that happens as server-sent events that a page can resume."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forge.console.api.requests import json_response
from forge.console.event_hub import Hub, Listener, Notice
from forge.network.asgi import send_until_disconnect

MOST_STREAMS = 200
BEAT = 15.0  # seconds between two signs of life
PATIENCE = 30.0  # seconds that a reader may take for a piece: then it is gone, or will connect again
PAUSE = 0.1  # seconds between two notices
RETRY = 1_000  # milliseconds after which a browser connects again


class Stream:
    """One page's stream, as its own application, so that sending can be cancelled."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._open = 0  # those that have only begun count too

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if self._open >= MOST_STREAMS or self.hub.closing:
            message = "the console is stopping" if self.hub.closing else f"{MOST_STREAMS} pages are connected already"
            hint = "Start it again." if self.hub.closing else "Close some tabs."
            refused = json_response({"error": {"what": message, "why": "rate_limited", "next": hint}}, 503)
            await refused(scope, receive, send)
            return
        if request.method == "HEAD":
            await Response(media_type="text/event-stream")(scope, receive, send)
            return
        self._open += 1
        try:
            await self._serve(receive, send, _after(request))
        finally:
            self._open -= 1

    async def _serve(self, receive: Receive, send: Send, after: int | None) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send_until_disconnect(receive, self._send(send, headers, after))

    async def _send(self, send: Send, headers: list[tuple[bytes, bytes]], after: int | None) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with contextlib.aclosing(self._pieces(after)) as pieces:
            async for piece in pieces:
                body = piece.encode("utf-8", "replace")
                async with asyncio.timeout(PATIENCE):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self, after: int | None) -> AsyncGenerator[str, None]:
        async with self.hub.listener(after) as (listener, gap):
            yield f"retry: {RETRY}\n\n"
            if gap is not None:
                yield _gap(*gap)
            noticed = 0.0
            loop = asyncio.get_running_loop()
            while not self.hub.closing:
                wait_for_news = BEAT
                entries, missed = self.hub.take(listener)
                if missed is not None:
                    yield _gap(missed[0], missed[1])
                if entries:
                    yield "".join(f"event: event\nid: {one.number}\ndata: {one.data}\n\n" for one in entries)
                if listener.notice:
                    left = noticed + PAUSE - loop.time()
                    if left <= 0:
                        noticed = loop.time()
                        yield self._render_changes(listener)
                    else:
                        wait_for_news = left
                if entries:
                    continue
                if not await _news(listener, wait_for_news) and wait_for_news == BEAT:
                    yield ": still here\n\n"

    def _render_changes(self, listener: Listener) -> str:
        notice, listener.notice = listener.notice, Notice()
        return f"event: changed\ndata: {json.dumps(notice.to_dict(self.hub.waiting))}\n\n"


async def _news(listener: Listener, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            await listener.news.wait()
    except TimeoutError:
        return False
    listener.news.clear()
    return True


def _gap(after: int, now: int) -> str:
    return f"event: gap\ndata: {json.dumps({'after': after, 'now': now})}\n\n"


def _after(request: Request) -> int | None:
    given: Any = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    return int(given) if given.isdecimal() and len(given) < 19 else None
