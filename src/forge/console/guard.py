"""Refuses foreign requests before anything else reads them, and adds security headers to every answer.

The page is for one browser on this machine. Other sites in that browser can send requests here, or lead a name of
theirs here: they have another Host, another Origin, or no cookie. Other servers of this machine are given the cookie by
that browser, whatever their port: they do not have the page's token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge.network.asgi import drain_body, read_body

MAX_BODY = 1_000_000  # bytes
PATIENCE = 10.0  # seconds for a body to arrive
LONGEST_PATH = 4_000

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
APPS = "/apps/"  # frames with the HTML of MCP servers
APP_SCRIPTS = "x-forge-app-scripts"  # of an answer to the guard: the scripts that the policy of this app allows
APP_POLICY = (  # sandbox: an origin of its own, without cookies; default-src: it reaches nothing
    "sandbox allow-scripts; default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
APP_HEADERS = {**HEADERS, "content-security-policy": APP_POLICY, "x-frame-options": "SAMEORIGIN"}
ENTER = "/enter"
PAGE_TOKEN = "x-forge-token"  # noqa: S105 - the name of a header
LOOK_KEY = "key"  # in the address of what a page cannot send a header for: a stream, a download

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")

Refusal = tuple[int, str, str, str]  # status, what, why, next

_CLOSED = (
    401,
    "this console does not know your browser",
    "permission_error",
    "Open it with the link that `forge console` printed; `forge console --url` prints another.",
)
_NO_TOKEN = (
    403,
    "this page lost its token",
    "security_error",
    "Open the console with a new link: `forge console --url` prints one.",
)
_TOO_LONG = (413, f"a request may have {MAX_BODY:,} bytes", "validation_error", "Send less at once.")
_ELSEWHERE = "Open the console with the link that `forge console` printed."


class ConsoleGuard:
    """Guards the application; `port` is the server's: only local names with exactly this port are answered."""

    def __init__(self, inside: ASGIApp, entrance: Entrance, port: int) -> None:
        self.inside, self.entrance = inside, entrance
        self.cookie = f"forge_console_{port}"  # cookies of all ports of a host are one jar
        names = ("127.0.0.1", "localhost", "[::1]")
        self.hosts = frozenset([*(f"{name}:{port}" for name in names), *(names if port == 80 else ())])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inside(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSockets here: uvicorn refuses what is not answered
        request = _Request(scope)
        send_with_headers = _add_headers(send, APP_HEADERS if request.path.startswith(APPS) else HEADERS)
        if (refusal := self._refusal(request)) is not None:
            await drain_body(receive)
            await _refuse(send_with_headers, refusal, request)
        elif request.path == ENTER:
            await self._enter(request, send_with_headers)
        elif request.method == "POST":
            await self._change(request, receive, send_with_headers)
        else:
            key = self.entrance.look_key(self._cookie(request))
            await self.inside({**scope, LOOK_KEY: key}, receive, send_with_headers)

    def _refusal(self, request: _Request) -> Refusal | None:
        """Checks the host name first: a page that was led here must not learn that the console exists."""
        if request.one("host").lower() not in self.hosts:
            return 421, "this server does not answer for that host", "security_error", _ELSEWHERE
        if any(not self._is_ours(one) for one in request.all("origin")):
            return 403, "pages of that Origin may not use this server", "security_error", _ELSEWHERE
        site = request.one("sec-fetch-site") or "none"
        if site not in ("same-origin", "none") and request.path != ENTER:
            return 403, "requests of other sites are not answered", "security_error", _ELSEWHERE
        if request.method not in ("GET", "HEAD", "POST"):
            return 405, f"there is no {request.method[:20]} here", "validation_error", "Use GET or POST."
        if len(request.path) > LONGEST_PATH:
            return 400, "the path is too long", "validation_error", f"Use at most {LONGEST_PATH:,} characters."
        if request.path == ENTER:
            return None
        cookie = self._cookie(request)
        if not cookie:
            return _CLOSED
        if request.method == "POST":
            return self._check_change(request, cookie)
        return _NO_TOKEN if request.path.startswith("/api/") and not self._may_look(request, cookie) else None

    def _may_look(self, request: _Request, cookie: str) -> bool:
        if self.entrance.is_page_token(cookie, request.one(PAGE_TOKEN)):
            return True
        return self.entrance.is_look_key(cookie, request.query(LOOK_KEY))

    def _cookie(self, request: _Request) -> str:
        """Returns the console's cookie: all local programs share the jar and may use its name."""
        return next((one for one in request.cookies(self.cookie) if self.entrance.knows(one)), "")

    def _check_change(self, request: _Request, cookie: str) -> Refusal | None:
        if not self.entrance.is_page_token(cookie, request.one(PAGE_TOKEN)):
            return _NO_TOKEN
        kind = request.one("content-type").partition(";")[0].strip().lower()
        if kind != "application/json":
            what = "a change must be sent as application/json"
            return 415, what, "validation_error", "Send a JSON object, with that Content-Type."
        length = request.one("content-length")
        if length and not (length.isdecimal() and int(length) <= MAX_BODY):
            return _TOO_LONG
        return None

    def _is_ours(self, origin: str) -> bool:
        scheme, _, host = origin.lower().partition("://")
        return scheme == "http" and host in self.hosts

    async def _enter(self, request: _Request, send: Send) -> None:
        """Uses up a link. Requests that only look (HEAD, prefetching) do not."""
        if request.method != "GET" or request.one("sec-purpose") or request.one("purpose"):
            hint = "Open it in a browser."
            await _refuse(send, (400, "the link was requested, but not opened", "validation_error", hint), request)
            return
        cookie = self.entrance.enter(request.query("token"))
        if cookie is None:
            message = "this link was used before, or is older than ten minutes"
            hint = "`forge console --url` prints a new one."
            await _refuse(send, (401, message, "permission_error", hint), request)
            return
        flags = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={int(STAYS)}"
        headers = [(b"set-cookie", f"{self.cookie}={cookie}; {flags}".encode()), (b"cache-control", b"no-store")]
        run = request.query("run")
        # behind the #, which is sent to nobody: the page keeps it where only pages of this port can read it
        where = f"/#/enter/{self.entrance.page_token(cookie)}" + (f"/runs/{run}" if _RUN.fullmatch(run) else "")
        if (request.one("sec-fetch-site") or "none") in ("none", "same-origin"):
            await _answer(send, 303, b"", [*headers, (b"location", where.encode())])
            return
        # from a page of elsewhere, such as a terminal in the browser: a redirect would go without the strict cookie
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url={where}"><title>Forge</title>'
        page += f'<a href="{where}">Forge</a>'
        await _answer(send, 200, page.encode(), [*headers, (b"content-type", b"text/html; charset=utf-8")])

    async def _change(self, request: _Request, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                body = await read_body(receive, MAX_BODY)
        except TimeoutError:
            await _refuse(send, (408, "the request did not arrive in time", "timeout", "Try again."), request)
            return
        if body is None:
            await _refuse(send, _TOO_LONG, request)
            return
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(given, None) or await receive()

        await self.inside(request.scope, replay, send)


class _Request:
    """The parts of a request that the guard reads. A repeated header counts as none, because readers disagree."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def one(self, name: str) -> str:
        found = self._headers.get(name, [])
        return found[0] if len(found) == 1 else ""

    def all(self, name: str) -> list[str]:
        return self._headers.get(name, [])

    def cookies(self, name: str) -> list[str]:
        """Returns every value of that name, whatever other programs wrote beside it."""
        pairs = (one.partition("=") for one in ";".join(self.all("cookie")).split(";"))
        return [value.strip() for key, _, value in pairs if key.strip() == name]

    def query(self, name: str) -> str:
        found = parse_qs(self.scope.get("query_string", b"").decode("latin-1")).get(name, [])
        return found[0] if len(found) == 1 else ""


def _add_headers(send: Send, added: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower().decode(): value for name, value in message.get("headers", ())}
            scripts = given.get(APP_SCRIPTS, b"'none'").decode()
            ours = [
                (name.encode(), value.replace("script-src 'none'", f"script-src {scripts}").encode())
                for name, value in added.items()
            ]
            kept = [
                (name, value)
                for name, value in message.get("headers", ())
                if name.lower().decode() not in {*added, APP_SCRIPTS}
            ]
            if not any(name.lower() == b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *ours]}
        await send(message)

    return send_with_headers


async def _refuse(send: Send, refusal: Refusal, request: _Request) -> None:
    status, what, why, following = refusal
    if request.path.startswith("/api/") or request.method == "POST":
        error: dict[str, Any] = {"error": {"what": what, "why": why, "next": following}}
        body, kind = json.dumps(error).encode(), b"application/json"
    else:
        body, kind = f"Forge: {what}.\n{following}\n".encode(), b"text/plain; charset=utf-8"
    await _answer(send, status, body, [(b"content-type", kind), (b"connection", b"close")])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


# Login: a link that works once becomes a cookie, beside a token that only the console's own page can keep. The cookie
# alone is not enough: a browser sends it to every server of this machine, whatever its port. Nothing is stored for both
# but one key, so that a page goes on after a restart of the server.


OPEN = 600.0  # seconds that a link works
STAYS = 7 * 86_400.0  # seconds that a cookie counts
MOST_USED = 10_000  # links that are remembered as used: each works for ten minutes at most

Clock = Callable[[], float]


def new_key() -> str:
    return secrets.token_hex(32)


class Entrance:
    """Signs links, cookies and tokens; `born` differs at every start, so that earlier links do not work."""

    def __init__(self, key: str, born: str, clock: Clock = time.time) -> None:
        self._key = key.encode()
        self._born = born
        self._clock = clock
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def new_link(self) -> str:
        """Returns a token for `/enter?token=…`."""
        return self._sign(f"enter {self._born}", OPEN)

    def enter(self, token: str) -> str | None:
        """Returns the value of a cookie for a token that is new and unused."""
        if not self._holds(f"enter {self._born}", token):
            return None
        with self._lock:
            now = self._clock()
            self._used = {one: until for one, until in self._used.items() if until > now}
            if token in self._used or len(self._used) >= MOST_USED:
                return None
            self._used[token] = now + OPEN
        return self._sign("cookie", STAYS)

    def knows(self, cookie: str) -> bool:
        return self._holds("cookie", cookie)

    def page_token(self, cookie: str) -> str:
        """Returns the token that the page sends with every request; pages of other ports and sites cannot read it."""
        return self._mark("page", cookie)

    def look_key(self, cookie: str) -> str:
        """Returns the key for addresses, where no header can be sent: for reading only, since addresses are stored."""
        return self._mark("look", cookie)

    def is_page_token(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(self.page_token(cookie).encode(), given.encode("utf-8", "replace"))

    def is_look_key(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(self.look_key(cookie).encode(), given.encode("utf-8", "replace"))

    def _sign(self, purpose: str, lasting: float) -> str:
        body = f"{int(self._clock() + lasting)}.{secrets.token_urlsafe(24)}"
        return f"{body}.{self._mark(purpose, body)}"

    def _holds(self, purpose: str, text: str) -> bool:
        body, _, mark = text.rpartition(".")
        until = body.partition(".")[0]
        if not hmac.compare_digest(self._mark(purpose, body).encode(), mark.encode("utf-8", "replace")):
            return False
        return until.isdecimal() and int(until) > self._clock()

    def _mark(self, purpose: str, text: str) -> str:
        words = f"{purpose}\n{text}".encode("utf-8", "replace")
        return hmac.new(self._key, words, sha256).hexdigest()
