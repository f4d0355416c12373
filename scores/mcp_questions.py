"""Tools for the conformance kit that ask the client: its person, its model, its roots."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from forge import Tool, ToolContext, tool

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}


def titled(*names: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": name} for number, name in enumerate(names, 1)]


ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")}},
    },
}


@tool
async def test_elicitation(message: str, ctx: ToolContext) -> str:
    """Ask the person for a name and an address."""
    return f"User response: {json.dumps(await ctx.ask(message, PERSON))}"


@tool
async def test_elicitation_sep1034_defaults(ctx: ToolContext) -> str:
    """Ask with default values."""
    return f"Elicitation completed: {json.dumps(await ctx.ask('Check these values.', DEFAULTS))}"


@tool
async def test_elicitation_sep1330_enums(ctx: ToolContext) -> str:
    """Ask with choices."""
    return f"Elicitation completed: {json.dumps(await ctx.ask('Choose.', ENUMS))}"


@tool
async def test_sampling(prompt: str, ctx: ToolContext) -> str:
    """Ask the client's model."""
    assert ctx.client is not None
    return f"LLM response: {await ctx.client.sample(prompt, max_tokens=100)}"


@tool
async def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    """Ask for a name."""
    answer = await ctx.ask("What is your name?", NAME, key="user_name")
    return f"Hello, {answer['name']}!" if answer else "Hello!"


@tool
async def test_input_required_result_sampling(ctx: ToolContext) -> str:
    """Ask the client's model for a capital."""
    assert ctx.client is not None
    return await ctx.client.sample("What is the capital of France?", max_tokens=100, key="capital_question")


@tool
async def test_input_required_result_list_roots(ctx: ToolContext) -> str:
    """List the client's roots."""
    assert ctx.client is not None
    return ", ".join(root.uri for root in await ctx.client.list_roots(key="client_roots"))


@tool
async def test_input_required_result_request_state(ctx: ToolContext) -> str:
    """Ask for a confirmation."""
    return f"state-ok: {await ctx.ask('Please confirm', OK, key='confirm')}"


@tool
async def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    """Ask for a confirmation."""
    return str(await ctx.ask("Please confirm", OK, key="confirm"))


@tool
async def test_input_required_result_multiple_inputs(ctx: ToolContext) -> str:
    """Ask for three things at once."""
    assert ctx.client is not None
    name, greeting, roots = await asyncio.gather(
        ctx.ask("What is your name?", NAME, key="user_name"),
        ctx.client.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.client.list_roots(key="client_roots"),
    )
    return f"{greeting} {name}: {len(roots)} roots"


@tool
async def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    """Ask two questions, one after the other."""
    name = await ctx.ask("Step 1: What is your name?", NAME, key="step1")
    color = await ctx.ask("Step 2: What is your favorite color?", COLOR, key="step2")
    return f"{name} {color}"


@tool
async def test_input_required_result_capabilities(ctx: ToolContext) -> str:
    """Ask only for what the client can do."""
    assert ctx.client is not None
    if ctx.client.can("elicitation"):
        return str(await ctx.ask("What is your name?", NAME))
    return await ctx.client.sample("What is your name?", max_tokens=100)


@tool
async def test_missing_capability(ctx: ToolContext) -> str:
    """Need the client's model."""
    assert ctx.client is not None
    return await ctx.client.sample("Hello")


@tool
async def test_streaming_elicitation(ctx: ToolContext) -> str:
    """Report progress, then ask."""
    ctx.progress("asking")
    return str(await ctx.ask("Continue?", OK))


TOOLS: list[Tool | Any] = [
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_sampling,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
    test_missing_capability,
    test_streaming_elicitation,
]
