"""Defines a channel, which delivers text and files to a person, and `Channels`, which finds channels by name.

A channel that also receives is a `Receiver`. The channels that need no service are here: the terminal, and a file that
a person reads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment


class Channel(Protocol):
    """Delivers text and files to people: any object with `send`. It raises `ToolError` if delivery fails.

    Example:
        >>> class Printer:
        ...     async def send(self, text, attachments=(), *, to=""):
        ...         print(f"to {to or 'all'}: {text}")
        >>> asyncio.run(Channels({"team": Printer()})["team"].send("Done."))
        to all: Done.
    """

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None: ...


# What a channel receives, and the protocol of a channel that does.


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that a person sent, before it is fetched.

    Args:
        id: what the channel's `fetch_file` needs to find it.
        name: its name, as the person's device gave it.
        media_type: its type, as the service gave it.
        size: its bytes, as the service gave them; 0: not known.

    Example:
        >>> IncomingFile("F1", "photo.png", "image/png", 2_048).name
        'photo.png'
    """

    id: str
    name: str = ""
    media_type: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message of a person, or a press of a button. All of it is untrusted, except that the service vouches for
    `person` and `chat`.

    Args:
        id: identifies the message: a second one with the same id in the channel is a duplicate.
        chat: the conversation, such as a chat or a thread; `send(to=chat)` answers there.
        person: the id of the person who wrote it.
        text: the text, without a mention of the bot.
        files: the files that came with it.
        button: the value of the pressed button; "" for a message.
        message: of a pressed button: the id that `ask` returned for its question.
        is_addressed: False: it was not written to the bot, and counts only in a conversation that the bot is in.
        is_forwarded: True: the text was written by someone else.

    Example:
        >>> Incoming(id="7", chat="C1/1.2", person="U1", text="What changed today?").is_addressed
        True
    """

    id: str
    chat: str
    person: str
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    button: str = ""
    message: str = ""
    is_addressed: bool = True
    is_forwarded: bool = False


@dataclass(frozen=True, slots=True)
class Button:
    """A button below a question.

    Args:
        label: what the person reads.
        value: what comes back as `Incoming.button`: at most 64 plain characters.

    Example:
        >>> Button("Yes", "y.1").label
        'Yes'
    """

    label: str
    value: str


Receive = Callable[[Incoming], Awaitable[None]]
"""Takes what a channel received. When it returns, the message is stored: only then tell the service that it arrived.
If it raises an exception, the message is not stored: let the service deliver it again.

Example:
    >>> async def receive(incoming: Incoming) -> None:
    ...     print(incoming.text)
    >>> taken: Receive = receive
"""


@runtime_checkable
class Receiver(Protocol):
    """A channel that also receives: people talk to the project's agent there. `forge.doors.listen` drives it.

    `listen` runs until it is cancelled, and connects again by itself; it raises `ToolError` where that cannot help,
    such as for a wrong token. `send` and `ask` take the `chat` of an incoming message as `to`. `ask` shows a question
    with buttons, and returns an id of its message; `close_question` replaces the question when it is over, without
    buttons. `fetch_file` returns a file of at most `most` bytes. Each raises `ToolError` if it fails.

    Example:
        >>> class Pipe:
        ...     async def listen(self, receive): ...
        ...     async def send(self, text, attachments=(), *, to=""): ...
        ...     async def ask(self, text, buttons, *, to): ...
        ...     async def close_question(self, message, text, *, to): ...
        ...     async def fetch_file(self, file, most): ...
        >>> isinstance(Pipe(), Receiver)
        True
    """

    async def listen(self, receive: Receive) -> None: ...

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None: ...

    async def ask(self, text: str, buttons: Sequence[Button], *, to: str) -> str: ...

    async def close_question(self, message: str, text: str, *, to: str) -> None: ...

    async def fetch_file(self, file: IncomingFile, most: int) -> Attachment: ...


@runtime_checkable
class TakesRequests(Protocol):
    """A `Receiver` to which its service sends HTTP requests. `forge.doors.listen` serves them at `/NAME`.

    `answer_request` gets the headers, with names in lower case, and the body. It checks that the request comes from the
    service, and returns the status and the body of the answer. `takes_requests` is False where the channel is set up to
    connect by itself.

    Example:
        >>> class Hook:
        ...     takes_requests = True
        ...
        ...     async def answer_request(self, headers, body, receive):
        ...         return 200, b"ok"
        >>> isinstance(Hook(), TakesRequests)
        True
    """

    takes_requests: bool

    async def answer_request(self, headers: Mapping[str, str], body: bytes, receive: Receive) -> tuple[int, bytes]: ...


class Channels(Mapping[str, Channel]):
    """A project's channels, by name.

    Args:
        channels: the channels by name.

    Example:
        >>> len(Channels({}))
        0
    """

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = dict(channels)

    async def deliver(self, text: str, channel: str, to: str = "", attachments: Sequence[Attachment] = ()) -> None:
        """Sends the text to the named channel. Raises `ToolError`."""
        await self.find(channel).send(text, attachments, to=to)

    def find(self, name: str) -> Channel:
        """Returns the named channel. Raises a `ToolError` that lists the known names."""
        found = self._channels.get(name)
        if found is not None:
            return found
        hints = near(name, self._channels, 1)
        known = (
            f"The channels are {', '.join(sorted(self._channels))}."
            if self._channels
            else "The project has no channels."
        )
        raise ToolError(
            f"there is no channel {name[:60]!r}",
            ErrorKind.NOT_FOUND,
            f"Did you mean {hints[0]!r}?" if hints else known,
        )

    def __getitem__(self, name: str) -> Channel:
        return self._channels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    def __repr__(self) -> str:
        return f"<Channels {', '.join(self) or 'none'}>"


def split_text(text: str, longest: int) -> list[str]:
    """Splits a text into parts that a service accepts, at paragraphs, lines or words where possible.

    `longest` counts UTF-16 units, as the services do. Only white space is dropped between two parts.
    """
    parts = []
    rest = text
    while _count_units(rest) > longest:
        end = _find_cut(rest, longest)
        parts.append(rest[:end].rstrip())
        rest = rest[end:].lstrip("\n") if rest[end : end + 1] == "\n" else rest[end:].lstrip(" ")
    return [part for part in (*parts, rest) if part.strip()]


def _find_cut(text: str, longest: int) -> int:
    room = 0
    for index, char in enumerate(text):
        room += 2 if ord(char) > 0xFFFF else 1
        if room > longest:
            most = index
            break
    for break_ in ("\n\n", "\n", " "):
        found = text.rfind(break_, most // 2, most + 1)
        if found > 0:
            return found
    return most


def _count_units(text: str) -> int:
    return len(text) + sum(ord(char) > 0xFFFF for char in text)


# Delivers to the terminal.


class Terminal:
    """Writes lines and names attachments; `show` makes a text safe for the terminal."""

    def __init__(self, stream: TextIO | None = None, show: Callable[[str], str] | None = None) -> None:
        self._stream = stream
        self._show = show or _remove_control

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        head = f"[{to}] " if to else ""
        lines = [
            head + text,
            *(f"[{one.name or 'attachment'}: {one.media_type}, {len(one.data):,} bytes]" for one in attachments),
        ]
        stream = self._stream if self._stream is not None else sys.stdout
        stream.write("".join(f"{self._show(sendable(line))}\n" for line in lines))
        stream.flush()


def _remove_control(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


# Delivers to a file that a person reads: appends entries, and saves attachments beside the file.

_UNSAFE = re.compile(r"[^\w.-]+")


class FileChannel:
    """Appends Markdown. An entry is written completely or, if the disk is full, not at all.

    A process killed in between may leave a partial entry; the next entry still begins on its own line.
    """

    def __init__(self, path: Path | str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = Path(path)
        self._clock = clock

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        from forge.core.execution.threads import in_thread  # it imports asyncio

        await in_thread(lambda: self._append(text, attachments, to))

    def _append(self, text: str, attachments: Sequence[Attachment], to: str) -> None:
        now = self._clock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            links = [f"- [{path.name}]({path.parent.name}/{path.name})" for path in self._save_all(attachments, now)]
            heading = f"## {now.isoformat(timespec='seconds')}" + (f" to {' '.join(to.split())}" if to else "")
            entry = "\n".join([heading, "", sendable(text).strip(), *(["", *links] if links else []), "", ""])
            _append(self.path, entry.encode())
        except OSError as error:
            raise ToolError(
                f"writing to {self.path}: {error.strerror or error}",
                ErrorKind.SYSTEM,
                "Ask the person to check the file.",
            ) from None

    def _save_all(self, attachments: Sequence[Attachment], now: datetime) -> list[Path]:
        if not attachments:
            return []
        folder = self.path.with_name(f"{self.path.name}.files")
        folder.mkdir(mode=0o700, exist_ok=True)
        return [_save(folder, one, f"{now:%Y%m%d-%H%M%S}") for one in attachments]


def _append(path: Path, content: bytes) -> None:
    """Appends under a lock, so that two processes do not mix lines. Removes a partial entry if the disk is full."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = os.fstat(descriptor).st_size
        if before and os.pread(descriptor, 1, before - 1) != b"\n":
            content = b"\n\n" + content
        try:
            written = 0
            while written < len(content):
                written += os.write(descriptor, content[written:])
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def _save(folder: Path, attachment: Attachment, stamp: str) -> Path:
    """Saves an attachment under a new, safe name, since a tool or a model chose the given one."""
    name = _UNSAFE.sub("-", Path(attachment.name or "file").name).lstrip(".-")[:100] or "file"
    for number in range(1, 10_000):
        path = folder / (f"{stamp}-{name}" if number == 1 else f"{stamp}-{number}-{name}")
        try:
            with open(path, "xb") as file:
                try:
                    file.write(attachment.data)
                except OSError:
                    path.unlink(missing_ok=True)
                    raise
            return path
        except FileExistsError:
            continue
    raise OSError(None, f"{folder} already has too many files of this second")
