"""A webhook that a person configured, as a tool: JSON goes to one fixed URL, its answer comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import SHORTEST, Secrets
from forge.core.spec import Category, Permission, PermissionName, ToolSpec
from forge.core.tool import SchemaTool
from forge.sources.untrusted import clean

if TYPE_CHECKING:  # the network is loaded by the first request
    from forge.network.egress import Egress
    from forge.network.response import Response
    from forge.network.url import Url

SECONDS = 30.0
MAX_BYTES = 1024 * 1024  # of an answer's body
METHODS = ("POST", "PUT", "PATCH")

_SPARE = 10.0  # seconds that the pipeline gives beyond those of the request
_TOKEN = re.compile(r"(?=[^/?&=#]*\d)(?=[^/?&=#]*[A-Za-z])[^/?&=#]{12,}|[^/?&=#]{20,}")
_NETWORK = frozenset({Permission.NETWORK})
_PAYLOAD = {
    "type": "object",
    "properties": {"payload": {"type": "object", "description": "The object to send as JSON."}},
    "required": ["payload"],
    "additionalProperties": False,
}


class Webhook(SchemaTool):
    """A tool that sends JSON to one URL, which the model does not see.

    `parameters`: a JSON Schema of what is sent; without it the model gives any object as `payload`. Raises `ToolError`
    where the URL, a header or the method cannot be used. `idempotency_header`, such as "Idempotency-Key", says that the
    server does once what arrives several times with the same value of it, so that a call may be repeated. `secrets` are
    to be registered for masking: such URLs often are passwords.
    """

    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        url: str,
        description: str = "",
        *,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        timeout: float = SECONDS,
        max_bytes: int = MAX_BYTES,
        idempotency_header: str = "",
        permissions: Collection[PermissionName | Permission] = _NETWORK,
    ) -> None:
        from forge.network.headers import check_headers
        from forge.network.url import read_url

        self.method = method.upper()
        self.seconds = timeout
        self.max_bytes = max_bytes
        self.headers = {"Content-Type": "application/json", **_titled(headers or {})}
        self.idempotency_header = idempotency_header
        own = {name.lower() for name in self.headers}
        self.takes_key = bool(idempotency_header) and idempotency_header.lower() not in own
        try:
            if self.method not in METHODS:
                raise ToolError(f"the method {method[:30]!r} is none of {', '.join(METHODS)}")
            if not timeout > 0:
                raise ToolError(f"timeout: {timeout!r} is no number of seconds above 0")
            self.url = read_url(url)
            check_headers([*self.headers.items(), *([(idempotency_header, "")] if idempotency_header else [])])
        except ToolError as error:
            raise ToolError(f"webhook {name}: {error.message}", ErrorKind.CONFIG, "Fix its configuration.") from None
        self.has_payload = parameters is None
        self.secrets = _secrets(self.url, headers or {})
        said = clean(description) or "Send a JSON object to a webhook."
        super().__init__(
            ToolSpec(
                name=name,
                description=f"{said}\n\nSent to {self.url.host} with {self.method}; returns its status and answer.",
                parameters=_PAYLOAD if parameters is None else parameters,
                category=Category.ADAPTER,
                permissions=frozenset(map(Permission, permissions)),
                timeout=timeout + _SPARE,
                origin=f"webhook:{name}",
            ),
            self._call,
        )

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Where it goes, without the part of the URL that may be a password."""
        return [self.url.origin]

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.network.idempotency_key import key_header

        key = key_header(self.idempotency_header, self.method, ctx, self.headers)
        return await self._sent(arguments, key)

    async def _call(self, **arguments: Any) -> ToolResult:
        return await self._sent(arguments, {})

    async def _sent(self, arguments: Mapping[str, Any], key: Mapping[str, str]) -> ToolResult:
        from forge.network.client import fetch
        from forge.network.limits import Limits

        sent = arguments["payload"] if self.has_payload else arguments
        bounds = Limits(connect=min(10.0, self.seconds), read=self.seconds, total=self.seconds, size=self.max_bytes)
        # a redirect elsewhere is an answer: what was meant for one server is not sent to another
        answer = await fetch(
            self.method,
            str(self.url),
            headers={**self.headers, **key},
            body=_encoded(sent),
            egress=self._egress(),
            limits=bounds,
            follow="same-host",
            idempotent=bool(key),
        )
        return _told(answer, self.url, Secrets(self.secrets))  # a server may send back what it was asked

    def _egress(self) -> Egress:
        """The call's, with the one place that a person named; where requests are switched off, they are."""
        from forge.network.egress import Egress

        return Egress.current().reaching(self.url)


webhook = Webhook
"""`webhook("notify", url)`, as the other sources are written."""


def _titled(headers: Mapping[str, str]) -> dict[str, str]:
    """One spelling of the content type, so that a person's own takes the place of ours."""
    return {"Content-Type" if name.lower() == "content-type" else name: value for name, value in headers.items()}


def _secrets(url: Url, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What would let others call it: the URL and the parts of it that look like tokens, and the headers' values."""
    tokens = _TOKEN.findall(url.target)
    found = [str(url), *([url.target] if tokens or "?" in url.target else []), *tokens] if url.target != "/" else []
    for name, value in headers.items():
        if name.lower() not in ("content-type", "accept", "user-agent"):
            found += [value, value.partition(" ")[2]]
    return tuple(dict.fromkeys(one for one in found if len(one) >= SHORTEST))


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolError(
            "the payload has half a character (a lone surrogate)", ErrorKind.VALIDATION, "Leave it out."
        ) from None


def _told(answer: Response, url: Url, secrets: Secrets) -> ToolResult:
    found = answer.text()
    attached: tuple[Attachment, ...] = ()
    body = sendable(secrets.mask(found.text))
    if found.binary and answer.body:
        attached = (Attachment(answer.content_type or "application/octet-stream", answer.body),)
        body = f"[{attached[0].media_type}, {len(answer.body):,} bytes, attached]"
    said = f"HTTP {answer.status} {clean(secrets.mask(answer.reason), 80)}".rstrip()
    lines = [said, *(["", body] if body else [])]
    if answer.truncated:
        lines.append(f"[only the first {len(answer.body):,} bytes; there are more]")
    data: dict[str, Any] = {"status": answer.status, "body": body, "truncated": answer.truncated}
    if answer.location:
        data["location"] = secrets.mask(answer.location)
        lines.append("[it redirects to another server, to which nothing was sent]")
    return ToolResult(for_llm="\n".join(lines), title=f"{url.host}: {answer.status}", data=data, attachments=attached)
