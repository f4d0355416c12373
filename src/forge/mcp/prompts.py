"""Prompts: messages that a program offers to the people behind MCP clients, such as slash commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from forge.core.errors import DefinitionError
from forge.core.messages import Message
from forge.core.result import Attachment, ToolResult
from forge.core.spec import ToolOptions
from forge.core.tool import FunctionTool
from forge.mcp.resources import Completion, wrap_result

MOST_MESSAGES = 100  # of one prompt


class Prompt(FunctionTool[..., Any]):
    """A function that returns messages; `@prompt` makes one. Its parameters are the arguments of the prompt.

    Args:
        function: returns the messages.
        complete: the values of a parameter.
        options: fields of `ToolSpec`.

    Example:
        >>> @prompt
        ... def plan(goal: str) -> str:
        ...     "Plan a change."
        ...     return f"Plan how to reach this: {goal}"
        >>> plan.spec.name
        'plan'
    """

    def __init__(
        self,
        function: Callable[..., Any],
        complete: Mapping[str, Completion] | None = None,
        options: ToolOptions | None = None,
    ) -> None:
        self.complete = dict(complete or {})
        super().__init__(wrap_result(function, _result_of), options or {})
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


@overload
def prompt(function: Callable[..., Any], /) -> Prompt: ...
@overload
def prompt(
    *, complete: Mapping[str, Completion] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Prompt]: ...
def prompt(
    function: Callable[..., Any] | None = None,
    /,
    *,
    complete: Mapping[str, Completion] | None = None,
    **options: Any,
) -> Any:
    """Offers a function as a prompt to MCP clients: `@prompt`.

    The function returns a text, an `Attachment`, a `Message`, or a list of these. A text or an attachment is a message
    of the user. An attachment that is no image and no sound is sent as an embedded resource; its name may be a URI.

    Args:
        function: a plain function or a coroutine function. Its docstring describes the prompt.
        complete: the values of a parameter: a collection, or a function of the text so far.
        options: fields of `ToolSpec`, such as `permissions` and `timeout`.

    Example:
        >>> @prompt
        ... def review(file: str) -> str:
        ...     "Review a file."
        ...     return f"Review {file}. Begin with the worst problem."
        >>> review("main.py")
        'Review main.py. Begin with the worst problem.'
    """
    if function is not None:
        return Prompt(function, complete)
    return lambda decorated: Prompt(decorated, complete, ToolOptions(**options))  # type: ignore[typeddict-item]


def _result_of(value: Any) -> ToolResult:
    """Returns the messages as data, and their attachments."""
    if isinstance(value, ToolResult):
        return value
    parts = list(value) if isinstance(value, list | tuple) else [value]
    if len(parts) > MOST_MESSAGES:
        raise DefinitionError(f"a prompt returned {len(parts)} messages, the limit is {MOST_MESSAGES}")
    messages: list[dict[str, Any]] = []
    attachments: list[Attachment] = []
    for part in parts:
        role = "assistant" if isinstance(part, Message) and part.role == "assistant" else "user"
        for one in (part,) if isinstance(part, Attachment) else part.attachments if isinstance(part, Message) else ():
            messages.append({"role": role, "attachment": len(attachments)})
            attachments.append(one)
        text = part.text if isinstance(part, Message) else "" if isinstance(part, Attachment) else str(part)
        if text:
            messages.append({"role": role, "text": text})
    return ToolResult(for_llm="", data={"messages": messages}, attachments=tuple(attachments))
