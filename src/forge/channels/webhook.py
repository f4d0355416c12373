"""Delivers to a webhook that takes `{"text": …}`, as Mattermost and many others do, and to some of them files."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from forge.channels.asking import Sleep, not_delivered, post, seconds_of
from forge.channels.channel import pieces
from forge.channels.form import file_name, media_type, names_of, written_form
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.network.response import Response
from forge.network.url import read_url

LONGEST = 40_000  # UTF-16 units of a message: what Slack takes
LARGEST = 50_000_000  # bytes of all files of a message

Files = Literal["named", "json", "multipart"]


class Webhook:
    """Such URLs are secrets: errors name the host only.

    `files` says how the endpoint takes them. `named`: it takes none, and the text names them. `json`: as a list
    `files` of `{name, media_type, data}` beside `text`, the data in base64. `multipart`: as `multipart/form-data`, the
    same JSON in the field `payload_json` and the files as `files[0]`, `files[1]` …
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        files: Files = "named",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._url = url
        self._headers = dict(headers or {})
        self._files = files
        asked = read_url(url)
        self._host, self._target = asked.host, asked.target
        self._sleep = sleep

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        taken: Sequence[Attachment] = () if self._files == "named" else attachments
        why = "not attached"
        if sum(len(one.data) for one in taken) > LARGEST:
            taken, why = (), f"not attached: {LARGEST:,} bytes are the most"
        named = names_of(attachments, why) if attachments and not taken else ""
        parts = pieces("\n".join(part for part in (sendable(text), named) if part), LONGEST)
        for number, piece in enumerate(parts or ([""] if taken else []), 1):
            payload = {"text": escaped(piece), **({"channel": to} if to else {})}
            await self._post(payload, taken if number >= len(parts) else ())  # with the last part of the text

    async def _post(self, payload: dict[str, Any], files: Sequence[Attachment]) -> None:
        body, kind = self._written(payload, files)
        answer = await post(self._url, body, {"Content-Type": kind, **self._headers}, _wait, self._sleep)
        if not 200 <= answer.status < 300:
            said = answer.body[:500].decode(errors="replace")
            said = said.replace(self._target, "…") if len(self._target) > 1 else said  # a secret, told back
            raise not_delivered(self._host, answer.status, said, "Check the webhook's URL; it may have been revoked.")

    def _written(self, payload: dict[str, Any], files: Sequence[Attachment]) -> tuple[bytes, str]:
        if files and self._files == "multipart":
            fields = {"payload_json": json.dumps(payload)}
            return written_form(fields, {f"files[{number}]": one for number, one in enumerate(files)})
        if files:
            payload = {**payload, "files": [_in_json(one) for one in files]}
        return json.dumps(payload).encode(), "application/json"


def _in_json(file: Attachment) -> dict[str, str]:
    return {"name": file_name(file), "media_type": media_type(file), "data": b64encode(file.data).decode()}


def escaped(text: str) -> str:
    """Slack's three: so that a text cannot become a mention or a link with another face."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _wait(answer: Response) -> float:
    return seconds_of(next((value for name, value in answer.headers if name == "retry-after"), ""))
