"""Delivers to Slack: with a bot's token, including files, or through an incoming webhook."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from forge.channels.channel import split_text
from forge.channels.post import Sleep, delivery_error, file_name, list_file_names, parse_retry_after, post, read_object
from forge.channels.webhook import Webhook, escape_mentions
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.network.body import Response

API = "https://slack.com/api"
LONGEST_MESSAGE = 4_000  # UTF-16 units of a message: what Slack recommends
LARGEST_FILE = 50_000_000  # bytes of a file
_JSON = "application/json; charset=utf-8"
_ADVICE = {
    "channel_not_found": "Check the channel's id; the bot must be a member of a private channel.",
    "not_in_channel": "Invite the bot to the channel: /invite @BOT.",
    "missing_scope": "Give the bot the scopes chat:write and files:write, and install it again.",
    "invalid_auth": "Check the bot's token (xoxb-…).",
    "account_inactive": "Check the bot's token (xoxb-…).",
    "token_revoked": "Check the bot's token (xoxb-…).",
}


class SlackHook:
    """Sends through an incoming webhook, which belongs to one channel and takes no files."""

    def __init__(self, url: str, *, sleep: Sleep = asyncio.sleep) -> None:
        self._hook = Webhook(url, sleep=sleep)

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        if to:
            raise ToolError(
                "a Slack webhook always posts to one channel",
                ErrorKind.USER,
                "Omit the target, or configure the channel with token_env.",
            )
        named = list_file_names(attachments, "not attached: a Slack webhook does not accept files")
        await self._hook.send("\n".join(part for part in (text, named) if part))


class Slack:
    """Sends with a bot's token to `channel`, unless `to` names another. The bot needs chat:write, files:write."""

    def __init__(self, token: str, channel: str = "", *, api: str = API, sleep: Sleep = asyncio.sleep) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ToolError("this is not a Slack bot token", ErrorKind.CONFIG, "Copy the whole bot token (xoxb-…).")
        self._token = token
        self._channel = channel
        self._api = api.rstrip("/")
        self._sleep = sleep

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        channel = to or self._channel
        if not channel:
            raise ToolError(
                "no Slack channel is set", ErrorKind.CONFIG, "Set chat_id in the channel's entry, or pass a target."
            )
        for file in attachments:
            if len(file.data) > LARGEST_FILE:
                message = (
                    f"{file.name or 'the file'} has {len(file.data):,} bytes; the maximum for Slack is {LARGEST_FILE:,}"
                )
                raise ToolError(message, ErrorKind.USER, "Send less.")
        text = sendable(text) if text.strip() else ", ".join(file_name(one) for one in attachments)
        for piece in split_text(text, LONGEST_MESSAGE):
            reply = await self._call_api("chat.postMessage", {"channel": channel, "text": escape_mentions(piece)})
            channel = str(reply.get("channel") or channel)  # the id, which files need
        if attachments:
            files = [await self._upload_file(one) for one in attachments]
            await self._call_api("files.completeUploadExternal", {"files": files, "channel_id": channel})

    async def _upload_file(self, file: Attachment) -> dict[str, str]:
        """Uploads a file and returns its id and title. The file is invisible until the upload is completed."""
        name = file_name(file)
        arguments = urlencode({"filename": name, "length": len(file.data)})
        reply = await self._call_api("files.getUploadURLExternal", arguments)
        url, id = str(reply.get("upload_url", "")), str(reply.get("file_id", ""))
        if not self._is_slack_url(url) or not id:
            raise delivery_error("Slack", 200, "its response has no upload URL", "Try again in a moment.")
        answer = await post(url, file.data, {"Content-Type": "application/octet-stream"}, _read_wait, self._sleep)
        if answer.status != 200:
            said = answer.body[:500].decode(errors="replace")
            raise delivery_error("Slack", answer.status, self._hide_secrets(said, url), "Try again in a moment.")
        return {"id": id, "title": name}

    def _is_slack_url(self, url: str) -> bool:
        """Returns True for URLs on the API's host or below it: files go nowhere else, whatever an answer says."""
        try:
            own, named = urlsplit(self._api), urlsplit(url)
            host = named.hostname or ""
            below = host.endswith(f".{own.hostname}") and named.port is None
        except ValueError:
            return False
        return named.scheme == own.scheme and (named.netloc == own.netloc or below)

    async def _call_api(self, method: str, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        body = arguments.encode() if isinstance(arguments, str) else json.dumps(arguments).encode()
        kind = "application/x-www-form-urlencoded" if isinstance(arguments, str) else _JSON
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        answer = await post(f"{self._api}/{method}", body, headers, _read_wait, self._sleep)
        reply = read_object(answer)
        if answer.status != 200 or reply.get("ok") is not True:
            said = str(reply.get("error") or answer.reason)
            advice = _ADVICE.get(said, "Check the bot's token, its scopes, and that it is in the channel.")
            status = 403 if answer.status == 200 and said in _ADVICE else answer.status
            raise delivery_error("Slack", status, f"{method}: {self._hide_secrets(said)}", advice)
        return reply

    def _hide_secrets(self, said: str, url: str = "") -> str:
        said = said.replace(self._token, "…")
        return said.replace(url, "…") if url else said


def _read_wait(answer: Response) -> float:
    return parse_retry_after(next((value for name, value in answer.headers if name == "retry-after"), ""))
