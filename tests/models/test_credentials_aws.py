"""AWS: requests are signed as AWS specifies it, and credentials are found in every usual place."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import botocore.auth
import pytest

from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.bedrock import Bedrock
from forge.models.credentials.aws import AwsSigner, find_region
from tests.models.serving import Asked, Reply, refusal, serving

LATER = "2099-01-01T00:00:00Z"
URL = "https://example.org/x"
NAMES = (
    *("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_PROFILE", "REGION", "DEFAULT_REGION"),
    *("ROLE_ARN", "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_FULL_URI", "CONTAINER_AUTHORIZATION_TOKEN"),
    *("CONTAINER_CREDENTIALS_RELATIVE_URI", "ENDPOINT_URL_STS", "BEARER_TOKEN_BEDROCK"),
)


class Keys(NamedTuple):
    """What a signature shows of the credentials: the key's id, the session's token, and whose secret signed it."""

    access: str
    secret: str
    token: str = ""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".aws").mkdir()
    for name in NAMES:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def write(home: Path, config: str = "", keys: str = "") -> None:
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(keys)


def use(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)


async def check(keys: Keys) -> None:
    """Signs a request, and checks that these are the keys: the signature is computed again, by the specification."""
    headers = await AwsSigner("bedrock", "eu-west-1")(URL, b"{}")
    assert headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={keys.access}/")
    assert headers.get("x-amz-security-token", "") == keys.token
    asked = Asked("POST", "/x", {**headers, "host": "example.org", "content-type": "application/json"}, b"{}")
    assert signature(asked, keys.secret) == headers["authorization"].rpartition("=")[2]


def signature(asked: Asked, secret: str) -> str:
    """Returns the signature of a request without a query, as Signature Version 4 defines it."""
    said = dict(part.strip().split("=", 1) for part in asked.headers["authorization"].partition(" ")[2].split(","))
    scope, names = said["Credential"].partition("/")[2], said["SignedHeaders"]
    lines = [f"{name}:{asked.headers[name]}" for name in names.split(";")]
    whole = "\n".join([asked.method, asked.path, "", *lines, "", names, hashlib.sha256(asked.raw).hexdigest()])
    signed = ["AWS4-HMAC-SHA256", asked.headers["x-amz-date"], scope, hashlib.sha256(whole.encode()).hexdigest()]
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), "\n".join(signed)):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def answer(document: Any) -> Reply:
    raw = document if isinstance(document, str) else json.dumps(document)
    return Reply([raw.encode()], framing="length")


KEYS = {"AccessKeyId": "AKID1", "SecretAccessKey": "secret1", "Token": "token1", "Expiration": LATER}
FOUND = Keys("AKID1", "secret1", "token1")
ENDS = datetime(2099, 1, 1, tzinfo=UTC).timestamp()
STS = f"""<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AKID1</AccessKeyId>
<SecretAccessKey>secret1</SecretAccessKey><SessionToken>token1</SessionToken><Expiration>{LATER}</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""
WEB = STS.replace("AssumeRole", "AssumeRoleWithWebIdentity")


async def test_a_signature_is_the_one_of_aws_own_test_suite(monkeypatch):
    """The vector `get-vanilla` of AWS's test suite for Signature Version 4."""
    use(monkeypatch, ACCESS_KEY_ID="AKIDEXAMPLE", SECRET_ACCESS_KEY="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: datetime(2015, 8, 30, 12, 36))
    headers = await AwsSigner("service", "us-east-1")("https://example.amazonaws.com/", b"", "GET")
    assert headers == {
        "x-amz-date": "20150830T123600Z",
        "authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    }


async def test_the_environment_comes_first(home, monkeypatch):
    write(home, keys="[default]\naws_access_key_id = other\naws_secret_access_key = other\n")
    use(monkeypatch, ACCESS_KEY_ID="AKID", SECRET_ACCESS_KEY="secret", SESSION_TOKEN="token")
    await check(Keys("AKID", "secret", "token"))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ProviderError, match="AWS_SECRET_ACCESS_KEY is not set"):
        await check(FOUND)


async def test_profiles_of_both_files(home, monkeypatch):
    write(
        home,
        "[default]\nregion = us-west-2\n"
        "[profile work]\nregion=eu-north-1\naws_access_key_id=in\naws_secret_access_key=c\n",
        "[default]\naws_access_key_id = AKID\naws_secret_access_key = a%b\n[other]\naws_access_key_id = x\n",
    )
    await check(Keys("AKID", "a%b"))
    assert find_region() == "us-west-2"
    use(monkeypatch, PROFILE="work")
    await check(Keys("in", "c"))
    assert find_region() == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert find_region() == "ap-south-1"
    use(monkeypatch, PROFILE="wrok")
    with pytest.raises(ProviderError, match="there is no profile 'wrok'") as refused:
        await check(FOUND)
    assert "default, other, work" in refused.value.suggestion


async def test_a_role_is_assumed_with_the_keys_of_another_profile(home, monkeypatch):
    write(
        home,
        "[profile work]\nrole_arn=arn:aws:iam::1:role/r\nsource_profile=base\nexternal_id=e1\n",
        "[base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s\n",
    )
    async with serving(answer(STS)) as server:
        use(monkeypatch, PROFILE="work", ENDPOINT_URL_STS=server.url)
        await check(FOUND)
    form = parse_qs(server.asked[0].raw.decode())
    assert (form["Action"], form["ExternalId"]) == (["AssumeRole"], ["e1"])
    assert "Credential=AKIDBASE/" in server.asked[0].headers["authorization"]
    refused = "<ErrorResponse><Error><Message>Not you.</Message></Error></ErrorResponse>"
    async with serving(Reply([refused.encode()], 403, framing="length")) as server:
        use(monkeypatch, ENDPOINT_URL_STS=server.url)
        with pytest.raises(ProviderError, match=r"HTTP 403: Not you\.") as raised:
            await check(FOUND)
    assert "may assume it" in raised.value.suggestion
    use(monkeypatch, ENDPOINT_URL_STS="http://127.0.0.1:9")
    with pytest.raises(ProviderError, match=r"getting AWS credentials at 127\.0\.0\.1:9") as raised:
        await check(FOUND)
    assert raised.value.passing


async def test_a_chain_of_roles_that_never_ends_is_left(home, monkeypatch):
    write(home, "[profile a]\nrole_arn=x\nsource_profile=b\n[profile b]\nrole_arn=y\nsource_profile=a\n")
    use(monkeypatch, PROFILE="a")
    with pytest.raises(ProviderError, match="Infinite loop"):
        await check(FOUND)


async def test_a_pod_uses_its_token(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("a-web-token")
    async with serving(answer(WEB)) as server:
        use(monkeypatch, WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"), ROLE_ARN="arn:aws:iam::1:role/r")
        use(monkeypatch, ENDPOINT_URL_STS=server.url)
        await check(FOUND)
    assert parse_qs(server.asked[0].raw.decode())["WebIdentityToken"] == ["a-web-token"]
    assert "authorization" not in server.asked[0].headers
    use(monkeypatch, WEB_IDENTITY_TOKEN_FILE="/nowhere/token")
    with pytest.raises(ProviderError, match="/nowhere/token"):
        await check(FOUND)


async def test_a_refusal_never_shows_the_token_of_a_pod(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("a-web-token-that-is-secret")
    said = "<ErrorResponse><Error><Message>a-web-token-that-is-secret has ended</Message></Error></ErrorResponse>"
    async with serving(Reply([said.encode()], 400, framing="length")) as server:
        use(monkeypatch, WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"), ROLE_ARN="arn:aws:iam::1:role/r")
        use(monkeypatch, ENDPOINT_URL_STS=server.url)
        with pytest.raises(ProviderError, match="has ended") as refused:
            await check(FOUND)
    assert "that-is-secret" not in f"{refused.value} {refused.value!r} {refused.value.message}"


SIGN = """
import asyncio, sys
from forge.core.provider import ProviderError
from forge.models.credentials.aws import AwsSigner
try:
    headers = asyncio.run(AwsSigner("bedrock", "eu-west-1")("https://example.org/x", b"{}"))
    print(headers["authorization"], headers.get("x-amz-security-token"))
except ProviderError as error:
    print(error, error.suggestion)
"""


async def sign_in_a_program(home: Path, **variables: str) -> str:
    """botocore looks for a home when it is imported."""
    environment = {**os.environ, "HOME": str(home), **variables}
    program = [sys.executable, "-c", SIGN]
    done = await asyncio.to_thread(subprocess.run, program, env=environment, capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    return done.stdout


async def test_single_sign_on(home):
    write(
        home,
        "[profile work]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Dev\n"
        "[sso-session corp]\nsso_region=us-east-1\nsso_start_url=https://corp.example\n",
    )
    said = await sign_in_a_program(home, AWS_PROFILE="work")
    assert "there is no login" in said
    assert "aws sso login" in said
    cache = home / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    file = cache / f"{hashlib.sha1(b'corp').hexdigest()}.json"
    file.write_text(json.dumps({"accessToken": "sso-token", "expiresAt": "2020-01-01T00:00:00Z"}))
    assert "has ended" in await sign_in_a_program(home, AWS_PROFILE="work")
    file.write_text(json.dumps({"accessToken": "sso-token", "expiresAt": LATER}))
    given_keys = {"accessKeyId": "A", "secretAccessKey": "S", "sessionToken": "T", "expiration": int(ENDS) * 1000}
    async with serving(answer({"roleCredentials": given_keys})) as server:
        said = await sign_in_a_program(home, AWS_PROFILE="work", AWS_ENDPOINT_URL_SSO=server.url)
    assert "Credential=A/" in said
    assert said.split()[-1] == "T"
    assert server.asked[0].path == "/federation/credentials?role_name=Dev&account_id=123"
    assert server.asked[0].headers["x-amz-sso_bearer_token"] == "sso-token"


async def test_a_container_asks_for_its_keys_only_where_it_is_safe(monkeypatch):
    async with serving(answer(KEYS)) as server:
        use(monkeypatch, CONTAINER_CREDENTIALS_FULL_URI=f"{server.url}/keys", CONTAINER_AUTHORIZATION_TOKEN="Basic abc")
        await check(FOUND)
    assert server.asked[0].headers["authorization"] == "Basic abc"
    use(monkeypatch, CONTAINER_CREDENTIALS_FULL_URI="http://example.org/keys")
    with pytest.raises(ProviderError, match="may not be asked without encryption"):
        await check(FOUND)


async def test_a_machine_asks_its_metadata_server(monkeypatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    async with serving(answer("imds-token"), answer("my-role"), answer(KEYS)) as server:
        use(monkeypatch, EC2_METADATA_SERVICE_ENDPOINT=server.url)
        await check(FOUND)
    token, _, keys = server.asked
    assert (token.method, token.path) == ("PUT", "/latest/api/token")
    assert keys.path == "/latest/meta-data/iam/security-credentials/my-role"
    assert keys.headers["x-aws-ec2-metadata-token"] == "imds-token"


async def test_none_at_all(home, monkeypatch):
    with pytest.raises(ProviderError, match="there are none") as refused:
        await check(FOUND)
    assert "aws configure" in refused.value.suggestion
    write(home, "not a file of profiles")
    with pytest.raises(ProviderError, match="no file of profiles"):
        await check(FOUND)


@pytest.mark.parametrize("setting", ["credential_process = touch {}", "role_arn = arn:r\nmfa_serial = m {}"])
@pytest.mark.parametrize("start", ["[default]\n", "[default]\nrole_arn = arn:q\nsource_profile = b\n[profile b]\n"])
async def test_no_program_is_started_and_no_terminal_is_asked(home, setting, start):
    trace = home / "started"
    write(home, start + setting.format(trace))
    with pytest.raises(ProviderError, match=r"credential_process|mfa_serial") as refused:
        await check(FOUND)
    assert "export-credentials" in refused.value.suggestion
    assert not trace.exists()
    write(home, "", "[default]\naws_access_key_id = AKID\naws_secret_access_key = s\n")
    await check(Keys("AKID", "s"))


async def test_keys_that_are_about_to_end_are_found_again(monkeypatch):
    soon = datetime.fromtimestamp(time.time() + 30, UTC).isoformat()
    async with serving(answer({**KEYS, "Expiration": soon}), answer(KEYS), refusal(500)) as server:
        use(monkeypatch, CONTAINER_CREDENTIALS_FULL_URI=server.url)
        sign = AwsSigner("bedrock", "eu-west-1")
        for _ in range(4):
            headers: Mapping[str, str] = await sign(URL, b"{}")
            assert "Credential=AKID1/" in headers["authorization"]
    assert len(server.asked) == 2


async def test_no_key_reaches_a_log(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(answer(KEYS)) as server:
        use(monkeypatch, CONTAINER_CREDENTIALS_FULL_URI=server.url, CONTAINER_AUTHORIZATION_TOKEN="Basic abc")
        await check(FOUND)
    assert "secret1" not in caplog.text
    assert "token1" not in caplog.text
    assert "Basic abc" not in caplog.text


async def test_a_request_of_a_model_carries_the_signature(monkeypatch):
    """An encoded name is encoded once more for the signature, as the specification says."""
    use(monkeypatch, ACCESS_KEY_ID="AKID", SECRET_ACCESS_KEY="secret")
    async with serving(refusal(400, {"message": "no"})) as server:
        provider = Bedrock("arn:aws:bedrock:eu-west-1::m/x:0", region="eu-west-1", base_url=server.url)
        with pytest.raises(ProviderError, match="HTTP 400"):
            async for _ in provider.stream(ModelRequest(messages=[Message("user", "Hi")])):
                pass
    (asked,) = server.asked
    assert "%3A" in asked.path
    asked.path = asked.path.replace("%", "%25")
    assert signature(asked, "secret") == asked.headers["authorization"].rpartition("=")[2]
