"""One operation of a document that nobody mounted."""

from __future__ import annotations

import json
import shutil

import pytest

from forge import Agent, Scope, Scripted, ToolCall, ToolContext, rules
from forge.agent import HookDecision, TurnContext
from forge.core.registry import ToolRegistry
from forge.network.egress import Egress
from forge.openapi import openapi
from forge.openapi.openapi_call import OpenapiCall
from forge.pipeline import standard_executor
from tests.openapi.mounting import HERE, PETSTORE, Api, document, json_page, kind_of, serving, site

TOKEN = "hunter2-hunter2"


def bench(workspace, specs=None, egress: Egress | None = HERE) -> Api:
    return Api(ToolRegistry([OpenapiCall(specs)]), workspace, egress)


def placed(workspace, server) -> str:
    one = document([{"name": "q", "in": "query", "schema": {"type": "integer"}}])
    (workspace / "api.json").write_text(json.dumps({**one, "servers": [{"url": server.url}]}))
    return "api.json"


@pytest.mark.parametrize("operation", ["it", "GET /it"])
async def test_a_document_of_the_workspace(tmp_path, operation):
    async with serving(json_page('{"ok": 1}')) as server:
        api = bench(tmp_path)
        spec = placed(tmp_path, server)
        result = await api.call("openapi_call", spec=spec, operation_id=operation, params={"q": "3"})
        assert result.success, result.for_llm
        assert result.data["body"] == {"ok": 1}
        assert server.paths == ["/it?q=3"]
        assert api.asked == [("read", "api.json"), ("network", f"{server.url}/it?q=3")]


async def test_a_document_on_a_server(tmp_path):
    one = {**document(), "servers": [{"url": "/v1"}]}
    async with serving(site({"/api.json": json_page(json.dumps(one)), "/v1/it": json_page("{}")})) as server:
        api = bench(tmp_path)
        result = await api.call("openapi_call", spec=f"{server.url}/api.json", operation_id="it")
        assert result.success, result.for_llm
        assert api.asked == [("network", f"{server.url}/api.json"), ("network", f"{server.url}/v1/it")]
        assert (
            kind_of(await bench(tmp_path, egress=None).call("openapi_call", spec=server.url, operation_id="it"))
            == "security_error"
        )


async def test_what_the_document_leads_to_is_asked_for(tmp_path):
    async with serving(json_page("{}")) as server:
        api = bench(tmp_path)
        api.refused.add(f"{server.url}/it")
        spec = placed(tmp_path, server)
        assert kind_of(await api.call("openapi_call", spec=spec, operation_id="it")) == "permission_error"
        assert server.asked == []


async def test_a_configured_one_keeps_its_credentials(tmp_path):
    async with serving(json_page("[]")) as server:
        source = openapi(PETSTORE, name="pets", server=server.url, auth={"bearer": TOKEN})
        api = bench(tmp_path, {"pets": source}, egress=None)
        for _ in range(2):  # not opened yet, and opened
            result = await api.call("openapi_call", spec="pets", operation_id="listPets", params={"limit": 2})
            assert result.success, result.for_llm
        assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"] * 2
        assert api.asked == [("network", f"{server.url}/pets?limit=2")] * 2


async def test_a_rule_about_the_operation_holds_whichever_way_it_is_called(tmp_path):
    async with serving(json_page("[]")) as server:
        source = openapi(PETSTORE, name="pets", server=server.url)
        executor = standard_executor(
            [OpenapiCall({"pets": source})], policy=rules("allow *", "deny tool:pets__createPet"), egress=HERE
        )
        scope = Scope(workspace=tmp_path)
        arguments = {"spec": "pets", "operation_id": "createPet", "params": {"name": "Rex"}}
        refused = await executor.execute(ToolCall("openapi_call", arguments), scope)
        assert kind_of(refused) == "permission_error"
        assert "deny tool:pets__createPet" in refused.for_llm
        assert server.asked == []
        listed = ToolCall("openapi_call", {"spec": "pets", "operation_id": "listPets"})
        assert (await executor.execute(listed, scope)).success


async def test_mistakes_are_explained(tmp_path):
    shutil.copy(PETSTORE, tmp_path / "pets.yaml")
    api = bench(tmp_path, {"shop": openapi(PETSTORE)})
    near = await api.call("openapi_call", spec="pets.yaml", operation_id="listpet")
    assert kind_of(near) == "not_found"
    assert '"listPets"' in near.for_llm
    unknown = await api.call("openapi_call", spec="nowhere.yaml", operation_id="x")
    assert kind_of(unknown) == "not_found"
    assert "The configured APIs are shop." in unknown.for_llm
    wrong = await api.call("openapi_call", spec="pets.yaml", operation_id="listPets", params={"limit": "many"})
    assert kind_of(wrong) == "validation_error"
    assert "limit" in wrong.for_llm
    outside = await api.call("openapi_call", spec="../x.yaml", operation_id="x")
    assert kind_of(outside) in ("permission_error", "security_error")


async def test_a_changed_document_is_read_again(tmp_path):
    async with serving(json_page("{}")) as server:
        api = bench(tmp_path)
        spec = placed(tmp_path, server)
        assert (await api.call("openapi_call", spec=spec, operation_id="it")).success
        text = (tmp_path / spec).read_text()
        (tmp_path / spec).write_text(text.replace('"it"', '"other"'))
        assert kind_of(await api.call("openapi_call", spec=spec, operation_id="it")) == "not_found"
        assert (await api.call("openapi_call", spec=spec, operation_id="other")).success


async def test_an_operation_that_was_not_chosen_for_a_turn_is_not_called_this_way():
    call = ToolCall("openapi_call", {"spec": "pets", "operation_id": "listPets", "params": {"limit": 1}})
    for left_out, count in (("pets__listPets", 0), ("pets__showPetById", 1)):

        def choose(ctx: TurnContext, left_out: str = left_out) -> list[str]:
            return [name for name in ctx.tools if name != left_out]

        async with serving(json_page("[]")) as server:
            source = openapi(PETSTORE, name="pets", server=server.url, egress=HERE)
            async with Agent(
                Scripted(call, "done"),
                tools=[source, OpenapiCall({"pets": source})],
                policy=rules("allow network"),
                choose_tools=choose,
            ) as agent:
                result = await agent.run("go")
            assert len(server.paths) == count
            assert ("pets__listPets is not offered in this turn" in result.messages[-2].text) == (count == 0)


async def test_hooks_see_the_operation_by_its_own_name(tmp_path):
    async with serving(json_page("[]")) as server:
        source = openapi(PETSTORE, name="pets", server=server.url, egress=HERE)
        agent = Agent(None, tools=[OpenapiCall({"pets": source})], policy=rules("allow network"))

        @agent.before_call(match="pets__listPets")
        def check(ctx: ToolContext) -> HookDecision:
            if ctx.arguments["limit"] > 5:
                return HookDecision(block="At most five.")
            return HookDecision(arguments={**ctx.arguments, "limit": 1}, context="One is enough.")

        results = [
            await agent.call("openapi_call", {"spec": "pets", "operation_id": "listPets", "params": {"limit": limit}})
            for limit in (9, 2)
        ]
        assert "the hook 'check' refused it: At most five." in results[0].for_llm
        assert "The hook 'check' adds: One is enough." in results[1].for_llm
        assert server.paths == ["/pets?limit=1"]
