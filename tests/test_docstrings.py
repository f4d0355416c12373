"""Every public name explains itself: a sentence, each parameter, and an example that runs."""

from __future__ import annotations

import ast
import asyncio
import doctest
import enum
import inspect
import io
import os
import re
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_origin

import pytest

import forge
from forge.agent import Conversation, SessionState
from forge.channels import Channels
from forge.events import ActivityStream
from forge.memory import Memory
from forge.models import Anthropic, OpenAI
from forge.permissions import PolicyGate, layered
from forge.pipeline import standard_executor
from forge.schedules import ScheduleStore
from forge.skills import Catalog
from scripts.signatures import public_names, settings_of

PUBLIC = public_names()
SENTENCE = re.compile(r"[A-Z`].*\w.*[.:]$", re.DOTALL)
HELPERS = {"asyncio": asyncio, "Path": Path, "AbstractAsyncContextManager": AbstractAsyncContextManager}
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")


def docstring_of(name: str) -> str:
    """The docstring of the name itself, and of its `__init__`; of an alias, the text below its definition."""
    value = PUBLIC[name]
    if inspect.isclass(value):
        own = [vars(value).get("__doc__"), getattr(vars(value).get("__init__"), "__doc__", None)]
        return "\n\n".join(inspect.cleandoc(text) for text in own if text)
    if inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    return alias_text(*name.rsplit(".", 1))


def alias_text(module: str, name: str) -> str:
    body = ast.parse(inspect.getsource(import_module(module))).body
    nodes = [one for node in body for one in (node.body if isinstance(node, ast.If) else [node])]  # `if TYPE_CHECKING`
    for node, below in pairwise([*nodes, ast.Pass()]):
        match node, below:
            case ast.Assign(targets=[ast.Name(id=found)]), ast.Expr(value=ast.Constant(value=str(text))):
                if found == name:
                    return inspect.cleandoc(text)
            case ast.ImportFrom(module=str(where), names=names), _ if any(one.name == name for one in names):
                return alias_text(where, name)
    return ""


def documented(text: str) -> dict[str, str]:
    """The parameters in the section `Args:`, each with its text."""
    section = re.search(r"^Args:\n((?:    .*\n?)+)", text, re.MULTILINE)
    return dict(re.findall(r"^    (\w+): (\S.*)$", section[1], re.MULTILINE)) if section else {}


def parameters_of(value: Any) -> set[str]:
    if (
        get_origin(value) is not None
        or not callable(value)
        or (inspect.isclass(value) and issubclass(value, enum.Enum))
    ):
        return set()
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return set()
    is_protocol = getattr(value, "_is_protocol", False)
    return set() if is_protocol else {name for name in found if name not in ("self", "cls")}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is(name):
    first = docstring_of(name).split("\n\n")[0]
    assert SENTENCE.match(first), f"{name}: {first!r} is no sentence"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_public_name_is_described(name):
    value = PUBLIC[name]
    known = documented(docstring_of(name))
    if inspect.isclass(value):
        for base in value.__mro__[1:]:
            if base.__module__.startswith("forge.") and base.__doc__:
                known = documented(inspect.cleandoc(base.__doc__)) | known
    parameters = parameters_of(value)
    if (settings := settings_of(value)) and "settings" in parameters:  # **settings: each of them is described
        parameters = parameters - {"settings"} | settings.keys()
    assert parameters <= known.keys()
    assert not documented(docstring_of(name)).keys() - parameters, "described, and no parameter"


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in [*KEYS, *(one for one in os.environ if one.startswith("FORGE_"))]:
        monkeypatch.delenv(key, raising=False)
    known = {one.rpartition(".")[2]: value for one, value in PUBLIC.items()} | HELPERS
    test = doctest.DocTestParser().get_doctest(docstring_of(name), known, name, None, None)
    assert test.examples, f"{name} has no example"
    told = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    runner.run(test, out=told.write)
    assert runner.failures == 0, told.getvalue()


def test_a_wrong_docstring_is_seen():
    """The checks above can fail."""
    assert not SENTENCE.match("thing")
    assert documented("Run.\n\nArgs:\n    a: the first.\n    b: the\n        second.\n") == {
        "a": "the first.",
        "b": "the",
    }
    assert parameters_of(forge.rules) == {"lines", "otherwise"}
    assert parameters_of(forge.ErrorKind) == set()


SECRET = "hunter2hunter2"


def objects(folder: Path) -> dict[str, object]:
    """An object of every public class that has behaviour, with the beginning of its `repr`."""

    @forge.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    agent = forge.Agent(forge.Scripted("Hello!"), tools=[add], secrets=[SECRET])
    store = forge.SessionStore(folder / "sessions.db")
    scope = forge.Scope(session_id="alice", deps=SECRET)
    return {
        "<Agent main: Scripted, 4 tools>": agent,
        "<Agent main: no model, 3 tools>": forge.Agent(None),
        "<Agent main: ollama:m, 3 tools>": forge.Agent("ollama:m"),
        "<ToolRegistry of 1 tools>": forge.ToolRegistry([add]),
        "<FunctionTool add>": add,
        "RunResult('Hello!', reason='answer', turns=1, calls=0)": agent.run_sync("Hi"),
        f"<Project {folder}>": forge.load_project(folder),
        "<Rules allow read; deny write>": forge.rules("allow read", "deny write"),
        "<Rules a": forge.rules(*["allow read"] * 9),
        "<Rules project: <Rules allow *>>": layered(project=["allow *"]),
        "<Rules by default>": forge.rules(),
        "<PolicyGate <Rules allow read>>": PolicyGate(forge.rules("allow read")),
        f"<SessionStore {folder}/sessions.db>": store,
        "<Session alice: 0 messages>": store.open("alice"),
        "<Conversation of 1 messages, 1 shown>": Conversation([forge.Message("user", "Hi")]),
        "<ToolExecutor of 1 tools, ": standard_executor([add], secrets=[SECRET]),
        "<Secrets>": forge.Secrets([SECRET]),
        f"<Memory {folder}/notes>": Memory(folder / "notes"),
        "<Runs>": forge.Runs(f"sqlite:///{folder}/runs.db"),
        "<DurableAgent main, closed>": forge.DurableAgent(agent, f"sqlite:///{folder}/runs.db"),
        "<ScheduleStore in memory>": ScheduleStore(None),
        "<Catalog of skills>": Catalog(scope=forge.Scope(workspace=folder)),
        "<Channels none>": Channels({}),
        "<SessionState in memory>": SessionState(),
        "<ScriptFolder tools>": forge.scripts("tools", root=folder),
        "<ActivityStream, without listeners>": ActivityStream(),
        "<RunContext of alice: str>": forge.RunContext(scope),
        "<ToolContext of add in alice>": forge.ToolContext(forge.ToolCall("add"), add, scope=scope),
        "<OpenAI openai:m>": OpenAI("m", base_url="http://127.0.0.1/v1", api_key=SECRET),
        "Anthropic('m')": Anthropic("m", api_key=SECRET),
        "<WebhookTool notify>": forge.webhook("notify", f"https://example.com/{SECRET}", "Tell the team."),
    }


def test_a_repr_says_what_it_is_in_one_line_without_secrets(tmp_path):
    for start, one in objects(tmp_path.resolve()).items():
        assert repr(one).startswith(start), repr(one)
        assert len(repr(one)) <= 80 + len(str(tmp_path))
        assert SECRET not in repr(one)
        assert " object at 0x" not in repr(one)


def test_help_and_completion_see_every_name_with_its_signature():
    assert set(forge.__all__) <= set(dir(forge))  # type: ignore[attr-defined]
    parameters = {*inspect.signature(forge.Agent.run_sync).parameters, *settings_of(forge.Agent.run_sync)}
    assert {"prompt", "deps", "session", "limits"} <= parameters
    streamed = {*inspect.signature(forge.Agent.stream).parameters, *settings_of(forge.Agent.stream)}
    assert streamed == parameters - {"activity"}


def test_a_keyword_that_an_agent_or_a_run_does_not_have_is_refused_with_the_one_that_was_meant():
    with pytest.raises(
        TypeError, match=r"Agent\(\) got an unexpected keyword argument 'secret'. Did you mean 'secrets'"
    ):
        forge.Agent(None, secret=["x"])  # type: ignore[call-arg]
    agent = forge.Agent(forge.Scripted("Hi", "Hi"))
    with pytest.raises(TypeError, match=r"Agent.run\(\) got an unexpected keyword argument 'sesion'"):
        agent.run_sync("Hello", sesion="ada")  # type: ignore[call-arg]
    assert agent.run_sync("Hello", session="ada").text == "Hi"
