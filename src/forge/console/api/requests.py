"""Reads requests of the page, and writes answers and errors."""

from __future__ import annotations

import gzip
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from forge.console.console_state import ConsoleState
from forge.console.event_entries import EventEntry, dump_json
from forge.console.guard import LOOK_KEY
from forge.console.page_files import LEAST, accepts_gzip
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import text_of
from forge.permissions.rules import PolicyError

log = logging.getLogger("forge.console")

LONGEST_QUERY = 2_000
LONGEST_TEXT = 200_000  # characters of a prompt
STATUS = {
    ErrorKind.VALIDATION: 400,
    ErrorKind.USER: 409,
    ErrorKind.SYSTEM: 503,
    ErrorKind.PERMISSION: 403,
    ErrorKind.SECURITY: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.TIMEOUT: 503,
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.CONFIG: 409,
    ErrorKind.CANCELLED: 503,
}

NEXT = {  # where whoever raised an error does not say it
    ErrorKind.VALIDATION: "Correct the request and try again.",
    ErrorKind.SYSTEM: "Try again in a moment. `forge doctor` finds common problems.",
    ErrorKind.PERMISSION: "The Policy page shows the rules and explains decisions.",
    ErrorKind.SECURITY: "This cannot be allowed here. Choose another way.",
    ErrorKind.CONFIG: "Change the configuration and start the console again.",
    ErrorKind.RATE_LIMITED: "Wait a moment and try again.",
    ErrorKind.TIMEOUT: "Try again in a moment.",
}
LOOK_AGAIN = "Reload the page to see the current state."

Answering = Callable[[ConsoleState, "ApiRequest"], Any]


class ApiError(ToolError):
    """An error with further fields for the page."""

    def __init__(self, error: ToolError, status: int, **beside: Any) -> None:
        super().__init__(error.message, error.kind, error.suggestion)
        self.status, self.beside = status, beside


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """An answer with another status than 200."""

    status: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Download:
    """Content to be saved, never shown: its author does not choose its type."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Events:
    """A page of events; it is long, so it is joined without being parsed."""

    entries: Sequence[EventEntry]
    following: int | None
    more: str = ""

    def to_text(self) -> str:
        lines = ",".join(one.line() for one in self.entries)
        return f'{{"events":[{lines}],"next":{"null" if self.following is None else self.following}{self.more}}}'


@dataclass(frozen=True, slots=True)
class ApiRequest:
    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    look_key: str = ""  # what this page adds to an address that it cannot send a header to

    def text(self, name: str, otherwise: str = "") -> str:
        value = self.query.get(name, otherwise)
        if len(value) > LONGEST_QUERY:
            message = f"{name} is longer than {LONGEST_QUERY:,} characters"
            raise ToolError(message, ErrorKind.VALIDATION, "Send a shorter value.")
        return value

    def number(self, name: str, otherwise: int, least: int, most: int) -> int:
        value = self.query.get(name, "")
        if not value:
            return otherwise
        if not value.removeprefix("-").isdecimal() or len(value) > 20:
            message = f"{name} must be a number, and is {value[:40]!r}"
            raise ToolError(message, ErrorKind.VALIDATION, f"Use a whole number from {least:,} to {most:,}.")
        return max(least, min(int(value), most))

    def body_text(self, name: str, *, needed: bool = True, most: int = LONGEST_TEXT) -> str:
        """Returns a text of the body."""
        value = self.body.get(name)
        if value is None and not needed:
            return ""
        if not isinstance(value, str) or (needed and not value.strip()):
            hint = f'Send {{"{name}": "…"}} in the JSON body.'
            raise ToolError(f"the request needs the text {name}", ErrorKind.VALIDATION, hint)
        if len(value) > most:
            raise ToolError(f"{name} is longer than {most:,} characters", ErrorKind.VALIDATION, "Shorten it.")
        return value

    def body_flag(self, name: str) -> bool | None:
        """Returns a yes or no of the body, or None if it is not there."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise ToolError(f"{name} must be true or false", ErrorKind.VALIDATION, "Send one of the two, or neither.")
        return value

    def body_object(self, name: str, *, needed: bool = True) -> dict[str, Any] | None:
        """Returns an object of the body."""
        value = self.body.get(name)
        if value is None and not needed:
            return None
        if not isinstance(value, dict):
            hint = f'Send {{"{name}": {{}}}} at least.'
            raise ToolError(f"the request needs the object {name}", ErrorKind.VALIDATION, hint)
        return value


def make_endpoint(console: ConsoleState, answer: Answering) -> Callable[[Request], Any]:
    """Returns an endpoint. A plain function runs in a thread, because stores block."""

    async def endpoint(request: Request) -> Response:
        try:
            key = request.scope.get(LOOK_KEY, "")
            path = {name: unquote(one) if isinstance(one, str) else one for name, one in request.path_params.items()}
            asked = ApiRequest(path, dict(request.query_params), await _body(request), key)
            if inspect.iscoroutinefunction(answer):
                return await _packed(request, _response(await answer(console, asked)))
            return await _packed(request, _response(await run_in_threadpool(answer, console, asked)))
        except ApiError as error:
            return _error(error.status, error, error.beside)
        except ToolError as error:
            return _error(STATUS[error.kind], error)
        except PolicyError as error:
            hint = "Write allow, ask or deny, then a permission, then a target: allow write notes/**"
            return _error(400, ToolError(str(error), ErrorKind.VALIDATION, hint))
        except Exception as error:
            log.exception("%s %s", request.method, request.url.path)
            message = console.secrets.mask_all(f"internal error: {type(error).__name__}: {text_of(error)}"[:500])
            return _error(
                500,
                ToolError(
                    message, ErrorKind.SYSTEM, "Start `forge console --debug`, try again, and report what it logs."
                ),
            )

    return endpoint


def json_response(value: Any, status: int = 200) -> Response:
    return Response(dump_json(value), status, media_type="application/json")


async def _body(request: Request) -> Mapping[str, Any]:
    if request.method != "POST":
        return {}
    try:
        found = json.loads(await request.body() or b"{}")
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        hint = "Send at least {}. NaN, infinite numbers and unpaired surrogates are not allowed."
        raise ToolError("the body must be a JSON object", ErrorKind.VALIDATION, hint)
    return found


def _response(value: Any) -> Response:
    if isinstance(value, Download):
        return _download_response(value)
    if isinstance(value, StatusAnswer):
        return json_response(value.value, value.status)
    if isinstance(value, Events):
        return Response(value.to_text(), media_type="application/json")
    return json_response(value)


async def _packed(request: Request, response: Response) -> Response:
    """Returns it compressed where it is worth it. No other site can add words of its own and watch the length."""
    body = bytes(response.body)
    if len(body) < LEAST or response.media_type != "application/json" or not accepts_gzip(request):
        return response
    packed = await run_in_threadpool(gzip.compress, body, 1)  # quickly: most browsers are on this machine
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(packed, response.status_code, headers, response.media_type)


def _download_response(value: Download) -> Response:
    plain_name = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in value.name)[-100:]
    named = f"attachment; filename=\"{plain_name or 'file'}\"; filename*=UTF-8''{quote(value.name[-100:], safe='')}"
    return Response(value.content, media_type="application/octet-stream", headers={"content-disposition": named})


def _error(status: int, error: ToolError, beside: Mapping[str, Any] | None = None) -> Response:
    following = error.suggestion or NEXT.get(error.kind, LOOK_AGAIN)
    told = {"what": error.message, "why": str(error.kind), "next": following}
    return json_response({"error": told, **(beside or {})}, status)
