"""Provides Chat Completions of OpenAI and compatible servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forge.core.provider import ProviderError
from forge.models.http.errors import PromptTooLong
from forge.models.http.outgoing import Sign
from forge.models.openai.answer import AnswerReader
from forge.models.openai.request import RequestFormat, request_body
from forge.models.openai.server import BASE_URL, SCHEMA_REFUSED, OpenAIServer, endpoint_url, find_named, is_output

__all__ = ["BASE_URL", "OpenAI", "endpoint_url"]

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "stream_options": r"stream_options|include_usage",
    "parallel_tool_calls": r"parallel_tool_calls",
    "response_format": SCHEMA_REFUSED,
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
    "max_tokens": r"(?s)(?=.*(?:unsupported|unknown|unrecognized|unexpected|extra|not (?:supported|permitted|allowed)))"
    r".*\bmax_(?:completion_)?tokens",
}
_REASONING_REFUSED = re.compile(r"(?is)(?=.*\btools?\b).*reasoning_effort")  # reasoning together with tools


class OpenAI(OpenAIServer):
    """A model behind `{base_url}/chat/completions`.

    Without a base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is
    sent there. Optional features that a server refuses (usage, strict schemas …) are left out from then on.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        label: the name of the provider in messages.
        short_ids: give calls short ids, which some servers require.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAI("qwen3", base_url="http://127.0.0.1:11434/v1"))
    """

    _path = "/chat/completions"
    _answer, _body = AnswerReader, staticmethod(request_body)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = True,
        label: str = "openai",
        short_ids: bool = False,
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
            short_ids=short_ids,
            max_tokens="max_completion_tokens" if self._host == "api.openai.com" else "max_tokens",
        )

    def _find_refused(self, error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
        if error.status not in (400, 422) or isinstance(error, PromptTooLong):
            return None
        sent = set(body)
        if not is_output((body.get("response_format") or {}).get("json_schema")):
            sent -= {"response_format"}
        sent |= {"strict"} if "tools" in body else set()
        sent |= {"max_tokens"} if "max_completion_tokens" in body else set()
        return find_named(error, sent, _REFUSED_FEATURES)

    async def _explain(self, error: ProviderError) -> ProviderError:
        if error.status in (400, 422) and _REASONING_REFUSED.search(error.message):  # never switched off silently
            error.suggestion = (
                f"Use openai-responses:{self.model}, which reasons with tools, or switch reasoning off with the option"
                " reasoning_effort: none."
            )
        return await super()._explain(error)
