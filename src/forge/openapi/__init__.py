"""A source of tools: OpenAPI documents. `openapi("petstore.yaml", auth={"bearer_env": "PETS_TOKEN"})`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.openapi.source import OpenApi, openapi

__all__ = ["OpenApi", "openapi"]


def __getattr__(name: str) -> Any:
    """Imports the source on first use: listing `openapi_call` does not need the network."""
    if name in __all__:
        from forge.openapi import source

        return getattr(source, name)
    raise AttributeError(name)
