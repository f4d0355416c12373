"""Provides a model that asks no language model: it runs the message of the person as a command line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from forge.core.errors import ErrorKind
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, ProviderError, StreamPart

COMMAND = "command:bash"
_ENDED_BADLY = re.compile(r"^\[exit code [^\n]*\]$", re.MULTILINE)  # bash notes it below the output, unless it is 0


class CommandModel:
    """Calls one tool with the last message of the person as its `command`, and answers with the tool's result.

    The call passes the same steps and rules as a call of a language model. A command that fails is an error of the run.

    Args:
        tool: the tool that runs command lines.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool

    def __str__(self) -> str:
        return f"command:{self.tool}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the call first, then the text of its result. Raise `ProviderError` if the command failed."""
        last = request.messages[-1]
        if last.role != "tool":
            if self.tool not in [spec.name for spec in request.tools]:
                raise ProviderError(
                    f"the command cannot be run: the agent has no tool {self.tool}",
                    ErrorKind.CONFIG,
                    f"Add it to the tools of forge.yaml: {{name: {self.tool}}}.",
                )
            yield Message("assistant", tool_calls=(ToolCall(self.tool, {"command": last.text}),))
            return
        if last.is_error or _ENDED_BADLY.search(last.text):
            raise ProviderError(f"the command failed: {last.text}", ErrorKind.USER)
        yield Message("assistant", last.text)
