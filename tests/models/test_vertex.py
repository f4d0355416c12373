"""Vertex: Gemini and Claude with Google Cloud's credentials, from every place where these are kept."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt as google_jwt

from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.credentials.tokens import read_private_key, sign_jwt
from forge.models.names import provider_for
from tests.models.serving import Reply, Server, named_sse, refusal, serving, sse, stream

ASK = ModelRequest(messages=[Message("user", "Hi")])
HELLO = {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]}
CLAUDE = named_sse(
    ("message_start", {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}),
    ("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello."}}),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
    ("message_stop", {"type": "message_stop"}),
)
KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def pem(form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> str:
    return KEY.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION", "GCLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")


def token(text: str = "ya29.a-token", seconds: int = 3_600) -> Reply:
    document = {"access_token": text, "expires_in": seconds, "token_type": "Bearer"}
    return Reply([json.dumps(document).encode()], framing="length")


async def ask(model: str = "vertex:gemini-3-pro", times: int = 1) -> Message:
    provider = provider_for(model)
    for _ in range(times):
        async with aclosing(provider.stream(ASK)) as parts:  # type: ignore[type-var]
            *_, message = [part async for part in parts]
    assert isinstance(message, Message)
    return message


def use(monkeypatch: pytest.MonkeyPatch, server: Server, path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps({**document, "token_uri": f"{server.url}/token"}))
    monkeypatch.setenv("VERTEX_BASE_URL", server.url)


@pytest.mark.parametrize("form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL])
def test_googles_own_package_accepts_our_signature(form):
    signed = sign_jwt({"iss": "me", "aud": "x", "iat": 1, "exp": 2**40}, read_private_key(pem(form)), "key-1")
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert google_jwt.decode(signed, certs=public, audience="x", clock_skew_in_seconds=0)["iss"] == "me"
    assert google_jwt.decode_header(signed) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "no key",
        pem()[:200],
        pem().replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
        "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----",
    ],
)
def test_a_broken_key_is_refused(broken):
    with pytest.raises(ValueError, match=r"key|base64|padding|Base64"):
        read_private_key(broken)


async def test_a_service_account_signs_for_its_token_and_the_token_is_used_until_it_ends(monkeypatch, tmp_path):
    async with serving(token(), stream(sse(HELLO, done=False))) as server:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        use(
            monkeypatch,
            server,
            tmp_path / "account.json",
            {"type": "service_account", "client_email": "me@example.org", "private_key": pem(), "private_key_id": "k1"},
        )
        assert (await ask(times=2)).text == "Hello."
    first, *asked = server.asked
    form = parse_qs(first.raw.decode())
    claims = google_jwt.decode(form["assertion"][0], verify=False)
    assert claims["iss"] == "me@example.org"
    assert claims["aud"] == f"{server.url}/token"
    assert [one.path for one in asked] == [
        "/v1/projects/my-project/locations/global/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"
    ] * 2
    assert asked[0].headers["authorization"] == "Bearer ya29.a-token"
    assert "x-goog-api-key" not in asked[0].headers


async def test_a_token_that_is_about_to_end_is_replaced(monkeypatch, tmp_path):
    login = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
    answer = stream(sse(HELLO, done=False))
    async with serving(token("ya29.first-one", 60), answer, token("ya29.second-one"), answer) as server:
        use(monkeypatch, server, tmp_path / "application_default_credentials.json", login)
        await ask(times=2)
    assert parse_qs(server.asked[0].raw.decode())["refresh_token"] == ["r"]
    assert [server.asked[at].headers["authorization"] for at in (1, 3)] == [
        "Bearer ya29.first-one",
        "Bearer ya29.second-one",
    ]


async def test_a_machine_of_google_cloud_gets_its_token_from_the_metadata_server(monkeypatch):
    async with serving(token(), stream(sse(HELLO, done=False))) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        monkeypatch.setenv("VERTEX_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
        await ask()
    assert server.asked[0].path == "/computeMetadata/v1/instance/service-accounts/default/token"
    assert server.asked[0].headers["metadata-flavor"] == "Google"
    assert "/locations/europe-west1/" in server.asked[1].path


async def test_claude_on_vertex_speaks_its_own_protocol(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "ya29.given")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-must-not-leave")
    async with serving(stream(CLAUDE)) as server:
        monkeypatch.setenv("VERTEX_BASE_URL", server.url)
        message = await ask("vertex:claude-sonnet-5@20260101")
    assert message.text == "Hello."
    (asked,) = server.asked
    path = "/v1/projects/my-project/locations/global/publishers/anthropic/models/claude-sonnet-5@20260101"
    assert asked.path == f"{path}:streamRawPredict"
    assert asked.headers["authorization"] == "Bearer ya29.given"
    assert "x-api-key" not in asked.headers
    assert asked.body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in asked.body


async def test_a_refused_login_says_what_to_do_and_shows_no_secret(monkeypatch, tmp_path):
    login = {"type": "authorized_user", "client_id": "c", "client_secret": "s3cr3t-s3cr3t", "refresh_token": "r3fr3sh"}
    async with serving(refusal(400, {"error": "invalid_grant", "error_description": "Token expired."})) as server:
        use(monkeypatch, server, tmp_path / "application_default_credentials.json", login)
        with pytest.raises(ProviderError, match=r"HTTP 400: Token expired\.") as refused:
            await ask()
    assert "gcloud auth application-default login" in refused.value.suggestion
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not JSON"), ("[]", "not a JSON object"), ('{"type": "gdch_service_account"}', "not supported")],
)
def test_a_file_that_cannot_be_used_is_named(monkeypatch, tmp_path, content, says):
    (tmp_path / "account.json").write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    with pytest.raises(ProviderError, match=says) as refused:
        provider_for("vertex:gemini-3-pro")
    assert "account.json" in str(refused.value)


def test_without_a_project_the_variable_is_named_and_the_file_may_name_it(monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    with pytest.raises(ProviderError, match="no Google Cloud project is set") as refused:
        provider_for("vertex:gemini-3-pro")
    assert "GOOGLE_CLOUD_PROJECT" in refused.value.suggestion
    login = {"type": "authorized_user", "quota_project_id": "theirs"}
    (tmp_path / "application_default_credentials.json").write_text(json.dumps(login))
    assert repr(provider_for("vertex:gemini-3-pro")) == "<Gemini vertex:gemini-3-pro>"


async def test_no_credentials_at_all(monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(ProviderError, match="there are no credentials") as refused:
        await ask()
    assert "gcloud auth application-default login" in refused.value.suggestion
