"""A tool for one operation: its schema, its request, and whether a request of a lost worker took effect."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forge.core.arguments.schema import compile_parser
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.result import Reconciled, ToolResult
from forge.core.secrets.live_text import LiveText
from forge.core.spec import JsonSchema, Permission, ToolSpec
from forge.core.tool import Tool
from forge.core.untrusted import one_line
from forge.network.address import read_url
from forge.network.client import fetch
from forge.network.headers import SAFE, RequestLimits, key_header
from forge.openapi.answers import LARGEST_ANSWER, AnswerReader
from forge.openapi.credentials import NONE, PlacedCredentials
from forge.openapi.document import BrokenOperation, Document
from forge.openapi.operations import ApiOperation, Servers
from forge.openapi.requests import (
    LARGEST_BODY,
    BodyFile,
    RequestBody,
    RequestPlan,
    argument_names,
    content_of,
    encode_in_cookie,
    encode_in_header,
    encode_in_path,
    encode_in_query,
    files_in,
    plan_of,
    quote_text,
)
from forge.workspace.paths.open import read_file

if TYPE_CHECKING:
    from forge.network.body import Response
    from forge.openapi.app import AppServer

LONGEST_REQUEST = 300.0  # seconds of a request whose tool has no time-out

_TEMPLATE = re.compile(r"\{([^{}]{1,200})\}")
_PATH = "/:@!$&'()*+,;=~%"  # characters that need no encoding in a path
_DOTS = frozenset({".", ".."})
_NO_ARGUMENTS: JsonSchema = {"type": "object", "properties": {}}
_SHOWN = 2_000  # characters of a body in a preview


@dataclass(frozen=True, slots=True)
class SentParts:
    """The parts of every request that a person configured."""

    credentials: PlacedCredentials
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class RenewedParts:
    """Reads these parts again for each request: they hold secrets that change."""

    def __init__(self, read: Callable[[], SentParts], live: Sequence[LiveText]) -> None:
        self._read, self._live = read, live

    async def read(self) -> SentParts:
        return await in_thread(self._read)

    async def read_again(self, rejected: SentParts) -> SentParts:
        """Reads the values again that the server did not accept, unless another request had them read again."""
        if (now := await self.read()) != rejected:
            return now
        for one in self._live:
            one.expire()
        return await self.read()


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """The parts that all operations of a mounted document share."""

    document: Document
    servers: Servers
    sent: SentParts  # as they were when the document was mounted
    answers: AnswerReader
    idempotency_header: str = ""  # the server handles requests with the same value once
    app: AppServer | None = None  # answers the requests in this process
    renewed: RenewedParts | None = None  # `sent` as it is now, where it holds secrets that change

    @property
    def takes_keys(self) -> bool:
        own = {name.lower() for name, _ in self.sent.headers}
        return bool(self.idempotency_header) and self.idempotency_header.lower() not in own

    @property
    def paths(self) -> list[str]:
        """The templates of all paths of the document."""
        found = self.document.root.get("paths")
        return [one for one in found if isinstance(one, str)] if isinstance(found, Mapping) else []

    @property
    def hidden(self) -> frozenset[tuple[str, str]]:
        """Parameters that a model neither sees nor sets."""
        ours = [name for name, _ in self.sent.headers] + [self.idempotency_header]
        return self.sent.credentials.hidden | {("header", name.lower()) for name in ours if name}


class OperationTool(Tool):
    """A tool for an operation. Its parameters and description are built on first use: there may be thousands."""

    def __init__(self, api: Api, operation: ApiOperation, **traits: Any) -> None:
        self.operation = operation
        self._api = api
        self.lookup: OperationTool | None = None  # reads what this operation changes, if the source has such a tool
        self.deduplicates_by_key = api.takes_keys and operation.method not in SAFE
        self.spec = ToolSpec(
            name=operation.name,
            description=operation.description,
            parameters=self._parameters,
            idempotent=operation.method in SAFE,
            **{"irreversible": operation.method == "DELETE", **traits},
        )

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        _ = self._plan  # raises if the operation is broken
        takes = self.spec.parameters.get("properties") or {}  # a request cannot carry others
        parser = self.__dict__["parse"] = compile_parser(self.spec, takes=takes)
        return parser(arguments)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Returns the URL of the request, without credentials."""
        return [self._url(arguments)]

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Returns permissions with targets: `network` on the URL, and to read each file that the body holds.

        A tool without permissions asks for nothing but that.
        """
        url = self._url(arguments)
        body = self._plan.body
        needed: list[tuple[Permission | None, str]] = [
            (one, url if one is Permission.NETWORK else "") for one in sorted(self.spec.permissions)
        ]
        if body is not None:
            needed += [(Permission.READ, path) for path in files_in(body, arguments).values()]
        return needed or [(None, "")]

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        """Returns the method, the URL and the body."""
        if self.operation.method in SAFE:
            return ""
        lines = [f"{self.operation.method} {self._url(arguments)}"]
        sent = content_of(self._plan.body, arguments) if self._plan.body is not None else None
        if sent is not None:
            text = sent[1][: _SHOWN * 4].decode(errors="replace")
            lines += [sent[0], text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"]
        return "\n".join(lines)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        plan, api = self._plan, self._api
        address = self._url(arguments)
        headers, cookies = self._headers(plan, arguments)
        body = b""
        if plan.body is not None and (sent := await _content(plan.body, arguments, ctx)) is not None:
            media, body = sent
            headers.append(("Content-Type", media))
        url = read_url(address)
        route = api.servers.find_route(url)
        needs = api.sent.credentials if self._is_private else NONE
        if api.sent.headers or not needs.is_empty:
            _check_credentials(needs, url.origin, is_named=route.is_named)
        given = [name for name, _ in (*headers, *needs.headers, *api.sent.headers)]
        key = key_header(api.idempotency_header, self.operation.method, ctx, given)
        seconds = self.spec.timeout or LONGEST_REQUEST
        limits = RequestLimits(connect=min(10.0, seconds), read=seconds, total=seconds, size=LARGEST_ANSWER)
        method = self.operation.method
        options: dict[str, Any] = {"body": body, "egress": route.egress, "limits": limits, "idempotent": bool(key)}

        async def send(sent: SentParts) -> Response:
            needs = sent.credentials if self._is_private else NONE
            all_cookies = [*cookies, *needs.cookies]
            all_headers = [*headers, *needs.headers, *sent.headers, *key.items()]
            if all_cookies:
                all_headers.append(("Cookie", "; ".join(all_cookies)))
            url = "".join((address, "&" if "?" in address else "?", "&".join(needs.query))) if needs.query else address
            if api.app is None:  # a redirect to another server is not followed: the data is meant for this one
                return await fetch(method, url, follow="same-host", headers=all_headers, **options)
            return await api.app.fetch_route(
                method, self.operation.path, url, api.paths, headers=all_headers, **options
            )

        parts = api.sent if api.renewed is None else await api.renewed.read()
        answer = await send(parts)
        if answer.status == 401 and api.renewed is not None and (again := await api.renewed.read_again(parts)) != parts:
            answer = await send(again)
        return await api.answers.result(self.operation, answer)

    @property
    def reconciles(self) -> bool:
        if self.lookup is None or isinstance(self._plan_or_problem, BrokenOperation):
            return False
        return can_find(self.operation, self._plan_or_problem.body)

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        """Asks the server for what is at the same path."""
        lookup = self.lookup
        if lookup is None:
            return Reconciled.unknown("no operation reads what this one changes")
        return await find_effect(
            self.operation,
            self._plan,
            lookup._plan,
            lambda given: lookup.invoke(lookup.parse(given), ctx),
            arguments,
        )

    @property
    def parameter_names(self) -> list[str]:
        """The names of the parameters, for a search; no schema is built."""
        return argument_names(self._api.document, self.operation, self._api.hidden)

    @cached_property
    def _plan_or_problem(self) -> RequestPlan | BrokenOperation:
        try:
            return plan_of(self._api.document, self.operation, self._api.hidden)
        except BrokenOperation as problem:
            return problem
        except Exception as error:  # the document is foreign: one broken operation must not affect the others
            return BrokenOperation(f"it is invalid ({type(error).__name__})")

    @property
    def _plan(self) -> RequestPlan:
        found = self._plan_or_problem
        if isinstance(found, BrokenOperation):
            raise ToolError(
                f"the document's {one_line(self.operation.title, 100)} cannot be called: {found}",
                ErrorKind.CONFIG,
                "Use another operation; a person must fix the document.",
            )
        return found

    def _parameters(self) -> JsonSchema:
        """Returns the schema; an empty one for a broken operation, so that the others still work."""
        found = self._plan_or_problem
        return _NO_ARGUMENTS if isinstance(found, BrokenOperation) else found.schema

    @cached_property
    def _is_private(self) -> bool:
        """True if the operation takes credentials, unless the document says that it needs none."""
        security: Any = self.operation.raw.get("security", self._api.document.root.get("security"))
        return not (isinstance(security, list) and not security)

    def _url(self, arguments: Mapping[str, Any]) -> str:
        plan = self._plan
        path: dict[str, str] = {}
        query: list[str] = []
        for one in plan.parameters:
            value = arguments.get(one.argument)
            if one.location == "path":
                path[one.name] = encode_in_path(one, value)
            elif one.location == "query" and value is not None:
                query += encode_in_query(one, value)
        literals = self._literals
        filled = "".join(path[part] if number % 2 else part for number, part in enumerate(literals))
        if not _DOTS.isdisjoint(filled.split("/")):
            raise ToolError(
                "these values would change its path", ErrorKind.VALIDATION, 'Do not use "." or ".." as a value.'
            )
        url = f"{self._api.servers.base(self.operation)}/{filled.lstrip('/')}"
        if self._api.app is not None:
            self._api.app.check_route(self.operation.method, self.operation.path, url, self._api.paths)
        return f"{url}?{'&'.join(query)}" if query else url

    @cached_property
    def _literals(self) -> list[str]:
        """The literal parts and the parameter names of the path, alternating."""
        parts = _TEMPLATE.split(self.operation.path)
        return [part if number % 2 else quote_text(part, _PATH) for number, part in enumerate(parts)]

    def _headers(self, plan: RequestPlan, arguments: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
        headers: list[tuple[str, str]] = []
        cookies: list[str] = []
        for one in plan.parameters:
            value = arguments.get(one.argument)
            if value is None:
                continue
            if one.location == "header":
                headers.append((one.name, encode_in_header(one, value)))
            elif one.location == "cookie":
                cookies += [f"{name}={text}" for name, text in encode_in_cookie(one, value)]
        if not any(name.lower() == "accept" for name, _ in (*headers, *self._api.sent.headers)):
            headers.append(("Accept", "application/json, */*;q=0.5"))
        return headers, cookies


async def _content(body: RequestBody, arguments: Mapping[str, Any], ctx: ToolContext) -> tuple[str, bytes] | None:
    """Returns the body; the gate decides on each file to read."""
    files: dict[str, BodyFile] = {}
    for argument, path in files_in(body, arguments).items():
        await ctx.require("read", path)
        content = await in_thread(lambda path=path: read_file(ctx.scope, path, LARGEST_BODY))  # type: ignore[misc]
        files[argument] = BodyFile(path.rpartition("/")[2], content)
    return content_of(body, {**arguments, **files} if files else arguments)


def _check_credentials(credentials: PlacedCredentials, origin: str, *, is_named: bool) -> None:
    if not is_named:
        raise ToolError(
            f"credentials are not sent to {origin}, because only the document names this server",
            ErrorKind.CONFIG,
            f"A person can name it with server={origin!r}, or with `server:` in forge.yaml.",
        )
    if credentials.problem:
        raise ToolError(
            credentials.problem, ErrorKind.CONFIG, "A person must set it before this operation can be called."
        )


# --- Finds out whether a request of a lost worker took effect, with a GET of the same path.


Read = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
"""Sends the GET with these arguments."""

# HTTP defines PUT and DELETE as idempotent. A PATCH is a state only in the form of a merge.
_MERGE = "application/merge-patch+json"
_MISSING = (404, 410)
_NO_OBJECT = object()


def can_find(operation: ApiOperation, body: RequestBody | None) -> bool:
    """Returns whether a GET of the same path shows whether such a request took effect."""
    is_merge = operation.method == "PATCH" and body is not None and body.media == _MERGE
    return operation.method in ("PUT", "DELETE") or is_merge


async def find_effect(
    operation: ApiOperation, plan: RequestPlan, lookup: RequestPlan, read: Read, arguments: Mapping[str, Any]
) -> Reconciled:
    """Reads what is there now, and compares it with what the request should leave."""
    method, path = operation.method, f"GET {one_line(operation.path, 200)}"
    given = _choose_arguments(plan, lookup, arguments)
    if given is None:
        return Reconciled.unknown(f"{path} needs other arguments")
    now = await read(given)
    status = now.data["status"]
    is_there = 200 <= status < 300
    if not is_there and status not in _MISSING:
        return Reconciled.unknown(f"{path} answers {status}")
    if method == "DELETE":
        gone = ToolResult.of(f"It is deleted: {path} answers {status}.").with_data(status=status)
        return Reconciled.not_done(f"{path} still finds it") if is_there else Reconciled.done(gone, "it is gone")
    wanted = _read_body(plan.body, arguments)
    if is_there and wanted is _NO_OBJECT:
        return Reconciled.unknown(f"the answer of {path} cannot be compared with what was sent")
    if is_there and not now.data["truncated"] and _holds(now.data["body"], wanted):
        message = f"It took effect; the answer was lost. {path} answers now:\n{now.for_llm}"
        return Reconciled.done(ToolResult(for_llm=message, data=now.data), f"{path} shows what was sent")
    if method == "PUT":
        return Reconciled.not_done(f"{path} does not show what was sent")
    return Reconciled.unknown(f"{path} does not show what was sent")


def _choose_arguments(plan: RequestPlan, lookup: RequestPlan, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the arguments of the GET: those of the same names; None if it requires others."""
    own = {(one.location, one.name): one.argument for one in plan.parameters}
    found: dict[str, Any] = {}
    for one in lookup.parameters:
        argument = own.get((one.location, one.name))
        if argument is not None and arguments.get(argument) is not None:
            found[one.argument] = arguments[argument]
    return found if set(lookup.schema.get("required", ())) <= found.keys() else None


def _read_body(body: RequestBody | None, arguments: Mapping[str, Any]) -> Any:
    """Returns the JSON object that was sent, or `_NOTHING` if the body is something else."""
    if body is None or body.kind != "json" or files_in(body, arguments):
        return _NO_OBJECT
    sent = content_of(body, arguments)
    value = _NO_OBJECT if sent is None else json.loads(sent[1])
    return value if isinstance(value, dict) and value else _NO_OBJECT


def _holds(found: Any, wanted: Any) -> bool:
    """Returns whether everything wanted is there. A server may add fields; null may be an absent field."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_holds(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)
