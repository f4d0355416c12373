"""The private parts of the MCP SDK that Forge uses, each with its reason. `tests/test_architecture.py` checks them.

| part | reason |
|---|---|
| `ServerSession._connection` | a handler gets no other access to its connection: the state of the client, and its end |
| `OAuthClientProvider._perform_authorization`, `_get_token_endpoint` | there is no provider for a JWT of a workload |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a server loads nothing of the client, and a client nothing of the server
    import httpx2
    from mcp.client.auth import OAuthClientProvider, TokenStorage
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.shared.auth import OAuthClientMetadata

    MakeRequest = Callable[[OAuthContext, str], Awaitable[httpx2.Request]]
    """Returns the request for a token, from the login's context and the address of the token endpoint."""


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """Returns the connection of a request."""
    return ctx.session._connection


def make_direct_provider(
    url: str, metadata: OAuthClientMetadata, storage: TokenStorage, make_request: MakeRequest
) -> OAuthClientProvider:
    """Makes a provider that gets its token with one request, without a person."""
    from mcp.client.auth import OAuthClientProvider

    class DirectProvider(OAuthClientProvider):
        async def _perform_authorization(self) -> httpx2.Request:
            return await make_request(self.context, self._get_token_endpoint())

    return DirectProvider(url, metadata, storage)
