"""Stores the tool definitions that a person approved, so that a server cannot change them unnoticed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.untrusted import is_visible
from forge.workspace.state import replace_file
from forge.workspace.state.sealing import find_change, is_sealed_place, seal

VERSION = 1
LARGEST_FILE = 64 * 1024 * 1024  # bytes of a file that is read
SEAL = "seal"
PATIENCE = 10.0  # seconds to wait for another process
PINNED = ("title", "description", "inputSchema", "outputSchema", "annotations")
"""The keys of a definition that are pinned; `_meta` and icons may change: no model reads them."""

log = logging.getLogger(__name__)


class PinState(StrEnum):
    """The state of a definition compared with the approved one."""

    NEW = "new"
    PINNED = "pinned"
    CHANGED = "changed"
    UNKNOWN = "unknown"  # the approval is lost: it may have been this definition, another, or none


class Pin(NamedTuple):
    """An approved definition."""

    sha256: str
    definition: Mapping[str, Any]
    target: str  # the command or URL of the server
    approved: str = ""  # when
    by: str = ""


@dataclass(frozen=True, slots=True)
class LostApprovals:
    """Approvals of a server that may have existed and are unreadable now."""

    everything: bool = False
    tools: frozenset[str] = frozenset()

    def __contains__(self, tool: object) -> bool:
        return self.everything or tool in self.tools


class Pins:
    """The approved definitions of all servers: in a file, or with `path=None` in memory.

    In memory, the first list of a server counts as approved: only later tools are new or changed.
    """

    def __init__(self, path: Path | str | None = None, *, doubt: str = "") -> None:
        self.path = Path(path) if path is not None else None
        self.problem = doubt  # the reason why nothing counts as approved
        self._doubt = doubt  # the reason why approvals may be missing, apart from the file's own state
        self._memory: dict[str, Any] = _empty_document()

    @property
    def trusts_first(self) -> bool:
        """True if the first list of a server counts as approved."""
        return self.path is None

    def of(self, server: str) -> dict[str, Pin]:
        """Returns the pins of a server by tool name. Reads the file: do not call it on the event loop."""
        entry = self._read()["servers"].get(server)
        tools = entry.get("tools") if isinstance(entry, Mapping) else None
        found = tools.items() if isinstance(tools, Mapping) else ()
        return {name: pin for name, raw in found if (pin := _read_pin(raw)) is not None}

    def find_lost(self, server: str) -> LostApprovals:
        """Returns the tools without a pin that a person may have approved: `--yes` does not approve these again.

        These are all tools after the file was broken, until a person removes the file that was set aside; `problem`
        says so.
        """
        if self._doubt:
            return LostApprovals(everything=True)
        document = self._read()
        left = self._list_set_aside()
        if document["version"] != VERSION or left:
            if left:
                self._report(
                    f"{self.path} was damaged and was renamed to {', '.join(left)}: it is unknown which tools were"
                    f" approved. Approve the tools again at a terminal with `forge mcp approve`, then remove {left[0]}"
                )
            return LostApprovals(everything=True)
        entry = document["servers"].get(server, {})
        tools = entry.get("tools") if isinstance(entry, Mapping) else None
        if not isinstance(tools, Mapping):
            if server in document["servers"]:
                self._report(
                    f"{self.path}: the approvals of {server} are damaged: it is unknown which tools were approved"
                )
            return LostApprovals(everything=server in document["servers"])
        damaged = frozenset(name for name, raw in tools.items() if _read_pin(raw) is None)
        if damaged:
            named = ", ".join(sorted(damaged)[:5])
            self._report(
                f"{self.path}: the approvals of {server} for {named} are damaged: it is unknown which tools were"
                " approved"
            )
        return LostApprovals(tools=damaged)

    def servers(self) -> list[str]:
        return list(self._read()["servers"])

    def record(self, server: str, target: str, definitions: Mapping[str, Mapping[str, Any]], by: str) -> None:
        """Stores these definitions, by tool name, as approved."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")

        def change(document: dict[str, Any]) -> None:
            entry = document["servers"].get(server)
            if not isinstance(entry, dict) or not isinstance(entry.get("tools"), dict):
                entry = document["servers"][server] = {"tools": {}}
            entry["target"] = target
            for name, definition in definitions.items():
                pin = Pin(digest(definition), pinned_part(definition), target, now, by)
                entry["tools"][name] = pin._asdict()

        self._change(change)

    def forget(self, server: str) -> int:
        """Removes a server's approvals. Returns how many tools were approved."""
        gone = len(self.of(server))
        self._change(lambda document: document["servers"].pop(server, None))
        return gone

    def _read(self) -> dict[str, Any]:
        if self.path is None:
            return self._memory
        try:
            return self._check_version(load_document(self.path))
        except FileNotFoundError:
            return _empty_document()
        except OSError as error:
            raise _unusable_error(self.path, error) from error
        except (ValueError, RecursionError):
            try:
                with _file_lock(self.path):
                    return self._load_or_set_aside(self.path)
            except OSError as error:
                raise _unusable_error(self.path, error) from error

    def _list_set_aside(self) -> list[str]:
        """Lists the broken files that were set aside, the oldest first."""
        if self.path is None:
            return []
        try:
            return sorted(name for name in os.listdir(self.path.parent) if name.startswith(f"{self.path.name}.broken-"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unusable_error(self.path, error) from error

    def _load_or_set_aside(self, path: Path) -> dict[str, Any]:
        """Loads the file, or sets an unreadable file aside for a person; then nothing counts as approved."""
        try:
            return self._check_version(load_document(path))
        except FileNotFoundError:
            return _empty_document()
        except (ValueError, RecursionError) as error:
            aside = path.with_name(f"{path.name}.broken-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}")
            path.rename(aside)
            self._report(f"{path} cannot be read ({str(error)[:200]}); it was renamed to {aside.name}")
            return _empty_document()

    def _check_version(self, document: dict[str, Any]) -> dict[str, Any]:
        if document["version"] == VERSION:
            return document
        self._report(
            f"{self.path} has version {document['version']}, but this Forge reads version {VERSION}: no tool counts as"
            " approved"
        )
        return {**_empty_document(), "version": document["version"]}

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        if self.path is None:
            change(self._memory)
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _file_lock(self.path):
                document = self._load_or_set_aside(self.path)
                if document["version"] != VERSION:
                    raise ToolError(self.problem, ErrorKind.CONFIG, "Use a newer Forge, or move the file away.")
                change(document)
                _write(self.path, document)
        except OSError as error:
            raise _unusable_error(self.path, error) from error

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem


def pins_of(pins: Pins | Path | str | None) -> Pins:
    return pins if isinstance(pins, Pins) else Pins(pins)


def pinned_part(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the pinned keys of a definition."""
    return {key: definition[key] for key in PINNED if definition.get(key) is not None}


def digest(definition: Mapping[str, Any]) -> str:
    """Returns a hash of a definition that does not depend on the order of its keys."""
    text = json.dumps(pinned_part(definition), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def state_of(pin: Pin | None, target: str, sha256: str, *, lost: bool = False) -> PinState:
    """Compares a definition, by its digest, with the pin of its tool, which may be `lost`."""
    if pin is None:
        return PinState.UNKNOWN if lost else PinState.NEW
    return PinState.PINNED if pin.sha256 == sha256 and pin.target == target else PinState.CHANGED


def format_definition(definition: Mapping[str, Any], target: str = "") -> str:
    """Formats a definition for a person, line by line, with invisible characters escaped."""
    lines = [f"from: {target}"] if target else []
    for key, value in pinned_part(definition).items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
        lines += [f"{key}:", *(f"  {line}" for line in _escape_invisible(text).split("\n"))]
    return "\n".join(lines) + "\n"


def difference(name: str, pin: Pin, target: str, definition: Mapping[str, Any]) -> str:
    """Returns the changes since the approval as a unified diff."""
    from difflib import unified_diff  # needed only for changes

    before = format_definition(pin.definition, pin.target).splitlines(keepends=True)
    after = format_definition(definition, target).splitlines(keepends=True)
    approved = f"{name} (approved{f' {pin.approved}' if pin.approved else ''})"
    return "".join(unified_diff(before, after, approved, f"{name} (now)"))


def _escape_invisible(text: str) -> str:
    """Escapes invisible characters as JSON does."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in "\n " or is_visible(char) else json.dumps(char)[1:-1] for char in text)


def _empty_document() -> dict[str, Any]:
    return {"version": VERSION, "servers": {}}


def load_document(path: Path) -> dict[str, Any]:
    """Reads the file. Raises `ValueError` if it is not a valid document of pins."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise ValueError("it is a symbolic link") from error
        raise
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is not a regular file")
        raw = stream.read(LARGEST_FILE + 1)
    if len(raw) > LARGEST_FILE:
        raise ValueError(f"it is larger than {LARGEST_FILE:,} bytes")
    document = json.loads(raw)
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise ValueError("it has no version")
    if document["version"] == VERSION and not isinstance(document.get("servers"), dict):
        raise ValueError("it has no servers")
    found = document.pop(SEAL, None)
    is_judged = document["version"] == VERSION and is_sealed_place(path)  # another version approves nothing anyway
    if is_judged and (change := find_change(path, _content(document), found)):
        raise ValueError(change)
    return document


def reseal_pins(path: Path) -> None:
    """Seals the approvals that a person accepts as they are. Raises `OSError` or `ValueError`."""
    document = json.loads(read_regular(path, LARGEST_FILE, os.O_NOFOLLOW))
    document.pop(SEAL, None)
    _write(path, document)


def _write(path: Path, document: dict[str, Any]) -> None:
    if is_sealed_place(path):
        document = {**document, SEAL: seal(path, _content(document))}
    replace_file(path, json.dumps(document, indent=1).encode())


def _content(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _read_pin(raw: Any) -> Pin | None:
    """Reads a pin; None if it is damaged or does not match its own hash."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("definition"), Mapping):
        return None
    texts = {key: raw.get(key, "") for key in ("sha256", "target", "approved", "by")}
    if not all(isinstance(text, str) for text in texts.values()) or digest(raw["definition"]) != texts["sha256"]:
        return None
    return Pin(definition=raw["definition"], **texts)


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Locks the file: one process at a time changes it."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ToolError(
                        f"{path} is being changed by another process",
                        ErrorKind.TIMEOUT,
                        "Try again in a moment.",
                        passing=True,
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _unusable_error(path: Path, error: OSError) -> ToolError:
    return ToolError(
        f"the approved definitions in {path} cannot be used: {error.strerror or error}",
        ErrorKind.CONFIG,
        "Make the file readable and writable for its owner, or choose another workspace.",
    )
