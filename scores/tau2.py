"""τ²-bench: the tools of four domains as Forge's tools, and the right actions of their tasks through Forge's gate.

The tools and the data are inside the package inspect-evals. Its tools need five names of inspect-ai, a package of 35 MB
with 40 others; stand-ins for those names are here. Every task is played twice from the same state: its actions called
directly, and called through an agent with rules. Each result, and the databases at the end, must be the same.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, validate_call

from forge import Agent, Answer, PermissionRequest, Tool, rules, tool
from forge.core.arguments.tool_formats import DIALECTS
from scores.packages import from_pypi
from scores.report import Row, Score
from scores.threats import VERSION

SOURCE = f"PyPI inspect-evals {VERSION} (τ²-bench)"
MEASURES = (
    "The tools of τ²-bench as Forge's tools, and the ground-truth actions of its tasks, replayed through the gate."
)
NOTES = (
    "Airline, retail and banking have 1,628 actions, telecom's base split 516. Rules: `allow read`; everything else"
    " asks and is answered with yes. An action that reads, by the beginning of its tool's name (`get_`, `find_` …),"
    " may not ask; every other must. An action whose direct call fails must fail with the same words.",
)
_READS = ("get_", "find_", "list_", "search_", "check_", "calculate", "can_", "run_speed_test", "grep")
_SPACE = "inspect_evals.tau2"
_REPLACED = ("inspect_ai", "inspect_evals", "toml")  # packages that stand-ins replace


class Domain(NamedTuple):
    """A domain: its modules with tools, by who may call them, and the folder with its tasks."""

    name: str
    assistant: str
    user: str
    folder: str
    prefix: str = ""


DOMAINS = (
    Domain("airline", "airline.tools", "", "airline"),
    Domain("retail", "retail.tools", "", "retail"),
    Domain("banking", "banking.tools", "banking.user_tools", "banking_knowledge", "banking_"),
    Domain("telecom", "telecom.tools", "telecom.user_tools", "telecom"),
)


def run() -> Score:
    package = from_pypi("inspect-evals", VERSION)
    with stand_ins(package):
        tallies = asyncio.run(_measure(package / "inspect_evals" / "tau2" / "data" / "domains"))
    return Score("tau2", SOURCE, MEASURES, [row for one in tallies for row in one.rows()], notes=NOTES)


async def _measure(data: Path) -> list[Tally]:
    tallies = []
    for domain in DOMAINS:
        tally = Tally(domain.name)
        tools = {
            "assistant": find_tools(domain.assistant, domain.prefix, tally),
            "user": find_tools(domain.user, domain.prefix, tally) if domain.user else {},
        }
        for task in read_tasks(data / domain.folder):
            await play(domain, task, tools, tally)
        tallies.append(tally)
    return tallies


def read_tasks(folder: Path) -> list[dict[str, Any]]:
    """Returns the tasks of a domain; of telecom, only those of the base split."""
    packed, split = folder / "tasks.json.gz", folder / "split_tasks.json"
    if not packed.exists():
        found: list[dict[str, Any]] = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
        return found
    chosen = set(json.loads(split.read_text(encoding="utf-8"))["base"])
    return [task for task in json.loads(gzip.decompress(packed.read_bytes())) if task["id"] in chosen]


@dataclass
class Tally:
    """The counts of one domain."""

    domain: str
    definitions: int = 0
    actions: int = 0
    tasks: int = 0
    reads: int = 0
    undefined: list[str] = field(default_factory=list)
    other_result: list[str] = field(default_factory=list)
    other_end: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # though they read
    unasked: list[str] = field(default_factory=list)  # though they change something

    def rows(self) -> list[Row]:
        writes = self.actions - self.reads
        counts = (
            ("definitions accepted in every dialect", self.undefined, self.definitions),
            ("actions with the result of a direct call", self.other_result, self.actions),
            ("tasks with the databases of direct calls at the end", self.other_end, self.tasks),
            ("actions that read, unasked", self.asked, self.reads),
            ("actions that change something, asked", self.unasked, writes),
        )
        return [Row(f"{self.domain}: {name}", cases - len(failed), cases, "", failed) for name, failed, cases in counts]


# --- definitions


def find_tools(module: str, prefix: str, tally: Tally) -> dict[str, Tool]:
    """Makes Forge's tools of the functions that a module registers, by the names that the tasks use."""
    made: dict[str, Tool] = {}
    for name, factory in vars(import_module(f"{_SPACE}.{module}")).items():
        if not getattr(factory, "is_tau2_tool", False):
            continue
        tally.definitions += 1
        short = name.removeprefix(prefix)
        reads = short.startswith(_READS)
        try:
            one = tool(factory(), name=short, permissions={"read" if reads else "write"})
            for dialect in DIALECTS.values():
                dialect(one.spec)
        except Exception as error:
            tally.undefined.append(f"{name}: {error}")
        else:
            made[short] = one
    return made


# --- actions


async def play(domain: Domain, task: Mapping[str, Any], tools: Mapping[str, Mapping[str, Tool]], tally: Tally) -> None:
    """Plays the actions of a task directly and through the gate, each from the task's first state."""
    actions = (task.get("evaluation_criteria") or {}).get("actions") or []
    if not actions:
        return
    tally.tasks += 1
    name = f"{domain.name}: {task['id']}"
    _begin(domain, task)
    direct = [await _call_directly(tools, action) for action in actions]
    end = _describe_store()
    _begin(domain, task)
    asked: list[str] = []

    async def approve(request: PermissionRequest) -> Answer:
        asked.append(request.call.name)
        return Answer.ONCE

    agents = {
        who: Agent(None, tools=list(known.values()), policy=rules("allow read"), approve=approve)
        for who, known in tools.items()
        if known
    }
    for action, expected in zip(actions, direct, strict=True):
        tally.actions += 1
        said = f"{name}: {action['name']}"
        count = len(asked)
        got = await _call_through(agents, action)
        if not _is_same(got, expected):
            tally.other_result.append(f"{said}: {got!r}, not {expected!r}")
        if not action["name"].startswith(_READS):
            tally.unasked += [said] if len(asked) == count else []
        else:
            tally.reads += 1
            tally.asked += [said] if len(asked) > count else []
    if _describe_store() != end:
        tally.other_end.append(name)


async def _call_directly(tools: Mapping[str, Mapping[str, Tool]], action: Mapping[str, Any]) -> tuple[bool, str]:
    known = tools[action.get("requestor") or "assistant"]
    try:
        function = validate_call(known[action["name"]].run)
        return True, _text(await function(**action["arguments"]))
    except ToolError as error:
        return False, str(error)


async def _call_through(agents: Mapping[str, Agent], action: Mapping[str, Any]) -> tuple[bool, str]:
    agent = agents[action.get("requestor") or "assistant"]
    result = await agent.call(action["name"], action["arguments"])
    if result.is_error:
        return False, result.for_llm
    return True, _text(result.data.get("result", result.for_llm))


def _is_same(got: tuple[bool, str], expected: tuple[bool, str]) -> bool:
    return got == expected or (not got[0] and not expected[0] and expected[1] in got[1])


def _text(value: Any) -> str:
    """Returns a result to be compared: JSON that is shown in lines is the same as JSON in one."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text.strip()


# --- stand-ins for inspect-ai, and the state of the tools


class ToolError(Exception):
    """The error that a tool of the benchmark tells the model."""


class StoreModel(BaseModel):
    """The base of the benchmark's states; `instance` tells several of one class apart."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    instance: str | None = None


_store: dict[tuple[type, str | None], Any] = {}
_first: dict[type, bytes] = {}  # each state as it is after its data was read, which takes long


def store_as(kind: type, instance: str | None = None) -> Any:
    """Returns the state of a class, read once and copied for each task."""
    key = kind, instance
    if key not in _store:
        if kind not in _first:
            state = kind(instance=instance)
            state.initialize()
            _first[kind] = pickle.dumps(state)
        _store[key] = pickle.loads(_first[kind])
    return _store[key]


def _describe_store() -> str:
    """Returns the content of all databases."""
    dumped = {f"{kind.__name__}": state.db.model_dump_json() for (kind, _), state in _store.items()}
    return json.dumps(dumped, sort_keys=True)


def _begin(domain: Domain, task: Mapping[str, Any]) -> None:
    """Sets the first state of a task, as the benchmark's own initializers do."""
    _store.clear()
    first = task.get("initial_state")
    state = None
    if first:
        tasks = import_module(f"{_SPACE}.data_model.tasks")
        state = tasks.InitialState.model_validate(deepcopy(first))  # its parts become parts of the database
    if domain.name == "banking":
        environment = import_module(f"{_SPACE}.banking.environment")
        environment.initialize_environment()
        environment.apply_initial_state(environment.get_agent_tools(), environment.get_user_tools(), state)
    elif domain.name == "telecom":
        environment = import_module(f"{_SPACE}.telecom.environment").get_environment()
        for action in (state.initialization_actions or []) if state is not None else []:
            owner = environment.user_tools if action.env_type == "user" else environment.tools
            getattr(owner, action.func_name)(**action.arguments)
            environment.sync_tools()


def _register(factory: Callable[..., Any]) -> Callable[..., Any]:
    factory.is_tau2_tool = True  # type: ignore[attr-defined]
    return factory


@contextmanager
def stand_ins(package: Path) -> Iterator[None]:
    """Makes the benchmark's tools importable."""
    given: dict[str, Mapping[str, Any]] = {
        "inspect_ai": {},
        "inspect_ai.tool": {"tool": _register, "Tool": Any, "ToolError": ToolError},
        "inspect_ai.util": {"StoreModel": StoreModel, "store_as": store_as},
        "inspect_ai.model": {"Content": Any, "ContentText": Any},
        "toml": {"load": lambda file: tomllib.loads(file.read())},
        "inspect_evals": {"__path__": [str(package / "inspect_evals")]},
        _SPACE: {"__path__": [str(package / "inspect_evals" / "tau2")]},
    }
    for part in ("airline", "retail", "banking", "telecom"):
        given[f"{_SPACE}.{part}"] = {"__path__": [str(package / "inspect_evals" / "tau2" / part)]}
    before = dict(sys.modules)
    for name, content in given.items():
        module = ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
    try:
        yield
    finally:
        # only these: a package that was loaded meanwhile, such as yaml, would be loaded in two halves
        for name in [one for one in sys.modules if one.partition(".")[0] in _REPLACED]:
            del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if name.partition(".")[0] in _REPLACED})
