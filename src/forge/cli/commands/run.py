"""`forge run`: runs the agent of this project."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.result import Image, recognise_any

if TYPE_CHECKING:
    from forge.core.messages import Message

DURABLE_FLAGS = ("database", "detach", "queue", "tenant", "priority", "app_version", "chat")  # flags of durable runs


@click.command("run")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@with_options("policy", "yes", "session", "dev", "trial")
@click.option(
    "--model", metavar="NAME", help="The model, such as anthropic:MODEL, openai:MODEL, ollama:MODEL or scripted:FILE."
)
@click.option(
    "--max-turns", metavar="N", type=click.IntRange(min=1), default=None,
    help="Maximum number of turns. Default: the configured number, else 50.",
)  # fmt: skip
@click.option("--image", metavar="FILE", multiple=True, help="Attach an image to the prompt. May be repeated.")
@click.option(
    "--attach", metavar="FILE", multiple=True, help="Attach a PDF, text, Word, Excel or audio file. May be repeated."
)
@click.option("--from", "built", metavar="DIR", help="Run the build in this directory, written by `forge build`.")
@click.option("--expect", metavar="HASH", help="With --from: the SHA-256 that its manifest must have.")
@click.option(
    "--output-schema", metavar="FILE",
    help="JSON Schema of the answer. The final text is JSON that fits it; with --quiet nothing else is printed.",
)  # fmt: skip
@click.option(
    "--explain-cache", is_flag=True,
    help="At the end, print for each turn what the provider read from its prompt cache, and why it did not read more.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print only the final text.")
@click.option("--plain", is_flag=True, help="Plain lines: no colours, no rendered Markdown, answers end with Enter.")
@click.option("--audit", metavar="FILE", help="File for the event log. Default: .forge/audit.ndjson.")
@click.option("--no-audit", is_flag=True, help="Write no event log.")
@click.option(
    "--durable", is_flag=True, help="Store every step, so that the run can resume after a crash; see forge runs."
)
@click.option(
    "--database",
    metavar="URL",
    help="With --durable: database of the run. Default: FORGE_DATABASE, else a file in .forge.",
)
@click.option(
    "--detach", is_flag=True,
    help="With --durable: leave the run to a worker, with the worker's model and rules, and print the run's id.",
)  # fmt: skip
@click.option("--queue", metavar="NAME", help="With --durable: queue of the run. Default: `default`.")
@click.option("--tenant", metavar="NAME", help="With --durable: tenant of the run. Workers serve the tenants in turn.")
@click.option(
    "--priority", metavar="N", type=click.IntRange(-10, 10),
    help="With --durable: from -10 to 10. A run with a higher priority starts first. Default: 0.",
)  # fmt: skip
@click.option(
    "--app-version",
    metavar="VERSION",
    help="With --durable: only workers with the same --app-version take the run.",
)
@click.option(
    "--chat", metavar="NAME:CHAT",
    help="With --durable: the channel and chat where `forge listen --durable` shows the run and asks its questions.",
)  # fmt: skip
@click.option(
    "--console", is_flag=True, help="Follow the run and answer its questions in the browser; see forge console."
)
def command(options: Options, prompt: str | None, **more: Any) -> int:
    """Run an agent.

    \b
    forge run PROMPT      one task
    forge run -           read the task from the standard input
    forge run             a conversation; /help lists its commands

    The agent works with the tools of this project. Its model is the first of these: --model, `agent.model` in
    forge.yaml, a provider whose API key is set, a local server.

    The model's text goes to the standard output, its calls go to the standard error. With --json every event is a line
    of JSON on the standard output, and the last line of a run is its run_finished event.

    If no rule allows a call, Forge asks at the terminal, and one key answers. Without a terminal the call is denied,
    unless --yes approves it. What you type during the run is a message to the model, which sees it before its next
    turn. Ctrl-C stops the run after its cleanup, a second Ctrl-C at once.

    The conversation is stored in the workspace: --session NAME continues it.

    With --durable every turn and every call is stored as it happens. If the process is killed, `forge runs resume` or
    any `forge worker` continues the run; finished calls are not repeated. Without a terminal, the run waits for the
    answers to its questions (exit code 3), and `forge runs answer` gives them.

    \b
    Exit codes: 0 the model answered
                1 the run ended in an error, or the agent repeated itself
                2 there is no model; a flag, the configuration, a policy or the workspace cannot be used
                3 the model has a question, and no one is there to answer
                4 a limit was reached
                130 interrupted
    """
    if prompt is not None and prompt != "-" and not prompt.strip():
        raise click.UsageError(
            'The prompt is empty. Say what to do: forge run "TASK"; or leave it out for a conversation.'
        )
    if more["expect"] is not None and more["built"] is None:
        raise click.UsageError("--expect needs --from, which names the build.")
    if more["built"] is not None and (options.dev or _parameter_source("config") is ParameterSource.COMMANDLINE):
        raise click.UsageError("--from runs a build. --config and --dev belong to forge build: leave them out.")
    named_files = {"--image": more.pop("image"), "--attach": more.pop("attach")}
    for flag in (flag for flag, paths in named_files.items() if paths):
        if prompt is None:
            raise click.UsageError(
                f'{flag} needs a prompt: forge run {flag} FILE "TASK". In a conversation, write @FILE.'
            )
        if more["console"]:
            raise click.UsageError(f"{flag} is for runs at the terminal: leave it out, or --console.")
    if more["explain_cache"] and (more["durable"] or more["console"]):
        raise click.UsageError("--explain-cache is for runs in this process: leave it out, or --durable and --console.")
    if more.pop("console"):
        return _run_in_console(options, prompt, **more)
    durable = {name: more.pop(name) for name in ("durable", *DURABLE_FLAGS)}
    if not durable.pop("durable"):
        _refuse_without_durable(**durable)
        durable = {}
    elif prompt is None:
        raise click.UsageError('A durable run needs its task at once: forge run --durable "TASK"')
    if more["output_schema"] is not None and (prompt is None or durable):
        raise click.UsageError('--output-schema is for one task: forge run --output-schema FILE "TASK", not --durable.')
    from forge.cli.running.run_prompts import RunFlags  # the whole agent, which showing the help does without

    named = _parameter_source("session") is not ParameterSource.DEFAULT
    flags = RunFlags(
        **more, session=options.session if named else None, reads_stdin=prompt == "-" or not sys.stdin.isatty()
    )
    if prompt is None:
        from forge.cli.running.chat import chat

        return chat(options, flags)
    task: Any = _read_prompt() if prompt == "-" else prompt
    if any(named_files.values()):
        task = _attach_files(task, named_files)
    if durable:
        return _run_durably(options, flags, task, **durable)
    return _run_task(options, flags, task)


for _option in command.params:
    if _option.name == "session":
        assert isinstance(_option, click.Option)
        _option.show_default = "a new one"
        _option.help = "The session to continue; created if it does not exist."


def _parameter_source(option: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(option)


def _refuse_without_durable(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and value is not False:
            raise click.UsageError(f"{_flag_name(name)} is for durable runs: add --durable.")


def _flag_name(name: str) -> str:
    return {"built": "--from"}.get(name, f"--{name.replace('_', '-')}")


def _run_in_console(options: Options, prompt: str | None, **more: Any) -> int:
    for name in ("built", "max_turns", "output_schema", "quiet", "plain", "audit", *DURABLE_FLAGS[1:]):
        if more[name]:
            raise click.UsageError(f"{_flag_name(name)} is for runs at the terminal: leave it out, or --console.")
    from forge.cli.commands.console import serve_console

    named = _parameter_source("session") is not ParameterSource.DEFAULT
    return serve_console(
        options,
        model=more["model"],
        database=more["database"],
        prompt=_read_prompt() if prompt == "-" else prompt or "",
        session=options.session if named else "",
    )


def _attach_files(prompt: str, named: Mapping[str, Sequence[str]]) -> Message:
    """Returns the prompt with files of the person, who may name any. Raises `Refusal`."""
    from forge.core.messages import Message
    from forge.workspace.reading import LARGEST_FILES

    files, left = [], LARGEST_FILES
    with refusals():
        for flag, path in ((flag, path) for flag, paths in named.items() for path in paths):
            try:
                content = read_regular(path, left)
            except OSError as error:
                message = f"reading {flag} {path[:200]}: {error.strerror}"
                hint = f"Name a file; all files of a prompt may have {LARGEST_FILES:,} bytes together."
                raise ToolError(message, ErrorKind.CONFIG, hint) from None
            files.append(Image(content, name=path) if flag == "--image" else recognise_any(content, path))
            left -= len(content)
    return Message("user", prompt, attachments=tuple(files))


def _run_durably(options: Options, flags: Any, prompt: Any, **how: Any) -> int:
    with refusals():
        from forge.project.runs.durable_runs import check_installed  # an extra

        check_installed()
    from forge.cli.running.durable_run import run_durably

    return run_durably(options, flags, prompt, **how)


def _run_task(options: Options, flags: Any, prompt: Any) -> int:
    if not flags.reads_stdin and sys.stderr.isatty() and not options.json:
        from forge.cli.running.chat import run_task  # pipes do without it

        return run_task(options, flags, prompt)
    from forge.cli.running.run_prompts import open_prompt_runner

    with open_prompt_runner(options, flags) as runner:
        ending = runner.ask(prompt, wait=True)
        runner.say_goodbye(ending)
        return ending.exit_code


def _read_prompt() -> str:
    from forge.cli.terminal.keyboard import LONGEST_MESSAGE, read_all

    content = read_all(LONGEST_MESSAGE)
    if len(content) > LONGEST_MESSAGE:
        hint = "Put the long part into a file of the workspace and name it in the prompt."
        raise click.UsageError(f"The prompt on the standard input is longer than {LONGEST_MESSAGE:,} bytes. {hint}")
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if not text:
        raise click.UsageError("The standard input holds no prompt. Write one to it: echo 'TASK' | forge run -")
    return text
