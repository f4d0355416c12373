"""Ends a command that cannot start: prints the reason and exits with code 2."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import click

from forge.core.errors import DefinitionError, ToolError


class Refusal(click.ClickException):
    """The reason for which a command cannot start."""

    exit_code = 2


def listen_problem(error: Exception) -> str:
    """Return why a server cannot listen, in a person's words."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "another program is using the port"
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def refusals() -> Iterator[None]:
    """Turns errors in the person's input (flags, configuration, rules, recordings) into a `Refusal`."""
    try:
        yield
    except ToolError as error:
        raise Refusal("\n".join(filter(None, (error.message, error.suggestion)))) from error
    except DefinitionError as error:
        raise Refusal(str(error)) from error
    except ValueError as error:
        from forge.permissions.rules import PolicyError  # listing tools does without

        if not isinstance(error, PolicyError):
            raise
        raise Refusal(str(error)) from error
