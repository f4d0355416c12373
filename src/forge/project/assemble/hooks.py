"""Hooks that are commands: JSON on stdin, a decision as JSON on stdout, in the sandbox of the project's programs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from forge.agent.hooks import HookDecision, HookDecorator, HookFailed, HookKind, TurnContext
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.untrusted import clean
from forge.process.environment import shell_environment
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.sandbox.layout import confinement_of
from forge.workspace.paths import PathValidator

if TYPE_CHECKING:
    from forge.agent.agent import Agent
    from forge.project.config.declaration import Configuration
    from forge.project.config.hooks import TurnHookEntry

BLOCKS = 2  # the exit code of a command that blocks; stderr has the reason
LONGEST_OUTPUT = 256 * 1024  # bytes of each stream
MOST_OF_ERRORS = 2_000  # characters, the last ones
SPARE = 15.0  # seconds beyond the time limit, in which the program and its children are ended
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".php")
FOLDER = "hooks"  # a folder of this name is protected as a whole
_KEYS = tuple(field.name for field in fields(HookDecision))
_FIX = "Go on without it. The person can fix the hook."


def add_hooks(agent: Agent[Any, Any], configuration: Configuration) -> None:
    """Gives an agent the hooks of the configuration. Raises `ToolError` for a pattern that cannot be read."""
    sandbox = "required" if configuration.sandbox == "auto" else configuration.sandbox
    for kind, entry in configuration.all_hooks:
        name = entry.name or entry.command[:80]
        hook = CommandHook(cast(HookKind, kind), entry, name, sandbox)
        decorate: HookDecorator[Any] = getattr(agent, kind)
        try:
            decorate(match=getattr(entry, "match", ()), timeout=entry.timeout + SPARE, name=name)(hook)
        except DefinitionError as error:
            raise configuration.error(f"{entry.key_path}.match", str(error)) from None


def list_protected(configuration: Configuration, workspace: Path) -> tuple[str, ...]:
    """Returns the programs that the hooks' commands name: a model that changed one would change the hook.

    Of a file in a folder named `hooks`, the whole folder: what the file imports is often beside it.
    """
    found: dict[str, None] = {}
    for _, entry in configuration.all_hooks:
        for word in _words(entry.command):
            path = os.path.normpath(os.path.join(workspace, word))
            inner = os.path.relpath(path, workspace)
            is_program = inner.endswith(_SCRIPTS) or (os.path.isfile(path) and os.access(path, os.X_OK))
            if (is_program or _widen(inner) != inner) and not inner.startswith(".."):
                found[_widen(inner)] = None
    return tuple(found)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    return [word for word in words if not word.startswith("-")]


def _widen(inner: str) -> str:
    parts = inner.split("/")
    return "/".join(parts[: parts.index(FOLDER) + 1]) if FOLDER in parts[:-1] else inner


class CommandHook:
    """Runs a command for each decision. One that fails, hangs or writes nonsense refuses."""

    def __init__(self, kind: HookKind, entry: TurnHookEntry, name: str, sandbox: str) -> None:
        self._kind, self._entry, self._name, self._sandbox = kind, entry, name, sandbox

    async def __call__(
        self, ctx: ToolContext | TurnContext[Any], result: ToolResult | None = None
    ) -> HookDecision | None:
        scope = ctx.scope
        paths = PathValidator.of(scope)
        confinement = replace(confinement_of(scope, paths), sandbox=self._sandbox)
        try:
            finished = await run(
                ["/bin/sh", "-c", self._entry.command],
                cwd=confinement.workspace,
                env=shell_environment(),
                stdin=json.dumps(self._describe(ctx, result)).encode(),
                timeout=self._entry.timeout,
                output=OutputPlan(Capture(LONGEST_OUTPUT // 2, LONGEST_OUTPUT // 2)),
                confinement=confinement,
            )
        except ToolError as error:
            raise self._fail(f"cannot be run: {error.message}", error.suggestion) from error
        return self._read(finished)

    def _describe(self, ctx: ToolContext | TurnContext[Any], result: ToolResult | None) -> dict[str, Any]:
        """Returns what the command reads from stdin."""
        scope = ctx.scope
        said: dict[str, Any] = {
            "hook": self._kind,
            "session": scope.session_id,
            "agent": scope.agent,
            "user": scope.user,
            "workspace": str(scope.workspace),
        }
        if isinstance(ctx, ToolContext):
            said |= {"tool": ctx.spec.name, "arguments": plain(dict(ctx.arguments)), "call": ctx.call.id}
            return said if result is None else {**said, "result": result.for_llm, "is_error": result.is_error}
        said |= {"turn": ctx.turn, "tools": list(ctx.tools)}
        return {**said, **({"answer": ctx.answer} if self._kind == "on_end" else {"prompt": ctx.prompt})}

    def _read(self, finished: FinishedProgram) -> HookDecision | None:
        errors = clean(finished.errors[-MOST_OF_ERRORS:]).strip()
        if finished.timed_out:
            raise self._fail(f"gave no answer within {self._entry.timeout:g} s", kind=ErrorKind.TIMEOUT)
        if finished.exit_code == BLOCKS or (finished.exit_code and self._kind == "on_end"):
            return HookDecision(block=errors or f"it ended with exit code {finished.exit_code}, and gave no reason")
        if finished.exit_code != 0:
            how = finished.signal or f"exit code {finished.exit_code}"
            raise self._fail(f"failed with {how}: {errors or 'nothing on stderr'}")
        text = finished.output.strip()
        if not text:
            return None
        try:
            said = None if finished.cut else json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, Mapping):
            raise self._fail(f"wrote {clean(text[:80])!r} to stdout, which is not a JSON object")
        return HookDecision(**self._check_keys(said))

    def _check_keys(self, said: Mapping[str, Any]) -> dict[str, Any]:
        for key in said:
            if key not in _KEYS:
                raise self._fail(f"wrote the key {clean(str(key)[:80])!r}; known: {', '.join(_KEYS)}")
        return dict(said)

    def _fail(self, problem: str, hint: str = "", kind: ErrorKind = ErrorKind.SYSTEM) -> HookFailed:
        return HookFailed(
            f"asking the {self._kind} hook {self._name!r}: it {problem}", kind, " ".join(filter(None, (_FIX, hint)))
        )


def missing_programs(configuration: Configuration, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yields the key path and the first word of each hook whose program is not found."""
    import shutil

    for _, entry in configuration.all_hooks:
        words = _words(entry.command)
        program = words[0] if words else ""
        if program and "=" not in program and "$" not in program and not _is_found(program, workspace, shutil.which):
            yield entry.key_path, program


def _is_found(program: str, workspace: Path, which: Any) -> bool:
    return bool(which(program)) or os.access(os.path.join(workspace, program), os.X_OK) or program in _SHELL_WORDS


_SHELL_WORDS = frozenset(": . [ cd echo exec exit export eval false for if printf read set test true while {".split())
