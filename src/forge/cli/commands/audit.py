"""`forge audit`: prints the log of events of a workspace."""

from __future__ import annotations

import json
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import clip, width_of
from forge.project.config import load_configuration
from forge.workspace.state import NAME as STATE

if TYPE_CHECKING:  # loaded when a log is read
    from forge.project.audit.log import Log, LogSummary
    from forge.project.audit.log_events import LogEntry

DEFAULT_EVENTS = (
    "run_*",
    "tool_call_end",
    "tool_completed",
    "tool_reconciled",
    "permission_*",
)  # for people; other events repeat these in pieces
PAUSE = 250  # milliseconds between two reads of a log that is followed
LAST = 10  # events that are shown before new ones
LONGEST_LINE = 300  # characters of an event's line where no terminal limits its width
NARROWEST = 20  # columns of a terminal for what happened


@click.command("audit")
@with_options("session")
@click.option("--tool", "tools", metavar="GLOB", multiple=True, help="Only calls of matching tools, such as 'file_*'.")
@click.option(
    "--agent",
    "agents",
    metavar="GLOB",
    multiple=True,
    help="Only these agents: `main` is the agent that you ran, `main/NAME` a sub-agent.",
)
@click.option(
    "--event", "events", metavar="GLOB", multiple=True, help="Only these events, such as run_finished or '*'."
)
@click.option("--since", metavar="WHEN", help="90s, 30m, 2h, 3d, 1w ago, or a date such as 2026-05-01 or …T14:30.")
@click.option("--until", metavar="WHEN", help="End of the period, in the same formats.")
@click.option("--denied", is_flag=True, help="Only refused calls, and the answers that refused them.")
@click.option("--errors", is_flag=True, help="Only calls and runs that failed.")
@click.option("--last", metavar="N", type=click.IntRange(1, 100_000), help="Only the last N matching events.")
@click.option("--follow", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--summary", is_flag=True, help="Print a table by tool: calls, errors, refusals, questions, seconds.")
@click.option("--file", metavar="FILE", help="Log file to read. Default: .forge/audit.ndjson in the workspace.")
def command(options: Options, **flags: Any) -> None:
    """Show the event log: what agents did here, oldest first.

    \b
    forge audit --since 2h                  the last two hours
    forge audit --denied --last 20          the last 20 refusals
    forge audit --tool 'bash*' --errors     commands that failed
    forge audit --summary --since 2026-05-01
    forge audit --follow --json | jq .call.name

    Flags with a GLOB can be repeated. Rotated logs (audit.ndjson.1, …-20260501.gz) are read, too.

    \b
    With --json: the logged events, one per line: {event, ts, seq, session, agent, task?, call?, …};
    all kinds of events, unless --event selects some.
    With --json --summary: {from, to, runs: {reason: N}, tools: [{tool, calls, errors, denied, asked, unfinished,
    seconds}], total: {…}, unreadable}.

    \b
    Exit codes: 0 success, even if nothing matches     2 a flag or the log cannot be used     130 interrupted
    """
    if flags["follow"] and flags["summary"]:
        raise click.UsageError("--follow and --summary cannot be combined. Remove one of them.")
    with refusals():
        log = _log(options, flags)
        if flags["summary"]:
            _print_summary(log, as_json=options.json)
        else:
            _print_events(_entries(log, flags), as_json=options.json, at_once=flags["follow"])
    for note in log.notes:
        click.echo(f"forge: {note}", err=True)
    if log.unreadable:
        are = "1 line is" if log.unreadable == 1 else f"{log.unreadable:,} lines are"
        click.echo(f"forge: {are} damaged, probably by a crash, and left out", err=True)


for _option in command.params:
    if _option.name == "session":
        assert isinstance(_option, click.Option)
        _option.show_default = "all of them"
        _option.metavar = "GLOB"
        _option.help = "Only sessions with this name."


def _log(options: Options, flags: dict[str, Any]) -> Log:
    from forge.project.audit.log import Log, LogSummary, index_beside
    from forge.project.audit.log_events import EventFilter

    path = _path(options, flags["file"])
    usual = LogSummary.COUNTED if flags["summary"] else () if options.json else DEFAULT_EVENTS
    wanted = EventFilter(
        tools=flags["tools"],
        sessions=_session(options),
        agents=flags["agents"],
        events=flags["events"] or usual,
        since=_parse_moment("--since", flags["since"], 0.0),
        until=_parse_moment("--until", flags["until"], float("inf")),
        denied=flags["denied"],
        errors=flags["errors"],
    )
    own = flags["file"] is None
    log = Log(path, wanted, rotated=own, index=index_beside(path) if own else None)
    if not log.files and not flags["follow"]:
        if flags["file"] is not None:
            raise Refusal(
                f"cannot show the audit log {flags['file']!r}: there is no such file\n"
                "Choose another file, or omit --file to read the workspace's log."
            )
        click.echo(f"forge: the event log {path} does not exist yet; forge run and forge tool call create it", err=True)
    return log


def _path(options: Options, file: str | None) -> Path:
    if file is not None:
        return Path(file).absolute() if not Path(file).is_symlink() else Path(file).resolve()
    from forge.project.assemble.access import workspace_root
    from forge.project.audit.log import NAME

    return workspace_root(options.workspace, load_configuration(options.config).root) / STATE / NAME


def _session(options: Options) -> tuple[str, ...]:
    """Returns the sessions that --session names; the default of the common flag does not count here."""

    named = click.get_current_context().get_parameter_source("session") is not ParameterSource.DEFAULT
    return (options.session,) if named else ()


def _parse_moment(flag: str, text: str | None, otherwise: float) -> float:
    if text is None:
        return otherwise
    from forge.project.audit.log_events import parse_moment

    try:
        return parse_moment(text, time.time())
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{flag} {text!r} is not a time: write 90s, 30m, 2h, 3d or 1w, or a date such as 2026-05-01 or"
            " 2026-05-01T14:30."
        ) from None


def _entries(log: Log, flags: dict[str, Any]) -> Iterable[LogEntry]:
    if flags["follow"]:
        return log.follow(_make_wait(), flags["last"] or LAST)
    return log.last(flags["last"]) if flags["last"] else log


def _make_wait() -> Callable[[], bool]:
    """Returns a function that waits a moment, and returns False once the reader of the output has gone."""

    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    return lambda: not watch.poll(PAUSE)


def _print_events(entries: Iterable[LogEntry], *, as_json: bool, at_once: bool) -> None:
    at_terminal = sys.stdout.isatty()
    for entry in entries:
        if not as_json:
            line = _clip_line(*_render_event(entry.event), at_terminal=at_terminal)
        elif at_terminal:  # other people's text must not steer it: everything but ASCII is escaped
            line = json.dumps(entry.event)
        else:
            line = entry.line.decode("utf-8", "replace").rstrip("\r\n")
        sys.stdout.write(f"{line}\n")  # click would flush every one of a million lines
        if at_once:
            sys.stdout.flush()


def _clip_line(start: str, text: str, *, at_terminal: bool) -> str:
    """Shortens the text to the terminal's width; the time and the session are whole."""
    if not at_terminal:
        line = start + text
        return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"

    return start + clip(text, max(shutil.get_terminal_size().columns - width_of(start), NARROWEST))


def _render_event(event: dict[str, Any]) -> tuple[str, str]:
    """Renders one event on one line, without invisible characters: its time and session, and what happened."""
    who = _shorten(event.get("session"), 40)
    agent = _shorten(event.get("agent"), 40)
    who = who if agent in ("", "main") else f"{who}/{agent}"
    return f"{_format_time(event.get('ts'))}  {who}  ", _describe_event(event)


def _describe_event(event: dict[str, Any]) -> str:
    from forge.project.audit.log_events import is_error, is_refusal, result_of, tool_of

    kind = event.get("event")
    tool = _shorten(tool_of(event), 80)
    if kind in ("tool_call_end", "tool_completed"):
        result = result_of(event)
        if is_error(event):
            mark = "⊘" if is_refusal(event) else "✗"
            return f"{mark} {tool}: {_shorten(result.get('error'))}  {_shorten(_arguments(event))}"
        later = " (in the background)" if kind == "tool_completed" else ""
        return f"✓ {tool}{later}  {_seconds(event)}{_shorten(_arguments(event))}"
    if kind == "tool_reconciled":
        message = f"{_shorten(event.get('state'))} {_shorten(event.get('reason'))}".rstrip()
        return f"↻ {tool}, whose worker was lost: {message}"
    if kind == "permission_asked":
        others = event.get("others")
        more = f" and {len(others):,} more" if isinstance(others, list) and others else ""
        return f"? {tool} wants to {_shorten(event.get('permission') or 'run')} {_shorten(event.get('target'))}{more}"
    if kind == "permission_answered":
        by = _shorten(event.get("by"))
        who = " (no one to ask)" if by == "nobody" else f", by {by}" if by else ""
        return f"! {tool}: {_shorten(event.get('answer'))}{who}"
    if kind == "run_started":
        return f"▶ {_shorten(event.get('prompt'))}"
    if kind == "run_finished":
        why = _shorten(event.get("error") or event.get("text"))
        return f"■ {_shorten(event.get('reason'))} after {_shorten(event.get('turns'))} turns: {why}"
    rest = {
        key: value
        for key, value in event.items()
        if key not in ("event", "ts", "seq", "session", "agent", "task", "call")
    }
    return f"· {_shorten(kind)} {tool}  {_shorten(json.dumps(rest, ensure_ascii=False))}".replace("   ", "  ")


def _arguments(event: dict[str, Any]) -> Any:
    call = event.get("call")
    arguments = call.get("arguments") if isinstance(call, dict) else None
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _seconds(event: dict[str, Any]) -> str:
    seconds = event.get("seconds")
    return f"{seconds:.2f} s  " if isinstance(seconds, float | int) and abs(seconds) < 1e9 else ""


def _shorten(value: Any, limit: int = LONGEST_LINE) -> str:
    from forge.permissions.questions import show_invisible

    text = value if isinstance(value, str) else "" if value is None else str(value)
    return show_invisible(text, limit).replace("\n", "⟨U+000A⟩")


def _format_time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return "????-??-?? ??:??:??"


def _print_summary(log: Log, *, as_json: bool) -> None:
    summary = log.summary()
    if as_json:
        click.echo(json.dumps({**summary.to_dict(), "unreadable": log.unreadable}, ensure_ascii=False))
        return
    for line in _table(summary):
        click.echo(line)


def _table(summary: LogSummary) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("TOOL", "CALLS", "ERRORS", "DENIED", "ASKED", "UNFINISHED", "SECONDS")]
    for name, one in [*summary.tools_by_calls(), ("all", summary.total)]:
        counts = (one.calls, one.errors, one.denied, one.asked, one.unfinished)
        rows.append((_shorten(name, 60), *(f"{count:,}" for count in counts), f"{one.seconds:,.2f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip()
    if summary.first is not None:
        runs = ", ".join(f"{_shorten(reason)} {count:,}" for reason, count in sorted(summary.runs.items()))
        yield f"\nFrom {_format_time(summary.first)} to {_format_time(summary.last)}; runs: {runs or 'none ended'}."
