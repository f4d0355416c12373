"""Scripts that run: what they are given, what comes back, and how they end."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.events import Event, ToolOutput
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry, mount_source
from forge.core.result import ToolResult
from forge.permissions.policy import rules
from forge.permissions.questions import Answer
from forge.pipeline import standard_executor
from forge.process.sandbox import choose_tier
from forge.scripts.folder import scripts
from tests.patience import longer
from tests.process.planting import found, mark, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Project:
    """`project.write("body")`, then `project.call(...)`: the tool is called `x`, in tools/x.py."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tools").mkdir()

    def write(self, body: str, *inputs: str, path: str = "tools/x.py") -> None:
        header = "\n".join(["Tool: x", "Description: d.", "Input:", *(f"  {line}" for line in inputs)])
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(f'"""\n{header}\n"""\nimport json, os, sys\n{body}\n')

    def executor(self, *policy: str, approve: Any = None, activity: ActivityStream | None = None, **settings: Any):
        more = {"approve": approve} if approve else {}
        tools = scripts(root=self.root, **settings).load()
        return standard_executor(tools, policy=rules(*(policy or ("allow execute",))), activity=activity, **more)

    async def send(self, executor: ToolExecutor, **arguments: Any) -> ToolResult:
        return await executor.execute(ToolCall("x", arguments), Scope(workspace=self.root))

    def call(self, *, settings: dict[str, Any] | None = None, **arguments: Any) -> ToolResult:
        return asyncio.run(self.send(self.executor(**(settings or {"sandbox": "off"})), **arguments))


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_arguments_are_json_on_stdin_and_stdout_is_the_result(project):
    project.write("print(json.dumps({'got': json.load(sys.stdin)}))", "q (str): Q.", "n (int) = 3: N.")
    result = project.call(q="Grüße \U0001f600")
    assert result.success, result.for_llm
    assert result.data["result"] == {"got": {"q": "Grüße \U0001f600", "n": 3}}
    assert json.loads(result.for_llm) == result.data["result"]
    assert result.data.items() >= {"exit_code": 0, "timed_out": False, "sandbox": "none"}.items()


def test_a_whole_number_is_one_however_it_was_written(project):
    project.write("print(repr(json.load(sys.stdin)))", "n (int): N.", "many (list[int]): M.", "x (float): X.")
    result = project.call(n=3.0, many=[1.0, 2], x=4.0)
    assert result.for_llm == "{'n': 3, 'many': [1, 2], 'x': 4.0}"
    assert "expected integer" in project.call(n=3.5, many=[], x=1.0).for_llm


def test_arguments_are_checked_before_anything_runs(project):
    project.write("open('ran', 'w')", "n (int): N.")
    assert "n: expected integer" in project.call(n="many").for_llm
    assert not (project.root / "ran").exists()
    assert project.call(n="3").success  # mended
    assert (project.root / "ran").exists()


@pytest.mark.parametrize(
    ("body", "shown", "structure"),
    [
        ("print('plain words')", "plain words", None),
        ("print('[1, 2]')", "[1, 2]", [1, 2]),
        ("print('{broken')", "{broken", None),
        ("pass", "(no output)", None),
        ("print('7')", "7", None),
        ("sys.stdout.buffer.write(b'a\\0\\xff')", "a␀�", None),
        ("print('[' * 100_000)", None, None),
    ],
)
def test_any_output_is_a_result(project, body, shown, structure):
    project.write(body)
    result = project.call()
    assert result.success, result.for_llm
    assert shown is None or result.for_llm == shown
    assert result.data.get("result") == structure


def test_long_json_is_spread_over_lines(project):
    project.write("print(json.dumps(list(range(2000))))")
    assert max(map(len, project.call().for_llm.splitlines())) < 2_000


def test_much_output_is_cut_and_says_so(project):
    project.write("print('x' * 5_000_000)")
    result = project.call(settings={"sandbox": "off", "max_output_bytes": 10_000})
    assert result.data["truncated"] is True
    assert "of 1 lines shown, 5000001 bytes in all; the whole text is in" in result.for_llm
    assert Path(result.data["spilled"]).read_text() == "x" * 5_000_000 + "\n"


def test_a_failure_says_the_end_of_stderr(project):
    project.write("print('half'); print('the reason', file=sys.stderr); sys.exit(3)")
    result = project.call()
    assert result.failure.kind == "user_error"
    assert result.failure.message == "tools/x.py failed with exit code 3: the reason"
    assert "Its output until then:\nhalf" in result.for_llm
    assert result.data["exit_code"] == 3


def test_an_exception_is_such_a_failure(project):
    project.write("raise ValueError('broken')")
    assert "ValueError: broken" in project.call().failure.message
    project.write("os.kill(os.getpid(), 9)")
    assert project.call().failure.message == "tools/x.py was ended by SIGKILL, and wrote nothing to stderr"


async def test_what_it_says_on_stderr_is_shown_while_it_runs(project):
    project.write("print('working', file=sys.stderr, flush=True)\nwhile not os.path.exists('go'): pass\nprint('done')")
    seen: list[Event] = []

    def go(event: Event) -> None:
        seen.append(event)
        (project.root / "go").touch()

    activity = ActivityStream()
    activity.subscribe(go, ToolOutput)
    result = await project.send(project.executor(sandbox="off", activity=activity))
    assert result.for_llm == "done"
    assert seen[0].text == "working\n"  # type: ignore[attr-defined]


def test_it_runs_in_the_workspace_with_little_of_the_environment(project, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "t")
    monkeypatch.setenv("B_TOKEN", "t")
    project.write("print(json.dumps({'cwd': os.getcwd(), 'env': dict(os.environ)}))")
    found = project.call(settings={"sandbox": "off", "env_passthrough": ["B_TOKEN"]}).data["result"]
    assert found["cwd"] == str(project.root)
    assert "A_TOKEN" not in found["env"]
    assert found["env"]["B_TOKEN"] == "t"


def test_time_is_limited_and_all_that_it_started_ends(project):
    number = mark()
    project.write(
        f"import subprocess; subprocess.Popen(['sleep', '{number}'], start_new_session=True)\n"
        "print('begun', flush=True)\nimport time; time.sleep(60)"
    )
    for seconds in longer(1.0):
        result = project.call(settings={"sandbox": "off", "timeout": seconds})
        if "begun" in result.for_llm:
            break
    assert result.failure.kind == "timeout"
    assert f"timed out after {seconds:g} s" in result.for_llm
    assert "begun" in result.for_llm
    assert result.data["timed_out"] is True
    assert until(lambda: not found(number))


def test_a_script_that_ignores_the_request_to_end_is_killed_and_its_output_kept(project):
    project.write(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('begun', flush=True)\ntime.sleep(60)"
    )
    for seconds in longer(1.0):
        result = project.call(settings={"sandbox": "off", "timeout": seconds})
        if "begun" in result.for_llm:
            break
    assert result.failure.kind == "timeout"
    assert f"timed out after {seconds:g} s and was killed" in result.for_llm
    assert "begun" in result.for_llm


async def test_a_cancelled_call_ends_the_program(project):
    number = mark()
    project.write(f"os.execvp('sleep', ['sleep', '{number}'])")
    task = asyncio.create_task(project.send(project.executor(sandbox="off")))
    assert await asyncio.to_thread(until, lambda: found(number))
    task.cancel()
    await asyncio.wait([task])
    assert await asyncio.to_thread(until, lambda: not found(number))


async def test_nothing_runs_without_permission(project):
    project.write("open('ran', 'w')")
    refused = await project.send(project.executor("deny execute tools/*"))
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert (await project.send(project.executor("ask execute"))).failure.kind == "permission_error"
    assert not (project.root / "ran").exists()
    assert (await project.send(project.executor("allow execute tools/x.py", sandbox="off"))).success
    assert (project.root / "ran").exists()


async def test_a_changed_file_is_not_run_but_loaded_again(project):
    project.write("print('old')")
    registry = ToolRegistry()
    async with mount_source(registry, scripts(root=project.root, watch=False, sandbox="off")):
        executor = standard_executor(registry, policy=rules("allow execute"))
        assert (await project.send(executor)).for_llm == "old"
        project.write("print('new')")
        result = await project.send(executor)
        assert result.failure is not None
        assert "tools/x.py has changed since it was loaded" in result.failure.message
        async with asyncio.timeout(60):
            while not registry["x"].is_changed:  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert (await project.send(executor)).for_llm == "new"
        (project.root / "tools/x.py").unlink()
        assert (await project.send(executor)).failure.kind == "not_found"


async def test_an_always_is_for_the_script_as_it_was(project):
    asked: list[str] = []

    async def always(request: Any) -> Answer:
        asked.append(request.target)
        return Answer.ALWAYS

    folder = scripts(root=project.root, sandbox="off")
    project.write("print(1)", "n (int): N.")
    registry = ToolRegistry(folder.load())
    executor = standard_executor(registry, policy=rules("ask execute"), approve=always)
    assert (await project.send(executor, n=1)).success
    assert (await project.send(executor, n=2)).success
    assert asked == ["tools/x.py"]
    project.write("print(2)", "n (int): N.")
    registry.add(*folder.load(), replace=True)
    assert (await project.send(executor, n=3)).success
    assert (await project.send(executor, n=4)).success
    assert len(asked) == 2
    assert asked[1].startswith("tools/x.py # changed: ")


async def test_a_deny_holds_for_a_changed_script_too(project):
    project.write("print(1)")
    folder = scripts(root=project.root, sandbox="off")
    folder.load()
    project.write("print(2)")
    (tool,) = folder.load()
    assert tool.is_changed
    for policy, allowed in ((["allow execute", "deny execute tools/x.py"], False), (["allow execute"], True)):
        executor = standard_executor([tool], policy=rules(*policy))
        assert (await project.send(executor)).success is allowed


def test_in_a_sandbox_it_sees_the_workspace_and_no_more(project, tmp_path_factory):
    if choose_tier("auto") == "none":
        pytest.skip("there is no sandbox here")
    secret = tmp_path_factory.mktemp("beside") / "secret"
    secret.write_text("s")
    project.write(f"open('made', 'w').write('m'); print(open('{secret}').read())")
    result = project.call(settings={"sandbox": "auto"})
    assert result.failure is not None
    assert (project.root / "made").read_text() == "m"
    assert f"in a sandbox ({result.data['sandbox']}) without network" in result.failure.suggestion
    assert project.call(settings={"sandbox": "off"}).for_llm == "s"


def test_a_script_outside_the_workspace_can_be_run(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    project.write("print('here')")
    executor = standard_executor(scripts(project.root / "tools").load(), policy=rules("allow execute"))
    result = asyncio.run(executor.execute(ToolCall("x", {}), Scope(workspace=elsewhere)))
    assert result.for_llm == "here", result.for_llm


def test_a_script_may_import_what_lies_beside_it(project):
    (project.root / "tools/_shared.py").write_text("VALUE = 5")
    project.write("from _shared import VALUE; print(VALUE)")
    assert project.call(settings={"sandbox": "auto"}).for_llm == "5"


def test_an_executable_runs_by_itself(project):
    path = project.root / "tools/say"
    path.write_text("#!/bin/sh\n# Tool: x\n# Description: Says it.\n# Input:\n#   a (str): A.\ncat\n")
    path.chmod(0o755)
    assert project.call(a="b").data["result"] == {"a": "b"}
    assert project.call(settings={"sandbox": "auto"}, a="b").data["result"] == {"a": "b"}


async def test_many_at_once_do_not_get_mixed_up(project):
    project.write("print(json.load(sys.stdin)['n'])", "n (int): N.")
    executor = project.executor(sandbox="off")
    results = await asyncio.gather(*(project.send(executor, n=n) for n in range(20)))
    assert [result.for_llm for result in results] == [str(n) for n in range(20)]


def test_a_script_reports_a_failure_as_a_function_does(project):
    project.write('print(json.dumps({"success": False, "error": "no such city", "suggestion": "Look.", "seen": 3}))')
    result = project.call()
    assert result.failure is not None
    assert (result.failure.message, result.failure.suggestion) == ("no such city", "Look.")
    assert result.for_llm.startswith("x(): no such city\nLook.\nIts output:\n{")
    assert result.data["result"]["seen"] == 3


@pytest.mark.parametrize("value", ['{"success": False}', '{"success": False, "error": ""}', '{"error": "text"}'])
def test_a_script_whose_value_only_resembles_a_failure_succeeds(project, value):
    project.write(f"print(json.dumps({value}))")
    assert project.call().success
