"""The login at one server: its settings, where it is stored, and how a person logs in with a browser. Needs no SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import parse_qs, urlsplit

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.secrets import SHORTEST
from forge.core.untrusted import one_line
from forge.network.address import read_url
from forge.network.connections import resolve
from forge.network.egress import Egress
from forge.workspace.state import data_file, replace_file

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

    def __init__(self, name: str, url: str, settings: OAuth, egress: Egress | None = None, user: str = "") -> None:
        self.name = name
        self.url = url
        self.user = user  # whose it is; "": of the whole program
        self.settings = settings
        self.browser: Browser | None = None
        self.tokens: tuple[str, ...] = ()  # in use, or lately in use
        self.proof_key = ""  # in PEM, if the tokens are bound to it
        self.store = TokenStore(url, user=user)
        self._egress = egress  # None: that of the running call
        self._workspace: Path | None = None

    def use_project(self, workspace: Path, egress: Egress | None) -> None:
        """Stores nothing inside this workspace; requests for tokens obey the project's egress, if it has one."""
        self.store = TokenStore(self.url, workspace, self.user)
        self._egress = egress
        self._workspace = workspace

    def for_user(self, user: str) -> Login:
        """Returns the login of this user at the same server; nothing of this one's is in it."""
        made = Login(self.name, self.url, self.settings, self._egress, user)
        if self._workspace is not None:
            made.use_project(self._workspace, self._egress)
        return made

    @property
    def egress(self) -> Egress:
        """The egress of requests for tokens: public addresses, and the URLs that a person configured."""
        allowed = self._egress if self._egress is not None else Egress.current()
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

    def forget_earlier_tokens(self) -> None:
        """Removes the tokens of all but the latest login; the registrations of the client stay."""
        latest = self.store.read()
        for issuer, record in self.store.read_all().items():
            if record != latest:
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
        self.egress.judge_name(there)
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
        whose = f" of {one_line(self.user, 80)}" if self.user else ""
        why = f"its stored login{whose} is no longer valid" if self.is_stored else f"it needs a login{whose}"
        option = f" --user {quote(one_line(self.user, 80))}" if self.user else ""
        hint = f"Ask the person to run `forge mcp login {self.name}{option}`."
        return LoginNeeded(f"{what}: {why}", ErrorKind.CONFIG, hint)


# --- Settings of a login: the grant, the client, its credentials and scopes.


Grant = Literal["authorization_code", "client_credentials", "workload", "enterprise"]
GRANTS: tuple[str, ...] = get_args(Grant)
_NEEDS = {
    "client_credentials": ("client_id",),
    "workload": ("assertion",),
    "enterprise": ("client_id", "client_secret", "id_token", "idp_token_url", "idp_client_id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """The login at a server with a URL. Everything is optional: without a client, Forge registers itself.

    `authorization_code`: a person logs in. `client_credentials`: with a `client_secret`, or a `private_key` in PEM.
    `workload`: exchanges the `assertion`, a JWT of the platform. `enterprise`: exchanges the `id_token` of a person at
    the company's identity provider. Raises `DefinitionError` if something that the grant needs is missing.

    Args:
        grant: how tokens are obtained.
        client_id: the client's id at the authorization server.
        client_secret: the client's secret.
        client_metadata_url: a document that describes the client, instead of a registration.
        private_key: the client's private key in PEM.
        assertion: for `workload`: the platform's JWT.
        id_token: for `enterprise`: the person's ID token.
        idp_token_url: for `enterprise`: the token URL of the identity provider.
        idp_client_id: for `enterprise`: the client's id at the identity provider.
        issuer: the only authorization server that gets credentials; it may be private.
        scopes: scopes to request in addition to those that the server names.
        redirect_port: the port of the redirect URL; 0: any free one.
        redirect_url: the page of a service that browsers return to; it calls `take_redirect`. "": this machine.
        per_user: every user of `Scope(user=…)` has a login and a connection; calls without a user are refused.

    Example:
        >>> OAuth(grant="client_credentials", client_id="ci", client_secret="…", issuer="https://login.example.com")
        OAuth(grant='client_credentials', client_id='ci', issuer='https://login.example.com')
    """

    grant: Grant = "authorization_code"
    client_id: str = ""
    client_secret: str = ""
    client_metadata_url: str = ""
    private_key: str = ""
    assertion: str = ""
    id_token: str = ""
    idp_token_url: str = ""
    idp_client_id: str = ""
    issuer: str = ""
    scopes: Sequence[str] = ()
    redirect_port: int = 0
    redirect_url: str = ""
    per_user: bool = False

    def __post_init__(self) -> None:
        if self.grant not in GRANTS:
            raise DefinitionError(f"OAuth: the grant is one of {', '.join(GRANTS)}, not {self.grant!r:.60}")
        if isinstance(self.scopes, str):
            raise DefinitionError(f"OAuth(scopes={self.scopes!r:.60}): expected a list of scopes")
        missing = [name for name in _NEEDS.get(self.grant, ()) if not getattr(self, name)]
        if self.grant == "client_credentials" and not (self.client_secret or self.private_key):
            missing.append("client_secret or private_key")
        if missing:
            raise DefinitionError(f"OAuth: the grant {self.grant} needs {', '.join(missing)}")
        if self.per_user and not self.is_personal:
            raise DefinitionError(f"OAuth(per_user=True): with the grant {self.grant} no person logs in")

    def __repr__(self) -> str:
        """Omits secrets, and what is not set."""
        shown = ("grant", "client_id", "client_metadata_url", "idp_token_url", "issuer", "scopes", "per_user")
        return f"OAuth({', '.join(f'{name}={value!r}' for name in shown if (value := getattr(self, name)))})"

    @property
    def is_personal(self) -> bool:
        """True if a person has to log in."""
        return self.grant == "authorization_code"

    @property
    def secrets(self) -> tuple[str, ...]:
        found = (self.client_secret, self.private_key, self.assertion, self.id_token)
        return tuple(value for value in found if len(value) >= SHORTEST)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs that a person configured: they may be private."""
        return tuple(filter(None, (self.issuer, self.idp_token_url)))


# --- Stores logins: in the system's keyring if `keyring` is installed, else in a file that only the user can read.


LARGEST_LOGINS = 4 * 1024 * 1024  # bytes of the logins at one server
SERVICE = "forge mcp"  # in the keyring
FOLDER = "mcp-logins"  # below $XDG_DATA_HOME/forge
Record = dict[str, Any]  # client, tokens, expires_at, server (metadata), resource (metadata), saved_at


class TokenStore:
    """The logins of one user at one server, by issuer. Values are read and written as a whole."""

    def __init__(self, url: str, workspace: Path | None = None, user: str = "") -> None:
        self._key = f"{url}\n{user}" if user else url  # a URL has no line break, so no two users share a key
        self._workspace = workspace

    def read(self) -> Record:
        """Returns the latest login; {} if there is none. Never raises."""
        found = self.read_all()
        return max(found.values(), key=lambda one: float(one.get("saved_at", 0)), default={})

    def write(self, issuer: str, record: Record) -> None:
        """Stores a login. Raises `ToolError` if there is no safe place."""
        text = json.dumps({**self.read_all(), issuer: record})
        if not self._write_keyring(text):
            self._write_file(text)

    def clear(self) -> bool:
        """Removes all logins at this server. Returns whether there was one."""
        had = bool(self.read_all())
        if (keyring := _find_keyring()) is not None:
            with contextlib.suppress(Exception):  # it had none, or cannot be used: backends raise errors of their own
                keyring.delete_password(SERVICE, self._key)
        if (path := self._path()) is not None:
            path.unlink(missing_ok=True)
        return had

    def read_all(self) -> dict[str, Record]:
        """Returns all logins at this server, by issuer. Never raises."""
        text: str | None = None
        if (keyring := _find_keyring()) is not None:
            try:
                text = keyring.get_password(SERVICE, self._key)
            except Exception:  # a locked or broken keyring
                text = None
        path = self._path()
        try:
            text = text or (read_regular(path, LARGEST_LOGINS).decode() if path is not None else None)
            found = json.loads(text or "{}")
        except (OSError, ValueError):
            return {}
        return {key: one for key, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}

    def _write_keyring(self, text: str) -> bool:
        keyring = _find_keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(SERVICE, self._key, text)
        except Exception:  # no usable backend
            return False
        if (path := self._path()) is not None:
            path.unlink(missing_ok=True)
        return True

    def _write_file(self, text: str) -> None:
        path = self._path()
        if path is None:
            raise _no_place_error("there is no home directory")
        if self._workspace is not None and path.resolve().is_relative_to(self._workspace.resolve()):
            raise _no_place_error(f"{path.parent} lies in the workspace, where tools could read it")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, text)
        except OSError as error:
            raise _no_place_error(f"{path.parent}: {error.strerror}") from None

    def _path(self) -> Path | None:
        return data_file(f"{FOLDER}/{sha256(self._key.encode()).hexdigest()[:32]}.json")


def _find_keyring() -> Any:
    """Returns the package `keyring`; None if it is not installed."""
    try:
        return import_module("keyring")
    except ImportError:
        return None


def _no_place_error(why: str) -> ToolError:
    return ToolError(
        f"the login could not be stored: {why}",
        ErrorKind.CONFIG,
        "Set XDG_DATA_HOME to a directory outside the workspace that can be written, or install keyring.",
    )


# --- Waits for a person's login: a listener on this machine takes the redirect, or the person pastes it.


HOST, PATH = "127.0.0.1", "/callback"
PASTED_PORT = 33_418  # of a redirect that nothing listens to: the person pastes its URL
PATIENCE = 300.0  # seconds for a person to log in
_READING = 5.0  # seconds for a browser to send its request
_MOST_LINE = 16 * 1024  # bytes of the request's first line
_DONE = "You are logged in. You can close this page and return to the terminal."
_FAILED = "The login did not succeed. The terminal says more."


async def wait_for_redirect(arrived: asyncio.Future[str], advice: str) -> Redirect:
    """Reads the redirect as soon as it arrives. Raises `ToolError` with this advice if it does not come in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            return read_redirect(await arrived)
    except TimeoutError:
        what = f"waiting for the login: no one logged in within {PATIENCE:g} s"
        raise ToolError(what, ErrorKind.TIMEOUT, advice) from None


@asynccontextmanager
async def listen_for_redirect(port: int, show: Callable[[str], Awaitable[None]]) -> AsyncIterator[Browser]:
    """Listens on a port of this machine, 0 for any. Raises `ToolError` if the port is taken."""
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READING):
                request = (await reader.readline()).decode("latin-1").split()
                target = request[1] if len(request) > 1 and request[0] == "GET" else ""
                is_redirect = urlsplit(target).path == PATH
                _answer(writer, 200 if is_redirect else 404, _DONE if "code=" in target else _FAILED)
                await writer.drain()
            if is_redirect and not arrived.done():
                arrived.set_result(target)
        except (TimeoutError, OSError, ValueError):
            pass  # not a browser
        finally:
            writer.close()

    async def wait() -> Redirect:
        return await wait_for_redirect(arrived, "Run the command again.")

    try:
        server = await asyncio.start_server(receive, HOST, port, limit=_MOST_LINE)
    except OSError as error:
        raise ToolError(
            f"listening for the login on port {port} failed: {error.strerror}",
            ErrorKind.CONFIG,
            "Free the port, set another `redirect_port`, or use --no-browser.",
        ) from None
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Browser(f"http://{HOST}:{port}{PATH}", show, wait)


def read_redirect(url: str) -> Redirect:
    """Reads the URL that the authorization server redirected to. Raises `ToolError`."""
    said = {name: values[0] for name, values in parse_qs(urlsplit(url.strip()).query).items()}
    if "error" in said:
        why = one_line(" ".join(filter(None, (said["error"], said.get("error_description")))), 300)
        raise ToolError(f"the login was refused: {why}", ErrorKind.CONFIG, "Log in again, and agree to the access.")
    if "code" not in said:
        raise ToolError(
            "the URL of the redirect has no code", ErrorKind.VALIDATION, "Paste the whole URL of the last page."
        )
    return Redirect(said["code"], said.get("state"), said.get("iss"))


def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"<!doctype html><meta charset=utf-8><title>Forge</title><p>{text}</p>".encode()
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
