"""Finds models by name: `openai:MODEL`, `ollama:MODEL`, `text:ollama:MODEL`, `local:PATH`, `scripted:FILE` …"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind
from forge.core.provider import Provider, ProviderError

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
    "gemini": Server("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
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
LOCAL = tuple(name for name, server in SERVERS.items() if not server.key)
PREFIXES = ("anthropic", *SERVERS, "text", "scripted", "local")

DEFAULTS = {"anthropic": "claude-sonnet-5", "openai": "gpt-5.4"}
_ANTHROPIC_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_FAMILIES = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


def provider_for(name: str) -> Provider:
    """Return the model of that name. Raises `ProviderError` (config_error) for an unknown name or a missing key."""
    prefix, colon, rest = name.strip().partition(":")
    prefix = prefix.strip().lower()
    if not colon or prefix not in PREFIXES:
        raise _unknown_error(name, prefix if colon else "")
    if prefix == "local":
        from forge.models.local import local

        return local(rest)
    if not rest:
        raise _error(name, f"nothing is named after {prefix!r}", f"Write {_example(prefix)}.")
    if prefix == "text":
        wrapped = provider_for(rest)
        from forge.models.text_calls import text_calls

        return text_calls(wrapped)
    if prefix == "scripted":
        from forge.models.scripted import scripted_file

        return scripted_file(rest)
    return _anthropic(name, rest) if prefix == "anthropic" else _server(name, prefix, rest)


def default_model() -> str | None:
    """Returns a model by the keys that are set: anthropic, then openai; then a local server that answers."""
    if any(map(_read_variable, _ANTHROPIC_KEYS)):
        return f"anthropic:{DEFAULTS['anthropic']}"
    if _read_variable("OPENAI_API_KEY") and not _read_variable("OPENAI_BASE_URL"):
        return f"openai:{DEFAULTS['openai']}"
    for name in ("openai", *LOCAL) if _read_variable("OPENAI_BASE_URL") else LOCAL:
        if model := _find_first_model(_base_url(name), _read_variable("OPENAI_API_KEY") if name == "openai" else ""):
            return f"{name}:{model}"
    return None


def setup_advice() -> str:
    """Returns advice for a setup without a model."""
    width = max(map(len, SERVERS)) + len(":MODEL")
    keys = "\n".join(f"  {f'{name}:MODEL':{width}}  {server.key}" for name, server in SERVERS.items() if server.key)
    local_servers = "\n".join(f"  {f'{name}:MODEL':{width}}  {SERVERS[name].base_url}" for name in LOCAL)
    found = [name for name, server in SERVERS.items() if server.key and os.environ.get(server.key)]
    here = "".join(f"{SERVERS[name].key} is set: name a model of it, --model {name}:MODEL.\n" for name in found)
    return (
        f"{here}No model is chosen. Set ANTHROPIC_API_KEY or OPENAI_API_KEY, start a local server, or name a model\n"
        "with --model or in the file given with --config (agent: {model: …}):\n"
        f"  {'anthropic:MODEL':{width}}  ANTHROPIC_API_KEY\n{keys}\n{local_servers}\n"
        f"  {'local:PATH':{width}}  a GGUF file, in this process: pip install 'forge-tools[local]'\n"
        f"  {'scripted:FILE':{width}}  no model: says what the file tells it\n"
        "OPENAI_BASE_URL points openai:MODEL at any server that speaks its language; "
        "text:NAME is for models that cannot call tools themselves."
    )


def _anthropic(name: str, model: str) -> Provider:
    from forge.models.anthropic import Anthropic

    if not any(map(_read_variable, _ANTHROPIC_KEYS)) and not _read_variable("ANTHROPIC_BASE_URL"):
        raise _missing_key_error(name, _ANTHROPIC_KEYS[0])
    return Anthropic(model)


def _server(name: str, prefix: str, model: str) -> Provider:
    from forge.models.openai import OpenAI

    server, base_url = SERVERS[prefix], _base_url(prefix)
    variable = server.key or f"{prefix.upper()}_API_KEY"
    key = _read_variable(variable)
    at_home = base_url.rstrip("/") == server.base_url
    if server.key and at_home and not key:
        raise _missing_key_error(name, server.key)
    strict = prefix == "openai" and at_home  # others ignore it, refuse it, or get it wrong
    return OpenAI(
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


def _find_first_model(base_url: str, key: str = "") -> str:
    """Returns the first chat model of a local server, or an empty text; waits a fifth of a second to connect."""
    import json
    from http.client import HTTPConnection, HTTPException

    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=0.2)
    except (ValueError, HTTPException):
        return ""
    if parts.scheme != "http":
        return ""
    try:
        connection.connect()
        connection.sock.settimeout(1.0)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", f"{parts.path.rstrip('/')}/models", headers=headers)
        response = connection.getresponse()
        found = json.loads(response.read(1 << 20)) if response.status == 200 else {}
        return next(_list_chat_models(found), "")
    except (OSError, HTTPException, ValueError, RecursionError):
        return ""
    finally:
        connection.close()


def _list_chat_models(found: object) -> Iterator[str]:
    models = found.get("data") if isinstance(found, dict) else None
    for model in models if isinstance(models, list) else ():
        id = model.get("id") if isinstance(model, dict) else None
        if isinstance(id, str) and id.strip() and id.isprintable() and "embed" not in id.lower():
            yield id


def _unknown_error(name: str, prefix: str) -> ProviderError:
    family = next((known for start, known in _FAMILIES.items() if name.lower().startswith(start)), "")
    if not prefix:
        known = f"Write PROVIDER:MODEL; the providers are {_join_names(PREFIXES)}."
        return _error(name, "it names no provider", f"Did you mean {family}:{name[:80]}?" if family else known)
    hints = near(prefix, PREFIXES)
    advice = f"Did you mean {_join_names(tuple(hints), ' or ')}?" if hints else f"Known are {_join_names(PREFIXES)}."
    return _error(name, f"there is no provider {prefix[:40]!r}", advice)


def _missing_key_error(name: str, variable: str) -> ProviderError:
    return _error(name, f"{variable} is not set", f"Set {variable} to your API key, or choose another model.")


def _error(name: str, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"choosing the model {name[:100]!r}: {problem}", ErrorKind.CONFIG, suggestion)


def _example(prefix: str) -> str:
    return {"scripted": "scripted:FILE", "text": "text:openai:MODEL"}.get(prefix, f"{prefix}:MODEL")


def _join_names(names: tuple[str, ...], between: str = ", ") -> str:
    return between.join(f"{name}:" for name in names)
