"""Delivers to a webhook that takes `{"text": …}`, as Slack, Mattermost and many others do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from forge.channels.asking import Sleep, not_delivered, post, seconds_of
from forge.channels.channel import pieces
from forge.core.plain import sendable
from forge.core.result import Attachment
from forge.network.response import Response
from forge.network.url import read_url

LONGEST = 40_000  # UTF-16 units of a message: what Slack takes


class Webhook:
    """Such URLs are secrets: errors name the host only. Files cannot be sent this way: they are named."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, sleep: Sleep = asyncio.sleep) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        asked = read_url(url)
        self._host, self._target = asked.host, asked.target
        self._sleep = sleep

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        named = [f"[{one.name or 'file'}: {len(one.data):,} bytes, not attached]" for one in attachments]
        for piece in pieces("\n".join([sendable(text), *named]), LONGEST):
            payload = {"text": _escaped(piece), **({"channel": to} if to else {})}
            answer = await post(self._url, json.dumps(payload).encode(), self._headers, _wait, self._sleep)
            if not 200 <= answer.status < 300:
                said = answer.body[:500].decode(errors="replace")
                said = said.replace(self._target, "…") if len(self._target) > 1 else said  # a secret, told back
                raise not_delivered(
                    self._host, answer.status, said, "Check the webhook's URL; it may have been revoked."
                )


def _escaped(text: str) -> str:
    """Slack's three: so that a text cannot become a mention or a link with another face."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _wait(answer: Response) -> float:
    return seconds_of(next((value for name, value in answer.headers if name == "retry-after"), ""))
