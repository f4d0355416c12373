"""OpenAPI documents as a source of tools: `openapi("petstore.yaml", auth={"bearer_env": "PETS_TOKEN"})`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.sources.openapi.source import OpenApi, openapi

__all__ = ["OpenApi", "openapi"]


def __getattr__(name: str) -> Any:
    """On first use: listing `openapi_call` needs nothing of the network."""
    if name in __all__:
        from forge.sources.openapi import source

        return getattr(source, name)
    raise AttributeError(name)
