"""Makes the SDK's server, with a handler for each method that an offer supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    InputRequiredResult,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from forge.core.untrusted import one_line
from forge.mcp.server.calls import TaskParams, UpdateTaskParams
from forge.mcp.server.first_answer import INSTRUCTIONS, TASKS
from forge.mcp.server.input_requests import is_modern
from forge.mcp.server.offer import FRESH, MOST_WATCHED, Offer
from forge.mcp.server.offered_content import NOT_FOUND

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions

    Context = ServerRequestContext[Any, Any]


def make_server(offer: Offer) -> Server[Any]:
    """Returns the SDK's server for an offer. Methods for what the offer lacks are not found."""
    server = _AnnouncingServer(
        offer.name,
        version=offer.version,
        instructions=INSTRUCTIONS,
        on_subscriptions_listen=offer.listen,
        get_tool_input_schema=offer.input_schema,
    )
    handlers = Handlers(offer)
    add = server.add_request_handler
    add("tools/list", PaginatedRequestParams, offer.list_tools)
    add("tools/call", CallToolRequestParams, offer.call_tool)
    add("logging/setLevel", SetLevelRequestParams, handlers.set_level)
    add("tasks/get", TaskParams, offer.calls.tasks.get)
    add("tasks/update", UpdateTaskParams, offer.calls.tasks.update)
    add("tasks/cancel", TaskParams, offer.calls.tasks.cancel)
    server.extensions = {TASKS: {}}
    if offer.resources:
        add("resources/list", PaginatedRequestParams, handlers.list_resources)
        add("resources/templates/list", PaginatedRequestParams, handlers.list_templates)
        add("resources/read", ReadResourceRequestParams, handlers.read_resource)
        add("resources/subscribe", SubscribeRequestParams, handlers.subscribe)
        add("resources/unsubscribe", UnsubscribeRequestParams, handlers.unsubscribe)
    if offer.prompts:
        add("prompts/list", PaginatedRequestParams, handlers.list_prompts)
        add("prompts/get", GetPromptRequestParams, handlers.get_prompt)
    if offer.resources or offer.prompts:
        add("completion/complete", CompleteRequestParams, handlers.complete)
    return server


class Handlers:
    """The handlers of methods that are not about tools."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer

    async def set_level(self, ctx: Context, params: SetLevelRequestParams) -> dict[str, Any]:
        self.offer.session(ctx).log_level = params.level
        return {}

    async def list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> dict[str, Any]:
        version = self.offer.resources.registry.version  # before the list: a change meanwhile is announced later
        answer = await self.offer.resources.list_page(params.cursor if params is not None else None)
        self.offer.note_listed(self.offer.session(ctx), "resources", version)
        return {**answer, "resultType": "complete", **FRESH}

    async def list_templates(self, ctx: Context, params: PaginatedRequestParams | None) -> dict[str, Any]:
        return {**self.offer.resources.list_templates(), "resultType": "complete", **FRESH}

    async def read_resource(
        self, ctx: Context, params: ReadResourceRequestParams
    ) -> dict[str, Any] | InputRequiredResult:
        job = self.offer.resources.job(ctx, str(params.uri), INVALID_PARAMS if is_modern(ctx) else NOT_FOUND)
        return await self.offer.calls.answer(ctx, params, self.offer.session(ctx), job)

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> dict[str, Any]:
        uri = str(params.uri)
        if not self.offer.watch(self.offer.session(ctx), uri):
            problem = f"Cannot subscribe: there is no such resource, or {MOST_WATCHED} are subscribed already."
            raise MCPError(NOT_FOUND, problem, {"uri": one_line(uri, 1_000)})
        return {}

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> dict[str, Any]:
        self.offer.unwatch(self.offer.session(ctx), str(params.uri))
        return {}

    async def list_prompts(self, ctx: Context, params: PaginatedRequestParams | None) -> dict[str, Any]:
        answer = self.offer.prompts.list_all()
        self.offer.note_listed(self.offer.session(ctx), "prompts", self.offer.prompts.registry.version)
        return {**answer, "resultType": "complete", **FRESH}

    async def get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> dict[str, Any] | InputRequiredResult:
        job = self.offer.prompts.job(params.name, dict(params.arguments or {}))
        return await self.offer.calls.answer(ctx, params, self.offer.session(ctx), job)

    async def complete(self, ctx: Context, params: CompleteRequestParams) -> dict[str, Any]:
        argument = params.argument
        if isinstance(params.ref, PromptReference):
            found = await self.offer.prompts.complete(params.ref.name, argument.name, argument.value)
        else:
            found = await self.offer.resources.complete(params.ref.uri, argument.name, argument.value)
        return {"completion": found, "resultType": "complete"}


class _AnnouncingServer(Server[Any]):
    """A server that declares in every handshake that its lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        announced = notification_options or NotificationOptions(
            tools_changed=True, resources_changed=True, prompts_changed=True
        )
        return super().create_initialization_options(announced, experimental_capabilities, extensions or {})
