"""Judges a command line: refuses destructive lines, and finds lines that may run because they only read.

It also finds the paths that the policy withholds, which are hidden from such a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.spec import Permission, ToolSpec
from forge.permissions.gate import gate_of
from forge.permissions.questions import Decision, Ruling
from forge.permissions.shell.destructive import explain_destruction
from forge.permissions.shell.parse import LONGEST_LINE
from forge.permissions.shell.read_only import is_plain, only_reads
from forge.permissions.shell.read_only.git import may_show_withheld
from forge.permissions.shell.read_only.in_sandbox import find_read_in_sandbox
from forge.permissions.targets import CallJudge
from forge.permissions.withheld import MOST_HIDDEN, find_hidden_paths, withholds
from forge.process.running.run import find_tier

_RUNS_ITS_INPUT = re.compile(r"\b(?:ba|da|z|k)?sh\b")


def refuse_destructive(arguments: Mapping[str, Any], scope: Scope) -> None:
    """Refuses a line that would destroy the system, whatever the permissions."""
    line, stdin = arguments["command"], arguments["stdin"]
    if len(line) > LONGEST_LINE:
        raise ToolError(
            f"the command has {len(line):,} characters; the limit is {LONGEST_LINE:,}",
            ErrorKind.VALIDATION,
            "Put long text into a file, or pass it as stdin.",
        )
    for text in (line, stdin) if stdin and _RUNS_ITS_INPUT.search(line) else (line,):
        if reason := explain_destruction(text, scope, arguments["working_dir"]):
            raise ToolError(f"refused: {reason}", ErrorKind.SECURITY, "Do it in a safer way.")


def find_read_paths(arguments: Mapping[str, Any], scope: Scope, sandbox: str | bool) -> list[str] | None:
    """Returns the paths that a line reads, or None unless it may run as one that only reads.

    Without a sandbox the line must be plain, and provably only read. In one, a line that means to read is enough.
    """
    line, directory = arguments["command"], arguments["working_dir"]
    if arguments["stdin"] or arguments["background"]:
        return None
    found = only_reads(line, scope, directory)
    if found is not None and is_plain(line):
        return found
    loose = find_read_in_sandbox(line, scope, directory) if found is None else found
    return None if loose is None or find_tier(sandbox) == "none" else loose


def may_only_read(
    spec: ToolSpec, arguments: Mapping[str, Any], scope: Scope, judge: CallJudge, found: list[str], tier: str
) -> bool:
    """Returns False if a line that reads the paths `found` must be asked for as one that is executed."""
    ruling = judge.judge(Permission.EXECUTE, arguments["command"])
    if ruling.decision is Decision.ALLOW:
        return True
    return _needs_no_rule(ruling) and _hide_withheld(spec, arguments, scope, judge, found, tier) is not None


async def recheck_permission(ctx: ToolContext, sandbox: str | bool) -> ReadOnlyRun | None:
    """Judges the line again at the moment of use, since links may have changed.

    None: the line may be executed. `Reading`: it may only read, and must run so. A line that only reads asked for that
    alone. Rules about executing it count all the same, and what the policy withholds must be hidden from it.
    """
    refuse_destructive(ctx.arguments, ctx.scope)
    gate, line = gate_of(ctx), ctx.arguments["command"]
    if ctx.spec.permissions != {Permission.EXECUTE}:
        return None
    find_paths = partial(find_read_paths, ctx.arguments, ctx.scope, sandbox)
    if not gate.judges:  # what a gate of another kind allowed may have been no more than to read
        return None if await in_thread(find_paths) is None else ReadOnlyRun()
    ruling = gate.judge(ctx, Permission.EXECUTE, line)
    if ruling.decision is Decision.ALLOW:
        return None
    if _needs_no_rule(ruling):
        judge = CallJudge(gate.policy, lambda permission, target: gate.judge(ctx, permission, target))
        reading: ReadOnlyRun | None = await in_thread(lambda: _plan_read_only(ctx, judge, find_paths(), sandbox))
        if reading is not None:
            return reading
    await ctx.require(Permission.EXECUTE, line)
    return None


def _needs_no_rule(ruling: Ruling) -> bool:
    """Returns whether only the default asks: a written rule about executing also covers lines that only read."""
    return ruling.decision is Decision.ASK and not ruling.rule


def _plan_read_only(
    ctx: ToolContext, judge: CallJudge, found: list[str] | None, sandbox: str | bool
) -> ReadOnlyRun | None:
    """Plans a read-only run in a tier; returns None if it cannot be enforced and a person must be asked."""
    if found is None:
        return None
    tier = str(find_tier(sandbox))
    hidden = _hide_withheld(ctx.spec, ctx.arguments, ctx.scope, judge, found, tier)
    if hidden is None:
        return None
    folders = [ctx.scope.workspace, *(root.path for root in ctx.scope.roots)]
    return ReadOnlyRun((*hidden, *find_special_files(folders)) if tier == "bubblewrap" else hidden)


def _hide_withheld(
    spec: ToolSpec, arguments: Mapping[str, Any], scope: Scope, judge: CallJudge, found: list[str], tier: str
) -> tuple[Path, ...] | None:
    """Returns the paths to hide from a line, since the policy withholds them; None if they cannot be hidden."""
    line = arguments["command"]
    if not withholds(spec, scope, judge):
        return ()
    if may_show_withheld(line, str(scope.workspace), arguments["working_dir"]):
        return None
    if "git" in line and only_reads(line, scope, arguments["working_dir"]) is None:
        return None  # it could unpack the repository's objects
    hidden = find_hidden_paths(spec, scope, judge) if tier == "bubblewrap" else None  # nothing else can hide a path
    if hidden and "git" not in line:
        folders = [scope.workspace, *(root.path for root in scope.roots)]
        return (*hidden, *(folder / ".git/objects" for folder in folders))
    if hidden is None and _reads_named_files(line, scope, found):
        hidden = ()  # each was judged by itself
    return hidden


def _reads_named_files(line: str, scope: Scope, found: list[str]) -> bool:
    """Returns whether a plain line reads only the files that it names."""
    return is_plain(line) and not any(os.path.isdir(os.path.join(scope.workspace, path)) for path in found)


MOST_ENTRIES_IN_SEARCH = 50_000  # entries, in search of FIFOs: about 50 ms


@dataclass(frozen=True, slots=True)
class ReadOnlyRun:
    """A line may run because it only reads, so it runs where it can do nothing else."""

    hidden: tuple[Path, ...] = ()


def find_special_files(folders: Sequence[Path]) -> tuple[Path, ...]:
    """Returns the FIFOs, sockets and devices in folders: a read-only mount does not stop writing to them."""
    found: list[Path] = []
    looked_at = 0
    waiting = [str(folder) for folder in folders]
    while waiting and looked_at < MOST_ENTRIES_IN_SEARCH and len(found) < MOST_HIDDEN:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:  # no directory, or one that the program cannot read either
            continue
        looked_at += len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                found.append(Path(entry.path))
    return tuple(found)
