"""What a model sends is what a server gets: no key is lost on the way, and none is added."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forge.core.messages import ToolCall
from forge.core.registry import mount_source
from forge.core.result import ToolResult
from forge.mcp import mcp
from tests.mcp import hostile
from tests.mcp.remote import Desk

NAMED = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "oneOf": {"type": "object", "oneOf": [NAMED, {"required": ["id"]}]},
    "anyOf": {"type": "object", "anyOf": [NAMED, {"required": ["id"]}]},
    "allOf": {"type": "object", "allOf": [NAMED]},
    "$ref": {"type": "object", "$ref": "#/$defs/Named", "$defs": {"Named": NAMED}},
    "if": {"type": "object", "if": {"required": ["name"]}, "then": NAMED},
    "nothing": {"type": "object"},
}


async def sent_to(schema: dict[str, Any], arguments: dict[str, Any]) -> ToolResult:
    desk = Desk("allow *")
    async with mount_source(desk.registry, mcp(hostile.command("Mirrors", json.dumps(schema)), name="its")):
        return await desk.executor.execute(ToolCall("its__mirror", arguments), desk.scope)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
async def test_a_server_gets_every_key(schema):
    result = await sent_to(schema, {"name": "ada", "colour": "red"})
    assert json.loads(result.for_llm) == {"name": "ada", "colour": "red"}


async def test_a_server_fills_in_its_own_defaults():
    schema = {"type": "object", "properties": {"limit": {"type": "integer", "default": 10}, "note": {}}}
    result = await sent_to(schema, {"note": "a"})
    assert json.loads(result.for_llm) == {"note": "a"}


async def test_a_misspelt_key_is_repaired_or_refused_before_a_server_is_asked():
    schema = {"type": "object", "properties": {"order_status": {"type": "string"}}}
    result = await sent_to(schema, {"orderStatus": "old"})
    assert json.loads(result.for_llm) == {"order_status": "old"}
    assert result.data["repaired"] == ["orderStatus → order_status"]
    assert 'did you mean "order_status"?' in (await sent_to(schema, {"order_state": "old"})).for_llm
