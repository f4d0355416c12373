"""What comes back: for the model what the document describes, for programs all of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.openapi.mounting import Reply, document, json_page, kind_of, mount, serving

PET = {"type": "object", "properties": {"name": {"type": "string"}, "owner": {"$ref": "#/components/schemas/Owner"}}}
OWNER = {
    "type": "object",
    "properties": {"id": {}, "pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}},
}


async def answer(reply, schema=None, method="get", status="200"):
    content = {"application/json": {"schema": schema}} if schema is not None else {}
    one = document(
        method=method,
        responses={status: {"description": "", "content": content}},
        components={"schemas": {"Pet": PET, "Owner": OWNER}},
    )
    async with serving(reply) as server, mount(one, server=server.url) as api:
        return await api.call("pets__it")


async def shown(value, schema, **options):
    result = await answer(json_page(json.dumps(value)), schema, **options)
    assert result.data["body"] == value
    return json.loads(result.for_llm.partition("\n\n")[2].partition("\n[")[0])


REFERENCE = {"$ref": "#/components/schemas/Pet"}
WHOLE = {"name": "Rex", "x": 1, "owner": {"id": 1, "y": 2, "pets": [{"name": "Tom", "z": 3}]}}
LESS = {"name": "Rex", "owner": {"id": 1, "pets": [{"name": "Tom"}]}}


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        (REFERENCE, WHOLE, LESS),
        ({"type": "array", "items": REFERENCE}, [WHOLE], [LESS]),
        ({"allOf": [REFERENCE, {"properties": {"x": {}}}]}, WHOLE, {**LESS, "x": 1}),
        ({"oneOf": [REFERENCE, {"properties": {"x": {}}}]}, WHOLE, {**LESS, "x": 1}),
        ({**PET, "additionalProperties": False}, WHOLE, LESS),
        ({**PET, "additionalProperties": True}, WHOLE, WHOLE),
        ({**PET, "additionalProperties": {"type": "integer"}}, WHOLE, WHOLE),
        ({"anyOf": [PET, {"type": "object"}]}, WHOLE, WHOLE),
        ({"type": "object"}, WHOLE, WHOLE),
        ({}, WHOLE, WHOLE),
        (True, WHOLE, WHOLE),
        ({"properties": {"other": {}}}, WHOLE, WHOLE),  # something else than was described
        ({"$ref": "elsewhere.yaml"}, WHOLE, WHOLE),
        (PET, [1, "a", None], [1, "a", None]),
    ],
)
async def test_what_is_not_described_is_left_out(schema, value, wanted):
    assert await shown(value, schema) == wanted


@pytest.mark.parametrize("status", ["200", "2XX", "default"])
async def test_the_schema_of_the_status_counts(status):
    assert await shown({"name": "a", "x": 1}, PET, status=status) == {"name": "a"}
    assert await shown({"name": "a", "x": 1}, PET, status="201") == {"name": "a", "x": 1}


async def test_how_much_was_left_out_is_said():
    result = await answer(json_page(json.dumps(WHOLE)), PET)
    assert result.for_llm.endswith("[3 values left out: not described in the API document]")
    assert result.data["left_out"] == 3


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_failure_of_the_server_is_a_result_and_shown_whole(status):
    result = await answer(json_page('{"name": "x", "why": "y"}', status), PET, status="default")
    assert result.success
    assert (result.data["status"], result.data["body"]) == (status, {"name": "x", "why": "y"})
    assert f"HTTP {status}" in result.for_llm
    assert '"why": "y"' in result.for_llm


async def test_who_is_not_let_in_is_told_why():
    assert "credentials" in (await answer(json_page("{}", 401))).for_llm
    assert "credentials" not in (await answer(json_page("{}", 200))).for_llm


async def test_when_to_try_again_is_shown():
    result = await answer(json_page("{}", 429, Retry_After="7", X_RateLimit_Remaining="0", Set_Cookie="a=b"))
    assert "\nretry-after: 7\n" in result.for_llm
    assert result.data["headers"] == {
        "content-type": "application/json",
        "retry-after": "7",
        "x-ratelimit-remaining": "0",
    }


async def test_texts_and_nothing():
    text = await answer(Reply([b"caf\xc3\xa9"], headers=[("Content-Type", "text/plain")]))
    assert text.for_llm == "HTTP 200 Whatever\n\ncafé"
    assert (await answer(Reply(status=204))).for_llm == "HTTP 204 Whatever"
    broken = await answer(json_page('{"a": '))
    assert broken.for_llm.endswith('{"a": ')
    assert (await answer(json_page("{}"), method="head")).data["body"] == ""


async def test_bytes_are_attached():
    result = await answer(Reply([b"\x89PNG\r\n\x1a\n\x00"], headers=[("Content-Type", "image/png")]))
    (attachment,) = result.attachments
    assert (attachment.media_type, attachment.name) == ("image/png", "pets__it.png")
    assert attachment.data == b"\x89PNG\r\n\x1a\n\x00"
    assert "[image/png, 9 bytes, attached as pets__it.png]" in result.for_llm


async def test_long_json_is_spread_over_lines():
    value = [{"number": number, "text": "x" * 60} for number in range(5_000)]
    result = await answer(json_page(json.dumps(value)), {"type": "array", "items": {"type": "object"}})
    assert max(map(len, result.for_llm.split("\n"))) <= 170
    assert result.data["body"] == value


async def test_an_answer_without_end_is_cut_and_said_to_be():
    endless = Reply([b"[" + b"1," * 1_000_000] * 6, headers=[("Content-Type", "application/json")], framing="close")
    result = await answer(endless)
    assert result.data["truncated"]
    assert "request less" in result.for_llm


async def test_the_time_of_a_call_is_bounded():
    reply = Reply([b"[", asyncio.Event().wait], framing="close")
    async with serving(reply) as server, mount(server=server.url, timeout=0.2) as api:
        result = await api.call("pets__listPets")
        assert kind_of(result) == "timeout"
        await asyncio.wait_for(server.left.wait(), 60)  # the server is told


async def test_a_call_that_is_cancelled_is_cancelled_there():
    reply = Reply([b"[", asyncio.Event().wait], framing="close")
    async with serving(reply) as server, mount(server=server.url) as api:
        call = asyncio.ensure_future(api.call("pets__listPets"))
        await server.came.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.left.wait(), 60)
