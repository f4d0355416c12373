"""Which values are secret here: those of the variables a project names, and the keys of known providers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from forge.app.config import Configuration
from forge.core.secrets import SHORTEST, Secrets
from forge.providers.names import SERVERS

KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "PERPLEXITY_API_KEY",
    "TAVILY_API_KEY",
    *(s.key for s in SERVERS.values() if s.key),
)


def project_secrets(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Registered for masking. A named one too short to be masked is refused: it would be shown."""
    secrets = Secrets()
    for key in KEYS:
        if len(value := environment.get(key, "")) >= SHORTEST:
            secrets.add(value)
    named = [variable for entry in configuration.channels.values() for variable in (entry.url_env, entry.token_env)]
    embedder = configuration.memory.embedder if configuration.memory else ""
    named += [str(embedder.get("key_env", ""))] if isinstance(embedder, dict) else []
    for value in (environment.get(name, "") for name in named):
        if len(value) >= SHORTEST:
            secrets.add(value)
    sections = (configuration.servers, configuration.openapi, configuration.webhooks)
    for value in (one for section in sections for entry in section.values() for one in entry.secrets):
        if len(value) >= SHORTEST:
            secrets.add(value)
    for index, name in enumerate(configuration.secrets):
        value = environment.get(name, "")
        if 0 < len(value) < SHORTEST:
            problem = f"the value of {name} has {len(value)} characters and cannot be masked: {SHORTEST} are the least"
            raise configuration.error(f"secrets[{index}]", problem)
        if value:
            secrets.add(value)
    return secrets
