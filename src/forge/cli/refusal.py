"""A command that cannot start: the words of whoever refused it, and exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from forge.core.errors import DefinitionError, ToolError


class Refusal(click.ClickException):
    exit_code = 2


@contextmanager
def refusals() -> Iterator[None]:
    """Errors in what the person gave (flags, configuration, rules, recordings) end the command."""
    try:
        yield
    except ToolError as error:
        raise Refusal("\n".join(filter(None, (error.message, error.suggestion)))) from error
    except DefinitionError as error:
        raise Refusal(str(error)) from error
    except ValueError as error:
        from forge.permissions.rule import PolicyError  # listing tools does without

        if not isinstance(error, PolicyError):
            raise
        raise Refusal(str(error)) from error
