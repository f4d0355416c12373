"""One tool of a server: its definition made safe to show, its hints read towards stricter, its calls sent on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from forge.core.arguments.schema import check_schema, compile_parser
from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.executor import render_call
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.sources.mcp.results import result_of
from forge.sources.pins import PINNED, Pin, State, difference, written
from forge.sources.untrusted import clean, clean_schema

DEEPEST = 100  # levels of a definition
MOST_NODES = 20_000  # values in one
LARGEST = 128 * 1024  # characters of one
TIMEOUT = 120.0  # seconds, where nothing else is said
READ = ("title", "description", "inputSchema")  # of a definition, by models


class Settings(NamedTuple):
    """What is the same for all tools of a server."""

    origin: str  # mcp:git
    permissions: frozenset[Permission]
    address: str = ""  # of an HTTP server: what the permission `network` is asked for
    timeout: float = TIMEOUT
    hidden: bool = False

    def wants(self, permissions: Collection[Permission]) -> list[tuple[Permission | None, str]]:
        """`network` is asked for the server's address, so that rules about hosts hold; a program has none."""
        return [(one, self.address if one is Permission.NETWORK else "") for one in sorted(permissions)] or [(None, "")]


class Offer(NamedTuple):
    """A tool as its server describes it now, and how that relates to what was approved."""

    name: str  # here
    remote: str  # there
    definition: Mapping[str, Any]
    sha256: str
    target: str
    state: State
    pin: Pin | None


class Source(Protocol):
    """What a tool needs of its server."""

    def check_current(self, tool: McpTool) -> None: ...
    async def approve(self, *tools: McpTool, by: str) -> None: ...
    async def call(self, tool: McpTool, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]: ...


class McpTool(Tool):
    """While a changed definition is not approved, models see the one that was, and a person decides on every call."""

    checked = True  # its schema was, when the spec was made

    def __init__(self, offer: Offer, settings: Settings, source: Source) -> None:
        shown = _spec(offer, offer.definition, settings)  # also of a changed one: what cannot be used is not approved
        if offer.state is State.CHANGED and offer.pin is not None:
            approved = _spec(offer, offer.pin.definition, settings)
            shown = approved.changed(
                permissions=shown.permissions | approved.permissions, confirm=shown.confirm or approved.confirm
            )
        self.spec = shown
        self.offer = offer
        self.needs_person = offer.state in (State.CHANGED, State.UNKNOWN)
        self._settings = settings
        self._source = source

    @property
    def remote(self) -> str:
        """Its name at the server."""
        return self.offer.remote

    @property
    def state(self) -> State:
        return self.offer.state

    def is_same(self, offer: Offer, settings: Settings) -> bool:
        """Whether a tool made of these would be the same."""
        known = (self.offer.name, self.offer.sha256, self.offer.target, self.offer.state)
        return known == (offer.name, offer.sha256, offer.target, offer.state) and self._settings == settings

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        parser = self.__dict__["parse"] = compile_parser(self.spec)
        return parser(arguments)

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]] | None:
        return self._settings.wants(self.spec.permissions)

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return self.difference()

    def introduce(self) -> str:
        """What models read of it, as long as nobody approved it: who lets a call pass has seen what they approve."""
        if self.state not in (State.NEW, State.UNKNOWN):
            return ""
        return written({key: self.offer.definition.get(key) for key in READ}, self.offer.target).rstrip("\n")

    def difference(self) -> str:
        """What changed in the definition since it was approved; empty if nothing did."""
        offer = self.offer
        if offer.state is not State.CHANGED or offer.pin is None:
            return ""
        return difference(offer.name, offer.pin, offer.target, offer.definition)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        self._source.check_current(self)
        await self._note_approval(ctx)
        answer = await self._source.call(self, arguments, ctx)
        return result_of(answer, render_call(ctx.call))

    async def _note_approval(self, ctx: ToolContext) -> None:
        """Whoever let this call pass saw the definition: it is what counts from now on."""
        if self.state is State.PINNED:
            return
        from forge.permissions.call_gate import gate_of  # the gate is loaded already, unless nothing guards this call

        if gate_of(ctx).judges:
            await self._source.approve(self, by=f"a call in session {ctx.scope.session_id}")
        elif self.needs_person:
            why = "changed since it was approved" if self.state is State.CHANGED else "may not be the approved one"
            raise ToolError(
                f"its definition {why}, and nothing here can ask a person about it",
                ErrorKind.PERMISSION,
                "Ask the person to run `forge mcp approve`.",
            )


def check_definition(definition: Mapping[str, Any]) -> None:
    """Raises `ValueError` for one that is too large or too deep to be looked at. Walks without recursion."""
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
        if depth > DEEPEST:
            raise ValueError(f"its definition is more than {DEEPEST} levels deep")
        if nodes > MOST_NODES or size > LARGEST:
            raise ValueError(f"its definition is larger than {MOST_NODES:,} values or {LARGEST // 1024} KiB")


def default_permissions(declared: Collection[str] | None, *, is_program: bool) -> frozenset[Permission]:
    """Unknown code of a program may do anything; a server elsewhere is reached over the network."""
    if declared is not None:
        return frozenset(map(Permission, declared))
    return frozenset({Permission.EXECUTE, Permission.NETWORK} if is_program else {Permission.NETWORK})


def _spec(offer: Offer, definition: Mapping[str, Any], settings: Settings) -> ToolSpec:
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    more = {Permission.NETWORK} if hints.get("openWorldHint") is True else set()
    description = clean(definition.get("description")) or clean(definition.get("title"), 200)
    return ToolSpec(
        name=offer.name,
        description=description or f"The tool {clean(offer.remote, 100)}, of which its server says nothing.",
        parameters=_parameters(offer.name, definition.get("inputSchema")),
        category=Category.ADAPTER,
        permissions=settings.permissions | more,
        # a hint that promises harmlessness is only a promise; one that warns is believed
        confirm=offer.state in (State.NEW, State.UNKNOWN) or hints.get("destructiveHint") is True,
        timeout=settings.timeout,
        hidden=settings.hidden,
        origin=settings.origin,
    )


def _parameters(name: str, schema: Any) -> Mapping[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"tool {name!r}: its inputSchema is no object")
    try:
        cleaned = clean_schema(schema)
    except ValueError as error:
        raise DefinitionError(f"tool {name!r}: {error}") from None
    whole = {"type": "object", "properties": {}, **cleaned}
    check_schema(name, whole)
    return whole
