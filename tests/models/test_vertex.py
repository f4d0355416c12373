"""Vertex: Gemini and Claude with Google Cloud's credentials, from every place where these are kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.vendors import provider_for
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
async def test_a_broken_key_is_refused(monkeypatch, tmp_path, broken):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    document = {"type": "service_account", "client_email": "me@example.org", "private_key": broken}
    (tmp_path / "account.json").write_text(json.dumps(document))
    with pytest.raises(ProviderError, match=r"account\.json: its private_key cannot be used") as refused:
        await ask()
    assert "MAA=" not in str(refused.value)


@pytest.mark.parametrize("form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL])
async def test_a_service_account_signs_for_its_token_and_the_token_is_used_until_it_ends(monkeypatch, tmp_path, form):
    async with serving(token(), stream(sse(HELLO, done=False))) as server:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        use(
            monkeypatch,
            server,
            tmp_path / "account.json",
            {
                "type": "service_account",
                "client_email": "me@example.org",
                "private_key": pem(form),
                "private_key_id": "k1",
            },
        )
        assert (await ask(times=2)).text == "Hello."
    first, *asked = server.asked
    sent = parse_qs(first.raw.decode())
    assert sent["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    google = "https://oauth2.googleapis.com/token"  # whatever address gets the token
    claims = jwt.decode(sent["assertion"][0], KEY.public_key(), algorithms=["RS256"], audience=google, leeway=5)
    assert claims["iss"] == "me@example.org"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert 0 < claims["exp"] - claims["iat"] <= 3_600
    assert jwt.get_unverified_header(sent["assertion"][0]) == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
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


ASK_ONCE = """
import asyncio
from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.vendors import provider_for

async def ask():
    async for part in provider_for("vertex:gemini-3-pro").stream(ModelRequest(messages=[Message("user", "Hi")])):
        last = part
    return last.text

try:
    print(asyncio.run(ask()))
except ProviderError as error:
    print(error, error.suggestion)
"""


async def ask_in_a_program() -> str:
    """google-auth reads GCE_METADATA_HOST when it is imported."""
    program = [sys.executable, "-c", ASK_ONCE]
    done = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=100)
    assert not done.stderr, done.stderr
    return done.stdout


async def test_a_machine_of_google_cloud_gets_its_token_from_the_metadata_server(monkeypatch):
    account = {"email": "me@example.org", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    json_type = {"Content-Type": "application/json"}
    info = Reply([json.dumps(account).encode()], headers=json_type, framing="length")
    given = Reply(token().parts, headers=json_type, framing="length")
    async with serving(info, given, stream(sse(HELLO, done=False))) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        monkeypatch.setenv("VERTEX_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
        assert await ask_in_a_program() == "Hello.\n"
    first, second, third = server.asked
    assert first.path == "/computeMetadata/v1/instance/service-accounts/default/?recursive=true"
    assert second.path.startswith("/computeMetadata/v1/instance/service-accounts/default/token")
    assert (first.headers["metadata-flavor"], second.headers["metadata-flavor"]) == ("Google", "Google")
    assert "/locations/europe-west1/" in third.path
    assert third.headers["authorization"] == "Bearer ya29.a-token"


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
    said = await ask_in_a_program()
    assert "there are no credentials" in said
    assert "gcloud auth application-default login" in said
