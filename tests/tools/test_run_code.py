"""Scripts that call tools: the same gate for every call, no other way out, and bounds on everything."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from forge import Agent, Limits, Scope, ToolCall, ToolContext, rules, tool
from forge.core.errors import ToolError, Waiting
from forge.core.events import Event, ToolFinished, ToolStarted
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.models.scripted import Scripted
from forge.permissions.questions import Answer, PermissionRequest
from forge.tools import register_all, tool_group
from forge.tools.run_code import RunCode, enter_code_mode
from forge.tools.run_code.interpreter import ScriptLimits
from forge.tools.run_code.journal import Journal
from forge.tools.shared.signatures import write_signature

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@tool(permissions={"read"})
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    made.append((a, b))
    return a + b


@tool(permissions={"read"})
async def find(words: list[str], kind: Literal["file", "folder"] = "file") -> list[dict[str, Any]]:
    """Find something."""
    return [{"name": word, "kind": kind} for word in words]


@tool(permissions={"write"}, target="path")
async def put(path: str, text: str = "") -> str:
    """Put a text somewhere."""
    made.append(path)
    return f"wrote {path}"


@tool(permissions={"read"})
async def keep(value: Any) -> int:
    """Keep a value."""
    made.append(None)
    return len(value) if isinstance(value, str | list) else 0


def agent_of(*tools: Any, limits: ScriptLimits | None = None, **settings: Any) -> Agent:
    registry = ToolRegistry(tools or (add, find, put))
    registry.add(RunCode(registry, limits))
    return Agent(None, tools=registry, **settings)


def run(code: str, agent: Agent | None = None) -> ToolResult:
    return asyncio.run((agent or agent_of()).call("run_code", {"code": code}))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("await add(1, 2)", 3),
        ("await add(a=1)", 3),
        ("sum([await add(n) for n in range(5)])", 20),
        ("import asyncio\nawait asyncio.gather(*[add(n, 1) for n in range(10)])", list(range(1, 11))),
        ("[one['name'] for one in await find(['x', 'y'], kind='folder')]", ["x", "y"]),
        ("import json\njson.loads('{\"ü\": [1, null]}')", {"ü": [1, None]}),
    ],
)
def test_a_script_returns_the_value_of_its_last_expression(code: str, value: object) -> None:
    result = run(code)
    assert result.success, result.for_llm
    assert result.data["value"] == value
    assert json.loads(result.for_llm) == value


def test_what_it_prints_comes_before_its_value() -> None:
    assert run("print('one')\nprint('two')\nawait add(1)").for_llm == "one\ntwo\n3"


def test_a_script_without_a_value_says_so() -> None:
    assert "printed nothing" in run("x = 1").for_llm


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("await add('x')", "Expected `int`"),
        ("await add(1, c=3)", "does not match any known parameter"),
        ("await nobody()", "`nobody` used when not defined"),
        ("1 +", "Expected an expression"),
        ("(await add(1)).upper()", "upper"),
    ],
)
def test_type_errors_are_told_before_anything_runs(code: str, words: str) -> None:
    result = run(f"await add(7)\n{code}")
    assert not result.success
    assert words in result.for_llm
    assert made == []


def test_a_denied_call_raises_in_the_script_with_the_reason() -> None:
    code = "try:\n    await put('a.txt')\nexcept PermissionError as error:\n    said = str(error)\nsaid"
    agent = agent_of(policy=rules("allow read", "deny write a.txt"))
    result = run(code, agent)
    assert "deny write a.txt" in result.for_llm
    assert made == []
    assert run("await put('b.txt')", agent_of(policy=rules("allow read", "allow write b.txt"))).for_llm == "wrote b.txt"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\nawait put('a.txt')", "    await put('a.txt')"),
        ("import asyncio\nawait asyncio.gather(put('a.txt'))", "    await asyncio.gather(put('a.txt'))"),
    ],
)
def test_a_traceback_has_the_lines_of_the_script_and_no_others(code: str, line: str) -> None:
    said = run(code, agent_of(policy=rules("allow read", "deny write"))).for_llm
    assert f'  File "script.py", line 2, in <module>\n{line}\n' in said
    assert said.count("File ") == 1


@pytest.mark.parametrize(
    ("code", "value", "calls"),
    [
        ("async def add(a: int) -> int:\n    return 5\nawait add(1)", 5, []),
        ("every = [add]\nawait every[0](4)", 6, [(4, 2)]),
        ("a = add(1)\nb = add(5)\n[await b, await a]", [7, 3], [(5, 2), (1, 2)]),
        ("await add(**{'a': 3})", 5, [(3, 2)]),
        ("async def both() -> int:\n    return await add(1) + await add(2)\nawait both()", 7, [(1, 2), (2, 2)]),
    ],
)
def test_functions_are_values_as_in_python(code: str, value: object, calls: list[object]) -> None:
    assert run(code).data["value"] == value
    assert made == calls


def test_gathered_calls_run_beside_each_other() -> None:
    inside = asyncio.Event()

    @tool(permissions={"read"})
    async def meet(name: str) -> str:
        """Wait until two calls are here."""
        made.append(name)
        if len(made) == 2:
            inside.set()
        await asyncio.wait_for(inside.wait(), 30)
        return name

    async def main() -> ToolResult:
        code = "import asyncio\nawait asyncio.gather(meet('a'), meet('b'))"
        return await agent_of(meet).call("run_code", {"code": code})

    assert asyncio.run(main()).data["value"] == ["a", "b"]


def test_a_tool_that_runs_alone_does_so_in_a_script() -> None:
    inside: list[str] = []

    @tool(permissions={"read"}, parallel=False)
    async def change(name: str) -> list[str]:
        """Change something; nothing else may run meanwhile."""
        inside.append(name)
        await asyncio.sleep(0)
        found = list(inside)
        inside.remove(name)
        return found

    code = "import asyncio\nawait asyncio.gather(change('a'), change('b'), change('c'))"
    assert run(code, agent_of(change)).data["value"] == [["a"], ["b"], ["c"]]


def test_long_arguments_of_many_calls_are_not_kept() -> None:
    journal = Journal()
    for number in range(1, 4):
        journal.keep(number, "put", {"path": "a", "text": "x" * 1_000_000 + str(number)}, ToolResult.text("done"))
        journal.keep(10 + number, "put", {"path": ["a"], "text": "x" * 1_000_000}, ToolResult.text("done"))
    assert sum(len(text) for _, text, _ in journal.written()) < 100_000
    assert journal.find(3, "put", {"path": "a", "text": "x" * 1_000_000 + "3"}) is not None
    with pytest.raises(ToolError, match="was another one before"):
        journal.find(3, "put", {"path": "a", "text": "x" * 1_000_000 + "4"})


def test_every_inner_call_is_asked_with_its_own_arguments() -> None:
    asked: list[Any] = []

    async def approve(request: PermissionRequest) -> Answer:
        asked.append((request.spec.name, dict(request.arguments), request.call.id))
        return Answer("once") if request.arguments["path"] != "b" else Answer.no("not b")

    code = """
said = []
for name in "abc":
    try:
        said.append(await put(name))
    except PermissionError:
        said.append("no")
said"""
    result = run(code, agent_of(approve=approve))
    assert result.data["value"] == ["wrote a", "no", "wrote c"]
    assert [arguments["path"] for _, arguments, _ in asked] == ["a", "b", "c"]
    assert len({call for *_, call in asked}) == 3


def test_events_of_inner_calls_name_their_parent() -> None:
    agent, seen = agent_of(), list[Event]()
    agent.activity.subscribe(seen.append)
    run("await add(1)\nawait add(2)", agent)
    started = [event for event in seen if isinstance(event, ToolStarted)]
    outer = started[0].call
    assert [event.to_dict()["call"].get("parent") for event in started] == [None, outer.id, outer.id]
    assert [event.call.id for event in started[1:]] == [f"{outer.id}.1", f"{outer.id}.2"]
    assert len([event for event in seen if isinstance(event, ToolFinished)]) == 3


def test_invalid_arguments_of_an_inner_call_raise_value_error() -> None:
    @tool(permissions={"read"})
    async def pick(number: int) -> int:
        """Pick a number."""
        return number

    code = """
import json
try:
    await pick(json.loads('"x"'))
except ValueError as error:
    said = str(error)
said"""
    assert "number" in run(code, agent_of(pick)).for_llm


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.listdir('/')",
        "import os\nos.environ['HOME']",
        "import subprocess",
        "import socket",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "__import__('os').system('id')",
        "().__class__.__base__.__subclasses__()",
        "eval('1')",
    ],
)
def test_a_script_reaches_nothing_but_its_tools(code: str) -> None:
    result = run(code)
    assert not result.success or result.data.get("value") in (None, [], 1), result.for_llm
    assert "root:" not in result.for_llm


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True: pass", "limit"),
        ("x = 'a' * 10**9", "MemoryError"),
        ("x = []\nwhile True: x.append('a' * 1000)", "ended by its limits"),
        ("def f():\n    return f()\nf()", "RecursionError"),
    ],
)
def test_time_memory_and_depth_are_limited(code: str, words: str) -> None:
    result = run(code, agent_of(limits=ScriptLimits(seconds=0.3, memory=8 * 1024 * 1024)))
    assert not result.success
    assert words in result.for_llm


DOUBLED = "x = 'a' * 1000\n" + "x = [x, x]\n" * 30  # a terabyte, if it is written out
NESTED = "k = 'a'\nfor n in range(60):\n    k = (k, k)\n"  # its hash takes years


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (f"{DOUBLED}x", "more than 5,000,000 bytes"),
        (f"{DOUBLED}class Box:\n    def __init__(self):\n        self.inside = x\nBox()", "more than 5,000,000 bytes"),
        (f"{DOUBLED}repr(x)", "ended by its limits"),
        (f"{DOUBLED}print(x)", "ended by its limits"),
        (f"{DOUBLED}raise ValueError(str(x))", "ended by its limits"),
        (f"{DOUBLED}await keep(x)", "ended by its limits"),
        (f"import asyncio\n{DOUBLED}await asyncio.gather(keep(1), keep(x))", "ended by its limits"),
        (f"{NESTED}{{k: 1}}", "cannot be returned|ended by its limits"),
        (f"{NESTED}_call_keep({{k: 1}})  # type: ignore", "'_call_keep' is not defined"),
        (f"{NESTED}keep2({{k: 1}})  # type: ignore", "'keep2' is not defined"),
        (f"{NESTED}await keep({{k: 1}})", "ended by its limits"),
        ("x = [[]] * 150_000\n[x, x]", "more than 200,000 values"),
        ("await keep('a' * 6_000_000)", "what keep is given has more than 5000000 bytes"),
        ("await keep([0] * 250_000)", "what keep is given has more than 200,000 values"),
        ("import asyncio\nawait asyncio.gather(*[keep('a' * 1_000_000) for n in range(9)])", "make fewer at once"),
        ("def _forge_result(text: str) -> None: ...\n5", "another meaning"),
    ],
)
def test_what_a_script_hands_over_is_written_inside_the_interpreter_and_bounded(code: str, words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run(code, agent_of(keep, limits=ScriptLimits(seconds=3)))
    assert not result.success
    assert re.search(words, result.for_llm), result.for_llm
    assert made == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kB


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = ['a']\nfor n in range(10):\n    x = [*x, *x]\nlen(x), x[-1]", [1024, "a"]),
        ("row = {'a': 1}\n[row, row]", [{"a": 1}, {"a": 1}]),
        ("x = [1]\nx.append(x)\nx", [1, "[the list above]"]),
        ("k = ('a', 'b')\n{k: {1, 1}}", {"('a', 'b')": [1]}),
        ("(n * n for n in range(4))", [0, 1, 4, 9]),
        ("[2 ** 70, 10 ** 4200 == 10 ** 4200, float('inf'), None]", [2**70, True, "Infinity", None]),
        ("2 ** 20_000 - 1", "0x" + "f" * 5_000),
        ("[b'ab', 'ü']", ["YWI=", "ü"]),
        ("import datetime\ndatetime.datetime(2026, 1, 2, 3, 4)", "2026-01-02T03:04:00"),
        ("class Box:\n    def __init__(self):\n        self.inside = [1]\n[Box()]", [{"inside": [1]}]),
        ("class Box:\n    def __str__(self) -> str:\n        return 'a box'\nBox()", "a box"),
        ("class Box:\n    def __str__(self) -> str:\n        return str(1 / 0)\nBox()", "Box that cannot be shown"),
        ("x = 1; (x,\n 2)  # two lines", [1, 2]),
        ("'ü' * 400_000", "ü" * 400_000),
        ("await keep('a,b\\n' * 600_000)", 2_400_000),
        ("import asyncio\nawait asyncio.gather(*[keep('a' * 1_000_000) for n in range(4)])", [1_000_000] * 4),
    ],
)
def test_usual_and_odd_values_of_a_script_are_returned(code: str, value: object) -> None:
    result = run(code, agent_of(keep))
    assert result.success, result.for_llm
    if isinstance(value, str) and len(value) < 100:
        assert str(result.data["value"]).startswith(value)
    else:
        assert result.data["value"] == value


def test_a_name_that_a_script_takes_for_itself_changes_nothing_for_its_value() -> None:
    assert run("len = 3\nisinstance = 4\nstr = 5\n[{len}, {isinstance}]").data["value"] == [[3], [4]]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1;  1 / 0", "    x = 1;  1 / 0\n            ~~~~~\n"),
        ("'ü'; 1 / 0; (1,\n2)", "    'ü'; 1 / 0; (1,\n         ~~~~~\n"),
        ("x = 0\n(1,\n 1 / x)", "     1 / x)\n".replace("     ", "    ", 1)),
    ],
)
def test_a_traceback_shows_the_last_expression_as_it_is_written(code: str, line: str) -> None:
    said = run(code).for_llm
    assert line in said
    assert "_forge" not in said


def test_a_type_error_in_the_last_expression_names_its_place() -> None:
    assert "script.py:1:8:" in run("x = 2; 1 + 'a'").for_llm
    assert "script.py:1:1: warning[unused-awaitable]" in run("add(1)").for_llm


def test_the_number_of_calls_is_limited() -> None:
    agent = agent_of(limits=ScriptLimits(calls=3))
    result = run("for n in range(10):\n    await add(n)", agent)
    assert "a script may make 3 calls" in result.for_llm
    assert len(made) == 3
    made.clear()
    assert run("for n in range(3):\n    await add(n)", agent).success


def test_inner_calls_count_for_the_limit_of_the_run() -> None:
    registry = ToolRegistry([add])
    registry.add(RunCode(registry))
    code = "for n in range(10):\n    await add(n)"
    model = Scripted(ToolCall("run_code", {"code": code}), "done")
    result = Agent(model, tools=registry, limits=Limits(calls=4)).run_sync("go")
    assert len(made) == 3  # and the script itself
    assert result.calls == 4


def test_a_long_result_reaches_the_script_whole_and_the_model_short() -> None:
    @tool(permissions={"read"})
    async def long() -> str:
        """Return a long text."""
        return "x" * 1_000_000

    assert run("len(await long())", agent_of(long)).data["value"] == 1_000_000
    assert len(run("await long()", agent_of(long)).for_llm) < 60_000


def test_the_same_read_twice_has_a_value_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    registry = ToolRegistry(tool_group("read"))
    registry.add(RunCode(registry))
    agent = Agent(None, tools=registry, scope=Scope(workspace=tmp_path))
    result = run("[await file_read('a.txt') for _ in range(5)]", agent)
    assert all("hello" in one for one in result.data["value"]), result.for_llm
    assert len(result.data["value"]) == 5


def test_nothing_is_called_that_was_not_awaited() -> None:
    run("x = put('a')\n1", agent_of(policy=rules("allow write")))
    assert made == []


def test_a_script_is_the_same_each_time_it_goes_on() -> None:
    """In a plain run, too: a tool may have to wait."""
    ready = False

    @tool(permissions={"read"})
    async def mail() -> str:
        """Wait for the mail."""
        if not ready:
            raise Waiting("it waits for the mail", kind="mail")
        return "mail"

    registry = ToolRegistry([add, mail])
    registry.add(RunCode(registry))
    agent = Agent(None, tools=registry)
    code = "import random, time\nbefore = [await add(1), random.random(), time.time()]\nawait mail()\nbefore"
    scope = Scope(session_id="s", message_id="m")

    async def go() -> list[ToolResult]:
        nonlocal ready
        call = ToolCall("run_code", {"code": code}, "c")
        first = await agent.executor.execute(call, scope)
        ready = True
        return [first, await agent.executor.execute(call, scope)]

    first, second = asyncio.run(go())
    assert first.failure is not None
    assert isinstance(first.failure.cause, Waiting)
    assert second.success, second.for_llm
    assert made == [(1, 2)]


def test_a_cancelled_script_ends_and_another_one_runs() -> None:
    @tool(permissions={"read"})
    async def hang() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    agent = agent_of(hang, add)

    async def go() -> ToolResult:
        begun = asyncio.ensure_future(agent.call("run_code", {"code": "await hang()"}))
        for _ in range(20):
            await asyncio.sleep(0)
        begun.cancel()
        await asyncio.wait({begun})
        return await agent.call("run_code", {"code": "await add(1)"})

    assert asyncio.run(go()).for_llm == "3"


def test_in_code_mode_few_definitions_are_sent_and_all_tools_can_be_called() -> None:
    registry = ToolRegistry([add, find, put])
    enter_code_mode(registry)
    agent = Agent(None, tools=registry)
    sent = {spec.name for spec in registry.specs()}
    assert sent == {"run_code", "tool_search", "task_completion", "ask_question", "converse"}
    assert run("await add(1)", agent).for_llm == "3"
    found = asyncio.run(agent.call("tool_search", {"query": "put a text"}))
    assert "async def put(path: str, text: str = '') -> str: ..." in found.for_llm
    assert {spec.name for spec in registry.specs()} == sent


def test_signatures_take_fewer_characters_than_definitions() -> None:
    registry = ToolRegistry()
    register_all(registry)
    signatures = "\n".join(write_signature(one.spec) for one in registry.values())
    assert len(signatures) < len(json.dumps(registry.definitions("openai"))) / 2


def test_a_tool_can_call_another_through_the_same_gate() -> None:
    @tool(permissions={"read"})
    async def double(ctx: ToolContext, number: int) -> str:
        """Double a number, and write it down."""
        doubled = await ctx.run_tool("add", {"a": number, "b": number})
        written = await ctx.run_tool("put", {"path": "a.txt"})
        return f"{doubled.for_llm}, {written.success}"

    call: Callable[[Agent], ToolResult] = lambda agent: asyncio.run(agent.call("double", {"number": 4}))  # noqa: E731
    assert call(agent_of(double, add, put)).for_llm == "8, False"
    assert call(agent_of(double, add, put, policy=rules("allow read", "allow write"))).for_llm == "8, True"
    assert made[-1] == "a.txt"


@tool(permissions={"read"})
async def read_nothing() -> str:
    """Read a text that is empty."""
    return ""


def test_a_script_gets_an_empty_text_as_it_is() -> None:
    assert run("[await read_nothing()]", agent_of(read_nothing)).data["value"] == [""]
