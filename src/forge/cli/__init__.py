"""The command `forge`: its entry point, exit codes and error messages."""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from forge.cli.group import LazyGroup, explain_option

ENDS = """
Exit codes: 0 success; 1 the call or run ended in an error (its result is still printed); 2 usage, unknown name,
bad configuration; 3 waits for a person; 4 a limit was reached; 130 interrupted.
"""


@click.group(
    cls=LazyGroup,
    modules={
        "acp": "forge.cli.commands.acp",
        "audit": "forge.cli.commands.audit",
        "build": "forge.cli.commands.build",
        "completion": "forge.cli.commands.completion",
        "config": "forge.cli.commands.config",
        "console": "forge.cli.commands.console",
        "demo": "forge.cli.commands.demo",
        "doctor": "forge.cli.commands.doctor",
        "eval": "forge.cli.commands.eval",
        "import": "forge.cli.commands.import_",
        "init": "forge.cli.commands.init",
        "listen": "forge.cli.commands.listen",
        "mcp": "forge.cli.commands.mcp",
        "memory": "forge.cli.commands.memory",
        "policy": "forge.cli.commands.policy",
        "run": "forge.cli.commands.run",
        "runs": "forge.cli.commands.runs",
        "schedule": "forge.cli.commands.schedule",
        "serve": "forge.cli.commands.serve",
        "session": "forge.cli.commands.session",
        "skill": "forge.cli.commands.skill",
        "tool": "forge.cli.commands.tool",
        "trust": "forge.cli.commands.trust",
        "undo": "forge.cli.commands.undo",
        "worker": "forge.cli.commands.worker",
    },
    epilog=ENDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, help="Print the version.",
    callback=lambda ctx, _, wanted: _print_version(ctx) if wanted else None,
)  # fmt: skip
def forge() -> None:
    """Run agents, and list, inspect and call their tools."""


def main() -> NoReturn:
    """The entry point of the program."""
    _occupy_standard_streams()
    code = perform(sys.argv[1:])
    gc.freeze()  # the interpreter would collect once more at its end, before the system takes everything back
    sys.exit(code)


def perform(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. Errors are printed as a sentence, never as a traceback."""
    _use_utf8()
    if any(name.startswith("OTEL_") for name in os.environ):
        from forge.cli.running.telemetry import start_telemetry  # few have set it up

        start_telemetry(arguments)
    try:
        code = forge.main(list(arguments), prog_name="forge", standalone_mode=False, color=_colour())
        sys.stdout.flush()
    except click.NoSuchOption as error:
        explain_option(error).show()
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SystemExit as stop:  # click's own way out, also when nobody reads the output any more
        return stop.code if isinstance(stop.code, int) else 1
    except BrokenPipeError:
        _leave_quietly()
        return 1
    except Exception as error:
        _print_error(error, in_detail="--debug" in arguments)
        _drop_unwritable_output()
        return 1
    return code if isinstance(code, int) else 0


def _occupy_standard_streams() -> None:
    """Opens /dev/null for closed standard streams, so that no file opened later takes their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _colour() -> bool | None:
    """Returns None to let each stream decide: colours on a terminal, none elsewhere."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _print_version(ctx: click.Context) -> None:
    from forge.project.version import version  # reads the installed metadata: only where it is asked for

    click.echo(f"forge {version()}")
    ctx.exit()


def _use_utf8() -> None:
    """Writes UTF-8 to pipes and files whatever the locale says; a terminal keeps its encoding but never fails."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _drop_unwritable_output() -> None:
    """Drops output that cannot be written: the error is printed, and the interpreter's last flush must not fail."""
    try:
        sys.stdout.flush()
    except OSError:  # a full disk
        _leave_quietly()


def _leave_quietly() -> None:
    """Sends the interpreter's last flush to /dev/null, because the reader of the output has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _explain_system_error(error: OSError, message: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f"writing {error.filename}" if error.filename else "writing the output"
        return f"{place} failed: the disk is full\nFree some space, or write elsewhere, then run the command again."
    if error.filename and error.strerror:
        return f"the system refused {error.filename}: {error.strerror}\nCheck that the path exists and may be used."
    return f"the system reports: {error.strerror or message}\nRun it again with --debug to see where."


def _print_error(error: Exception, *, in_detail: bool) -> None:
    if in_detail:
        traceback.print_exception(error)
        return
    message = " ".join(str(error).split())[:500]
    if isinstance(error, OSError):
        click.echo(f"forge: {_explain_system_error(error, message)}", err=True)
        return
    click.echo(f"forge: this should not happen: {type(error).__name__}: {message}", err=True)
    click.echo("Run it again with --debug to see where, and report it.", err=True)
