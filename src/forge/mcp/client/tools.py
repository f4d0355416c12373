"""One tool of a server: cleans its definition, reads its hints in the stricter sense, and forwards its calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from forge.core.arguments.schema import compile_parser, take_schema
from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.messages import render_call
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.core.untrusted import clean, clean_schema
from forge.mcp.apps import find_app, is_for_apps
from forge.mcp.client.contents import result_of
from forge.mcp.pins import PINNED, Pin, PinState, difference, format_definition

DEEPEST_DEFINITION = 100  # levels of a definition
MOST_NODES = 20_000  # values in one
LARGEST_DEFINITION = 128 * 1024  # characters of one
TIMEOUT = 120.0  # seconds by default
READ = ("title", "description", "inputSchema")  # keys of a definition that models read


class ToolSettings(NamedTuple):
    """Settings that all tools of a server share."""

    origin: str  # mcp:git
    permissions: frozenset[Permission]
    address: str = ""  # of an HTTP server: the target of the permission `network`
    timeout: float = TIMEOUT
    hidden: bool = False

    def required_permissions(self, permissions: Collection[Permission]) -> list[tuple[Permission | None, str]]:
        """Returns permissions with targets: `network` has the server's address, so that rules about hosts apply."""
        return [(one, self.address if one is Permission.NETWORK else "") for one in sorted(permissions)] or [(None, "")]


class ToolOffer(NamedTuple):
    """A tool as its server describes it now, compared with the approved definition."""

    name: str  # here
    remote: str  # there
    definition: Mapping[str, Any]
    sha256: str
    target: str
    state: PinState
    pin: Pin | None


class CalledTool(NamedTuple):
    """The answer of a server, and the hosts that its program tried meanwhile, where rules limit them."""

    answer: Mapping[str, Any]
    hosts: list[dict[str, Any]]


class CalledServer(Protocol):
    """The methods of a server that its tools need."""

    def check_current(self, tool: McpTool) -> None: ...
    def find_current(self, tool: McpTool) -> McpTool: ...
    async def approve(self, *tools: McpTool, by: str) -> None: ...
    async def call(self, tool: McpTool, arguments: Mapping[str, Any], ctx: ToolContext) -> CalledTool: ...
    async def read_app(self, uri: str) -> str: ...


class McpTool(Tool):
    """A tool of a server. Until a changed definition is approved, models see the old one, and every call asks."""

    checked = True  # its schema was checked when the spec was made

    def __init__(self, offer: ToolOffer, settings: ToolSettings, source: CalledServer) -> None:
        shown = _spec(
            offer, offer.definition, settings
        )  # also of a changed one: an unusable definition is not approved
        if offer.state is PinState.CHANGED and offer.pin is not None:
            approved = _spec(offer, offer.pin.definition, settings)
            shown = approved.changed(
                permissions=shown.permissions | approved.permissions,
                confirm=shown.confirm or approved.confirm,
                irreversible=shown.irreversible or approved.irreversible,
            )
        self.spec = shown
        self.offer = offer
        self.app = find_app(offer.definition)  # the URI of the app that shows its results
        self.needs_person = offer.state in (PinState.CHANGED, PinState.UNKNOWN)
        self._settings = settings
        self._source = source

    @property
    def remote(self) -> str:
        """The tool's name at the server."""
        return self.offer.remote

    @property
    def state(self) -> PinState:
        return self.offer.state

    def is_same(self, offer: ToolOffer, settings: ToolSettings) -> bool:
        """Returns whether a tool made of these would be the same."""
        known = (self.offer.name, self.offer.sha256, self.offer.target, self.offer.state)
        return known == (offer.name, offer.sha256, offer.target, offer.state) and self._settings == settings

    def _latest(self) -> Tool:
        return self._source.find_current(self)

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        parser = self.__dict__["parse"] = compile_parser(self.spec)
        return parser(arguments)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        return self._settings.required_permissions(self.spec.permissions)

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return self.difference()

    def introduce(self) -> str:
        """Returns the texts that models read, until the tool is approved: the approver of a call must see them."""
        if self.state not in (PinState.NEW, PinState.UNKNOWN):
            return ""
        return format_definition({key: self.offer.definition.get(key) for key in READ}, self.offer.target).rstrip("\n")

    def difference(self) -> str:
        """Returns the changes of the definition since its approval; "" if there are none."""
        offer = self.offer
        if offer.state is not PinState.CHANGED or offer.pin is None:
            return ""
        return difference(offer.name, offer.pin, offer.target, offer.definition)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        self._source.check_current(self)
        await self._note_approval(ctx)
        answer, hosts = await self._source.call(self, arguments, ctx)
        result = result_of(answer, render_call(ctx.call))
        result = result.with_data(network=hosts) if hosts else result
        return result.with_data(app=self.app) if self.app and result.success else result

    async def read_app(self) -> str:
        """Returns the HTML of its app. Raises `ToolError`."""
        return await self._source.read_app(self.app)

    async def _note_approval(self, ctx: ToolContext) -> None:
        """Stores the definition as approved: the approver of this call has seen it."""
        if self.state is PinState.PINNED:
            return
        from forge.permissions.gate import gate_of  # loaded already, unless no gate guards this call

        if gate_of(ctx).judges:
            await self._source.approve(self, by=f"a call in session {ctx.scope.session_id}")
        elif self.needs_person:
            why = "changed since it was approved" if self.state is PinState.CHANGED else "may not be the approved one"
            raise ToolError(
                f"its definition {why}, and there is no person to ask",
                ErrorKind.PERMISSION,
                "Ask the person to run `forge mcp approve`.",
            )


def check_definition(definition: Mapping[str, Any]) -> None:
    """Raises `ValueError` for a definition that is too large or too deep. Walks without recursion."""
    nodes = size = 0
    waiting: list[tuple[Any, int]] = [(definition.get(key), 1) for key in PINNED]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        size += len(node) if isinstance(node, str) else 4
        if isinstance(node, Mapping):
            size += sum(len(str(key)) for key in node)
            waiting.extend((item, depth + 1) for item in node.values())
        elif isinstance(node, list | tuple):
            waiting.extend((item, depth + 1) for item in node)
        if depth > DEEPEST_DEFINITION:
            raise ValueError(f"its definition is more than {DEEPEST_DEFINITION} levels deep")
        if nodes > MOST_NODES or size > LARGEST_DEFINITION:
            raise ValueError(f"its definition is larger than {MOST_NODES:,} values or {LARGEST_DEFINITION // 1024} KiB")


def default_permissions(declared: Collection[str] | None, *, is_program: bool) -> frozenset[Permission]:
    """Returns the declared permissions, or the default: a program may do anything, a remote server needs `network`."""
    if declared is not None:
        return frozenset(map(Permission, declared))
    return frozenset({Permission.EXECUTE, Permission.NETWORK} if is_program else {Permission.NETWORK})


def _spec(offer: ToolOffer, definition: Mapping[str, Any], settings: ToolSettings) -> ToolSpec:
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    more = {Permission.NETWORK} if hints.get("openWorldHint") is True else set()
    description = clean(definition.get("description")) or clean(definition.get("title"), 200)
    return ToolSpec(
        name=offer.name,
        description=description or f"The tool {clean(offer.remote, 100)}; its server gives no description.",
        parameters=_parameters(offer.name, definition.get("inputSchema")),
        category=Category.ADAPTER,
        permissions=settings.permissions | more,
        # a hint that promises safety is ignored; a hint that warns is believed
        confirm=offer.state in (PinState.NEW, PinState.UNKNOWN) or hints.get("destructiveHint") is True,
        irreversible=hints.get("destructiveHint") is True,
        timeout=settings.timeout,
        hidden=settings.hidden or is_for_apps(definition),
        trust="untrusted",
        origin=settings.origin,
    )


def _parameters(name: str, schema: Any) -> Mapping[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"tool {name!r}: its inputSchema is not an object")
    try:
        cleaned = clean_schema(schema)
    except ValueError as error:
        raise DefinitionError(f"tool {name!r}: {error}") from None
    whole = {"type": "object", "properties": {}, **cleaned}
    return take_schema(name, whole)
