"""Reads the value of a secret from where its entry says it is: a file, a command, or the system's keyring."""

from __future__ import annotations

import os
import selectors
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from forge.core.errors import ToolError
from forge.core.extras import check_extra

LARGEST_FILE = 64 * 1024  # bytes of a file that holds a secret
MOUNTED = "/run/"  # container runtimes put secrets here, readable for all in the container
COMMAND_SECONDS = 30.0


def read_secret(file: Path | None, command: Sequence[str] = (), keyring: str = "") -> str:
    """Returns the value from the first of these that is named; "" if none is. Raises `ValueError` with the problem."""
    if file is not None:
        return _check_text(read_secret_file(file), str(file))
    if command:
        return _ask_command(command)
    return _ask_keyring(keyring) if keyring else ""


def read_secret_file(path: Path) -> str:
    """Reads a file that only its owner can read or change: a value that others know is not a secret."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{path} is not a regular file")
            for bits, what in ((0o022, "change"), (0o044, "read")):
                if status.st_mode & bits and not (what == "read" and os.path.realpath(path).startswith(MOUNTED)):
                    raise ValueError(f"other users can {what} {path}; restrict it with: chmod 600 {path}")
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{path} is larger than {LARGEST_FILE // 1024} KiB")
    return content.decode("utf-8", "replace").strip()


def _ask_command(command: Sequence[str]) -> str:
    """Runs a command, without the input of Forge, which may be the protocol of a server."""
    name = f"the command {command[0]}"
    try:
        with subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as asked:
            try:
                said = _read_output(asked)
                code = asked.wait(COMMAND_SECONDS)
            finally:
                asked.kill()
    except subprocess.TimeoutExpired:
        raise ValueError(f"{name} gave no secret: it did not end within {COMMAND_SECONDS:.0f} seconds") from None
    except OSError as error:
        raise ValueError(f"{name} gave no secret: {error.strerror or type(error).__name__}") from None
    if len(said) > LARGEST_FILE:
        raise ValueError(f"{name} printed more than {LARGEST_FILE // 1024} KiB")
    if code:
        raise ValueError(f"{name} gave no secret: it ended with exit code {code}")
    return _check_text(said.decode("utf-8", "replace").strip(), f"what {name} printed")


def _read_output(asked: subprocess.Popen[bytes]) -> bytes:
    """Reads what a command prints until it ends its output, or has printed too much. Raises `TimeoutExpired`."""
    assert asked.stdout is not None
    until, said = time.monotonic() + COMMAND_SECONDS, b""
    with selectors.DefaultSelector() as ready:
        ready.register(asked.stdout, selectors.EVENT_READ)
        while ready.select(max(0.0, until - time.monotonic())):
            piece = os.read(asked.stdout.fileno(), LARGEST_FILE)
            said += piece
            if not piece or len(said) > LARGEST_FILE:
                asked.stdout.close()
                return said
    raise subprocess.TimeoutExpired(asked.args, COMMAND_SECONDS)


def _check_text(text: str, what: str) -> str:
    if not text:
        raise ValueError(f"{what} is empty")
    if "\ufffd" in text:
        raise ValueError(f"{what} is not text in UTF-8")
    return text


def _ask_keyring(place: str) -> str:
    try:
        check_extra("secrets", "the system's keyring cannot be read")
    except ToolError as error:
        raise ValueError(f"{error.message}. {error.suggestion}") from None
    import keyring
    from keyring.errors import KeyringError

    service, _, user = place.rpartition("/")
    try:
        found = keyring.get_password(service, user)
    except KeyringError as error:
        raise ValueError(f"the keyring cannot be read: {error}") from None
    if found is None:
        raise ValueError(f"the keyring has no {place}")
    return found
