"""A model that calls every tool once, and the guard that lets a test ask no other model than a made one."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forge.core.arguments.example import example_arguments
from forge.core.arguments.schema import compile_parser
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.http.outgoing import NO_REAL_REQUESTS


class EveryTool:
    """A model that calls every tool it is offered once, with made-up valid arguments, and then answers.

    The answer of an agent with an `output` is made up, too. Tools that hand over to the person are not called. So a
    test learns that the tools of an agent work together, and what its rules say about them.

    Args:
        text: the answer.
        arguments: the arguments of some tools, or of `final_answer`, by name; the others are made from the schema.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> result = Agent(EveryTool(arguments={"add": {"a": 2, "b": 2}}), tools=[add]).run_sync("Hi")
        >>> [message.text for message in result.messages]
        ['Hi', '', '4', 'Done.']
    """

    def __init__(self, text: str = "Done.", arguments: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.text = text
        self._arguments = dict(arguments or {})

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Yields the calls that the history does not have yet; then the answer. Raises `ProviderError`."""
        offered = {spec.name: spec for spec in request.tools}
        if unknown := sorted(self._arguments.keys() - offered.keys()):
            problem = f"there is no tool {unknown[0]!r}"
            raise _error(problem, f"The tools are {', '.join(sorted(offered)) or 'none'}.")
        made = {call.name for message in request.messages for call in message.tool_calls}
        wanted = [spec for name, spec in offered.items() if name not in made and not spec.ends_turn]
        if not wanted and "final_answer" in offered:
            wanted = [offered["final_answer"]]
        calls = tuple(ToolCall(spec.name, json.dumps(self._make_arguments(spec))) for spec in wanted)
        yield Message("assistant", "" if calls else self.text, calls, usage=Usage())

    def _make_arguments(self, spec: ToolSpec) -> Mapping[str, Any]:
        """Returns valid arguments. Raises `ProviderError` where none can be made up."""
        if spec.name in self._arguments:
            return self._arguments[spec.name]
        made = example_arguments(spec.parameters) if spec.parameters.get("properties") else {}
        try:
            compile_parser(spec)(made)
        except ToolError as error:
            hint = f'Give them: EveryTool(arguments={{"{spec.name}": {{…}}}}).'
            raise _error(f"no valid arguments were found for the tool {spec.name!r}: {error.message}", hint) from None
        return made


def _error(problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"calling every tool once: {problem}", ErrorKind.CONFIG, suggestion)


@contextmanager
def no_real_requests() -> Iterator[None]:
    """Lets no model be asked inside `with`, except `Scripted`, `EveryTool` and your own. Programs started inside, too.

    A run that would ask one ends with an error that says so. The fixture `forge_no_real_requests` does the same for a
    test, and the variable `FORGE_NO_REAL_REQUESTS=1` for all.

    Example:
        >>> agent = Agent("ollama:qwen3")
        >>> with no_real_requests():
        ...     agent.run_sync("Hi").error.message
        'asking ollama at 127.0.0.1:11434: FORGE_NO_REAL_REQUESTS is set, so nothing was sent'
    """
    before = os.environ.get(NO_REAL_REQUESTS)
    os.environ[NO_REAL_REQUESTS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[NO_REAL_REQUESTS]
        else:
            os.environ[NO_REAL_REQUESTS] = before
