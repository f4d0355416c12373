"""Google's external accounts: a token from elsewhere becomes one of Google Cloud."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from forge.core.provider import ProviderError
from forge.models.vertex import ALLOW_PROGRAMS, google_token
from tests.models.serving import Reply, refusal, serving

SUBJECT = "eyJ.the-workload's-own-token"


def reply(**document: Any) -> Reply:
    return Reply([json.dumps(document).encode()], framing="length")


EXCHANGED = reply(access_token="sts-token", expires_in=3_600, token_type="Bearer", issued_token_type="x")
IMPERSONATED = reply(accessToken="account-token", expireTime="2099-01-01T00:00:00Z")


def account(url: str, source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/v1/token",
        "credential_source": source,
        **more,
    }


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CLOUDSDK_AUTH_ACCESS_TOKEN", ALLOW_PROGRAMS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))


async def authorise(tmp_path: Path, document: dict[str, Any]) -> str:
    (tmp_path / "account.json").write_text(json.dumps(document))
    return (await google_token()())["authorization"]


async def test_the_token_of_a_file_is_exchanged(tmp_path):
    (tmp_path / "token").write_text(SUBJECT)
    async with serving(EXCHANGED) as server:
        document = account(server.url, {"file": str(tmp_path / "token")})
        assert await authorise(tmp_path, document) == "Bearer sts-token"
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/token")
    assert parse_qs(asked.raw.decode()) == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "audience": [document["audience"]],
        "scope": ["https://www.googleapis.com/auth/cloud-platform"],
        "requested_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "subject_token": [SUBJECT],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:jwt"],
    }


async def test_a_url_in_json_and_a_service_account(tmp_path):
    async with serving(reply(access_token=SUBJECT), EXCHANGED, IMPERSONATED) as server:
        source = {
            "url": f"{server.url}/identity?x=1",
            "headers": {"Metadata": "True"},
            "format": {"type": "json", "subject_token_field_name": "access_token"},
        }
        more = {
            "service_account_impersonation_url": f"{server.url}/v1/me@example.org:generateAccessToken",
            "service_account_impersonation": {"token_lifetime_seconds": 600},
            "client_id": "c",
            "client_secret": "s",
        }
        assert await authorise(tmp_path, account(server.url, source, **more)) == "Bearer account-token"
    source_, exchange, impersonation = server.asked
    assert (source_.path, source_.headers["metadata"]) == ("/identity?x=1", "True")
    assert parse_qs(exchange.raw.decode())["subject_token"] == [SUBJECT]
    assert exchange.headers["authorization"] == "Basic Yzpz"
    assert impersonation.headers["authorization"] == "Bearer sts-token"
    assert json.loads(impersonation.raw)["lifetime"] == "600s"


async def test_a_program_runs_only_if_a_person_allows_it(tmp_path, monkeypatch):
    said = {"version": 1, "success": True, "token_type": "urn:ietf:params:oauth:token-type:jwt", "id_token": SUBJECT}
    program = tmp_path / "program.py"
    program.write_text(f"import os\nassert os.environ['GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE']\nprint({json.dumps(said)!r})")
    source = {"executable": {"command": f"{sys.executable} {program}", "timeout_millis": 60_000}}
    async with serving(EXCHANGED) as server:
        with pytest.raises(ProviderError, match="a program, which is not allowed") as refused:
            await authorise(tmp_path, account(server.url, source))
        assert ALLOW_PROGRAMS in refused.value.suggestion
        assert server.asked == []
        monkeypatch.setenv(ALLOW_PROGRAMS, "1")
        assert await authorise(tmp_path, account(server.url, source)) == "Bearer sts-token"
        assert parse_qs(server.asked[0].raw.decode())["subject_token"] == [SUBJECT]
        program.write_text(f"print({SUBJECT!r}); raise SystemExit(1)")
        with pytest.raises(ProviderError, match="returned no token") as refused:
            await authorise(tmp_path, account(server.url, source))
    assert SUBJECT not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"token_url": "http://sts.example.org/token"}, "`token_url` is not an https address"),
        ({"credential_source": {"environment_id": "aws1"}}, "no file, url or executable"),
        ({"credential_source": {"file": "/nowhere/token"}}, "/nowhere/token"),
        ({"audience": ""}, "`audience` is missing"),
    ],
)
async def test_what_cannot_be_used_is_named(change, problem, tmp_path):
    (tmp_path / "token").write_text(SUBJECT)
    document = account("http://127.0.0.1:9", {"file": str(tmp_path / "token")})
    with pytest.raises(ProviderError, match=problem):
        await authorise(tmp_path, {**document, **change})


async def test_a_refusal_never_shows_the_token(tmp_path):
    (tmp_path / "token").write_text(SUBJECT)
    said = {"error": "invalid_grant", "error_description": f"The token {SUBJECT} has expired"}
    async with serving(refusal(400, said)) as server:
        with pytest.raises(ProviderError, match="has expired") as refused:
            await authorise(tmp_path, account(server.url, {"file": str(tmp_path / "token")}))
    assert SUBJECT not in f"{refused.value} {refused.value!r} {refused.value.message}"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refusal(403, {"message": f"here is {SUBJECT}"}), "HTTP 403: there is no token in the response"),
        (reply(other=SUBJECT), "HTTP 200: there is no token in the response"),
    ],
)
async def test_what_a_source_says_is_never_shown(answer, problem, tmp_path):
    async with serving(answer, EXCHANGED) as server:
        form = {"type": "json", "subject_token_field_name": "access_token"}
        document = account(server.url, {"url": f"{server.url}/identity", "format": form})
        with pytest.raises(ProviderError, match=problem) as refused:
            await authorise(tmp_path, document)
    assert "credential_source" in refused.value.suggestion
    assert SUBJECT not in f"{refused.value} {refused.value!r}"


@pytest.mark.parametrize("answer", [reply(), reply(access_token="x"), reply(access_token="x", expires_in="soon")])
async def test_an_answer_that_cannot_be_read_is_an_error(answer, tmp_path):
    (tmp_path / "token").write_text(SUBJECT)
    async with serving(answer) as server:
        with pytest.raises(ProviderError, match="getting a Google Cloud token for an external account: ") as refused:
            await authorise(tmp_path, account(server.url, {"file": str(tmp_path / "token")}))
    assert SUBJECT not in str(refused.value)
