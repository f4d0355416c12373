"""Builds the egress of a project: the addresses that its tools may connect to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge.core.errors import ErrorKind, ToolError
from forge.project.config import Configuration

if TYPE_CHECKING:  # loaded only if an egress is configured
    from forge.network.egress import Egress


def project_egress(configuration: Configuration) -> Egress | None:
    """Returns the configured egress; None if none is configured. Raises `ToolError`."""
    said = configuration.egress
    if said is None:
        return None
    from forge.network.egress import Egress

    try:
        return Egress(mode=said.mode, domains=said.domains, private=said.private)
    except ValueError as error:
        way = "Write a domain such as api.example.com under domains, a network such as 10.0.0.0/8 under private."
        raise ToolError(f"{configuration.name}: egress: {error}", ErrorKind.CONFIG, way) from None
