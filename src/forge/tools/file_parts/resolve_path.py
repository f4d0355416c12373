"""Where a path leads at the moment of use, judged again where a link may lead elsewhere than when it was approved."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission
from forge.permissions.call_gate import gate_of
from forge.permissions.policy import Decision
from forge.permissions.targets import identity
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.open import is_link


async def approved(ctx: ToolContext, permission: Permission, path: str, *, blank: bool = False) -> list[Location]:
    """The places a path means: where it leads, and if it is a link, the link itself.

    Of a link that leads outside only the link itself can be written, that is deleted.
    """
    paths = PathValidator.of(ctx.scope)
    itself = paths.resolve(path, blank=blank, follow=False)
    try:
        places = [paths.resolve(path, blank=blank, follow=True)]
    except ToolError:
        if permission is not Permission.WRITE or not is_link(itself):
            raise
        places = []
    if itself not in places:
        places.append(itself)
    spelled = paths.normalize(path)
    if gate_of(ctx).judges and any(str(place.path) != spelled for place in places):
        await _judged_again(ctx, permission, path, places)
    return places


async def _judged_again(ctx: ToolContext, permission: Permission, path: str, places: list[Location]) -> None:
    """What the gate approved was what the path led to then. It asks again if that changed."""
    await ctx.require(permission, path)
    meant = identity(permission, path, ctx.scope)
    for place in places:
        ruling = gate_of(ctx).judge(ctx, permission, str(place.path))
        if ruling.decision is Decision.DENY:
            raise ToolError(
                f"{quote_path(path)} leads to {quote_path(place.shown)}, which is denied by {ruling.reason}",
                ErrorKind.PERMISSION,
                "Do something else, or ask the person to change the policy.",
            )
        if ruling.decision is Decision.ASK and not (isinstance(meant, frozenset) and str(place.path) in meant):
            raise ToolError(f"{quote_path(path)} was replaced while it was checked", ErrorKind.SECURITY, "Try again.")
