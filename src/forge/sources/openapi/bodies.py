"""Encodes the bodies of requests in the format that a document requires."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from forge.core.errors import ErrorKind, ToolError
from forge.sources.openapi.encoding import as_json, as_text, flatten_value
from forge.sources.openapi.plans import Body

LARGEST = 64 * 1024 * 1024  # bytes
_BYTES = "base64:"
_FILE = "file:"


class BodyFile(NamedTuple):
    """The content of a workspace file, which replaces its path in the arguments."""

    name: str
    content: bytes


def files_in(body: Body, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the arguments that name a file to send, with its path."""
    if body.kind == "bytes":
        holders = [body.argument]
    else:
        holders = [key for key, name in body.properties.items() if name in body.binary]
    found = {key: arguments.get(key) for key in holders}
    return {key: path[len(_FILE) :] for key, path in found.items() if isinstance(path, str) and path.startswith(_FILE)}


def content_of(body: Body, arguments: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Returns the content type and the content; None if there is nothing to send."""
    if body.properties:
        value: Any = {name: arguments[key] for key, name in body.properties.items() if key in arguments}
        if not value and not body.required:
            return None
    elif body.argument in arguments:
        value = arguments[body.argument]
    else:
        return None
    try:
        media, content = _encode_body(body, value)
    except UnicodeEncodeError:
        raise ToolError("the body contains an invalid character (a lone surrogate)", ErrorKind.VALIDATION) from None
    if len(content) > LARGEST:
        raise ToolError(f"the body has {len(content):,} bytes, the limit is {LARGEST:,}", ErrorKind.VALIDATION)
    return media, content


def _encode_body(body: Body, value: Any) -> tuple[str, bytes]:
    match body.kind:
        case "json":
            return body.media, as_json(value).encode()
        case "form":
            return body.media, _encode_form(value, body.encoding).encode()
        case "multipart":
            return _encode_multipart(body, value if isinstance(value, Mapping) else {"body": value})
        case "text":
            return body.media, as_text(value).encode()
    return body.media, to_bytes(value)


def to_bytes(value: Any) -> bytes:
    """Returns the content of a file, the decoded `base64:…`, or the text itself."""
    if isinstance(value, BodyFile):
        return value.content
    text = as_text(value)
    if not text.startswith(_BYTES):
        return text.encode()
    try:
        return b64decode(text[len(_BYTES) :], validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(
            "the text after base64: is not valid base64", ErrorKind.VALIDATION, "Encode the bytes again."
        ) from None


def _encode_form(value: Any, encoding: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        return as_text(value)
    pairs: list[tuple[str, str]] = []
    for name, item in value.items():
        pairs.extend(_fields(name, item, encoding.get(name)))
    return "&".join(f"{quote_plus(name, safe='[]')}={quote_plus(text)}" for name, text in pairs)


def _fields(name: str, value: Any, rules: Any) -> list[tuple[str, str]]:
    rules = rules if isinstance(rules, Mapping) else {}
    if "json" in str(rules.get("contentType", "")):
        return [(name, as_json(value))]
    style, explode = rules.get("style", "form"), rules.get("explode", True)
    if style == "deepObject" or (isinstance(value, Mapping) and "style" not in rules):
        return [*flatten_value(name, value)]  # as most servers read it; the specification does not define it
    if isinstance(value, Mapping):
        pairs = [(key, as_text(item)) for key, item in value.items()]
        return pairs if explode else [(name, ",".join(part for pair in pairs for part in pair))]
    if isinstance(value, list):
        texts = [as_text(item) for item in value]
        separator = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
        return [(name, text) for text in texts] if explode else [(name, separator.join(texts))]
    return [] if value is None else [(name, as_text(value))]


def _encode_multipart(body: Body, value: Mapping[str, Any]) -> tuple[str, bytes]:
    from secrets import token_hex  # needed only here

    boundary = f"forge-{token_hex(16)}"
    parts = []
    for name, item in value.items():
        items = item if isinstance(item, list) and not any(isinstance(one, Mapping | list) for one in item) else [item]
        parts += [_encode_part(boundary, name, one, body) for one in items if one is not None]
    media = body.media.partition(";")[0]
    return f"{media}; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _encode_part(boundary: str, name: str, value: Any, body: Body) -> bytes:
    rules = body.encoding.get(name)
    declared = rules.get("contentType") if isinstance(rules, Mapping) else None
    kind = declared.partition(",")[0].strip() if isinstance(declared, str) and declared.isprintable() else ""
    shown = _escape_name(name)
    is_file = name in body.binary or (isinstance(value, str) and value.startswith(_BYTES))
    if is_file:
        called = _escape_name(value.name) if isinstance(value, BodyFile) else shown
        content, file = to_bytes(value), f'; filename="{called}"'
        kind = kind or "application/octet-stream"
    else:
        content, file = as_text(value).encode(), ""
        kind = kind or ("application/json" if isinstance(value, Mapping | list) else "text/plain; charset=utf-8")
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{shown}"{file}\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def _escape_name(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
