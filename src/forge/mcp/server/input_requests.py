"""Builds the requests that a server sends to its client, and reads the answers: forms, samples, roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forge.core.client import Capability, ClientRoot, MissingCapability
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.untrusted import clean, one_line
from forge.mcp.server.first_answer import TASKS

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import ClientCapabilities

InputRequest = ElicitRequest | CreateMessageRequest | ListRootsRequest

LONGEST_SAMPLE = 200_000  # characters of a model's answer
LONGEST_PROMPT = 200_000  # characters of all messages to a model
MOST_TOKENS = 32_000  # of one answer
MOST_ROOTS = 100


def form_request(message: str, form: Mapping[str, Any]) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=sendable(message), requested_schema=dict(form)))


def sample_request(
    messages: Sequence[tuple[str, str]], system: str, max_tokens: int, temperature: float | None
) -> CreateMessageRequest:
    """Returns a request for the client's model. Raises `ToolError` if it is too long."""
    if sum(len(text) for _, text in messages) + len(system) > LONGEST_PROMPT:
        raise ToolError(f"the prompt is longer than {LONGEST_PROMPT:,} characters", ErrorKind.VALIDATION)
    return CreateMessageRequest(
        params=CreateMessageRequestParams(
            messages=[
                SamplingMessage(
                    role="assistant" if role == "assistant" else "user",
                    content=TextContent(type="text", text=sendable(text)),
                )
                for role, text in messages
            ],
            system_prompt=sendable(system) or None,
            max_tokens=max(1, min(max_tokens, MOST_TOKENS)),
            temperature=temperature,
        )
    )


def result_type(request: InputRequest) -> type[Any]:
    """Returns the type of the client's answer."""
    if isinstance(request, ElicitRequest):
        return ElicitResult
    return CreateMessageResult if isinstance(request, CreateMessageRequest) else ListRootsResult


def read_form(answer: object) -> Mapping[str, Any] | None:
    """Returns the filled-in form; None if it was declined."""
    return answer.content or {} if isinstance(answer, ElicitResult) and answer.action == "accept" else None


def read_sample(answer: object) -> str:
    """Returns the text of a model's answer. Raises `ToolError` if there is none."""
    content = getattr(answer, "content", None)
    blocks = content if isinstance(content, list) else [content]
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    if not texts:
        raise ToolError("the client's model gave no text", ErrorKind.SYSTEM, "Try again, or do without it.")
    return clean("\n".join(texts), LONGEST_SAMPLE)


def read_roots(answer: object) -> list[ClientRoot]:
    """Returns the client's roots, bounded and cleaned."""
    if not isinstance(answer, ListRootsResult):
        raise MissingCapability("roots")
    return [ClientRoot(one_line(str(one.uri), 4_096), one_line(one.name, 200)) for one in answer.roots[:MOST_ROOTS]]


def declares(capabilities: ClientCapabilities | None, capability: Capability, version: str) -> bool:
    """Returns whether a client declared a capability. No mode of elicitation at all means forms: old clients know only
    forms."""
    if capabilities is None:
        return False
    if capability == "elicitation":
        found = capabilities.elicitation
        return found is not None and (found.form is not None or found.url is None)
    if capability == "tasks":
        return version in MODERN_PROTOCOL_VERSIONS and TASKS in (capabilities.extensions or {})
    return getattr(capabilities, capability) is not None


def required_capabilities(capability: Capability) -> dict[str, Any]:
    """Returns a missing capability in the protocol's format."""
    return {"extensions": {TASKS: {}}} if capability == "tasks" else {capability: {}}


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
