"""Resources and prompts for the conformance kit."""

from __future__ import annotations

import zlib
from struct import pack
from typing import Any

from forge import Attachment, ToolContext, ToolRegistry, tool
from forge.mcp import prompt, resource

CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}


def red_pixel() -> bytes:
    """A PNG of one red pixel."""
    parts = [(b"IHDR", pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")]
    chunks = (pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@resource("test://static-text", media_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", media_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return red_pixel()


@resource("test://template/{id}/data", media_type="application/json", complete={"id": ["123", "456"]})
def template_data(id: str) -> dict[str, Any]:
    """Data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", media_type="text/plain")
def watched_resource() -> str:
    """A text that clients subscribe to."""
    return "Watched resource content"


@prompt
def test_simple_prompt() -> str:
    """A simple prompt."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": ["paris", "park", "party"]})
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """A prompt with a resource."""
    content = Attachment("text/plain", b"Embedded resource content for testing.", resourceUri)
    return [content, "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    return [Attachment("image/png", red_pixel(), "pixel.png"), "Please analyze the image above."]


@prompt
async def test_input_required_result_prompt(ctx: ToolContext) -> str:
    """A prompt that asks the person."""
    answer = await ctx.ask("What context should the prompt use?", CONTEXT, key="user_context")
    return f"Use this context: {answer['context'] if answer else 'none'}"


RESOURCES = ToolRegistry([static_text, static_binary, template_data, watched_resource])
PROMPTS = ToolRegistry(
    [
        test_simple_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
        test_prompt_with_image,
        test_input_required_result_prompt,
    ]
)


@tool
def test_trigger_prompt_change() -> str:
    """Add a prompt, or remove the one that was added."""
    if "added_prompt" in PROMPTS:
        PROMPTS.remove("added_prompt")
        return "removed"

    @prompt(name="added_prompt")
    def added() -> str:
        """A prompt that was added."""
        return "Hello!"

    PROMPTS.add(added)
    return "added"
