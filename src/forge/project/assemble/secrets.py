"""Collects the secret values of a project: from named variables and files, and the keys of known providers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.secrets import SHORTEST, Secrets
from forge.models.vendors import OWN_PROTOCOLS, SERVERS
from forge.network.program_secrets import ProgramSecret
from forge.project.config import Configuration
from forge.project.config.access import SecretEntry
from forge.project.config.read_secret import read_secret_file

if TYPE_CHECKING:
    from forge.network.egress import Egress

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


def project_secrets(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Returns the secrets to mask, also those that are read later. Raises `ToolError` for a named one that is too short
    to be masked.
    """
    secrets = Secrets()
    for entry in configuration.secret_entries:
        if entry.source is not None:
            entry.source.mask_in(secrets)
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


def program_secrets(configuration: Configuration) -> tuple[ProgramSecret, ...]:
    """Returns the secrets that the proxy of programs puts into requests."""
    found = []
    for entry in configuration.secret_entries:
        if entry.hosts:
            try:
                found.append(
                    ProgramSecret(partial(_read_value, configuration, entry), entry.hosts, entry.header, entry.name)
                )
            except ValueError as error:
                raise configuration.error(entry.key_path, str(error)) from None
    return tuple(found)


def find_placeholders(values: Mapping[str, str], egress: Egress | None) -> dict[str, str]:
    """Returns the placeholders of values that stay outside of a program. `values`: each with the name of its secret."""
    known = {secret.name: secret.placeholder for secret in (egress.secrets if egress is not None else ())}
    return {value: known[name] for value, name in values.items() if name in known}


def _read_value(configuration: Configuration, entry: SecretEntry) -> str:
    """Returns a value that can be put into a header. Raises `ToolError`."""
    value = entry.source.read() if entry.source is not None else ""
    if len(value) < SHORTEST or not value.isprintable():
        what = f"has {len(value)} characters; it needs at least {SHORTEST}" if value else "is empty"
        what = what if value.isprintable() else "has several lines, or a control character"
        name = entry.name or str(entry.file or entry.keyring or entry.command[0])
        raise configuration.error(entry.key_path, f"the value of {name} {what}")
    return value


def _unlisted_secrets(configuration: Configuration, environment: Mapping[str, str]) -> Iterator[str]:
    """Yields values that are secret without being listed under `secrets`."""
    names = [*KEYS, *CLOUD_SECRETS]
    for entry in configuration.channels.values():
        names += entry.variables
    embedder = configuration.memory.embedder if configuration.memory else ""
    names += [str(embedder.get("key_env", ""))] if isinstance(embedder, dict) else []
    yield from (environment.get(name, "") for name in names)
    if configuration.durable is not None:
        yield from configuration.durable.secrets(environment)
    for section in (configuration.servers, configuration.openapi, configuration.webhooks):
        for source in section.values():
            yield from source.secrets
    for agent in configuration.agents.values():
        yield from agent.acp.secrets if agent.acp is not None else ()


def _check_length(configuration: Configuration, key_path: str, what: str, value: str) -> None:
    if len(value) < SHORTEST:
        problem = f"{what} has {len(value)} characters and cannot be masked: it needs at least {SHORTEST}"
        raise configuration.error(key_path, problem)


def _read_file(configuration: Configuration, path: Path) -> str:
    try:
        return read_secret_file(path)
    except ValueError as error:
        raise configuration.error("secrets", str(error)) from None
