"""Documents of every kind: JSON and YAML, honest and hostile."""

from __future__ import annotations

import json
import os
import time

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.openapi.document import parse
from tests.openapi.mounting import PETSTORE, document, open_tools

HEAD = "openapi: 3.1.0\ninfo: {title: T, version: '1'}\nservers: [{url: 'https://x.example.com'}]\n"


@pytest.mark.parametrize("name", ["api.json", "api.yaml", "api"])
async def test_json_is_read_whatever_it_is_called(tmp_path, name):
    (tmp_path / name).write_text("\ufeff" + json.dumps(document()), encoding="utf-8")
    assert list(await open_tools(tmp_path / name)) == ["pets__it"]
    assert list(await open_tools(str(tmp_path / name))) == ["pets__it"]


async def test_yaml_that_begins_like_json_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "{openapi: 3.1.0, paths: {/a: {get: {operationId: it}}}, servers: [{url: 'http://x'}]}"
    )
    assert list(await open_tools(tmp_path / "a.yaml")) == ["pets__it"]


def test_yaml_means_what_json_means():
    text = """
        a: [no, on, yes, ~, null, 2020-01-31, 12:30, 0x10, 0o17, 1_000, 1.5, .5, -3, 1e3, .nan, "1", true]
        200: x
        on: y
        <<: {m: 1, a: 2}
    """
    found = parse(text.encode(), "x")
    assert found["a"] == [
        "no",
        "on",
        "yes",
        None,
        None,
        "2020-01-31",
        "12:30",
        16,
        15,
        "1_000",
        1.5,
        0.5,
        -3,
        1000.0,
        ".nan",
        "1",
        True,
    ]
    assert (found["200"], found["on"], found["m"]) == ("x", "y", 1)


def test_what_is_repeated_is_built_once():
    found = parse(b"a: &x {k: [1]}\nb: *x\nc: {<<: *x, l: 2}\n", "x")
    assert found["a"] is found["b"]
    assert found["c"] == {"k": [1], "l": 2}


def bomb(levels: int = 12) -> str:
    lines = ["l0: &l0 {a: b}"]
    lines += [f"l{n}: &l{n} {{{', '.join(f'k{i}: *l{n - 1}' for i in range(10))}}}" for n in range(1, levels)]
    return (
        HEAD
        + "\n".join(lines)
        + f"\npaths: {{/a: {{get: {{parameters: [{{name: v, in: query, schema: {{properties: *l{levels - 1}}}}}]}}}}}}"
    )


def merging_bomb() -> str:
    lines = ["l0: &l0 {" + ", ".join(f"k{i}: 1" for i in range(1_000)) + "}"]
    lines += [f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 1_000)}]}}" for n in range(1, 5)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a mapping"),
        ("just words", "not a mapping"),
        ("[1]", "not a mapping"),
        ("a: [", "line 2"),
        ("a: *b", "undefined alias"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("a: !!python/object:os.system x", "no meaning in JSON"),
        ("a: !!binary aGk=", "no meaning in JSON"),
        ("? [a]\n: b", "a key that is not a string"),
        ("a: " + "[" * 500 + "]" * 500, "levels deep"),
        ("a: " + "[" * 100_000, ""),
        ("a: 1\n---\nb: 2", "document"),
        (merging_bomb(), "copies more than"),
        ('{"a": ', "not valid JSON"),
        ('{"a": ' + "[" * 10_000, "not valid JSON"),
        ("{}", "openapi: 3.x"),
        ('{"openapi": "4.0.0"}', "openapi: 3.x"),
        ('{"openapi": 3}', "openapi: 3.x"),
        ('{"swagger": "1.2"}', "swagger: 2.0"),
    ],
)
async def test_what_is_no_document_is_told(tmp_path, text, why):
    (tmp_path / "a.yaml").write_text(text)
    started = time.process_time()
    with pytest.raises(ToolError) as caught:
        await open_tools(tmp_path / "a.yaml")
    assert caught.value.kind is ErrorKind.CONFIG
    assert "a.yaml" in caught.value.message
    assert why in caught.value.message
    assert time.process_time() - started < 10


async def test_a_bomb_of_aliases_does_not_go_off(tmp_path):
    (tmp_path / "a.yaml").write_text(bomb())
    started = time.process_time()
    (tool,) = (await open_tools(tmp_path / "a.yaml")).values()
    assert len(json.dumps(tool.spec.parameters)) < 200_000
    assert tool.parameter_names == ["v"]
    assert time.process_time() - started < 5


async def test_a_document_of_millions_of_values_is_not_read(tmp_path):
    text = json.dumps({**document(), "x": "VALUES"})
    (tmp_path / "a.json").write_text(text.replace('"VALUES"', f"[{'[],' * 2_100_000}1]"))
    with pytest.raises(ToolError, match="it has more than 4,000,000 values"):
        await open_tools(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(text.replace("VALUES", "[]," * 2_100_000))  # the same, as one text
    assert list(await open_tools(tmp_path / "a.json")) == ["pets__it"]


async def test_bytes_that_are_no_text_are_told(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"openapi: \xff")
    with pytest.raises(ToolError, match="not UTF-8"):
        await open_tools(tmp_path / "a.yaml")


async def test_what_is_no_file_is_told(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "missing", "a\0b"):
        with pytest.raises(ToolError) as caught:
            await open_tools(path)
        assert caught.value.kind is ErrorKind.CONFIG


async def test_data_that_contains_itself_is_told():
    one = document()
    one["paths"]["/it"]["get"]["x"] = one
    with pytest.raises(ToolError, match="not JSON"):
        await open_tools(one)


async def test_data_that_changes_later_changes_nothing():
    one = document()
    tools = await open_tools(one)
    one["paths"].clear()
    assert tools["pets__it"].spec.parameters["properties"] == {}


async def test_thousands_of_operations_cost_nothing_until_they_are_looked_at():
    paths = {
        f"/a{n}": {"get": {"operationId": f"op{n}", "parameters": [{"$ref": "#/components/parameters/p"}]}}
        for n in range(5_000)
    }
    parameters = {"p": {"name": "p", "in": "query", "schema": {"type": "string"}}}
    many = {**document(components={"parameters": parameters}), "paths": paths}
    started = time.process_time()
    tools = await open_tools(many)
    assert time.process_time() - started < 5
    assert len(tools) == 5_000
    assert not any("_plan_or_problem" in vars(tool) for tool in tools.values())
    assert tools["pets__op7"].spec.parameters["properties"]["p"] == {"type": "string"}
    assert sum("_plan_or_problem" in vars(tool) for tool in tools.values()) == 1


async def test_a_large_yaml_document_is_read(tmp_path):
    lines = [HEAD + "paths:"]
    for number in range(2_000):
        lines.append(f"  /a{number}:\n    get:\n      operationId: op{number}\n      summary: Does {number}.")
    (tmp_path / "big.yaml").write_text("\n".join(lines))
    assert len(await open_tools(tmp_path / "big.yaml")) == 2_000


async def test_the_petstore_is_a_file_like_any_other():
    assert len(await open_tools(str(PETSTORE))) == 6


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: |\n  first\n\t\n  last\nb: 1\n", {"a": "first\n\nlast\n", "b": 1}),
        ("a: |\n  first\n  \tlater\n \t \nb: 1\n", {"a": "first\n\tlater\n", "b": 1}),
        ("a: |\n  \tfirst\n  last\nb: |\n   \tone\n   two\n", {"a": "\tfirst\nlast\n", "b": "\tone\ntwo\n"}),
        ("a: >-\n\n  \tfirst\nb: 'x\n\ty'\n", {"a": "\n\tfirst", "b": "x y"}),
    ],
)
def test_tabs_in_block_scalars_are_text(text, found):
    assert parse(text.encode(), "x") == found


@pytest.mark.parametrize("text", ["a: |\n    first\n\tlast\n", "a: |\n    first\n  \tb: c\n", "a:\n\tb: 1\n"])
def test_a_tab_that_is_no_text_is_refused(text):
    with pytest.raises(ToolError, match="not valid YAML"):
        parse(text.encode(), "x")
