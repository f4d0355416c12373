"""Offers resources to MCP clients: lists, reads and completes them, and watches the subscribed ones."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from forge.core.context import Scope
from forge.core.errors import ErrorKind
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import sendable
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.exports.mcp_server.client_call import Job
from forge.exports.mcp_server.completion import complete
from forge.exports.resources import Resource
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from forge.exports.mcp_server.workspace_files import WorkspaceFiles

PAGE = 500  # resources in one answer
NOT_FOUND = -32002  # until 2025-11-25; later it is INVALID_PARAMS
LONGEST_URI = 8_192
_TEXTS = ("json", "xml", "yaml", "toml", "javascript", "typescript", "sql", "graphql", "x-sh", "x-python", "csv")


class OfferedResources:
    """The resources of a program and the files of a workspace."""

    def __init__(self, executor: ToolExecutor, resources: Iterable[Resource] | ToolRegistry, scope: Scope) -> None:
        self.registry = resources if isinstance(resources, ToolRegistry) else ToolRegistry(list(resources))
        self.executor = ToolExecutor(
            self.registry, executor.steps, executor.activity, executor.secrets, executor.background
        )
        self._scope = scope
        self._files: WorkspaceFiles | None = None
        self._templates: dict[str, UriTemplate] = {}

    def add_files(self, files: WorkspaceFiles) -> None:
        self._files = files
        self.registry.add(files.resource)

    def __bool__(self) -> bool:
        return bool(len(self.registry))

    @property
    def _all(self) -> list[Resource]:
        return [one for one in self.registry.values() if isinstance(one, Resource)]

    async def list_page(self, cursor: str | None) -> dict[str, Any]:
        entries = [_describe(one, "uri") for one in self._all if not one.is_template]
        if self._files is not None:
            entries += await self._files.describe_all()
        start = _position(cursor, len(entries))
        following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(entries) else {}
        return {"resources": entries[start : start + PAGE], **following}

    def list_templates(self) -> dict[str, Any]:
        return {"resourceTemplates": [_describe(one, "uriTemplate") for one in self._all if one.is_template]}

    def job(self, ctx: ServerRequestContext[Any, Any], uri: str, not_found: int) -> Job:
        """Returns the work of reading a URI. Raises the protocol's error if there is no such resource."""
        found = self.find(uri)
        if found is None:
            raise MCPError(not_found, "Resource not found", {"uri": one_line(uri, LONGEST_URI)})
        resource, arguments = found

        def convert(outcome: ToolResult, call_id: str) -> dict[str, Any]:
            _check(outcome, uri, not_found)
            contents = [self._content(uri, one, resource) for one in outcome.attachments]
            return {"contents": contents, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

        return Job("resources/read", self.executor, ToolCall(resource.spec.name, arguments), convert)

    def find(self, uri: str) -> tuple[Resource, Mapping[str, Any]] | None:
        """Returns the resource of a URI, and the parameters that the URI holds."""
        if len(uri) > LONGEST_URI:
            return None
        for one in self._all:
            if one.uri == uri and not one.is_template:
                return one, {}
        for one in self._all:
            if one.is_template and (found := self._template(one.uri).match(uri)) is not None:
                return one, found
        return None

    def revision(self, uri: str) -> object | None:
        """Returns a value that changes with the content; None if nobody may read the resource."""
        found = self.find(uri)
        if found is None:
            return None
        resource, arguments = found
        if self._files is not None and resource is self._files.resource:
            return self._files.revision(str(arguments["path"]))
        return resource.revision

    async def complete(self, template: str, name: str, beginning: str) -> dict[str, Any]:
        for one in self._all:
            if one.uri == template:
                return await complete(one, one.complete, name, beginning)
        raise MCPError(INVALID_PARAMS, f"Unknown resource template: {one_line(template, 200)}")

    def _template(self, uri: str) -> UriTemplate:
        if uri not in self._templates:
            self._templates[uri] = UriTemplate.parse(uri)
        return self._templates[uri]

    def _content(self, uri: str, one: Attachment, resource: Resource) -> dict[str, Any]:
        media = sendable(one.media_type)
        where = {"uri": uri, "mimeType": media}
        text = _text_of(media, one.data)
        if text is not None:
            return {**where, "text": self.executor.secrets.mask(text)}
        return {**where, "blob": b64encode(one.data).decode()}


def _describe(resource: Resource, key: str) -> dict[str, Any]:
    kind = {"mimeType": resource.media_type} if resource.media_type else {}
    return {
        key: resource.uri,
        "name": resource.spec.name,
        "title": resource.spec.name.replace("_", " ").capitalize(),
        "description": sendable(resource.spec.description),
        **kind,
    }


def _position(cursor: str | None, count: int) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10 and int(cursor) <= count):
        raise MCPError(INVALID_PARAMS, "The cursor is not one of this list.")
    return int(cursor)


def _check(outcome: ToolResult, uri: str, not_found: int) -> None:
    """Raises the protocol's error for a failed read."""
    failure = outcome.failure
    if failure is None:
        return
    missing = failure.kind is ErrorKind.NOT_FOUND
    refused = failure.kind in (ErrorKind.PERMISSION, ErrorKind.SECURITY, ErrorKind.VALIDATION, ErrorKind.USER)
    code = not_found if missing else INVALID_PARAMS if refused else INTERNAL_ERROR
    raise MCPError(code, sendable(failure.text()), {"uri": one_line(uri, LONGEST_URI)})


def _text_of(media_type: str, data: bytes) -> str | None:
    """Returns the text of a content; None if it is binary."""
    kind, _, rest = media_type.lower().partition("/")
    if kind != "text" and not any(one in rest for one in _TEXTS):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
