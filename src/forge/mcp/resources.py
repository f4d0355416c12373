"""Resources: data that a program offers to MCP clients under a URI."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import plain
from forge.core.result import Attachment, ToolResult
from forge.core.spec import ToolOptions
from forge.core.tool import FunctionTool

LARGEST_RESOURCE = 8 * 1024 * 1024  # bytes of one resource

Completion = Callable[[str], Iterable[str]] | Collection[str]
"""The values of a parameter: a collection, or a function of the text so far."""


class Resource(FunctionTool[..., Any]):
    """A function that returns the content of a URI; `@resource(uri)` makes one.

    A read passes the same steps as a call of a tool. Call `changed()` when the content has changed: subscribed clients
    hear of it within a second.

    Args:
        function: returns the content.
        uri: the URI or the template.
        media_type: such as "text/plain".
        complete: the values of a template's parameters.
        options: fields of `ToolSpec`.

    Example:
        >>> @resource("notes://today")
        ... def today() -> str:
        ...     "The notes of today."
        ...     return "Nothing."
        >>> today.uri
        'notes://today'
    """

    def __init__(
        self,
        function: Callable[..., Any],
        uri: str,
        media_type: str = "",
        complete: Mapping[str, Completion] | None = None,
        options: ToolOptions | None = None,
    ) -> None:
        if not urlsplit(uri).scheme:
            raise DefinitionError(f"resource {uri!r}: a URI begins with a scheme, such as notes://today")
        self.uri = uri
        self.media_type = media_type
        self.complete = dict(complete or {})
        self.revision = 0
        super().__init__(_returning_attachments(function, media_type), options or {})
        self._function = function
        parameters = self.spec.parameters.get("properties", {})
        if unknown := sorted(parameters.keys() - _names_in(uri)):
            raise DefinitionError(f"resource {uri!r}: the URI has no {{{unknown[0]}}}, which is a parameter")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    @property
    def is_template(self) -> bool:
        return "{" in self.uri

    def changed(self) -> None:
        """Notifies the subscribed clients."""
        self.revision += 1


def resource(
    uri: str,
    *,
    media_type: str = "",
    complete: Mapping[str, Completion] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Resource]:
    """Offers a function's value to MCP clients under a URI: `@resource("notes://today")`.

    The function returns a text, bytes, an `Attachment`, a list of these, or data that is sent as JSON. A URI with
    parameters is a template: `@resource("notes://{day}")` for a function of `day`.

    Args:
        uri: the URI or the template (RFC 6570).
        media_type: by default text/plain, application/octet-stream or application/json.
        complete: the values of a template's parameters: a collection, or a function of the text so far.
        options: fields of `ToolSpec`, such as `permissions`, `target` and `timeout`.

    Example:
        >>> @resource("notes://{day}")
        ... def notes(day: str) -> str:
        ...     "The notes of a day."
        ...     return f"Nothing on {day}."
        >>> notes("Monday"), notes.is_template
        ('Nothing on Monday.', True)
    """
    return lambda function: Resource(function, uri, media_type, complete, ToolOptions(**options))  # type: ignore[typeddict-item]


def contents_of(value: Any, media_type: str = "") -> tuple[Attachment, ...]:
    """Returns a function's value as contents. Raises `ToolError` if it is too large."""
    parts = list(value) if isinstance(value, list | tuple) and _holds_contents(value) else [value]
    contents = tuple(_content_of(part, media_type) for part in parts)
    size = sum(len(one.data) for one in contents)
    if size > LARGEST_RESOURCE:
        raise ToolError(
            f"the resource has {size:,} bytes, the limit is {LARGEST_RESOURCE:,}",
            ErrorKind.USER,
            "Read a smaller part.",
        )
    return contents


def _holds_contents(values: Collection[Any]) -> bool:
    return bool(values) and all(isinstance(one, Attachment) for one in values)


def _content_of(value: Any, media_type: str) -> Attachment:
    if isinstance(value, Attachment):
        return value
    if isinstance(value, str):
        return Attachment(media_type or "text/plain", value.encode("utf-8", "replace"))
    if isinstance(value, bytes | bytearray | memoryview):
        return Attachment(media_type or "application/octet-stream", bytes(value))
    return Attachment(media_type or "application/json", json.dumps(plain(value), ensure_ascii=False).encode())


def _returning_attachments(function: Callable[..., Any], media_type: str) -> Callable[..., Any]:
    """Wraps a function: its value becomes attachments, which no limit for a model's text cuts."""

    def convert(value: Any) -> Any:
        if isinstance(value, ToolResult):
            return value
        return ToolResult(for_llm="", attachments=contents_of(value, media_type))

    return wrap_result(function, convert)


def wrap_result(function: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns the function with the same signature and converted values."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            return convert(await function(*args, **kwargs))

        return later

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        return convert(function(*args, **kwargs))

    return now


def _names_in(uri: str) -> set[str]:
    """Returns the names of a template's parameters."""
    names: set[str] = set()
    for part in uri.split("{")[1:]:
        names.update(name.strip("+#./;?&*") for name in part.partition("}")[0].split(","))
    return names
