"""Prompts of MCP servers as commands of the chat: `/server:prompt name=value`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message

if TYPE_CHECKING:  # most projects have no servers
    from forge.cli.running.chat_session import ChatSession
    from forge.sources.mcp import McpServer
    from forge.sources.mcp.contents import ServerPrompt

FRESH = 30.0  # seconds for which a list of prompts counts
PATIENCE = 5.0  # seconds for all servers to list their prompts, or for one to suggest values


class ChatPrompts:
    """The prompts of the open servers of a chat."""

    def __init__(self, chat: ChatSession, servers: Mapping[str, McpServer]) -> None:
        self.chat = chat
        self._servers = servers
        self._listed: dict[str, tuple[McpServer, ServerPrompt]] = {}
        self._listed_at = float("-inf")

    def find_all(self) -> dict[str, tuple[McpServer, ServerPrompt]]:
        """Returns the prompts by command. Servers that do not answer are left out."""
        if self._servers and time.monotonic() - self._listed_at > FRESH:
            self._listed = self.chat.loop.do(self._read())
            self._listed_at = time.monotonic()
        return self._listed

    def describe(self) -> dict[str, str]:
        """Returns the help of each command."""
        return {
            command: " ".join(filter(None, (prompt.description, _usage(prompt))))
            for command, (_, prompt) in self.find_all().items()
        }

    def fetch(self, command: str, rest: str) -> str:
        """Returns the text of a prompt. Raises `ToolError`."""
        server, prompt = self.find_all()[command]
        arguments = read_arguments(command, prompt, rest)
        return join_messages(self.chat.do(server.get_prompt(prompt.name, arguments)))

    def complete(self, line: str, word: str) -> list[str]:
        """Returns what the last word of a line may become: a command, an argument, or a value of the server."""
        command, has_arguments, rest = line.partition(" ")
        if not has_arguments:
            found = {one: prompt for one, (_, prompt) in self.find_all().items() if one.startswith(word)}
            return [f"{one} " if prompt.arguments else one for one, prompt in found.items()]
        if command not in self.find_all():
            return []
        server, prompt = self.find_all()[command]
        name, has_value, value = word.partition("=")
        if not has_value:
            return [f"{one.name}=" for one in prompt.arguments if one.name.startswith(word)]
        words = rest.removesuffix(word).split()
        known = dict(one.split("=", 1) for one in words if "=" in one)
        try:
            values: list[str] = self.chat.loop.do(_within(server.complete_argument(prompt.name, name, value, known)))
        except (ToolError, TimeoutError):
            return []
        return [f"{name}={shlex.quote(one)}" for one in values]

    async def _read(self) -> dict[str, tuple[McpServer, ServerPrompt]]:
        import asyncio  # not needed where there are no servers

        async def read(server: McpServer) -> list[ServerPrompt]:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await server.list_prompts()
            except (ToolError, TimeoutError):
                return []

        servers = {name: one for name, one in self._servers.items() if one.is_open}
        found = await asyncio.gather(*(read(one) for one in servers.values()))
        return {
            f"/{name}:{prompt.name}": (server, prompt)
            for (name, server), prompts in zip(servers.items(), found, strict=True)
            for prompt in prompts
            if " " not in prompt.name
        }


def read_arguments(command: str, prompt: ServerPrompt, rest: str) -> dict[str, str]:
    """Reads `name=value` words. The only argument of a prompt needs no name. Raises `ToolError`."""
    names = [one.name for one in prompt.arguments]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    if len(names) == 1 and words and not words[0].startswith(f"{names[0]}="):
        return {names[0]: rest.strip()}
    found = dict(word.split("=", 1) for word in words if "=" in word)
    odd = [word for word in words if "=" not in word] + [name for name in found if name not in names]
    missing = [one.name for one in prompt.arguments if one.required and not found.get(one.name)]
    if odd or missing:
        problem = f"{odd[0]!r} is not one of its arguments" if odd else f"it needs {', '.join(missing)}"
        raise ToolError(f"{command}: {problem}", ErrorKind.VALIDATION, f"Write {command} {_usage(prompt)}".rstrip())
    return found


def join_messages(messages: Iterable[Message]) -> str:
    """Returns the messages as one text: the model reads who says what."""
    listed = list(messages)
    if all(one.role == "user" for one in listed):
        return "\n\n".join(one.text for one in listed)
    return "\n\n".join(f"{'Assistant' if one.role == 'assistant' else 'User'}: {one.text}" for one in listed)


def _usage(prompt: ServerPrompt) -> str:
    return " ".join(f"{one.name}=…" if one.required else f"[{one.name}=…]" for one in prompt.arguments)


async def _within(work: Any) -> Any:
    import asyncio

    async with asyncio.timeout(PATIENCE):
        return await work
