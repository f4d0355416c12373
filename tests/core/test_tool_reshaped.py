"""Tools with another face: new names, hidden and fixed arguments."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from forge import (
    Agent,
    Answer,
    DefinitionError,
    PermissionRequest,
    Scripted,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    openapi,
    rules,
    tool,
)
from forge.core.result import ToolResult


@tool(permissions={"network"}, target="region", argument_aliases={"area": "region", "text": "q"})
def look_up(q: str, region: str = "us", limit: int = 10) -> str:
    """Look something up."""
    return f"{q} in {region}, {limit}"


@tool(isolate=True)
def add(a: int, b: int, c: int = 3) -> int:
    """Add numbers in another process."""
    return a + b + c


class LookUp(Tool, permissions={"network"}, target="region", name="look_up"):
    """Look something up."""

    async def run(self, q: str, region: str = "us", limit: int = 10) -> str:
        return f"{q} in {region}, {limit}"

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return f"asks {arguments['region']} for {arguments['q']}"


SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "region": {"type": "string", "default": "us"},
        "limit": {"type": "integer", "default": 10},
    },
    "required": ["q"],
}


def _find(arguments: dict[str, Any]) -> str:
    return f"{arguments['q']} in {arguments['region']}, {arguments['limit']}"


class Query(BaseModel):
    query: str = Field(alias="q")
    region: str = "us"
    limit: int = 10


def _find_model(query: Query) -> str:
    return f"{query.query} in {query.region}, {query.limit}"


def _make_deferred() -> Tool:
    return Tool.define("look_up", lambda: look_up, permissions={"network"}, target="region")


def _make_all() -> dict[str, Tool]:
    traits: Any = {"permissions": {"network"}, "target": "region"}
    return {
        "function": look_up,
        "class": LookUp(),
        "schema": Tool.from_schema("look_up", "Look something up.", SCHEMA, _find, **traits),
        "model": Tool.from_schema("look_up", "Look something up.", Query, _find_model, **traits),
        "deferred": _make_deferred(),
    }


KINDS = pytest.mark.parametrize("kind", list(_make_all()))


def _reshape(kind: str) -> Tool:
    return _make_all()[kind].reshaped(
        name="search", description="Search in Europe.", rename={"q": "query"}, hide=["limit"], fixed={"region": "eu"}
    )


def _call(made: Tool, arguments: dict[str, Any] | str, policy: str = "allow network eu") -> ToolResult:
    agent = Agent(None, tools=[made], policy=rules(policy))
    return asyncio.run(agent.call(made.spec.name, arguments))


@KINDS
def test_the_model_sees_the_new_schema_and_the_tool_gets_its_own_names(kind: str) -> None:
    made = _reshape(kind)
    agent: Agent[Any, Any] = Agent(None, tools=[made], policy=rules("allow network eu"))
    result = asyncio.run(agent.call("search", {"query": "tea"}))
    assert result.for_llm == "tea in eu, 10"
    spec = agent.registry["search"].spec
    assert (spec.description, [*spec.parameters["properties"]], spec.parameters["required"]) == (
        "Search in Europe.",
        ["query"],
        ["query"],
    )


@KINDS
def test_a_model_cannot_override_what_is_fixed(kind: str) -> None:
    for arguments in (
        {"query": "tea", "region": "us"},
        {"query": "tea", "Region": "us"},
        {"query": "tea", "limit": 99},
        {"query": "tea", "q": "coffee"},
        '{"query": "tea", "region": "us"}',
        {"arguments": {"query": "tea", "region": "us"}},
    ):
        result = _call(_reshape(kind), arguments, "allow network")
        assert not result.success, arguments
    assert _call(_reshape(kind), {"query": "tea", "region": "eu"}).for_llm == "tea in eu, 10"


def test_an_alias_gives_no_way_around() -> None:
    assert not _call(_reshape("function"), {"query": "tea", "area": "us"}, "allow *").success
    assert not _call(_reshape("deferred"), {"query": "tea", "area": "us"}, "allow *").success
    assert _call(_reshape("function"), {"text": "tea"}).for_llm == "tea in eu, 10"  # that of a renamed parameter stays


def test_an_open_schema_gives_no_way_around() -> None:
    open_schema = {**SCHEMA, "additionalProperties": True}
    made = Tool.from_schema("look_up", "Look up.", open_schema, _find).reshaped(fixed={"region": "eu"}, hide=["limit"])
    for name in ("region", "REGION", "limit", "Limit"):
        assert not _call(made, {"q": "tea", name: "us"}, "allow *").success, name
    assert _call(made, {"q": "tea", "colour": "green"}, "allow *").for_llm == "tea in eu, 10"


@KINDS
def test_rules_judge_fixed_and_renamed_arguments(kind: str) -> None:
    assert not _call(_reshape(kind), {"query": "tea"}, "allow network us").success
    assert _call(_reshape(kind), {"query": "tea"}, "allow network eu").success
    renamed = _make_all()[kind].reshaped(rename={"region": "place"})
    assert not _call(renamed, {"q": "tea", "place": "us"}).success
    assert _call(renamed, {"q": "tea", "place": "eu"}).for_llm == "tea in eu, 10"


@KINDS
def test_rules_judge_the_default_of_a_hidden_target(kind: str) -> None:
    hidden = _make_all()[kind].reshaped(hide=["region"])
    assert not _call(hidden, {"q": "tea"}, "allow network eu").success
    assert _call(hidden, {"q": "tea"}, "allow network us").for_llm == "tea in us, 10"


@KINDS
def test_a_person_sees_and_edits_the_arguments(kind: str) -> None:
    asked: list[PermissionRequest] = []

    async def approve(request: PermissionRequest) -> Answer:
        asked.append(request)
        return Answer("once", arguments={**request.arguments, "query": "coffee"})

    agent: Agent[Any, Any] = Agent(None, tools=[_reshape(kind)], approve=approve)
    result = asyncio.run(agent.call("search", {"query": "tea"}))
    assert result.for_llm.splitlines()[0] == "coffee in eu, 10"
    assert (asked[0].arguments["query"], asked[0].arguments["region"], asked[0].target) == ("tea", "eu", "eu")


def test_the_preview_gets_the_names_of_the_tool() -> None:
    asked: list[PermissionRequest] = []

    async def approve(request: PermissionRequest) -> Answer:
        asked.append(request)
        return Answer("no")

    made = LookUp().reshaped(rename={"q": "query"}, fixed={"region": "eu"})
    assert not asyncio.run(Agent(None, tools=[made], approve=approve).call("look_up", {"query": "tea"})).success
    assert asked[0].preview == "asks eu for tea"


def test_mistakes_are_told_where_the_tool_is_shaped() -> None:
    for kind in ("function", "class", "schema", "model"):
        made = _make_all()[kind]
        with pytest.raises(DefinitionError, match=r"rename names 'regoin'.*did you mean 'region'"):
            made.reshaped(rename={"regoin": "place"})
        with pytest.raises(DefinitionError, match=r"hide names 'limits'.*did you mean 'limit'"):
            made.reshaped(hide=["limits"])
        with pytest.raises(DefinitionError, match=r"fixed names 'zzz'.*its parameters are q, region, limit"):
            made.reshaped(fixed={"zzz": 1})
        with pytest.raises(DefinitionError, match="'q' is required and cannot be hidden"):
            made.reshaped(hide=["q"])
        with pytest.raises(DefinitionError, match="already a parameter"):
            made.reshaped(rename={"q": "region"})
        with pytest.raises(DefinitionError, match="limit"):
            made.reshaped(fixed={"limit": "many"})
        with pytest.raises(DefinitionError, match="in two of"):
            made.reshaped(fixed={"limit": 1}, hide=["limit"])
    with pytest.raises(DefinitionError, match="is a string"):
        look_up.reshaped(hide="limit")
    assert look_up.reshaped(fixed={"limit": 1}).spec.fixed == {"limit": 1}


def test_a_deferred_tool_tells_mistakes_once_it_is_built() -> None:
    made = _make_deferred().reshaped(rename={"regoin": "place"})
    with pytest.raises(DefinitionError, match="did you mean 'region'"):
        asyncio.run(made.ready())
    good = _make_deferred().reshaped(rename={"region": "place"})
    asyncio.run(good.ready())
    assert good.spec.target == "place"


def test_built_in_tools_keep_their_names() -> None:
    from forge.tools.file_read import FileRead

    with pytest.raises(DefinitionError, match="cannot rename a built-in tool"):
        FileRead().reshaped(name="cat")
    with pytest.raises(DefinitionError, match="cannot rename a built-in tool"):
        FileRead().reshaped(rename={"path": "file"})


def test_a_built_in_tool_reads_one_fixed_file(tmp_path: Path) -> None:
    from forge import Scope
    from forge.tools.file_read import FileRead

    (tmp_path / "notes.txt").write_text("Buy tea.")
    (tmp_path / "other.txt").write_text("Secret.")
    made = FileRead().reshaped(fixed={"path": "notes.txt"}, description="Read the notes.")
    agent: Agent[Any, Any] = Agent(
        None, tools=[made], policy=rules("allow read notes.txt"), scope=Scope(workspace=tmp_path)
    )
    assert "Buy tea." in asyncio.run(agent.call("file_read", {})).for_llm
    assert not asyncio.run(agent.call("file_read", {"path": "other.txt"})).success
    assert not asyncio.run(agent.call("file_read", {"file_path": "other.txt"})).success


def test_a_reshaped_tool_can_be_reshaped_again() -> None:
    made = look_up.reshaped(fixed={"region": "eu"}).reshaped(rename={"q": "query"}, fixed={"limit": 3})
    assert _call(made, {"query": "tea"}).for_llm == "tea in eu, 3"
    assert not _call(made, {"query": "tea", "region": "us"}, "allow *").success


def test_a_model_calls_a_reshaped_tool_in_a_run() -> None:
    model = Scripted(ToolCall("search", {"query": "tea"}), "Done.")
    agent = Agent(model, tools=[look_up, _reshape("function")], policy=rules("allow network eu"))
    result = agent.run_sync("Search.")
    assert [message.text for message in result.messages if message.role == "tool"] == ["tea in eu, 10"]


def test_a_reshaped_tool_runs_in_its_own_process() -> None:
    assert _call(add.reshaped(rename={"a": "first"}, fixed={"b": 20}), {"first": 100}).for_llm == "123"


async def test_an_operation_of_an_api_can_be_reshaped() -> None:
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "region", "in": "query", "schema": {"type": "string"}},
    ]
    operation = {"operationId": "get", "parameters": parameters, "responses": {"200": {"description": "ok"}}}
    paths = {"/pets/{id}": {"get": operation}}
    document = {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": paths}
    async with openapi(document, name="pets", server="https://api.example.com") as tools:
        made = tools[0].reshaped(name="find_pet", rename={"id": "pet"}, fixed={"region": "eu"})
        arguments = made.parse({"pet": "7"})
        assert made.targets(arguments) == ["https://api.example.com/pets/7?region=eu"]
        with pytest.raises(ToolError, match="'region' is fixed"):
            made.parse({"pet": "7", "region": "us"})
