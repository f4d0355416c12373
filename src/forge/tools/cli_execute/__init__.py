"""Runs programs that the project allows, one command at a time and without a shell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:  # it loads what only a configured tool needs
    from forge.tools.cli_execute.binaries import AllowedPrograms, Availability
    from forge.tools.cli_execute.layers import Guardrail

TIMEOUT = 120.0  # seconds
MAX_OUTPUT = 1024.0 * 1024  # bytes of each stream


class CliExecute(
    Tool,
    category=Category.BUILTIN,
    argument_aliases={
        "command": "binary",
        "program": "binary",
        "cmd": "binary",
        "arguments": "args",
        "argv": "args",
        "input": "stdin",
    },
    permissions={"execute"},
    optional_permissions={"network"},
    timeout=TIMEOUT,
):
    """Run one of the allowed programs without a shell; get its output and exit code."""

    def __init__(
        self,
        allowed_binaries: Sequence[str] | None = None,
        env_passthrough: Sequence[str] | None = None,
        timeout: float | None = None,
        max_output_bytes: float = MAX_OUTPUT,
        network: bool = False,
        allow_exec_flags: bool = False,
        sandbox: str | bool | None = None,
        deny_commands: Sequence[Mapping[str, str]] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """The programs are looked up now. `deny_commands`: `{pattern, message}`; `limits`: as in `process.limits`."""
        self._wanted = _read_texts("allowed_binaries", allowed_binaries)
        self.env_passthrough = _read_texts("env_passthrough", env_passthrough)
        self.max_output_bytes = _read_whole("max_output_bytes", max_output_bytes)
        self.network = network
        self.allow_exec_flags = allow_exec_flags
        self.sandbox = sandbox
        self.deny_commands = tuple(deny_commands or ())
        self.limits = dict(limits or {})
        if self.deny_commands or self.limits:
            self._check()
        binaries = self.allowed.program_names if self._wanted else []
        plain = type(self).spec
        # Without a program it could only fail: people see it in lists, models do not.
        self.spec = plain.changed(
            timeout=timeout or plain.timeout,
            hidden=not binaries,
            parameters=lambda: _narrow_schema(plain.parameters, binaries),
        )

    @cached_property
    def allowed(self) -> AllowedPrograms:
        from forge.tools.cli_execute.binaries import AllowedPrograms  # loads what only a configured tool needs

        return AllowedPrograms(self._wanted)

    async def run(
        self,
        ctx: ToolContext,
        binary: Annotated[str, ParameterLimits(example="git")],
        args: Annotated[Sequence[str], "One per element."] = (),
        stdin: str = "",
        timeout: Annotated[float | None, ParameterLimits(gt=0)] = TIMEOUT,
    ) -> ToolResult:
        from forge.tools.cli_execute.layers import judge  # they load what only a call needs
        from forge.tools.cli_execute.run import execute

        judged = judge(
            binary, args, ctx.scope, self.allowed, stdin=stdin, **self._rules()
        )  # again: links may have moved
        return await execute(self, ctx, judged, list(args), stdin, timeout)

    def availability(self) -> Availability:
        """Returns which allowed programs were found and where, which are missing, and which are refused."""
        return self.allowed.availability()

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Parses with the configured time-out; the tool enforces it itself, so that partial output is not lost."""
        parser = self._signature.parser(self.spec)

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            parsed = parser(arguments)
            longest = self.spec.timeout
            asked = parsed["timeout"]
            parsed["timeout"] = longest if asked is TIMEOUT or asked is None else min(asked, longest or asked)
            _check_one_text(parsed)
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        import shlex  # listing tools does without

        return [shlex.join([arguments["binary"], *arguments.get("args", ())])]

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        if self.sandbox in (False, "off"):
            return None
        return TrialNeeds("auto" if self.sandbox is None else self.sandbox, self.network)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks to execute the command, and to write protected paths that it names if it may do more than read.

        What a layer refuses is refused here, before anybody is asked.
        """
        from forge.permissions.policy import find_protection
        from forge.permissions.shell.read_only import only_reads
        from forge.tools.cli_execute.layers import judge

        binary, args = arguments["binary"], arguments.get("args", ())
        judged = judge(binary, args, scope, self.allowed, stdin=arguments.get("stdin", ""), **self._rules())
        line = self.targets(arguments)[0]
        guarded = (
            [path for path in judged.paths if find_protection(path, scope)] if "git" not in judged.binary.names else []
        )
        if not guarded or only_reads(line, scope) is not None:
            return None
        asked: list[tuple[Permission | None, str]] = [(one, line) for one in sorted(self.spec.permissions)]
        return [*asked, *((Permission.WRITE, path) for path in guarded)]

    def _rules(self) -> dict[str, Any]:
        return {
            "allow_exec_flags": self.allow_exec_flags,
            "guardrails": self._guardrails,
            "sandboxed": self._is_sandboxed,
        }

    def _is_sandboxed(self) -> bool:
        """Returns whether commands run in a sandbox. The first call tries the sandboxes."""
        from forge.process.running.run import find_tier  # it loads what only a call needs

        try:
            return find_tier("auto" if self.sandbox is None else self.sandbox) != "none"
        except ToolError:  # the run reports it
            return False

    @cached_property
    def _guardrails(self) -> tuple[Guardrail, ...]:
        from forge.tools.cli_execute.layers import read_guardrails

        return read_guardrails(self.deny_commands)

    def _check(self) -> None:
        """Reports wrong settings now, not at the first call."""
        from forge.process.running.limits import Resources

        self._rules()
        try:
            Resources(**self.limits)
        except TypeError as error:
            raise _settings_error(f"limits: {error}") from None


def _narrow_schema(schema: Mapping[str, Any], binaries: list[str]) -> dict[str, Any]:
    """Returns the schema with the available programs; the time-out is set by the configuration."""
    properties = {name: dict(one) for name, one in schema["properties"].items() if name != "timeout"}
    if binaries:
        properties["binary"] |= {"enum": binaries, "examples": binaries[:1]}
    return {**schema, "properties": properties}


def _check_one_text(parsed: dict[str, Any]) -> None:
    """`"log -1"` for a list was repaired to one argument, which no program understands."""
    notes = getattr(parsed, "repaired", ())
    args = parsed["args"]
    if len(args) == 1 and " " in args[0].strip() and any(str(note).startswith("args: ") for note in notes):
        raise ToolError(
            f'args: "{args[0][:200]}" is one string; each argument must be its own element',
            ErrorKind.VALIDATION,
            f"Give a list: {_split_words(args[0])}",
        )


def _split_words(text: str) -> str:
    import shlex

    try:
        return json.dumps(shlex.split(text)[:20], ensure_ascii=False)
    except ValueError:  # a quotation that does not end
        return json.dumps(text.split()[:20], ensure_ascii=False)


def _read_texts(name: str, value: Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not all(isinstance(one, str) and one.strip() and "\0" not in one for one in value):
        raise _settings_error(f"{name}: expected a list of names such as [git, jq], got {value!r:.60}")
    if name == "allowed_binaries" and (paths := [one for one in value if "/" in one and not one.startswith("/")]):
        raise _settings_error(f'{name}: "{paths[0]}" is neither a name on PATH nor an absolute path')
    return tuple(value)


def _read_whole(name: str, value: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or not 0 < value < 2**40:
        raise _settings_error(f"{name}: expected a number of bytes above 0, got {value!r:.60}")
    return int(value)


def _settings_error(problem: str) -> ToolError:
    return ToolError(f"cli_execute: {problem}", ErrorKind.CONFIG, "Fix the tool's configuration.")
