"""The client that made a call from outside, such as an MCP client, and what a tool can ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from forge.core.errors import ErrorKind, ToolError

Capability = Literal["elicitation", "sampling", "roots", "tasks"]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: tuple[LogLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)

_USES = {
    "elicitation": "ask its person a question",
    "sampling": "ask its model",
    "roots": "list its roots",
    "tasks": "follow a task",
}


class MissingCapability(ToolError):
    """A call needs something that its client cannot do.

    Args:
        capability: "elicitation", "sampling", "roots" or "tasks".

    Example:
        >>> MissingCapability("sampling").message
        'the client of this call cannot ask its model'
    """

    def __init__(self, capability: Capability) -> None:
        super().__init__(
            f"the client of this call cannot {_USES[capability]}",
            ErrorKind.CONFIG,
            f"Use a client that declares the capability {capability}.",
        )
        self.capability: Capability = capability


class ClientRoot(NamedTuple):
    """A directory or another place that a client works in.

    Args:
        uri: the place, usually a file:// URI.
        name: a name for people.

    Example:
        >>> ClientRoot("file:///home/ada/project").name
        ''
    """

    uri: str
    name: str = ""


class CallClient(Protocol):
    """The client that made a call: `ctx.client` in a tool. Its answers are untrusted.

    Example:
        >>> @tool
        ... async def summarise(text: str, ctx: ToolContext) -> str:
        ...     "Summarise a text."
        ...     if ctx.client is None or not ctx.client.can("sampling"):
        ...         return text[:100]
        ...     return await ctx.client.sample(f"Summarise: {text}", max_tokens=200)
        >>> asyncio.run(Agent(None, tools=[summarise]).call("summarise", {"text": "Short."})).for_llm
        'Short.'
    """

    @property
    def person(self) -> str:
        """The name of the person who answers, for the log."""

    @property
    def remembers(self) -> bool:
        """True if an answer "always" can be offered, because no other client shares the session."""

    def can(self, capability: Capability) -> bool:
        """Returns whether the client declared a capability and can be reached now."""

    def require(self, capability: Capability) -> None:
        """Raises `MissingCapability` if the client cannot do it."""

    def mask(self, text: str) -> str:
        """Masks registered secrets in a text."""

    async def show_form(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Shows a form to the client's person. Returns the answer unchecked; None if the person declined."""

    async def ask(self, message: str, form: Mapping[str, Any], *, key: str = "") -> Mapping[str, Any] | None:
        """Asks the client's person. Returns an answer that fits the form; None if the person declined."""

    async def sample(
        self,
        prompt: str | Sequence[tuple[str, str]],
        *,
        system: str = "",
        max_tokens: int = 1_000,
        temperature: float | None = None,
        key: str = "",
    ) -> str:
        """Returns the answer of the client's model to a prompt, or to messages of ("user" or "assistant", text).

        If the client has none, the server's own model answers after an approval. Raises `ToolError` if neither can.
        """

    async def list_roots(self, *, key: str = "") -> list[ClientRoot]:
        """Returns the places that the client works in. Raises `MissingCapability`."""

    def log(self, level: LogLevel, text: str) -> None:
        """Sends a line for the client's log."""

    def detach(self) -> None:
        """Tells the client's call that its work continues in the background."""
