"""Finds AWS credentials in AWS's order (environment, profile, sign-on, roles, containers, machines); signs requests."""

from __future__ import annotations

import asyncio
import configparser
import hashlib
import hmac
import ipaddress
import json
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.yaml import Unreadable, bounded_text
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
            message = f"{ACTION}: the profile {name[:60]!r} uses {unknown}, which Forge cannot follow"
            raise ProviderError(
                message, ErrorKind.CONFIG, 'Run: eval "$(aws configure export-credentials --format env)"'
            )
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
        message = (
            f"{ACTION}: AWS_CONTAINER_CREDENTIALS_FULL_URI names a server that may not be asked without encryption"
        )
        raise ProviderError(message, ErrorKind.CONFIG, "Use https, or an address of this machine.")
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "").strip()
    if file := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "").strip():
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
    """Returns whether a server may be asked: over https, or at an address of this machine or of its container."""
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


# --- Reads AWS profiles from `~/.aws/config` and `~/.aws/credentials`.


ADVICE = "Run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."


class AwsProfiles:
    """The settings of all profiles, those of both files together."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Raises `ProviderError` for a file that cannot be read."""
        home = Path(environment.get("HOME") or os.path.expanduser("~"), ".aws")
        self.folder = home
        self.name = (environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default").strip()
        self._config = _read(environment.get("AWS_CONFIG_FILE") or home / "config")
        self._keys = _read(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
        self._is_named = bool(environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE"))

    def settings(self, name: str) -> dict[str, str]:
        """Returns the settings of a profile. Raises `ProviderError` if a profile that was named does not exist."""
        section = "default" if name == "default" else f"profile {name}"
        if section not in self._config and name not in self._keys and (self._is_named or name != "default"):
            known = sorted({one.removeprefix("profile ") for one in (*self._config, *self._keys)})
            hint = f"The profiles are {', '.join(known[:20])}." if known else ADVICE
            raise ProviderError(f"choosing AWS credentials: there is no profile {name[:60]!r}", ErrorKind.CONFIG, hint)
        return {**self._config.get(section, {}), **self._keys.get(name, {})}

    def session(self, name: str) -> dict[str, str]:
        """Returns the settings of a single sign-on session."""
        return self._config.get(f"sso-session {name}", {})


def _read(path: str | Path) -> dict[str, dict[str, str]]:
    path = Path(path).expanduser()
    if not path.exists():
        return {}
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(bounded_text(path, 1024 * 1024), str(path))
    except (Unreadable, configparser.Error) as error:
        problem = (
            error.problem if isinstance(error, Unreadable) else f"it is no file of profiles ({type(error).__name__})"
        )
        raise ProviderError(f"reading AWS profiles in {path}: {problem}", ErrorKind.CONFIG, "Fix the file.") from None
    return {name: dict(parser.items(name)) for name in parser.sections()}


# --- Signs requests to AWS (Signature Version 4).


_ALGORITHM = "AWS4-HMAC-SHA256"
_PORTS = {"http": 80, "https": 443}


class AwsKeys(NamedTuple):
    """An access key. `expires` is in seconds since 1970; 0: it does not."""

    access: str
    secret: str
    token: str = ""
    expires: float = 0.0


def sign_request(
    url: str,
    content: bytes,
    keys: AwsKeys,
    *,
    region: str,
    service: str,
    method: str = "POST",
    content_type: str = "application/json",
    now: datetime | None = None,
) -> dict[str, str]:
    """Returns the headers that authorise the request."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    headers = {"x-amz-date": stamp, **({"x-amz-security-token": keys.token} if keys.token else {})}
    signed = {"host": host_header(url), **({"content-type": content_type} if content_type else {}), **headers}
    names = ";".join(sorted(signed))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    request = _canonical_request(method, url, signed, names, content)
    to_sign = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{_ALGORITHM} Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": credential}


def host_header(url: str) -> str:
    """Returns the host as HTTP clients send it: with its port, unless it is the usual one."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return host if parts.port in (None, _PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def _canonical_request(method: str, url: str, headers: Mapping[str, str], names: str, content: bytes) -> str:
    parts = urlsplit(url)
    path = quote(_normalise_path(parts.path), safe="/~")  # encoded a second time, as the specification says
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(parts.query, True)
    )
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    query = "&".join(f"{name}={value}" for name, value in pairs)
    return "\n".join([method, path, query, *lines, "", names, hashlib.sha256(content).hexdigest()])


def _normalise_path(path: str) -> str:
    """Removes empty segments and resolves `.` and `..`."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    ends = "/" if segments and path.endswith("/") else ""
    return f"/{'/'.join(segments)}{ends}"
