"""Finds AWS credentials: the environment, profiles, single sign-on, roles, containers and machines, in AWS's order."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha1
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.yaml.bounded_yaml import Unreadable, bounded_text
from forge.models.credentials.aws_profiles import ADVICE, AwsProfiles
from forge.models.credentials.sigv4 import AwsKeys, sign_request
from forge.models.credentials.tokens import MARGIN, refused_error
from forge.models.http.fetch import Fetched, fetch_json

ACTION = "getting AWS credentials"
_FORM = "application/x-www-form-urlencoded"
_CONTAINERS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")  # addresses that hand out credentials
_LONGEST_CHAIN = 5  # roles that lead to one another


def find_region(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the region of the environment or of the profile; empty if neither names one. Raises `ProviderError`."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if found := environment.get(name, "").strip():
            return found
    profiles = AwsProfiles(environment)
    return profiles.settings(profiles.name).get("region", "").strip()


class AwsSigner:
    """Signs requests with the credentials that it finds, and finds them again shortly before their end."""

    def __init__(self, service: str, region: str, environment: Mapping[str, str] = os.environ) -> None:
        self.service, self.region = service, region
        self._environment = environment
        self._keys: AwsKeys | None = None

    async def __call__(self, url: str, content: bytes = b"", method: str = "POST") -> Mapping[str, str]:
        """Returns the headers for a request. Raises `ProviderError`."""
        keys = self._keys
        if keys is None or (keys.expires and keys.expires - MARGIN < time.time()):
            self._keys = keys = await find_keys(self._environment, self.region)
        kind = "application/json" if method == "POST" else ""
        return sign_request(
            url, content, keys, region=self.region, service=self.service, method=method, content_type=kind
        )


async def find_keys(environment: Mapping[str, str], region: str) -> AwsKeys:
    """Returns the first credentials in AWS's own order. Raises `ProviderError` if there are none."""
    if keys := _environment_keys(environment):
        return keys
    if (file := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE", "").strip()) and environment.get("AWS_ROLE_ARN"):
        return await _assume_with_token(file, environment["AWS_ROLE_ARN"], environment, region)
    profiles = AwsProfiles(environment)
    if keys := await _profile_keys(profiles, profiles.name, environment, region, 0):
        return keys
    if found := await _container_keys(environment) or await _machine_keys(environment):
        return found
    raise ProviderError(f"{ACTION}: there are none", ErrorKind.CONFIG, ADVICE)


def _environment_keys(environment: Mapping[str, str]) -> AwsKeys | None:
    access, secret = (environment.get(name, "").strip() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if not access and not secret:
        return None
    if not access or not secret:
        missing = "AWS_SECRET_ACCESS_KEY" if access else "AWS_ACCESS_KEY_ID"
        raise ProviderError(f"{ACTION}: {missing} is not set", ErrorKind.CONFIG, f"Set {missing}, too.")
    return AwsKeys(access, secret, environment.get("AWS_SESSION_TOKEN", "").strip())


async def _profile_keys(
    profiles: AwsProfiles, name: str, environment: Mapping[str, str], region: str, depth: int
) -> AwsKeys | None:
    settings = profiles.settings(name)
    role, source = settings.get("role_arn"), settings.get("source_profile")
    if role and (file := settings.get("web_identity_token_file")):
        return await _assume_with_token(file, role, environment, region)
    if role and source and depth < _LONGEST_CHAIN:
        has_own = source == name and "aws_access_key_id" in settings
        keys = _settings_keys(settings) if has_own else None
        keys = keys or await _profile_keys(profiles, source, environment, region, depth + 1)
        return await _assume_role(keys, role, settings, environment, region) if keys is not None else None
    if "sso_session" in settings or "sso_start_url" in settings:
        return await _sign_on_keys(profiles, settings, environment)
    if keys := _settings_keys(settings):
        return keys
    for unknown in ("credential_process", "role_arn"):
        if unknown in settings:
            words = f"{ACTION}: the profile {name[:60]!r} uses {unknown}, which Forge cannot follow"
            raise ProviderError(words, ErrorKind.CONFIG, 'Run: eval "$(aws configure export-credentials --format env)"')
    return None


def _settings_keys(settings: Mapping[str, str]) -> AwsKeys | None:
    access, secret = settings.get("aws_access_key_id", ""), settings.get("aws_secret_access_key", "")
    return AwsKeys(access, secret, settings.get("aws_session_token", "")) if access and secret else None


async def _sign_on_keys(profiles: AwsProfiles, settings: Mapping[str, str], environment: Mapping[str, str]) -> AwsKeys:
    """Uses the token that `aws sso login` stored."""
    name = settings.get("sso_session", "")
    merged = {**settings, **profiles.session(name)}
    key = sha1((name or merged.get("sso_start_url", "")).encode(), usedforsecurity=False).hexdigest()
    advice = "Run `aws sso login` to sign in again."
    try:
        stored = json.loads(bounded_text(profiles.folder / "sso" / "cache" / f"{key}.json"))
        token, expires = str(stored["accessToken"]), _time(stored["expiresAt"])
    except (Unreadable, ValueError, KeyError, TypeError):
        raise ProviderError(f"{ACTION}: there is no login of AWS single sign-on", ErrorKind.CONFIG, advice) from None
    if expires < time.time():
        raise ProviderError(f"{ACTION}: the login of AWS single sign-on has ended", ErrorKind.CONFIG, advice)
    server = _endpoint("SSO", f"https://portal.sso.{merged.get('sso_region', '')}.amazonaws.com", environment)
    query = urlencode({"role_name": merged.get("sso_role_name", ""), "account_id": merged.get("sso_account_id", "")})
    url = f"{server}/federation/credentials?{query}"
    found = await fetch_json(url, action=ACTION, headers={"x-amz-sso_bearer_token": token})
    given = found.document.get("roleCredentials") if isinstance(found.document, Mapping) else None
    if not isinstance(given, Mapping):
        raise refused_error(found, ACTION, advice)
    ends = float(given.get("expiration") or 0) / 1000
    names = ("accessKeyId", "secretAccessKey", "sessionToken")
    access, secret, session = (str(given.get(one, "")) for one in names)
    return AwsKeys(access, secret, session, ends)


async def _assume_role(
    keys: AwsKeys, role: str, settings: Mapping[str, str], environment: Mapping[str, str], region: str
) -> AwsKeys:
    form = {"Action": "AssumeRole", "RoleArn": role, "RoleSessionName": settings.get("role_session_name") or "forge"}
    form |= {"ExternalId": settings["external_id"]} if settings.get("external_id") else {}
    return await _ask_sts(form, keys, environment, region)


async def _assume_with_token(file: str, role: str, environment: Mapping[str, str], region: str) -> AwsKeys:
    from pathlib import Path

    try:
        token = bounded_text(Path(file)).strip()
    except Unreadable as error:
        raise ProviderError(f"{ACTION}: {error.place}: {error.problem}", ErrorKind.CONFIG, error.advice) from None
    form = {"Action": "AssumeRoleWithWebIdentity", "RoleArn": role, "WebIdentityToken": token}
    form["RoleSessionName"] = environment.get("AWS_ROLE_SESSION_NAME") or "forge"
    return await _ask_sts(form, None, environment, region)


async def _ask_sts(
    form: Mapping[str, str], keys: AwsKeys | None, environment: Mapping[str, str], region: str
) -> AwsKeys:
    url = _endpoint("STS", f"https://sts.{region}.amazonaws.com", environment) + "/"
    content = urlencode({**form, "Version": "2011-06-15"}).encode()
    headers = {"content-type": _FORM}
    if keys is not None:
        headers |= sign_request(url, content, keys, region=region, service="sts", content_type=_FORM)
    found = await fetch_json(url, action=ACTION, method="POST", headers=headers, content=content)
    text = found.document if isinstance(found.document, str) else ""
    values = {name: _read_tag(name, text) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")}
    if found.status != 200 or not values["AccessKeyId"]:
        said = Fetched(found.status, {"message": _read_tag("Message", text) or text[:300]})
        raise refused_error(said, ACTION, "Check the role and who may assume it.")
    return AwsKeys(
        values["AccessKeyId"], values["SecretAccessKey"], values["SessionToken"], _time(values["Expiration"])
    )


async def _container_keys(environment: Mapping[str, str]) -> AwsKeys | None:
    relative, url = (environment.get(f"AWS_CONTAINER_CREDENTIALS_{name}_URI", "") for name in ("RELATIVE", "FULL"))
    url = f"http://{_CONTAINERS[0]}{relative}" if relative else url
    if not url:
        return None
    if not _is_allowed(url):
        words = f"{ACTION}: AWS_CONTAINER_CREDENTIALS_FULL_URI names a server that may not be asked without encryption"
        raise ProviderError(words, ErrorKind.CONFIG, "Use https, or an address of this machine.")
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "").strip()
    if file := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "").strip():
        from pathlib import Path

        token = (await asyncio.to_thread(bounded_text, Path(file))).strip()
    found = await fetch_json(url, action=ACTION, headers={"authorization": token} if token else {})
    return _read_keys(found)


async def _machine_keys(environment: Mapping[str, str]) -> AwsKeys | None:
    """Asks the server that every machine of EC2 has; elsewhere it does not answer."""
    if environment.get("AWS_EC2_METADATA_DISABLED", "").strip().lower() == "true":
        return None
    server = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip().rstrip("/") or "http://169.254.169.254"
    try:
        lasts = {"x-aws-ec2-metadata-token-ttl-seconds": "21600"}
        url = f"{server}/latest/api/token"
        token = await fetch_json(url, action=ACTION, method="PUT", headers=lasts, seconds=1.0)
        headers = {"x-aws-ec2-metadata-token": str(token.document)}
        url = f"{server}/latest/meta-data/iam/security-credentials/"
        roles = await fetch_json(url, action=ACTION, headers=headers, seconds=2.0)
        if token.status != 200 or roles.status != 200:
            return None
        role = str(roles.document).split("\n", 1)[0].strip()
        return _read_keys(await fetch_json(f"{url}{quote(role)}", action=ACTION, headers=headers, seconds=2.0))
    except ProviderError:
        return None


def _read_keys(found: Fetched) -> AwsKeys:
    if found.status != 200 or not found.get("AccessKeyId"):
        raise refused_error(found, ACTION, ADVICE)
    access, secret, token = (found.get(name) for name in ("AccessKeyId", "SecretAccessKey", "Token"))
    return AwsKeys(access, secret, token, _time(found.get("Expiration")))


def _is_allowed(url: str) -> bool:
    """Says whether a server may be asked: over https, or at an address of this machine or of its container."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_local = host in _CONTAINERS or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    return parts.scheme == "https" or (parts.scheme == "http" and is_local)


def _endpoint(service: str, usual: str, environment: Mapping[str, str]) -> str:
    return (environment.get(f"AWS_ENDPOINT_URL_{service}") or usual).rstrip("/")


def _read_tag(name: str, text: str) -> str:
    found = re.search(rf"<{name}>([^<]{{1,4096}})</{name}>", text)
    return found[1] if found else ""


def _time(written: Any) -> float:
    try:
        return datetime.fromisoformat(str(written).replace("UTC", "Z")).timestamp()
    except ValueError:
        return time.time() + 900  # it is found again soon
