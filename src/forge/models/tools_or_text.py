"""Provides models of local servers: with native tools, or with calls in the text where the model has no tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from forge.core.events import Retrying
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.http.errors import NoTools
from forge.models.http.fetch import fetch_json
from forge.models.openai import OpenAI
from forge.models.text_calls import TextCalls

NOTE = "the model has no native tool calls; Forge describes the tools in the prompt instead"


class ToolsOrText(OpenAI):
    """A model behind Chat Completions. If its server says that the model has no tools, it writes calls in its text."""

    _text: TextCalls | None = None
    _is_checked = False

    @property
    def expects_calls(self) -> bool:
        """True once the calls are part of the text: the prompt then demands one in every reply."""
        return self._text is not None

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        return self._text.explain_calls(tools) if self._text is not None else ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the message. Raises `ProviderError`."""
        if request.tools and self._text is None and not self._is_checked:
            self._is_checked = True
            if await self._drops_tools():
                self._text = TextCalls(_Plain(self))
                yield Retrying(NOTE, attempt=0)
        if not request.tools or self._text is None:
            try:
                async with aclosing(super().stream(request)) as parts:
                    async for part in parts:
                        yield part
                return
            except NoTools as error:
                if not request.tools:
                    raise
                self._text = TextCalls(_Plain(self))
                yield Retrying(f"{error.message}: {NOTE}", attempt=1, status=error.status)
        async with aclosing(self._text.stream(request)) as parts:
            async for part in parts:
                yield part

    async def _drops_tools(self) -> bool:
        """Asks llama.cpp, which leaves out tools silently if the model's template has no place for them."""
        if self.label not in ("llamacpp", "openai", "openai-chat"):  # any server may speak OpenAI's protocol
            return False
        url = f"{self._url.partition('/v1/')[0]}/props"
        try:
            found = await fetch_json(url, action="reading the model's properties", headers=self._headers, seconds=2.0)
        except ProviderError:
            return False
        abilities = found.document.get("chat_template_caps") if isinstance(found.document, Mapping) else None
        return isinstance(abilities, Mapping) and abilities.get("supports_tools") is False


class _Plain:
    """The model without tools, which the text protocol asks."""

    def __init__(self, model: OpenAI) -> None:
        self._model = model
        self.model = model.model

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        return OpenAI.stream(self._model, request)
