"""Runs a line for `bash`: prepares its directory, environment and confinement, and describes its end."""

from __future__ import annotations

import re
from asyncio import CancelledError
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError, add_until_then, find_until_then
from forge.core.messages import render_call
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.permissions.gate import confine_as_trial
from forge.permissions.shell.parse import read
from forge.permissions.shell.read_only.in_sandbox import shows_little
from forge.process.environment import find_trusted_program, reading_environment, shell_environment
from forge.process.running.jobs import start_job
from forge.process.running.limits import Resources
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, confine, run
from forge.process.sandbox.layout import Confinement, confinement_of
from forge.tools.bash.guard import ReadOnlyRun
from forge.tools.shared.approved_paths import resolve_approved
from forge.tools.shared.confinement import confinement, explain_hidden, find_hints, find_settings, spell_settings
from forge.workspace.paths import PathValidator

MOST_NAMED = 5  # processes left running that the model is told of
MOST_OF_CANCELLED = 10_000  # characters, the last ones

_JOINED = re.compile(r"[|;&\n]")
_REFUSED = re.compile(r"Read-only file system|Permission denied|Operation not permitted")
_ONLY_READING = (
    "the command was allowed only to read, so it ran in a read-only sandbox; it may need permission to execute"
)
_SHOWS_LITTLE = (
    "this ran in a read-only sandbox, which shows its own processes, environment and mounts, not those outside"
)
_LATE = "Give it more time, do less at once, or start it with background=true."
_LATE_IN_FRONT = "Give it more time, or do less at once."  # of a tool that has no background


class BashSettings(Protocol):
    """The tool's settings that a run needs."""

    shell: str
    sandbox: str | bool | None
    network: bool
    env_passthrough: tuple[str, ...]
    max_output_bytes: int
    max_jobs: int
    max_log_bytes: int
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """A line that is ready to run."""

    line: str
    argv: list[str]
    cwd: Path
    env: dict[str, str]
    stdin: bytes
    limits: Resources | None
    confinement: Confinement


async def prepare_line(
    settings: BashSettings, ctx: ToolContext, line: str, working_dir: str, stdin: str, reading: ReadOnlyRun | None
) -> PreparedLine:
    """Prepares a line. `reading`: the line may only read, so it runs where nothing can be changed."""
    if not line.strip():
        raise ToolError("the command is blank", ErrorKind.VALIDATION, "Give a command line.")
    paths = PathValidator.of(ctx.scope)
    location = (
        (await resolve_approved(ctx, Permission.READ, working_dir))[0] if working_dir.strip() else paths.resolve(".")
    )
    env = shell_environment(settings.env_passthrough)
    named = find_settings(env, settings.env_passthrough, paths)
    env |= spell_settings(env, named)
    readable = [path for each in named.values() for path in each]
    sandbox = "auto" if settings.sandbox is None else settings.sandbox
    if reading is not None:
        env = reading_environment([root.path for root in paths.roots])
        only_reads = confinement_of(ctx.scope, paths, also=readable)
        confined = replace(only_reads, sandbox=sandbox, read_only=True, hidden=reading.hidden)
    else:
        confined = await confinement(ctx, paths, network=settings.network, sandbox=sandbox, readable=readable)
        confined = await confine_as_trial(ctx, confined)
        if confined.layers:
            env.setdefault("PYTHONDONTWRITEBYTECODE", "1")  # else every Python run has effects that no one can read
    writable = (ctx.scope.workspace, *(root.path for root in ctx.scope.roots))
    shell = settings.shell if "/" in settings.shell else _find_shell(settings.shell, writable, env["PATH"])
    return PreparedLine(
        line,
        [shell, "-c", line],
        location.path,
        env,
        _encode_input(stdin),
        _limits(settings),
        confined,
    )


async def run_to_end(settings: BashSettings, ctx: ToolContext, work: PreparedLine, timeout: float) -> ToolResult:
    head = settings.max_output_bytes // 5
    try:
        finished = await run(
            work.argv,
            cwd=work.cwd,
            env=work.env,
            stdin=work.stdin,
            timeout=timeout,
            output=OutputPlan(
                Capture(head, settings.max_output_bytes - head),
                merge=True,
                whole=True,
                on_output=ctx.output if ctx.activity.listening else None,
            ),
            limits=work.limits,
            leave=ctx.scope.session_id,
            confinement=work.confinement,
        )
    except CancelledError as error:
        if (stopped := find_until_then(error, FinishedProgram)) is not None:
            raise add_until_then(error, _result_of_cancelled(stopped)) from None
        raise
    return _build_result(ctx, work, finished, timeout)


def _result_of_cancelled(finished: FinishedProgram) -> ToolResult:
    """Returns a short result for a cancelled run, since no step shortens it any more."""
    shown = finished.output[-MOST_OF_CANCELLED:]
    data = {**_data(finished), "output": shown, **({"truncated": True} if shown != finished.output else {})}
    text = shown.replace("\0", "␀").rstrip("\n") or "(no output)"
    return ToolResult(
        for_llm=f"{'The end of its' if shown != finished.output else 'Its'} output until then:\n{text}", data=data
    )


async def start_in_background(settings: BashSettings, ctx: ToolContext, work: PreparedLine) -> ToolResult:
    confined = await confine(work.argv, work.confinement, work.env, work.limits)
    tier = confined.tier
    try:
        job = start_job(
            confined.command,
            cwd=work.cwd,
            env=work.env,
            owner=ctx.scope.session_id,
            command=work.line,
            stdin=work.stdin,
            limits=work.limits,
            most_jobs=settings.max_jobs,
            most_logged=settings.max_log_bytes,
            confined=confined,
        )
    except BaseException:
        confined.close()
        raise
    job.sandbox = tier
    text = f'Started as {job.id}. Read its output with bash_output(id="{job.id}"), end it with bash_kill.'
    if tier != "none" and not work.confinement.network:
        text += " Other commands cannot connect to it: in the sandbox, each command has its own network."
    data = {"job_id": job.id, "status": job.status, "sandbox": tier}
    return ToolResult(for_llm=text, title=f"{job.id}: {_first_line(work.line)}", data=data)


def _build_result(ctx: ToolContext, work: PreparedLine, finished: FinishedProgram, timeout: float) -> ToolResult:
    text = finished.output.replace("\0", "␀").rstrip("\n") or "(no output)"
    notes = [*_remarks(finished), *(f"[{hint}]" for hint in _sandbox_hints(work, finished))]
    data = _data(finished)
    if work.confinement.read_only and finished.sandbox != "none":
        data["read_only"] = True  # the sandbox let it change no file
    if finished.cut:
        data |= {"truncated": True, "cut_bytes": finished.cut}
    title = _first_line(work.line)
    if not finished.timed_out:
        said = "\n".join([text, *_describe_ending(finished), *notes])
        return ToolResult(for_llm=said, title=title, data=data, whole=finished.whole)
    late = ToolError(
        f"timed out after {timeout:g} s and was killed, with all its child processes",
        ErrorKind.TIMEOUT,
        _LATE if "background" in ctx.spec.parameters.get("properties", {}) else _LATE_IN_FRONT,
    )
    failed = ToolResult.failed(late, during=render_call(ctx.call))
    said = "\n".join([failed.for_llm, "Its output until then:", text, *notes])
    return ToolResult(for_llm=said, title=title, data=data, failure=failed.failure, whole=finished.whole)


def _data(finished: FinishedProgram) -> dict[str, Any]:
    return {
        "output": finished.output,
        "exit_code": finished.exit_code,
        "return_code": finished.exit_code,
        "signal": finished.signal,
        "duration": round(finished.duration, 3),
        "timed_out": finished.timed_out,
        **finished.sandbox_facts,
        "still_running": list(finished.left),
    }


def _describe_ending(finished: FinishedProgram) -> list[str]:
    """Describes a bad end, and the processes left running."""
    notes = []
    if finished.exit_code:
        notes.append(f"[exit code {finished.exit_code}{f', {finished.signal}' if finished.signal else ''}]")
    elif finished.signal:
        notes.append(f"[ended by {finished.signal}]")
    if finished.left:
        named = ", ".join(finished.left[:MOST_NAMED])
        more = f" and {len(finished.left) - MOST_NAMED} more" if len(finished.left) > MOST_NAMED else ""
        notes.append(f"[still running, until the session ends: {named}{more}]")
    return notes


def _remarks(finished: FinishedProgram) -> list[str]:
    """Describes restored files and missing output."""
    notes = [f"[{said}]" for said in (*finished.put_back, *finished.reached, *finished.refused_hosts)]
    if finished.cut and finished.whole is None:
        notes.append(f"[{finished.cut} bytes were left out; write the output to a file, or filter it, to see them]")
    return notes


def _sandbox_hints(work: PreparedLine, finished: FinishedProgram) -> list[str]:
    """Returns hints if the sandbox may have caused the failure."""
    found = []
    if finished.exit_code != 0 or _JOINED.search(work.line):  # of several commands only the last one tells
        network = work.confinement.network or work.confinement.proxy
        found += find_hints(
            finished.output, finished.sandbox, network=network, line=work.line, exit_code=finished.exit_code
        )
        found += explain_hidden(finished.output, finished.sandbox, work.confinement, work.env, work.cwd)
    if work.confinement.read_only and finished.exit_code != 0 and _REFUSED.search(finished.output):
        found.append(_ONLY_READING)
    if work.confinement.read_only and finished.sandbox != "none" and shows_little(work.line):
        found.append(_SHOWS_LITTLE)
    if finished.sandbox == "bubblewrap" and not finished.timed_out and _leaves_processes(work.line):
        found.append(
            "in this sandbox, processes end with the command that started them; to keep one, use background=true"
        )
    return found


def _leaves_processes(line: str) -> bool:
    """Returns whether the line starts processes and neither waits for them nor ends them."""
    if "&" not in line:
        return False
    found = read(line)
    return bool(found.background) and not any(command.words[:1] in (("wait",), ("kill",)) for command in found.commands)


@lru_cache(maxsize=32)
def _find_shell(shell: str, writable: tuple[Path, ...], path: str) -> str:
    """Returns the configured shell, else bash, else sh, outside writable folders. `path`: it may have changed."""
    wanted = [shell] if shell else ["bash", "sh"]
    for name in wanted:
        if found := find_trusted_program(name, writable):
            return found
    raise ToolError(f"there is no {' or '.join(wanted)} on this system", ErrorKind.CONFIG, "Configure another shell.")


def _limits(settings: BashSettings) -> Resources | None:
    if not settings.limits:
        return None
    try:
        return Resources(**settings.limits)
    except TypeError as error:
        raise ToolError(f"limits: {error}", ErrorKind.CONFIG, "Fix the tool's configuration.") from None


def _encode_input(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("stdin is not valid Unicode", ErrorKind.VALIDATION, "Send valid Unicode.") from None


def _first_line(line: str) -> str:
    first = line.strip().partition("\n")[0]
    return f"$ {first[:120]}" + ("…" if len(first) > 120 or "\n" in line.strip() else "")
