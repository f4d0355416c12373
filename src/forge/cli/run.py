"""`forge run`: the agent, with the tools of this project."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from forge.cli.options import Options, with_options


@click.command("run")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@with_options
@click.option("--model", metavar="NAME", help="Such as anthropic:MODEL, openai:MODEL, ollama:MODEL, scripted:FILE.")
@click.option(
    "--max-turns", metavar="N", type=click.IntRange(min=1), default=None,
    help="How often the model may be asked before the run is stopped; 50, unless the configuration says otherwise.",
)  # fmt: skip
@click.option("--from", "built", metavar="DIR", help="Run exactly what `forge build` wrote there.")
@click.option("--expect", metavar="HASH", help="With --from: the SHA-256 that its manifest must have.")
@click.option("--quiet", is_flag=True, help="Only the final text.")
@click.option("--audit", metavar="FILE", help="Where the log of events goes; .forge/audit.ndjson by default.")
@click.option("--no-audit", is_flag=True, help="Keep no log of events.")
def command(options: Options, prompt: str | None, **more: Any) -> int:
    """Have an agent do a task with the tools of this project.

    \b
    forge run PROMPT      one task
    forge run -           the task comes from the standard input
    forge run             a conversation; /help lists its commands

    The model is the one named with --model, otherwise the configuration's (agent.model), otherwise one whose key is
    set, otherwise one of a local server.

    What the model says goes to the standard output, what it does to the standard error. With --json every event is a
    line of JSON on the standard output, and the last line of a run is its run_finished.

    What asks is asked at the terminal. Without a terminal the answer is no, unless --yes or a rule says otherwise.
    Ctrl-C stops the run once it has cleaned up; twice, at once.

    The conversation is kept in the workspace: --session NAME goes on with it.

    \b
    Exit codes: 0 the model answered
                1 the run ended in an error, or went in circles
                2 there is no model; a flag, the configuration, a policy or the workspace cannot be used
                3 the model has a question, and nobody is there to answer
                4 a limit was reached
                130 interrupted
    """
    if prompt is not None and prompt != "-" and not prompt.strip():
        raise click.UsageError("The prompt is empty.")
    if more["expect"] is not None and more["built"] is None:
        raise click.UsageError("--expect says which build is meant: name it with --from.")
    if more["built"] is not None and (options.dev or _source("config") is ParameterSource.COMMANDLINE):
        raise click.UsageError("--from runs what was built: --config and --dev belong to forge build.")
    from forge.cli.sitting import Asked  # the whole agent, which showing the help does without

    named = _source("session") is not ParameterSource.DEFAULT
    asked = Asked(
        **more, session=options.session if named else None, reads_stdin=prompt == "-" or not sys.stdin.isatty()
    )
    if prompt is None:
        from forge.cli.chat import chat

        return chat(options, asked)
    return _once(options, asked, _whole_input() if prompt == "-" else prompt)


for _option in command.params:
    if _option.name == "session":
        assert isinstance(_option, click.Option)
        _option.show_default = "a new one"
        _option.help = "The session to go on with; made if it is not there."


def _source(option: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(option)


def _once(options: Options, asked: Any, prompt: str) -> int:
    from forge.cli.keyboard import Keyboard
    from forge.cli.sitting import sitting

    with sitting(options, asked) as made:
        ending = made.ask(prompt, wait=True)
        answers = not asked.reads_stdin and sys.stderr.isatty() and not options.json
        while answers and ending.reason == "question" and (answer := Keyboard().message()):
            ending = made.ask(answer, wait=True)
        made.say_goodbye(ending)
        return ending.exit_code


def _whole_input() -> str:
    from forge.cli.keyboard import LONGEST
    from forge.cli.pipes import read_all

    content = read_all(LONGEST)
    if len(content) > LONGEST:
        raise click.UsageError(f"The prompt on the standard input is longer than {LONGEST:,} bytes.")
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if not text:
        raise click.UsageError("The standard input holds no prompt.")
    return text
