"""Lets `tool_search` rank tools by meaning, with the embedder that runs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from forge.core.registry import ToolRegistry
from forge.memory.minilm import MiniLM, is_installed
from forge.project.config import Configuration
from forge.tools.tool_search import ToolSearch


def rank_tools_by_meaning(registry: ToolRegistry, configuration: Configuration) -> None:
    """Gives `tool_search` the local embedder, if it is installed and the project allows it.

    A server that `memory.embedder` names is not used: no one agreed to send it the tools.
    """
    search = registry.get("tool_search")
    if isinstance(search, ToolSearch) and configuration.agent.tool_search == "meaning" and is_installed():
        search.rank_by_meaning(embed_locally)


def embed_locally(texts: Sequence[str]) -> list[Sequence[float]]:
    """Embeds texts with the local model, which the first call loads."""
    return _model().embed(texts)


@cache
def _model() -> MiniLM:
    return MiniLM()
