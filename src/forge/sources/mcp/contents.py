"""Reads the resources and prompts of a server, cleaned and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.result import ToolResult
from forge.sources.mcp.results import LONGEST_URI, MOST_PARTS, result_of
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from forge.sources.mcp.connection import Connection

LONGEST = 300  # characters of a name or a description
MOST_SUGGESTED = 100  # values of an argument
LONGEST_APP = 4 * 1024 * 1024  # characters of an app


@dataclass(frozen=True, slots=True)
class ServerResource:
    """A resource that a server lists. Of a template, `uri` has variables: `file:///{path}`."""

    uri: str
    name: str
    description: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A prompt that a server lists."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class ServerContents:
    """The part of an `McpServer` that is not about tools. All of it needs an open server.

    Example:
        >>> async def first_lines(server: McpServer) -> str:
        ...     async with server:
        ...         return (await server.read_resource("file:///README.md")).for_llm[:200]
    """

    name: str

    def _require_connection(self) -> Connection:
        raise NotImplementedError

    def _mask_tokens(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def list_resources(self) -> list[ServerResource]:
        """Returns the resources; [] if the server has none. Raises `ToolError`."""
        return _read_resources(await self._require_connection().list_items("resources/list"), "uri")

    async def list_resource_templates(self) -> list[ServerResource]:
        """Returns the templates of resources. Raises `ToolError`."""
        found = await self._require_connection().list_items("resources/templates/list")
        return _read_resources(found, "uriTemplate")

    async def read_resource(self, uri: str) -> ToolResult:
        """Returns the text of a resource; binary contents are attachments. Raises `ToolError`."""
        answer = self._mask_tokens(await self._require_connection().read_resource(uri))
        contents = answer.get("contents")
        parts = [{"type": "resource", "resource": one} for one in contents] if isinstance(contents, list) else []
        if not parts:
            return ToolResult.text(f"The resource {one_line(uri, LONGEST_URI)} is empty.")
        return result_of({"content": parts}, f"reading {one_line(uri, LONGEST_URI)}")

    async def read_app(self, uri: str) -> str:
        """Returns the HTML of an app, a resource `ui://…`. It is untrusted: show it only in a sandboxed frame."""
        answer = self._mask_tokens(await self._require_connection().read_resource(uri))
        contents = answer.get("contents")
        for one in contents if isinstance(contents, list) else []:
            text, kind = (one.get("text"), one.get("mimeType")) if isinstance(one, Mapping) else (None, None)
            if isinstance(text, str) and str(kind).startswith("text/html") and len(text) <= LONGEST_APP:
                return text
        raise ToolError(
            f"the server {self.name} has no app at {one_line(uri, LONGEST_URI)}",
            ErrorKind.NOT_FOUND,
            "Read the result as text.",
        )

    async def list_prompts(self) -> list[ServerPrompt]:
        """Returns the prompts; [] if the server has none. Raises `ToolError`."""
        listed = await self._require_connection().list_items("prompts/list")
        return [found for one in listed if (found := _read_prompt(one)) is not None]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Message]:
        """Returns the messages of a prompt, for `agent.run`. Raises `ToolError`."""
        answer = self._mask_tokens(await self._require_connection().get_prompt(name, arguments or {}))
        listed = answer.get("messages")
        messages = [_read_message(one) for one in (listed if isinstance(listed, list) else [])[:MOST_PARTS]]
        if not messages:
            raise ToolError(
                f"the prompt {one_line(name, 80)} of the server {self.name} has no messages",
                ErrorKind.SYSTEM,
                "This is the server's fault; write the task yourself.",
            )
        return messages

    async def complete_argument(
        self, prompt: str, argument: str, value: str, known: Mapping[str, str] | None = None
    ) -> list[str]:
        """Returns values that an argument of a prompt may have. `known` are the other arguments."""
        answer = await self._require_connection().complete(prompt, argument, value, known or {})
        completion = answer.get("completion")
        values = completion.get("values") if isinstance(completion, Mapping) else None
        found = (one_line(one, LONGEST) for one in values[:MOST_SUGGESTED]) if isinstance(values, list) else ()
        return [one for one in found if one]


def _read_resources(listed: list[dict[str, Any]], key: str) -> list[ServerResource]:
    found = []
    for one in listed:
        uri = one.get(key)
        if isinstance(uri, str) and uri and len(uri) <= LONGEST_URI and uri.isprintable():
            words = [one_line(one.get(field), LONGEST) for field in ("title", "name", "description", "mimeType")]
            found.append(ServerResource(uri, words[0] or words[1], words[2], words[3]))
    return found


def _read_prompt(listed: Mapping[str, Any]) -> ServerPrompt | None:
    name = listed.get("name")
    if not isinstance(name, str) or not name or len(name) > LONGEST or not name.isprintable():
        return None
    said = listed.get("arguments")
    arguments = tuple(
        PromptArgument(one["name"], one_line(one.get("description"), LONGEST), one.get("required") is True)
        for one in (said if isinstance(said, list) else [])[:MOST_SUGGESTED]
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and one["name"].isprintable()
    )
    return ServerPrompt(name, one_line(listed.get("description") or listed.get("title"), LONGEST), arguments)


def _read_message(listed: Any) -> Message:
    """Reads one message of a prompt. A server may speak as the person or as the model, never as the system."""
    said = listed if isinstance(listed, Mapping) else {}
    content = said.get("content")
    result = result_of({"content": content if isinstance(content, list) else [content]}, "a prompt")
    is_model = said.get("role") == "assistant"
    return Message("assistant" if is_model else "user", result.for_llm, attachments=result.attachments)
