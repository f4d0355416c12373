"""Finds AWS credentials in AWS's own order, and signs requests with them; botocore does both."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind
from forge.core.extras import is_installed
from forge.core.provider import ProviderError
from forge.models.credentials.tokens import Door, check_package, refused_error
from forge.models.http.fetch import Fetched
from forge.models.http.outgoing import Mask, clean_message

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.credentials import Credentials
    from botocore.session import Session

ACTION = "getting AWS credentials"
ADVICE = "Run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
_LOGIN = "Run `aws sso login` to sign in again."
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_SIGNED = ("authorization", "x-amz-date", "x-amz-security-token")


def find_region() -> str:
    """Returns the region of the environment or of the profile; empty if neither names one. Raises `ProviderError`."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if found := os.environ.get(name, "").strip():
            return found
    if not is_installed("bedrock"):
        return ""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    try:
        return str(session.get_config_variable("region") or "").strip()
    except BotoCoreError as error:
        raise _explain(error, session) from None


class AwsSigner:
    """Signs requests with the credentials that it finds. Roles and tokens are renewed shortly before their end."""

    def __init__(self, service: str, region: str) -> None:
        """Raises `ProviderError` if botocore is not installed."""
        check_package("bedrock", ACTION)
        self.service, self.region = service, region
        self._session: Session | None = None
        self._credentials: Credentials | None = None
        self._thread = threading.local()  # its `door`: that of the call which this thread works for

    async def __call__(self, url: str, content: bytes = b"", method: str = "POST") -> Mapping[str, str]:
        """Returns the headers for a request. Raises `ProviderError`."""
        door = Door(ACTION)
        return await door.run(lambda: self._sign(door, url, content, method))

    def _sign(self, door: Door, url: str, content: bytes, method: str) -> dict[str, str]:
        from botocore.auth import SigV4Auth  # heavy, as all of botocore
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session

        self._thread.door = door
        self._session = self._session or Session()
        try:
            self._credentials = self._credentials or self._find_credentials(self._session)
            keys = self._credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError, LookupError, OSError, TypeError, ValueError) as error:
            raise _explain(error, self._session, door.mask) from None
        headers = {"content-type": "application/json"} if method == "POST" else {}
        request = AWSRequest(method=method, url=url, data=content, headers=headers)
        SigV4Auth(keys, self.service, self.region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items() if name.lower() in _SIGNED}

    def _find_credentials(self, session: Session) -> Credentials:
        from botocore import credentials
        from botocore.utils import ContainerMetadataFetcher

        _check_environment()
        _check_profiles(session)
        session.set_config_variable("region", self.region)
        session.unregister("before-send", self._answer)
        session.register("before-send", self._answer)  # the requests of STS and of single sign-on
        resolver = credentials.create_credential_resolver(session, region_name=self.region)
        for left_out in (
            *(credentials.ProcessProvider, credentials.OriginalEC2Provider, credentials.BotoProvider),
            credentials.ContainerProvider,
        ):
            resolver.remove(left_out.METHOD)
        container = credentials.ContainerProvider(fetcher=ContainerMetadataFetcher(session=self))
        resolver.insert_before(credentials.InstanceMetadataProvider.METHOD, container)
        found = resolver.load_credentials()
        if found is None:
            raise ProviderError(f"{ACTION}: there are none", ErrorKind.CONFIG, ADVICE)
        return found

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Sends a request of botocore through our client: the method of its HTTP sessions that is used here."""
        from botocore.awsrequest import AWSResponse

        body = request.body.read() if hasattr(request.body, "read") else request.body
        door: Door = self._thread.door
        status, headers, content = door.send(request.method, request.url, request.headers, body)
        return AWSResponse(request.url, status, headers, _Raw(content))

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        return self.send(request)


class _Raw(BytesIO):
    """A body as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _check_environment() -> None:
    given = [name for name in _KEYS if os.environ.get(name, "").strip()]
    if len(given) == 1:
        (missing,) = {*_KEYS} - {*given}
        raise ProviderError(f"{ACTION}: {missing} is not set", ErrorKind.CONFIG, f"Set {missing}, too.")


def _check_profiles(session: Session) -> None:
    """Refuses a profile for which botocore would start a program, or ask at the terminal."""
    if os.environ.get(_KEYS[0], "").strip():
        return
    profiles, name = session.full_config.get("profiles", {}), session.get_config_variable("profile") or "default"
    seen: set[str] = set()
    while name in profiles and name not in seen:
        seen.add(name)
        for setting in ("credential_process", "mfa_serial"):
            if setting in profiles[name]:
                message = f"{ACTION}: the profile {name[:60]!r} uses {setting}, which Forge cannot follow"
                hint = 'Run: eval "$(aws configure export-credentials --format env)"'
                raise ProviderError(message, ErrorKind.CONFIG, hint)
        name = profiles[name].get("source_profile", "")


def _explain(error: Exception, session: Session, mask: Mask = str) -> ProviderError:
    """Returns our error for one of botocore."""
    from botocore import exceptions

    problem, advice = clean_message(str(error), mask) or type(error).__name__, ADVICE
    if isinstance(error, exceptions.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        said = Fetched(status, {"message": error.response.get("Error", {}).get("Message") or problem})
        is_role = error.operation_name.startswith("AssumeRole")
        return refused_error(said, ACTION, "Check the role and who may assume it." if is_role else _LOGIN, mask)
    if isinstance(error, exceptions.ProfileNotFound):
        known = ", ".join(sorted(session.available_profiles)[:20])
        message = f"choosing AWS credentials: there is no profile {str(error.kwargs.get('profile'))[:60]!r}"
        return ProviderError(message, ErrorKind.CONFIG, f"The profiles are {known}." if known else ADVICE)
    if isinstance(error, exceptions.ConfigParseError):
        message = f"reading AWS profiles in {error.kwargs.get('path')}: it is no file of profiles"
        return ProviderError(message, ErrorKind.CONFIG, "Fix the file.")
    if isinstance(error, exceptions.UnauthorizedSSOTokenError | exceptions.TokenRetrievalError):
        problem, advice = "the login of AWS single sign-on has ended", _LOGIN
    elif isinstance(error, exceptions.SSOError):
        problem, advice = "there is no login of AWS single sign-on", _LOGIN
    elif isinstance(error, ValueError) and "Unsupported host" in problem:
        problem = "AWS_CONTAINER_CREDENTIALS_FULL_URI names a server that may not be asked without encryption"
        advice = "Use https, or an address of this machine."
    elif isinstance(error, LookupError | TypeError):
        problem = f"a response cannot be read ({type(error).__name__})"
    return ProviderError(f"{ACTION}: {problem}", ErrorKind.CONFIG, advice)
