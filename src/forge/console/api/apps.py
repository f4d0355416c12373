"""Apps of MCP servers: the HTML of a frame, and which tools it may call.

The policy of a frame stops every request, but no policy of a browser stops WebRTC, which sends to any address. So each
script of an app begins with a line that removes it, and only these scripts run: the policy has their digests. A script
that is not found here, and one that an app adds later, does not run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape, unescape
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.console.guard import APP_SCRIPTS
from forge.core.errors import ErrorKind, ToolError
from forge.mcp.client.tools import McpTool

# `this` of such a function is the window: nothing that the app declares can take its place
LOCK = "(function(){delete this.RTCPeerConnection;delete this.webkitRTCPeerConnection})();\n"

MOST_SCRIPTS = 500  # scripts and handlers of an app: a header holds so many

_NEWLINE = re.compile("\r\n?")
_SCRIPT = re.compile(r"<script(?=[\s>/])(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>", re.IGNORECASE)
_END = re.compile(r"</script", re.IGNORECASE)
_TYPE = re.compile(r"\stype\s*=\s*[\"']?\s*([^\s\"'>]*)", re.IGNORECASE)
_TAG = re.compile(r"<[a-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>", re.IGNORECASE)
_HANDLER = re.compile(r"(\son[a-z]+\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s\"'<>=`]+)", re.IGNORECASE)
_NO_CODE = ("application/json", "application/ld+json", "text/", "importmap", "speculationrules")


def show_app(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    """Returns the app of a tool, and the tools of its server by the names that the server uses."""

    tool = _find_tool(console, asked.path["tool"])
    same = {
        one.remote: name
        for name, one in console.registry.items()
        if isinstance(one, McpTool) and one.spec.origin == tool.spec.origin
    }
    return {"server": tool.spec.origin.partition(":")[2], "uri": tool.app, "tools": same}


class AppFrame:
    """Serves the HTML of an app. The guard adds a policy that lets it reach nothing."""

    def __init__(self, console: ConsoleState) -> None:
        self.console = console

    async def __call__(self, request: Request) -> Response:
        try:
            html, sources = lock_scripts(await _find_tool(self.console, request.path_params["tool"]).read_app())
        except ToolError as error:
            raise HTTPException(404, error.message) from None
        return HTMLResponse(html, headers={APP_SCRIPTS: sources})


def lock_scripts(html: str) -> tuple[str, str]:
    """Returns the HTML with a lock at the start of each script and handler, and the scripts that its policy allows."""
    html = _NEWLINE.sub("\n", html.encode(errors="replace").decode()).replace("\0", "\ufffd")  # as browsers read it
    digests: set[str] = set()

    def lock(code: str) -> str:
        locked = LOCK + code
        digests.add(f"'sha256-{b64encode(sha256(locked.encode()).digest()).decode()}'")
        return locked

    def lock_handlers(markup: str) -> str:
        def handler(found: re.Match[str]) -> str:
            value = found[2][1:-1] if found[2][0] in "\"'" else found[2]
            return f'{found[1]}"{escape(lock(unescape(value)))}"'

        return _TAG.sub(lambda tag: _HANDLER.sub(handler, tag[0]), markup)

    written, place = [], 0
    while (start := _SCRIPT.search(html, place)) and (end := _END.search(html, start.end())):
        code, kind = html[start.end() : end.start()], _TYPE.search(start[0])
        written.append(lock_handlers(html[place : start.start()]))
        if kind is not None and kind[1].lower() == "module":  # a module has no `this`: its code waits as one does
            code = f'addEventListener("DOMContentLoaded",async()=>{{"use strict";\n{code}\n}});'
            written.append(f"<script>{lock(code)}")
        elif kind is not None and kind[1].lower().startswith(_NO_CODE) and "javascript" not in kind[1].lower():
            written.append(start[0] + code)
        else:
            written.append(start[0] + lock(code))
        place = end.start()
    written.append(lock_handlers(html[place:]))
    return "".join(written), " ".join(["'unsafe-hashes'", *sorted(digests)[:MOST_SCRIPTS]])


def _find_tool(console: ConsoleState, name: str) -> McpTool:
    tool = console.registry.get(name)
    if not isinstance(tool, McpTool) or not tool.app:
        raise ToolError(f"the tool {name[:80]!r} has no app", ErrorKind.NOT_FOUND, "Read its result as text.")
    return tool
