"""Judges a command line: refuses destructive lines, and finds lines that may run because they only read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.spec import Permission
from forge.permissions.call_gate import CallGate, gate_of
from forge.permissions.policy import Decision
from forge.permissions.shell import LONGEST
from forge.permissions.shell.destructive import explain_destruction
from forge.permissions.shell.read_only import is_plain, only_reads
from forge.permissions.shell.read_only.git_history import may_show_withheld
from forge.process.running.run import find_tier
from forge.tools.bash.withheld_paths import ReadOnlyRun, find_hidden_paths, withholds

_RUNS_ITS_INPUT = re.compile(r"\b(?:ba|da|z|k)?sh\b")


def refuse_destructive(arguments: Mapping[str, Any], scope: Scope) -> None:
    """Refuses a line that would destroy the system, whatever the permissions."""
    line, stdin = arguments["command"], arguments["stdin"]
    if len(line) > LONGEST:
        raise ToolError(
            f"the command has {len(line):,} characters; the limit is {LONGEST:,}",
            ErrorKind.VALIDATION,
            "Put long text into a file, or pass it as stdin.",
        )
    for text in (line, stdin) if stdin and _RUNS_ITS_INPUT.search(line) else (line,):
        if reason := explain_destruction(text, scope, arguments["working_dir"]):
            raise ToolError(f"refused: {reason}", ErrorKind.SECURITY, "Do it in a safer way.")


def find_read_paths(arguments: Mapping[str, Any], scope: Scope) -> list[str] | None:
    """Returns the paths that the line reads, or None unless it provably only reads."""
    if arguments["stdin"] or arguments["background"]:
        return None
    return only_reads(arguments["command"], scope, arguments["working_dir"])


def is_enforced(line: str, tier: str) -> bool:
    """Returns True if a line that only reads may run without asking: in a sandbox, or because it is simple enough."""
    return tier != "none" or is_plain(line)


async def recheck_permission(ctx: ToolContext, sandbox: str | bool) -> ReadOnlyRun | None:
    """Judges the line again at the moment of use, since links may have changed.

    None: the line may be executed. `Reading`: it may only read, and must run so. A line that only reads asked for that
    alone. Rules about executing it count all the same, and what the policy withholds must be hidden from it.
    """
    refuse_destructive(ctx.arguments, ctx.scope)
    gate, line = gate_of(ctx), ctx.arguments["command"]
    if ctx.spec.permissions != {Permission.EXECUTE}:
        return None
    if not gate.judges:  # what a gate of another kind allowed may have been no more than to read
        return None if find_read_paths(ctx.arguments, ctx.scope) is None else ReadOnlyRun()
    ruling = gate.judge(ctx, Permission.EXECUTE, line)
    if ruling.decision is Decision.ALLOW:
        return None
    found = find_read_paths(ctx.arguments, ctx.scope)
    if found is not None and ruling.decision is Decision.ASK and not ruling.rule:
        reading = await _plan_read_only(ctx, gate, found, str(await in_thread(lambda: find_tier(sandbox))))
        if reading is not None:
            return reading
    await ctx.require(Permission.EXECUTE, line)
    return None


async def _plan_read_only(ctx: ToolContext, gate: CallGate, found: list[str], tier: str) -> ReadOnlyRun | None:
    """Plans a read-only run in a tier; returns None if it cannot be enforced and a person must be asked."""
    if not is_enforced(ctx.arguments["command"], tier):
        return None
    if not withholds(ctx, gate):
        return ReadOnlyRun()
    if may_show_withheld(ctx.arguments["command"], str(ctx.scope.workspace), ctx.arguments["working_dir"]):
        return None
    hidden = await find_hidden_paths(ctx, gate) if tier == "bubblewrap" else None  # nothing else can hide a path
    if hidden is None and _reads_named_files(ctx, found):
        hidden = ()  # each was judged by itself
    return None if hidden is None else ReadOnlyRun(hidden)


def _reads_named_files(ctx: ToolContext, found: list[str]) -> bool:
    """Returns True if a plain line reads only the files that it names."""
    if not is_enforced(ctx.arguments["command"], "none"):
        return False
    return not any(os.path.isdir(os.path.join(ctx.scope.workspace, path)) for path in found)
