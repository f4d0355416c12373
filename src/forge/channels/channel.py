"""Defines a channel, which delivers text and files to a person, and `Channels`, which finds channels by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError
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
