"""Delivers to Telegram chats through the HTTP API for bots."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from forge.channels.channel import split_text
from forge.channels.post import Sleep, delivery_error, encode_form, parse_retry_after, post, read_object
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.network.body import Response

API = "https://api.telegram.org"
LONGEST_MESSAGE = 4_096  # UTF-16 units of a message
LARGEST_FILE = 50_000_000  # bytes of a file


class Telegram:
    """Sends with a bot's token to `chat`, unless `to` names another. Errors show no URL: URLs hold the token."""

    def __init__(self, token: str, chat: str = "", *, api: str = API, sleep: Sleep = asyncio.sleep) -> None:
        if not token or not token.isascii() or any(char in token for char in "/?#\\ \r\n"):
            raise ToolError(
                "this is not a Telegram bot token", ErrorKind.CONFIG, "Copy the whole token from BotFather."
            )
        self._base = f"{api.rstrip('/')}/bot{token}"
        self._token = token
        self._chat = chat
        self._sleep = sleep

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        chat = to or self._chat
        if not chat:
            raise ToolError("no chat is set", ErrorKind.CONFIG, "Set chat_id in the channel's entry, or pass a target.")
        for file in attachments:
            if len(file.data) > LARGEST_FILE:
                raise ToolError(
                    f"{file.name or 'the file'} has {len(file.data):,} bytes; Telegram's maximum is {LARGEST_FILE:,}",
                    ErrorKind.USER,
                    "Send less.",
                )
        for piece in split_text(sendable(text), LONGEST_MESSAGE):
            body = json.dumps({"chat_id": chat, "text": piece}).encode()
            await self._call_api("sendMessage", body, "application/json")
        for file in attachments:
            body, kind = encode_form({"chat_id": chat}, {"document": file})
            await self._call_api("sendDocument", body, kind)

    async def _call_api(self, method: str, body: bytes, content_type: str) -> None:
        answer = await post(f"{self._base}/{method}", body, {"Content-Type": content_type}, _read_wait, self._sleep)
        told = read_object(answer)
        if answer.status != 200 or told.get("ok") is not True:
            said = str(told.get("description") or answer.reason).replace(self._token, "…")
            raise delivery_error(
                "Telegram", answer.status, said, "Check the bot's token, and that the bot is a member of the chat."
            )


def _read_wait(answer: Response) -> float:
    parameters = read_object(answer).get("parameters")
    after = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(after) if isinstance(after, int) and not isinstance(after, bool) else parse_retry_after("")
