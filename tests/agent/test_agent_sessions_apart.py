"""One agent, many users: what a session holds is its own, and a run that names none leaves nothing behind."""

import asyncio
import sys
from pathlib import Path

import pytest

from forge import Agent, AgentType, Answer, Scope, Scripted, ToolCall, ToolContext, ToolResult, rules, tool
from forge.core.activity import ActivityStream
from forge.core.execution.background import BackgroundWork
from forge.core.provider import ProviderError
from forge.core.tool import Tool
from forge.events import ToolCompleted
from forge.models.scripted import Turn
from forge.pipeline import StepObject, standard_executor
from forge.process.running.jobs import list_jobs
from forge.tools.bash import Bash, BashJobs
from forge.tools.file_edit import FileEdit
from forge.tools.file_read import FileRead
from forge.tools.todo import TodoRead, TodoWrite
from tests.process.planting import found, mark, until

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class ByUser:
    """A model that follows another script for each user: the first word of the prompt says whose turn it is."""

    def __init__(self, **scripts: Scripted) -> None:
        self.scripts = scripts

    def stream(self, request):
        said = [message.text for message in request.messages if message.role == "user"]
        return self.scripts[said[0].split()[0]].stream(request)


class Meeting:
    """Nobody goes on before all have come."""

    def __init__(self, guests: int) -> None:
        self._missing, self._complete = guests, asyncio.Event()

    async def come(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        async with asyncio.timeout(60):  # `wait_for` would swallow a cancellation in Python 3.11
            await self._complete.wait()


@tool(permissions={"execute"})
def deploy() -> str:
    """Deploy."""
    return "deployed"


async def always(_):
    return Answer("always")


def repeated(times: int, *turns: Turn) -> list[Turn]:
    return [*turns] * times


def work_of(agent: Agent) -> BackgroundWork:
    assert agent._opening.background is not None
    return agent._opening.background


def results(result):
    return [message.text for message in result.messages if message.role == "tool"]


async def both(agent: Agent, **runs):
    return await asyncio.gather(agent.run("ada please", **runs), agent.run("bob please", **runs))


@pytest.mark.parametrize("scope", [None, Scope(workspace=Path())], ids=["no scope", "one scope for all"])
async def test_an_always_of_one_user_approves_nothing_of_another(scope):
    asked = []
    meeting = Meeting(2)

    async def approve(request):
        asked.append(request.scope.session_id)
        await meeting.come()
        return Answer("always")

    script = (ToolCall("deploy"), ToolCall("deploy"), "done")
    agent = Agent(ByUser(ada=Scripted(*script), bob=Scripted(*script)), tools=[deploy], approve=approve)
    ada, bob = await both(agent, scope=scope)
    assert len(asked) == len(set(asked)) == 2, "each is asked once, and the second call is covered by the own always"
    assert results(ada) == results(bob) == ["deployed"] * 2


async def test_an_always_holds_for_the_next_run_of_the_named_session_alone():
    asked = []

    async def approve(request):
        asked.append(request.scope.session_id)
        return Answer("always")

    agent = Agent(Scripted(*repeated(3, ToolCall("deploy"), "done")), tools=[deploy], approve=approve)
    for session in ("ada", "ada", "bob"):
        await agent.run("go", session=session)
    assert asked == ["ada", "bob"]
    agent.end_session("ada")
    agent.provider = Scripted(ToolCall("deploy"), "done")
    await agent.run("go", session="ada")
    assert asked == ["ada", "bob", "ada"], "an ended session is asked anew"


async def test_what_one_user_read_another_may_not_overwrite(tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    read, edit = ToolCall("file_read", {"path": "a.txt"}), {"path": "a.txt", "old_text": "old", "new_text": "new"}
    has_read = asyncio.Event()

    async def ada_is_ready(_):
        has_read.set()
        return "done"

    async def bob_waits(_):
        await asyncio.wait_for(has_read.wait(), 60)
        return ToolCall("file_edit", edit)

    model = ByUser(ada=Scripted(read, ada_is_ready), bob=Scripted(bob_waits, "done"))
    agent = Agent(model, tools=[FileRead(), FileEdit()], policy=rules("allow write"))
    _, bob = await both(agent, scope=Scope(workspace=tmp_path))
    assert "read" in results(bob)[0]
    assert (tmp_path / "a.txt").read_text() == "old\n"

    agent.provider = Scripted(read, "read it", ToolCall("file_edit", edit), "done")
    for _ in range(2):  # the twin: a named session remembers what it read
        await agent.run("go", session="ada", scope=Scope(workspace=tmp_path))
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_todo_lists_are_apart():
    write = ToolCall("todo_write", {"items": [{"content": "the plan of ada"}]})
    agent = Agent(Scripted(write, "done"), tools=[TodoWrite(), TodoRead()])
    await agent.run("go", session="ada")
    agent.provider = Scripted(*repeated(3, ToolCall("todo_read"), "done"))
    seen = [results(await agent.run("go", session=session))[0] for session in ("ada", "bob", "")]
    assert "the plan of ada" in seen[0]
    assert seen[1] == seen[2] == "The to-do list is empty."


async def test_background_results_reach_only_their_own_user():
    meeting = Meeting(2)

    @tool
    async def index(ctx: ToolContext, name: str) -> ToolResult:
        """Index."""

        async def work() -> str:
            await meeting.come()
            return f"the index of {name}"

        return ctx.background(work, "begun")

    scripts = {name: Scripted(ToolCall("index", {"name": name}), "waiting", "heard") for name in ("ada", "bob")}
    agent = Agent(ByUser(**scripts), tools=[index], wait_for_background=True)
    for name, result in zip(("ada", "bob"), await both(agent), strict=True):
        heard = [message.text for message in result.messages if "is over" in message.text]
        assert [text.splitlines()[-1] for text in heard] == [f"the index of {name}"]


@linux
async def test_cancelling_one_run_leaves_the_programs_and_the_work_of_the_other(tmp_path):
    words = {name: mark() for name in ("ada", "bob")}
    meeting, going_on = Meeting(3), asyncio.Event()
    heard = []

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await going_on.wait()
            return "work is done"

        return ctx.background(work, "begun")

    async def both_are_there(_):
        await meeting.come()
        return "waiting"

    def script(name):
        start = ToolCall("bash", {"command": f"sleep {words[name]}", "background": True})
        return Scripted([start, ToolCall("later")], both_are_there, ToolCall("bash_jobs"), "done")

    agent = Agent(
        ByUser(ada=script("ada"), bob=script("bob")),
        tools=[Bash(sandbox="off"), BashJobs(), later],
        policy=rules("allow execute"),
        wait_for_background=True,
    )
    activity = ActivityStream()
    activity.subscribe(lambda event: heard.append(event.result), ToolCompleted)
    ada = asyncio.create_task(agent.run("ada please", scope=Scope(workspace=tmp_path)))
    bob = asyncio.create_task(agent.run("bob please", scope=Scope(workspace=tmp_path), activity=activity))
    await meeting.come()
    assert until(lambda: all(map(found, words.values())))
    ada.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ada
    assert until(lambda: not found(words["ada"]))
    assert found(words["bob"])
    going_on.set()
    result = await bob
    assert "1" in results(result)[-1]
    assert "running" in results(result)[-1]
    assert words["ada"] not in "".join(results(result))
    assert [one.for_llm for one in heard] == ["work is done"]
    assert until(lambda: not found(words["bob"])), "a run that names no session ends its programs"


async def test_a_session_that_begins_again_gets_the_results_of_its_own_background_work():
    """Work that was open when the session ended goes on, and its result belongs to no run."""
    release = {"old": asyncio.Event(), "new": asyncio.Event()}
    begun = asyncio.Event()

    @tool
    async def index(name: str, ctx: ToolContext) -> ToolResult:
        """Index in the background."""

        async def work() -> str:
            begun.set()
            await release[name].wait()
            return f"the {name} index"

        return ctx.background(work(), "begun")

    script = (ToolCall("index", {"name": "old"}), "first", ToolCall("index", {"name": "new"}), "second", "third")
    agent = Agent(Scripted(*script), tools=[index])
    events: list[str] = []
    agent.activity.subscribe(lambda event: events.append(event.result.for_llm), ToolCompleted)
    await agent.run("go", session="ada")
    await begun.wait()
    begun.clear()
    agent.end_session("ada")
    again = asyncio.create_task(agent.run("go", session="ada", wait_for_background=True))
    await begun.wait()
    release["new"].set()
    result = await again
    assert result.text == "third"
    assert "the new index" in result.messages[-2].text
    release["old"].set()
    assert await work_of(agent).settled(10)
    assert events == ["the new index", "the old index"]
    assert "the old index" not in "".join(message.text for message in result.messages)


async def test_an_always_ends_with_its_session_although_background_work_continues():
    """The end of that work takes nothing from a session that has begun meanwhile under the name."""
    release, asked = asyncio.Event(), []

    @tool
    async def index(ctx: ToolContext) -> ToolResult:
        """Index in the background."""

        async def work() -> str:
            await release.wait()
            return "indexed"

        return ctx.background(work(), "begun")

    async def approve(request):
        asked.append(request.scope.session_id)
        return Answer("always")

    script = ([ToolCall("deploy"), ToolCall("index")], "first", *repeated(2, ToolCall("deploy"), "later"))
    agent = Agent(Scripted(*script), tools=[deploy, index], approve=approve)
    await agent.run("go", session="ada")
    agent.end_session("ada")
    assert results(await agent.run("go", session="ada")) == ["deployed"]
    assert asked == ["ada", "ada"]
    release.set()
    assert await work_of(agent).settled(10)
    await agent.run("go", session="ada")
    assert asked == ["ada", "ada"]


@linux
async def test_programs_of_a_named_session_go_on_until_it_ends(tmp_path):
    word = mark()
    start = ToolCall("bash", {"command": f"sleep {word}", "background": True})
    agent = Agent(
        Scripted(start, "first", ToolCall("bash_jobs"), "second"),
        tools=[Bash(sandbox="off"), BashJobs()],
        policy=rules("allow execute"),
    )
    scope = Scope(workspace=tmp_path)
    await agent.run("go", session="ada", scope=scope)
    assert until(lambda: found(word))
    second = await agent.run("go", session="ada", scope=scope)
    assert "running" in results(second)[-1]
    agent.end_session("ada")
    assert until(lambda: not found(word))
    assert list_jobs("ada") == []


async def test_background_work_of_a_run_that_is_over_comes_to_its_end():
    release, done = asyncio.Event(), asyncio.Event()

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await release.wait()
            return "uploaded"

        return ctx.background(work, "begun")

    agent, activity, heard = Agent(Scripted(ToolCall("later"), "done"), tools=[later]), ActivityStream(), []
    activity.subscribe(lambda event: heard.append(event.result.for_llm), ToolCompleted)
    activity.subscribe(lambda _: done.set(), ToolCompleted)
    await agent.run("go", activity=activity)
    release.set()
    await asyncio.wait_for(done.wait(), 60)
    assert heard == ["uploaded"], "what was begun for a person is not dropped"
    await work_of(agent).settled(5)
    assert not work_of(agent)._completed
    assert not work_of(agent)._open


async def test_a_long_lived_agent_keeps_nothing_of_runs_that_are_over(tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    ended: list[str] = []

    class Step(StepObject):
        name = "notes ends"

        def forget(self, session_id):
            ended.append(session_id)

        async def __call__(self, ctx, proceed):
            return await proceed(ctx)

    step = Step()

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            return "done"

        return ctx.background(work, "begun")

    from forge.pipeline import standard_steps
    from forge.workspace.history.tracking import SessionState

    state = SessionState()
    calls = [
        ToolCall("deploy"),
        ToolCall("later"),
        ToolCall("file_read", {"path": "a.txt"}),
        ToolCall("file_edit", {"path": "a.txt", "old_text": "old", "new_text": "old"}),
        ToolCall("todo_write", {"items": [{"content": "a"}]}),
    ]
    runs = 20
    agent = Agent(
        Scripted(*repeated(runs, calls, "done")),
        tools=[deploy, later, FileRead(), FileEdit(), TodoWrite()],
        policy=rules("ask execute", "allow write"),
        approve=always,
        steps=lambda gate, secrets: [step, *standard_steps(gate, secrets, files=state)],
    )
    for _ in range(runs):
        await agent.run("go", scope=Scope(workspace=tmp_path))
    await work_of(agent).settled(5)
    assert len(set(ended)) == runs
    work = work_of(agent)
    assert not any((agent._opening.sessions, work._open, work._completed, work._ended, work.offered, work._waiting))
    for session in ended:
        assert not agent.gate.remembered(session)
        assert not state.seen.files(session)
        assert not state.todos.get(session)
    assert state.undo.sessions() == []
    held = [value for one in agent.steps for value in vars(one).values() if isinstance(value, dict)]
    assert held
    for value in held:
        assert not [key for key in value if (key[0] if isinstance(key, tuple) else key) in ended]


async def test_tasks_of_one_session_are_not_there_in_another():
    inner = Scripted("the secret report", "continued")
    begin = ToolCall("task", {"description": "a", "prompt": "b"})
    agent = Agent(Scripted(begin, "done"), policy=rules("allow execute"), agents={"general": AgentType(model=inner)})
    first = await agent.run("go", session="ada")
    task_id = results(first)[0].split("task_id: ")[1].rstrip("]")
    again = ToolCall("task", {"description": "a", "prompt": "c", "task_id": task_id})
    agent.provider = Scripted(again, "done", again, "done")
    other = await agent.run("go", session="bob")
    assert "there is no task" in results(other)[0]
    assert "Known tasks: there are none." in results(other)[0]
    own = await agent.run("go", session="ada")
    assert "continued" in results(own)[0]


async def test_two_names_for_one_run_are_refused():
    agent = Agent(Scripted("one", "two"))
    for session in ("ada", ""):
        with pytest.raises(ValueError, match="name its session with session='bob'"):
            await agent.run("go", session=session, scope=Scope(session_id="bob"))
    with pytest.raises(TypeError, match="a session is a name"):
        await agent.run("go", session=7)  # type: ignore[arg-type]
    assert (await agent.run("go", session="ada", scope=Scope(session_id="ada"))).text == "one"
    assert (await agent.run("go", session="ada", scope=Scope())).text == "two"


async def test_run_sync_inside_a_running_loop_is_answered_in_words():
    with pytest.raises(RuntimeError, match=r"await agent\.run\(prompt\)"):
        Agent(Scripted("hello")).run_sync("go")


def test_run_sync_works_without_a_loop():
    assert Agent(Scripted("hello")).run_sync("go").text == "hello"


class Remote(Tool):
    """Work that reports by its callback."""

    kept: list = []  # noqa: RUF012

    def set_callback(self, callback):
        self.callback = callback

    async def run(self, keep: bool = True, pending: bool = True) -> ToolResult:
        if keep:
            Remote.kept.append(self.callback)
        return ToolResult.started("begun") if pending else ToolResult.text("whole")


@pytest.fixture
def callbacks():
    Remote.kept.clear()
    yield Remote.kept
    Remote.kept.clear()


async def test_a_run_waits_for_a_callback(callbacks):
    def report(_):
        asyncio.get_running_loop().call_later(0.01, callbacks[0], "the remote result")
        return "waiting"

    agent = Agent(Scripted(ToolCall("remote"), report, "heard"), tools=[Remote()], wait_for_background=True)
    result = await asyncio.wait_for(agent.run("go"), 60)
    assert result.text == "heard"
    assert any("the remote result" in message.text for message in result.messages)


async def test_settled_waits_for_a_callback(callbacks):
    runs = standard_executor([Remote()])
    await runs.execute(ToolCall("remote"), Scope())
    assert not await runs.background.settled(0.01)
    waiting = asyncio.create_task(runs.background.settled(10))
    await asyncio.sleep(0)
    callbacks[0]("done")
    assert await waiting
    assert [result.for_llm for _, result in runs.background.take_completed(Scope().session_id)] == ["done"]


async def test_a_callback_that_nobody_can_call_any_more_is_a_failure_and_no_wait_for_ever():
    agent = Agent(
        Scripted(ToolCall("remote", {"keep": False}), "waiting", "heard"), tools=[Remote()], wait_for_background=True
    )
    result = await asyncio.wait_for(agent.run("go"), 60)
    assert any("was dropped" in message.text for message in result.messages)


async def test_a_callback_is_not_waited_for_where_the_result_is_whole(callbacks):
    agent = Agent(Scripted(ToolCall("remote", {"pending": False}), "done"), tools=[Remote()], wait_for_background=True)
    assert (await asyncio.wait_for(agent.run("go"), 60)).text == "done"
    assert len(callbacks) == 1, "the tool still holds it"


def test_background_work_can_be_waited_for_in_one_loop_after_another():
    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await asyncio.sleep(0.01)
            return "done"

        return ctx.background(work, "begun")

    agent = Agent(
        Scripted(*repeated(2, ToolCall("later"), "waiting", "heard")), tools=[later], wait_for_background=True
    )
    assert [agent.run_sync("go", session="ada").text for _ in range(2)] == ["heard", "heard"]


@pytest.mark.parametrize("name", ["task_completion", "ask_question", "converse"])
def test_a_tool_with_the_name_of_a_conversation_tool_is_refused(name):
    @tool(name=name)
    def own(message: str = "") -> str:
        """Mine."""
        return message

    with pytest.raises(TypeError, match=f"named '{name}'.*Give yours another name"):
        Agent(Scripted("hello"), tools=[own])


def test_the_built_in_conversation_tools_may_be_named():
    from forge.tools.conversation import ask_question, converse, task_completion

    Agent(Scripted("hello"), tools=[task_completion, ask_question, converse])


def test_the_way_out_of_a_mistake_is_part_of_the_traceback():
    import traceback

    with pytest.raises(ProviderError) as caught:
        Agent("gpt-4o")
    assert "Did you mean openai:gpt-4o?" in "".join(traceback.format_exception(caught.value))
