"""Previews a call for the person who is asked: its changes, and the introduction of a new tool."""

from __future__ import annotations

import asyncio
import logging

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.permissions.failures import describe_failure

SECONDS = 30.0  # that a preview may take

log = logging.getLogger(__name__)


def introduce_tool(ctx: ToolContext) -> str:
    """Returns the introduction of a tool that no person has approved yet, secrets masked; empty for others."""
    introduce = getattr(type(ctx.tool), "introduce", None)
    return ctx.activity.secrets.mask(str(introduce(ctx.tool))) if introduce is not None else ""


async def preview_changes(ctx: ToolContext) -> str:
    """Returns the tool's own preview, registered secrets masked; empty for tools that have none.

    Raises `ToolError` where it fails: then the call is refused.
    """
    look = getattr(type(ctx.tool), "preview_call", None)
    if look is None:
        return ""
    try:
        change = str(await asyncio.wait_for(look(ctx.tool, ctx.arguments, ctx), SECONDS))
    except ToolError:
        raise
    except Exception as error:
        log.error("the preview of %s failed: %s", ctx.spec.name, ctx.activity.secrets.mask_all(describe_failure(error)))
        raise ToolError(
            f"the preview of its changes failed: {type(error).__name__}",
            ErrorKind.SYSTEM,
            "Change less at once, or try again.",
        ) from error
    return ctx.activity.secrets.mask(change)  # the person may read it through a channel
