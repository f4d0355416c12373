"""Reads what a server sends, cleaned and bounded: its resources and prompts, and the results of its tools."""

from __future__ import annotations

import binascii
import json
import mimetypes
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import plain, sendable
from forge.core.result import Attachment, ToolResult
from forge.core.untrusted import clean, one_line
from forge.mcp.apps import LONGEST_URI, read_page

if TYPE_CHECKING:
    from forge.mcp.client.connection import Connection


T = TypeVar("T")
LONGEST_LABEL = 300  # characters of a name or a description
MOST_SUGGESTED = 100  # values of an argument


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
    """The part of an `McpSource` that is not about tools. All of it needs an open server.

    Example:
        >>> async def first_lines(server: McpSource) -> str:
        ...     async with server:
        ...         return (await server.read_resource("file:///README.md")).for_llm[:200]
    """

    name: str

    async def _request(self, work: Callable[[Connection], Awaitable[T]], ctx: ToolContext | None = None) -> T:
        """Sends a request, over the connection of the call's user if each user has one. Tokens in the answer are
        masked."""
        raise NotImplementedError

    async def list_resources(self, ctx: ToolContext | None = None) -> list[ServerResource]:
        """Returns the resources; [] if the server has none. Raises `ToolError`. `ctx`: the call that asks."""
        return _read_resources(await self._request(lambda one: one.list_items("resources/list"), ctx), "uri")

    async def list_resource_templates(self, ctx: ToolContext | None = None) -> list[ServerResource]:
        """Returns the templates of resources. Raises `ToolError`. `ctx`: the call that asks."""
        found = await self._request(lambda one: one.list_items("resources/templates/list"), ctx)
        return _read_resources(found, "uriTemplate")

    async def read_resource(self, uri: str, ctx: ToolContext | None = None) -> ToolResult:
        """Returns the text of a resource; binary contents are attachments. Raises `ToolError`. `ctx`: the call that
        asks."""
        answer = await self._request(lambda one: one.read_resource(uri), ctx)
        contents = answer.get("contents")
        parts = [{"type": "resource", "resource": one} for one in contents] if isinstance(contents, list) else []
        if not parts:
            return ToolResult.text(f"The resource {one_line(uri, LONGEST_URI)} is empty.")
        return result_of({"content": parts}, f"reading {one_line(uri, LONGEST_URI)}")

    async def read_app(self, uri: str) -> str:
        """Returns the HTML of an app, a resource `ui://…`. It is untrusted: show it only in a sandboxed frame."""
        return read_page(self.name, uri, await self._request(lambda one: one.read_resource(uri)))

    async def list_prompts(self) -> list[ServerPrompt]:
        """Returns the prompts; [] if the server has none. Raises `ToolError`."""
        listed = await self._request(lambda one: one.list_items("prompts/list"))
        return [found for one in listed if (found := _read_prompt(one)) is not None]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Message]:
        """Returns the messages of a prompt, for `agent.run`. Raises `ToolError`."""
        answer = await self._request(lambda one: one.get_prompt(name, arguments or {}))
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
        answer = await self._request(lambda one: one.complete(prompt, argument, value, known or {}))
        completion = answer.get("completion")
        values = completion.get("values") if isinstance(completion, Mapping) else None
        found = (one_line(one, LONGEST_LABEL) for one in values[:MOST_SUGGESTED]) if isinstance(values, list) else ()
        return [one for one in found if one]


def _read_resources(listed: list[dict[str, Any]], key: str) -> list[ServerResource]:
    found = []
    for one in listed:
        uri = one.get(key)
        if isinstance(uri, str) and uri and len(uri) <= LONGEST_URI and uri.isprintable():
            words = [one_line(one.get(field), LONGEST_LABEL) for field in ("title", "name", "description", "mimeType")]
            found.append(ServerResource(uri, words[0] or words[1], words[2], words[3]))
    return found


def _read_prompt(listed: Mapping[str, Any]) -> ServerPrompt | None:
    name = listed.get("name")
    if not isinstance(name, str) or not name or len(name) > LONGEST_LABEL or not name.isprintable():
        return None
    said = listed.get("arguments")
    arguments = tuple(
        PromptArgument(one["name"], one_line(one.get("description"), LONGEST_LABEL), one.get("required") is True)
        for one in (said if isinstance(said, list) else [])[:MOST_SUGGESTED]
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and one["name"].isprintable()
    )
    return ServerPrompt(name, one_line(listed.get("description") or listed.get("title"), LONGEST_LABEL), arguments)


def _read_message(listed: Any) -> Message:
    """Reads one message of a prompt. A server may speak as the person or as the model, never as the system."""
    said = listed if isinstance(listed, Mapping) else {}
    content = said.get("content")
    result = result_of({"content": content if isinstance(content, list) else [content]}, "a prompt")
    is_model = said.get("role") == "assistant"
    return Message("assistant" if is_model else "user", result.for_llm, attachments=result.attachments)


# --- Converts a server's answer to a result: text for the model, attachments, structured content for programs.


MOST_PARTS = 1_000  # content parts of one result
LONGEST_ERROR = 4_000  # characters of a server's error message
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][\w!#$&^.+-]{0,60}/[a-zA-Z0-9][\w!#$&^.+-]{0,60}")
_UNKNOWN = "application/octet-stream"


def result_of(answer: Mapping[str, Any], during: str) -> ToolResult:
    """Returns the result of a call. `during` describes the call in an error."""
    content = answer.get("content")
    parts = _ResultParts()
    for part in (content if isinstance(content, list) else [])[:MOST_PARTS]:
        parts.add_part(part if isinstance(part, Mapping) else {})
    if isinstance(content, list) and len(content) > MOST_PARTS:
        parts.add_line(f"[{len(content) - MOST_PARTS:,} more parts of the content were left out]")
    data: dict[str, Any] = {}
    structured = answer.get("structuredContent")
    if structured is not None:
        data["structured"] = plain(structured)
        if not parts.has_text:
            parts.add_line(json.dumps(data["structured"], ensure_ascii=False))
    text = sendable("\n".join(parts.lines))
    attachments = tuple(parts.attachments)
    if answer.get("isError") is True:
        return _make_failure(text, during, data, attachments)
    return ToolResult(for_llm=text or "Done, without a result.", data=data, attachments=attachments)


def _make_failure(text: str, during: str, data: Mapping[str, Any], attachments: tuple[Attachment, ...]) -> ToolResult:
    message = clean(text, LONGEST_ERROR) or "the server reported a failure without a message"
    failed = ToolResult.failed(ToolError(message, ErrorKind.USER), during=during)
    return ToolResult(for_llm=failed.for_llm, failure=failed.failure, data=data, attachments=attachments)


class _ResultParts:
    """Collects the parts of a result in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.attachments: list[Attachment] = []
        self.has_text = False

    def add_line(self, line: str) -> None:
        self.lines.append(line)

    def add_part(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text":
            self._add_text(part.get("text"))
        elif kind in ("image", "audio"):
            self._attach(part.get("data"), part.get("mimeType"), "", str(kind))
        elif kind == "resource_link":
            self.add_line(_format_link(part))
        elif kind == "resource" and isinstance(resource := part.get("resource"), Mapping):
            self._add_resource(resource)
        else:
            self.add_line(f"[content of the unknown type {one_line(kind, 40) or 'none'} was left out]")

    def _add_text(self, text: Any) -> None:
        if isinstance(text, str):
            self.has_text = True
            self.add_line(text)

    def _add_resource(self, resource: Mapping[str, Any]) -> None:
        uri = one_line(resource.get("uri"), LONGEST_URI)
        if isinstance(resource.get("text"), str):
            self.add_line(f"[resource {uri}]")
            self._add_text(resource["text"])
            return
        self._attach(resource.get("blob"), resource.get("mimeType"), uri, "resource")

    def _attach(self, encoded: Any, media_type: Any, uri: str, kind: str) -> None:
        known = isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type)
        shown = str(media_type) if known else _UNKNOWN
        try:
            data = b64decode(encoded, validate=True) if isinstance(encoded, str) else None
        except (binascii.Error, ValueError):
            data = None
        if data is None:
            self.add_line(f"[{shown} with unreadable data]")
            return
        name = _file_name(uri) or f"{kind}-{len(self.attachments) + 1}{mimetypes.guess_extension(shown) or ''}"
        self.attachments.append(Attachment(shown, data, name))
        source = f" from {uri}" if uri else ""
        self.add_line(f"[{shown}, {len(data):,} bytes{source}, attached as {name}]")


def _format_link(part: Mapping[str, Any]) -> str:
    """Formats a link; it is not fetched."""
    said = [one_line(part.get(key), 200) for key in ("name", "title", "mimeType", "description")]
    about = ", ".join(dict.fromkeys(filter(None, said)))
    return f"[link to {one_line(part.get('uri'), LONGEST_URI) or 'nowhere'}{f': {about}' if about else ''}]"


def _file_name(uri: str) -> str:
    last = re.split(r"[?#]", uri, maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+ -]", "_", last).strip(". ")[:100]
