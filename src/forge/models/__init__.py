"""Puts language models behind one method, `stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.core.messages import unanswered_calls as unanswered_calls
    from forge.core.provider import ModelRequest as ModelRequest
    from forge.core.provider import Provider as Provider
    from forge.core.provider import ProviderError as ProviderError
    from forge.core.provider import StreamPart as StreamPart
    from forge.models.anthropic import Anthropic as Anthropic
    from forge.models.bedrock import Bedrock as Bedrock
    from forge.models.cache import CachedTurn as CachedTurn
    from forge.models.cache import ExplainedModel as ExplainedModel
    from forge.models.cache import explain_cache as explain_cache
    from forge.models.gemini import Gemini as Gemini
    from forge.models.openai_chat import OpenAI as OpenAI
    from forge.models.openai_responses import OpenAIResponses as OpenAIResponses
    from forge.models.server_tools import ServerTool as ServerTool
    from forge.models.vendors import provider_for as provider_for
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
