"""Collects the secret values of a project: from named variables and files, and the keys of known providers."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from forge.core.extras import check_extra
from forge.core.secrets import SHORTEST, Secrets
from forge.models.vendors import OWN_PROTOCOLS, SERVERS
from forge.network.program_secrets import ProgramSecret
from forge.project.config import Configuration
from forge.project.config.access import SecretEntry

KEYS = (
    *dict.fromkeys(key for keys in OWN_PROTOCOLS.values() for key in keys),
    "PERPLEXITY_API_KEY",
    "TAVILY_API_KEY",
    *(s.key for s in SERVERS.values() if s.key),
)
CLOUD_SECRETS = (  # they are masked; `forge doctor` does not ask for them
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_OPENAI_AD_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
    "IDENTITY_HEADER",
)
_COMMAND_SECONDS = 30.0
LARGEST_FILE = 64 * 1024  # bytes of a file that holds a secret
MOUNTED = "/run/"  # container runtimes put secrets here, readable for all in the container


def project_secrets(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Returns the secrets to mask. Raises `ToolError` for a named one that is too short to be masked."""
    secrets = Secrets()
    secrets.learn(_unlisted_secrets(configuration, environment))
    for index, name in enumerate(configuration.secrets):
        if value := environment.get(name, ""):
            _check_length(configuration, f"secrets[{index}]", f"the value of {name}", value)
            secrets.add(value)
    for path in configuration.secret_files:
        value = _read_file(configuration, path)
        _check_length(configuration, "secrets", f"{path}", value)
        secrets.add(value)
        secrets.learn(value.splitlines())
    return secrets


def program_secrets(
    configuration: Configuration, masked: Secrets | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[ProgramSecret, ...]:
    """Returns the secrets that the proxy of programs puts into requests. `masked` learns what is read later."""
    found = []
    for entry in configuration.secret_entries:
        if entry.hosts:
            read = _SecretReader(configuration, entry, masked, environment)
            hosts = tuple(one.lower() for one in entry.hosts)
            found.append(ProgramSecret(read, hosts, entry.header, entry.name))
    return tuple(found)


class _SecretReader:
    """Reads the value of a secret when a request needs it: from its file, command or keyring, else its variable."""

    def __init__(
        self, configuration: Configuration, entry: SecretEntry, masked: Secrets | None, environment: Mapping[str, str]
    ) -> None:
        self._configuration, self._entry, self._masked, self._environment = configuration, entry, masked, environment
        self._value = ""
        self._until = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._value = self._read()
                self._until = time.monotonic() + self._entry.lifetime
                if self._masked is not None:
                    self._masked.learn([self._value])
            return self._value

    def _read(self) -> str:
        entry = self._entry
        if entry.file is not None:
            value = _read_file(self._configuration, entry.file)
        elif entry.command:
            value = self._ask_command()
        elif entry.keyring:
            value = self._ask_keyring()
        else:
            value = self._environment.get(entry.name, "")
        if len(value) < SHORTEST or not value.isprintable():
            what = "is empty" if not value else f"is not a text of at least {SHORTEST} characters"
            raise self._configuration.error(entry.key_path, f"the value of {self._name} {what}")
        return value

    @property
    def _name(self) -> str:
        entry = self._entry
        return entry.name or (str(entry.file) if entry.file else entry.keyring or entry.command[0])

    def _ask_command(self) -> str:
        try:
            said = subprocess.run(
                list(self._entry.command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError, UnicodeError) as error:
            code = getattr(error, "returncode", None)
            why = f"it ended with exit code {code}" if code is not None else type(error).__name__
            problem = f"the command {self._entry.command[0]} gave no secret: {why}"
            raise self._configuration.error(self._entry.key_path, problem) from None
        return said.stdout.strip()

    def _ask_keyring(self) -> str:
        check_extra("secrets", "the system's keyring cannot be read")
        import keyring
        from keyring.errors import KeyringError

        service, _, user = self._entry.keyring.rpartition("/")
        try:
            found = keyring.get_password(service, user)
        except KeyringError as error:
            raise self._configuration.error(self._entry.key_path, f"the keyring cannot be read: {error}") from None
        if found is None:
            raise self._configuration.error(self._entry.key_path, f"the keyring has no {self._entry.keyring}")
        return found


def _unlisted_secrets(configuration: Configuration, environment: Mapping[str, str]) -> Iterator[str]:
    """Yields values that are secret without being listed under `secrets`."""
    names = [*KEYS, *CLOUD_SECRETS]
    for entry in configuration.channels.values():
        names += [entry.url_env, entry.token_env, *entry.headers_env.values()]
    embedder = configuration.memory.embedder if configuration.memory else ""
    names += [str(embedder.get("key_env", ""))] if isinstance(embedder, dict) else []
    yield from (environment.get(name, "") for name in names)
    if configuration.durable is not None:
        yield from configuration.durable.secrets(environment)
    for section in (configuration.servers, configuration.openapi, configuration.webhooks):
        for source in section.values():
            yield from source.secrets


def _check_length(configuration: Configuration, key_path: str, what: str, value: str) -> None:
    if len(value) < SHORTEST:
        problem = f"{what} has {len(value)} characters and cannot be masked: it needs at least {SHORTEST}"
        raise configuration.error(key_path, problem)


def _read_file(configuration: Configuration, path: Path) -> str:
    """Reads a file that only its owner can read or change: a value that others know is not a secret."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise configuration.error("secrets", f"{path} is not a regular file")
            for bits, what in ((0o022, "change"), (0o044, "read")):
                if status.st_mode & bits and not (what == "read" and os.path.realpath(path).startswith(MOUNTED)):
                    problem = f"other users can {what} {path}; restrict it with: chmod 600 {path}"
                    raise configuration.error("secrets", problem)
            content = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise configuration.error("secrets", f"{path} cannot be read: {problem}") from None
    if len(content) > LARGEST_FILE:
        raise configuration.error("secrets", f"{path} is larger than {LARGEST_FILE // 1024} KiB")
    return content.decode("utf-8", "replace").strip()
