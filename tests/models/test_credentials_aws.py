"""AWS: our signatures are those of AWS's own package, and credentials are found in every usual place."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.provider import ProviderError
from forge.models.credentials.aws import AwsKeys, AwsSigner, find_keys, find_region, sign_request
from tests.models.serving import Reply, refusal, serving

NOW = datetime(2026, 11, 16, 12, 30, 45, tzinfo=UTC)
LATER = "2099-01-01T00:00:00Z"
PATHS = st.text(st.sampled_from("abcXYZ019-_.~%3A/:@!*()"), max_size=30).map(lambda text: f"/model/{text}")


def sign_as_aws(url: str, content: bytes, keys: AwsKeys, method: str, service: str) -> dict[str, str]:
    request = AWSRequest(method=method, url=url, data=content, headers={"content-type": "application/json"})
    signer = botocore.auth.SigV4Auth(Credentials(keys.access, keys.secret, keys.token or None), service, "eu-west-1")
    original = botocore.auth.get_current_datetime
    botocore.auth.get_current_datetime = lambda *_, **__: NOW.replace(tzinfo=None)
    try:
        signer.add_auth(request)
    finally:
        botocore.auth.get_current_datetime = original
    return {name.lower(): value for name, value in request.headers.items()}


@settings(max_examples=200, deadline=None)
@given(
    path=PATHS,
    query=st.dictionaries(st.text(st.sampled_from("abz-_~"), min_size=1), st.text(st.sampled_from("a b/&=ü~"))),
    content=st.binary(max_size=50),
    token=st.sampled_from(["", "a-session-token=="]),
    method=st.sampled_from(["POST", "GET"]),
    host=st.sampled_from(["bedrock-runtime.eu-west-1.amazonaws.com", "127.0.0.1:8080", "example.org:443"]),
)
def test_a_signature_is_the_one_that_aws_own_package_makes(path, query, content, token, method, host):
    from urllib.parse import quote, urlencode

    encoded = urlencode(query, quote_via=quote, safe="~")
    url = f"https://{host}{quote(path, safe='/%:@!*()~')}" + (f"?{encoded}" if encoded else "")
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", token)
    theirs = sign_as_aws(url, content, keys, method, "bedrock")
    ours = sign_request(url, content, keys, region="eu-west-1", service="bedrock", method=method, now=NOW)
    assert ours["authorization"] == theirs["authorization"]
    assert ours["x-amz-date"] == theirs["x-amz-date"]
    assert ours.get("x-amz-security-token") == theirs.get("x-amz-security-token")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    return {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}


def write(environment: dict[str, str], config: str = "", keys: str = "") -> None:
    folder = Path(environment["HOME"], ".aws")
    (folder / "config").write_text(config)
    (folder / "credentials").write_text(keys)


async def found(environment: dict[str, str]) -> AwsKeys:
    return await find_keys(environment, "eu-west-1")


def answer(document: Any) -> Reply:
    raw = document if isinstance(document, str) else json.dumps(document)
    return Reply([raw.encode()], framing="length")


KEYS = {"AccessKeyId": "AKID1", "SecretAccessKey": "secret1", "Token": "token1", "Expiration": LATER}
ENDS = datetime(2099, 1, 1, tzinfo=UTC).timestamp()
STS = f"""<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AKID1</AccessKeyId>
<SecretAccessKey>secret1</SecretAccessKey><SessionToken>token1</SessionToken><Expiration>{LATER}</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""


async def test_the_environment_comes_first(environment):
    write(environment, keys="[default]\naws_access_key_id = other\naws_secret_access_key = other\n")
    environment |= {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
    assert await found(environment) == AwsKeys("AKID", "secret", "token")
    del environment["AWS_SECRET_ACCESS_KEY"]
    with pytest.raises(ProviderError, match="AWS_SECRET_ACCESS_KEY is not set"):
        await found(environment)


async def test_profiles_of_both_files(environment):
    write(
        environment,
        "[default]\nregion = us-west-2\n"
        "[profile work]\nregion=eu-north-1\naws_access_key_id=in\naws_secret_access_key=c\n",
        "[default]\naws_access_key_id = AKID\naws_secret_access_key = a%b\n[other]\naws_access_key_id = x\n",
    )
    assert await found(environment) == AwsKeys("AKID", "a%b")
    assert find_region(environment) == "us-west-2"
    environment["AWS_PROFILE"] = "work"
    assert await found(environment) == AwsKeys("in", "c")
    assert find_region(environment) == "eu-north-1"
    assert find_region({**environment, "AWS_REGION": "ap-south-1"}) == "ap-south-1"
    environment["AWS_PROFILE"] = "wrok"
    with pytest.raises(ProviderError, match="there is no profile 'wrok'") as refused:
        await found(environment)
    assert "default, other, work" in refused.value.suggestion


async def test_a_role_is_assumed_with_the_keys_of_another_profile(environment):
    write(
        environment,
        "[profile work]\nrole_arn=arn:aws:iam::1:role/r\nsource_profile=base\nexternal_id=e1\n",
        "[base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s\n",
    )
    async with serving(answer(STS)) as server:
        environment |= {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_STS": server.url}
        assert await found(environment) == AwsKeys("AKID1", "secret1", "token1", ENDS)
    form = parse_qs(server.asked[0].raw.decode())
    assert (form["Action"], form["ExternalId"]) == (["AssumeRole"], ["e1"])
    assert "Credential=AKIDBASE/" in server.asked[0].headers["authorization"]
    refused = "<ErrorResponse><Error><Message>Not you.</Message></Error></ErrorResponse>"
    async with serving(Reply([refused.encode()], 403, framing="length")) as server:
        environment["AWS_ENDPOINT_URL_STS"] = server.url
        with pytest.raises(ProviderError, match=r"HTTP 403: Not you\."):
            await found(environment)


async def test_a_chain_of_roles_that_never_ends_is_left(environment):
    write(environment, "[profile a]\nrole_arn=x\nsource_profile=a\n")
    with pytest.raises(ProviderError, match="role_arn"):
        await found({**environment, "AWS_PROFILE": "a"})


async def test_a_pod_uses_its_token(environment, tmp_path):
    (tmp_path / "token").write_text("a-web-token\n")
    async with serving(answer(STS)) as server:
        environment |= {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"), "AWS_ROLE_ARN": "arn:r"}
        environment["AWS_ENDPOINT_URL_STS"] = server.url
        assert (await found(environment)).access == "AKID1"
    assert parse_qs(server.asked[0].raw.decode())["WebIdentityToken"] == ["a-web-token"]
    assert "authorization" not in server.asked[0].headers


async def test_single_sign_on(environment):
    write(
        environment,
        "[profile work]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Dev\n"
        "[sso-session corp]\nsso_region=us-east-1\nsso_start_url=https://corp.example\n",
    )
    environment["AWS_PROFILE"] = "work"
    with pytest.raises(ProviderError, match="there is no login") as refused:
        await found(environment)
    assert "aws sso login" in refused.value.suggestion
    cache = Path(environment["HOME"], ".aws", "sso", "cache")
    cache.mkdir(parents=True)
    file = cache / f"{hashlib.sha1(b'corp').hexdigest()}.json"
    file.write_text(json.dumps({"accessToken": "sso-token", "expiresAt": "2020-01-01T00:00:00Z"}))
    with pytest.raises(ProviderError, match="has ended"):
        await found(environment)
    file.write_text(json.dumps({"accessToken": "sso-token", "expiresAt": LATER}))
    given_keys = {"accessKeyId": "A", "secretAccessKey": "S", "sessionToken": "T", "expiration": ENDS * 1000}
    async with serving(answer({"roleCredentials": given_keys})) as server:
        environment["AWS_ENDPOINT_URL_SSO"] = server.url
        assert await found(environment) == AwsKeys("A", "S", "T", ENDS)
    assert server.asked[0].path == "/federation/credentials?role_name=Dev&account_id=123"
    assert server.asked[0].headers["x-amz-sso_bearer_token"] == "sso-token"


async def test_a_container_asks_for_its_keys_only_where_it_is_safe(environment):
    async with serving(answer(KEYS)) as server:
        environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{server.url}/keys"
        environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Basic abc"
        assert await found(environment) == AwsKeys("AKID1", "secret1", "token1", ENDS)
    assert server.asked[0].headers["authorization"] == "Basic abc"
    environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://example.org/keys"
    with pytest.raises(ProviderError, match="may not be asked without encryption"):
        await found(environment)


async def test_a_machine_asks_its_metadata_server(environment):
    del environment["AWS_EC2_METADATA_DISABLED"]
    async with serving(answer("imds-token"), answer("my-role\n"), answer(KEYS)) as server:
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url
        assert (await found(environment)).access == "AKID1"
    token, _, keys = server.asked
    assert (token.method, token.path) == ("PUT", "/latest/api/token")
    assert keys.path == "/latest/meta-data/iam/security-credentials/my-role"
    assert keys.headers["x-aws-ec2-metadata-token"] == "imds-token"


async def test_none_at_all(environment):
    with pytest.raises(ProviderError, match="there are none") as refused:
        await found(environment)
    assert "aws configure" in refused.value.suggestion
    write(environment, "[default]\ncredential_process = /bin/keys\n")
    with pytest.raises(ProviderError, match="credential_process") as refused:
        await found(environment)
    assert "export-credentials" in refused.value.suggestion
    write(environment, "not a file of profiles")
    with pytest.raises(ProviderError, match="no file of profiles"):
        await found(environment)


async def test_keys_that_are_about_to_end_are_found_again(environment):
    soon = datetime.fromtimestamp(time.time() + 30, UTC).isoformat()
    async with serving(answer({**KEYS, "Expiration": soon}), answer(KEYS), refusal(500)) as server:
        environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url
        sign = AwsSigner("bedrock", "eu-west-1", environment)
        for _ in range(4):
            headers = await sign("https://example.org/x", b"{}")
            assert "Credential=AKID1/" in headers["authorization"]
    assert len(server.asked) == 2
