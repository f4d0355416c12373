"""Exports tools as plain definitions for model APIs, for programs that run their own loop."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from forge.frameworks.shared import Tools, registry_of


def to_openai(tools: Tools, *, strict: bool = False, session_id: str = "local") -> list[dict[str, Any]]:
    """Returns definitions for `tools=` of OpenAI's chat completions and compatible APIs.

    `strict`: use OpenAI's strict mode for schemas that fit its rules.
    """
    return _definitions(tools, "openai-strict" if strict else "openai", session_id)


def to_anthropic(tools: Tools, *, session_id: str = "local") -> list[dict[str, Any]]:
    """Returns definitions for `tools=` of Anthropic's messages."""
    return _definitions(tools, "anthropic", session_id)


def to_gemini(tools: Tools, *, session_id: str = "local") -> list[dict[str, Any]]:
    """Returns definitions for `function_declarations` of Gemini's tools."""
    return _definitions(tools, "gemini", session_id)


def _definitions(tools: Tools, dialect: str, session_id: str) -> list[dict[str, Any]]:
    """Returns copies, so that a caller may change them."""
    return deepcopy(registry_of(tools).definitions(dialect, session_id))
