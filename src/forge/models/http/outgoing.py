"""A request that is ready to be sent, and its errors as messages that a person can act on."""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from forge.core.errors import ErrorKind
from forge.core.plain_values import sendable
from forge.core.provider import ProviderError
from forge.core.secrets import Secrets

Sign = Callable[[str, bytes], Awaitable[Mapping[str, str]]]
"""Returns the headers that authorise one try, from its URL and its body. Raises `ProviderError`."""

_HARMLESS = {"accept", "anthropic-beta", "anthropic-version", "content-type", "http-referer", "user-agent", "x-title"}


@dataclass
class OutgoingRequest:
    """A request that can be sent several times."""

    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout: float
    silence: float
    action: str  # such as "asking openai at api.openai.com", for errors
    sign: Sign | None = None  # a token may expire, and a signature has a time: it is called for each try

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout
        self.url, login = split_login(self.url)
        self.headers = {**login, **self.headers}
        self.mask = mask_for(self.headers)

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    async def authorise(self) -> Mapping[str, str]:
        """Returns the headers of the next try, and masks their values from then on. Raises `ProviderError`."""
        if self.sign is not None:
            self.headers = {**self.headers, **await self.sign(self.url, self.content)}
            self.mask = mask_for(self.headers)
            self.check()
        return self.headers

    def check(self) -> None:
        """Checks the headers before the HTTP library does, which would quote their values."""
        for name, value in self.headers.items():
            written = name + value
            if not written.isascii() or not written.isprintable() or value != value.strip():
                raise self.error(
                    f"the value of the header {name!a} contains characters that cannot be sent",
                    ErrorKind.CONFIG,
                    "Check the API key for stray spaces, line breaks and quotation marks.",
                )

    def error(self, what: str, kind: ErrorKind, suggestion: str, *, passing: bool = False) -> ProviderError:
        return ProviderError(f"{self.action}: {what}", kind, suggestion, passing=passing)


NO_REAL_REQUESTS = "FORGE_NO_REAL_REQUESTS"  # set in tests: a model that is not scripted raises


def refuse_in_tests(action: str) -> None:
    """Raises `ProviderError` in a test that allows no real requests."""
    if os.environ.get(NO_REAL_REQUESTS, "") not in ("", "0"):
        hint = "Give the test a model: `with agent.override(model=Scripted(…)):`; or unset the variable."
        raise ProviderError(f"{action}: {NO_REAL_REQUESTS} is set, so nothing was sent", ErrorKind.CONFIG, hint)


def encode_body(body: dict[str, Any], label: str) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(
            f"asking {label}: the request cannot be written as JSON: {clean_message(str(error), str)}",
            ErrorKind.VALIDATION,
            "Use only strings, finite numbers, lists and objects in the options.",
        ) from None


def host_of(url: str) -> str:
    """Returns the part of a URL that may be shown: the rest may hold a key."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "an unknown host"
    except ValueError:
        return "an unknown host"


def split_login(url: str) -> tuple[str, dict[str, str]]:
    """Returns a URL without its user name and password, and the header that sends them."""
    start, separator, rest = url.partition("://")
    login, at, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if not at:
        return url, {}
    basic = b64encode(unquote(login).encode(errors="replace")).decode()
    return start + separator + rest[len(login) + 1 :], {"authorization": f"Basic {basic}"}


def mask_for(headers: Mapping[str, str]) -> Mask:
    """Returns a function that hides the values of these headers, known harmless ones excepted."""
    secrets = Secrets()
    for name, value in headers.items():
        if name.lower() not in _HARMLESS:
            secrets.learn((value, value.rpartition(" ")[2]))
    return secrets.mask_all


# --- Turns the errors of a model's server into messages that a person can act on.


LONGEST_MESSAGE = 500  # characters of what a server said
LONGEST_READ = 64 * 1024  # characters of a message that are read

KEY_ADVICE = "Check that the API key is correct and may use this model."

Mask = Callable[[str], str]
"""Hides the keys in a text."""

_STATUS = {  # statuses of errors inside a stream, which have no HTTP status
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_image": 400,
    "image_too_large": 400,
    "unsupported_image_media_type": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens": 429,
    "requests": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_NO_MONEY = re.compile(
    r"(?i)insufficient_quota|billing_(?:error|hard_limit)|credit balance|insufficient (?:credits|balance)"
)
_TOO_LONG = re.compile(
    r"(?i)context_length_exceeded|request_too_large|maximum context length|context (?:length|window|size)"
    r"|prompt is too long|(?:prompt|input|request) (?:is )?too (?:long|large)|too many (?:input )?tokens"
)
_WITHOUT_TOOLS = (ErrorKind.VALIDATION, "Write text: before the model's name, to describe the tools in its prompt.")
_NO_TOOLS = re.compile(
    r"(?i)does(?: not|n't) support (?:tools|tool use|tool call|function)|tools param requires|enable-auto-tool-choice"
    r"|(?:tool use|tool calling|function calling) is not supported|no endpoints found that support tool use"
)


class PromptTooLong(ProviderError):
    """The history does not fit the model's window: it must be shortened before another try."""


class NoTools(ProviderError):
    """The model cannot call tools natively; it may write calls in its text."""


class BrokeOff(ProviderError):
    """An answer began but did not end: asking again may help, and was not tried yet.

    (The provider itself retries a failure before the answer begins; the error that it raises then is final.)
    """


class ServerMessage(NamedTuple):
    """A server's error: a message for people, and the server's own code."""

    text: str
    code: str = ""


def status_error(status: int, said: ServerMessage, action: str) -> ProviderError:
    """Returns the error for an HTTP status. `action`: such as "asking openai at api.openai.com"."""
    return _make_error(status, said, f"{action}: HTTP {status}")


def add_key_advice(error: ProviderError, variable: str, *, sent: bool) -> ProviderError:
    """Returns the same error; if the key was refused, its advice names the variable that holds the key."""
    if error.suggestion == KEY_ADVICE and variable:
        error.suggestion = (
            f"Check that the API key in {variable} is correct and may use this model."
            if sent
            else f"No API key was sent: set {variable}."
        )
    return error


def broke_off_error(error: Any, action: str, mask: Mask) -> ProviderError:
    """Returns the error for an error object in the middle of an answer."""
    found = error_in_stream(error, f"{action}: the response stopped before its end", mask)
    if not found.passing:
        return found
    return BrokeOff(found.message, found.kind, found.suggestion, passing=True, status=found.status)


def error_in_stream(error: Any, action: str, mask: Mask) -> ProviderError:
    """Returns the error for an error object inside a stream; its status is 0 if it names none."""
    said = read_error(error, mask)
    code = error.get("code") if isinstance(error, Mapping) else None
    words = said.code.split(", ")
    status = code if type(code) is int and 400 <= code <= 599 else 0
    status = status or next((_STATUS[word] for word in words if word in _STATUS), 0)
    return _make_error(status, said, action)


def read_error_body(raw: bytes, content_type: str, mask: Mask) -> ServerMessage:
    """Reads an error's body: the message of a JSON object, the title of a page, or the plain text."""
    text = raw.decode(errors="replace")
    try:
        return read_error(json.loads(text), mask)
    except (ValueError, RecursionError):
        pass
    if "html" in content_type or text.lstrip()[:1] == "<":
        return ServerMessage(clean_message(_find_title(text), mask))
    return ServerMessage(clean_message(text, mask))


def read_error(error: Any, mask: Mask) -> ServerMessage:
    """Reads the message and the codes of an error object, in any of the shapes that servers use."""
    if isinstance(error, list) and len(error) == 1:
        error = error[0]
    if isinstance(error, Mapping) and isinstance(inner := error.get("error"), Mapping | str) and inner:
        error = inner
    if not isinstance(error, Mapping):
        return ServerMessage(clean_message(error if isinstance(error, str) else json.dumps(error), mask))
    codes = [value for key in ("type", "code") if isinstance(value := error.get(key), str) and value != "error"]
    text = next((value for key in ("message", "detail", "error", "msg") if (value := error.get(key))), "")
    text = text if isinstance(text, str) else json.dumps(text)
    metadata = error.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(raw := metadata.get("raw"), str):
        text = f"{text} ({raw})"  # the message of the server behind a router
    return ServerMessage(
        clean_message(text or json.dumps(error), mask), clean_message(", ".join(dict.fromkeys(codes)), mask)
    )


def clean_message(text: str, mask: Mask) -> str:
    """Returns the text on one line, without keys and control characters, up to the longest length."""
    text = mask(sendable(text[:LONGEST_READ]))  # before the text is cut: half a key is still a secret
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def _find_title(page: str) -> str:
    found = re.search(r"(?is)<title[^>]{0,200}>(.{0,1000}?)</title", page) or re.search(
        r"(?is)<h1[^>]{0,200}>(.{0,1000}?)</h1", page
    )

    return unescape(re.sub(r"<[^>]{0,1000}>", " ", found[1] if found else page))


def _make_error(status: int, said: ServerMessage, start: str) -> ProviderError:
    lacks_tools = 400 <= status <= 501 and status != 429 and _NO_TOOLS.search(said.text) is not None
    kind, suggestion, passing = _judge_status(status, said) if not lacks_tools else (*_WITHOUT_TOOLS, False)
    named = f" ({said.code})" if said.code and said.code not in said.text else ""
    message = f"{start}: {said.text}{named}" if said.text else f"{start}{named}"
    too_long = status in (400, 413, 422) and _is_too_long(status, said)
    make = NoTools if lacks_tools else PromptTooLong if too_long else ProviderError
    return make(message, kind, suggestion, passing=passing, status=status)


def _is_too_long(status: int, said: ServerMessage) -> bool:
    return status == 413 or _TOO_LONG.search(f"{said.code} {said.text}") is not None


def _judge_status(status: int, said: ServerMessage) -> tuple[ErrorKind, str, bool]:
    """Returns the error's kind, the advice, and True if another try may work."""
    if status == 402 or (status in (400, 403, 429) and _NO_MONEY.search(f"{said.code} {said.text}")):
        return ErrorKind.CONFIG, "Add credit to the account, or choose another model with --model.", False
    if status == 429:
        return ErrorKind.RATE_LIMITED, "Wait a little and try again, or choose another model with --model.", True
    if status in (401, 403):
        return ErrorKind.CONFIG, KEY_ADVICE, False
    if status == 404:
        return ErrorKind.CONFIG, "Check the model's name and the base URL.", False
    if 300 <= status < 400:
        return ErrorKind.CONFIG, "Redirects are not followed: set the base URL to the redirect's target.", False
    if status in (408, 409, 504):
        return ErrorKind.TIMEOUT if status != 409 else ErrorKind.SYSTEM, "Try again in a moment.", True
    if status >= 500 or not status:
        return ErrorKind.SYSTEM, "The server has a problem; try again in a moment, or choose another model.", True
    if _is_too_long(status, said):
        return ErrorKind.VALIDATION, "Shorten the conversation, or choose a model with a larger window.", False
    return ErrorKind.VALIDATION, "Change the request: the server rejects it.", False
