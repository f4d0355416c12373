"""Provides the models of Amazon Bedrock through its Converse API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest, ProviderError
from forge.models.bedrock.request import BedrockModel, request_body
from forge.models.bedrock.stream import AnswerReader
from forge.models.credentials.aws import AwsSigner, find_region
from forge.models.http.errors import KEY_ADVICE
from forge.models.http.fetch import suggest_model
from forge.models.http.model import Exchange, HttpModel, call_ids
from forge.models.http.outgoing import Sign

TOKEN = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the name of a variable
_PREFIXES = {"us-": "us", "eu-": "eu", "ap-": "apac"}


class Bedrock(HttpModel):
    """A model behind Bedrock's `converse-stream`.

    Requests are signed with AWS's usual credentials: the environment, the profile of `~/.aws`, single sign-on, a role,
    or the container's or machine's own. A token in `AWS_BEARER_TOKEN_BEDROCK` replaces them.

    Args:
        model: the id of a model or an inference profile, or its ARN.
        region: such as "eu-central-1"; by default that of the environment or the profile.
        base_url: another address of the service.
        thinking: of Claude, a budget in tokens or the API's own object; otherwise a level (low, medium, high).

    Example:
        >>> agent = Agent(Bedrock("eu.anthropic.claude-sonnet-5", region="eu-central-1"))
    """

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        base_url: str | None = None,
        thinking: int | str | Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.label, self.thinking = model, "bedrock", thinking
        self.region = region or find_region()
        if not self.region:
            words = f"asking bedrock:{model}: no AWS region is set"
            raise ProviderError(words, ErrorKind.CONFIG, "Set AWS_REGION, such as AWS_REGION=us-east-1.")
        named = base_url or os.environ.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "").strip()
        self.base_url = (named or f"https://bedrock-runtime.{self.region}.amazonaws.com").rstrip("/")
        self._token = os.environ.get(TOKEN, "").strip()
        self._sign: Sign | None = None if self._token else AwsSigner("bedrock", self.region)
        self._headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        self._abilities = BedrockModel(model)
        self._url = self._make_url("converse-stream")

    def __repr__(self) -> str:
        return f"<Bedrock {self.model}>"

    def _begin(self, request: ModelRequest) -> Exchange:
        body = request_body(request, model=self._abilities, thinking=self.thinking, origin=self.model)
        return Exchange(body, self._make_reader(request))

    def _make_reader(self, request: ModelRequest) -> AnswerReader:
        return AnswerReader(self.model, call_ids(request), self._error, f"asking bedrock:{self.model}")

    async def _recover(self, error: ProviderError, exchange: Exchange, request: ModelRequest) -> Exchange:
        whole = self._make_url("converse")  # some models cannot stream when they have tools
        if self._url == whole or exchange.answer.begun or "streaming mode" not in error.message:
            raise await self._explain(error) from error.__cause__
        self._url = whole
        return Exchange(exchange.body, self._make_reader(request))

    def _make_url(self, method: str) -> str:
        return f"{self.base_url}/model/{quote(self.model, safe='')}/{method}"

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Adds what a person can do about the refusals that are common here."""
        said = error.message.lower()
        if error.suggestion == KEY_ADVICE and "token" in said:
            error.suggestion = f"Renew the credentials: check {TOKEN}." if self._token else "Renew the AWS credentials."
        elif error.suggestion == KEY_ADVICE:
            error.suggestion = (
                f"Enable access to this model for your account in {self.region}, and check the IAM policy."
            )
        elif error.status == 400 and "inference profile" in said:
            prefix = next((known for start, known in _PREFIXES.items() if self.region.startswith(start)), "us")
            error.suggestion = f"Use an inference profile, such as bedrock:{prefix}.{self.model}."
        elif error.status == 404 or "model identifier is invalid" in said:
            error.suggestion = "Check the model's id and the region."
            named = os.environ.get("AWS_ENDPOINT_URL_BEDROCK", "").strip().rstrip("/")
            url = f"{named or f'https://bedrock.{self.region}.amazonaws.com'}/foundation-models"
            headers = self._headers or await AwsSigner("bedrock", self.region)(url, b"", "GET")
            await suggest_model(error, url, headers, self.model)
        return error
