"""Stores logins: in the system's keyring if `keyring` is installed, else in a file that only the user can read."""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.workspace.state import data_file, replace_file

LARGEST = 4 * 1024 * 1024  # bytes of the logins at one server
SERVICE = "forge mcp"  # in the keyring
FOLDER = "mcp-logins"  # below $XDG_DATA_HOME/forge
Record = dict[str, Any]  # client, tokens, expires_at, server (metadata), resource (metadata), saved_at


class TokenStore:
    """The logins at one server, by issuer. Values are read and written as a whole."""

    def __init__(self, url: str, workspace: Path | None = None) -> None:
        self._url = url
        self._workspace = workspace

    def read(self) -> Record:
        """Returns the latest login; {} if there is none. Never raises."""
        found = self.read_all()
        return max(found.values(), key=lambda one: float(one.get("saved_at", 0)), default={})

    def write(self, issuer: str, record: Record) -> None:
        """Stores a login. Raises `ToolError` if there is no safe place."""
        text = json.dumps({**self.read_all(), issuer: record})
        if not self._write_keyring(text):
            self._write_file(text)

    def clear(self) -> bool:
        """Removes all logins at this server. Returns True if there was one."""
        had = bool(self.read_all())
        if (keyring := _find_keyring()) is not None:
            with contextlib.suppress(Exception):  # it had none, or cannot be used: backends raise errors of their own
                keyring.delete_password(SERVICE, self._url)
        if (path := self._path()) is not None:
            path.unlink(missing_ok=True)
        return had

    def read_all(self) -> dict[str, Record]:
        """Returns all logins at this server, by issuer. Never raises."""
        text: str | None = None
        if (keyring := _find_keyring()) is not None:
            try:
                text = keyring.get_password(SERVICE, self._url)
            except Exception:  # a locked or broken keyring
                text = None
        path = self._path()
        try:
            text = text or (read_regular(path, LARGEST).decode() if path is not None else None)
            found = json.loads(text or "{}")
        except (OSError, ValueError):
            return {}
        return {key: one for key, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}

    def _write_keyring(self, text: str) -> bool:
        keyring = _find_keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(SERVICE, self._url, text)
        except Exception:  # no usable backend
            return False
        if (path := self._path()) is not None:
            path.unlink(missing_ok=True)
        return True

    def _write_file(self, text: str) -> None:
        path = self._path()
        if path is None:
            raise _no_place_error("there is no home directory")
        if self._workspace is not None and path.resolve().is_relative_to(self._workspace.resolve()):
            raise _no_place_error(f"{path.parent} lies in the workspace, where tools could read it")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, text)
        except OSError as error:
            raise _no_place_error(f"{path.parent}: {error.strerror}") from None

    def _path(self) -> Path | None:
        return data_file(f"{FOLDER}/{sha256(self._url.encode()).hexdigest()[:32]}.json")


def _find_keyring() -> Any:
    """Returns the package `keyring`; None if it is not installed."""
    try:
        return import_module("keyring")
    except ImportError:
        return None


def _no_place_error(why: str) -> ToolError:
    return ToolError(
        f"the login could not be stored: {why}",
        ErrorKind.CONFIG,
        "Set XDG_DATA_HOME to a directory outside the workspace that can be written, or install keyring.",
    )
