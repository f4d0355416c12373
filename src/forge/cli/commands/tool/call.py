"""`forge tool call`: calls a tool as an agent does, through the same steps and the same policy."""

from __future__ import annotations

from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.running.tool_names import complete_name


@click.command("call")
@click.argument("name", metavar="NAME|-", shell_complete=complete_name)
@click.argument("arguments", metavar="[JSON|-]", required=False)
@with_options
@click.option("--dry-run", is_flag=True, help="Say what would be done; only calls that read are made.")
@click.option("--record", metavar="FILE", help="Append the call and its result to a file.")
@click.option("--replay", metavar="FILE", help="Answer from such a file instead of calling the tool.")
@click.option("--audit", metavar="FILE", help="Where the log of events goes; .forge/audit.ndjson by default.")
@click.option("--no-audit", is_flag=True, help="Keep no log of events.")
def command(options: Options, name: str, arguments: str | None, **flags: Any) -> int:
    """Call a tool and print its result.

    \b
    forge tool call NAME             without arguments
    forge tool call NAME JSON        {"parameter": value, …}
    forge tool call NAME -           the arguments come from the standard input
    forge tool call -                many calls: one JSON object a line in, one result a line out, in order

    A line of `call -` is {"name": …, "arguments": {…}, "id": …}; the id comes back with the result. Each line is its
    own turn. Lines that only read may run side by side; a line that cannot be read gets an error in its place.

    What asks is asked at the terminal. Without a terminal the answer is no, unless --yes or a rule says otherwise.

    The result is JSON on one line; on a terminal, without --json, it is text.

    \b
    Exit codes: 0 the call succeeded, or every line of `call -` is answered
                1 the call failed, broken arguments included: the result says why
                2 there is no such tool; a flag, the configuration, a policy or the workspace cannot be used
                130 interrupted
    """
    if name == "-" and arguments is not None:
        raise click.UsageError("`forge tool call -` reads its calls from the standard input and takes no arguments.")
    from forge.cli.running.call_tool import (  # the whole pipeline, which completing a name does without
        call_lines,
        call_once,
    )

    return call_lines(options, flags) if name == "-" else call_once(options, flags, name, arguments)
