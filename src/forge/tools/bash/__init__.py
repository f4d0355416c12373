"""Runs command lines: to their end, or in the background with tools to look after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import UNTRUSTED, Label, ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:  # they load what only a call needs
    from forge.permissions.targets import CallJudge
    from forge.process.running.jobs import Job

TIMEOUT = 120.0  # seconds
MAX_TIMEOUT = 600.0
MAX_OUTPUT = 1024 * 1024  # bytes kept of what is written, a fifth of it from the beginning
MAX_JOBS = 50
MAX_LOG = 10 * 1024 * 1024  # bytes kept of what a job wrote, the newest
SHORT = 1_000  # bytes: no output limit cuts less
MAX_WAIT = 60.0  # seconds that bash_output waits

_EXECUTE = frozenset({Permission.EXECUTE})


class Bash(
    Tool,
    category=Category.BUILTIN,
    aliases=("shell", "execute_command"),
    argument_aliases={
        "cmd": "command",
        "script": "command",
        "cwd": "working_dir",
        "workdir": "working_dir",
        "working_directory": "working_dir",
        "directory": "working_dir",
        "run_in_background": "background",
        "input": "stdin",
    },
    permissions={"execute"},
    optional_permissions={"read", "network"},
    target="command",
    harmless={"description"},
    keep_end=True,
    timeout=TIMEOUT,
):
    """Run a shell command; get its output and exit code. There is no terminal; start servers with background=true."""

    def __init__(
        self,
        timeout: float | None = None,
        max_timeout: float = MAX_TIMEOUT,
        shell: str = "",
        sandbox: str | bool | None = None,
        network: bool = False,
        env_passthrough: Sequence[str] | None = None,
        max_output_bytes: int = MAX_OUTPUT,
        max_jobs: int = MAX_JOBS,
        max_log_bytes: int = MAX_LOG,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`timeout`: of calls that give none; at most `max_timeout`. `limits`: as in `forge.process.running.limits`."""
        if timeout is not None:
            self.spec = type(self).spec.changed(timeout=timeout)
        self.max_timeout = max_timeout
        self.shell = shell
        self.sandbox = sandbox
        self.network = network
        self.env_passthrough = tuple(env_passthrough or ())
        self.max_output_bytes = max_output_bytes
        self.max_jobs = max_jobs
        self.max_log_bytes = max_log_bytes
        self.limits = dict(limits or {})
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"timeout": Setting(min(self.spec.timeout or self.max_timeout, self.max_timeout), self.max_timeout)}

    async def run(
        self,
        ctx: ToolContext,
        command: Annotated[str, ParameterLimits(example="ls -la", min_length=1)],
        description: Annotated[str, "Its purpose."] = "",
        timeout: Annotated[float, ParameterLimits(gt=0), "Seconds."] = TIMEOUT,
        working_dir: Annotated[str, "In the workspace."] = "",
        background: Annotated[bool, "Return a job id for bash_output at once."] = False,
        stdin: str = "",
    ) -> ToolResult:
        from forge.tools.bash import guard
        from forge.tools.bash import run as _bash_run  # they load what only a call needs

        reading = await guard.recheck_permission(ctx, "auto" if self.sandbox is None else self.sandbox)
        work = await _bash_run.prepare_line(self, ctx, command, working_dir, stdin, reading)
        if background:
            return await _bash_run.start_in_background(self, ctx, work)
        return await _bash_run.run_to_end(self, ctx, work, timeout)

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Parses the arguments. Refuses a time-out above the limit."""
        self.show_settings()  # the spec may be another than at the beginning
        parser = self._signature.parser(self.spec)

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            parsed = parser(arguments)
            if parsed["timeout"] > self.max_timeout:
                raise ToolError(
                    f"timeout is {parsed['timeout']:g} s; the limit is {self.max_timeout:g} s",
                    ErrorKind.VALIDATION,
                    "Give seconds, not milliseconds; use background=true for longer commands.",
                )
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        """A line can be tried, but for a background job: it works on the real files while others read them."""
        if arguments["background"] or self.sandbox in (False, "off"):
            return None
        return TrialNeeds("auto" if self.sandbox is None else self.sandbox, self.network)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks to execute the line; asks only to read if it means to read and a sandbox enforces that.

        A destructive line is refused at once.
        """
        from forge.tools.bash.guard import find_read_paths, refuse_destructive  # they load a parser of shell lines

        refuse_destructive(arguments, scope)
        if self.spec.permissions != _EXECUTE:
            return None
        found = find_read_paths(arguments, scope, "auto" if self.sandbox is None else self.sandbox)
        if found is None:
            return None
        return [(Permission.READ, path) for path in found or [""]]

    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: CallJudge
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks to execute a line that only reads, too, where the rules about executing or reading demand that."""
        found = self.required_permissions(arguments, scope)
        if found is None:
            return None
        from forge.process.running.run import find_tier
        from forge.tools.bash.guard import may_only_read

        tier = find_tier("auto" if self.sandbox is None else self.sandbox)
        if may_only_read(self.spec, arguments, scope, judge, [path for _, path in found if path], tier):
            return found
        return [*found, (Permission.EXECUTE, arguments["command"])]


class BashOutput(
    Tool,
    category=Category.BUILTIN,
    argument_aliases={"job_id": "id", "bash_id": "id", "timeout": "wait"},
    permissions={"execute"},
    keep_end=True,
    timeout=MAX_WAIT + 30.0,
):
    """Read the new output of a background job, and whether it still runs."""

    def __init__(self, max_wait: float = MAX_WAIT) -> None:
        self.max_wait = max_wait

    async def run(
        self,
        ctx: ToolContext,
        id: Annotated[str, ParameterLimits(example="job_1"), "The job."],
        wait: Annotated[float, ParameterLimits(ge=0), "Seconds to wait for output or the end."] = 0.0,
        since: Annotated[int, ParameterLimits(ge=-1), "From this byte on; -1: only new output."] = -1,
    ) -> ToolResult:
        from forge.process.running.jobs import find_job  # it loads what only a call needs

        job = find_job(ctx.scope.session_id, id)
        if wait and since < 0:
            await job.wait(min(wait, self.max_wait))
        return _show_output(job, since if since >= 0 else None, ctx.activity.secrets)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return []  # to start the job was asked for


class BashKill(
    Tool,
    category=Category.BUILTIN,
    argument_aliases={"job_id": "id", "bash_id": "id", "shell_id": "id"},
    permissions={"execute"},
    keep_end=True,
    timeout=30.0,
):
    """End a background job and all it started; returns its last output."""

    async def run(
        self, ctx: ToolContext, id: Annotated[str, ParameterLimits(example="job_1"), "The job."]
    ) -> ToolResult:
        from forge.process.running.jobs import find_job  # it loads what only a call needs

        job = find_job(ctx.scope.session_id, id)
        was_running = await job.kill()
        result = _show_output(job, None, ctx.activity.secrets)
        return result.with_data(killed=was_running)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return []  # it ends only what this session started


class BashJobs(Tool, category=Category.BUILTIN, permissions={"execute"}, timeout=30.0):
    """List this session's background jobs, each with its state."""

    async def run(self, ctx: ToolContext) -> ToolResult:
        from forge.process.running.jobs import list_jobs  # it loads what only a call needs

        found = list_jobs(ctx.scope.session_id)
        lines = [f"{job.id}: {_describe_state(job)}: {' '.join(job.command.split())[:200]}" for job in found]
        jobs = [{"command": job.command, **_job_data(job)} for job in found]
        return ToolResult(for_llm="\n".join(lines) or "No background jobs.", data={"jobs": jobs})

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return []


def _show_output(job: Job, since: int | None, secrets: Secrets) -> ToolResult:
    from forge.process.running.output import Capture, CapturedOutput, drop_partial_start

    content, gone = job.new_output(since, secrets)
    start = job.looked - len(content) - gone
    if gone:
        content = drop_partial_start(content)
    captured = CapturedOutput(Capture(MAX_OUTPUT // 5, MAX_OUTPUT - MAX_OUTPUT // 5))
    captured.add(memoryview(content))
    # the output limit may cut what is long, and then stores the job's whole output, not each call's part of it
    text, whole = captured.text(), job.whole_output(start) if len(content) > SHORT or gone else None
    size = {"truncated": True, "cut_bytes": captured.cut} if captured.cut else {}
    del content, captured  # they may be large
    where = "are gone: only the newest are kept" if whole is None or whole.problem else "are not shown"
    dropped = f"[{gone} bytes before this {where}]\n" if gone else ""
    shown = f"{dropped}{text}".replace("\0", "␀").rstrip("\n") or "(no new output)"
    facts = {**_job_data(job), "output": text, "dropped": gone, "next": job.looked, **size}
    said = f"{shown}\n[{job.id}: {_describe_state(job)}]"
    from forge.permissions.labels.settings import prints_untrusted  # it loads a parser of shell lines

    labels = (Label(UNTRUSTED, f"bash {job.id}"),) if prints_untrusted(job.command) else ()
    title = f"{job.id}: {_describe_state(job)}"
    return ToolResult(for_llm=said, title=title, data=facts, whole=whole, labels=labels)


def _job_data(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "status": job.status,
        "running": job.runs,
        "exit_code": job.exit_code,
        "return_code": job.exit_code,
        "signal": job.signal,
        "duration": round(job.duration, 3),
        "sandbox": job.sandbox,
        **({"network": [dict(one) for one in job.network]} if job.network else {}),
        **({"still_running": list(job.left)} if job.left else {}),
    }


def _describe_state(job: Job) -> str:
    seconds = f"{job.duration:.1f} s"
    if job.runs:
        return f"running for {seconds}"
    how = f"by {job.signal}" if job.signal else f"with exit code {job.exit_code}"
    word = "killed" if job.status == "killed" else "ended"
    return f"{word}, {how}, after {seconds}"
