"""An ASGI app as the server of an API, in this process: FastAPI, Starlette or another. No socket is opened for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import unquote

from forge.core.context import entered
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.untrusted import one_line
from forge.network.address import Url, read_url
from forge.network.body import Response
from forge.network.client import fetch
from forge.network.headers import SAFE, RequestLimits
from forge.openapi.document import LARGEST_JSON, Document, parse_document, unreadable

if TYPE_CHECKING:
    import httpcore2

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""An app such as `FastAPI()` or `Starlette()`: called with the scope, `receive` and `send`."""

LIFESPAN_SECONDS = 60.0  # to start, and to stop
HOST = "in-process.invalid"  # the name of no server: `.invalid` never leads anywhere

log = logging.getLogger(__name__)

_Message = dict[str, Any]
_VERSIONS = {"version": "3.0", "spec_version": "2.3"}
_MOST_WRAPPERS = 100
_PARAMETER = re.compile(r"\{[^{}]*\}")
_CLIENT = ("forge", 0)  # no address: an app that trusts 127.0.0.1 must not trust a model
_ADVICE = "Serve one at /openapi.json, or pass it: openapi(document, server=app)."


class AppFailed(Exception):
    """Holds what the app raised, so that nobody takes it for a failure of a connection."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def is_app(given: object) -> TypeGuard[AsgiApp]:
    """Returns whether it is an ASGI app. Raises `DefinitionError` for another callable, such as a WSGI app."""
    if not callable(given) or isinstance(given, str | Mapping):
        return False
    call = given if inspect.isroutine(given) else type(given).__call__
    if isinstance(given, type) or not inspect.iscoroutinefunction(inspect.unwrap(call)):
        raise DefinitionError(
            f"openapi({one_line(repr(given), 80)}): it is not an ASGI app, which is awaited with a scope, receive and "
            "send; pass the object that FastAPI() or Starlette() returned, or a document"
        )
    return True


def check_start(app: AsgiApp) -> None:
    """Raises `ToolError` inside the app's own lifespan, which would wait for itself."""
    if ("app", id(app)) in entered.get():
        raise ToolError(
            f"cannot start the app {_name(app)}: its own lifespan opens it",
            ErrorKind.CONFIG,
            "Pass lifespan=False where the app is served in this process already.",
        )


class AppServer:
    """Answers requests with an app. `lifespan`: starts and stops the app; False for one that somebody else runs.

    Every request is a task of its own. A caller that goes away cancels it; what an app does after its answer goes on.
    """

    def __init__(self, app: AsgiApp, url: str, *, lifespan: bool) -> None:
        self._app = app
        self._given = url
        self._url = read_url(url or f"http://{HOST}")
        self._has_lifespan = lifespan
        self._state: dict[str, Any] = {}
        self._stop = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    def choose_url(self, name: str) -> str:
        """Returns the URL that the requests have: the one that a person gave, or one of the source's name."""
        url = self._given or f"http://{name.replace('_', '-')}.{HOST}"
        self._url = read_url(url)
        return url

    async def open(self) -> None:
        """Starts the app. Raises `ToolError` of kind `config_error` if that fails."""
        if not self._has_lifespan:
            return
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        token = entered.set((*entered.get(), ("app", id(self._app))))
        self._life = asyncio.create_task(self._live(started))
        entered.reset(token)
        try:
            async with asyncio.timeout(LIFESPAN_SECONDS):
                problem = await started
        except TimeoutError:
            problem = f"it was not ready after {LIFESPAN_SECONDS:g} s"
        except asyncio.CancelledError:
            self._life.cancel()
            raise
        if problem:
            self._life.cancel()
            raise ToolError(
                f"cannot start the app {_name(self._app)}: {one_line(problem, 300)}",
                ErrorKind.CONFIG,
                "Fix its lifespan, or pass lifespan=False where the app is served in this process already.",
            )

    async def close(self) -> None:
        """Cancels the running requests, then stops the app."""
        for one in self._requests:
            one.cancel()
        if self._requests:
            await asyncio.wait(self._requests, timeout=LIFESPAN_SECONDS)
        if self._life is not None:
            self._stop.set()
            _, late = await asyncio.wait({self._life}, timeout=LIFESPAN_SECONDS)
            for one in late:
                log.warning("the app %s did not stop within %g s", _name(self._app), LIFESPAN_SECONDS)
                one.cancel()

    async def read_document(self) -> Document:
        """Returns the app's own document: what `app.openapi()` returns, or what it serves at `/openapi.json`."""
        name = f"of the app {_name(self._app)}"
        make = getattr(self._app, "openapi", None)
        if callable(make):
            from pydantic_core import to_json  # heavy

            try:
                return await parse_document(to_json(make()), name)
            except ToolError:
                raise
            except Exception as error:  # the app's own code
                raise unreadable(name, f"app.openapi() raised {type(error).__name__}: {error}"[:300]) from None
        limits = RequestLimits(read=LIFESPAN_SECONDS, total=LIFESPAN_SECONDS, size=LARGEST_JSON)
        try:
            answer = await self.fetch("GET", f"{self._url.origin}/openapi.json", limits=limits, follow="same-host")
        except Exception as error:  # the app's own code
            raise unreadable(name, f"GET /openapi.json raised {type(error).__name__}", _ADVICE) from None
        if answer.status != 200 or answer.truncated:
            raise unreadable(name, f"it has none: GET /openapi.json answers {answer.status}", _ADVICE)
        return await parse_document(answer.body, name)

    def check_route(self, method: str, template: str, url: str, others: Iterable[str]) -> None:
        """Raises `ToolError` if the app would answer this URL with another route than the operation's.

        A value such as `me` for `/users/{id}`, or one with a slash, can lead to another operation, which may be one
        that nobody offers. Where the app's routes are not known, the document's paths, `others`, are compared.
        """
        base, path = unquote(self._url.target.rstrip("/")), _read_path(url)
        wanted = f"{base}/{template.lstrip('/')}"
        found = self._find_route(method, template, url)
        if found is None:
            known = (f"{base}/{one.lstrip('/')}" for one in others)
            is_other = path.count("/") != wanted.count("/") or any(_leads_to(one, wanted, path) for one in known)
        else:
            is_other = found != wanted
        if is_other:
            raise ToolError(
                "with these values the app would run another operation than this one",
                ErrorKind.VALIDATION,
                "Send values without a slash that are no names of other paths, or call the other operation.",
            )

    async def fetch_route(
        self, method: str, template: str, url: str, others: Collection[str], **options: Any
    ) -> Response:
        """Returns the answer of one operation. A redirect is the answer, because it could lead to any other operation.

        Only where the router itself adds or removes the slash at the end, the operation is asked there.
        """
        answer = await self.fetch(method, url, follow="none", **options)
        path, mark, query = url.partition("?")
        there, slashed = f"{_toggle_slash(path)}{mark}{query}", _toggle_slash(template)
        if (
            not _is_redirect_to(answer, method, there)
            or slashed in others
            or self._find_route(method, template, url) is not None  # the operation itself sent the redirect
        ):
            return answer
        try:
            self.check_route(method, slashed, there, others)
        except ToolError:
            return answer
        return await self.fetch(method, there, follow="none", **options)

    def _find_route(self, method: str, template: str, url: str) -> str | None:
        wanted = f"{unquote(self._url.target.rstrip('/'))}/{template.lstrip('/')}"
        return _RouteSearch(method, read_url(url).host, _read_path(url), wanted).find(self._app)

    async def fetch(self, method: str, url: str, **options: Any) -> Response:
        """Returns the app's answer as `fetch` does a server's. Raises what the app raises."""
        try:
            return await fetch(method, url, send=self.send, **options)
        except AppFailed as failed:
            error = failed.error
        raise error

    async def send(
        self, method: str, url: Url, *_: object, headers: Iterable[tuple[bytes, bytes]], content: bytes, **__: object
    ) -> httpcore2.Response:
        """Sends a request to the app. The answer's body is read as the app sends it."""
        import httpcore2  # heavy

        if (url.host, url.port) != (self._url.host, self._url.port) and url.origin != f"https://{self._url.host}":
            raise ToolError(
                f"{url.origin} is not the app: nothing is sent there", ErrorKind.SECURITY, "Call its own paths."
            )
        path, _mark, query = url.target.partition("?")
        scope = {
            "type": "http",
            "asgi": _VERSIONS,
            "http_version": "1.1",
            "method": method,
            "scheme": url.scheme,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in headers],
            "client": _CLIENT,
            "server": (url.host, url.port),
            "state": dict(self._state),
        }
        exchange = _Exchange(self._app, scope, content)
        self._requests.add(exchange.task)
        exchange.task.add_done_callback(self._requests.discard)
        status, given = await exchange.start()
        reason = next((one.phrase for one in HTTPStatus if one == status), "")
        return httpcore2.Response(
            status, headers=given, content=exchange, extensions={"reason_phrase": reason.encode("latin-1")}
        )

    async def _live(self, started: asyncio.Future[str]) -> None:
        """Runs the app's lifespan. An app that knows none ends at once, and needs none."""
        waiting = iter(("lifespan.startup",))
        problem = ""

        async def receive() -> _Message:
            kind = next(waiting, "")
            if not kind:
                await self._stop.wait()
            return {"type": kind or "lifespan.shutdown"}

        async def send(message: _Message) -> None:
            nonlocal problem
            if message["type"] == "lifespan.startup.complete" and not started.done():
                started.set_result("")
            elif message["type"] in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
                problem = str(message.get("message", "")).strip().rpartition("\n")[2] or "it reported a failure"

        try:
            await self._app({"type": "lifespan", "asgi": _VERSIONS, "state": self._state}, receive, send)
        except Exception as error:
            problem = problem and f"{type(error).__name__}: {error}"  # an app that knows no lifespan raises, too
        finally:
            if not started.done():
                started.set_result(problem)
            elif problem:
                log.error("the app %s failed as it stopped: %s", _name(self._app), one_line(problem, 300))


class _Exchange:
    """One request and its answer: the body of an answer is taken piece by piece, so the app waits for the reader."""

    def __init__(self, app: AsgiApp, scope: _Message, content: bytes) -> None:
        import anyio

        self._into, self._out = anyio.create_memory_object_stream[_Message]()
        self._content: bytes | None = content
        self._gone = asyncio.Event()
        self._error: Exception | None = None
        self._first: _Message = {}
        self._status = 0
        self._is_sent = False  # completely, by the app
        self._is_complete = False  # taken by the reader
        self.task = asyncio.create_task(self._run(app, scope))

    async def start(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Returns the status and the headers, once the first piece of the body is there."""
        try:
            begun = await self._take()
            self._status = begun["status"]
            self._first = await self._take()
            return self._status, [(bytes(name), bytes(value)) for name, value in begun.get("headers", ())]
        except BaseException:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        message = self._first
        while True:
            if body := message.get("body"):
                yield bytes(body)
            if self._is_complete:
                return
            message = await self._take()

    async def aclose(self) -> None:
        """Ends the request; what the app does after a complete answer goes on."""
        self._gone.set()
        self._out.close()
        if not self._is_complete:
            self.task.cancel()

    async def _take(self) -> _Message:
        import anyio

        try:
            message = await self._out.receive()
        except anyio.EndOfStream:
            await self._raise_failure()
            raise AppFailed(RuntimeError("the app ended without a complete answer")) from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_complete = True
            if self._status >= 500:  # Starlette answers, then raises what happened
                await self._raise_failure()
        return message

    async def _raise_failure(self) -> None:
        await asyncio.wait({self.task})
        if self._error is not None:
            error, self._error = self._error, None
            raise AppFailed(error)

    async def _run(self, app: AsgiApp, scope: _Message) -> None:
        with self._into:
            try:
                await app(scope, self._receive, self._send)
            except Exception as error:
                self._error = error
                if self._is_sent and self._status < 500:
                    log.exception("%s %s: the app failed after its answer", scope["method"], scope["path"])

    async def _receive(self) -> _Message:
        if self._content is not None:
            body, self._content = self._content, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        import anyio

        if message["type"] in ("http.response.start", "http.response.body") and not self._is_sent:
            self._is_sent = message["type"] == "http.response.body" and not message.get("more_body", False)
            try:
                await self._into.send(message)
            except anyio.BrokenResourceError:
                raise OSError("the caller is gone") from None


def _read_path(url: str) -> str:
    return unquote(read_url(url).target.partition("?")[0])


def _toggle_slash(path: str) -> str:
    return path[:-1] if path.endswith("/") else f"{path}/"


def _is_redirect_to(answer: Response, method: str, url: str) -> bool:
    """Returns whether the answer sends the same request to this URL."""
    if not answer.location or (answer.status not in (307, 308) and method not in SAFE):
        return False
    try:
        target, wanted = read_url(answer.location), read_url(url)
    except ToolError:
        return False
    queries = [one.target.partition("?")[2] for one in (target, wanted)]
    return target.origin == wanted.origin and _read_path(str(target)) == _read_path(url) and queries[0] == queries[1]


def _leads_to(other: str, own: str, path: str) -> bool:
    """Returns whether the path is one of another template that says more about it than the operation's own."""
    others, owns, parts = other.split("/"), own.split("/"), path.split("/")
    if other == own or len(others) != len(parts):
        return False
    if not all(re.fullmatch(_literal_pattern(one), part, re.DOTALL) for one, part in zip(others, parts, strict=True)):
        return False
    pairs = zip(others, owns, strict=False)
    return any(one != mine and not _PARAMETER.fullmatch(one) for one, mine in pairs)


def _literal_pattern(segment: str) -> str:
    return ".*".join(re.escape(one) for one in _PARAMETER.split(segment))


@dataclass(frozen=True, slots=True)
class _RouteSearch:
    """Finds the route that takes a request, as Starlette does."""

    method: str
    host: str
    path: str
    wanted: str  # the template of the operation

    def find(self, app: Any, root: str = "", prefix: str = "") -> str | None:
        """Returns the template of the first route that takes the request; None if none does, or routes are unknown.

        `root` is the part of the path that mounts took, and `prefix` the templates of these.
        """
        app = _unwrap(app)
        routes = getattr(app, "routes", None)
        if not isinstance(routes, Sequence):
            return None
        own = getattr(app, "root_path", "")
        if isinstance(own, str) and own:
            root = prefix = own
        path, rest = self.path, self.path[len(root) :]
        if path.startswith(root) and rest[:1] in ("", "/"):
            path = rest
        else:
            prefix = ""
        for route in _list_routes(routes):
            pattern, methods = getattr(route, "path_regex", None), getattr(route, "methods", None)
            host = getattr(route, "host_regex", None)
            if host is not None:
                if host.match(self.host):
                    return self.find(route.app, root, prefix)
                continue
            found = pattern.match(path) if pattern is not None else None
            if found is None or (methods and self.method not in methods):
                continue
            template = getattr(route, "path_format", None)
            if not isinstance(template, str):
                return None
            if hasattr(route, "routes") and "path" in found.groupdict():  # a mounted app
                below = f"{prefix}{route.path}"
                taken = path[: len(path) - len(found["path"]) - 1]
                inner = self.find(route.app, f"{root}{taken}", below)
                if inner is not None or self.wanted.startswith(f"{below}/"):
                    return inner
            return f"{prefix}{template}"
        return None


def _unwrap(app: Any) -> Any:
    """Returns the app in its middleware: each keeps the next one as `app`."""
    for _ in range(_MOST_WRAPPERS):
        if isinstance(getattr(app, "routes", None), Sequence) or not callable(getattr(app, "app", None)):
            break
        app = app.app
    return app


def _list_routes(routes: Sequence[Any]) -> Iterator[Any]:
    """Returns routes in their order. FastAPI keeps those of an included router apart, and says how to list them."""
    fastapi = sys.modules.get("fastapi.routing")
    listing: Callable[[Sequence[Any]], Iterator[Any]] = getattr(fastapi, "iter_route_contexts", iter)
    return listing(routes)


def _name(app: AsgiApp) -> str:
    return one_line(getattr(app, "title", None) or type(app).__name__, 60)
