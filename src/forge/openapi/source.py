"""Mounts an OpenAPI document: one typed tool for each of its operations."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from forge.core.errors import DefinitionError
from forge.core.execution.threads import in_thread
from forge.core.registry import SourceSettings, check_source
from forge.core.secrets import SHORTEST, Secrets
from forge.core.secrets.live_text import LiveText, read_text
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.network.address import read_url
from forge.network.egress import Egress
from forge.network.headers import check_headers
from forge.openapi.answers import AnswerReader
from forge.openapi.app import AppServer, check_start, is_app
from forge.openapi.credentials import Auth, Credential, find_live, place_credentials, read_auth
from forge.openapi.document import Document, is_url, open_document
from forge.openapi.operations import OperationFilter, Servers, operations_of, prefix_of
from forge.openapi.tools import Api, OperationTool, RenewedParts, SentParts

if TYPE_CHECKING:
    from forge.openapi.app import AsgiApp

SHOWN = 40  # operations; if there are more, all are hidden behind `tool_search`
REQUEST_SECONDS = 60.0

log = logging.getLogger(__name__)

_TELLING = re.compile(r"authori[sz]ation|key|token|secret|passw|cookie|credential", re.IGNORECASE)
_GENERAL = frozenset({"openapi", "swagger", "api", "spec", "schema", "index", "description", "v1", "v2", "v3"})


class OpenApi:
    """The operations of an OpenAPI 3 document as tools, named `name__operation`. `problems` lists what was left out.

    Args:
        spec: a file, a URL or data; or an ASGI app of this process, such as a `FastAPI()`, with its own document.
        server: receives the requests: a URL, or an ASGI app. By default the document's servers do: any of a file's,
            only the own origin of a fetched one. For an app as `spec`, the URL that it believes to be served at.
        auth: `{"bearer_env": "TOKEN"}`, `{"api_key_env": "KEY", "name": "X-Key", "in": "header"}` or `{"basic_env":
            {"user_env": "USER", "password_env": "PASSWORD"}}` (without `_env`: the value itself). It is sent only to a
            server that a person named.
        headers: further headers.
        egress: which addresses may be reached.
        idempotency_header: such as "Idempotency-Key": the server handles requests with the same value of this header
            once. It is sent with every request that changes something, so that the request may be retried.
        tags: only operations with one of these tags.
        lifespan: starts and stops an app together with the source; False for one that is served in this process anyway.
        name: the prefix of the tools; by default the document's title.
        prefix: another prefix than the name.
        include: patterns of operation ids, or as in `GET /pets/*`.
        exclude: patterns to leave out.
        timeout: the seconds that a call may take.
        hidden: a model sees the tools only after `tool_search` finds them; by default if there are more than 40.
        permissions: other permissions than `network`.

    Example:
        >>> document = {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {}}
        >>> source = openapi(document, name="pets", server="https://api.example.com")
    """

    def __init__(
        self,
        spec: str | Path | Mapping[str, Any] | AsgiApp,
        *,
        server: str | AsgiApp = "",
        auth: Auth | Sequence[Auth] | None = None,
        headers: Mapping[str, str | LiveText] | None = None,
        egress: Egress | None = None,
        idempotency_header: str = "",
        tags: Sequence[str] = (),
        lifespan: bool = True,
        **settings: Unpack[SourceSettings],
    ) -> None:
        check_source("openapi", settings)
        if isinstance(tags, str):
            raise DefinitionError(f"openapi(tags={tags!r:.80}): write a list, as in tags=[{tags!r:.80}]")
        include, exclude = settings.get("include", ()), settings.get("exclude", ())
        permissions = settings.get("permissions")
        self.spec = spec
        self.name = settings.get("name", "")
        self.problems: list[str] = []
        self.tools: list[Tool] = []
        self._app, self._server = _find_app(spec, server)
        self._lifespan = lifespan
        self._app_server: AppServer | None = None
        self._users = 0
        self._opening = asyncio.Lock()
        self._auth = auth
        self._filters = OperationFilter(tuple(include), tuple(exclude), tuple(tags))
        self._headers = tuple((str(key), value) for key, value in (headers or {}).items())
        self._live = find_live(auth, headers)
        self._credentials = read_auth(auth)
        self._masks = Secrets()
        self._prefix = settings.get("prefix")
        self._timeout = settings.get("timeout")
        self._hidden = settings.get("hidden")
        self._permissions = frozenset({"network"} if permissions is None else permissions)
        self._egress = egress
        self._idempotency_header = idempotency_header
        if idempotency_header:
            check_headers([(idempotency_header, "")])
        if self._server:
            read_url(self._server)  # raises early

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must be masked everywhere; they are known before the document is opened."""
        return self._find_secrets(self._credentials, [(name, read_text(value)) for name, value in self._headers])

    @staticmethod
    def _find_secrets(credentials: Sequence[Credential], headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        telling = [value for name, value in headers if _TELLING.search(name)]
        values = [*(one for credential in credentials for one in credential.secrets), *telling]
        words = [word for value in values for word in (value, value.rpartition(" ")[2])]
        return tuple(dict.fromkeys(word for word in words if len(word) >= SHORTEST))

    async def __aenter__(self) -> Sequence[Tool]:
        if self._app is None:
            document = await self._open_document()
            self.tools = await in_thread(lambda: self.make_tools(document))
            return self.tools
        if self._lifespan:
            check_start(self._app)
        async with self._opening:  # several agents may open it: there is one app
            if not self._users:
                await self._open_app(self._app)
            self._users += 1
        return self.tools

    async def __aexit__(self, *_: object) -> None:
        if self._app is None:
            self.tools = []
            return
        async with self._opening:
            self._users -= 1
            if not self._users:
                await self._close_app()

    async def _open_app(self, app: AsgiApp) -> None:
        self._app_server = AppServer(app, self._server, lifespan=self._lifespan)
        await self._app_server.open()
        try:
            document = await self._open_document()
            self.tools = await in_thread(lambda: self.make_tools(document))
        except BaseException:
            await self._close_app()
            raise

    async def _close_app(self) -> None:
        self.tools = []
        closing, self._app_server = self._app_server, None
        if closing is not None:
            await closing.close()

    def make_tools(self, document: Document, *, ad_hoc: bool = False) -> list[Tool]:
        """Makes the tools of an opened document. `ad_hoc`: each call asks the gate for its own URL."""
        self.name = self.name or _choose_name(self.spec, document)
        self.problems = []
        prefix = prefix_of(self._prefix or self.name)
        found = operations_of(document, prefix, self.problems)
        selected = [one for one in found if self._filters.selects(one)]
        self.problems += self._filters.find_problems(found)
        for problem in self.problems[:20]:
            log.warning("openapi %s: %s", self.name, problem)
        if found and not selected:
            log.warning("openapi %s: none of its %d operations matches the filters", self.name, len(found))
        server = self._app_server.choose_url(prefix) if self._app_server is not None else self._server
        servers = Servers(document, server, self._egress, ad_hoc=ad_hoc)
        if selected and not ad_hoc:
            servers.base()  # raises early
        sent = self._read_sent(document)
        if sent.credentials.problem:
            log.warning("openapi %s: %s", self.name, sent.credentials.problem)
        answers = AnswerReader(document, self._masks)
        renewed = RenewedParts(lambda: self._read_sent(document), self._live) if self._live else None
        api = Api(document, servers, sent, answers, self._idempotency_header, self._app_server, renewed)
        traits: dict[str, Any] = {
            "category": Category.ADAPTER,
            "trust": "untrusted",
            "permissions": self._permissions,
            "timeout": REQUEST_SECONDS if self._timeout is None else self._timeout,
            "hidden": len(selected) > SHOWN if self._hidden is None else self._hidden,
            "origin": f"openapi:{self.name}",
        }
        tools = [OperationTool(api, one, **traits) for one in selected]
        readers = {tool.operation.path: tool for tool in tools if tool.operation.method == "GET"}
        for tool in tools:
            tool.lookup = readers.get(tool.operation.path)
        return [*tools]

    def _read_sent(self, document: Document) -> SentParts:
        """Reads what every request carries, as it is now. Raises `ToolError`."""
        credentials = read_auth(self._auth)
        headers = tuple((name, str(read_text(value))) for name, value in self._headers)
        self._masks.learn_next(self, self._find_secrets(credentials, headers))
        return SentParts(place_credentials(credentials, document), headers)

    async def _open_document(self) -> Document:
        if not callable(self.spec):
            return await open_document(self.spec, self._document_egress())
        assert self._app_server is not None
        return await self._app_server.read_document()

    def _document_egress(self) -> Egress:
        """Returns an egress that allows the document's own URL, which a person named."""
        egress = self._egress if self._egress is not None else Egress.current()
        if isinstance(self.spec, str) and is_url(self.spec):
            return egress.reaching(read_url(self.spec))
        return egress

    def __repr__(self) -> str:
        return f"<OpenApi {self.name or 'not opened yet'}, {len(self.tools)} tools>"


openapi = OpenApi


def _find_app(spec: str | Path | Mapping[str, Any] | AsgiApp, server: str | AsgiApp) -> tuple[AsgiApp | None, str]:
    """Returns the app that answers the requests, if one does, and the URL of the server, if it is given."""
    if isinstance(spec, str | Path | Mapping) and isinstance(server, str):
        return None, server

    apps = [one for one in (spec, server) if is_app(one)]
    if len(apps) == 2:
        raise DefinitionError("openapi(app, server=app): pass one app, as the first argument or as the server")
    return apps[0] if apps else None, server if isinstance(server, str) else ""


def _choose_name(spec: str | Path | Mapping[str, Any] | AsgiApp, document: Document) -> str:
    """Returns a short name: of the file, the document or the server."""
    stem = ""
    if isinstance(spec, str | Path):
        parts = urlsplit(str(spec)) if isinstance(spec, str) and is_url(spec) else None
        words = Path(parts.path if parts else str(spec)).name.split(".")
        stem = next((word for word in words[: max(1, len(words) - 1)] if word.lower() not in _GENERAL), "")
        if parts and not stem and not document.title:
            stem = parts.hostname or ""
    return prefix_of(stem or document.title or "api")
