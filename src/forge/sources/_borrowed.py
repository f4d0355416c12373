"""What tools of other frameworks have in common once they are mounted here."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.arguments.schema import check_schema
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
    """Somebody else's code behind our schema; it is told of the call it serves."""

    def __init__(self, spec: ToolSpec, run: Run) -> None:
        super().__init__(spec, run)
        if spec.isolate:
            raise DefinitionError(
                f"tool {spec.name!r}: isolate=True needs something that another process can import; write a function "
                "at module level that calls it, and decorate that"
            )

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        result: ToolResult = await self.run(dict(arguments), ctx)
        return result


def borrowed(
    framework: str, name: str, description: str, parameters: Mapping[str, Any], run: Run, traits: ToolTraits
) -> BorrowedTool:
    """A tool whose code is unknown: it may run programs and reach the network unless `traits` declare less."""
    called = safe_name(name)
    check_schema(called, parameters)
    try:
        schema = clean_schema(parameters)
    except ValueError as error:
        raise DefinitionError(f"tool {called!r}: {error}") from None
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}  # said already
    said: Any = {
        "category": Category.ADAPTER,
        "permissions": {"execute", "network"},
        "origin": f"{framework}:{name}",
        **traits,
    }
    return BorrowedTool(ToolSpec(name=called, description=clean(description), parameters=schema, **said), run)


def explained(error: ValidationError) -> ToolError:
    """What the other framework's own types refuse, though it fits the schema."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_PROBLEMS]
    lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
    return ToolError(clean("; ".join(lines)), ErrorKind.VALIDATION, "Send arguments that fit.")


def failed(words: str) -> ToolError:
    """A failure in the other framework's words."""
    return ToolError(clean(words) or "it failed and did not say why")


def safe_name(name: str) -> str:
    """The name within the rules of every provider."""
    safe = _STRANGE.sub("_", name).strip("_") or "tool"
    return (safe if safe[0].isalpha() else f"tool_{safe}")[:64]
