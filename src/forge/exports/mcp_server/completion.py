"""Completes the arguments of prompts and resource templates."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

from forge.core.execution.threads import in_thread
from forge.core.tool import Tool
from forge.exports.resources import Completion
from forge.sources.untrusted import one_line

MOST = 100  # values, as the protocol says
MOST_CONSIDERED = 10_000  # values of which the matching ones are chosen
PATIENCE = 10.0  # seconds
LONGEST = 1_000  # characters of a value


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
    return {"values": matching[:MOST], "total": len(matching), "hasMore": len(matching) > MOST}


def _choices(tool: Tool, name: str) -> Collection[str]:
    """Returns the values that a parameter's schema allows."""
    schema = tool.spec.parameters.get("properties", {}).get(name, {})
    if schema.get("type") == "boolean":
        return ("true", "false")
    return [str(one) for one in schema.get("enum", ())]


def _texts(values: Iterable[object]) -> list[str]:
    return [one_line(str(one), LONGEST) for one in islice(values, MOST_CONSIDERED)]
