"""`DurableAgent`: what a program uses."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

import forge
from forge import (
    Agent,
    Answer,
    DurableAgent,
    Message,
    Permission,
    Retry,
    RunContext,
    Scope,
    Scripted,
    ToolCall,
    ToolContext,
    WorkerSettings,
    rules,
    tool,
)
from forge.agent import HookDecision, StartedRun, TurnContext
from forge.core.errors import ToolError
from forge.core.extras import install_command
from forge.core.messages import unanswered_calls
from forge.durable.engine.dbos_private import list_recorded_steps
from forge.events import EventsMissed, RunFinished, RunStarted, ToolFinished, TurnFinished
from forge.models import Anthropic, ModelRequest, ServerTool, StreamPart
from forge.permissions.policy import Rules
from forge.process.running.trial import find_trial
from forge.process.sandbox import Confinement
from forge.tools.bash import Bash
from forge.workspace.trial import find_places
from tests.durable.working import script
from tests.models.caching import CachingAnthropic
from tests.models.serving import serving


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay somebody what they are owed."""
    return f"paid {name}"


async def test_a_run_goes_to_its_end_like_any_other(database: str, tmp_path: Path) -> None:
    agent = Agent(script("hello back"), instructions="Be kind.")
    async with DurableAgent(agent, database, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("hello")
    assert (result.text, result.reason) == ("hello back", "answer")
    assert [message.role for message in result.messages] == ["system", "user", "assistant"]


async def test_new_messages_of_a_run_are_those_behind_its_history(sqlite: str, tmp_path: Path) -> None:
    def instruct(ctx: RunContext) -> str:
        return f"Help {ctx.scope.agent}."

    for instructions in ("Be kind.", instruct):
        agent = Agent(script("hello back", "bye back"), instructions=instructions)
        async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
            first = await durable.run("hello")
            assert [message.role for message in first.new_messages] == ["system", "user", "assistant"]
            for history in (first.messages, first.messages[1:]):
                second = await durable.run("bye", messages=history)
                assert [message.role for message in second.new_messages] == ["user", "assistant"]
                assert second.new_messages[0].text == "bye"


async def test_the_same_id_runs_once(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script("once"))
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        first = await durable.run("hello", run_id="mine")
        again = await durable.run("hello", run_id="mine")
        assert first.run_id == again.run_id == "mine"
        assert len(durable.runs.list()) == 1


async def test_a_run_that_waits_says_so_and_goes_on_when_answered(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "Ada"}, "p"), "done"), tools=[pay])
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("pay Ada")
        assert result.reason == "waiting"
        assert result.waits[0].kind == "approval"
        result = await durable.answer(result.run_id, Answer.ONCE)
        assert (result.text, result.reason) == ("done", "answer")


async def test_an_approval_is_for_the_tool_as_it_was_reshaped(sqlite: str, tmp_path: Path) -> None:
    @tool(permissions={"write"})
    def send(to: str, bank: str = "first", currency: str = "EUR") -> str:
        """Send money."""
        return f"sent to {to} by {bank} in {currency}"

    def make(bank: str) -> Agent[Any]:
        made = send.reshaped(name="transfer", rename={"to": "person"}, fixed={"bank": bank}, hide=["currency"])
        return Agent(script(ToolCall("transfer", {"person": "Ada"}, "t"), "done"), tools=[made])

    async with DurableAgent(make("second"), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        waiting = await durable.run("pay Ada")
        shown = {"person": "Ada", "bank": "second", "currency": "EUR"}
        assert [one.request["arguments"] for one in durable.runs.questions(waiting.run_id)] == [shown]
        with pytest.raises(ToolError, match="not valid for transfer"):
            await durable.answer(waiting.run_id, Answer("once", arguments={**shown, "bank": "third"}))
        result = await durable.answer(waiting.run_id, Answer("once", arguments={**shown, "person": "Bob"}))
        said = [message.text for message in result.messages if message.role == "tool"]
        assert said[0].startswith("sent to Bob by second in EUR")
    async with DurableAgent(make("second"), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        other = await durable.run("pay Ada again")
    async with DurableAgent(make("third"), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        again = await durable.answer(other.run_id, Answer.ONCE)
        assert again.reason == "waiting"  # the yes was for another bank


async def test_it_goes_on_in_another_program_the_next_day(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "Ada"}, "p"), "done"), tools=[pay])
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        waiting = await durable.run("pay Ada")
    with forge.Runs(sqlite) as runs:
        assert [question.tool for question in runs.questions()] == ["pay"]
        runs.answer(waiting.run_id, Answer.ONCE, by="Bob")
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.result(waiting.run_id)
        assert result.text == "done"


def trying(workspace: Path, line: str) -> Agent[Any]:
    """An agent whose first call runs as a trial. Skips the test where none is possible."""
    workspace.mkdir(exist_ok=True)
    found = find_trial(Confinement(workspace=workspace, sandbox="auto"), find_places([workspace]))
    if not found.how:
        pytest.skip(f"NOT TESTED: no trial is possible here: {found.problem}")
    return Agent(script(ToolCall("bash", {"command": line}, "b"), "done"), tools=[Bash()])


def results_of(result: Any) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


async def test_effects_wait_on_disk_and_an_answer_after_a_restart_applies_them(database: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    agent = trying(work, "echo ran >> new.txt; echo said")
    async with DurableAgent(agent, database, scope=Scope(workspace=work)) as durable:
        waiting = await durable.run("go")
        assert waiting.reason == "waiting"
        (question,) = durable.runs.questions(waiting.run_id)
        assert question.request["effects"]["files"] == [["create", "new.txt"]]
        assert not (work / "new.txt").exists()
    async with DurableAgent(trying(work, "echo ran >> new.txt; echo said"), database, scope=Scope(workspace=work)) as d:
        result = await d.answer(waiting.run_id, Answer.ONCE)
    assert result.text == "done"
    assert (work / "new.txt").read_text() == "ran\n"
    assert results_of(result)[0].startswith("said\n[applied: creates 1 file]")


async def test_effects_of_a_durable_run_can_be_discarded_or_applied_in_part(sqlite: str, tmp_path: Path) -> None:
    line = "echo 1 > a.txt; echo 2 > b.txt"
    for number, answer in enumerate((Answer.no("not now"), Answer.some(["b.txt"]))):
        work = tmp_path / str(number)
        async with DurableAgent(trying(work, line), sqlite, scope=Scope(workspace=work)) as durable:
            waiting = await durable.run("go")
            with pytest.raises(ToolError, match="is no effect of this call"):
                await durable.answer(waiting.run_id, Answer.some(["c.txt"]))
            result = await durable.answer(waiting.run_id, answer)
        assert ("the person discarded its effects" in results_of(result)[0]) is (answer.kind == "no")
        assert [path.name for path in work.glob("*.txt")] == ([] if answer.kind == "no" else ["b.txt"])


async def test_an_answer_is_not_used_for_another_trial_whose_layer_is_gone(sqlite: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    line = "cat input.txt > out.txt"
    agent = trying(work, line)
    (work / "input.txt").write_text("one")
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=work)) as durable:
        waiting = await durable.run("go")
        for place in find_places([work]):
            for facts in place.glob("*/layer.json"):
                if str(work) in facts.read_text():
                    for folder, inside, _ in os.walk(facts.parent):
                        for one in inside:  # overlayfs leaves one that only root can list
                            os.chmod(os.path.join(folder, one), 0o700)
                    shutil.rmtree(facts.parent)
        (work / "input.txt").write_text("two, which nobody saw")
        again = await durable.answer(waiting.run_id, Answer.ONCE)
        assert again.reason == "waiting"
        assert not (work / "out.txt").exists()
        (question,) = durable.runs.questions(waiting.run_id)
        assert "an earlier trial of this call is gone" in question.request["reason"]
        assert "two, which nobody saw" in question.request["preview"]
        assert (await durable.answer(waiting.run_id, Answer.ONCE)).text == "done"
    assert (work / "out.txt").read_text() == "two, which nobody saw"


async def test_an_answer_to_a_run_that_is_not_there_pays_nobody(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "Ada"}, "p"), "done"), tools=[pay])
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        await durable.run("pay Ada", run_id="invoice-17")
        for use in (lambda id: durable.answer(id, Answer.ONCE), durable.cancel, durable.result):
            with pytest.raises(ToolError, match='there is no run "invoice-1"'):
                await use("invoice-1")
        assert (await durable.result("invoice-17")).reason == "waiting"
        assert (await durable.answer("invoice-17", Answer.ONCE)).text == "done"


async def test_outside_async_with_it_says_so_at_once(empty_sqlite: str, tmp_path: Path) -> None:
    durable = DurableAgent(Agent(script("hi")), empty_sqlite, scope=Scope(workspace=tmp_path))
    uses: tuple[Any, ...] = (
        durable.run,
        durable.submit,
        durable.result,
        durable.cancel,
        lambda id: durable.answer(id, Answer.ONCE),
    )
    uses = (*uses, lambda id: durable.send(id, "hi"))

    async def refused() -> None:
        for use in uses:
            with pytest.raises(ToolError, match="outside `async with`") as caught:
                await use("hello")
            assert "async with DurableAgent" in caught.value.suggestion

    await refused()
    assert not (tmp_path / "durable.db").exists()
    async with durable:
        assert (await durable.run("hello")).text == "hi"
    await refused()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queues": "default"}, r'queues="default"\): expected a list of names'),
        ({"queues": ["default", 5]}, "expected a list of names"),
        ({"queues": [""]}, "expected a list of names"),
        ({"queues": []}, r"queues=\[\]\): the worker would never run"),
        ({"offers": "gpu"}, "expected a list of names"),
        ({"concurrency": 0}, r"concurrency=0\): the worker would never run"),
        ({"concurrency": -1}, "concurrency=-1"),
        ({"concurrency": "2"}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
    ],
)
def test_settings_that_would_never_work_are_refused(settings: Any, words: str, sqlite: str) -> None:
    with pytest.raises(ToolError, match=words) as caught:
        WorkerSettings(**settings)
    assert caught.value.suggestion
    DurableAgent(Agent(script("hi")), sqlite, worker=WorkerSettings(queues=["default"], offers=(), concurrency=1))
    assert WorkerSettings(queues=[], offers=["gpu"]).offers == ["gpu"]  # a worker for these calls alone


async def test_whoever_waits_for_a_run_that_nobody_takes_is_told(
    sqlite: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with DurableAgent(Agent(script("hi")), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        await durable.run("taken")
        assert "none is up" not in caplog.text
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(durable.run("hello", queue="nobody-listens", run_id="mine"), 0.5)
        assert (
            caplog.text.count(
                "run mine waits for a worker with agent main, version 0 and queue nobody-listens, but none is running"
            )
            == 1
        )


async def test_arguments_of_the_wrong_kind_are_refused_at_once(sqlite: str, tmp_path: Path) -> None:
    async with DurableAgent(Agent(script("hi")), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        for more in ({"messages": 5}, {"messages": "text"}, {"run_id": 5}, {"tenant": None}, {"priority": 5.0}):
            with pytest.raises(ToolError) as caught:
                await durable.run("hello", **more)
            assert caught.value.suggestion
        with pytest.raises(ToolError, match="is not a string: 5"):
            await durable.run(5)  # type: ignore[arg-type]
        assert durable.runs.list() == []
        assert (await durable.run("hello", tenant="t", priority=5)).text == "hi"
    with pytest.raises(ToolError, match="must be a string"):
        DurableAgent(Agent(script("hi")), 5)  # type: ignore[arg-type]


async def test_a_deleted_run_leaves_nothing_behind(database: str, tmp_path: Path) -> None:
    agent = Agent(script("the word is sesame"))
    async with DurableAgent(agent, database, scope=Scope(workspace=tmp_path)) as durable:
        gone = await durable.run("sesame?")
        kept = await durable.run("again?")
        await asyncio.to_thread(durable.runs.delete, gone.run_id)
        assert [run.id for run in durable.runs.list()] == [kept.run_id]
        schema = "" if database.startswith("sqlite") else "dbos."
        with durable.runs.store.engine.connect() as connection:
            left = connection.execute(sa.text(f"SELECT DISTINCT workflow_uuid FROM {schema}operation_outputs"))
            assert left.scalars().all() == [f"{kept.run_id}.1"]


async def test_a_structured_answer_comes_back_in_its_shape(sqlite: str, tmp_path: Path) -> None:
    class City(BaseModel):
        name: str

    agent = Agent(script(ToolCall("final_answer", {"name": "Bern"}, "f")), output=City)
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("which city?")
        assert result.output == City(name="Bern")


async def test_without_a_database_it_is_in_the_workspace(tmp_path: Path) -> None:
    async with DurableAgent(Agent(script("hi")), scope=Scope(workspace=tmp_path)) as durable:
        assert (await durable.run("hello")).text == "hi"
    stored = tmp_path / ".forge" / "durable.db"
    assert stored.stat().st_mode & 0o077 == 0


def test_without_the_engine_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['dbos'] = None\n"
        "import forge\ntry: forge.DurableAgent\nexcept ImportError as error: print(error)\nelse: print('found')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert install_command("durable") in said


async def test_whoever_leaves_lets_a_call_end_and_the_next_worker_goes_on(sqlite: str, tmp_path: Path) -> None:
    began, may_end, made = asyncio.Event(), asyncio.Event(), list[str]()

    @tool(permissions={"write"})
    async def transfer(name: str) -> str:
        """Transfer money, which must not be done twice."""
        made.append(name)
        began.set()
        await may_end.wait()
        return f"sent to {name}"

    def new_agent() -> Agent:
        model = script(ToolCall("transfer", {"name": "Ada"}, "t"), "done")
        return Agent(model, tools=[transfer], policy=rules("allow write"))

    scope = Scope(workspace=tmp_path)
    async with DurableAgent(new_agent(), sqlite, scope=scope) as durable:
        run = await durable.submit("pay")
        await began.wait()
        asyncio.get_running_loop().call_later(0.3, may_end.set)
    async with DurableAgent(new_agent(), sqlite, scope=scope) as durable:
        result = await durable.result(run.id)
    assert (result.text, result.reason) == ("done", "answer")
    assert [message.text for message in result.messages if message.role == "tool"] == ["sent to Ada"]
    assert made == ["Ada"]


async def test_without_time_to_drain_the_state_of_a_call_is_unknown(sqlite: str, tmp_path: Path) -> None:
    began, made = asyncio.Event(), list[str]()

    @tool(permissions={"write"})
    async def transfer(name: str) -> str:
        """Transfer money, which must not be done twice."""
        made.append(name)
        began.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent(
        script(ToolCall("transfer", {"name": "Ada"}, "t"), "done"), tools=[transfer], policy=rules("allow write")
    )
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path), drain=0.1) as durable:
        run = await durable.submit("pay")
        await began.wait()
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.result(run.id)
    assert "its state is unknown" in result.messages[-2].text
    assert made == ["Ada"]


async def test_several_agents_work_in_one_process(sqlite: str, tmp_path: Path) -> None:
    first, second = Agent(script("I am first"), name="first"), Agent(script("I am second"), name="second")
    async with DurableAgent(first, sqlite, others=[second], scope=Scope(workspace=tmp_path)) as durable:
        assert (await durable.run("who?")).text == "I am first"
        assert (await durable.run("who?", agent="second")).text == "I am second"
        with pytest.raises(ToolError, match="none of that name"):
            await durable.run("who?", agent="third")
        with pytest.raises(ToolError, match="this process has one already") as caught:
            await DurableAgent(second, sqlite, scope=Scope(workspace=tmp_path)).__aenter__()
        assert "others=" in caught.value.suggestion
    with pytest.raises(ToolError, match="several agents named first"):
        DurableAgent(first, sqlite, others=[first])


SERVING = """
import asyncio, sys
from forge import Agent, DurableAgent, Scripted
def said(request):
    print("asked", flush=True)
    return "done"
print("ready", flush=True)
asyncio.run(DurableAgent.serve([Agent(Scripted(*[said] * 9)), Agent(None, name="b")], sys.argv[1], drain=5))
print("left", flush=True)
"""


@pytest.mark.slow
def test_serving_ends_in_good_order_at_sigterm(sqlite: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVING, sqlite]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "ready\n"
        with forge.Runs(sqlite) as runs:
            runs.submit("hello", agent="main")
        assert serving.stdout.readline() == "asked\n"
        serving.terminate()
        assert serving.stdout.read() == "left\n"
    assert serving.returncode == 0


async def test_a_stored_run_checks_its_answer_with_validators(sqlite: str, tmp_path: Path) -> None:
    answers = [ToolCall("final_answer", {"value": one}, f"f{one}") for one in (7, 8)]
    agent: Agent[int, int] = Agent(script(*answers), output=int, deps_type=int)

    @agent.output_validator
    def check(ctx: RunContext[int], value: int) -> int:
        if value < ctx.deps:
            raise Retry("Too small.")
        return value + 1

    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path), deps=lambda scope: 8) as durable:
        result = await durable.run("A number?")
        assert (result.output, result.turns) == (9, 2)
        assert "Too small." in result.messages[2].text


async def test_hooks_of_a_stored_run_are_called_and_recorded(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(
        script(ToolCall("pay", {"name": "Ada"}, "p"), "paid", "paid indeed"),
        tools=[pay],
        choose_tools=lambda ctx: ["pay"],
    )
    called: list[str] = []

    @agent.before_call
    def change(ctx: ToolContext) -> HookDecision:
        return HookDecision(arguments={"name": "Eve" if ctx.arguments["name"] == "Ada" else "?"})

    @agent.before_turn
    def mask(ctx: TurnContext) -> HookDecision | None:
        called.append(f"turn {ctx.turn}")
        return HookDecision(prompt="pay her", context="It is Monday.") if ctx.prompt == "pay Ada" else None

    @agent.on_end
    async def check(ctx: TurnContext) -> HookDecision | None:
        return HookDecision(block="Say it again.") if ctx.answer == "paid" else None

    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("pay Ada", run_id="r")
        (question,) = await asyncio.to_thread(durable.runs.questions)
        assert question.request["arguments"] == {"name": "Eve"}  # the person is asked about what would run
        result = await durable.answer(result.run_id, Answer.ONCE)
        steps = await asyncio.to_thread(list_recorded_steps, durable.runs.store.database, "r.1")
    assert (result.text, result.reason) == ("paid indeed", "answer")
    assert next(message.text for message in result.messages if message.role == "tool").startswith("paid Eve")
    assert called == ["turn 1", "turn 2", "turn 3"]
    names = [step.name for _, step in sorted(steps.items())]
    assert names == ["before_turn", "choose_tools", "model", "call pay"]


async def test_a_started_run_is_the_same_thing_as_one_of_this_process(database: str, tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for the test."""
        begun.set()
        await go_on.wait()
        return "through"

    agent = Agent(script(ToolCall("wait"), "I heard you."), tools=[wait])
    async with DurableAgent(agent, database, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("hello", session="ada")
        assert isinstance(run, StartedRun)
        assert not run.is_over
        await begun.wait()
        await run.send("Faster!")
        run.send("Please.")
        go_on.set()
        events = [event async for event in run.events()]
        result = await run
        assert (result.text, result.run_id, run.session, run.is_over) == ("I heard you.", run.id, "ada", True)
        said = [message.text for message in result.messages if message.role == "user"]
        assert said == ["hello", "Faster!", "Please."]
        assert (type(events[0]), type(events[-1])) == (RunStarted, RunFinished)
        late = durable.started(run.id)
        assert [event.to_dict() async for event in late.events()] == [event.to_dict() for event in events]
        assert (await late).text == "I heard you."
        with pytest.raises(ToolError, match="is finished"):
            await run.send("Still there?")
        assert (await run.cancel()).reason == "answer"  # it is over, and stays so


async def test_a_started_run_is_cancelled_with_a_result(sqlite: str, tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    agent = Agent(script(["I begin.", ToolCall("wait")]), tools=[wait])
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("hello")
        await begun.wait()
        result = await run.cancel()
        assert (result.reason, result.text, result.turns) == ("cancelled", "I begin.", 1)
        assert ended.is_set()
        assert not unanswered_calls(result.messages)
        last = [event async for event in run.events()][-1]
        assert isinstance(last, RunFinished)
        assert (last.reason, last.text) == ("cancelled", "I begin.")


async def test_a_started_run_that_cannot_be_submitted_says_so_when_it_is_awaited(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script("hello back"))
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("hello", agent="nobody")
        with pytest.raises(ToolError, match="has none of that name"):
            await run
        with pytest.raises(ToolError, match="has none of that name"):
            [event async for event in run.events()]
        with pytest.raises(ToolError, match="has none of that name"):
            await run.send("hello?")
        with pytest.raises(ToolError, match="no run"):
            await durable.started("run-0")
        assert (await durable.start("hello")).text == "hello back"


async def test_a_listener_is_told_that_the_events_of_a_run_are_gone(sqlite: str, tmp_path: Path) -> None:
    async with DurableAgent(Agent(script("hello back")), sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("hello")
        await run
        assert EventsMissed not in [type(event) async for event in run.events()]
        with durable.runs.store.database.engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM forge_events"))
        assert [type(event) async for event in run.events()] == [EventsMissed]


async def test_a_started_run_that_waits_for_a_person_is_awaited_again(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "Ada"}), "paid"), tools=[pay], policy=rules("ask write"))
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("pay Ada")
        assert ((await run).reason, run.is_over) == ("waiting", False)
        await durable.answer(run.id, Answer.ONCE)
        assert ((await run).text, run.is_over) == ("paid", True)


def desk(policy: Any, **settings: Any) -> Agent[Any, Any]:
    model = script(ToolCall("pay", {"name": "Ada"}, "p"), lambda request: request.messages[-1].text)
    return Agent(model, tools=[pay], policy=policy, name="desk", **settings)


ASK_DESK = ToolCall("desk", {"prompt": "Pay Ada."}, "d")
FREE = rules("allow execute", "allow write")


async def test_an_agent_as_a_tool_works_inside_a_stored_run(database: str, tmp_path: Path) -> None:
    agent = Agent(script(ASK_DESK, "done"), tools=[desk(FREE).as_tool()], policy=FREE)
    async with DurableAgent(agent, database, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("go")
        names = [(event.agent, event.call.name) async for event in run.events() if isinstance(event, ToolFinished)]
        result = await run
        steps = await asyncio.to_thread(list_recorded_steps, durable.runs.store.database, f"{run.id}.1")
    assert (result.text, result.turns, result.calls) == ("done", 2, 2)  # its call, and the one it made
    assert [message.text for message in result.messages if message.role == "tool"] == ["paid Ada"]
    assert names == [("main/desk", "pay"), ("main", "desk")]
    assert [step.name for _, step in sorted(steps.items())] == ["model", "call desk", "model"]  # it is one step


async def test_events_of_agents_that_work_side_by_side_are_all_stored_with_their_task(
    sqlite: str, tmp_path: Path
) -> None:
    class SameIds:
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
            is_over = request.messages[-1].role == "tool"
            calls = () if is_over else (ToolCall("pay", {"name": "Ada"}, "p"),)
            yield Message("assistant", "paid" if is_over else "", tool_calls=calls)

    clerk = Agent(SameIds(), tools=[pay], policy=FREE, name="desk")
    calls = [ToolCall("desk", {"prompt": "Pay Ada."}, id) for id in ("d1", "d2")]
    agent = Agent(script(calls, "done"), tools=[clerk.as_tool()], policy=FREE)
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("go")
        await run
        heard = [event async for event in run.events() if isinstance(event, ToolFinished | TurnFinished)]
    ended = [(one.task, one.call.id) for one in heard if isinstance(one, ToolFinished)]
    assert sorted(ended) == [("", "d1"), ("", "d2"), ("d1", "p"), ("d2", "p")]
    turned = [one.task for one in heard if isinstance(one, TurnFinished)]
    assert sorted(turned) == ["", "", "d1", "d1", "d2", "d2"]


@pytest.mark.parametrize(
    ("own", "outer", "said"),
    [
        (rules("deny write"), FREE, "is denied"),
        (FREE, rules("allow execute", "deny write"), "is denied"),
        (FREE, rules("allow execute", "ask write"), "cannot wait for inside a call"),
        (rules("ask write"), FREE, "no one to ask"),
    ],
)
async def test_its_calls_pass_both_gates_and_no_question_is_left_open(
    sqlite: str, tmp_path: Path, own: Any, outer: Any, said: str
) -> None:
    agent = Agent(script(ASK_DESK, "done"), tools=[desk(own).as_tool()], policy=outer)
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("go")
        assert (result.reason, result.text) == ("answer", "done")
        (text,) = [message.text for message in result.messages if message.role == "tool"]
        assert said in text
        assert await asyncio.to_thread(durable.runs.questions) == []


async def test_the_call_of_an_agent_is_approved_before_it_works(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ASK_DESK, "done"), tools=[desk(FREE).as_tool()], policy=rules("allow write"))
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("go")
        assert (await run).reason == "waiting"
        result = await durable.answer(run.id, Answer.ONCE)
        assert [message.text for message in result.messages if message.role == "tool"] == ["paid Ada"]


async def test_an_agent_that_a_stored_run_hands_over_to_answers_for_it(sqlite: str, tmp_path: Path) -> None:
    class Paid(BaseModel):
        name: str

    helper = Agent(script('{"name": "Ada"}'), output=Paid, name="desk")
    agent = Agent(script(ASK_DESK), tools=[helper.as_tool(ends_turn=True)], policy=FREE)
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        result = await durable.run("go")
    assert (result.reason, result.turns, result.text) == ("answer", 1, '{"name": "Ada"}')


async def test_cancelling_a_stored_run_stops_the_agent_that_works_for_it(sqlite: str, tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    helper = Agent(script(ToolCall("wait", {}, "w")), tools=[wait], name="desk")
    agent = Agent(script(ASK_DESK), tools=[helper.as_tool()], policy=FREE)
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("go")
        await begun.wait()
        assert (await run.cancel()).reason == "cancelled"
        assert ended.is_set()


async def test_refused_answers_are_counted_over_the_parts_of_a_stored_run(sqlite: str, tmp_path: Path) -> None:
    bad = [ToolCall("final_answer", {"value": number}, f"a{number}") for number in range(9)]
    agent = Agent(script(*bad[:2], ToolCall("pay", {"name": "Ada"}, "p"), *bad[2:]), tools=[pay], output=int)

    @agent.output_validator
    def check(value: int) -> int:
        raise Retry(f"{value} is wrong.")

    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("go")
        assert (await run).reason == "waiting"
        result = await durable.answer(run.id, Answer.ONCE)  # the run goes on in another part
    assert result.error is not None
    assert result.error.message == "the model was told 3 times and did not fix its answer: 3 is wrong."
    assert result.turns == 5


@pytest.mark.parametrize(
    ("policy", "offered"), [(rules("allow network"), True), (rules(), False)], ids=["allow", "ask"]
)
async def test_a_tool_of_the_provider_is_offered_by_rules_alone(
    sqlite: str, tmp_path: Path, policy: Rules, offered: bool
) -> None:
    async with serving(CachingAnthropic(["Done."])) as server:
        model = Anthropic("claude-sonnet-5", base_url=server.url, api_key="key")
        agent = Agent(model, server_tools=[ServerTool("web_search")], policy=policy)
        async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
            result = await durable.run("go", run_id="mine")
    assert (result.reason, result.text) == ("answer", "Done.")
    assert any(one["name"] == "web_search" for one in server.bodies[0]["tools"]) is offered


async def test_a_run_that_no_worker_works_on_is_cancelled_with_its_last_event(database: str, tmp_path: Path) -> None:
    agent = Agent(script(["I ask first.", ToolCall("pay", {"name": "Ada"})], "paid"), tools=[pay])
    async with DurableAgent(agent, database, scope=Scope(workspace=tmp_path)) as durable:
        run = durable.start("pay Ada")
        assert (await run).reason == "waiting"
        result = await run.cancel()
        assert (result.reason, result.text, result.turns) == ("cancelled", "I ask first.", 1)
        events = [event async for event in run.events()]
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunFinished)
        assert (events[-1].reason, events[-1].text, events[-1].run) == ("cancelled", "I ask first.", run.id)
        queued = durable.start("pay Ada", queue="elsewhere")
        assert (await queued.cancel()).reason == "cancelled"
        assert [type(event) async for event in queued.events()] == [RunFinished]


async def test_a_question_ends_with_what_asked_it_and_is_not_left_for_the_run(tmp_path):
    @tool
    async def gives_up(ctx: ToolContext) -> str:
        """Ask about a host, and wait for a while only, as programs do."""
        try:
            async with asyncio.timeout(2):
                await ctx.require(Permission.NETWORK, "https://asked.test")
        except TimeoutError:
            return "gave up"
        return "reached"

    @tool(permissions={"write"})
    def note() -> str:
        """Write a note."""
        return "noted"

    model = Scripted(ToolCall("gives_up", {}), ToolCall("note", {}), "done")
    async with DurableAgent(Agent(model, tools=[gives_up, note]), f"sqlite:///{tmp_path}/runs.db") as agent:
        result = await agent.run("Go.", run_id="one")
        assert [wait.kind for wait in result.waits] == ["approval"]
        assert (await agent.answer("one", Answer("once"))).text == "done"  # there is one open question, not two


@pytest.mark.parametrize("is_given_steps", [False, True])
async def test_the_questions_of_its_runs_are_stored_and_its_agent_stays_as_it_is(
    sqlite: str, tmp_path: Path, is_given_steps: bool
) -> None:
    agent = Agent(script([ToolCall("pay", {"name": "Eve"}, "p")], "done"), tools=[pay])
    if is_given_steps:
        agent = agent.replace(steps=agent.steps)
    asked_before = agent.gate.approve
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        waiting = await durable.run("Pay Eve.", run_id="one")
        assert waiting.reason == "waiting"
        if not is_given_steps:  # steps that were given one by one hold the gate of their agent
            assert agent.gate.approve is asked_before
        assert (await durable.answer("one", Answer("once"))).text == "done"


async def test_a_durable_agent_has_the_rules_and_hooks_of_its_agent(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script([ToolCall("pay", {"name": "Eve"}, "p")], "done"), tools=[pay], policy=rules("allow write"))
    called = []

    @agent.before_call
    def note(ctx: ToolContext) -> None:
        called.append(ctx.call.name)

    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:
        assert (await durable.run("Pay Eve.")).text == "done"
    assert called == ["pay"]
