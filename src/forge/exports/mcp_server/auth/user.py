"""The user of a request whose access token was checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext


class TokenUser(NamedTuple):
    """The person and the client that a token was issued to."""

    subject: str
    client: str

    @property
    def name(self) -> str:
        """The name for rules and logs: the person, or the client where no person is involved."""
        return self.subject or self.client


def user_of(ctx: ServerRequestContext[Any, Any]) -> TokenUser | None:
    """Returns the user of a request; None over stdio and with the fixed token."""
    scope = getattr(ctx.request, "scope", None)
    user = scope.get("user") if isinstance(scope, dict) else None
    if not isinstance(user, AuthenticatedUser):
        return None
    return TokenUser(user.access_token.subject or "", user.access_token.client_id)
