"""Finds models by name: `openai:MODEL`, `ollama:MODEL`, `text:ollama:MODEL`, `local:PATH`, `scripted:FILE` …"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest, NotSetUp, Provider, ProviderError, StreamPart

if TYPE_CHECKING:  # loaded where a server is looked for
    from forge.models.local import LocalServer

# Providers are imported where they are named: nothing of HTTP is loaded to run a script.


class Server(NamedTuple):
    """A server that speaks Chat Completions. The environment variable `NAME_BASE_URL` names another address."""

    base_url: str
    key: str = ""  # the variable that holds it; none: no key is needed
    short_ids: bool = False


SERVERS = {
    "openai": Server("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "cerebras": Server("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": Server("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": Server("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "groq": Server("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": Server("https://router.huggingface.co/v1", "HF_TOKEN"),
    "mistral": Server("https://api.mistral.ai/v1", "MISTRAL_API_KEY", short_ids=True),
    "moonshot": Server("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "openrouter": Server("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Server("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": Server("https://api.x.ai/v1", "XAI_API_KEY"),
    "ollama": Server("http://127.0.0.1:11434/v1"),
    "lmstudio": Server("http://127.0.0.1:1234/v1"),
    "llamacpp": Server("http://127.0.0.1:8080/v1"),
    "vllm": Server("http://127.0.0.1:8000/v1"),
}
_OPENAI_APIS = ("openai-responses", "openai-chat")  # `openai` chooses between them
LOCAL = tuple(name for name, server in SERVERS.items() if not server.key)
OWN_PROTOCOLS = {  # providers with a protocol of their own, and the variables that may hold the key
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "vertex": (),  # Google Cloud's credentials
    "azure": ("AZURE_OPENAI_API_KEY",),  # or an Entra ID
    "azure-responses": ("AZURE_OPENAI_API_KEY",),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),  # or AWS's credentials
}
PREFIXES = (*OWN_PROTOCOLS, *SERVERS, *_OPENAI_APIS, "text", "scripted", "local", "command")

DEFAULTS = {"anthropic": "claude-sonnet-5", "openai": "gpt-5.4"}
_FAMILIES = {"claude": "anthropic", "gemini": "gemini", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


def provider_for(name: str) -> Provider:
    """Returns the model of a name. Raises `ProviderError` (config_error) for an unknown name or a missing key.

    Args:
        name: such as `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL` or `scripted:FILE`.

    Example:
        >>> provider_for("ollama:qwen3").model
        'qwen3'
    """
    prefix, colon, rest = name.strip().partition(":")
    prefix = prefix.strip().lower()
    if not colon or prefix not in PREFIXES:
        raise _unknown_error(name, prefix if colon else "")
    if prefix == "local":
        from forge.models.local import local

        return local(rest)
    if not rest:
        raise _error(name, f"the name of the model is missing after {prefix!r}", f"Write {_example(prefix)}.")
    if prefix == "text":
        wrapped = provider_for(rest)
        from forge.models.text_calls import text_calls

        return text_calls(wrapped)
    if prefix == "command":
        from forge.models.command import CommandModel

        return CommandModel(rest)
    if prefix == "scripted":
        from forge.models.scripted import scripted_file

        return scripted_file(rest)
    if prefix == "gemini":
        return _gemini(name, rest)
    if prefix in ("azure", "azure-responses"):
        from forge.models.azure import azure

        return azure(rest, responses=prefix == "azure-responses")
    if prefix == "bedrock":
        from forge.models.bedrock import Bedrock

        return Bedrock(rest)
    if prefix == "vertex":
        from forge.models.vertex import vertex

        return vertex(rest)
    return _anthropic(name, rest) if prefix == "anthropic" else _server(name, prefix, rest)


def find_model(model: str | Provider) -> Provider:
    """Returns a model by its name, or as it was given. One without its key fails when it is asked, not before."""
    if not isinstance(model, str):
        return model
    try:
        return provider_for(model)
    except NotSetUp as problem:
        return ModelWithoutKey(model, problem)


class ModelWithoutKey:
    """A model whose key is not set. It looks for the key whenever it is asked."""

    def __init__(self, name: str, problem: NotSetUp) -> None:
        self.name, self.problem = name, problem
        self.label, _, self.model = name.strip().partition(":")

    def __repr__(self) -> str:
        return f"<{self.name[:100]}, without its key>"

    def __getattr__(self, name: str) -> Any:
        """Answers what else is known about the model, once there is a key."""
        if name.startswith("_") or name == "name":
            raise AttributeError(name)
        try:
            return getattr(provider_for(self.name), name)
        except ProviderError:
            raise AttributeError(name) from None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        parts: Any = provider_for(self.name).stream(request)
        async with aclosing(parts):
            async for part in parts:
                yield part


def default_model() -> str | None:
    """Returns a model by the keys that are set: anthropic, then openai; then a local server that answers."""
    if any(map(_read_variable, OWN_PROTOCOLS["anthropic"])):
        return f"anthropic:{DEFAULTS['anthropic']}"
    if _read_variable("OPENAI_API_KEY") and not _read_variable("OPENAI_BASE_URL"):
        return f"openai:{DEFAULTS['openai']}"
    if base_url := _read_variable("OPENAI_BASE_URL"):
        from forge.models.local import list_models

        if models := list_models(base_url, _read_variable("OPENAI_API_KEY")):
            return f"openai:{models[0]}"
    return next((f"{server.name}:{server.models[0]}" for server in local_servers()), None)


def local_servers() -> list[LocalServer]:
    """Returns the model servers that answer on this machine. They are asked at the same time, and only briefly."""
    from forge.models.local import find_local_servers

    return find_local_servers({name: _base_url(name) for name in LOCAL})


def setup_advice() -> str:
    """Returns advice for a setup without a model: three ways, each with its command."""
    keys = [(name, key) for name, keys in OWN_PROTOCOLS.items() for key in keys]
    keys += [(name, server.key) for name, server in SERVERS.items() if server.key]
    found = [(name, key) for name, key in keys if _read_variable(key)]
    ways = {
        **{f"forge run --model {name}:MODEL": f"{key} is set: name a model of {name}" for name, key in found},
        "export ANTHROPIC_API_KEY=…": "use a key; also OPENAI_API_KEY, or --model PROVIDER:MODEL",
        "ollama run qwen3": "start a local model; Forge finds it",
        "forge demo": "watch an agent without a model, a key or a network",
    }
    width = max(map(len, ways))
    return "\n".join(
        ["No model is set. Choose one:", *(f"  {command:{width}}  {why}" for command, why in ways.items())]
    )


def _anthropic(name: str, model: str) -> Provider:
    from forge.models.anthropic import Anthropic

    if not any(map(_read_variable, OWN_PROTOCOLS["anthropic"])) and not _read_variable("ANTHROPIC_BASE_URL"):
        raise _missing_key_error(name, OWN_PROTOCOLS["anthropic"][0])
    return Anthropic(model)


def _gemini(name: str, model: str) -> Provider:
    from forge.models.gemini import Gemini

    keys = OWN_PROTOCOLS["gemini"]
    if not any(map(_read_variable, keys)) and not _read_variable("GEMINI_BASE_URL"):
        raise _missing_key_error(name, keys[0])
    return Gemini(model)


def _server(name: str, prefix: str, model: str) -> Provider:
    known = "openai" if prefix in _OPENAI_APIS else prefix
    server, base_url = SERVERS[known], _base_url(known)
    variable = server.key or f"{prefix.upper()}_API_KEY"
    key = _read_variable(variable)
    at_home = base_url.rstrip("/") == server.base_url
    if server.key and at_home and not key:
        raise _missing_key_error(name, server.key)
    strict = known == "openai" and at_home  # others ignore it, refuse it, or get it wrong
    if prefix == "openai-responses" or (prefix == "openai" and at_home):
        from forge.models.openai_responses import OpenAIResponses

        return OpenAIResponses(
            model, base_url=base_url, api_key=key, strict=strict, label=prefix, key_variable=variable
        )
    from forge.models.local import ToolsOrText
    from forge.models.openai_chat import OpenAI

    make = ToolsOrText if known in LOCAL or (known == "openai" and not at_home) else OpenAI
    return make(
        model,
        base_url=base_url,
        api_key=key,
        strict=strict,
        label=prefix,
        short_ids=server.short_ids and at_home,
        key_variable=variable,
    )


def _base_url(name: str) -> str:
    return _read_variable(f"{name.upper()}_BASE_URL") or SERVERS[name].base_url


def _read_variable(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _unknown_error(name: str, prefix: str) -> ProviderError:
    family = next((known for start, known in _FAMILIES.items() if name.lower().startswith(start)), "")
    if not prefix:
        known = f"Write PROVIDER:MODEL; the providers are {_join_names(PREFIXES)}."
        return _error(name, "it does not name a provider", f"Did you mean {family}:{name[:80]}?" if family else known)
    hints = near(prefix, PREFIXES)
    advice = (
        f"Did you mean {_join_names(tuple(hints), ' or ')}?" if hints else f"The providers are {_join_names(PREFIXES)}."
    )
    return _error(name, f"there is no provider {prefix[:40]!r}", advice)


def _missing_key_error(name: str, variable: str) -> NotSetUp:
    message = f"choosing the model {name[:100]!r}: {variable} is not set"
    return NotSetUp(message, ErrorKind.CONFIG, f"Set {variable} to your API key, or choose another model.")


def _error(name: str, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"choosing the model {name[:100]!r}: {problem}", ErrorKind.CONFIG, suggestion)


def _example(prefix: str) -> str:
    return {"scripted": "scripted:FILE", "text": "text:openai:MODEL"}.get(prefix, f"{prefix}:MODEL")


def _join_names(names: tuple[str, ...], between: str = ", ") -> str:
    return between.join(f"{name}:" for name in names)
