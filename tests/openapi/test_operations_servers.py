"""Where requests go: what a person says, and how much a document is believed."""

from __future__ import annotations

import json

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.network.egress import Egress, use_egress
from forge.openapi import openapi
from tests.openapi.mounting import (
    HERE,
    PETSTORE,
    document,
    json_page,
    kind_of,
    mount,
    open_tools,
    page,
    redirect,
    serving,
    site,
)


async def target(spec, tool="pets__it", **options):
    found = await open_tools(spec, **options)
    return found[tool].targets({})[0]


async def test_a_file_says_where_its_server_is():
    assert await target(PETSTORE, "pets__listPets") == "https://pets.example.com/v1/pets"


async def test_the_person_wins():
    assert (
        await target(PETSTORE, "pets__listPets", server="http://other.example.com/x/")
        == "http://other.example.com/x/pets"
    )


@pytest.mark.parametrize(
    ("servers", "wanted"),
    [
        (
            [{"url": "https://{a}.example.com/{b}", "variables": {"a": {"default": "eu"}, "b": {"default": "v1"}}}],
            "https://eu.example.com/v1/it",
        ),
        ([{"url": "ftp://x.example.com"}, {"url": "https://y.example.com/"}], "https://y.example.com/it"),
        ([{"url": "/v2"}, {"url": "https://y.example.com"}], "https://y.example.com/it"),
        ([{"url": "https://x.example.com/a?b=c#d"}], "https://x.example.com/a/it"),
    ],
)
async def test_servers_of_a_document(servers, wanted):
    assert await target({**document(), "servers": servers}) == wanted


async def test_an_operation_may_have_a_server_of_its_own():
    own = document(servers=[{"url": "https://own.example.com"}])
    assert await target(own) == "https://own.example.com/it"
    assert await target(own, server="https://all.example.com") == "https://all.example.com/it"


@pytest.mark.parametrize(
    "servers", [[], [{"url": "/v1"}], [{"url": "javascript://x"}], [{}], ["x"], [{"url": "http://u:p@x"}]]
)
async def test_a_document_without_a_server_needs_one(servers):
    with pytest.raises(ToolError, match="OpenAPI document") as caught:
        await open_tools({**document(), "servers": servers})
    assert caught.value.kind is ErrorKind.CONFIG
    assert "server=" in caught.value.suggestion
    assert await open_tools({**document(), "servers": servers}, server="https://x.example.com")


async def test_a_document_that_was_fetched_is_called_where_it_came_from():
    one = {**document(), "servers": [{"url": "/v1"}]}
    pages = {"/docs/openapi.json": json_page(json.dumps(one)), "/v1/it": json_page('{"ok": true}')}
    async with serving(site(pages)) as server, mount(f"{server.url}/docs/openapi.json", auth={"bearer": "x"}) as api:
        result = await api.call("pets__it")
        assert result.data["body"] == {"ok": True}
        assert api.asked == [("network", f"{server.url}/v1/it")]
        assert [asked.headers.get("authorization") for asked in server.asked] == [None, "Bearer x"]


async def test_a_document_that_was_fetched_names_no_other_server():
    async with serving(json_page(json.dumps(document()))) as server:
        with pytest.raises(ToolError, match="fetched from another server"):
            await open_tools(server.url)
        assert await open_tools(server.url, server="https://api.example.com")
        listed = Egress("allowlist", domains=("api.example.com",))
        assert await target(server.url, egress=listed) == "https://api.example.com/it"


async def test_private_addresses_are_reached_only_where_a_person_named_them():
    async with serving(json_page("{}")) as server:
        here = {**document(), "servers": [{"url": server.url}]}
        async with mount(here) as api:
            assert kind_of(await api.call("pets__it")) == "security_error"
        assert server.asked == []
        async with mount(here, egress=HERE) as api:
            assert (await api.call("pets__it")).success
        async with mount(here, server=server.url) as api:
            assert (await api.call("pets__it")).success
        async with mount(here, server=server.url, egress=Egress("allowlist")) as api:
            assert (await api.call("pets__it")).success
        assert len(server.asked) == 3
        async with mount(here, server=server.url, egress=Egress("deny-all")) as api:
            assert kind_of(await api.call("pets__it")) == "security_error"
        assert len(server.asked) == 3


async def test_no_metadata_server_is_ever_reached():
    async with mount(document(), server="http://169.254.169.254") as api:
        assert kind_of(await api.call("pets__it")) == "security_error"


@pytest.mark.parametrize(
    "answer",
    [page("missing", status="404"), page("<html>"), page(b"\xff\xfe"), redirect("https://elsewhere.example.com/")],
)
async def test_what_cannot_be_fetched_is_told(answer):
    async with serving(answer) as server:
        with pytest.raises(ToolError) as caught:
            await open_tools(server.url)
    assert caught.value.kind is ErrorKind.CONFIG


async def test_where_nothing_may_be_reached_no_document_is_fetched():
    async with serving(json_page("{}")) as server:
        with use_egress(Egress("deny-all")), pytest.raises(ToolError):
            async with openapi(server.url):
                pass
        assert server.asked == []
