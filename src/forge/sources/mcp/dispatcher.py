"""Sends requests through the SDK: keeps lists and tasks as they are, and adds the headers of parameters to calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

_page: ContextVar[dict[str, Any] | None] = ContextVar("forge_mcp_page", default=None)
_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
LISTS = {  # the method of a list, and the key of its items
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
TASK = "forge/task"  # in `_meta`: the task that a server started instead of an answer


class ServerDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher below its session.

    The SDK refuses a whole list for one invalid definition. So the raw page is taken here, before it is checked. The
    SDK does not know tasks: a call that became one has it in `_meta`.
    """

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        super().__init__(incoming, outgoing)
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}  # by tool

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        if method == "tools/call" and params is not None and (known := self._header_maps.get(str(params["name"]))):
            headers = mcp_param_headers(known, params.get("arguments") or {})
            opts = CallOptions(**{**(opts or {}), "headers": {**((opts or {}).get("headers") or {}), **headers}})
        answer = await super().send_raw_request(method, params, opts, **related)
        if method == "tools/call":
            is_task = answer.get("resultType") == "task" or isinstance(answer.get("task"), dict)
            return {"content": [], "resultType": "complete", "_meta": {TASK: answer}} if is_task else answer
        page = _page.get()
        if method not in LISTS or page is None:
            return answer
        page.update(answer)
        return {LISTS[method]: [], **_COMPLETE}

    def keep_headers(self, page: Mapping[str, Any]) -> None:
        """Notes which parameters of these tools are sent as headers, too (revision 2026-07-28, over HTTP)."""
        tools = page.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self._header_maps.pop(name, None)
                if found := x_mcp_header_map(tool.get("inputSchema")):
                    self._header_maps[name] = found


class RawPage:
    """Inside, the answer to a list is kept as the server sent it."""

    def __enter__(self) -> dict[str, Any]:
        page: dict[str, Any] = {}
        self._token = _page.set(page)
        return page

    def __exit__(self, *_: object) -> None:
        _page.reset(self._token)
