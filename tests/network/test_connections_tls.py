"""HTTPS on loopback: the connection goes to the judged address, the certificate and SNI are the name's."""

from __future__ import annotations

import asyncio

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import ProviderError
from forge.models.http.post import SentEvent, post_stream
from forge.network import connections as tls
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.headers import RequestLimits
from tests.network.authority import Authority, make_authority
from tests.network.serving import HERE, page, redirect, serving, site

LOCAL = Egress(private=("localhost", "127.0.0.1"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority, monkeypatch):
    """As a person would trust it: the environment counts."""
    monkeypatch.setenv("FORGE_TRUST_ENV", "1")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    tls._load.cache_clear()
    yield
    tls._load.cache_clear()


@pytest.mark.usefixtures("trusted")
async def test_the_name_is_what_tls_is_spoken_to(authority):
    async with serving(page("secure"), tls=authority.certify("DNS:localhost")) as server:
        found = await fetch("GET", f"https://localhost:{server.port}/x", egress=LOCAL)
        again = await fetch("GET", f"https://LOCALHOST.:{server.port}/x", egress=LOCAL)
    assert found.body == again.body == b"secure"
    assert set(server.names) == {"localhost"}
    assert server.asked[0].headers["host"] == f"localhost:{server.port}"


@pytest.mark.usefixtures("trusted")
async def test_an_address_needs_a_certificate_for_it(authority):
    async with serving(page("secure"), tls=authority.certify("IP:127.0.0.1")) as server:
        assert (await fetch("GET", server.url, egress=HERE)).body == b"secure"
        with pytest.raises(ToolError, match="no secure connection") as raised:
            await fetch("GET", f"https://localhost:{server.port}", egress=LOCAL)
    assert raised.value.kind is ErrorKind.SECURITY
    assert len(server.asked) == 1


async def test_the_environment_s_certificates_do_not_count_by_themselves(authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.delenv("FORGE_TRUST_ENV", raising=False)
    async with serving(page(), tls=authority.certify("IP:127.0.0.1")) as server:
        with pytest.raises(ToolError, match="no secure connection") as raised:
            await fetch("GET", server.url, egress=HERE)
    assert "FORGE_TRUST_ENV=1" in raised.value.suggestion
    assert server.asked == []


@pytest.mark.usefixtures("trusted")
async def test_a_redirect_from_https_to_http_takes_no_secret_along(authority):
    async with serving(page()) as plain:
        pages = {"/": redirect(plain.url), "/near": redirect("/end"), "/end": page()}
        async with serving(site(pages), tls=authority.certify("IP:127.0.0.1")) as server:
            await fetch("GET", server.url, headers={"X-Key": "s"}, egress=HERE)
            await fetch("GET", f"{server.url}/near", headers={"X-Key": "s"}, egress=HERE)
    assert "x-key" not in plain.asked[0].headers
    assert server.paths == ["/", "/near", "/end"]
    assert all(asked.headers["x-key"] == "s" for asked in server.asked)


@pytest.mark.usefixtures("trusted")
async def test_http_spoken_to_https_and_the_other_way_round_are_errors(authority):
    async with serving(page()) as plain, serving(page(), tls=authority.certify("IP:127.0.0.1")) as secure:
        for url in (plain.url.replace("http:", "https:"), secure.url.replace("https:", "http:")):
            with pytest.raises(ToolError, match=r"no secure connection|no connection|not valid HTTP|broke"):
                await fetch("GET", url, egress=HERE, limits=RequestLimits(connect=0.3))


@pytest.mark.usefixtures("trusted")
async def test_models_and_tools_trust_the_same_certificates(authority, tmp_path):
    async def ask_model(url: str) -> list[str]:
        events = post_stream(url, headers={}, body={}, label="openai", attempts=1)
        return [event.data async for event in events if isinstance(event, SentEvent)]

    async with serving(page("data: secure", "text/event-stream"), tls=authority.certify("DNS:localhost")) as server:
        url = f"https://localhost:{server.port}/x"
        assert (await fetch("GET", url, egress=LOCAL)).body == b"data: secure"
        assert await ask_model(url) == ["secure"]
    unknown = make_authority(tmp_path)
    async with serving(page("data: secure"), tls=unknown.certify("DNS:localhost")) as server:
        with pytest.raises(ProviderError, match="no secure connection"):
            await ask_model(f"https://localhost:{server.port}/x")


@pytest.mark.usefixtures("trusted")
async def test_calls_that_begin_together_share_one_pool(authority):
    async with serving(page("secure"), tls=authority.certify("DNS:localhost")) as server:
        url, before = f"https://localhost:{server.port}/x", len(tls._pools)
        await asyncio.gather(*(fetch("GET", url, egress=LOCAL) for _ in range(5)))
        assert len(tls._pools) == before + 1
