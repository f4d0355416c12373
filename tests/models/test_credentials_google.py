"""Google's external accounts: a token from elsewhere becomes one of Google Cloud, as Google's own package does it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from google.auth import identity_pool

from forge.core.provider import ProviderError
from forge.models.credentials.google import ALLOW_PROGRAMS, google_token
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


async def authorise(tmp_path: Path, document: dict[str, Any], **variables: str) -> str:
    (tmp_path / "account.json").write_text(json.dumps(document))
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "account.json"), **variables}
    return (await google_token(environment)())["authorization"]


class Recorded:
    """A transport for Google's own package that remembers the requests."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.sent = list(answers), []  # type: ignore[var-annotated]

    def __call__(self, url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any) -> Any:
        self.sent.append((urlsplit(url).path, body, headers))

        class Response:
            status, data = 200, json.dumps(self.answers.pop(0))
            headers: dict[str, str] = {}  # noqa: RUF012

        return Response()


async def test_the_token_of_a_file_is_exchanged_as_googles_package_does_it(tmp_path):
    (tmp_path / "token").write_text(f"{SUBJECT}\n")
    async with serving(EXCHANGED) as server:
        document = account(server.url, {"file": str(tmp_path / "token")})
        assert await authorise(tmp_path, document) == "Bearer sts-token"
    theirs = Recorded({"access_token": "x", "expires_in": 3_600, "issued_token_type": "x", "token_type": "Bearer"})
    (tmp_path / "token").write_text(SUBJECT)  # their package keeps the end of the line
    identity_pool.Credentials.from_info(
        {**document, "token_url": "https://sts.googleapis.com/v1/token"},
        scopes=["https://www.googleapis.com/auth/cloud-platform"],
    ).refresh(theirs)
    ((path, body, _),) = theirs.sent
    assert server.asked[0].path == path
    assert parse_qs(server.asked[0].raw.decode()) == parse_qs(body.decode())


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


async def test_a_program_runs_only_if_a_person_allows_it(tmp_path):
    said = {"version": 1, "success": True, "token_type": "urn:ietf:params:oauth:token-type:jwt", "id_token": SUBJECT}
    program = tmp_path / "program.py"
    program.write_text(f"import os\nassert os.environ['GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE']\nprint({json.dumps(said)!r})")
    source = {"executable": {"command": f"{sys.executable} {program}", "timeout_millis": 60_000}}
    async with serving(EXCHANGED) as server:
        with pytest.raises(ProviderError, match="a program, which is not allowed") as refused:
            await authorise(tmp_path, account(server.url, source))
        assert ALLOW_PROGRAMS in refused.value.suggestion
        assert server.asked == []
        allowed = {ALLOW_PROGRAMS: "1"}
        assert await authorise(tmp_path, account(server.url, source), **allowed) == "Bearer sts-token"
        assert parse_qs(server.asked[0].raw.decode())["subject_token"] == [SUBJECT]
        program.write_text(f"print({SUBJECT!r}); raise SystemExit(1)")
        with pytest.raises(ProviderError, match="returned no token") as refused:
            await authorise(tmp_path, account(server.url, source), **allowed)
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
