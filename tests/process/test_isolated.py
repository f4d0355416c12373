"""Tools of every kind in a process of their own."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from forge import Answer, Scope, Tool, ToolCall, ToolContext, ToolError, ToolRegistry, ToolResult, rules, tool, toolset
from forge.core.result import Failure
from forge.pipeline import ToolExecutor, standard_executor
from forge.pipeline.limit_calls import Isolate

ROOT = Path(__file__).parents[2]
HERE = str(os.getpid())


class Greet(Tool, isolate=True):
    """Greet from another process."""

    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting

    async def run(self, name: str, ctx: ToolContext) -> str:
        return f"{self.greeting} {name} as {ctx.spec.name} with {dict(ctx.arguments)} from {os.getpid()}"


class Locked(Tool, isolate=True):
    """Hold what cannot be sent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def run(self) -> str:
        return "never"


class Things:
    """Methods as tools."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def times(self, number: int) -> int:
        """Multiply."""
        return number * self.factor

    @tool(isolate=True)
    def plus(self, number: int) -> int:
        """Add."""
        return number + self.factor


class LockedThings(Things):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def count(text: str, **more: str) -> str:
    return f"{len(text)} from {os.getpid()}"


@tool(isolate=True)
def sloppy(number: int = None, marker: object = threading.Lock) -> str:  # type: ignore[assignment]  # noqa: RUF013
    """Have defaults that are no valid arguments."""
    return f"{number}"


@tool(isolate=True, expose_errors=False)
def internals() -> str:
    """Break."""
    raise ValueError("the password is hunter2")


@tool(isolate=True)
def breaks(how: str) -> ToolResult:
    """Fail in every way."""
    match how:
        case "passing":
            raise ToolError("busy", "system_error", "Later.", passing=True)
        case "returned":
            return ToolResult(for_llm="busy", failure=Failure("busy", passing=True))
        case "timeout":
            raise TimeoutError("too slow")
        case "exit":
            raise SystemExit(3)
        case _:
            raise KeyError("unexpected")


@tool(isolate=True, optional_permissions={"write"})
async def careful(path: str, ctx: ToolContext) -> str:
    """Ask in the middle."""
    await ctx.require("write", path)
    await ctx.require("write", path)
    return f"may write {path}"


@tool(isolate=True)
async def later(ctx: ToolContext) -> ToolResult:
    """Go on in the background."""

    async def work() -> str:
        return "done"

    return ctx.background(work(), "started")


@tool(isolate=True)
def reads_input() -> str:
    """Read the standard input."""
    return f"read {sys.stdin.read()!r}"


@tool(isolate=True)
async def leaves_work() -> str:
    """Leave a task that does not want to end."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

    leaves_work.task = asyncio.create_task(stubborn())  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    return "done"


def executor_of(*tools: Tool) -> ToolExecutor:
    return ToolExecutor(ToolRegistry(tools), [Isolate()])


async def call(made: Tool, **arguments: object) -> ToolResult:
    return await executor_of(made).execute(ToolCall(made.spec.name, arguments), Scope())


async def test_an_object_is_sent_with_its_state_also_when_it_was_called_before():
    made = Greet("good day")
    executor = executor_of(made)
    for _ in range(2):
        result = await executor.execute(ToolCall("greet", {"name": "Ann"}), Scope())
        assert result.for_llm.startswith("good day Ann as greet with {'name': 'Ann'} from ")
        assert HERE not in result.for_llm
    ToolRegistry([made]).find("greet").parse({"name": "x"})
    assert "parse" in made.__dict__
    assert (await executor.execute(ToolCall("greet", {"name": "Bob"}), Scope())).success


async def test_a_spec_of_its_own_goes_along():
    made = Greet()
    made.spec = made.spec.changed(name="welcome", timeout=5)
    assert " as welcome " in (await call(made, name="Ann")).for_llm


async def test_a_raw_schema_with_a_function():
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    made = Tool.from_schema("count", "Count.", schema, count, isolate=True)
    result = await call(made, text="four")
    assert result.for_llm.startswith("4 from ")
    assert HERE not in result.for_llm
    refused = await call(Tool.from_schema("count", "Count.", schema, lambda text: text, isolate=True), text="four")
    assert refused.failure is not None
    assert refused.failure.kind == "config_error"
    assert "defined inside a function" in refused.for_llm
    assert "module level" in refused.for_llm


async def test_methods_are_sent_with_their_object():
    times, plus = sorted(toolset(Things(3), isolate=True), key=lambda made: made.spec.name, reverse=True)
    assert (await call(times, number=5)).for_llm == "15"
    assert (await call(plus, number=5)).for_llm == "8"


async def test_what_cannot_be_sent_is_refused_with_words():
    for made in (Locked(), toolset(LockedThings(), isolate=True)[1]):
        refused = await call(made, **({} if isinstance(made, Locked) else {"number": 1}))
        assert refused.failure is not None
        assert refused.failure.kind == "config_error"
        assert "cannot pickle" in refused.for_llm
        assert "remove isolate=True" in refused.for_llm


async def test_a_tool_that_is_made_late():
    made = Tool.define("late", lambda: Greet(), isolate=True)
    assert (await call(made, name="Ann")).for_llm.startswith("hello Ann")


async def test_defaults_need_not_be_valid_arguments():
    assert (await call(sloppy)).for_llm == "None"
    assert (await call(sloppy, number=3)).for_llm == "3"


async def test_internals_are_withheld_and_logged_here(caplog):
    result = await call(internals)
    assert "hunter2" not in str(result.to_dict())
    assert "failed unexpectedly" in result.for_llm
    with caplog.at_level(logging.ERROR):
        await call(internals)
    assert "ValueError: the password is hunter2" in caplog.text


@pytest.mark.parametrize(
    ("how", "words", "kind", "passing"),
    [
        ("passing", "busy\nLater.", "system_error", True),
        ("returned", "busy", "system_error", True),
        ("timeout", "TimeoutError: too slow", "timeout", False),
        ("exit", "SystemExit: 3", "system_error", False),
        ("other", "KeyError: 'unexpected'", "system_error", False),
    ],
)
async def test_failures_are_what_they_would_be_here(how, words, kind, passing):
    result = await call(breaks, how=how)
    assert result.failure is not None
    assert result.for_llm.endswith(words)
    assert (result.failure.kind, result.failure.passing) == (kind, passing)
    if how != "returned":
        assert result.for_llm.startswith(f'breaks(how="{how}"): ')


async def test_a_tool_asks_the_gate_of_its_parent():
    asked: list = []

    async def approve(request):
        asked.append((request.permission, request.target))
        return Answer.ONCE if request.target == "a" else Answer.no("not b")

    executor = standard_executor([careful], policy=rules("deny write c"), approve=approve)
    allowed, refused, denied = [
        await executor.execute(ToolCall("careful", {"path": path}), Scope()) for path in ("a", "b", "c")
    ]
    assert allowed.for_llm == "may write a"
    assert asked == [("write", "a"), ("write", "b")]
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert "not b" in refused.for_llm
    assert "denied by" in denied.for_llm


async def test_background_work_is_refused_with_words():
    result = await call(later)
    assert "not available in a tool with isolate=True" in result.for_llm


async def test_the_standard_input_is_empty_and_left_tasks_do_not_hold_up_the_result():
    assert (await call(reads_input)).for_llm == "read ''"
    assert (await call(leaves_work)).for_llm == "done"


MAIN = """
import asyncio, sys
from forge import Scope, Tool, ToolCall, ToolRegistry, tool
from forge.pipeline import ToolExecutor
from forge.pipeline.limit_calls import Isolate

class Shout(Tool, isolate=True):
    "Shout."
    def __init__(self, mark): self.mark = mark
    def run(self, text: str) -> str: return text.upper() + self.mark

@tool(isolate=True)
def whisper(text: str) -> str:
    "Whisper."
    return text.lower()

if __name__ == "__main__":
    executor = ToolExecutor(ToolRegistry([Shout("!"), whisper]), [Isolate()])
    for name in ("shout", "whisper"):
        print(asyncio.run(executor.execute(ToolCall(name, {"text": "Hi"}), Scope())).for_llm)
"""


@pytest.mark.parametrize("how", [["shouting.py"], ["-m", "shouting"]])
def test_tools_of_the_main_program_work(tmp_path, how):
    (tmp_path / "shouting.py").write_text(MAIN)
    paths = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    found = subprocess.run(
        [sys.executable, *how], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert found.stdout == "HI!\nhi\n", found.stderr


async def test_a_module_that_was_loaded_from_a_file_is_loaded_from_it_again(tmp_path):
    file = tmp_path / "own tools.py"
    file.write_text(MAIN)
    spec = spec_from_file_location("tools_loaded_from_a_file", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        assert (await call(module.Shout("?"), text="Hi")).for_llm == "HI?"
        assert (await call(module.whisper, text="Hi")).for_llm == "hi"
    finally:
        del sys.modules[spec.name]


def test_a_file_of_the_project_does_not_pass_for_a_module(tmp_path):
    (tmp_path / "forge.py").write_text("open('taken', 'w')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "shouting.py").write_text(MAIN)
    found = subprocess.run(
        [sys.executable, "bin/shouting.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert found.stdout == "HI!\nhi\n", found.stderr
    assert not (tmp_path / "taken").exists()
