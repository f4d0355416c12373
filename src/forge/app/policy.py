"""The policy of a project: its configuration's rules, then those given for this call."""

from __future__ import annotations

from pathlib import Path

from forge.app.config import Configuration
from forge.permissions.policy import Rules, layered, load_rules


def project_policy(configuration: Configuration, policy: str | None) -> Rules:
    """A rule file given for this call is the more specific layer: it decides, but what the project denies stays denied.

    Raises `PolicyError`.
    """
    return layered(
        project=load_rules(Path(configuration.name)) if configuration.rules else None,  # again, for the lines
        session=load_rules(Path(policy)) if policy is not None else None,
    )
