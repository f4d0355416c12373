"""What a command line may do: nothing that destroys, and without asking no more than to read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission
from forge.permissions.destructive import destructive
from forge.permissions.gate import Grant
from forge.permissions.policy import Decision, Rules
from forge.permissions.read_only import only_reads
from forge.permissions.shell import LONGEST

_RUNS_ITS_INPUT = re.compile(r"\b(?:ba|da|z|k)?sh\b")


def check(arguments: Mapping[str, Any], scope: Scope) -> None:
    """Refuse what would destroy the system, whoever allowed it."""
    line, stdin = arguments["command"], arguments["stdin"]
    if len(line) > LONGEST:
        raise ToolError(
            f"the command has {len(line):,} characters, and {LONGEST:,} is the most",
            ErrorKind.VALIDATION,
            "Put what is long into a file, or give it as stdin.",
        )
    for text in (line, stdin) if stdin and _RUNS_ITS_INPUT.search(line) else (line,):
        if reason := destructive(text, scope, arguments["working_dir"]):
            raise ToolError(f"refused: {reason}", ErrorKind.SECURITY, "Do it in a way that cannot do such harm.")


def read_by(arguments: Mapping[str, Any], scope: Scope) -> list[str] | None:
    """The paths that the line reads, where it provably does nothing else."""
    if arguments["stdin"] or arguments["background"]:
        return None
    return only_reads(arguments["command"], scope, arguments["working_dir"])


async def still_allowed(ctx: ToolContext) -> None:
    """At the moment of use: links may lead elsewhere than when it was asked for.

    A line that only reads asked for that alone. Rules about executing it count all the same, and where some files may
    not be read, a directory is not read as a whole.
    """
    check(ctx.arguments, ctx.scope)
    gate, line = ctx.gate, ctx.arguments["command"]
    if not isinstance(gate, Grant) or ctx.spec.permissions != {Permission.EXECUTE}:
        return
    ruling = gate.judge(ctx, Permission.EXECUTE, line)
    if ruling.decision is Decision.ALLOW:
        return
    found = read_by(ctx.arguments, ctx.scope)
    if found is None or ruling.decision is Decision.DENY or ruling.rule or _may_see_too_much(ctx, gate, found):
        await ctx.require(Permission.EXECUTE, line)


def _may_see_too_much(ctx: ToolContext, gate: Grant, found: list[str]) -> bool:
    policy = gate.gate.policy
    if isinstance(policy, Rules) and not policy.may_deny(ctx.spec, Permission.READ):
        return False
    return any(os.path.isdir(os.path.join(ctx.scope.workspace, path)) for path in found)
