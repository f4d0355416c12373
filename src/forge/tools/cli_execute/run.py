"""Runs a command for `cli_execute`: bounded in time and output, without a shell, in a small environment."""

from __future__ import annotations

import json
import os
import shlex
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError, add_until_then, find_until_then
from forge.core.messages import render_call
from forge.core.result import ToolResult
from forge.permissions.gate import confine_as_trial
from forge.process.environment import command_environment
from forge.process.running.limits import Resources
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.sandbox.layout import SYSTEM, NetworkProxy
from forge.tools.cli_execute.layers import CheckedCommand
from forge.tools.shared.confinement import confinement, explain_hidden, find_hints, find_settings, spell_settings
from forge.workspace.paths import PathValidator

MOST_OF_CANCELLED = 5_000  # characters of each stream


class CliSettings(Protocol):
    """The tool's settings that a run needs."""

    env_passthrough: tuple[str, ...]
    max_output_bytes: int
    network: bool
    sandbox: str | bool | None
    limits: dict[str, int]


async def execute(
    settings: CliSettings, ctx: ToolContext, judged: CheckedCommand, args: list[str], stdin: str, timeout: float | None
) -> ToolResult:
    paths = PathValidator.of(ctx.scope)
    env = environment(settings, paths)
    named = find_settings(env, settings.env_passthrough, paths)
    readable = [*_program_folders(judged), *(path for each in named.values() for path in each)]
    confined = await confinement(
        ctx,
        paths,
        network=settings.network,
        sandbox=_sandbox(settings, judged),
        readable=readable,
        home=working_directory(paths),
    )
    confined = await confine_as_trial(ctx, confined)
    try:
        finished = await run(
            command_line(judged, args),
            cwd=working_directory(paths),
            env=env | spell_settings(env, named),
            stdin=_encode_input(stdin),
            timeout=timeout,
            output=OutputPlan(output_limit(settings), on_output=ctx.output if ctx.activity.listening else None),
            limits=Resources(**settings.limits) if settings.limits else None,
            confinement=confined,
        )
    except CancelledError as error:
        if (stopped := find_until_then(error, FinishedProgram)) is not None:
            raise add_until_then(error, _result_of_cancelled(stopped)) from None
        raise
    line = shlex.join([os.path.basename(judged.binary.path), *args])
    hidden = explain_hidden(finished.errors, finished.sandbox, confined, env, paths.workspace)
    said = _text(finished, line, network=confined.network or confined.proxy, hidden=hidden)
    if finished.timed_out:
        return _timeout_result(ctx, finished, timeout, line, said)
    return ToolResult(for_llm=said, title=f"$ {line[:120]}", data=_data(finished))


def command_line(judged: CheckedCommand, args: list[str]) -> list[str]:
    """Layer 8: the program itself and its arguments as they are; no shell sees them."""
    return [judged.binary.path, *args]


def working_directory(paths: PathValidator) -> Path:
    """Layer 9: always the workspace, so that relative paths mean what they mean to every other tool."""
    return paths.workspace


def environment(settings: CliSettings, paths: PathValidator) -> dict[str, str]:
    """Layer 10: the variables that a command needs or the project passes on; PATH leaves out the workspace."""
    found = command_environment(paths.workspace, settings.env_passthrough)
    folders = [one for one in found["PATH"].split(os.pathsep) if os.path.isabs(one)]
    outside = [one for one in folders if not any(_writable_flags(one, paths))]
    return {**found, "PATH": os.pathsep.join(outside) or os.defpath}


def output_limit(settings: CliSettings) -> Capture:
    """Layer 11: the beginning of each stream."""
    return Capture(settings.max_output_bytes, 0)


def _writable_flags(folder: str, paths: PathValidator) -> list[bool]:
    spellings = (os.path.normpath(folder), os.path.realpath(folder))
    return [location.writable for one in spellings if (location := paths.location_of(one)) is not None]


def _result_of_cancelled(finished: FinishedProgram) -> ToolResult:
    """Returns a short result for a cancelled run, since no step shortens it any more."""
    short = replace(finished, output=finished.output[:MOST_OF_CANCELLED], errors=finished.errors[:MOST_OF_CANCELLED])
    return ToolResult(for_llm=f"Output until then: {_text(short, '', network=True)}", data=_data(short))


def _timeout_result(
    ctx: ToolContext, finished: FinishedProgram, timeout: float | None, line: str, until_then: str
) -> ToolResult:
    """Layer 7: the time is up, and none of its processes runs any more."""
    late = ToolError(
        f"timed out after {timeout:g} s", ErrorKind.TIMEOUT, "Do less at once; the person can give the tool more time."
    )
    failed = ToolResult.failed(late, during=render_call(ctx.call))
    said = f"{failed.for_llm}\nOutput until then: {until_then}"
    return ToolResult(for_llm=said, title=f"$ {line[:120]}", data=_data(finished), failure=failed.failure)


def _text(
    finished: FinishedProgram, line: str, *, network: bool | NetworkProxy | None, hidden: Sequence[str] = ()
) -> str:
    shown = _streams(finished)
    if finished.signal:
        shown["signal"] = finished.signal
    if finished.put_back:
        shown["put_back"] = "; ".join(finished.put_back)
    if finished.refused_hosts:
        shown["network"] = "; ".join(finished.refused_hosts)
    if finished.reached:
        shown["limit"] = "; ".join(finished.reached)
    if finished.cut or finished.errors_cut:
        shown["left_out"] = f"{finished.cut} bytes of stdout, {finished.errors_cut} bytes of stderr"
    if finished.exit_code != 0:
        found = find_hints(
            finished.errors,
            finished.sandbox,
            network=network,
            line=line,
            exit_code=finished.exit_code,
            in_shell=False,
        )
        shown |= {"note": "; ".join([*found, *hidden])} if found or hidden else {}
    return json.dumps(shown, ensure_ascii=False)


def _data(finished: FinishedProgram) -> dict[str, Any]:
    return {
        **_streams(finished),
        "signal": finished.signal,
        "duration": round(finished.duration, 3),
        "timed_out": finished.timed_out,
        **finished.sandbox_facts,
        **({"cut_bytes": finished.cut + finished.errors_cut} if finished.cut or finished.errors_cut else {}),
    }


def _streams(finished: FinishedProgram) -> dict[str, Any]:
    return {
        "stdout": finished.output,
        "stderr": finished.errors,
        "exit_code": finished.exit_code,
        "truncated": bool(finished.cut or finished.errors_cut),
    }


def _program_folders(judged: CheckedCommand) -> list[Path]:
    """Returns the folders of a program outside the system and PATH: the sandbox would hide them."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    shown = (*map(Path, SYSTEM), *map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))))
    folders = {Path(judged.binary.path).parent, Path(judged.binary.real).parent}
    return sorted(
        one
        for one in folders
        if not home.is_relative_to(one) and not any(one.is_relative_to(folder) for folder in shown)
    )


def _sandbox(settings: CliSettings, judged: CheckedCommand) -> str | bool:
    """Returns the configured sandbox; a command that may start other programs requires one."""
    setting = "auto" if settings.sandbox is None else settings.sandbox
    if not judged.exec_flag:
        return setting
    if setting in (False, "off"):
        raise ToolError(
            f"{judged.exec_flag[:200]} is allowed only in a sandbox, and the sandbox is switched off",
            ErrorKind.SECURITY,
            "Do it without this option.",
        )
    return "required" if setting in ("auto", True) else setting


def _encode_input(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("stdin is not valid Unicode", ErrorKind.VALIDATION, "Send valid Unicode.") from None
