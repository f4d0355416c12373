"""Instructions that are a function: called when a conversation begins, or with the context of each run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from forge.core.context import RunContext, Scope
from forge.core.errors import ErrorKind, ToolError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", contravariant=True, default=Any)  # `Agent[Weather]` stays a valid annotation
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT", contravariant=True)

Text = str | Awaitable[str]
Instructions = str | Callable[[], Text] | Callable[[RunContext[DepsT]], Text]
"""A text, or a function of nothing or of the run's context. The function may be async."""


def takes_context(instructions: object) -> bool:
    """Returns whether instructions are a function that needs the context of the run."""
    if not callable(instructions):
        return False
    try:
        parameters = inspect.signature(instructions).parameters.values()
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters
    )


def call_instructions(instructions: Any, scope: Scope) -> Any:
    """Returns the text, or an awaitable of it."""
    if not callable(instructions):
        return instructions
    return instructions(RunContext(scope)) if takes_context(instructions) else instructions()


def is_evaluated_per_run(instructions: object) -> bool:
    """Returns whether instructions are a function that is called for each run: of the context, or async."""
    return takes_context(instructions) or inspect.iscoroutinefunction(instructions)


async def evaluate_instructions(instructions: Any, scope: Scope) -> str | None:
    """Returns the instructions of a run that starts now; None where a conversation keeps those it began with."""
    if not is_evaluated_per_run(instructions):
        return None
    text = call_instructions(instructions, scope)
    return check_text(await text if inspect.isawaitable(text) else text)


def check_text(text: Any) -> str:
    """Returns instructions that are a text. Raises `ToolError` for anything else."""
    if isinstance(text, str):
        return text
    if inspect.isawaitable(text):
        getattr(text, "close", lambda: None)()
        message = "the instructions are an async function, and only agent.run, agent.stream and DurableAgent await it"
        raise ToolError(message, ErrorKind.CONFIG, "Write a plain function.")
    message = f"the instructions are a function that returned {type(text).__name__}"
    raise ToolError(message, ErrorKind.CONFIG, "Return a text from it.")
