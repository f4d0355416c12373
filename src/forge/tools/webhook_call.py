"""Calls webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import Annotated, Any

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.http_request import build_result

MAX_BYTES = 1024 * 1024  # of an answer's body
REQUEST_SECONDS = 30.0


class WebhookCall(
    Tool,
    category=Category.ADAPTER,
    trust="untrusted",
    permissions={"network"},
    target="url",
    irreversible=True,
    argument_aliases={"data": "payload", "body": "payload", "json": "payload", "webhook_url": "url"},
    timeout=REQUEST_SECONDS + 10,
):
    """Send a JSON payload to a webhook URL with POST; get status and answer."""

    def __init__(
        self, max_bytes: int = MAX_BYTES, seconds: float = REQUEST_SECONDS, idempotency_header: str = ""
    ) -> None:
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.idempotency_header = idempotency_header  # such as Idempotency-Key; none: no key is sent

    async def run(
        self,
        ctx: ToolContext,
        url: Annotated[str, ParameterLimits(example="https://hooks.example.com/deployed"), "http or https."],
        payload: Annotated[dict[str, Any], ParameterLimits(example={"text": "Done."})],
        headers: dict[str, str] | None = None,
    ) -> ToolResult:
        from forge.network.client import fetch  # the network is loaded by the first request
        from forge.network.headers import RequestLimits as Bounds
        from forge.network.headers import key_header

        try:
            content = dumps(payload, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ToolError(
                "the payload has half a character (a lone surrogate)", ErrorKind.VALIDATION, "Leave it out."
            ) from None
        sent = dict(headers or {})
        if not any(name.lower() == "content-type" for name in sent):
            sent["Content-Type"] = "application/json"
        sent |= key_header(self.idempotency_header, "POST", ctx, sent)
        bounds = Bounds(connect=min(10.0, self.seconds), read=self.seconds, total=self.seconds, size=self.max_bytes)
        # a redirect elsewhere is an answer: what was meant for one server is not sent to another
        answer = await fetch("POST", url, headers=sent, body=content, limits=bounds, follow="same-host")
        result = build_result(answer)
        keys = ("status", "body", "truncated", "attachment")
        data = {key: value for key, value in result.data.items() if key in keys}
        if answer.location:
            data["location"] = answer.location
        return ToolResult(for_llm=result.for_llm, title=result.title, data=data, attachments=result.attachments)

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        from forge.network.headers import reconcile_request

        return reconcile_request(self.idempotency_header, "POST", ctx, arguments["headers"] or {})
