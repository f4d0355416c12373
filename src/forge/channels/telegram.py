"""Delivers to Telegram chats through the HTTP API for bots, and receives: by asking for updates, or by a webhook."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from forge.channels.channel import Button, Incoming, IncomingFile, Receive, split_text
from forge.channels.post import (
    LIMITS,
    MOST_FILES,
    Pauses,
    Sleep,
    delivery_error,
    download,
    encode_form,
    number_of,
    objects_of,
    parse_retry_after,
    post,
    read_object,
    text_of,
)
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment
from forge.network.body import Response
from forge.network.headers import RequestLimits

API = "https://api.telegram.org"
LONGEST_MESSAGE = 4_096  # UTF-16 units of a message
LARGEST_FILE = 50_000_000  # bytes of a file
POLL = 25  # seconds that Telegram may wait for the next update
MOST_UPDATES = 20  # of one answer
_POLLING = RequestLimits(total=POLL + 20.0, read=POLL + 10.0, size=4 * 1024 * 1024)
_WANTED = ["message", "callback_query"]
_FILES = ("document", "audio", "voice", "video", "video_note", "animation")
_FILE_PATH = re.compile(r"[A-Za-z0-9_-]+(?:[/.][A-Za-z0-9_-]+)*")
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_QUIET = {"link_preview_options": {"is_disabled": True}}  # Telegram would fetch what a model wrote
log = logging.getLogger(__name__)


class Telegram:
    """Sends with a bot's token to `chat`, unless `to` names another. Errors show no URL: URLs hold the token.

    `to` may name a topic of a group: `-100200300/7`. It receives by asking for updates, unless there is a `webhook`:
    the public URL at which Telegram reaches Forge. Requests must then have the secret that Telegram was given.
    """

    def __init__(
        self,
        token: str,
        chat: str = "",
        *,
        webhook: str = "",
        secret: str = "",
        api: str = API,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        if not token or not token.isascii() or any(char in token for char in "/?#\\ \r\n"):
            raise ToolError(
                "this is not a Telegram bot token", ErrorKind.CONFIG, "Copy the whole token from BotFather."
            )
        if webhook and not _SECRET.fullmatch(secret):
            raise ToolError(
                "a webhook of Telegram needs a secret of 16 to 256 letters, digits, _ and -",
                ErrorKind.CONFIG,
                "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'.",
            )
        self._api = api.rstrip("/")
        self._base = f"{self._api}/bot{token}"
        self._token = token
        self._chat = chat
        self._webhook, self._secret = webhook, secret
        self._sleep = sleep
        self._bot: dict[str, Any] = {}
        self.takes_requests = bool(webhook)

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        place = self._find_place(to)
        for file in attachments:
            if len(file.data) > LARGEST_FILE:
                raise ToolError(
                    f"{file.name or 'the file'} has {len(file.data):,} bytes; Telegram's maximum is {LARGEST_FILE:,}",
                    ErrorKind.USER,
                    "Send less.",
                )
        for piece in split_text(sendable(text), LONGEST_MESSAGE):
            await self._call_api("sendMessage", {**place, "text": piece, **_QUIET})
        for file in attachments:
            body, kind = encode_form(place, {"document": file})
            await self._send_body("sendDocument", body, kind)

    def _find_place(self, to: str) -> dict[str, str]:
        chat, _, topic = (to or self._chat).partition("/")
        if not chat:
            raise ToolError("no chat is set", ErrorKind.CONFIG, "Set chat_id in the channel's entry, or pass a target.")
        return {"chat_id": chat, **({"message_thread_id": topic} if topic else {})}

    async def ask(self, text: str, buttons: Sequence[Button], *, to: str) -> str:
        """Shows the text as it is, in a fixed width, above buttons. Returns the id of the message."""
        *first, last = split_text(sendable(text), LONGEST_MESSAGE) or [" "]
        for piece in first:
            await self._call_api("sendMessage", {**self._find_place(to), **_fixed_width(piece), **_QUIET})
        rows = [[{"text": one.label, "callback_data": one.value}] for one in buttons]
        said = {**self._find_place(to), **_fixed_width(last), **_QUIET, "reply_markup": {"inline_keyboard": rows}}
        return text_of(await self._call_api("sendMessage", said), "message_id")

    async def close_question(self, message: str, text: str, *, to: str) -> None:
        shown = (split_text(sendable(text), LONGEST_MESSAGE) or [" "])[0]
        said = {"chat_id": self._find_place(to)["chat_id"], "message_id": int(message), **_fixed_width(shown), **_QUIET}
        await self._call_api("editMessageText", said)

    async def fetch_file(self, file: IncomingFile, most: int) -> Attachment:
        path = text_of(await self._call_api("getFile", {"file_id": file.id}), "file_path")
        if not _FILE_PATH.fullmatch(path):
            raise delivery_error("Telegram", 200, "its response has no path of the file", "Send the file again.")
        data = await download(f"{self._api}/file/bot{self._token}/{path}", {}, most, file.name)
        return Attachment(file.media_type, data, file.name or path.rpartition("/")[2])

    # Receives.

    async def listen(self, receive: Receive) -> None:
        """Receives until cancelled. With a webhook it tells Telegram the URL; requests bring the rest."""
        pauses, offset = Pauses(self._sleep), 0
        while True:
            try:
                if not self._bot:
                    await self._begin()
                    log.info("connected to Telegram")
                if self.takes_requests:
                    await asyncio.Event().wait()
                asked: dict[str, Any] = {"timeout": POLL, "limit": MOST_UPDATES, "allowed_updates": _WANTED}
                asked |= {"offset": offset} if offset else {}
                updates = await self._call_api("getUpdates", asked, _POLLING)
                for update in objects_of({"result": updates}, "result"):
                    for one in self._read_update(update):
                        await receive(one)  # stored before the next offset confirms it
                    if press := text_of(update, "callback_query", "id"):
                        await self._end_press(press)
                    offset = max(offset, number_of(update, "update_id") + 1)
                pauses.end_row()
            except ToolError as error:
                if error.kind is ErrorKind.CONFIG:
                    raise
                log.warning("%s. Trying again.", error.message)
                await pauses.wait()

    async def _begin(self) -> None:
        bot = await self._call_api("getMe", {})
        if self.takes_requests:
            said = {"url": self._webhook, "secret_token": self._secret, "allowed_updates": _WANTED}
            await self._call_api("setWebhook", said)
        self._bot = bot if isinstance(bot, dict) else {}

    async def answer_request(self, headers: Mapping[str, str], body: bytes, receive: Receive) -> tuple[int, bytes]:
        found = headers.get("x-telegram-bot-api-secret-token", "")
        if not self._secret or not hmac.compare_digest(found.encode("utf-8", "replace"), self._secret.encode()):
            return 401, b"the secret token is missing or wrong"
        update = read_object(body)
        for one in self._read_update(update):
            await receive(one)
        press = text_of(update, "callback_query", "id")
        said = {"method": "answerCallbackQuery", "callback_query_id": press}
        return 200, json.dumps(said).encode() if press else b""

    async def _end_press(self, press: str) -> None:
        """Lets the person's device show that the press arrived. It does not matter if that fails."""
        try:
            await self._call_api("answerCallbackQuery", {"callback_query_id": press})
        except ToolError as error:
            log.info("%s", error.message)

    def _read_update(self, update: dict[str, Any]) -> list[Incoming]:
        """Returns what a person said or pressed; nothing for other updates, and for messages of bots."""
        message, press = update.get("message"), update.get("callback_query")
        if isinstance(press, dict):
            return _read_press(press)
        found = _read_message(message, self._bot) if isinstance(message, dict) else None
        return [found] if found is not None else []

    async def _call_api(self, method: str, arguments: Mapping[str, Any], limits: RequestLimits = LIMITS) -> Any:
        return await self._send_body(method, json.dumps(arguments).encode(), "application/json", limits)

    async def _send_body(self, method: str, body: bytes, content_type: str, limits: RequestLimits = LIMITS) -> Any:
        headers = {"Content-Type": content_type}
        answer = await post(f"{self._base}/{method}", body, headers, _read_wait, self._sleep, limits)
        told = read_object(answer)
        if answer.status != 200 or told.get("ok") is not True:
            said = str(told.get("description") or answer.reason).replace(self._token, "…")
            status, advice = answer.status, "Check the bot's token, and that the bot is a member of the chat."
            if status == 409:  # two that ask for updates take them from each other
                status = 403 if "webhook" in said else 409
                advice = "Remove the bot's webhook (deleteWebhook), or stop the other program that listens."
            raise delivery_error("Telegram", status, said, advice)
        return told.get("result")


def _read_wait(answer: Response) -> float:
    parameters = read_object(answer).get("parameters")
    after = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(after) if isinstance(after, int) and not isinstance(after, bool) else parse_retry_after("")


def _fixed_width(text: str) -> dict[str, Any]:
    """Returns a text that is shown as it is: nothing in it is markup."""
    length = len(text.encode("utf-16-le")) // 2
    return {"text": text, "entities": [{"type": "pre", "offset": 0, "length": length}]}


# Reads what Telegram sends: the same updates by both ways.


def _read_message(message: dict[str, Any], bot: dict[str, Any]) -> Incoming | None:
    chat, person, number = (
        text_of(message, "chat", "id"),
        text_of(message, "from", "id"),
        text_of(message, "message_id"),
    )
    sender = message.get("from")
    if not (chat and person and number) or not isinstance(sender, dict) or sender.get("is_bot") is True:
        return None
    text = text_of(message, "text") or text_of(message, "caption")
    name = text_of(bot, "username")
    mention = f"@{name}"
    command, _, rest = text.partition(" ")
    is_to_bot = bool(name) and mention.lower() in text.lower()
    is_command = command.startswith("/") and ("@" not in command or command.lower().endswith(mention.lower()))
    is_reply = bool(bot) and text_of(message, "reply_to_message", "from", "id") == text_of(bot, "id")
    if is_command:
        text = f"{command.partition('@')[0]} {rest}".strip()
    elif is_to_bot:
        text = re.sub(re.escape(mention), "", text, flags=re.IGNORECASE).strip()
    topic = text_of(message, "message_thread_id") if message.get("is_topic_message") is True else ""
    return Incoming(
        id=f"{chat}:{number}",
        chat=f"{chat}/{topic}" if topic else chat,
        person=person,
        text=text,
        files=_read_files(message),
        is_addressed=text_of(message, "chat", "type") == "private" or is_command or is_to_bot or is_reply,
        is_forwarded="forward_origin" in message,
    )


def _read_files(message: dict[str, Any]) -> tuple[IncomingFile, ...]:
    sizes = objects_of(message, "photo")  # the same photo in several sizes, the largest last
    photos = [{**one, "mime_type": "image/jpeg", "file_name": "photo.jpg"} for one in sizes[-1:]]
    others = [one for name in _FILES if isinstance(one := message.get(name), dict)]
    found = []
    for one in [*photos, *others][:MOST_FILES]:
        about = (text_of(one, "file_name"), text_of(one, "mime_type"), number_of(one, "file_size"))
        found.append(IncomingFile(text_of(one, "file_id"), *about))
    return tuple(found)


def _read_press(press: dict[str, Any]) -> list[Incoming]:
    message = press.get("message")
    chat, person, data = text_of(message, "chat", "id"), text_of(press, "from", "id"), text_of(press, "data")
    number, id = text_of(message, "message_id"), text_of(press, "id")
    if not (chat and person and data and number and id and isinstance(message, dict)):
        return []
    topic = text_of(message, "message_thread_id") if message.get("is_topic_message") is True else ""
    return [
        Incoming(
            id=f"press:{id}",
            chat=f"{chat}/{topic}" if topic else chat,
            person=person,
            button=data,
            message=number,
        )
    ]
