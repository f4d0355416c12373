"""`forge eval`: runs cases against the agent of this project, and prints how many passed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import table_lines
from forge.core.plain_values import visible

if TYPE_CHECKING:  # the whole agent, which showing the help does without
    from forge.core.provider import Provider
    from forge.evaluation.cases import EvalCase, EvalRun
    from forge.evaluation.report import EvalReport
    from forge.evaluation.run import MakeAgent


@click.command("eval")
@click.argument("file", required=False)
@with_options("policy", "yes", "dev")
@click.option(
    "--from-marked",
    type=click.Choice(("good", "bad", "any")),
    help="Run the stored runs that are marked so, instead of FILE.",
)
@click.option("--database", metavar="URL", help="Database of the marked runs. Default: as for `forge runs`.")
@click.option("--model", metavar="NAME", help="The model. Default: the script of a case, else the project's model.")
@click.option("--times", metavar="N", type=click.IntRange(1, 10_000), help="How often each case runs. Default: 1.")
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 100), default=4, show_default=True, help="Runs at the same time."
)
@click.option("--case", "names", metavar="NAME", multiple=True, help="Run only this case. May be repeated.")
@click.option(
    "--compare", metavar="MODEL|FILE", help="Run everything with this model or this forge.yaml, too, and compare."
)
@click.option("--judge", metavar="NAME", help="The model that judges answers (expect.judge, LLMJudge).")
@click.option("--record", metavar="FILE", help="Write the model's answers to a new file.")
@click.option("--replay", metavar="FILE", help="Answer from a recording instead of the model.")
@click.option(
    "--min-pass-rate", metavar="SHARE", type=click.FloatRange(0, 1), default=1.0, show_default=True,
    help="Share of the runs of each case that must pass.",
)  # fmt: skip
@click.option("--junit", metavar="FILE", help="Write the report as JUnit XML, too.")
@click.option("--skip-unsupported", is_flag=True, help="Leave out evaluators that Forge does not know, and say so.")
def command(options: Options, file: str | None, **flags: Any) -> int:
    """Run cases, and print how many passed and what they cost.

    FILE is YAML or JSON: cases with a prompt, files, and expectations on calls, the answer, files, cost and turns; or
    a dataset of pydantic-evals.

    \b
    cases:
      - name: reads the note
        prompt: What does notes.txt say?
        files: {notes.txt: Buy milk.}
        expect: {calls: [{file_read: {path: notes.txt}}], result: {contains: milk}, limits: {turns: 4}}

    \b
    forge eval cases.yaml --model anthropic:MODEL --times 5
    forge eval cases.yaml --compare openai:MODEL
    forge eval cases.yaml --record answers.ndjson
    forge eval cases.yaml --replay answers.ndjson
    forge eval --from-marked bad --judge anthropic:MODEL

    Each run has a temporary workspace. The project's forge.yaml and rules apply; calls that would ask are denied
    unless --yes approves them. Ctrl-C ends the runs and prints the table so far.

    \b
    Exit codes: 0 enough runs of each case passed     1 too few passed
                2 the file, the model or the configuration cannot be used     130 interrupted
    """
    if (file is None) is (flags["from_marked"] is None):
        raise click.UsageError("Name a file of cases, or use --from-marked.")
    if flags["replay"] and (flags["record"] or flags["model"] or flags["compare"]):
        raise click.UsageError("--replay replaces the model: leave out --model, --record and --compare.")
    if flags["record"] and flags["compare"]:
        raise click.UsageError("A recording is of one configuration: leave out --compare, or --record.")
    with refusals():
        from forge.evaluation.cases import read_cases
        from forge.evaluation.report import EvalReport

        if file is None:
            found = _read_marked(options, flags)
        else:
            found = read_cases(file, skip_unsupported=flags["skip_unsupported"])
        cases = _pick(found, flags["names"])
        report = EvalReport(cases)
        is_interrupted = _run(report, options, flags)
    report.sort()
    if flags["junit"]:
        _write(flags["junit"], report.to_junit())
    holds = report.holds(flags["min_pass_rate"])
    if options.json:
        click.echo(json.dumps({**report.to_dict(), "interrupted": is_interrupted}, ensure_ascii=False))
    else:
        _print(report, is_interrupted=is_interrupted)
    return 130 if is_interrupted else 0 if holds else 1


def _read_marked(options: Options, flags: dict[str, Any]) -> list[EvalCase]:
    """Returns the marked runs as cases; each begins with a copy of the workspace as it is now."""
    from forge.cli.running.stored_runs import open_stored_runs
    from forge.evaluation.cases import read_marked

    mark = flags["from_marked"]
    with open_stored_runs(options, flags["database"]) as stored:
        found: list[EvalCase] = []
        if stored.runs is not None:
            judged = flags["judge"] is not None
            found = read_marked(stored.runs, mark=mark, judged=judged, workspace=stored.workspace)
    if not found:
        kind = "" if mark == "any" else f" as {mark}"
        raise Refusal(f"no run is marked{kind}\nMark one: forge runs mark RUN good")
    return found


def _pick(cases: Sequence[EvalCase], names: Sequence[str]) -> Sequence[EvalCase]:
    unknown = [name for name in names if name not in [case.name for case in cases]]
    if unknown:
        raise Refusal(f"there is no case {unknown[0]!r}\nThere are: {', '.join(case.name for case in cases)}.")
    return [case for case in cases if case.name in names] if names else cases


def _run(report: EvalReport, options: Options, flags: dict[str, Any]) -> bool:
    """Runs everything; the report grows. Returns whether it was interrupted."""
    from forge.cli.running.loop_thread import run_interruptible
    from forge.evaluation.run import evaluate

    first, second = _name_setups(options, flags)
    setups = [(first, _make_agents(options, flags["model"], None), flags["model"])]
    if flags["compare"]:
        config = flags["compare"] if _is_file(flags["compare"]) else None
        model = flags["model"] if config else flags["compare"]
        setups.append((second, _make_agents(options, model, config), model))

    def note(run: EvalRun) -> None:
        report.runs.append(run)
        if not options.json:
            click.echo("." if run.passed else "F", nl=False, err=True)

    async def run_all() -> None:
        for name, make, model in setups:
            await evaluate(
                report.cases,
                make,
                times=flags["times"] or 0,
                jobs=flags["jobs"],
                judge=flags["judge"],
                record=flags["record"],
                replay=flags["replay"],
                use_scripts=model is None,
                setup=name,
                on_run=note,
            )

    try:
        run_interruptible(run_all())
    except KeyboardInterrupt:
        return True
    finally:
        if report.runs and not options.json:
            click.echo(err=True)
    return False


def _name_setups(options: Options, flags: dict[str, Any]) -> tuple[str, str]:
    if not flags["compare"]:
        return flags["model"] or "", ""
    first = options.config if _is_file(flags["compare"]) else flags["model"]
    return first or "the project", flags["compare"]


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and ":" not in name


def _make_agents(options: Options, model: str | None, config: str | None) -> MakeAgent:
    """Returns a function that makes the project's agent in another workspace."""
    from forge.permissions.questions import approve_all, nobody
    from forge.project.assemble.access import workspace_root
    from forge.project.project import Project, RunOptions

    project = workspace_root(options.workspace)

    def make(workspace: Path, given: Provider | None) -> Any:
        chosen = RunOptions(
            workspace=str(workspace),
            config=config or options.config,
            policy=options.policy,
            dev=options.dev,
            copy_of=project,
        )
        return Project(chosen).agent(
            given if given is not None else model, approve=approve_all if options.yes else nobody
        )

    return make


def _print(report: EvalReport, *, is_interrupted: bool) -> None:
    for line in table_lines(list(report.rows())):
        click.echo(line)
    if comparison := report.comparison():
        click.echo(comparison)
    for run in report.runs:
        for failure in run.failures:
            setup = f", {run.setup}" if len(report.setups) > 1 else ""
            click.echo(visible(f"{run.case}, run {run.time}{setup}: {failure}"), err=True)
    for case in report.cases:
        if case.skipped:
            click.echo(visible(f"{case.name}: not evaluated: {', '.join(case.skipped)}"), err=True)
    if is_interrupted:
        click.echo("Interrupted: the table has the runs that were over.", err=True)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refusal(f"writing the report to {path!r}: {error.strerror}\nName a file that can be written.") from None
