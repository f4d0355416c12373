"""A tool for a configured webhook: sends JSON to one fixed URL and returns the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import SHORTEST, Secrets
from forge.core.secrets.live_text import LiveText, read_text
from forge.core.spec import Category, Permission, PermissionName, ToolSpec
from forge.core.tool import SchemaTool
from forge.core.untrusted import clean
from forge.network.address import read_url

if TYPE_CHECKING:  # loaded by the first request
    from forge.network.address import Url
    from forge.network.body import Response
    from forge.network.egress import Egress

REQUEST_SECONDS = 30.0
MAX_BYTES = 1024 * 1024  # of an answer's body
METHODS = ("POST", "PUT", "PATCH")

_SPARE = 10.0  # seconds that the pipeline allows beyond the request's own timeout
_TOKEN = re.compile(r"(?=[^/?&=#]*\d)(?=[^/?&=#]*[A-Za-z])[^/?&=#]{12,}|[^/?&=#]{20,}")
_NETWORK = frozenset({Permission.NETWORK})
_PAYLOAD = {
    "type": "object",
    "properties": {"payload": {"type": "object", "description": "The object to send as JSON."}},
    "required": ["payload"],
    "additionalProperties": False,
}


class WebhookTool(SchemaTool):
    """A tool that sends JSON to one URL, which the model does not see. Raises `ToolError` for an invalid URL or header.

    Register the URL as a secret: such URLs often are passwords.

    Args:
        name: the tool's name.
        url: the address.
        description: the tool's prompt.
        parameters: a JSON Schema of the JSON; without it the model gives any object as `payload`.
        headers: further headers.
        method: the HTTP method.
        timeout: the seconds that a request may take.
        max_bytes: the longest answer.
        idempotency_header: such as "Idempotency-Key": the server handles requests with the same value of this header
            once, so that a call may be retried.
        permissions: other permissions than `network`.

    Example:
        >>> notify = webhook("notify", "https://example.com/hook", "Tell the team.")
        >>> notify.spec.name
        'notify'
    """

    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        url: str,
        description: str = "",
        *,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | LiveText] | None = None,
        method: str = "POST",
        timeout: float = REQUEST_SECONDS,
        max_bytes: int = MAX_BYTES,
        idempotency_header: str = "",
        permissions: Collection[PermissionName | Permission] = _NETWORK,
    ) -> None:
        from forge.network.headers import check_headers

        self.method = method.upper()
        self.seconds = timeout
        self.max_bytes = max_bytes
        given = _normalize_headers(headers or {})
        self._live = {name: value for name, value in given.items() if isinstance(value, LiveText)}
        self.headers = {"Content-Type": "application/json", **{name: read_text(one) for name, one in given.items()}}
        self.idempotency_header = idempotency_header
        own = {name.lower() for name in self.headers}
        self.deduplicates_by_key = bool(idempotency_header) and idempotency_header.lower() not in own
        try:
            if self.method not in METHODS:
                raise ToolError(f"the method {method[:30]!r} is not one of {', '.join(METHODS)}")
            if not timeout > 0:
                raise ToolError(f"timeout: {timeout!r} is not a number of seconds above 0")
            self.url = read_url(url)
            check_headers([*self.headers.items(), *([(idempotency_header, "")] if idempotency_header else [])])
        except ToolError as error:
            raise ToolError(f"webhook {name}: {error.message}", ErrorKind.CONFIG, "Fix its configuration.") from None
        self.has_payload = parameters is None
        self.secrets = _secrets(self.url, self.headers)
        said = clean(description) or "Send a JSON object to a webhook."
        super().__init__(
            ToolSpec(
                name=name,
                description=f"{said}\n\nSent to {self.url.host} with {self.method}; returns its status and response.",
                parameters=_PAYLOAD if parameters is None else parameters,
                category=Category.ADAPTER,
                trust="untrusted",
                permissions=frozenset(map(Permission, permissions)),
                timeout=timeout + _SPARE,
                origin=f"webhook:{name}",
            ),
            self._call,
        )

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Returns the origin, without the part of the URL that may be a password."""
        return [self.url.origin]

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.network.headers import key_header

        key = key_header(self.idempotency_header, self.method, ctx, self.headers)
        return await self._send(arguments, key)

    async def _call(self, **arguments: Any) -> ToolResult:
        return await self._send(arguments, {})

    async def _send(self, arguments: Mapping[str, Any], key: Mapping[str, str]) -> ToolResult:
        from forge.network.client import fetch
        from forge.network.headers import RequestLimits

        sent = arguments["payload"] if self.has_payload else arguments
        bounds = RequestLimits(
            connect=min(10.0, self.seconds), read=self.seconds, total=self.seconds, size=self.max_bytes
        )
        now = {name: await in_thread(text.read) for name, text in self._live.items()}
        headers = {**self.headers, **now}
        # a redirect to another server is not followed: the data is meant for this one
        answer = await fetch(
            self.method,
            str(self.url),
            headers={**headers, **key},
            body=_encode(sent),
            egress=self._egress(),
            limits=bounds,
            follow="same-host",
            idempotent=bool(key),
        )
        masks = Secrets({*self.secrets, *_secrets(self.url, headers)})  # a server may echo the request
        return _make_result(answer, self.url, masks)

    def _egress(self) -> Egress:
        """Returns the call's egress plus the configured URL; if requests are switched off, they stay off."""
        from forge.network.egress import Egress

        return Egress.current().reaching(self.url)


webhook = WebhookTool


def _normalize_headers(headers: Mapping[str, str | LiveText]) -> dict[str, str | LiveText]:
    """Normalises the name of the content type, so that a person's own value replaces ours."""
    return {"Content-Type" if name.lower() == "content-type" else name: value for name, value in headers.items()}


def _secrets(url: Url, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the secrets of the webhook: its URL, the parts that look like tokens, and the headers' values."""
    tokens = _TOKEN.findall(url.target)
    found = [str(url), *([url.target] if tokens or "?" in url.target else []), *tokens] if url.target != "/" else []
    for name, value in headers.items():
        if name.lower() not in ("content-type", "accept", "user-agent"):
            found += [value, value.partition(" ")[2]]
    return tuple(dict.fromkeys(one for one in found if len(one) >= SHORTEST))


def _encode(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolError(
            "the payload contains an invalid character (a lone surrogate)", ErrorKind.VALIDATION, "Remove it."
        ) from None


def _make_result(answer: Response, url: Url, secrets: Secrets) -> ToolResult:
    found = answer.text()
    attached: tuple[Attachment, ...] = ()
    body = sendable(secrets.mask(found.text))
    if found.binary and answer.body:
        attached = (Attachment(answer.content_type or "application/octet-stream", answer.body),)
        body = f"[{attached[0].media_type}, {len(answer.body):,} bytes, attached]"
    said = f"HTTP {answer.status} {clean(secrets.mask(answer.reason), 80)}".rstrip()
    lines = [said, *(["", body] if body else [])]
    if answer.truncated:
        lines.append(f"[only the first {len(answer.body):,} bytes are shown]")
    data: dict[str, Any] = {"status": answer.status, "body": body, "truncated": answer.truncated}
    if answer.location:
        data["location"] = secrets.mask(answer.location)
        lines.append("[it redirects to another server; Forge did not follow]")
    return ToolResult(for_llm="\n".join(lines), title=f"{url.host}: {answer.status}", data=data, attachments=attached)
