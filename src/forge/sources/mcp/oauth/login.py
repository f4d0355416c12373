"""The login at one server: its settings, its stored tokens, and who is asked to log in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import SHORTEST
from forge.network.address import read_url
from forge.network.connections import resolve
from forge.network.egress import Egress
from forge.sources.mcp.oauth.settings import AuthSettings
from forge.sources.mcp.oauth.token_store import TokenStore

_MOST_TOKENS = 8


class LoginNeeded(ToolError):
    """The server wants a login, or a new one."""


class Redirect(NamedTuple):
    """The parameters with which the authorization server sends the person back."""

    code: str
    state: str | None
    issuer: str | None


@dataclass(frozen=True, slots=True)
class Browser:
    """The way to a person: shows a URL, and waits for the redirect to `redirect_url`."""

    redirect_url: str
    show: Callable[[str], Awaitable[None]]
    wait: Callable[[], Awaitable[Redirect]]


class Login:
    """Holds the state of a login. `browser` is set only while a person is there to log in."""

    def __init__(
        self, name: str, url: str, settings: AuthSettings, egress: Egress | None = None, workspace: Path | None = None
    ) -> None:
        self.name = name
        self.url = url
        self.settings = settings
        self.browser: Browser | None = None
        self.tokens: tuple[str, ...] = ()  # in use, or lately in use
        self.proof_key = ""  # in PEM, if the tokens are bound to it
        self.store = TokenStore(url, workspace)
        self.base_egress = egress  # None: that of the running call

    @property
    def egress(self) -> Egress:
        """The egress of requests for tokens: public addresses, and the URLs that a person configured."""
        allowed = self.base_egress if self.base_egress is not None else Egress.current()
        for url in (self.url, *self.settings.urls):
            allowed = allowed.reaching(read_url(url))
        return allowed

    @property
    def can_ask(self) -> bool:
        """True if new tokens can be obtained now."""
        return not self.settings.is_personal or self.browser is not None

    @property
    def is_stored(self) -> bool:
        return bool(self.store.read().get("tokens"))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be shown: configured, stored, and those in use."""
        record = self.store.read()
        tokens: Any = record.get("tokens") or {}
        client: Any = record.get("client") or {}
        values = (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret"))
        found = (*values, record.get("proof_key"))
        stored = (value for value in found if isinstance(value, str) and len(value) >= SHORTEST)
        return (*self.settings.secrets, *stored, *self.tokens)

    @property
    def registered_port(self) -> int:
        """The port of the redirect that Forge is registered with; 0 if there is none."""
        urls = (self.store.read().get("client") or {}).get("redirect_uris") or [""]
        return urlsplit(str(urls[0])).port or 0

    def forget_tokens(self) -> None:
        """Removes the tokens of a stored login; the registration of the client stays."""
        for issuer, record in self.store.read_all().items():
            kept = {key: value for key, value in record.items() if key not in ("tokens", "expires_at", "proof_key")}
            self.store.write(issuer, kept)

    def note_tokens(self, *values: str | None) -> None:
        """Notes the tokens in use."""
        found = (*self.tokens, *(value for value in values if value and len(value) >= SHORTEST))
        self.tokens = tuple(dict.fromkeys(found))[-_MOST_TOKENS:]

    def check_encrypted(self, url: str) -> None:
        """Raises `ToolError` if a request for a token would not be encrypted, unless a person configured its host."""
        there = read_url(url)
        named = {read_url(one).host for one in (self.url, *self.settings.urls)}
        if there.scheme == "https" or there.host in (*named, "127.0.0.1", "::1", "localhost"):
            return
        raise ToolError(
            f"logging in at {read_url(self.url).origin}: its authorization server {there.origin} is not encrypted",
            ErrorKind.SECURITY,
            "The server has to be repaired. If you trust it, set `issuer` in its `auth`.",
        )

    async def check_page(self, url: str) -> None:
        """Raises `ToolError` if the page that a server names leads inside: the person's browser would open it."""
        self.check_encrypted(url)
        there = read_url(url)
        addresses = [there.address] if there.address is not None else []
        if not addresses:
            with suppress(ToolError):  # the browser may have a proxy that knows the name
                addresses = await resolve(there.host, there.port)
        if addresses:
            self.egress.judge_addresses(there, addresses)

    def needed_error(self, what: str) -> LoginNeeded:
        """Returns the error for a server that wants a login. A run never starts one."""
        if not self.settings.is_personal:
            why = f"it does not accept the credentials of the grant {self.settings.grant}"
            hint = "A person has to look at `auth` of this server in forge.yaml."
            return LoginNeeded(f"{what}: {why}", ErrorKind.CONFIG, hint)
        why = "its stored login is no longer valid" if self.is_stored else "it needs a login"
        return LoginNeeded(f"{what}: {why}", ErrorKind.CONFIG, f"Ask the person to run `forge mcp login {self.name}`.")
