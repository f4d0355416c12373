"""Talks to HTTP servers. A redirect to another server is followed only if the gate allows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from json import dumps, loads
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment, Reconciled, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

if TYPE_CHECKING:
    from forge.network.body import Response
    from forge.network.headers import RequestLimits as Bounds


MAX_BYTES = 1024 * 1024  # of an answer's body
MAX_TIMEOUT = 300.0  # seconds
LONGEST_LINE = 2_000  # characters: JSON in longer ones is spread for the model


class HttpRequest(
    Tool,
    category=Category.BUILTIN,
    trust="untrusted",
    permissions={"network"},
    target="url",
    harmless={"method"},
    argument_aliases={"data": "body", "uri": "url", "params": "json", "json_body": "json"},
    timeout=MAX_TIMEOUT + 30,
):
    """Send an HTTP request to an API; get status, headers and body. To read a web page, use web_fetch."""

    def __init__(self, max_bytes: int = MAX_BYTES, idempotency_header: str = "") -> None:
        self.max_bytes = max_bytes
        self.idempotency_header = idempotency_header  # such as Idempotency-Key; none: no key is sent

    def is_irreversible(self, arguments: Mapping[str, Any]) -> bool:
        """Returns whether a request sends or deletes something."""
        return str(arguments.get("method", "")).upper() not in ("GET", "HEAD")

    async def run(
        self,
        ctx: ToolContext,
        method: Literal["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"],
        url: Annotated[str, ParameterLimits(example="https://api.example.com/items"), "http or https."],
        headers: dict[str, str] | None = None,
        body: Annotated[str, "Text; set Content-Type."] = "",
        json: Annotated[Any, "Sent as JSON, instead of body."] = None,
        timeout: Annotated[float, ParameterLimits(gt=0, le=MAX_TIMEOUT), "Seconds."] = 30.0,
    ) -> ToolResult:
        from forge.network.headers import RequestLimits as Bounds  # the network is loaded by the first request
        from forge.network.headers import key_header

        sent, content = _prepare_request(headers or {}, body, json)
        sent = {**sent, **key_header(self.idempotency_header, method, ctx, sent)}
        bounds = Bounds(connect=min(10.0, timeout), read=timeout, total=timeout, size=self.max_bytes)
        answer = await send_request(ctx, method, url, headers=sent, body=content, limits=bounds)
        return build_result(answer)

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        from forge.network.headers import reconcile_request

        sent, _ = _prepare_request(arguments["headers"] or {}, arguments["body"], arguments["json"])
        return reconcile_request(self.idempotency_header, arguments["method"], ctx, sent)


def build_result(answer: Any) -> ToolResult:
    """Builds the result for model, person and programs; a body that is not text is attached."""
    from forge.tools.web.content import clean_line, mark_text

    headers = _join_headers(answer.headers)
    found = answer.text()
    attachment = _attachment(answer) if found.binary and answer.body else None
    body = "" if attachment is not None else found.text
    data: dict[str, Any] = {
        "status": answer.status,
        "status_text": answer.reason,
        "headers": headers,
        "body": sendable(body),
        "truncated": answer.truncated,
    }
    notes = [found.note] if found.note and attachment is None else []
    if answer.truncated:
        notes.append(f"only the first {len(answer.body):,} bytes of the body; there are more")
    if answer.hops:
        data |= {"url": answer.url, "redirects": [*answer.hops]}
    if attachment is not None:
        data["attachment"] = attachment.name
        body = f"[{attachment.media_type}, {len(attachment.data):,} bytes, attached as {attachment.name}]"
    said = f"HTTP {answer.status} {answer.reason}".rstrip()
    lines = [
        said,
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        _spread_json(body, answer.content_type),
    ]
    return ToolResult(
        for_llm=mark_text("\n".join(lines).rstrip(), answer.url, "; ".join(notes)),
        title=f"{clean_line(said, 80)} ({len(answer.body):,} bytes)",
        data=data,
        attachments=(attachment,) if attachment is not None else (),
    )


def _prepare_request(headers: dict[str, str], body: str, value: Any) -> tuple[dict[str, str], bytes]:
    """Returns the headers and the body to send."""

    if value is None:
        return headers, _encode_body(body)
    if body:
        raise ToolError("give body or json, not both", ErrorKind.VALIDATION, "Leave one of them out.")
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:  # written out already
            value = loads(value)
        except (ValueError, RecursionError):
            pass
    if not any(name.lower() == "content-type" for name in headers):
        headers = {**headers, "Content-Type": "application/json"}
    return headers, _encode_body(dumps(value, ensure_ascii=False))


def _encode_body(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError(
            "the body has half a character (a lone surrogate)", ErrorKind.VALIDATION, "Leave it out."
        ) from None


def _join_headers(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Returns headers by name; repeated ones are joined, cookies line by line."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]}{chr(10) if name == 'set-cookie' else ', '}{value}" if name in joined else value
    return {name: sendable(value) for name, value in joined.items()}


def _attachment(answer: Any) -> Attachment:
    from forge.tools.web.content import detect_media_type, file_name

    kind = detect_media_type(answer.body, answer.content_type)
    return Attachment(kind, answer.body, file_name(answer.url, kind, answer.header("content-disposition")))


def _spread_json(body: str, content_type: str) -> str:
    """Adds line breaks to JSON that has none: a line that long would be cut."""
    if len(body) <= LONGEST_LINE or "json" not in content_type:
        return body
    if max(map(len, body.split("\n"))) <= LONGEST_LINE:
        return body
    from forge.tools.web.content import indent_json

    return indent_json(body)


# Sends requests for a call: follows a redirect to another server only if the gate allows it.

_AS_GET = (301, 302, 303)
_REDIRECTED = "after a redirect, "  # the call did not name this server


async def send_request(
    ctx: ToolContext, method: str, url: str, *, headers: Mapping[str, str], body: bytes, limits: Bounds
) -> Response:
    """Returns the answer after all redirects. Another server gets neither the body nor possible secrets."""

    from forge.network.client import fetch  # imports asyncio, which listing tools does without
    from forge.network.headers import check_headers, keep_harmless

    sent = check_headers(headers)
    hops: tuple[str, ...] = ()
    end = time.monotonic() + limits.total
    while True:
        waited_seconds = ctx.waited_seconds
        try:
            answer = await fetch(method, url, headers=sent, body=body, limits=limits, follow="same-host")
        except ToolError as error:
            if hops and not error.message.startswith(_REDIRECTED):
                error.message = f"{_REDIRECTED}{error.message}"
            raise
        hops = (*hops, *answer.hops)
        if not answer.location:
            return replace(answer, hops=hops)
        hops = (*hops, answer.url)
        if len(hops) > limits.redirects:
            raise ToolError(
                f"more than {limits.redirects} redirects", ErrorKind.USER, "Request the final URL directly."
            )
        url = answer.location
        await ctx.require("network", url)
        if answer.status == 303 or (answer.status in _AS_GET and method == "POST"):
            method = "HEAD" if method == "HEAD" else "GET"
        sent, body = keep_harmless(sent), b""
        end += ctx.waited_seconds - waited_seconds  # waiting for a person is not the server's time
        left = end - time.monotonic()
        if left <= 0:
            raise ToolError(f"no complete response within {limits.total:g} s", ErrorKind.TIMEOUT, "Allow more time.")
        limits = replace(limits, total=left)
