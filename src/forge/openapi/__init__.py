"""A source of tools: OpenAPI documents. `openapi("petstore.yaml", auth={"bearer_env": "PETS_TOKEN"})`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.openapi.source import OpenApi as OpenApi
    from forge.openapi.source import openapi as openapi
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
