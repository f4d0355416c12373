"""Builds the result of a test run: short for the model, complete for programs."""

from __future__ import annotations

import os
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import render_call
from forge.core.result import ToolResult
from forge.process.running.run import FinishedProgram
from forge.tools.test_runner.frameworks import Plan, missing_error
from forge.tools.test_runner.reports import FailedTest, Report, clean, clip_middle
from forge.workspace.paths import PathValidator

SHOWN = 20  # failures that the model is told of
SHOWN_MESSAGE = 1_000  # characters of each
TAIL = 4_000  # characters of the end of the output
NOTHING_TO_RUN = (0, 5)  # exit codes of frameworks that looked for tests and found none


def build_result(
    ctx: ToolContext, plan: Plan, finished: FinishedProgram, report: Report | None, timeout: float
) -> ToolResult:
    tail = _tail(plan, finished, reported=report is not None)
    failure = _failure(plan, finished, report, timeout)
    counts = report if report is not None and (failure is None or report.total) else Report()
    outcome = _outcome(counts) if failure is None else "timeout" if finished.timed_out else "error"
    data: dict[str, Any] = {
        "framework": plan.framework,
        "command": plan.line,
        "outcome": outcome,
        "passed": counts.passed,
        "failed": counts.failed,
        "skipped": counts.skipped,
        "errors": counts.errors,
        "duration": counts.duration if counts.duration is not None else round(finished.duration, 3),
        "failures": [_failure_data(ctx, plan, one) for one in counts.failures],
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "timed_out": finished.timed_out,
        "output": tail,
        **finished.sandbox_facts,
    }
    refused = [f"[{said}]" for said in finished.refused_hosts]
    if failure is not None:
        failed = ToolResult.failed(failure, during=render_call(ctx.call))
        said = "\n".join([failed.for_llm, "The end of its output:", tail or "(no output)", *refused])
        return ToolResult(for_llm=said, title=f"{plan.framework}: {outcome}", data=data, failure=failed.failure)
    lines = [_summary(plan, data), *_failures(data), *_oddities(finished, counts, tail), *refused]
    return ToolResult(for_llm="\n".join(lines), title=lines[0], data=data)


def _failure(plan: Plan, finished: FinishedProgram, report: Report | None, timeout: float) -> ToolError | None:
    """Returns the error if there is no verdict; None if there is one, good or bad."""
    if finished.timed_out:
        return ToolError(
            f"{plan.framework} timed out after {timeout:g} s and was killed, with all its child processes",
            ErrorKind.TIMEOUT,
            "Run fewer tests at once with target, or give it more time.",
        )
    if report is None and _is_missing(plan, finished):
        return missing_error(plan.framework, plan.program if "python" in plan.program else "")
    if report is not None and (report.total or report.nothing or finished.exit_code in NOTHING_TO_RUN):
        return None
    how = f"ended by {finished.signal}" if finished.signal else f"exit code {finished.exit_code}"
    return ToolError(
        f"{plan.framework} stopped before it ran any test ({how})",
        ErrorKind.USER,
        "Its output says why: code that does not build or load, a wrong option, or a broken configuration.",
    )


def _is_missing(plan: Plan, finished: FinishedProgram) -> bool:
    if finished.exit_code in (126, 127):
        return True
    return finished.exit_code == 1 and finished.errors.rstrip().endswith(f"No module named {plan.framework}")


def _outcome(report: Report) -> str:
    if report.failed or report.errors:
        return "failed"
    return "passed" if report.total else "no tests"


def _summary(plan: Plan, data: dict[str, Any]) -> str:
    if data["outcome"] == "no tests":
        return f"{plan.framework}: no tests were found. It ran: {plan.line}"
    words = {"passed": "passed", "failed": "failed", "errors": "error", "skipped": "skipped"}
    words["errors"] += "" if data["errors"] == 1 else "s"
    counts = ", ".join(f"{data[key]} {word}" for key, word in words.items() if data[key] or key in ("passed", "failed"))
    return f"{plan.framework}: {counts} in {data['duration']:.2f} s"


def _failures(data: dict[str, Any]) -> list[str]:
    lines = []
    for one in data["failures"][:SHOWN]:
        location = f" ({one['file']}:{one['line']})" if one["file"] and one["line"] else ""
        said = clip_middle(one["message"], SHOWN_MESSAGE).split("\n") if one["message"] else []
        lines += [f"FAILED {one['name']}{location}", *(f"    {line}" for line in said)]
    left = data["failed"] + data["errors"] - min(len(data["failures"]), SHOWN)
    return [*lines, f"[{left} more failed]"] if left > 0 and data["failures"] else lines


def _oddities(finished: FinishedProgram, report: Report, tail: str) -> list[str]:
    """Describes what the counts do not show: a contradicting exit code, and failures without a message."""
    broken = report.failed + report.errors
    if finished.signal:
        return [f"[ended by {finished.signal}]", tail]
    if finished.exit_code and report.total and not broken:
        return [f"[exit code {finished.exit_code}, although no test failed]", tail]
    if broken and not report.failures:
        return [tail]
    return []


def _failure_data(ctx: ToolContext, plan: Plan, one: FailedTest) -> dict[str, Any]:
    file = _workspace_path(ctx, plan, one.file)
    return {"name": file if one.name == one.file else one.name, "file": file, "line": one.line, "message": one.message}


def _workspace_path(ctx: ToolContext, plan: Plan, file: str) -> str:
    """Returns the file as a path of the workspace, if it is in it."""
    if not file:
        return ""
    real = os.path.normpath(os.path.join(plan.project.path, file.removeprefix("file://")))
    location = PathValidator.of(ctx.scope).location_of(real)
    return location.shown if location is not None else file


def _tail(plan: Plan, finished: FinishedProgram, *, reported: bool) -> str:
    """Returns the end of the output for a person, without machine-readable reports."""
    errors, output = finished.errors, finished.output
    if plan.framework == "pytest":
        before, _, rest = errors.partition("<?xml")
        errors = before + rest.partition("</testsuites>")[2]
    parts = (errors,) if not plan.how.shows and reported else (output, errors)
    return clean("\n".join(part.strip("\n") for part in parts if part.strip()))[-TAIL:]
