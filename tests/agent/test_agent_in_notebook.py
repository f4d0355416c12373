"""In a notebook: a real kernel, where an event loop runs always."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from forge import Agent, RunResult, Scripted
from forge.core.result import Failure

nbformat = pytest.importorskip("nbformat", reason="the packages of notebooks are part of the extra `dev`")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

BEGIN = """
import asyncio
from forge import Agent, Message, Scripted, ToolCall, tool

@tool
async def wait() -> str:
    "Wait for ever."
    print("begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("ended", flush=True)
    return ""
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Jupyter write into the directory of the test alone."""
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))


def notebook(*cells: str) -> Any:
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in (BEGIN, *cells)]
    return made


def run(tmp_path: Path, *cells: str) -> list[Any]:
    """Runs the cells. Returns what each shows: the value of its last line."""
    made = notebook(*cells)
    nbclient.NotebookClient(
        made, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    return [next((one.data for one in cell.outputs if "data" in one), None) for cell in made.cells[1:]]


def test_every_way_to_run_works_and_results_are_shown(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        "await Agent(Scripted('One.')).run('Hi')",
        "Agent(Scripted('Two.')).run_sync('Hi')",
        "run = Agent(Scripted('Three.')).start('Hi')",
        "[type(event).__name__ async for event in run.events()], (await run).text",
        "Agent(Scripted('<script>alert(1)</script>\\n$\\\\\\\\href{javascript:x}{y}$ ![](http://evil)')).run_sync('Hi')",
    )
    assert "<pre" in shown[0]["text/html"]
    assert ">One.</pre>" in shown[0]["text/html"]
    assert ">Two.</pre>" in shown[1]["text/html"]
    assert "answer: 1 turns, 0 calls" in shown[1]["text/html"]
    assert shown[1]["text/plain"] == "RunResult('Two.', reason='answer', turns=1, calls=0)"
    assert "'Three.'" in shown[3]["text/plain"]
    assert "<script" not in shown[4]["text/html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown[4]["text/html"]
    assert "text/markdown" not in shown[4]


async def test_interrupting_the_kernel_stops_the_run(tmp_path: Path) -> None:
    client = nbclient.NotebookClient(notebook(), timeout=120, kernel_name="python3")
    async with client.async_setup_kernel(cwd=str(tmp_path)):
        await client.async_execute_cell(client.nb.cells[0], 0)
        kernel = client.kc
        asked = kernel.execute("Agent(Scripted(ToolCall('wait'), 'x'), tools=[wait]).run_sync('Go')")
        said, error = "", ""
        while "ended" not in said or not error:
            message = await asyncio.wait_for(kernel.get_iopub_msg(), 120)
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "error":
                error = message["content"]["ename"]
            if message["msg_type"] == "stream" and "ended" not in said:
                said += message["content"]["text"]
                if "begun" in said and "ended" not in said:
                    await client.km.interrupt_kernel()
        assert error == "KeyboardInterrupt"


class Weather(BaseModel):
    city: str


@pytest.mark.parametrize(
    ("result", "seen", "hidden"),
    [
        (RunResult(text="a\x1b[2J<b>", reason="answer", turns=1, messages=[]), ["a⟨U+001B⟩[2J&lt;b&gt;"], ["<b>"]),
        (
            RunResult(text="", reason="error", turns=1, messages=[], error=Failure("<img src=x>")),
            ["error: 1 turns", "&lt;img src=x&gt;"],
            ["<img"],
        ),
        (
            RunResult(
                text="x",
                reason="answer",
                turns=1,
                messages=[],
                output_or_none=Weather(city='"><i>'),
                has_output=True,
                cost=0.5,
            ),
            ["&quot;city&quot;: &quot;\\&quot;&gt;&lt;i&gt;&quot;", "0.5000 USD"],
            ["<i>"],
        ),
        (
            RunResult(text="x", reason="answer", turns=1, messages=[], output_or_none=object, has_output=True),
            ["&lt;class &#x27;object&#x27;&gt;"],
            ["<class"],
        ),
    ],
)
def test_everything_that_is_shown_is_escaped(result: RunResult, seen: list[str], hidden: list[str]) -> None:
    shown = result._repr_html_()
    for one in seen:
        assert one in shown
    for one in hidden:
        assert one not in shown


async def test_in_another_loop_it_is_refused_and_outside_it_works() -> None:
    agent = Agent(Scripted("One.", "Two."))
    with pytest.raises(RuntimeError, match=r"await agent\.run\(prompt\)"):
        agent.run_sync("Hi")
    assert (await asyncio.to_thread(agent.run_sync, "Hi")).text == "One."
