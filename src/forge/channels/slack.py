"""Delivers to Slack: with a bot's token, including files, or through an incoming webhook; receives with a bot's token.

A bot receives in one of two ways. Socket Mode: Forge connects to Slack with an app-level token. Events API: Slack sends
requests to Forge, signed with the app's signing secret.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from forge.channels.channel import Button, Incoming, IncomingFile, Receive, split_text
from forge.channels.post import (
    MOST_FILES,
    Pauses,
    Sleep,
    delivery_error,
    download,
    file_name,
    list_file_names,
    number_of,
    objects_of,
    parse_retry_after,
    post,
    read_object,
    text_of,
)
from forge.channels.webhook import Webhook, escape_mentions
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.core.untrusted import one_line
from forge.network.body import Response
from forge.network.egress import Egress

API = "https://slack.com/api"
LONGEST_MESSAGE = 4_000  # UTF-16 units of a message: what Slack recommends
LARGEST_FILE = 50_000_000  # bytes of a file
LONGEST_BLOCK = 2_900  # UTF-16 units of the text above the buttons
WINDOW = 300  # seconds that a signed request may be old
STEADY = 30.0  # seconds after which a connection counts as one that worked
_JSON = "application/json; charset=utf-8"
_OWN = frozenset({"", "file_share", "thread_broadcast"})  # kinds of messages that a person wrote
_MARK = re.compile(r"<([@#!]?)([^<>|]{1,4000})(?:\|([^<>]{0,4000}))?>")
_QUIET = {"unfurl_links": False, "unfurl_media": False}  # Slack would fetch what a model wrote
_ADVICE = {
    "channel_not_found": "Check the channel's id; the bot must be a member of a private channel.",
    "not_in_channel": "Invite the bot to the channel: /invite @BOT.",
    "missing_scope": "Give the bot the scopes that docs/chats.md lists, and install it again.",
    "invalid_auth": "Check the bot's token (xoxb-…).",
    "account_inactive": "Check the bot's token (xoxb-…).",
    "token_revoked": "Check the bot's token (xoxb-…).",
    "not_allowed_token_type": "Use an app-level token (xapp-…) with the scope connections:write to receive.",
}
log = logging.getLogger(__name__)


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
    """Sends with a bot's token to `channel`, unless `to` names another: a channel, or a thread as `C0123/1503.000247`.

    `app_token` lets it receive by Socket Mode, `signing_secret` by the Events API.
    """

    def __init__(
        self,
        token: str,
        channel: str = "",
        *,
        app_token: str = "",
        signing_secret: str = "",
        api: str = API,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for one in (token, app_token or token):
            if not one or not one.isascii() or not one.isprintable() or " " in one:
                kind = "bot token (xoxb-…)" if one == token else "app-level token (xapp-…)"
                raise ToolError(
                    f"this is not a Slack {kind.partition(' (')[0]}", ErrorKind.CONFIG, f"Copy the whole {kind}."
                )
        self._token, self._app_token, self._signing_secret = token, app_token, signing_secret
        self._channel = channel
        self._api = api.rstrip("/")
        self._sleep, self._clock = sleep, clock
        self.takes_requests = bool(signing_secret) and not app_token

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        place = self._find_place(to)
        for file in attachments:
            if len(file.data) > LARGEST_FILE:
                message = (
                    f"{file.name or 'the file'} has {len(file.data):,} bytes; the maximum for Slack is {LARGEST_FILE:,}"
                )
                raise ToolError(message, ErrorKind.USER, "Send less.")
        text = sendable(text) if text.strip() else ", ".join(file_name(one) for one in attachments)
        for piece in split_text(text, LONGEST_MESSAGE):
            said = {**place, "text": escape_mentions(piece), **_QUIET}
            reply = await self._call_api("chat.postMessage", said)
            place["channel"] = str(reply.get("channel") or place["channel"])  # the id, which files need
        if attachments:
            files = [await self._upload_file(one) for one in attachments]
            where = {"channel_id": place["channel"], **{k: v for k, v in place.items() if k == "thread_ts"}}
            await self._call_api("files.completeUploadExternal", {"files": files, **where})

    def _find_place(self, to: str) -> dict[str, str]:
        channel, _, thread = (to or self._channel).partition("/")
        if not channel:
            raise ToolError(
                "no Slack channel is set", ErrorKind.CONFIG, "Set chat_id in the channel's entry, or pass a target."
            )
        return {"channel": channel, **({"thread_ts": thread} if thread else {})}

    async def ask(self, text: str, buttons: Sequence[Button], *, to: str) -> str:
        """Shows the text as it is, in a fixed width, above buttons. Returns the time stamp of the message."""
        *first, last = split_text(sendable(text), LONGEST_BLOCK) or [" "]
        for piece in first:
            await self._post_block(self._find_place(to), piece)
        elements = [
            {"type": "button", "action_id": f"choice_{at}", "text": {"type": "plain_text", "text": one.label[:75]}}
            | {"value": one.value}
            for at, one in enumerate(buttons)
        ]
        reply = await self._post_block(self._find_place(to), last, [{"type": "actions", "elements": elements}])
        return str(reply.get("ts", ""))

    async def close_question(self, message: str, text: str, *, to: str) -> None:
        place = {"channel": self._find_place(to)["channel"], "ts": message}
        shown = sendable(text)[:LONGEST_BLOCK]
        await self._call_api("chat.update", {**place, "text": escape_mentions(shown), "blocks": [_fixed_width(shown)]})

    async def _post_block(
        self, place: dict[str, str], text: str, more: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        said = {**place, "text": escape_mentions(text), "blocks": [_fixed_width(text), *more], **_QUIET}
        return await self._call_api("chat.postMessage", said)

    async def fetch_file(self, file: IncomingFile, most: int) -> Attachment:
        if not self._is_slack_url(file.id):
            raise ToolError(
                f"fetching the file {one_line(file.name, 80)!r}: its address is not Slack's",
                ErrorKind.SECURITY,
                "Send the file itself instead of a link.",
            )
        data = await download(file.id, {"Authorization": f"Bearer {self._token}"}, most, file.name)
        return Attachment(file.media_type, data, file.name)

    # Receives by Socket Mode.

    async def listen(self, receive: Receive) -> None:
        """Receives until cancelled. With the Events API, requests bring everything, and there is nothing to do here."""
        if not self._app_token and not self._signing_secret:
            raise ToolError(
                "this Slack channel cannot receive: it has neither an app-level token nor a signing secret",
                ErrorKind.CONFIG,
                "Set app_token_env (Socket Mode) or signing_secret_env (Events API) in the channel's entry.",
            )
        if self.takes_requests:
            await asyncio.Event().wait()
        pauses = Pauses(self._sleep)
        while True:
            began = time.monotonic()
            try:
                await self._serve_connection(receive)
            except ToolError as error:
                if error.kind is ErrorKind.CONFIG:
                    raise
                log.warning("%s. Connecting again.", error.message)
            if time.monotonic() - began > STEADY:
                pauses.end_row()
            await pauses.wait()

    async def _serve_connection(self, receive: Receive) -> None:
        """Receives until Slack ends the connection. An envelope is acknowledged when it is stored, well within 3 s."""
        from forge.network.websocket import open_websocket  # only to receive

        reply = await self._call_api("apps.connections.open", "", token=self._app_token)
        url = str(reply.get("url", ""))
        if not self._is_slack_url(url.replace("ws", "http", 1)):
            raise delivery_error("Slack", 200, "its response has no address to connect to", "Try again in a moment.")
        async with open_websocket(url, Egress.only(url.replace("ws", "http", 1))) as socket:
            log.info("connected to Slack")
            while True:
                envelope = read_object((await socket.receive()).encode())
                kind = text_of(envelope, "type")
                if kind == "disconnect":
                    if text_of(envelope, "reason") == "link_disabled":
                        raise ToolError(
                            "receiving from Slack: Socket Mode is switched off for the app",
                            ErrorKind.CONFIG,
                            "Switch it on in the app's settings.",
                        )
                    return
                if not (id := text_of(envelope, "envelope_id")):
                    continue  # hello
                payload = envelope.get("payload")
                for one in read_payload(payload if isinstance(payload, dict) else {}):
                    await receive(one)
                await socket.send(json.dumps({"envelope_id": id}))

    # Receives by the Events API.

    async def answer_request(self, headers: Mapping[str, str], body: bytes, receive: Receive) -> tuple[int, bytes]:
        if not self._is_signed(headers, body):
            return 401, b"the signature is missing, wrong or too old"
        if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            forms = parse_qs(body.decode("utf-8", "replace"), max_num_fields=100)
            payload = read_object(forms.get("payload", [""])[0].encode())
        else:
            payload = read_object(body)
        if text_of(payload, "type") == "url_verification":
            return 200, json.dumps({"challenge": text_of(payload, "challenge")[:1_000]}).encode()
        for one in read_payload(payload):
            await receive(one)
        return 200, b""

    def _is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Returns whether Slack signed the request within the last minutes."""
        stamp, found = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if not self._signing_secret or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
            return False
        if abs(self._clock() - int(stamp)) > WINDOW:
            return False
        made = hmac.new(self._signing_secret.encode(), b"v0:" + stamp.encode() + b":" + body, sha256).hexdigest()
        return hmac.compare_digest(f"v0={made}".encode(), found.encode("utf-8", "replace"))

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

    async def _call_api(self, method: str, arguments: Mapping[str, Any] | str, *, token: str = "") -> dict[str, Any]:
        body = arguments.encode() if isinstance(arguments, str) else json.dumps(arguments).encode()
        kind = "application/x-www-form-urlencoded" if isinstance(arguments, str) else _JSON
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": kind}
        answer = await post(f"{self._api}/{method}", body, headers, _read_wait, self._sleep)
        reply = read_object(answer)
        if answer.status != 200 or reply.get("ok") is not True:
            said = str(reply.get("error") or answer.reason)
            advice = _ADVICE.get(said, "Check the bot's token, its scopes, and that it is in the channel.")
            status = 403 if answer.status == 200 and said in _ADVICE else answer.status
            raise delivery_error("Slack", status, f"{method}: {self._hide_secrets(said)}", advice)
        return reply

    def _hide_secrets(self, said: str, url: str = "") -> str:
        for one in filter(None, (self._token, self._app_token)):
            said = said.replace(one, "…")
        return said.replace(url, "…") if url else said


def _read_wait(answer: Response) -> float:
    return parse_retry_after(next((value for name, value in answer.headers if name == "retry-after"), ""))


def _fixed_width(text: str) -> dict[str, Any]:
    """Returns a block that shows the text as it is: nothing in it is markup."""
    part = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [part]}


# Reads what Slack sends: the same payloads by Socket Mode and by the Events API.


def read_payload(payload: Mapping[str, Any]) -> list[Incoming]:
    """Returns what a person said or pressed; nothing for other events, and for messages of bots."""
    kind, event = text_of(payload, "type"), payload.get("event")
    if kind == "event_callback" and isinstance(event, dict):
        bot = text_of(next(iter(objects_of(payload, "authorizations")), {}), "user_id")
        found = _read_message(event, bot)
        return [found] if found is not None else []
    return _read_presses(payload) if kind == "block_actions" else []


def _read_message(event: dict[str, Any], bot: str) -> Incoming | None:
    kind, channel, stamp = (text_of(event, name) for name in ("type", "channel", "ts"))
    person = text_of(event, "user")
    is_own = text_of(event, "subtype") in _OWN and not text_of(event, "bot_id") and person != bot
    if kind not in ("message", "app_mention") or not is_own or not (channel and stamp and person):
        return None
    is_direct, thread = text_of(event, "channel_type") == "im", text_of(event, "thread_ts")
    place = thread or ("" if is_direct else stamp)
    return Incoming(
        id=f"{channel}:{stamp}",  # a mention comes as two events with different ids
        chat=f"{channel}/{place}" if place else channel,
        person=person,
        text=_plain_text(text_of(event, "text"), bot),
        files=tuple(_read_file(one) for one in objects_of(event, "files")[:MOST_FILES]),
        is_addressed=is_direct or kind == "app_mention",
    )


def _read_file(file: dict[str, Any]) -> IncomingFile:
    url = text_of(file, "url_private_download") or text_of(file, "url_private")
    return IncomingFile(url, text_of(file, "name"), text_of(file, "mimetype"), number_of(file, "size"))


def _read_presses(payload: Mapping[str, Any]) -> list[Incoming]:
    channel, person = text_of(payload, "channel", "id"), text_of(payload, "user", "id")
    stamp = text_of(payload, "message", "ts")
    thread = text_of(payload, "message", "thread_ts")
    return [
        Incoming(
            id=f"{channel}:{stamp}:{person}:{text_of(one, 'action_ts')}",
            chat=f"{channel}/{thread}" if thread else channel,
            person=person,
            button=text_of(one, "value"),
            message=stamp,
        )
        for one in objects_of(payload, "actions")[:1]
        if channel and person and stamp and text_of(one, "value")
    ]


def _plain_text(text: str, bot: str) -> str:
    """Returns the text as the person typed it: marks as names and addresses, without a mention of the bot."""

    def show(mark: re.Match[str]) -> str:
        sign, target, label = mark[1], mark[2], mark[3]
        if sign == "@" and target == bot:
            return ""
        if sign == "#":
            return f"#{label or target}"
        return f"@{target}" if sign else target  # of a link the address, whatever its label says

    return _MARK.sub(show, text).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()
