"""MCP apps: the pages of a server that show the results of its tools (extension io.modelcontextprotocol/ui).

The console shows them in a sandboxed frame; a terminal shows the text of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import one_line

LONGEST_URI = 500
LONGEST_PAGE = 4 * 1024 * 1024  # characters


def find_app(definition: Mapping[str, Any]) -> str:
    """Returns the URI of the app that shows a tool's results; "" without one."""
    uri = _read_ui(definition).get("resourceUri")
    is_usable = isinstance(uri, str) and uri.startswith("ui://") and len(uri) <= LONGEST_URI and uri.isprintable()
    return str(uri) if is_usable else ""


def is_for_apps(definition: Mapping[str, Any]) -> bool:
    """Returns whether a tool is meant for apps only: then models do not see it unless they search for it."""
    seen_by = _read_ui(definition).get("visibility")
    return isinstance(seen_by, list) and "app" in seen_by and "model" not in seen_by


def _read_ui(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = definition.get("_meta")
    said = meta.get("ui") if isinstance(meta, Mapping) else None
    return said if isinstance(said, Mapping) else {}


def read_page(server: str, uri: str, answer: Mapping[str, Any]) -> str:
    """Returns the HTML of an app in the answer to `resources/read`. It is untrusted. Raises `ToolError`."""
    contents = answer.get("contents")
    for one in contents if isinstance(contents, list) else []:
        text, kind = (one.get("text"), one.get("mimeType")) if isinstance(one, Mapping) else (None, None)
        if isinstance(text, str) and str(kind).startswith("text/html") and len(text) <= LONGEST_PAGE:
            return text
    raise ToolError(
        f"the server {server} has no app at {one_line(uri, LONGEST_URI)}",
        ErrorKind.NOT_FOUND,
        "Read the result as text.",
    )
