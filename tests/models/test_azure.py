"""Azure OpenAI: addresses as its own package uses them, with a key or with an Entra ID."""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import SSLContext
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from openai import AsyncAzureOpenAI

from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.vendors import provider_for
from forge.network import connections
from tests.models.serving import Reply, refusal, serving, sse, stream
from tests.network.authority import make_authority

ASK = ModelRequest(messages=[Message("user", "Hi")])
HELLO = stream(sse({"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}))
KEY = "azure-key-0123456789"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"),
        *("AZURE_OPENAI_AD_TOKEN", "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_AUTHORITY_HOST"),
        *("AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT", "IDENTITY_HEADER"),
        *("AZURE_POD_IDENTITY_AUTHORITY_HOST", "MSI_ENDPOINT"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-must-not-go-to-azure")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSLContext]:
    """A server's certificate, which our client trusts: azure-identity sends secrets only over TLS."""
    authority = make_authority(tmp_path_factory.mktemp("authority"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_TRUST_ENV", "1")
        patch.setenv("SSL_CERT_FILE", str(authority.file))
        connections._load.cache_clear()
        yield authority.certify("IP:127.0.0.1")
    connections._load.cache_clear()


async def ask(model: str = "azure:my-gpt", times: int = 1) -> Message:
    provider = provider_for(model)
    for _ in range(times):
        async with aclosing(provider.stream(ASK)) as parts:  # type: ignore[type-var]
            *_, message = [part async for part in parts]
    assert isinstance(message, Message)
    return message


def token(text: str = "eyJ.a-token", **more: object) -> Reply:
    document = {"access_token": text, "expires_in": 3_600, "token_type": "Bearer", **more}
    return Reply([json.dumps(document).encode()], headers={"Content-Type": "application/json"}, framing="length")


async def test_a_resource_with_a_key(monkeypatch):
    async with serving(HELLO) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/")
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        assert (await ask()).text == "Hello."
        monkeypatch.setenv("OPENAI_API_VERSION", "2025-04-01-preview")
        assert (await ask()).text == "Hello."
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/openai/v1")
        monkeypatch.delenv("OPENAI_API_VERSION")
        await ask()
    first, second, third = server.asked
    assert (first.path, first.body["model"]) == ("/openai/v1/chat/completions", "my-gpt")
    assert first.headers["authorization"] == f"Bearer {KEY}"
    own = "/openai/deployments/my-gpt/chat/completions?api-version=2025-04-01-preview"
    assert (second.path, second.headers["api-key"]) == (own, KEY)
    assert "authorization" not in second.headers
    assert third.path == first.path


async def test_a_client_with_a_secret(monkeypatch, tls):
    async with serving(token(), HELLO, tls=tls) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        for name, value in (("TENANT_ID", "my-tenant"), ("CLIENT_ID", "me"), ("CLIENT_SECRET", "s3cr3t")):
            monkeypatch.setenv(f"AZURE_{name}", value)
        await ask(times=2)
    login, *asked = server.asked
    form = parse_qs(login.raw.decode())
    assert login.path == "/my-tenant/oauth2/v2.0/token"
    assert form["scope"] == ["https://cognitiveservices.azure.com/.default"]
    assert form["client_secret"] == ["s3cr3t"]
    assert [one.headers["authorization"] for one in asked] == ["Bearer eyJ.a-token"] * 2


async def test_a_workload_with_a_token_in_a_file(monkeypatch, tls, tmp_path: Path):
    (tmp_path / "token").write_text("workload-token")
    async with serving(token(), HELLO, tls=tls) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AZURE_TENANT_ID", "t")
        monkeypatch.setenv("AZURE_CLIENT_ID", "me")
        await ask()
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "nothing"))
        with pytest.raises(ProviderError, match="nothing"):
            await ask()
    assert parse_qs(server.asked[0].raw.decode())["client_assertion"] == ["workload-token"]


async def test_a_client_with_a_certificate(monkeypatch, tls, tmp_path: Path):
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")]), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (tmp_path / "me.pem").write_bytes(pem + key.private_bytes(*form, serialization.NoEncryption()))
    locked = serialization.BestAvailableEncryption(b"a password")
    (tmp_path / "locked.pem").write_bytes(pem + key.private_bytes(*form, locked))
    async with serving(token(), HELLO, tls=tls) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        monkeypatch.setenv("AZURE_TENANT_ID", "t")
        monkeypatch.setenv("AZURE_CLIENT_ID", "me")
        monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", str(tmp_path / "me.pem"))
        await ask()
        monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", str(tmp_path / "locked.pem"))
        with pytest.raises(ProviderError, match="key is encrypted") as refused:
            await ask()
        assert "openssl" in refused.value.suggestion
    assertion = parse_qs(server.asked[0].raw.decode())["client_assertion"][0]
    header, claims, signature = (urlsafe_b64decode(part + "==") for part in assertion.split("."))
    padding = PSS(MGF1(hashes.SHA256()), 32)
    key.public_key().verify(signature, assertion.rpartition(".")[0].encode(), padding, hashes.SHA256())
    thumbprint = urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).decode()
    assert json.loads(header) == {"alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint}
    said = json.loads(claims)
    assert (said["iss"], said["sub"], said["aud"]) == ("me", "me", f"{server.url}/t/oauth2/v2.0/token")
    assert said["exp"] - said["nbf"] <= 1_800


async def test_a_managed_identity_of_an_app_and_of_a_machine(monkeypatch):
    mine = {"resource": "https://cognitiveservices.azure.com"}
    app_token = token(expires_in="86000", expires_on="4102444800", **mine)
    async with serving(app_token, HELLO, token(**mine), HELLO) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "a-secret-header")
        await ask()
        monkeypatch.delenv("IDENTITY_ENDPOINT")
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        monkeypatch.setenv("AZURE_CLIENT_ID", "mine")
        await ask()
    app, _, machine, _ = server.asked
    assert app.headers["x-identity-header"] == "a-secret-header"
    assert machine.headers["metadata"] == "true"
    assert parse_qs(urlsplit(machine.path).query) == {
        "resource": ["https://cognitiveservices.azure.com"],
        "api-version": ["2018-02-01"],
        "client_id": ["mine"],
    }


async def test_what_is_missing_or_refused_is_named(monkeypatch):
    with pytest.raises(ProviderError, match="AZURE_OPENAI_ENDPOINT is not set"):
        provider_for("azure:my-gpt")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "my-resource")
    with pytest.raises(ProviderError, match="AZURE_OPENAI_ENDPOINT is not a URL"):
        provider_for("azure:my-gpt")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="there are no credentials") as refused:
        await ask()
    assert "AZURE_OPENAI_API_KEY" in refused.value.suggestion
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    async with serving(refusal(401, {"error": {"message": f"wrong key {KEY}"}})) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        with pytest.raises(ProviderError) as refused:
            await ask()
    assert "AZURE_OPENAI_API_KEY" in refused.value.suggestion
    assert KEY not in str(refused.value)


async def test_a_refused_client_says_what_to_do_and_shows_no_secret(monkeypatch, tls, caplog):
    caplog.set_level(logging.DEBUG)
    said = {"error": "invalid_client", "error_description": "AADSTS7000215: the secret s3cr3t-s3cr3t is invalid."}
    for name, value in (("TENANT_ID", "t"), ("CLIENT_ID", "me"), ("CLIENT_SECRET", "s3cr3t-s3cr3t")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    async with serving(refusal(401, said), tls=tls) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        with pytest.raises(ProviderError, match="HTTP 401: AADSTS7000215") as refused:
            await ask()
    assert "AZURE_TENANT_ID" in refused.value.suggestion
    assert "s3cr3t" not in f"{refused.value} {refused.value!r} {caplog.text}"
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="must be a TLS protected"):
        await ask()


async def test_a_token_that_is_about_to_end_is_replaced(monkeypatch, tls):
    for name, value in (("TENANT_ID", "t"), ("CLIENT_ID", "me"), ("CLIENT_SECRET", "s3cr3t-s3cr3t")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    first, second = token("eyJ.first", expires_in=0), token("eyJ.second")
    async with serving(first, HELLO, second, HELLO, HELLO, tls=tls) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        await ask(times=3)
    sent = [one.headers.get("authorization") for one in server.asked]
    assert sent == [None, "Bearer eyJ.first", None, "Bearer eyJ.second", "Bearer eyJ.second"]


async def test_the_responses_api_of_a_resource(monkeypatch):
    done = {
        "type": "response.completed",
        "response": {
            "status": "completed",
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
            ],
        },
    }
    async with serving(stream(sse(done, done=False))) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "eyJ.given")
        assert (await ask("azure-responses:my-gpt")).text == "Hello."
    assert server.asked[0].path == "/openai/v1/responses"
    assert server.asked[0].headers["authorization"] == "Bearer eyJ.given"


async def test_azures_own_client_uses_the_same_address(monkeypatch):
    async with serving(HELLO) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_VERSION", "2025-04-01-preview")
        await ask()
        async with AsyncAzureOpenAI(azure_endpoint=server.url, api_key=KEY) as client:
            answer = await client.chat.completions.create(
                model="my-gpt", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            texts = [chunk.choices[0].delta.content async for chunk in answer]
    assert texts == ["Hello."]
    ours, theirs = server.asked
    assert ours.path == theirs.path
    assert ours.headers["api-key"] == theirs.headers["api-key"]
