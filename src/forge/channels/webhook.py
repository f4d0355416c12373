"""Delivers to a webhook that takes `{"text": …}`, as Mattermost and others do, optionally with files."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from forge.channels.channel import split_text
from forge.channels.post import (
    Sleep,
    delivery_error,
    encode_form,
    file_name,
    list_file_names,
    media_type_of,
    parse_retry_after,
    post,
)
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.network.address import read_url
from forge.network.body import Response

LONGEST_MESSAGE = 40_000  # UTF-16 units of a message: what Slack takes
LARGEST_FILES = 50_000_000  # bytes of all files of a message

Files = Literal["named", "json", "multipart"]


class Webhook:
    """Posts to a webhook. Its URL is a secret, so errors name only the host.

    `files` says how the endpoint takes files. `named`: it takes none, and the text names them. `json`: as a list
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
        parsed = read_url(url)
        self._host, self._target = parsed.host, parsed.target
        self._sleep = sleep

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        taken: Sequence[Attachment] = () if self._files == "named" else attachments
        why = "not attached"
        if sum(len(one.data) for one in taken) > LARGEST_FILES:
            taken, why = (), f"not attached: the maximum is {LARGEST_FILES:,} bytes"
        named = list_file_names(attachments, why) if attachments and not taken else ""
        parts = split_text("\n".join(part for part in (sendable(text), named) if part), LONGEST_MESSAGE)
        for number, piece in enumerate(parts or ([""] if taken else []), 1):
            payload = {"text": escape_mentions(piece), **({"channel": to} if to else {})}
            await self._post(payload, taken if number >= len(parts) else ())  # with the last part of the text

    async def _post(self, payload: dict[str, Any], files: Sequence[Attachment]) -> None:
        body, kind = self._encode_payload(payload, files)
        answer = await post(self._url, body, {"Content-Type": kind, **self._headers}, _read_wait, self._sleep)
        if not 200 <= answer.status < 300:
            said = answer.body[:500].decode(errors="replace")
            said = said.replace(self._target, "…") if len(self._target) > 1 else said  # a secret, told back
            raise delivery_error(self._host, answer.status, said, "Check the webhook's URL; it may have been revoked.")

    def _encode_payload(self, payload: dict[str, Any], files: Sequence[Attachment]) -> tuple[bytes, str]:
        if files and self._files == "multipart":
            fields = {"payload_json": json.dumps(payload)}
            return encode_form(fields, {f"files[{number}]": one for number, one in enumerate(files)})
        if files:
            payload = {**payload, "files": [_file_entry(one) for one in files]}
        return json.dumps(payload).encode(), "application/json"


def _file_entry(file: Attachment) -> dict[str, str]:
    return {"name": file_name(file), "media_type": media_type_of(file), "data": b64encode(file.data).decode()}


def escape_mentions(text: str) -> str:
    """Escapes Slack's three special characters, so that no text becomes a mention or a disguised link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _read_wait(answer: Response) -> float:
    return parse_retry_after(next((value for name, value in answer.headers if name == "retry-after"), ""))
