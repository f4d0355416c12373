"""The page of what can go wrong: kinds of errors, how a run ends, exit codes."""

from __future__ import annotations

from typing import get_args

from forge.agent.result import Reason
from forge.cli import ENDS
from forge.cli.terminal.exit_codes import Ending
from forge.core.errors import ErrorKind
from scripts.reference.markdown import table

KINDS = {
    ErrorKind.VALIDATION: "The arguments are wrong. The model gets the problem and an example, and can call again.",
    ErrorKind.USER: "The tool refused the call for its own reason. The default kind of `raise ToolError(…)`.",
    ErrorKind.SYSTEM: "Something broke: a bug in the tool, a full disk, an error of a server.",
    ErrorKind.PERMISSION: "A rule or a person denied the call, or there was no one to ask.",
    ErrorKind.SECURITY: "A call that no rule can allow: outside the workspace, a private address, `rm -rf /`.",
    ErrorKind.NOT_FOUND: "There is no such tool, file, session or server. The message suggests similar names.",
    ErrorKind.TIMEOUT: "The time limit was reached, and the call was stopped.",
    ErrorKind.RATE_LIMITED: "Too many calls, by Forge's limits or the server's.",
    ErrorKind.CONFIG: "The configuration cannot be used.",
    ErrorKind.CANCELLED: "The run was stopped during the call.",
}
REASONS = {
    "answer": "The model answered without a call.",
    "task_completion": "The model reported that the task is done.",
    "question": "The model has a question for the person.",
    "converse": "The model replied and waits for the person.",
    "max_turns": "The limit `limits.turns` or `--max-turns` was reached.",
    "max_calls": "The limit `limits.calls` was reached.",
    "length": "The model's own limit of output tokens, such as its option `max_tokens`, cut the answer.",
    "max_tokens": "The limit `limits.tokens` was reached.",
    "max_cost": "The limit `limits.cost` was reached.",
    "max_time": "The limit `limits.seconds` was reached.",
    "loop": "The model repeated the same calls, even after a warning.",
    "cancelled": "The run was cancelled: Ctrl-C, or `task.cancel()`.",
    "waiting": "The run waits for a person, and can be resumed.",
    "error": "The model could not be reached, or its response was invalid; `error` says why.",
}


def errors_page() -> str:
    kinds = [(f"`{kind}`", f"`ErrorKind.{kind.name}`", KINDS[kind]) for kind in ErrorKind]
    reasons = [(f"`{one}`", REASONS[one], str(Ending(reason=one).exit_code)) for one in get_args(Reason)]
    general = ENDS.strip().removeprefix("Exit codes: ").removesuffix(".")
    codes = [one.strip().partition(" ")[::2] for one in " ".join(general.split()).split(";")]
    return "\n\n".join(
        [
            "# Errors, endings, exit codes",
            "A call never raises: it ends in a `ToolResult`, whose `failure` has a `message`, a `kind` and a"
            " `suggestion`. The message says what went wrong, the suggestion what to do next; the model reads both.",
            "## Kinds of errors",
            table(("`error_type`", "in Python", "meaning"), kinds),
            "Forge retries only failures with `passing=True`.",
            "## How a run ends",
            "`RunResult.reason`, and `reason` in `run_finished`. The exit code is that of `forge run`.",
            table(("reason", "why", "exit code"), reasons),
            "## Exit codes",
            table(("code", "every command"), codes),
        ]
    )
