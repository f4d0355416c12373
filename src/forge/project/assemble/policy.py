"""Builds the policy of a project: the organisation's rules, the user's, the project's, then those for this call."""

from __future__ import annotations

from pathlib import Path

from forge.permissions.policy import Rules, layered, load_rules
from forge.project.config import Configuration
from forge.project.config_layers import rule_layers


def project_policy(configuration: Configuration, policy: str | None) -> Rules:
    """A rule file given for this call is the most specific layer: it decides, but denies of other layers stay.

    Raises `PolicyError`.
    """
    above = rule_layers(configuration.layers)
    return layered(
        organisation=above.get("organisation"),
        user=above.get("user"),
        project=above.get("project"),
        session=load_rules(Path(policy)) if policy is not None else None,
    )
