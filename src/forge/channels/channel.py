"""A channel: takes a text and files to a person. `Channels` finds it by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment


class Channel(Protocol):
    """Raises `ToolError` where nothing could be delivered; `to` is a chat or a room, where there are several."""

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None: ...


class Channels(Mapping[str, Channel]):
    """A project's channels, by name."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = dict(channels)

    async def deliver(self, text: str, channel: str, to: str = "", attachments: Sequence[Attachment] = ()) -> None:
        """To the channel of that name. Raises `ToolError`."""
        await self.find(channel).send(text, attachments, to=to)

    def find(self, name: str) -> Channel:
        """Like `[]`, with an error that says what there is."""
        found = self._channels.get(name)
        if found is not None:
            return found
        hints = near(name, self._channels, 1)
        known = f"There are {', '.join(sorted(self._channels))}." if self._channels else "The project has none."
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


def pieces(text: str, longest: int) -> list[str]:
    """A text in parts that a service takes, cut at paragraphs, lines or words where that is possible.

    `longest` counts UTF-16 units, as the services do. What was cut out between two parts is white space.
    """
    parts = []
    rest = text
    while _units(rest) > longest:
        end = _end(rest, longest)
        parts.append(rest[:end].rstrip())
        rest = rest[end:].lstrip("\n") if rest[end : end + 1] == "\n" else rest[end:].lstrip(" ")
    return [part for part in (*parts, rest) if part.strip()]


def _end(text: str, longest: int) -> int:
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


def _units(text: str) -> int:
    return len(text) + sum(ord(char) > 0xFFFF for char in text)
