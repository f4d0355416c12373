"""A server written by hand with resources, prompts, completion and tasks: `python library.py old|new`.

`old` speaks 2025-11-25, `new` 2026-07-28. The resource docs://cancelled names the cancelled tasks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).resolve())
PAGES = {"docs://guide": "Read me first.", "docs://\x07bad": "never"}
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
INFO = {"name": "library", "version": "1"}
ABOUT = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
APP = "ui://board/main"
ONLY_APPS = {"_meta": {"ui": {"visibility": ["app"]}}}
HTML = """<!doctype html><h1 id=title>Board</h1><p id=moved>-</p><p id=foreign>-</p><p id=page>-</p><p id=web>-</p>
<script>
const say = (id, text) => { document.getElementById(id).textContent = text; };
const send = (method, params, id) => parent.postMessage({ jsonrpc: "2.0", ...(id ? { id } : {}), method, params }, "*");
addEventListener("message", ({ data }) => {
    if (data.id === 1) send("ui/notifications/initialized", {});
    if (data.method === "ui/notifications/tool-result") {
        say("title", `Board of ${data.params.structuredContent.cards} cards`);
        send("tools/call", { name: "move", arguments: { to: 3 } }, 2);
        send("tools/call", { name: "bash", arguments: { command: "id" } }, 3);
    }
    if (data.id === 2) say("moved", data.result ? data.result.content[0].text : data.error.message);
    if (data.id === 3) say("foreign", data.result ? "ran" : data.error.message);
});
try { say("page", parent.document.title || "open"); } catch { say("page", "closed"); }
fetch("/api/me").then(() => say("web", "open"), () => say("web", "closed"));
const appInfo = { name: "board", version: "1" };
send("ui/initialize", { protocolVersion: "2026-01-26", appInfo, appCapabilities: {} }, 1);
</script>"""


def command(kind: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-E", HERE, kind, *arguments)


class Library:
    def __init__(self, kind: str) -> None:
        self.is_new = kind == "new"
        self.cancelled = ""
        self.looks = 0

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a request; None for a method that it does not know."""
        found = getattr(self, "on_" + method.replace("/", "_"), None)
        result: dict[str, Any] | None = found(params) if found is not None else None
        return {**ABOUT, **result} if self.is_new and result is not None else result

    def on_initialize(self, params: dict[str, Any]) -> dict[str, Any] | None:
        tasks: dict[str, Any] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {**CAPABILITIES, "tasks": tasks}}
        return None if self.is_new else {**greeting, "serverInfo": INFO}

    def on_server_discover(self, params: dict[str, Any]) -> dict[str, Any] | None:
        meta = {"io.modelcontextprotocol/serverInfo": INFO}
        extended = {**CAPABILITIES, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        said = {"supportedVersions": ["2026-07-28"], "capabilities": extended, "_meta": meta}
        return said if self.is_new else None

    def on_tools_list(self, params: dict[str, Any]) -> dict[str, Any]:
        required = {} if self.is_new else {"execution": {"taskSupport": "required"}}
        shown = {"_meta": {"ui": {"resourceUri": APP}}}
        names = ({"name": "long", **required}, {"name": "endless", **required}, {"name": "fails", **required})
        tools = (*names, {"name": "board", **shown}, {"name": "move", **ONLY_APPS})
        return {"tools": [{**one, "inputSchema": {"type": "object"}} for one in tools]}

    def on_tools_call(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["name"]
        if name in ("board", "move"):
            data = {"structuredContent": {"cards": 2}, "isError": False}
            return {"content": [{"type": "text", "text": f"{name}: {params.get('arguments')}"}], **data}
        if not self.is_new:
            assert params["task"]["ttl"] > 0
        started = self.describe(name, "working", statusMessage="begun")
        return {**started, "resultType": "task"} if self.is_new else {"task": started}

    def describe(self, name: str, status: str, **more: Any) -> dict[str, Any]:
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        keys = ("ttlMs", "pollIntervalMs") if self.is_new else ("ttl", "pollInterval")
        return {
            "taskId": f"task-{name}",
            "status": status,
            **times,
            **dict(zip(keys, (60_000, 1), strict=True)),
            **more,
        }

    def on_tasks_get(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["taskId"].removeprefix("task-")
        self.looks += 1
        if name == "endless" or self.looks < 2:
            return self.describe(name, "working", statusMessage=f"look {self.looks}")
        if name == "fails":
            more: dict[str, Any] = {"error": {"code": -32603, "message": "out of paper"}} if self.is_new else {}
            return self.describe(name, "failed", statusMessage="out of paper", **more)
        done = {"result": {"content": [{"type": "text", "text": "it took long"}]}} if self.is_new else {}
        return self.describe(name, "completed", **done)

    def on_tasks_result(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["taskId"] == "task-fails":
            return {"content": [{"type": "text", "text": "out of paper"}], "isError": True}
        return {"content": [{"type": "text", "text": "it took long"}]}

    def on_tasks_cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        self.cancelled += params["taskId"]
        return self.describe("endless", "cancelled")

    def on_resources_list(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("cursor") == "2":
            return {"resources": [{"uri": "docs://pixel", "name": "pixel", "mimeType": "image/png"}, "odd"]}
        listed = [{"uri": uri, "name": "guide", "description": "A\nguide."} for uri in PAGES]
        return {"resources": listed, "nextCursor": "2"}

    def on_resources_templates_list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": [{"uriTemplate": "docs://{page}", "name": "page"}]}

    def on_resources_read(self, params: dict[str, Any]) -> dict[str, Any]:
        uri = params["uri"]
        if uri == "docs://pixel":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": "AAEC"}]}
        if uri == "docs://cancelled":
            return {"contents": [{"uri": uri, "text": self.cancelled}]}
        if uri == APP:
            return {"contents": [{"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": _app()}]}
        return {"contents": [{"uri": uri, "text": PAGES[uri]}] if uri in PAGES else []}

    def on_prompts_list(self, params: dict[str, Any]) -> dict[str, Any]:
        style = {"name": "style", "description": "How to write."}
        review = {
            "name": "review",
            "description": "Review a page.",
            "arguments": [{"name": "page", "required": True}, style],
        }
        return {"prompts": [review, {"name": "hello"}, {"name": 7}]}

    def on_prompts_get(self, params: dict[str, Any]) -> dict[str, Any]:
        said = params.get("arguments") or {}
        words = f"Review {said['page']} ({said.get('style', 'plain')})." if params["name"] == "review" else "Say hello."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}

    def on_completion_complete(self, params: dict[str, Any]) -> dict[str, Any]:
        known = params.get("context", {}).get("arguments", {})
        values = ["guide", "glossary", *known] if params["argument"]["name"] == "page" else []
        chosen = [one for one in values if one.startswith(params["argument"]["value"])]
        return {"completion": {"values": chosen, "hasMore": False}}


def _app() -> str:
    other = Path(__file__).with_name("app.html")  # of a test
    return other.read_text(encoding="utf-8") if other.exists() else HTML


def main() -> None:
    library = Library(*sys.argv[1:])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = library.answer(message["method"], message.get("params") or {})
        body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
