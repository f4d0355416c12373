"""`forge tool call`: calls a tool as an agent does, through the same steps and the same policy."""

from __future__ import annotations

from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.running.tool_names import complete_name


@click.command("call")
@click.argument("name", metavar="NAME|-", shell_complete=complete_name)
@click.argument("arguments", metavar="[JSON|-|NAME=VALUE...]", nargs=-1)
@with_options("policy", "yes", "session", "dev", "trial")
@click.option("--dry-run", is_flag=True, help="Show what would be done; only calls that read are made.")
@click.option("--record", metavar="FILE", help="Append the call and its result to this file.")
@click.option("--replay", metavar="FILE", help="Answer from a recorded file instead of calling the tool.")
@click.option("--audit", metavar="FILE", help="File for the event log. Default: .forge/audit.ndjson.")
@click.option("--no-audit", is_flag=True, help="Write no event log.")
def command(options: Options, name: str, arguments: tuple[str, ...], **flags: Any) -> int:
    """Call a tool and print its result.

    \b
    forge tool call NAME             without arguments
    forge tool call NAME text="to be" count=3
    forge tool call NAME text=@notes.txt
    forge tool call NAME '{"text": "to be", "count": 3}'
    forge tool call NAME -           read the arguments from the standard input
    forge tool call -                many calls: one JSON object per line in, one result per line out, in order

    A value of NAME=VALUE is read as the parameter's schema says: text, a number, true or false, JSON for a list or an
    object. A list also takes several values: tag=a tag=b. NAME=@FILE takes the text of a file in the workspace;
    NAME=@@text is the text "@text".

    A line of `call -` is {"name": …, "arguments": {…}, "id": …}; the id comes back with the result. Each line is its
    own turn. Calls that only read may run in parallel. A line that cannot be parsed gets an error in its place.

    If no rule allows the call, Forge asks at the terminal. Without a terminal the call is denied, unless --yes approves
    it.

    The result is JSON on one line; on a terminal, without --json, it is text.

    \b
    Exit codes: 0 the call succeeded, or every line of `call -` is answered
                1 the call failed, broken arguments included: the result says why
                2 there is no such tool; a flag, the configuration, a policy or the workspace cannot be used
                130 interrupted
    """
    if name == "-" and arguments:
        raise click.UsageError("`forge tool call -` reads its calls from the standard input and takes no arguments.")
    from forge.cli.running.call_tool import (  # the whole pipeline, which completing a name does without
        call_lines,
        call_once,
    )

    return call_lines(options, flags) if name == "-" else call_once(options, flags, name, arguments)
