"""Runs a script of a project or a skill in a sandbox: JSON on its stdin, its stdout as the result.

Its stderr is shown meanwhile, and reported if the script fails.
"""

from __future__ import annotations

import copy
import json
import os
import shlex
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from forge.core.arguments.schema import compile_parser
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.errors import ErrorKind, ToolError, add_until_then, find_until_then
from forge.core.execution.threads import in_thread
from forge.core.messages import render_call
from forge.core.result import ToolResult, read_failure
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.process.environment import shell_environment
from forge.process.run_script.runtimes import RunnableScript, ScriptCommand, bundle_script, command_for
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.sandbox.layout import Confinement, NetworkProxy, PathRoots, confinement_of, find_hidden

MOST_OF_ERRORS = 2_000  # characters, the last ones
MOST_OF_CANCELLED = 10_000  # characters, the last ones
LONGEST_LINE = 2_000  # characters: JSON in longer lines is reformatted for the model


async def run_script(
    script: RunnableScript,
    settings: ScriptSettings,
    arguments: Mapping[str, Any],
    ctx: ToolContext,
    *,
    paths: PathRoots,
    folder: Path,
    network: bool | NetworkProxy,
    check: Callable[[], None],
    clean: Callable[[str], str],
    confine: Callable[[ToolContext, Confinement], Awaitable[Confinement]],
) -> ToolResult:
    """Runs a script to its end and returns its result.

    `check` raises `ToolError` if the file changed since it was read. The script may also read `folder`.
    `network`: True for all of it, or the proxy that judges hosts. `clean` prepares the script's stderr for a message.
    `confine` confines it further.
    """
    writable = [root.path for root in paths.roots if root.writable]

    def prepare() -> ScriptCommand:
        check()
        return command_for(script, settings.python, writable)

    command: ScriptCommand = await in_thread(prepare)
    confinement = confinement_of(
        ctx.scope,
        paths,
        also=[folder] if paths.location_of(str(folder)) is None else [],
        network=network,
    )
    confinement = replace(confinement, sandbox=settings.sandbox)
    return await _run(script, command, settings, arguments, ctx, confinement, clean, confine)


async def _run(
    script: RunnableScript,
    command: ScriptCommand,
    settings: ScriptSettings,
    arguments: Mapping[str, Any],
    ctx: ToolContext,
    confinement: Confinement,
    clean: Callable[[str], str],
    confine: Callable[[ToolContext, Confinement], Awaitable[Confinement]],
) -> ToolResult:
    env = _environment(settings, command)
    argv = [*command.argv]
    if command.bundler:
        file = await bundle_script(script, command.bundler, confinement=confinement, env=env)
        argv.append(str(file))
        confinement = replace(confinement, readable=(*confinement.readable, file.parent))
    timeout = ctx.spec.timeout
    confinement = await confine(ctx, confinement)
    try:
        finished = await run(
            argv,
            cwd=confinement.workspace,
            env=env,
            stdin=json.dumps(dict(arguments)).encode(),
            timeout=timeout,
            output=OutputPlan(
                Capture(settings.max_output_bytes * 4 // 5, settings.max_output_bytes // 5),
                whole=True,
                on_errors=ctx.output if ctx.activity.listening else None,
            ),
            confinement=confinement,
        )
    except CancelledError as error:
        if (stopped := find_until_then(error, FinishedProgram)) is not None:
            raise add_until_then(error, _cancelled_result(stopped)) from None
        raise
    problem = _problem(script, finished, timeout, clean, network=confinement.network or confinement.proxy is not None)
    hidden = find_hidden([finished.errors[-MOST_OF_ERRORS:]], confinement, env, confinement.workspace)
    if problem is not None and finished.sandbox != "none" and hidden:
        problem.suggestion += (
            f' The sandbox hides "{clean(hidden[0])}": the person can add its directory to workspace.roots.'
        )
    return _result_of(script, ctx, finished, problem, clean)


def _environment(settings: ScriptSettings, command: ScriptCommand) -> dict[str, str]:
    """Returns the environment of every program, with the interpreter's folder, so that the sandbox shows it."""
    env = {**shell_environment(settings.env_passthrough), **command.env}
    for program in filter(None, (command.argv[0], command.bundler)):
        for folder in (os.path.dirname(program), os.path.dirname(os.path.realpath(program))):
            if command.is_interpreted and folder not in env["PATH"].split(os.pathsep):
                env["PATH"] += os.pathsep + folder
    return env


def _result_of(
    script: RunnableScript,
    ctx: ToolContext,
    finished: FinishedProgram,
    problem: ToolError | None,
    clean: Callable[[str], str],
) -> ToolResult:
    text = finished.output.replace("\0", "␀").rstrip("\n")
    value = _parse_output(finished) if finished.exit_code == 0 else None
    data = {**({"result": value} if value is not None else {}), **_data(finished)}
    failure = read_failure(value)
    if failure is not None:
        problem = ToolError(clean(failure.message), failure.kind, clean(failure.suggestion))
    notes = [f"[{said}]" for said in (*finished.put_back, *finished.reached, *finished.refused_hosts)]
    if finished.cut and finished.whole is None:
        notes.append(f"[{finished.cut} bytes were left out: it wrote too much]")
    if problem is None:
        shown = _spread_json(text, value) or "(no output)"
        return ToolResult(for_llm="\n".join([shown, *notes]), title=script.path, data=data, whole=finished.whole)
    failed = ToolResult.failed(problem, during=render_call(ctx.call))
    until_then = [f"Its output{'' if failure is not None else ' until then'}:\n{text}"] if text else []
    said = "\n".join([failed.for_llm, *until_then, *notes])
    return ToolResult(for_llm=said, title=script.path, data=data, failure=failed.failure, whole=finished.whole)


def _problem(
    script: RunnableScript,
    finished: FinishedProgram,
    timeout: float | None,
    clean: Callable[[str], str],
    *,
    network: bool,
) -> ToolError | None:
    said = clean(finished.errors[-MOST_OF_ERRORS:])
    more = f": {said}" if said else ", and wrote nothing to stderr"
    if finished.timed_out:
        what = f"timed out after {timeout:g} s and was killed, with all its child processes"
        return ToolError(
            what + (more if said else ""), ErrorKind.TIMEOUT, "Ask for less; the person can give the tool more time."
        )
    if finished.exit_code == 0:
        return None
    how = f"was ended by {finished.signal}" if finished.signal else f"failed with exit code {finished.exit_code}"
    closed = finished.sandbox != "none" and not network
    hint = f" It ran in a sandbox ({finished.sandbox}) without network." if closed else ""
    hint += "".join(f" {said[0].upper()}{said[1:]}." for said in (*finished.reached, *finished.refused_hosts))
    return ToolError(f"{script.path} {how}{more}", ErrorKind.USER, f"Fix the arguments or the script.{hint}")


def _parse_output(finished: FinishedProgram) -> Any:
    """Parses the output if it is a JSON object or list; None for anything else."""
    if finished.cut or finished.output.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(finished.output)
    except (ValueError, RecursionError):
        return None


def _spread_json(text: str, value: Any) -> str:
    """Reformats JSON without line breaks: a line that long would be cut."""
    if value is None or len(text) <= LONGEST_LINE or max(map(len, text.split("\n"))) <= LONGEST_LINE:
        return text
    try:
        return json.dumps(value, ensure_ascii=False, indent=1)
    except RecursionError:
        return text


def _cancelled_result(finished: FinishedProgram) -> ToolResult:
    """Builds a short result of a cancelled script, since no later step shortens it."""
    text = finished.output[-MOST_OF_CANCELLED:].replace("\0", "␀").rstrip("\n") or "(no output)"
    return ToolResult(for_llm=f"Its output until then:\n{text}", data=_data(finished))


def _data(finished: FinishedProgram) -> dict[str, Any]:
    return {
        "stderr": finished.errors[-MOST_OF_CANCELLED:],
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "duration": round(finished.duration, 3),
        "timed_out": finished.timed_out,
        **finished.sandbox_facts,
        **({"truncated": True, "cut_bytes": finished.cut} if finished.cut else {}),
    }


# A file as a tool: the common part of project scripts and skill scripts.


class ScriptDescription(Protocol):
    """The description of a script: from its header, or from the text of its skill."""

    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def defaults(self) -> Mapping[str, Any]: ...


class FileTool(Tool):
    """Asks to execute its file. The subclass runs the file and handles a file that changed."""

    checked = True  # Forge built the schema itself
    keeps_deadline = True  # `run_script` ends the program when its time is up, and returns the output so far

    def __init__(
        self, name: str, path: str, described: ScriptDescription, settings: ScriptSettings, origin: str
    ) -> None:
        self.path = path
        self.described = described
        self.settings = settings
        self.spec = ToolSpec(
            name=name,
            description=described.description,
            parameters=described.parameters,
            category=Category.CUSTOM,
            permissions=frozenset({Permission.EXECUTE}),
            timeout=settings.timeout,
            origin=origin,
        )

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Parses arguments and fills in the defaults, so that a person who is asked sees all values."""
        properties, defaults = self.spec.parameters.get("properties", {}), self.described.defaults
        parser = compile_parser(self.spec, takes=properties)
        wholes = {name for name, one in properties.items() if _is_whole(one) or _is_whole(one.get("items"))}

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            parsed = parser(arguments)
            for name in wholes & parsed.keys():
                parsed[name] = _whole(parsed[name])
            for name, value in defaults.items():
                if name not in parsed:
                    parsed[name] = copy.deepcopy(value)
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        if self.settings.sandbox in (False, "off"):
            return None
        return TrialNeeds(self.settings.sandbox, self.settings.network)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Returns the file as a command."""
        return [shlex.quote(self.path)]

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Wants to execute the file; for other declared permissions, the target is unknown."""
        (target,) = self.targets(arguments)
        return [(one, target if one is Permission.EXECUTE else "") for one in sorted(self.spec.permissions)] or None


def _is_whole(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "integer"


def _whole(value: Any) -> Any:
    """Converts 3.0 to 3: an integer to JSON Schema, but not to a script."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Defines the person's settings for scripts that become tools.


TIMEOUT = 120.0  # seconds
MAX_OUTPUT = 1024 * 1024  # bytes of each stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The person's settings for scripts; a script itself cannot change them."""

    timeout: float | None = TIMEOUT
    python: str = ""  # a program's name or path; by default the Python that runs Forge
    env_passthrough: Sequence[str] = ()  # names of variables that scripts see
    network: bool = False  # in a sandbox
    sandbox: str | bool = "auto"
    max_output_bytes: int = MAX_OUTPUT
