"""`forge.yaml`: every key is declared once, as a field of a section, and checked, typed and described from there.

This package reads documents. The modules that use the values define their effects.
"""

from __future__ import annotations

from forge.project.config.access import MODES, SANDBOXES, EgressEntry, RootEntry
from forge.project.config.agent import AgentEntry, SubAgentEntry, ToolEntry
from forge.project.config.declaration import NAME, Configuration
from forge.project.config.load import load_configuration, read_configuration

__all__ = [
    "MODES",
    "NAME",
    "SANDBOXES",
    "AgentEntry",
    "Configuration",
    "EgressEntry",
    "RootEntry",
    "SubAgentEntry",
    "ToolEntry",
    "load_configuration",
    "read_configuration",
]
