"""Mounts tools of other frameworks: the code that their sources share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.arguments.schema import take_schema
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, ToolSpec, ToolTraits
from forge.core.tool import SchemaTool
from forge.sources.untrusted import clean, clean_schema

if TYPE_CHECKING:
    from pydantic import ValidationError

Run = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]

MOST_PROBLEMS = 10

_STRANGE = re.compile(r"[^a-zA-Z0-9_-]+")


class BorrowedTool(SchemaTool):
    """A tool with another framework's code behind our schema; the code receives the context of the call."""

    def __init__(self, spec: ToolSpec, run: Run) -> None:
        super().__init__(spec, run)
        if spec.isolate:
            raise DefinitionError(
                f"tool {spec.name!r}: isolate=True needs a function that another process can import; write a function"
                " at module level that calls the tool, and decorate that function"
            )

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        result: ToolResult = await self.run(dict(arguments), ctx)
        return result


def make_borrowed_tool(
    framework: str, name: str, description: str, parameters: Mapping[str, Any], run: Run, traits: ToolTraits
) -> BorrowedTool:
    """Makes a tool of unknown code: it may run programs and use the network unless `traits` declare less."""
    called = safe_name(name)
    schema = take_schema(called, parameters)
    try:
        schema = clean_schema(schema)
    except ValueError as error:
        raise DefinitionError(f"tool {called!r}: {error}") from None
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}  # the spec has them
    all_traits: Any = {
        "category": Category.ADAPTER,
        "permissions": {"execute", "network"},
        "origin": f"{framework}:{name}",
        **traits,
    }
    return BorrowedTool(ToolSpec(name=called, description=clean(description), parameters=schema, **all_traits), run)


def validation_error(error: ValidationError) -> ToolError:
    """Explains a value that fits the schema but not the other framework's own types."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_PROBLEMS]
    lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
    return ToolError(clean("; ".join(lines)), ErrorKind.VALIDATION, "Send arguments that match the schema.")


def framework_error(words: str) -> ToolError:
    """Returns an error with the other framework's message."""
    return ToolError(clean(words) or "it failed without a message")


def safe_name(name: str) -> str:
    """Returns a name that every provider accepts."""
    safe = _STRANGE.sub("_", name).strip("_") or "tool"
    return (safe if safe[0].isalpha() else f"tool_{safe}")[:64]
