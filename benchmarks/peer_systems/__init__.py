"""Every system behind the same doors: one module a system, imported by name in an environment of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class Call(NamedTuple):
    """A tool call as a model writes it."""

    id: str
    name: str
    text: str  # the arguments: JSON, or meant to be


class Script:
    """What a model does: calls, turn by turn, and then the answer "done"; out of CPU time it answers early."""

    def __init__(self, turns: Iterable[Sequence[Call]], seconds: float = math.inf) -> None:
        self.made = 0  # turns so far
        self.messages: Any = []  # of the last request
        self.request: Any = None  # the rest of it: instructions
        self._turns = iter(turns)
        self._until = time.process_time() + seconds

    def next(self, messages: Any, request: Any = None) -> Sequence[Call]:
        """The calls of the next turn; none: the model answers."""
        self.messages, self.request = messages, request
        if self.made % 10 == 0 and time.process_time() > self._until:
            return ()
        calls = next(self._turns, ())
        self.made += bool(calls)
        return calls


class RunEndedError(Exception):
    """A run that ended without the model's answer, and the system's word for it."""


class Action(NamedTuple):
    """What one of a system's own tools does: the tool's name, its names of our arguments, and what else it needs."""

    tool: str
    keys: dict[str, str]
    fixed: dict[str, Any] = {}  # noqa: RUF012 - it is never changed


class System:
    """One tool system. `run` builds an agent and runs it to the model's answer; 0 leaves the system's own limits."""

    takes_async: ClassVar[bool] = True  # functions
    takes_models: ClassVar[bool] = True  # pydantic models as parameters
    takes_text: ClassVar[bool] = True  # arguments as the model wrote them; otherwise its model adapter reads the JSON
    loops: ClassVar[bool] = True  # has an agent of its own
    actions: ClassVar[dict[str, Action]] = {}  # tools of its own: read, write, edit, run, delegate

    def define(self, function: Callable[..., Any]) -> Any:
        """A tool, with what a model reads of it built."""
        raise NotImplementedError

    def define_guarded(self, function: Callable[..., Any]) -> Any | None:
        """A tool with the system's own mark that a person must approve each call; None: a tool has no such mark."""
        return None

    async def serve(self, tools: list[Any]) -> Any:
        """What holds the tools while an agent runs."""
        raise NotImplementedError

    async def send(self, server: Any, name: str, text: str) -> str:
        """From JSON text to what the model sees."""
        raise NotImplementedError

    async def definitions(self, server: Any) -> list[Any]:
        """Of all tools, as every turn asks for them."""
        raise NotImplementedError

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        raise NotImplementedError

    async def turn(self, tools: list[Any], calls: Sequence[Call]) -> None:
        """One turn of calls and the answer."""
        await self.run(tools, Script([calls]))

    def name_file(self, directory: Path, name: str) -> str:
        """A file of the directory, as its own tools name it."""
        return str(directory / name)

    def write_arguments(self, action: str, arguments: dict[str, str]) -> dict[str, Any]:
        """The arguments of one of its own tools, from ours."""
        _, keys, fixed = self.actions[action]
        return {keys[key]: value for key, value in arguments.items()} | fixed

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        """Runs its agent with its own tools in a directory; a person allows every call, or nobody is there."""
        raise NotImplementedError

    def results(self, messages: Any) -> list[str]:
        """The results of calls among the messages of a request."""
        raise NotImplementedError


@dataclass(frozen=True)
class Peer:
    """Where a system is found."""

    module: str  # in this package; its class is `It`
    packages: tuple[str, ...]  # to install; the first one's version is shown
    timed: bool = True  # its loop runs in our process, and can be measured beside the floor


OURS = "forge"
PEERS = {
    OURS: Peer("forge_tools", ("forge-tools",)),
    "pydantic-ai": Peer("pydantic_ai", ("pydantic-ai-slim",)),
    "pydantic-ai-harness": Peer("pydantic_ai_harness", ("pydantic-ai-harness",)),
    "openai-agents": Peer("openai_agents", ("openai-agents",)),
    "langchain": Peer("langchain", ("langchain", "langchain-core")),
    "deepagents": Peer("deepagents", ("deepagents",)),
    "claude-agent-sdk": Peer("claude_agent", ("claude-agent-sdk",), timed=False),
    "smolagents": Peer("smolagents", ("smolagents",)),
    "fastmcp": Peer("fastmcp", ("fastmcp",)),
    "strands": Peer("strands", ("strands-agents",)),
    "google-adk": Peer("google_adk", ("google-adk",)),
    "agno": Peer("agno", ("agno",)),
    "llm": Peer("llm", ("llm",)),
}


def load(name: str) -> System:
    made: System = import_module(f"benchmarks.peer_systems.{PEERS[name].module}").It()
    return made
