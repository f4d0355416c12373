"""What a model's server says when it refuses, in words a person can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind
from forge.core.plain_values import sendable
from forge.core.provider import ProviderError

SHOWN = 500  # characters of what a server said
LONGEST = 64 * 1024  # of it that is looked at

KEY_ADVICE = "Check that the API key is right and may use this model."

Mask = Callable[[str], str]
"""Hides the keys in a text."""

_STATUS = {  # of an error that comes inside a stream, where no status is left to say it
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


class PromptTooLong(ProviderError):
    """The history does not fit the model's window: it has to be shortened before another try can work."""


class BrokeOff(ProviderError):
    """An answer that had begun did not come to its end: asking again may help, and nobody has tried yet.

    (A failure before the answer begins is tried again by the provider itself; what it raises then is final.)
    """


class Said(NamedTuple):
    """What a server said about a failure: a text for people, and its own names for it."""

    text: str
    code: str = ""


def refused(status: int, said: Said, asked: str) -> ProviderError:
    """The error for an HTTP status. `asked`: what was tried, such as "asking openai at api.openai.com"."""
    return _made(status, said, f"{asked}: HTTP {status}")


def naming_key(error: ProviderError, variable: str, *, sent: bool) -> ProviderError:
    """The same error; where the key was refused, its advice names the variable that holds the key."""
    if error.suggestion == KEY_ADVICE and variable:
        error.suggestion = (
            f"Check that the API key in {variable} is right and may use this model."
            if sent
            else f"No API key was sent: set {variable}."
        )
    return error


def broke_off(error: Any, asked: str, mask: Mask) -> ProviderError:
    """The error for an error object that comes in the middle of an answer."""
    found = refused_inside(error, f"{asked}: the answer broke off", mask)
    if not found.passing:
        return found
    return BrokeOff(found.message, found.kind, found.suggestion, passing=True, status=found.status)


def refused_inside(error: Any, asked: str, mask: Mask) -> ProviderError:
    """The error for an error object that comes inside a stream; its status is 0 where it names none."""
    said = said_in(error, mask)
    code = error.get("code") if isinstance(error, Mapping) else None
    words = said.code.split(", ")
    status = code if type(code) is int and 400 <= code <= 599 else 0
    status = status or next((_STATUS[word] for word in words if word in _STATUS), 0)
    return _made(status, said, asked)


def said_in_body(raw: bytes, content_type: str, mask: Mask) -> Said:
    """What an error's body says: the message of a JSON object, the title of a page, or the text as it is."""
    text = raw.decode(errors="replace")
    try:
        return said_in(json.loads(text), mask)
    except (ValueError, RecursionError):
        pass
    if "html" in content_type or text.lstrip()[:1] == "<":
        return Said(shown(_title(text), mask))
    return Said(shown(text, mask))


def said_in(error: Any, mask: Mask) -> Said:
    """The message and the codes of an error object, in any of the shapes servers use."""
    if isinstance(error, list) and len(error) == 1:
        error = error[0]
    if isinstance(error, Mapping) and isinstance(inner := error.get("error"), Mapping | str) and inner:
        error = inner
    if not isinstance(error, Mapping):
        return Said(shown(error if isinstance(error, str) else json.dumps(error), mask))
    codes = [value for key in ("type", "code") if isinstance(value := error.get(key), str) and value != "error"]
    text = next((value for key in ("message", "detail", "error", "msg") if (value := error.get(key))), "")
    text = text if isinstance(text, str) else json.dumps(text)
    metadata = error.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(raw := metadata.get("raw"), str):
        text = f"{text} ({raw})"  # what the server behind a router said
    return Said(shown(text or json.dumps(error), mask), shown(", ".join(dict.fromkeys(codes)), mask))


def shown(text: str, mask: Mask) -> str:
    """On one line, without keys and control characters, in so many characters."""
    text = mask(sendable(text[:LONGEST]))  # before it is cut: half a key is a key
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _title(page: str) -> str:
    found = re.search(r"(?is)<title[^>]{0,200}>(.{0,1000}?)</title", page) or re.search(
        r"(?is)<h1[^>]{0,200}>(.{0,1000}?)</h1", page
    )
    from html import unescape  # only for servers that answer with a page

    return unescape(re.sub(r"<[^>]{0,1000}>", " ", found[1] if found else page))


def _made(status: int, said: Said, start: str) -> ProviderError:
    kind, suggestion, passing = _judged(status, said)
    named = f" ({said.code})" if said.code and said.code not in said.text else ""
    message = f"{start}: {said.text}{named}" if said.text else f"{start}{named}"
    make = PromptTooLong if status in (400, 413, 422) and _is_too_long(status, said) else ProviderError
    return make(message, kind, suggestion, passing=passing, status=status)


def _is_too_long(status: int, said: Said) -> bool:
    return status == 413 or _TOO_LONG.search(f"{said.code} {said.text}") is not None


def _judged(status: int, said: Said) -> tuple[ErrorKind, str, bool]:
    """Who has to act, on what, and whether another try may work."""
    if status == 402 or (status in (400, 403, 429) and _NO_MONEY.search(f"{said.code} {said.text}")):
        return ErrorKind.CONFIG, "Add credit to the account, or choose another model with --model.", False
    if status == 429:
        return ErrorKind.RATE_LIMITED, "Wait a little and try again, or choose another model with --model.", True
    if status in (401, 403):
        return ErrorKind.CONFIG, KEY_ADVICE, False
    if status == 404:
        return ErrorKind.CONFIG, "Check the model's name and the base URL.", False
    if 300 <= status < 400:
        return ErrorKind.CONFIG, "Redirects are not followed: set the base URL to where it points.", False
    if status in (408, 409, 504):
        return ErrorKind.TIMEOUT if status != 409 else ErrorKind.SYSTEM, "Try again in a moment.", True
    if status >= 500 or not status:
        return ErrorKind.SYSTEM, "The server has a problem; try again in a moment, or choose another model.", True
    if _is_too_long(status, said):
        return ErrorKind.VALIDATION, "Shorten the conversation, or choose a model with a larger window.", False
    return ErrorKind.VALIDATION, "Change the request: the server does not take it as it is.", False
