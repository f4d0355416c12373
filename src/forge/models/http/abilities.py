"""Refuses a request for something that a model is known not to do, before the request is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest, ProviderError

# Families of models by provider, compared with published data in November 2026. Others are tried as they are.
_OPENAI = {
    "images": r"gpt-3\.5|gpt-4(?:-\d{4}|-32k.*)?$|gpt-4-1106-preview|gpt-(?:4o-(?:mini-)?)?audio"
    r"|o1-mini|o1-preview|o3-mini|(?:openai/)?gpt-oss",
    "tools": r"gpt-3\.5-turbo-instruct|o1-mini|o1-preview|o\d(?:-mini)?-deep-research",
    "reasoning": r"gpt-3\.5|gpt-4|gpt-audio|chatgpt-4o",
}
_CANNOT: dict[str, dict[str, str]] = {
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": {
        "images": r"claude-(?:2|instant)",
        "tools": r"claude-(?:2|instant)",
        "reasoning": r"claude-(?:2|instant|3-(?:5|haiku|opus|sonnet))",
    },
    "deepseek": {"images": r"deepseek-(?:chat|reasoner)$|deepseek-(?:coder|r1|v3|v4-pro)"},
    "mistral": {"images": r"codestral|voxtral|open-mi[sx]tral|mistral-tiny"},
    "xai": {"images": r"grok-(?:3|beta)", "reasoning": r"grok-(?:2|3(?!-mini)|beta|.*non-reasoning)"},
}
_OFF = (None, False, 0, "none", "off")


def check_abilities(label: str, model: str, request: ModelRequest) -> None:
    """Raises `ProviderError` if the request has images, tools or reasoning that the model is known not to have."""
    cannot = [what for what, family in _CANNOT.get(label, {}).items() if re.match(family, model)]
    if "images" in cannot and _has_images(request):
        raise _error(label, model, "it cannot see images", "Leave out the image, or choose a model that sees images.")
    if "tools" in cannot and request.tools:
        way = f"Use text:{label}:{model}, which writes calls in its text, or choose another model."
        raise _error(label, model, "it cannot call tools", way)
    if "reasoning" in cannot and _asks_for_reasoning(request.options):
        way = "Leave out `reasoning_effort` and `thinking`, or choose a model that reasons."
        raise _error(label, model, "it does not reason", way)


def _has_images(request: ModelRequest) -> bool:
    """Says whether a person's message has an image. An image in a result becomes a note elsewhere."""
    prompts = (message for message in request.messages if message.role == "user" and message.attachments)
    return any(one.media_type.lower().startswith("image/") for message in prompts for one in message.attachments)


def _asks_for_reasoning(options: Mapping[str, Any]) -> bool:
    wanted = options.get("reasoning")
    effort = wanted.get("effort") if isinstance(wanted, Mapping) else wanted
    thinking = options.get("thinking")
    if isinstance(thinking, Mapping):
        thinking = thinking.get("type") != "disabled"
    return any(value not in _OFF for value in (effort, options.get("reasoning_effort"), thinking))


def _error(label: str, model: str, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"asking {label}:{model}: {problem}", ErrorKind.VALIDATION, suggestion)
