"""Credentials go where they belong, to the server a person named, and are seen nowhere else."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.messages import ToolCall
from forge.network.egress import Egress
from forge.openapi import openapi
from forge.openapi.credentials import Auth
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from tests.openapi.mounting import PETSTORE, document, json_page, kind_of, mount, page, redirect, serving

TOKEN = "hunter2-hunter2"
KEY = {"name": "X-Key", "in": "header"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("PETS_TOKEN", f" {TOKEN}\n")
    monkeypatch.setenv("PETS_USER", "ada")
    monkeypatch.delenv("PETS_MISSING", raising=False)


async def asked_with(auth, spec=PETSTORE, tool="pets__listPets", **arguments):
    async with serving(json_page("[]")) as server, mount(spec, server=server.url, auth=auth) as api:
        result = await api.call(tool, **arguments)
        assert result.success, result.for_llm
        assert TOKEN not in f"{result} {api.asked} {api.registry.definitions()}"
        return server.asked[0]


@pytest.mark.parametrize("auth", [{"bearer": TOKEN}, {"bearer_env": "PETS_TOKEN"}])
async def test_a_bearer_token(auth):
    assert (await asked_with(auth)).headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "auth",
    [
        {"basic": ("ada", TOKEN)},
        {"basic": f"ada:{TOKEN}"},
        {"basic": {"user": "ada", "password": TOKEN}},
        {"basic_env": {"user_env": "PETS_USER", "password_env": "PETS_TOKEN"}},
        {"basic_env": {"user": "PETS_USER", "password": "PETS_TOKEN"}},  # as in forge.yaml
    ],
)
async def test_a_user_and_a_password(auth):
    wanted = b64encode(f"ada:{TOKEN}".encode()).decode()
    assert (await asked_with(auth)).headers["authorization"] == f"Basic {wanted}"
    assert wanted in openapi(PETSTORE, auth=auth).secrets
    assert TOKEN in openapi(PETSTORE, auth=auth).secrets


async def test_an_api_key_goes_where_the_person_says():
    assert (await asked_with({"api_key": TOKEN, **KEY})).headers["x-key"] == TOKEN
    assert (
        await asked_with({"api_key": TOKEN, "name": "k", "in": "query"}, limit=1)
    ).path == f"/pets?limit=1&k={TOKEN}"
    asked = await asked_with({"api_key_env": "PETS_TOKEN", "name": "k", "in": "cookie"})
    assert asked.headers["cookie"] == f"k={TOKEN}"


async def test_an_api_key_goes_where_the_document_says():
    assert (await asked_with({"api_key": TOKEN})).path == f"/pets?api_key={TOKEN}"


async def test_an_api_key_may_be_called_by_the_name_of_its_scheme():
    assert (await asked_with({"api_key": TOKEN, "name": "key"})).path == f"/pets?api_key={TOKEN}"
    assert (await asked_with({"api_key": TOKEN, "name": "api_key"})).path == f"/pets?api_key={TOKEN}"
    assert (await asked_with({"api_key": TOKEN, "name": "X-Other"})).headers["x-other"] == TOKEN


async def test_a_document_that_does_not_say_where_needs_to_be_told():
    with pytest.raises(ToolError, match="no places for an API key"):
        async with openapi(document(), auth={"api_key": TOKEN}):
            pass


async def test_several_credentials_go_together():
    asked = await asked_with([{"bearer": TOKEN}, {"api_key": "other-secret", **KEY}])
    assert (asked.headers["authorization"], asked.headers["x-key"]) == (f"Bearer {TOKEN}", "other-secret")


async def test_an_operation_that_needs_none_gets_none():
    asked = await asked_with({"bearer": TOKEN}, tool="pets__delete_pets_petId", petId="1")
    assert "authorization" not in asked.headers


async def test_a_model_neither_sees_nor_sets_them():
    parameters: list[Any] = [{"name": name, "in": "header", "schema": {}} for name in ("X-Key", "X-Version", "X-Other")]
    one = document(parameters)
    options: dict[str, Any] = {"auth": {"api_key": TOKEN, **KEY}, "headers": {"x-version": "7"}}
    async with serving(json_page("{}")) as server, mount(one, server=server.url, **options) as api:
        assert list(api.registry["pets__it"].spec.parameters["properties"]) == ["X-Other"]
        for name in ("X-Key", "X-Version"):
            refused = await api.call("pets__it", **{name: "mine", "X-Other": "o"})
            assert f"{name}: unknown argument" in refused.for_llm
        assert server.asked == []
        assert (await api.call("pets__it", **{"X-Other": "o"})).success
        asked = server.asked[0]
    assert (asked.headers["x-key"], asked.headers["x-version"], asked.headers["x-other"]) == (TOKEN, "7", "o")
    assert asked.names.count("x-key") == asked.names.count("x-version") == 1


async def test_a_header_of_cookies_is_no_way_round_them():
    one = document([{"name": "Cookie", "in": "header", "schema": {}}, {"name": "sid", "in": "cookie", "schema": {}}])
    auth = {"api_key": TOKEN, "name": "k", "in": "cookie"}
    async with serving(json_page("{}")) as server, mount(one, server=server.url, auth=auth) as api:
        refused = await api.call("pets__it", Cookie="k=mine", sid="1")
        assert "Cookie: unknown argument" in refused.for_llm
        assert server.asked == []
    asked = await asked_with(auth, one, "pets__it", sid="1")
    assert asked.headers["cookie"] == f"sid=1; k={TOKEN}"
    assert asked.names.count("cookie") == 1


async def test_what_a_server_sends_back_is_masked():
    echo = page(f'{{"you_sent": "Bearer {TOKEN}"}}', "application/json", X_RateLimit_User=TOKEN)
    async with serving(echo) as server, mount(server=server.url, auth={"bearer": TOKEN}) as api:
        result = await api.call("pets__listPets")
    assert "[secret]" in result.for_llm
    assert TOKEN not in repr(result.to_dict())


async def test_events_and_errors_hold_none():
    seen = []
    source = openapi(PETSTORE, name="pets", server="http://127.0.0.1:1", auth={"api_key": TOKEN})
    async with source as tools:
        activity = ActivityStream()
        activity.subscribe(lambda event: seen.append(repr(event)), "*")
        executor = standard_executor(tools, policy=rules("allow network"), activity=activity)
        result = await executor.execute(ToolCall("pets__listPets", {}), Scope())
    assert kind_of(result) == "system_error"
    assert TOKEN not in "".join([*seen, repr(result), repr(source), repr(tools), repr(vars(tools[0]))])


async def test_only_a_server_that_a_person_named_gets_them():
    async with serving(json_page("[]")) as server:
        here = {**document(), "servers": [{"url": server.url}]}
        allowed = Egress(private=("127.0.0.0/8",))
        async with mount(here, auth={"bearer": TOKEN}, egress=Egress(private=("127.0.0.2",))) as api:
            refused = await api.call("pets__it")
            assert kind_of(refused) == "config_error"
            assert "only the document names" in refused.for_llm
        async with mount(here, headers={"X-Key": TOKEN}, egress=Egress(private=("127.0.0.2",))) as api:
            assert kind_of(await api.call("pets__it")) == "config_error"
        assert server.asked == []
        async with mount(here, auth={"bearer": TOKEN}, egress=allowed) as api:  # it is written down there
            assert (await api.call("pets__it")).success
        async with mount(here, auth={"bearer": TOKEN}, server=server.url) as api:
            assert (await api.call("pets__it")).success
        assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"] * 2


async def test_a_redirect_elsewhere_is_an_answer():
    async with serving(json_page("[]")) as other, serving(redirect(f"{other.url}/x")) as server:
        async with mount(server=server.url, auth={"bearer": TOKEN}) as api:
            result = await api.call("pets__listPets")
        assert result.success
        assert f"location: {other.url}/x" in result.for_llm
        assert other.asked == []


async def test_a_variable_that_is_not_set_is_told_when_it_is_needed(caplog):
    caplog.set_level(logging.WARNING)
    auth = {"bearer_env": "PETS_MISSING"}
    async with serving(json_page("[]")) as server, mount(server=server.url, auth=auth) as api:
        result = await api.call("pets__listPets")
        assert kind_of(result) == "config_error"
        assert "PETS_MISSING is not set" in result.for_llm
        assert (await api.call("pets__delete_pets_petId", petId="1")).success  # which needs none
    assert "PETS_MISSING" in caplog.text


def test_secrets_are_known_before_anything_is_opened():
    auth: Auth = {"api_key": "a b+c d/e", "name": "X-Key", "in": "header"}
    source = openapi(PETSTORE, auth=auth, headers={"Authorization": f"Bot {TOKEN}", "X-V": "long enough"})
    assert source.secrets == ("a b+c d/e", "a%20b%2Bc%20d%2Fe", f"Bot {TOKEN}", TOKEN)
    assert openapi(PETSTORE, auth={"bearer": "short"}).secrets == ()


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"token": "x"},
        {"bearer": "x", "basic": "a:b"},
        {"basic": 5},
        {"basic_env": {"user_env": "A"}},
        {"api_key": "x", "name": "n", "in": "body"},
    ],
)
def test_mistakes_in_auth_are_told_at_once(auth):
    with pytest.raises(DefinitionError, match="auth"):
        openapi(PETSTORE, auth=auth)
