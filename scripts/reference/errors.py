"""The page of what can go wrong: kinds of errors, how a run ends, exit codes."""

from __future__ import annotations

from typing import get_args

from forge.agent.result import Reason
from forge.cli import ENDS
from forge.cli.terminal.exit_codes import Ending
from forge.core.errors import ErrorKind
from scripts.reference.markdown import table

KINDS = {
    ErrorKind.VALIDATION: "The arguments are wrong. The model reads what is, and an example, and calls again.",
    ErrorKind.USER: "The tool says no, for a reason of its own; what `raise ToolError(…)` means by default.",
    ErrorKind.SYSTEM: "Something broke: a bug in the tool, a full disk, a server that answered badly.",
    ErrorKind.PERMISSION: "A rule or a person said no, or nobody was there to ask.",
    ErrorKind.SECURITY: "What no rule can allow: out of the workspace, a private address, `rm -rf /`.",
    ErrorKind.NOT_FOUND: "There is no such tool, file, session, server …; near names are told.",
    ErrorKind.TIMEOUT: "The time limit was reached, and the work was ended.",
    ErrorKind.RATE_LIMITED: "Called too often, here or there.",
    ErrorKind.CONFIG: "What a person configured cannot be used.",
    ErrorKind.CANCELLED: "The run was stopped while the call was at work.",
}
REASONS = {
    "answer": "The model answered and called nothing.",
    "task_completion": "It said that the task is done.",
    "question": "It has a question for the person.",
    "converse": "It replied, and lets the person speak next.",
    "max_turns": "`limits.turns`, or `--max-turns`.",
    "max_calls": "`limits.calls`.",
    "max_tokens": "`limits.tokens`.",
    "max_cost": "`limits.cost`.",
    "max_time": "`limits.seconds`.",
    "loop": "It went in circles, and did not stop when it was told.",
    "cancelled": "Ctrl-C, or `task.cancel()`.",
    "waiting": "The run waits for a person, and can be gone on with.",
    "error": "The model could not be asked, or answered nonsense; `error` says why.",
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
            table(("`error_type`", "in Python", "what it means"), kinds),
            "Only a failure with `passing=True` is tried again by itself.",
            "## How a run ends",
            "`RunResult.reason`, and `reason` in `run_finished`. The exit code is that of `forge run`.",
            table(("reason", "why", "exit code"), reasons),
            "## Exit codes",
            table(("code", "every command"), codes),
        ]
    )
