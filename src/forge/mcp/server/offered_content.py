"""Offers resources and prompts to MCP clients: lists, reads and completes them, and watches subscribed resources."""

from __future__ import annotations

import asyncio
import inspect
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import sendable
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category, ToolOptions, is_name
from forge.core.tool import Tool
from forge.core.untrusted import one_line
from forge.mcp.prompts import Prompt
from forge.mcp.resources import Completion, Resource
from forge.mcp.server import protocol_json
from forge.mcp.server.client_call import CallRequest
from forge.skills.active import ActiveSkills
from forge.skills.skill import Skill

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from forge.mcp.server.workspace_files import WorkspaceFiles


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
        entries = [_describe_resource(one, "uri") for one in self._all if not one.is_template]
        if self._files is not None:
            entries += await self._files.describe_all()
        start = _position(cursor, len(entries))
        following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(entries) else {}
        return {"resources": entries[start : start + PAGE], **following}

    def list_templates(self) -> dict[str, Any]:
        return {"resourceTemplates": [_describe_resource(one, "uriTemplate") for one in self._all if one.is_template]}

    def job(self, ctx: ServerRequestContext[Any, Any], uri: str, not_found: int) -> CallRequest:
        """Returns the work of reading a URI. Raises the protocol's error if there is no such resource."""
        found = self.find(uri)
        if found is None:
            raise MCPError(not_found, "Resource not found", {"uri": one_line(uri, LONGEST_URI)})
        resource, arguments = found

        def convert(outcome: ToolResult, call_id: str) -> dict[str, Any]:
            _check_resource(outcome, uri, not_found)
            contents = [self._content(uri, one, resource) for one in outcome.attachments]
            return {"contents": contents, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

        return CallRequest("resources/read", self.executor, ToolCall(resource.spec.name, arguments), convert)

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


def _describe_resource(resource: Resource, key: str) -> dict[str, Any]:
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


def _check_resource(outcome: ToolResult, uri: str, not_found: int) -> None:
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


# --- Offers prompts to MCP clients: those of a program, and the project's skills.


READ_SKILL = "read_skill"


class OfferedPrompts:
    """The prompts of a program. `skills` returns the skills that are prompts, too; it is called at the first use."""

    def __init__(
        self,
        executor: ToolExecutor,
        prompts: Iterable[Prompt] | ToolRegistry,
        skills: Callable[[], ActiveSkills] | None = None,
    ) -> None:
        self.registry = prompts if isinstance(prompts, ToolRegistry) else ToolRegistry(list(prompts))
        self.executor = ToolExecutor(
            self.registry, executor.steps, executor.activity, executor.secrets, executor.background
        )
        self._tools = executor
        self._skills = skills if READ_SKILL in executor.registry else None
        self._may_have_any = bool(len(self.registry)) or self._skills is not None

    def __bool__(self) -> bool:
        return self._may_have_any

    def list_all(self) -> dict[str, Any]:
        self._add_skills()
        return {"prompts": [_describe_prompt(one) for one in self._all]}

    def job(self, name: str, arguments: dict[str, Any]) -> CallRequest:
        """Returns the work of one prompt. Raises the protocol's error for an unknown one."""
        prompt = self._find(name)

        def convert(outcome: ToolResult, call_id: str) -> dict[str, Any]:
            _check_prompt(outcome)
            messages = [self._message(one, outcome, call_id) for one in outcome.data.get("messages", ())]
            description = sendable(prompt.spec.description)
            return {"description": description, "messages": messages, "resultType": "complete"}

        return CallRequest("prompts/get", self.executor, ToolCall(prompt.spec.name, arguments), convert)

    async def complete(self, name: str, argument: str, beginning: str) -> dict[str, Any]:
        prompt = self._find(name)
        return await complete(prompt, prompt.complete, argument, beginning)

    @property
    def _all(self) -> list[Prompt]:
        return [one for one in self.registry.values() if isinstance(one, Prompt)]

    def _find(self, name: str) -> Prompt:
        self._add_skills()
        found = self.registry.get(name)
        if not isinstance(found, Prompt):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {one_line(name, 80)}")
        return found

    def _add_skills(self) -> None:
        if self._skills is not None:
            skills, self._skills = self._skills, None
            for skill in skills().catalog.skills.values():
                if is_name(skill.name) and not skill.missing and skill.name not in self.registry:
                    self.registry.add(_skill_prompt(skill, self._tools))

    def _message(self, one: dict[str, Any], outcome: ToolResult, call_id: str) -> dict[str, Any]:
        if "attachment" in one:
            block = _block(outcome.attachments[one["attachment"]], call_id, one["attachment"] + 1)
            return {"role": one["role"], "content": block}
        text = self.executor.secrets.mask(sendable(one["text"]))
        return {"role": one["role"], "content": {"type": "text", "text": text}}


def _skill_prompt(skill: Skill, tools: ToolExecutor) -> Prompt:
    """Returns a skill as a prompt. It is read with `read_skill`, so its rules and guardrails hold."""

    async def read(ctx: ToolContext, request: str = "") -> str:
        outcome = await tools.execute(ToolCall(READ_SKILL, {"name": skill.name}), ctx.scope)
        if outcome.failure is not None:
            raise ToolError(outcome.failure.message, outcome.failure.kind, outcome.failure.suggestion)
        return f"{outcome.for_llm}\n\n{request}".strip()

    options = ToolOptions(name=skill.name, description=skill.description, category=Category.BUILTIN)
    return Prompt(read, options=options)


def _describe_prompt(prompt: Prompt) -> dict[str, Any]:
    parameters = prompt.spec.parameters
    required = parameters.get("required", ())
    arguments = [
        {
            "name": name,
            **({"description": sendable(schema["description"])} if schema.get("description") else {}),
            "required": name in required,
        }
        for name, schema in parameters.get("properties", {}).items()
    ]
    return {
        "name": prompt.spec.name,
        "title": prompt.spec.name.replace("_", " ").replace("-", " ").capitalize(),
        "description": sendable(prompt.spec.description),
        "arguments": arguments,
    }


def _block(one: Attachment, call_id: str, number: int) -> dict[str, Any]:
    uri = one.name if "://" in one.name else protocol_json.attachment_uri(one, call_id, number)
    return protocol_json.block(one, sendable(uri))


def _check_prompt(outcome: ToolResult) -> None:
    failure = outcome.failure
    if failure is not None:
        wrong = failure.kind is ErrorKind.VALIDATION or failure.kind is ErrorKind.PERMISSION
        raise MCPError(INVALID_PARAMS if wrong else INTERNAL_ERROR, sendable(failure.text()))


# --- Completes the arguments of prompts and resource templates.


MOST_COMPLETIONS = 100  # values, as the protocol says
MOST_CONSIDERED = 10_000  # values of which the matching ones are chosen
PATIENCE = 10.0  # seconds
LONGEST_VALUE = 1_000  # characters of a value


async def complete(tool: Tool, completions: Mapping[str, Completion], name: str, beginning: str) -> dict[str, Any]:
    """Returns the values of a parameter that begin with a text, in the protocol's format."""
    source: Completion = completions.get(name) or _choices(tool, name)
    if callable(source):
        async with asyncio.timeout(PATIENCE):
            found: Any = await in_thread(lambda: source(beginning))
            if inspect.isawaitable(found):
                found = await found
    else:
        found = source
    matching = [text for text in _texts(found) if text.lower().startswith(beginning.lower())]
    return {"values": matching[:MOST_COMPLETIONS], "total": len(matching), "hasMore": len(matching) > MOST_COMPLETIONS}


def _choices(tool: Tool, name: str) -> Collection[str]:
    """Returns the values that a parameter's schema allows."""
    schema = tool.spec.parameters.get("properties", {}).get(name, {})
    if schema.get("type") == "boolean":
        return ("true", "false")
    return [str(one) for one in schema.get("enum", ())]


def _texts(values: Iterable[object]) -> list[str]:
    return [one_line(str(one), LONGEST_VALUE) for one in islice(values, MOST_CONSIDERED)]
