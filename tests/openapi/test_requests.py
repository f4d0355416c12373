"""What goes out: every style of parameter, every kind of body, and values that try to be something else."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest

from forge.core.errors import ErrorKind, ToolError
from tests.openapi.mounting import document, json_page, kind_of, mount, open_tools, serving

LIST, OBJECT = ["a", "b c"], {"r": 1, "g": "x y"}


async def sent(parameter, value, path="/it"):
    """The path and query that a value becomes."""
    tool = (await open_tools(document([{"schema": {}, **parameter}], path=path)))["pets__it"]
    argument = next(iter(tool.spec.parameters["properties"]))
    return tool.targets(tool.parse({argument: value}))[0].removeprefix("https://api.example.com")


@pytest.mark.parametrize(
    ("style", "explode", "value", "wanted"),
    [
        ("form", True, "a b", "v=a%20b"),
        ("form", True, True, "v=true"),
        ("form", True, 1.5, "v=1.5"),
        ("form", True, LIST, "v=a&v=b%20c"),
        ("form", False, LIST, "v=a,b%20c"),
        ("form", True, OBJECT, "r=1&g=x%20y"),
        ("form", False, OBJECT, "v=r,1,g,x%20y"),
        ("spaceDelimited", False, LIST, "v=a%20b%20c"),
        ("pipeDelimited", False, LIST, "v=a%7Cb%20c"),
        ("pipeDelimited", False, OBJECT, "v=r%7C1%7Cg%7Cx%20y"),
        ("deepObject", True, OBJECT, "v[r]=1&v[g]=x%20y"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "v[a][b][0]=1&v[a][b][1]=2"),
    ],
)
async def test_styles_of_a_query(style, explode, value, wanted):
    assert await sent({"name": "v", "in": "query", "style": style, "explode": explode}, value) == f"/it?{wanted}"


@pytest.mark.parametrize(
    ("style", "explode", "value", "wanted"),
    [
        ("simple", False, "a/b c", "a%2Fb%20c"),
        ("simple", False, 5, "5"),
        ("simple", False, LIST, "a,b%20c"),
        ("simple", False, OBJECT, "r,1,g,x%20y"),
        ("simple", True, OBJECT, "r=1,g=x%20y"),
        ("label", False, "a", ".a"),
        ("label", False, LIST, ".a,b%20c"),
        ("label", True, LIST, ".a.b%20c"),
        ("label", True, OBJECT, ".r=1.g=x%20y"),
        ("matrix", False, "a", ";v=a"),
        ("matrix", False, LIST, ";v=a,b%20c"),
        ("matrix", True, LIST, ";v=a;v=b%20c"),
        ("matrix", True, OBJECT, ";r=1;g=x%20y"),
    ],
)
async def test_styles_of_a_path(style, explode, value, wanted):
    parameter = {"name": "v", "in": "path", "style": style, "explode": explode}
    assert await sent(parameter, value, "/it/{v}/end") == f"/it/{wanted}/end"


async def test_reserved_characters_stay_where_the_document_says_so():
    parameter = {"name": "v", "in": "query", "allowReserved": True}
    assert await sent(parameter, "a/b?c=d&e#f") == "/it?v=a/b?c%3Dd%26e%23f"


async def test_a_parameter_with_a_format_of_its_own_is_written_in_it():
    parameter = {"name": "v", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    assert await sent(parameter, {"a": [1]}) == "/it?v=%7B%22a%22%3A%5B1%5D%7D"


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_a_value_that_would_lead_elsewhere_is_refused(value):
    with pytest.raises(ToolError) as caught:
        await sent({"name": "v", "in": "path"}, value, "/files/{v}/content")
    assert caught.value.kind is ErrorKind.VALIDATION


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("../admin", "..%2Fadmin"),
        ("..\\admin", "..%5Cadmin"),
        ("%2e%2e/x", "%252e%252e%2Fx"),
        ("a?b#c", "a%3Fb%23c"),
        ("a\r\nHost: x", "a%0D%0AHost%3A%20x"),
        ("…", "%E2%80%A6"),
        ("...", "..."),
    ],
)
async def test_a_value_stays_one_segment(value, wanted):
    assert await sent({"name": "v", "in": "path"}, value, "/files/{v}") == f"/files/{wanted}"


async def test_two_values_that_make_dots_together_are_refused():
    tool = (await open_tools(document(path="/x/{a}{b}")))["pets__it"]
    with pytest.raises(ToolError):
        tool.targets({"a": ".", "b": "."})
    assert tool.targets(tool.parse({"a": "1", "b": "2"})) == ["https://api.example.com/x/12"]


async def test_headers_and_cookies():
    parameters = [
        {"name": "X-One", "in": "header", "schema": {"type": "array", "items": {}}},
        {"name": "sid", "in": "cookie", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},  # not a model's business
        {"name": "Content-Type", "in": "header", "schema": {"type": "string"}},
    ]
    async with serving(json_page("{}")) as server, mount(document(parameters), server=server.url) as api:
        assert list(api.registry["pets__it"].spec.parameters["properties"]) == ["X-One", "sid"]
        result = await api.call("pets__it", **{"X-One": ["a", 2], "sid": "x; admin=1"})
        assert result.success, result.for_llm
        asked = server.asked[0]
        assert (asked.headers["x-one"], asked.headers["cookie"]) == ("a,2", "sid=x%3B%20admin%3D1")
        injected = await api.call("pets__it", **{"X-One": ["a\r\nX-Two: b"]})
        assert kind_of(injected) == "validation_error"
        assert len(server.asked) == 1


async def test_parameters_of_one_name_are_told_apart():
    parameters = [{"name": "id", "in": where, "schema": {"type": "string"}} for where in ("path", "query", "header")]
    body = {"content": {"application/json": {"schema": {"properties": {"id": {"type": "string"}}}}}}
    one = document(parameters, path="/it/{id}", method="post", requestBody=body)
    async with serving(json_page("{}")) as server, mount(one, server=server.url) as api:
        assert list(api.registry["pets__it"].spec.parameters["properties"]) == ["id", "id_query", "id_header", "body"]
        await api.call("pets__it", id="1", id_query="2", id_header="3", body={"id": "4"})
        asked = server.asked[0]
        assert (asked.path, asked.headers["id"], json.loads(asked.body)) == ("/it/1?id=2", "3", {"id": "4"})


def with_body(media, schema, required=True, **held):
    return document(method="post", requestBody={"required": required, "content": {media: {"schema": schema, **held}}})


async def received(one, **arguments):
    async with serving(json_page("{}")) as server, mount(one, server=server.url) as api:
        result = await api.call("pets__it", **arguments)
        assert result.success, result.for_llm
        return server.asked[0]


THREE = {"type": "object", "required": ["a"], "properties": {"a": {}, "b": {}, "c d": {}}}


async def test_the_properties_of_a_json_body_are_arguments():
    asked = await received(with_body("application/json", THREE), a={"x": ["ü"]}, c_d=None)
    assert json.loads(asked.body) == {"a": {"x": ["ü"]}, "c d": None}
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}},
        {"oneOf": [{"type": "object"}, {"type": "array"}]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {},
    ],
)
async def test_any_other_json_body_is_one_argument(schema):
    value = {"z": 1} if schema.get("type") == "object" else [1, 2]
    asked = await received(with_body("application/vnd.x+json; charset=utf-8", schema), body=value)
    assert json.loads(asked.body) == value
    assert asked.headers["content-type"] == "application/vnd.x+json; charset=utf-8"


async def test_parts_of_a_body_are_put_together():
    parts = {"allOf": [{"$ref": "#/components/schemas/A"}, {"properties": {"b": {"type": "integer"}}}]}
    one = with_body("application/json", parts)
    one["components"] = {"schemas": {"A": {"type": "object", "required": ["a"], "properties": {"a": {}}}}}
    assert json.loads((await received(one, a=1, b=2)).body) == {"a": 1, "b": 2}


async def test_a_body_that_is_not_needed_is_not_sent():
    assert (await received(with_body("application/json", THREE, required=False))).body == b""
    assert (await received(with_body("application/json", {"type": "array"}, required=False))).body == b""
    nothing = {"type": "object", "properties": {"a": {}}}
    assert (await received(with_body("application/json", nothing))).body == b"{}"


async def test_forms():
    form = "application/x-www-form-urlencoded"
    asked = await received(with_body(form, THREE), a="x y&z", b=[1, 2], c_d={"k": {"l": True}})
    assert parse_qsl(asked.body.decode()) == [("a", "x y&z"), ("b", "1"), ("b", "2"), ("c d[k][l]", "true")]
    assert asked.headers["content-type"] == form
    encoding = {"a": {"style": "form", "explode": False}, "b": {"contentType": "application/json"}}
    asked = await received(with_body(form, THREE, encoding=encoding), a=[1, 2], b={"x": 1})
    assert parse_qsl(asked.body.decode()) == [("a", "1,2"), ("b", '{"x":1}')]


async def test_files_and_fields_in_one_body():
    async with serving(json_page("{}")) as server, mount(server=server.url) as api:
        result = await api.call("pets__putPhoto", petId="5", file="base64:iVBORw0=", caption="Ünï", meta={"width": 1})
        assert result.success, result.for_llm
        asked = server.asked[0]
    boundary = asked.headers["content-type"].removeprefix("multipart/form-data; boundary=")
    parts = asked.body.split(f"--{boundary}".encode())
    assert parts[-1] == b"--\r\n"
    assert b'name="file"; filename="file"\r\nContent-Type: application/octet-stream\r\n\r\n\x89PNG\r' in parts[1]
    assert 'name="caption"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nÜnï\r\n'.encode() in parts[2]
    assert b'Content-Type: application/json\r\n\r\n{"width":1}\r\n' in parts[3]


async def test_texts_and_bytes():
    asked = await received(with_body("text/plain", {"type": "string"}), body="Grüße")
    assert (asked.body, asked.headers["content-type"]) == ("Grüße".encode(), "text/plain")
    asked = await received(with_body("image/png", {}), body="base64:AAEC")
    assert (asked.body, asked.headers["content-type"]) == (b"\x00\x01\x02", "image/png")
    asked = await received(with_body("application/octet-stream", {}), body="as it is")
    assert asked.body == b"as it is"
    async with serving(json_page("{}")) as server, mount(with_body("image/png", {}), server=server.url) as api:
        assert kind_of(await api.call("pets__it", body="base64:!")) == "validation_error"
        assert server.asked == []


async def test_a_file_of_the_workspace_is_sent_as_the_gate_lets_it(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "out").symlink_to("/etc/passwd")
    async with serving(json_page("{}")) as server, mount(server=server.url, workspace=tmp_path) as api:
        result = await api.call("pets__putPhoto", petId="5", file="file:in/a.png", caption="file:x")
        assert result.success, result.for_llm
        assert ("read", "in/a.png") in api.asked
        assert b'filename="a.png"\r\nContent-Type: application/octet-stream\r\n\r\n\x89PNG\r\n' in server.asked[0].body
        assert b"file:x" in server.asked[0].body  # no file is wanted there
        for path in ("out", "../x", "missing", "in"):
            assert not (await api.call("pets__putPhoto", petId="5", file=f"file:{path}")).success
        api.refused.add("in/a.png")
        assert kind_of(await api.call("pets__putPhoto", petId="5", file="file:in/a.png")) == "permission_error"
        assert len(server.asked) == 1


async def test_json_is_chosen_where_several_formats_are_offered():
    content = {"application/xml": {}, "multipart/form-data": {}, "application/json": {"schema": {"type": "array"}}}
    one = document(method="post", requestBody={"content": content})
    assert (await received(one, body=[1])).headers["content-type"] == "application/json"


async def test_a_name_from_the_document_cannot_break_out_of_a_part():
    schema = {"type": "object", "properties": {'a"\r\nX: y': {"type": "string"}}}
    one = with_body("multipart/form-data", schema)
    async with mount(one, server="https://api.example.com") as api:
        tool: Any = api.registry["pets__it"]
        (name,) = tool.spec.parameters["properties"]
        shown = await tool.preview_call(tool.parse({name: "v"}), None)
    assert re.search(r'name="a%22%0D%0AX: y"', shown)


async def test_a_server_fills_in_its_own_defaults():
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 10}}
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    tool = (await open_tools(document([limit, page])))["pets__it"]
    assert tool.parse({"page": 2}) == {"page": 2}
    assert tool.parse({"page": 2, "limit": 10}) == {"page": 2, "limit": 10}


async def test_a_body_may_be_left_out_but_only_as_a_whole():
    fields = {"type": "object", "properties": {"id": {"type": "string"}, "as": {}}, "required": ["id"]}
    spec = document(method="post", requestBody={"content": {"application/json": {"schema": fields}}})
    tool = (await open_tools(spec))["pets__it"]
    for fine in ({}, {"id": "7"}, {"id": "7", "as": "csv"}):
        assert tool.parse(fine) == fine
    with pytest.raises(ToolError, match="id: required, but missing") as refused:
        tool.parse({"as": "csv"})
    assert 'id="text"' in refused.value.suggestion
