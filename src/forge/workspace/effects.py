"""Defines the effects of a program, an undo or a rewind on files: one list that rules judge and people see."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from forge.core.errors import ToolError
from forge.workspace.paths import quote_path
from forge.workspace.text.diff import content_diff

EffectKind = Literal["create", "change", "delete", "mode"]
PathType = Literal["file", "folder", "link", "other"]

LARGEST_DIFF = 4 * 1024 * 1024  # bytes of a file that is shown as a diff; of a larger one the size is shown
_VERBS: dict[EffectKind, str] = {"create": "creates", "change": "changes", "delete": "deletes", "mode": "changes"}
_NOUNS: dict[PathType, str] = {"file": "file", "folder": "folder", "link": "link", "other": "special file"}


@dataclass(frozen=True, slots=True)
class PathState:
    """The file, folder or link at a path, before or after."""

    type: PathType
    mode: int  # permission bits
    size: int = 0  # bytes, of a file
    target: str = ""  # of a link
    mark: str = ""  # identifies the content: a hash, or the identity of the file that holds it


Contents = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Effect:
    """One path that is created, changed or deleted, or gets another mode.

    A deleted folder is one effect, followed by one for each path in it.
    """

    path: Path  # absolute, in the real tree
    shown: str  # relative to the workspace; absolute elsewhere
    kind: EffectKind
    before: PathState | None  # None: there is nothing
    after: PathState | None
    read: Callable[[], Contents] | None = field(default=None, compare=False, repr=False)  # old and new content

    @property
    def type(self) -> PathType:
        state = self.after or self.before
        return state.type if state is not None else "other"

    @property
    def is_binary(self) -> bool:
        """True for a file whose content is not shown as a diff."""
        return self.kind != "mode" and self.type == "file" and self._text_diff() is None

    def diff(self) -> str:
        """Returns the change: text as a diff, binary as sizes and type, anything else in words."""
        lines = [self._describe_state()] if self._describe_state() else []
        if "file" in (_type(self.before), _type(self.after)) and self.kind != "mode":
            text = self._text_diff()
            lines += [text if text is not None else self._describe_binary()]
            if text == "" and _type(self.before) == _type(self.after):  # such as an access list
                lines.append(f"{quote_path(self.shown)} changes its extended attributes\n")
        return "".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Returns plain values for results, events and the console."""
        values: dict[str, Any] = {"path": self.shown, "kind": self.kind, "type": self.type}
        for name, state in (("before", self.before), ("after", self.after)):
            if state is not None:
                values[name] = {"type": state.type, "mode": f"{state.mode:04o}"}
                values[name] |= {"size": state.size} if state.type == "file" else {}
                values[name] |= {"target": state.target} if state.type == "link" else {}
        return values

    def _text_diff(self) -> str | None:
        """Returns the diff of two texts; None if one of them is binary, large or cannot be read."""
        if self.read is None or max(_size(self.before), _size(self.after)) > LARGEST_DIFF:
            return None
        try:
            return content_diff(*self.read(), self.shown)
        except (ToolError, OSError):
            return None

    def _describe_state(self) -> str:
        """Describes a change of mode, link or type in one line; "" for a file that only gets another content."""
        before, after, name = self.before, self.after, quote_path(self.shown)
        if before is not None and after is not None:
            if before.type != after.type:
                return f"{name} changes from {_describe(before)} to {_describe(after)}\n"
            if before.target != after.target:
                return f"{name} leads to {quote_path(after.target)} instead of {quote_path(before.target)}\n"
            return f"{name} changes its mode from {before.mode:04o} to {after.mode:04o}\n" * (before.mode != after.mode)
        if after is not None and after.type == "file":
            return f"{name} gets mode {after.mode:04o}\n" if after.mode & 0o7111 else ""
        state = after or before
        if state is None or state.type == "file":
            return ""
        return f"{self.kind} {name}: {_describe(state)}\n"

    def _describe_binary(self) -> str:
        guessed = mimetypes.guess_type(self.shown)[0]
        sizes = [f"{_size(one):,}" for one in (self.before, self.after) if one is not None]
        return f"{self.kind} {quote_path(self.shown)}: {guessed or 'binary'}, {' to '.join(sizes)} bytes\n"


@dataclass(frozen=True, slots=True)
class Effects:
    """Everything that a program did, as far as its layer shows it."""

    files: tuple[Effect, ...] = ()
    hosts: tuple[str, ...] = ()  # hosts that it tried to reach
    processes: tuple[str, ...] = ()  # processes that it left running
    unsure: tuple[
        str, ...
    ] = ()  # reasons why a direct run may do something else: the line is offered outside the trial
    notes: tuple[str, ...] = ()  # for people: such as a large file that was copied

    @property
    def is_empty(self) -> bool:
        """True if nothing has to be applied, and nothing is unsure."""
        return not (self.files or self.unsure)

    def summary(self) -> str:
        """Returns one line, such as "changes 3 files, deletes 1 file, wanted 2 hosts"."""
        return ", ".join(self._count_all()) or "no effects"

    def diff(self, limit: int = 20_000) -> str:
        """Returns all effects as text, at most `limit` characters."""
        text = ""
        for number, effect in enumerate(self.files):
            if len(text) >= limit:
                return f"{text[:limit]}\n… and {len(self.files) - number:,} more\n"
            text += effect.diff()
        return text if len(text) <= limit else f"{text[:limit]}\n… cut after {limit:,} characters\n"

    def as_json(self) -> dict[str, Any]:
        """Returns plain values for results, events and the console."""
        others = {name: list(getattr(self, name)) for name in ("hosts", "processes", "unsure", "notes")}
        return {"summary": self.summary(), "files": [one.as_json() for one in self.files], **others}

    def digest(self) -> str:
        """Returns a hash of all effects with their contents: a person approves exactly these."""
        rows = [[str(one.path), one.kind, *map(_values, (one.before, one.after))] for one in self.files]
        whole = [rows, self.hosts, self.processes, self.unsure]
        return sha256(json.dumps(whole).encode()).hexdigest()

    def _count_all(self) -> Iterator[str]:
        for kind, verb in _VERBS.items():
            found = [one for one in self.files if one.kind == kind]
            if kind == "mode" and found:
                yield f"{verb} the mode of {_count(len(found), 'path')}"
                continue
            counted = [
                _count(number, noun)
                for type_, noun in _NOUNS.items()
                if (number := sum(one.type == type_ for one in found))
            ]
            if counted:
                yield f"{verb} {' and '.join(counted)}"
        if self.hosts:
            yield f"wanted {_count(len(self.hosts), 'host')}"
        if self.processes:
            yield f"left {_count(len(self.processes), 'process', 'processes')} running"


def _count(number: int, one: str, many: str = "") -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def _type(state: PathState | None) -> str:
    return "" if state is None else state.type


def _size(state: PathState | None) -> int:
    return 0 if state is None else state.size


def _values(state: PathState | None) -> list[Any] | None:
    return None if state is None else [state.type, state.mode, state.size, state.target, state.mark]


def _describe(state: PathState) -> str:
    if state.type == "link":
        return f"a link to {quote_path(state.target)}"
    return {"file": "a file", "folder": "a folder"}.get(state.type, "a FIFO, a socket or a device")
