"""Collects the secret values of a project: from named variables and files, and the keys of known providers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from forge.core.secrets import SHORTEST, Secrets
from forge.models.vendors import OWN_PROTOCOLS, SERVERS
from forge.project.config import Configuration

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
