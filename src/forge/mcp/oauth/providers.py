"""Makes the SDK's OAuth provider for a login: one for each grant. Importing this imports the SDK."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    JWT_BEARER_GRANT_TYPE,
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl, ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.mcp.oauth.login import Login, OAuth
from forge.mcp.sdk_parts import make_direct_provider

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]

NO_REDIRECT = "http://127.0.0.1/callback"  # registered, and never used, if no person is there
_ALGORITHMS = ("ES256", "RS256", "ES384", "ES512", "EdDSA")
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind of token
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


def make_provider(login: Login, send: Send) -> OAuthClientProvider:
    """Returns the provider of the login's grant, with what is stored. `send` reaches an identity provider."""
    settings = login.settings
    if settings.is_personal:
        return _make_personal(login)
    storage = _Memory()
    options: dict[str, Any] = {"client_id": settings.client_id, "scope": " ".join(settings.scopes) or None}
    if settings.grant != "client_credentials":
        return _make_assertion_provider(login, send)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # without `issuer`, the server names it
        if not settings.private_key:
            return ClientCredentialsOAuthProvider(
                login.url, storage, client_secret=settings.client_secret, issuer=settings.issuer or None, **options
            )
        return PrivateKeyJWTOAuthProvider(
            login.url, storage, assertion_provider=_signer(settings), issuer=settings.issuer or None, **options
        )


def _make_personal(login: Login) -> OAuthClientProvider:
    settings, browser = login.settings, login.browser
    redirect = AnyUrl(browser.redirect_url if browser is not None else NO_REDIRECT)
    storage = _Stored(login)

    async def show(url: str) -> None:
        assert browser is not None
        await login.check_page(url)
        await browser.show(_add_scopes(url, settings.scopes))

    async def wait() -> AuthorizationCodeResult:
        assert browser is not None
        found = await browser.wait()
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.issuer)

    provider = OAuthClientProvider(
        login.url,
        OAuthClientMetadata(client_name="Forge", redirect_uris=[redirect], scope=" ".join(settings.scopes) or None),
        storage,
        redirect_handler=show if browser is not None else None,
        callback_handler=wait if browser is not None else None,
        client_metadata_url=settings.client_metadata_url or None,
    )
    storage.attach(provider)
    return provider


class _Memory:
    """Keeps tokens while the connection lives: they cost one request. `client` is known without a registration."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        return


class _Stored:
    """Keeps a person's login in the store, with what a refresh needs: the server's metadata, and the expiry."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._record = login.store.read()
        self._provider: OAuthClientProvider | None = None

    def attach(self, provider: OAuthClientProvider) -> None:
        self._provider = provider
        self._login.proof_key = "" if self._login.browser is not None else str(self._record.get("proof_key") or "")
        context = provider.context
        context.oauth_metadata = _read(OAuthMetadata, self._record.get("server"))
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, self._record.get("resource"))
        if context.protected_resource_metadata is not None:
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])
        expires_at = self._record.get("expires_at")
        context.token_expiry_time = expires_at if isinstance(expires_at, int | float) else None

    async def get_tokens(self) -> OAuthToken | None:
        """Returns the stored tokens; none while a person logs in anew. They stay stored until there are new ones."""
        if self._login.browser is not None:
            return None
        tokens: OAuthToken | None = _read(OAuthToken, self._record.get("tokens"))
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self._provider is not None
        context = self._provider.context
        self._record |= {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": context.token_expiry_time,
            "server": _dump(context.oauth_metadata),
            "resource": _dump(context.protected_resource_metadata),
            "proof_key": self._login.proof_key,
        }
        self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        settings = self._login.settings
        if settings.client_id:
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=settings.client_secret or None,
                token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
                issuer=settings.issuer or None,
            )
        client = _read(OAuthClientInformationFull, self._record.get("client"))
        browser = self._login.browser
        is_other = client is not None and browser is not None and not _is_registered(client, browser.redirect_url)
        return None if is_other else client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._record["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._save()

    def _save(self) -> None:
        assert self._provider is not None
        server = self._provider.context.oauth_metadata
        self._record["saved_at"] = time.time()
        self._login.store.write(str(server.issuer) if server is not None else "", self._record)


def _make_assertion_provider(login: Login, send: Send) -> OAuthClientProvider:
    """Exchanges a JWT for a token: of the platform (workload), or of the company's identity provider (enterprise)."""
    settings = login.settings
    client = OAuthClientInformationFull(
        client_id=settings.client_id or "forge",
        client_secret=settings.client_secret or None,
        token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        grant_types=[JWT_BEARER_GRANT_TYPE],
        issuer=settings.issuer or None,
    )

    async def make_request(context: OAuthContext, endpoint: str) -> httpx2.Request:
        issuer = str(context.oauth_metadata.issuer) if context.oauth_metadata is not None else ""
        if not issuer or (settings.issuer and issuer.rstrip("/") != settings.issuer.rstrip("/")):
            raise OAuthFlowError(f"the authorization server {issuer or 'is unknown'}, which is not the configured one")
        assertion = settings.assertion
        if settings.grant == "enterprise":
            assertion = await _exchange_id_token(settings, issuer, context.get_resource_url(), send)
        data = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion}
        data |= {"client_id": settings.client_id} if settings.client_id else {}
        data |= {"resource": context.get_resource_url()} if context.protected_resource_metadata is not None else {}
        data |= {"scope": " ".join(settings.scopes)} if settings.scopes else {}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        data, headers = context.prepare_token_auth(data, headers)
        return httpx2.Request("POST", endpoint, data=data, headers=headers)

    metadata = OAuthClientMetadata(redirect_uris=None, grant_types=[JWT_BEARER_GRANT_TYPE])
    return make_direct_provider(login.url, metadata, _Memory(client), make_request)


async def _exchange_id_token(settings: OAuth, issuer: str, resource: str, send: Send) -> str:
    """Returns a grant of the identity provider for this authorization server (ID-JAG)."""
    data = {
        "grant_type": _EXCHANGE,
        "requested_token_type": _ID_JAG,
        "subject_token": settings.id_token,
        "subject_token_type": _ID_TOKEN,
        "audience": issuer,
        "resource": resource,
        "client_id": settings.idp_client_id,
    }
    answer = await send(httpx2.Request("POST", settings.idp_token_url, data=data))
    try:
        grant = answer.json().get("access_token") if answer.status_code == 200 else None
    except (ValueError, AttributeError):
        grant = None
    if not isinstance(grant, str):
        raise ToolError(
            f"the identity provider answered {answer.status_code} and gave no grant",
            ErrorKind.CONFIG,
            "A person has to look at the ID token and at `idp_token_url`: the token may have expired.",
        )
    return grant


def _add_scopes(url: str, scopes: Sequence[str]) -> str:
    """Adds the configured scopes to those that the server asks for."""
    if not scopes:
        return url
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query["scope"] = " ".join(dict.fromkeys([*query.get("scope", "").split(), *scopes]))
    return urlunsplit(parts._replace(query=urlencode(query)))


def _is_registered(client: OAuthClientInformationFull, redirect_url: str) -> bool:
    return redirect_url in {str(one) for one in client.redirect_uris or ()}


def _signer(settings: OAuth) -> Callable[[str], Awaitable[str]]:
    """Returns a function that signs an assertion for an audience, with the algorithm that fits the key."""

    async def sign(audience: str) -> str:
        for algorithm in _ALGORITHMS:
            signed = SignedJWTParameters(
                issuer=settings.client_id,
                subject=settings.client_id,
                signing_key=settings.private_key,
                signing_algorithm=algorithm,
            )
            with contextlib.suppress(Exception):  # the key is of another kind
                return await signed.create_assertion_provider()(audience)
        raise ToolError(
            "the private key of `auth` cannot be used", ErrorKind.CONFIG, "Give an unencrypted RSA or EC key in PEM."
        )

    return sign


def _read(model: Any, value: Any) -> Any:
    try:
        return model.model_validate(value) if value else None
    except ValidationError:
        return None


def _dump(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None
