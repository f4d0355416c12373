"""`forge listen`: people talk to the project's agent in Slack, Telegram and the like."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals


@click.command("listen")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_options("policy", "trial", "dev")
@click.option("--model", metavar="NAME", help="Model to use instead of the configured one.")
@click.option(
    "--answer-within",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.1, 7 * 24 * 60),
    metavar="MINUTES",
    help="Time for a person to answer a question; then the answer is no.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address for the requests of Slack's Events API and Telegram's webhook.",
)
@click.option(
    "--durable", is_flag=True, help="Store the runs and leave them to `forge worker`; their questions outlive it."
)
@click.option("--database", metavar="URL", help="With --durable: database of the runs. Default: as for `forge worker`.")
@click.option("--app-version", metavar="VERSION", help="With --durable: version of the workers that take the runs.")
@click.option("--port", default=8485, show_default=True, type=click.IntRange(0, 65535), help="Port for these requests.")
def command(options: Options, names: tuple[str, ...], **flags: Any) -> int:
    """Let people talk to the agent in chats.

    \b
    forge listen             all channels of forge.yaml in which people are named
    forge listen team        only the channel team

    A message of a person in `people` starts a run, or steers the one in progress; `stop` stops it. A conversation is a
    stored session. Questions appear in the chat; only people in `approvers` can answer them. Messages are stored
    before they are acknowledged, so that a restart loses nothing. Stop with Ctrl-C or SIGTERM: the next start says
    which runs were interrupted.

    With --durable, workers run what people ask: start `forge worker`, too. Then neither process loses a run or an
    answer. Runs that a program submits for a chat, such as an alert, are shown there:
    `forge run --durable --detach --chat NAME:CHAT "…"`.

    \b
    Exit codes: 0 stopped by SIGTERM
                2 a flag, the configuration, a token, the workspace or the port cannot be used
                130 interrupted
    """
    from forge.cli.running.serve_mcp import open_socket, run_until_signal
    from forge.doors.chats import find_chats, listen

    with refusals():
        run_options = options.for_project()
        chats = find_chats(run_options, names)
        needs_port = any(getattr(one.channel, "takes_requests", False) for one in chats.values())
        show = _print_json if options.json else _print_line
        logging.getLogger("forge.channels").addHandler(_ProblemHandler(show))
        settings = {"model": flags["model"], "answer_within": flags["answer_within"] * 60, "progress": show}
        if flags["durable"]:
            settings |= {"durable": True, "database": flags["database"] or "", "version": flags["app_version"] or ""}
        elif flags["database"] or flags["app_version"]:
            raise click.UsageError("--database and --app-version are for --durable.")
        if not needs_port:
            asyncio.run(run_until_signal(listen(run_options, chats, **settings)))
            return 0
        with open_socket(flags["host"], flags["port"]) as listening:
            host, port = listening.getsockname()[:2]
            click.echo(f"forge: requests are taken at http://{host}:{port}/NAME", err=True)
            asyncio.run(run_until_signal(listen(run_options, chats, listening=listening, **settings)))
    return 0


class _ProblemHandler(logging.Handler):
    """Shows what a channel warns of, such as a connection that fails and is tried again."""

    def __init__(self, show: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show({"event": "problem", "channel": record.name.rpartition(".")[2], "problem": record.getMessage()})


def _print_json(entry: Mapping[str, Any]) -> None:
    click.echo(json.dumps(entry, ensure_ascii=False))


def _print_line(entry: Mapping[str, Any]) -> None:
    from forge.cli.terminal.print_result import harmless

    known = ("event", "channel", "chat", "person")
    where = " ".join(str(entry[name]) for name in known[1:] if name in entry)
    more = ", ".join(f"{name}: {value}" for name, value in entry.items() if name not in known)
    click.echo(harmless(f"{entry['event'].replace('_', ' ')}: {where}{f' ({more})' if more else ''}"), err=True)
