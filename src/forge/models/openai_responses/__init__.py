"""Provides the Responses API of OpenAI and compatible servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forge.core.provider import ProviderError
from forge.models.http.errors import PromptTooLong
from forge.models.http.outgoing import Sign
from forge.models.openai.server import SCHEMA_REFUSED, OpenAIServer, find_named, is_output
from forge.models.openai_responses.request import RequestFormat, asks_for_reasoning, request_body
from forge.models.openai_responses.stream import AnswerReader

THINKING = 300.0  # seconds between two pieces of the answer of a model that reasons

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "summary": r"reasoning\.summary|reasoning summar|\bsummary\b",
    "include": r"encrypted|\binclude\b",
    "parallel_tool_calls": r"parallel_tool_calls",
    "response_format": SCHEMA_REFUSED,
    "prompt_cache_key": r"prompt_cache_key",
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
}
_REASONS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|oss)|codex|computer-use)(?!.*-chat)")


class OpenAIResponses(OpenAIServer):
    """A model behind `{base_url}/responses`.

    Nothing is stored at the server: the history goes with every request, and reasoning goes back encrypted. Without a
    base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is sent there.
    Optional features that a server refuses (summaries, strict schemas …) are left out from then on. The effort of
    reasoning is never one of them.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        label: the name of the provider in messages.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAIResponses("gpt-5.4", api_key="a key"), options={"reasoning_effort": "low"})
    """

    _path = "/responses"
    _answer, _body = AnswerReader, staticmethod(request_body)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = True,
        label: str = "openai-responses",
        key_variable: str = "",
        sign: Sign | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            label=label,
            key_variable=key_variable,
            sign=sign,
        )
        self._spelling = RequestFormat(
            model,
            origin=f"{self._host}/{model}",
            strict=strict,
            reasons=_REASONS.match(model) is not None,
            has_cache_key=self._host == "api.openai.com",
        )

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Says whether the server is known to hold an answer to a schema, as one with strict schemas does."""
        is_refused = "response_format" in self._spelling.without
        return not is_refused and (self._spelling.strict or super().takes_schema(schema, with_tools=with_tools))

    def _silence(self, timeout: float, options: Mapping[str, Any]) -> float:
        thinks = self._spelling.reasons or asks_for_reasoning(options)
        return THINKING if thinks and not self._is_local else super()._silence(timeout, options)

    def _find_refused(self, error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
        """Returns the optional feature that the server refuses. A feature that the options ask for is not optional."""
        if error.status not in (400, 403, 422) or isinstance(error, PromptTooLong):
            return None
        wanted = options.get("reasoning")
        sent = {name for name in ("include", "prompt_cache_key") if name in body} - options.keys()
        sent |= {"parallel_tool_calls"} & body.keys()
        sent |= {"strict"} if "tools" in body else set()
        sent |= {"response_format"} if is_output(body.get("text", {}).get("format")) else set()
        if "summary" in body.get("reasoning", {}) and not (isinstance(wanted, Mapping) and "summary" in wanted):
            sent.add("summary")
        return find_named(error, sent, _REFUSED_FEATURES)
