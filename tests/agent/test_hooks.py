"""Hooks look at calls, turns and the end of a run. They block, change and add, and never get around a rule."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from forge import (
    Agent,
    AgentType,
    Answer,
    Message,
    Retry,
    RunResult,
    Scope,
    Scripted,
    SessionStore,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    rules,
    tool,
)
from forge.agent import HookDecision, LoopSettings, TurnContext
from forge.core.errors import DefinitionError
from forge.core.messages import BACKGROUND
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.permissions.gate import authorize_inner
from forge.permissions.questions import PermissionRequest
from forge.pipeline import standard_steps

POLICY = rules("allow *", "deny write secret/**")
SAVE = ToolCall("save", {"path": "a.txt"})


@tool(permissions={"write"}, target="path")
def save(path: str, times: int = 1) -> str:
    """Save a file."""
    return f"saved {path} {times}x"


@tool(permissions={"execute"}, target="line")
def shell(line: str) -> str:
    """Run a line."""
    return f"ran {line}"


def make(*script: Any, **settings: Any) -> Agent[Any]:
    return Agent(Scripted(*script), **{"tools": [save, shell], "policy": POLICY, **settings})


def always(said: HookDecision | None) -> Callable[..., HookDecision | None]:
    return lambda *_: said


def told(result: RunResult[Any]) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def test_a_hook_blocks_a_call_with_a_reason_for_the_model() -> None:
    agent = make([SAVE, ToolCall("save", {"path": "b.txt"})], "done")

    @agent.before_call
    def check(ctx: ToolContext) -> HookDecision | None:
        return HookDecision(block="Not on a Friday.") if ctx.arguments["path"] == "a.txt" else None

    refused, saved = told(agent.run_sync("go"))
    assert refused.startswith("save(path=\"a.txt\"): the hook 'check' refused it: Not on a Friday.")
    assert saved == "saved b.txt 1x"


def test_a_hook_blocks_by_raising_and_may_be_async() -> None:
    agent = make(SAVE, "done")

    @agent.before_call
    async def check(ctx: ToolContext) -> None:
        await asyncio.sleep(0)
        raise ToolError("The disk is full.", suggestion="Delete something.")

    assert "The disk is full. Delete something." in told(agent.run_sync("go"))[0]


def test_a_plain_hook_does_not_hold_up_the_event_loop() -> None:
    agent, threads = make(SAVE, "done"), []
    agent.before_call(lambda ctx: threads.append(threading.current_thread()))
    assert told(agent.run_sync("go")) == ["saved a.txt 1x"]
    assert threads != [threading.main_thread()]


def test_changed_arguments_run_and_the_model_learns_which() -> None:
    agent = make(SAVE, "done")
    agent.before_call(lambda ctx: HookDecision(arguments={**ctx.arguments, "times": 2}, context="Twice is safer."))
    (text,) = told(agent.run_sync("go"))
    assert text == (
        "saved a.txt 2x\n"
        "[The hook '<lambda>' changed the arguments: times]\n"
        "[The hook '<lambda>' adds: Twice is safer.]"
    )


@pytest.mark.parametrize(("path", "is_saved"), [("secret/a.txt", False), ("./x/../secret/b", False), ("b.txt", True)])
def test_rules_judge_what_a_hook_changed(path: str, *, is_saved: bool) -> None:
    agent = make(SAVE, "done")
    agent.before_call(lambda ctx: HookDecision(arguments={"path": path}))
    (text,) = told(agent.run_sync("go"))
    assert text.startswith("saved") is is_saved
    assert ("is denied by the rule `deny write secret/**`" in text) is not is_saved


@pytest.mark.parametrize(
    ("arguments", "is_saved"), [({"path": ["x"]}, False), ({}, False), ({"path": "b", "times": 3}, True)]
)
def test_changed_arguments_are_checked(arguments: dict[str, Any], *, is_saved: bool) -> None:
    agent = make(SAVE, "done")

    @agent.before_call
    def change(ctx: ToolContext) -> HookDecision:
        return HookDecision(arguments=arguments)

    (text,) = told(agent.run_sync("go"))
    assert text.startswith("saved b 3x") is is_saved
    assert ("the hook 'change' changed the arguments, and they are not valid" in text) is not is_saved


def test_a_person_is_asked_about_the_changed_arguments() -> None:
    asked: list[Any] = []

    def approve(request: PermissionRequest) -> Answer:
        asked.append(dict(request.arguments))
        return Answer.ONCE

    agent = make(SAVE, "done", policy=rules("ask write"), approve=approve)
    agent.before_call(lambda ctx: HookDecision(arguments={"path": "b.txt"}))
    assert told(agent.run_sync("go"))[0].startswith("saved b.txt")
    assert asked == [{"path": "b.txt", "times": 1}]


def test_a_hook_cannot_change_arguments_behind_the_check() -> None:
    agent = make(SAVE, "done")

    @agent.before_call
    def change(ctx: ToolContext) -> None:
        ctx.arguments["path"] = "secret/a.txt"  # type: ignore[index]

    (text,) = told(agent.run_sync("go"))
    assert "asking the before_call hook 'change': it failed: TypeError" in text


def _change_path(path: str) -> Callable[[ToolContext], HookDecision]:
    return lambda ctx: HookDecision(arguments={"path": path})


def test_results_are_labelled_by_the_arguments_that_ran(tmp_path: Path) -> None:
    from forge.permissions.labels.settings import LabelSettings

    @tool(permissions={"read"}, target="path")
    def load(path: str) -> str:
        """Load a file."""
        return f"content of {path}"

    labels = LabelSettings(untrusted=("path:downloads/**",))
    for path, labelled in (("downloads/mail", True), ("notes/mail", False)):
        agent = make(ToolCall("load", {"path": "notes/a"}), "ok", tools=[load], labels=labels)
        agent.before_call(_change_path(path))
        result = agent.run_sync("go", scope=Scope(workspace=tmp_path))
        (message,) = [one for one in result.messages if one.role == "tool"]
        assert bool(message.extra.get("labels")) is labelled


def test_after_call_changes_withholds_and_adds() -> None:
    agent = make([SAVE, ToolCall("shell", {"line": "make"}), ToolCall("save", {"path": "c"})], "done")

    @agent.after_call
    async def look(ctx: ToolContext, result: ToolResult) -> HookDecision | None:
        if ctx.call.name == "shell":
            return HookDecision(block="It printed a password.")
        if ctx.arguments["path"] == "c":
            return HookDecision(context="Run the tests next.")
        return HookDecision(result=result.for_llm.upper())

    first, withheld, added = told(agent.run_sync("go"))
    assert first == "SAVED A.TXT 1X"
    assert "withheld it: It printed a password." in withheld
    assert "The call was made" in withheld
    assert "ran make" not in withheld
    assert added == "saved c 1x\n[The hook 'look' adds: Run the tests next.]"


@pytest.mark.parametrize(
    ("said", "is_kept"),
    [(HookDecision(result="[gone]"), False), (HookDecision(block="no"), False), (HookDecision(context="ok"), True)],
)
async def test_data_title_and_failure_do_not_repeat_a_replaced_result(said: HookDecision, *, is_kept: bool) -> None:
    @tool
    def look_up(fails: bool) -> ToolResult:
        """Look up a person."""
        if fails:
            raise ToolError("4111 is locked")
        return ToolResult(
            for_llm="4111", for_user="4111", title="4111", data={"card": "4111", "cost": "4111", "stop_reason": "4111"}
        )

    agent = make("done", tools=[look_up])
    agent.after_call(lambda ctx, result: said)
    for fails in (False, True):
        result = await agent.call("look_up", {"fails": fails})
        parts = [result.for_llm, result.for_user, result.title, result.data, result.failure and result.failure.text()]
        assert ("4111" in str(parts)) == is_kept
        assert result.is_error == (fails or said.block is not None)


def test_a_script_reads_the_replaced_result_and_not_its_data() -> None:
    @tool
    def look_up() -> dict[str, str]:
        """Look up a person."""
        return {"card": "4111"}

    script = ToolCall("run_code", {"code": "print(await look_up())"})
    for said, word in ((HookDecision(result="[gone]"), "[gone]"), (None, "4111")):
        agent = make(script, "done", tools=[look_up], code_mode=True)
        agent.after_call(match="look_up")(always(said))
        text = str(told(agent.run_sync("go")))
        assert [one for one in ("4111", "[gone]") if one in text] == [word]


def test_an_empty_block_refuses_everywhere() -> None:
    for block in ("", " ", None):
        said = HookDecision(block=block)
        agent = make(SAVE, "done")
        agent.before_call(always(said))
        assert ("saved" not in told(agent.run_sync("go"))[0]) == (block is not None)
        agent = make(SAVE, "done")
        agent.after_call(always(said))
        assert ("saved" not in told(agent.run_sync("go"))[0]) == (block is not None)
        agent = make("done")
        agent.before_turn(always(said))
        assert (agent.run_sync("go").reason == "error") == (block is not None)
        agent = make(*["done"] * 9)
        agent.on_end(always(said))
        result = agent.run_sync("go")
        assert ("no reason is given" in str(result.error)) == (block is not None)


def test_after_call_sees_errors_and_refusals_and_no_secret() -> None:
    @tool
    def leak() -> str:
        """Show the environment."""
        return "token hunter2hunter2"

    calls = [ToolCall("save", {}), ToolCall("save", {"path": "secret/x"}), ToolCall("leak")]
    agent = make(calls, "done", tools=[save, leak], secrets=["hunter2hunter2"])
    seen: list[tuple[bool, str]] = []
    agent.after_call(lambda ctx, result: seen.append((result.is_error, result.for_llm)))
    agent.run_sync("go")
    assert [failed for failed, _ in seen] == [True, True, False]
    assert "denied by the rule" in seen[1][1]
    assert "hunter2" not in seen[2][1]


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def _hang(_: object) -> None:
    threading.Event().wait(30)


async def _hang_async(_: object) -> None:
    await asyncio.Event().wait()


async def _cancel(_: object) -> None:
    raise asyncio.CancelledError


def _exit(_: object) -> None:
    raise SystemExit(1)


NONSENSE: list[Callable[..., Any]] = [
    _fail,
    _cancel,
    _exit,
    lambda ctx: {"block": "no"},
    lambda ctx: True,
    lambda ctx: HookDecision(result="what the tool never said"),
    lambda ctx: HookDecision(prompt="x"),
    lambda ctx: HookDecision(arguments=[1]),  # type: ignore[arg-type]
    lambda ctx: HookDecision(block=7),  # type: ignore[arg-type]
    _hang,
    _hang_async,
]


@pytest.mark.parametrize("hook", NONSENSE)
def test_a_hook_that_fails_hangs_or_talks_nonsense_refuses_the_call(hook: Callable[..., Any]) -> None:
    agent = make(SAVE, "done")
    agent.before_call(timeout=0.05, name="gate")(hook)
    (text,) = told(agent.run_sync("go"))
    assert text.startswith("save(path=\"a.txt\"): asking the before_call hook 'gate': it ")
    assert text.endswith("The person can fix the hook.")
    agent = make(SAVE, "done")
    agent.before_call(timeout=5, name="gate")(lambda ctx: None)  # the twin
    assert told(agent.run_sync("go")) == ["saved a.txt 1x"]


def test_a_broken_hook_after_a_call_withholds_the_result() -> None:
    agent = make(SAVE, "done")
    agent.after_call(name="look")(_fail)
    (text,) = told(agent.run_sync("go"))
    assert "asking the after_call hook 'look': it failed: ZeroDivisionError" in text
    assert "saved" not in text


@pytest.mark.parametrize(
    ("match", "seen"),
    [
        ("save", ["save"]),
        (["sh*"], ["shell"]),
        ("tool:SAVE", ["save"]),
        ("write", ["save"]),
        ("write other/**", []),
        ("execute rm *", ["shell"]),
        ("execute git *", []),
        (["write *.txt", "execute rm *"], ["save", "shell"]),
        ((), ["save", "shell"]),
        ("*", ["save", "shell"]),
    ],
)
def test_a_hook_is_about_the_tools_and_targets_that_it_names(match: Any, seen: list[str]) -> None:
    agent, found = make([SAVE, ToolCall("shell", {"line": "rm -rf x"})], "done"), list[str]()
    agent.before_call(match=match)(lambda ctx: found.append(ctx.call.name))
    agent.run_sync("go")
    assert found == seen


@pytest.mark.parametrize("match", ["wriet src/**", "", "allow write", "network not a host"])
def test_a_pattern_that_cannot_be_read_is_an_error_at_once(match: str) -> None:
    with pytest.raises(DefinitionError, match="reading the pattern"):
        make().before_call(match=match)(lambda ctx: None)


@pytest.mark.parametrize("timeout", [-1, 0, "5", None, True, float("nan"), float("inf")])
def test_a_wrong_timeout_is_an_error_at_once(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="timeout"):
        make().before_call(timeout=timeout)(lambda ctx: None)
    make().before_call(timeout=0.5)(lambda ctx: None)


def test_a_function_with_other_parameters_is_an_error_at_once() -> None:
    none: Callable[..., Any] = lambda: None  # noqa: E731
    two: Callable[..., Any] = lambda ctx, result: None  # noqa: E731
    for add in (make().before_call, make().before_turn, make().on_end):
        for wrong in (none, two):
            with pytest.raises(DefinitionError, match="is called as"):
                add(wrong)
        add(always(None))
    with pytest.raises(DefinitionError, match="is called as"):
        make().after_call(none)
    make().after_call(two)


def test_turns_have_no_pattern() -> None:
    with pytest.raises(DefinitionError, match=r"such as `execute git push \*`"):
        make().before_call(match="bash git push")(lambda ctx: None)
    make().before_call(match="execute git push *")(lambda ctx: None)  # the twin
    with pytest.raises(DefinitionError, match="only hooks of calls"):
        make().before_turn(match="bash")(lambda ctx: None)


def test_a_tool_that_is_called_through_another_meets_the_hooks_by_its_own_name() -> None:
    class Relay(Tool, name="relay", permissions={"execute"}):
        """Call a tool of elsewhere."""

        async def run(self, ctx: ToolContext, path: str) -> str:
            parsed = await authorize_inner(save, save.parse({"path": path}), ctx, "path")
            return f"relayed {parsed['path']}"

    def run(path: str, decision: HookDecision) -> str:
        agent = make(ToolCall("relay", {"path": path}), "done", tools=[Relay()])
        agent.before_call(match="write a*", name="check")(lambda ctx: decision)
        return told(agent.run_sync("go"))[0]

    assert "the hook 'check' refused it: no" in run("a.txt", HookDecision(block="no"))
    assert "deny write secret/**" in run("a.txt", HookDecision(arguments={"path": "secret/x"}))
    assert run("a.txt", HookDecision(arguments={"path": "b"}, context="moved")).startswith("relayed b")
    assert run("b.txt", HookDecision(block="no")) == "relayed b.txt"


def test_sub_agents_have_the_hooks_of_calls_and_their_own_turns() -> None:
    order = ToolCall("task", {"description": "save it", "prompt": "save", "agent_type": "writer"})
    agent = make(order, SAVE, "saved", "done", tools=[save], agents={"writer": AgentType(tools=("save",))})
    calls, turns = list[str](), list[str]()
    agent.before_call(lambda ctx: calls.append(f"{ctx.scope.agent} {ctx.call.name}"))
    agent.before_turn(lambda ctx: turns.append(ctx.scope.agent))
    agent.run_sync("go")
    assert calls == ["main task", "main/writer save"]
    assert turns == ["main", "main"]


def test_a_copy_and_an_override_keep_the_hooks_and_add_their_own() -> None:
    agent = make(SAVE, "done", SAVE, "done", SAVE, "done")
    agent.before_call(name="first")(lambda ctx: None if ctx.arguments["path"] != "a.txt" else HookDecision(block="no"))
    other = agent.replace(name="other")
    other.before_call(name="second")(lambda ctx: HookDecision(block="also no"))
    assert "'first' refused" in told(agent.run_sync("go"))[0]
    with agent.override(policy=rules("allow write")):
        assert "'first' refused" in told(agent.run_sync("go"))[0]
    other.before_call(match="shell", name="third")(lambda ctx: None)
    assert [hook.name for hook in agent._hooks.all] == ["first"]


def test_other_steps_do_not_lose_the_hooks() -> None:
    agent = make(SAVE, "done", SAVE, "done")
    agent.before_call(name="first")(lambda ctx: HookDecision(block="no"))
    other = agent.replace(steps=standard_steps(agent.gate, agent.secrets))
    assert "'first' refused" in told(other.run_sync("go"))[0]
    fresh = make()
    fresh.before_call(name="fresh")(lambda ctx: HookDecision(block="no"))
    assert "'fresh' refused" in told(agent.replace(steps=fresh.steps).run_sync("go"))[0]


def test_a_hook_may_repeat_the_arguments_of_a_reshaped_tool_and_not_free_the_fixed_ones() -> None:
    made = save.reshaped(name="store", rename={"path": "file"}, fixed={"times": 3})
    call = ToolCall("store", {"file": "a.txt"})
    for change, text in (({"file": "b.txt"}, "saved b.txt 3x"), ({"file": "b.txt", "times": 9}, "not valid")):
        agent = make(call, "done", tools=[made])

        @agent.before_call
        def rename(ctx: ToolContext, change: dict[str, Any] = change) -> HookDecision:
            return HookDecision(arguments={**ctx.arguments, **change})

        assert text in told(agent.run_sync("go"))[0]


# Turns.


def test_before_turn_changes_the_prompt_and_adds_context() -> None:
    asked: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        asked.append([message.text for message in request.messages])
        return "hello"

    agent = make(answer, answer)

    @agent.before_turn
    def mask(ctx: TurnContext) -> HookDecision | None:
        if "4111" not in ctx.prompt:
            return None
        return HookDecision(prompt=ctx.prompt.replace("4111", "[card]"), context="The shop closes at six.")

    result = agent.run_sync("My card is 4111.")
    assert "4111" not in str(asked)
    assert asked[0][1:] == [
        "My card is [card].",
        "[This is not from the person: the hook 'mask' adds it.]\nThe shop closes at six.",
    ]
    assert [one.text for one in result.messages if "card" in one.text] == ["My card is 4111.", "My card is [card]."]
    agent.run_sync("And now?", history=result.messages)
    assert "4111" not in str(asked)
    assert asked[1][-1] == "And now?"


def test_a_changed_prompt_stays_changed_in_a_stored_session(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(str([message.text for message in request.messages]))
        return "hello"

    for prompt in ("I am 4111.", "Who am I?"):
        agent = make(answer)
        agent.before_turn(lambda ctx: HookDecision(prompt="I am Ada.") if "4111" in ctx.prompt else None)
        with SessionStore(tmp_path / "sessions.db") as store:
            agent.run_sync(prompt, session="ada", store=store)
    assert "I am Ada." in asked[1]
    assert "4111" not in asked[1]


async def speak_meanwhile(agent: Agent[Any], *words: str) -> RunResult[Any]:
    """Runs an agent whose first call hears the person say more, and leaves a background result after it."""

    @tool
    async def listen(ctx: ToolContext) -> ToolResult:
        """Listen."""
        for word in words:
            run.send(word)

        async def work() -> str:
            return "the work is done"

        return ctx.background(work(), "started")

    agent = agent.replace(tools=ToolRegistry([listen]))
    run = agent.start("My card is 4111.")
    return await run


def mask_cards(ctx: TurnContext) -> HookDecision | None:
    return HookDecision(prompt=ctx.prompt.replace("4111", "[card]")) if ctx.prompt else None


async def test_before_turn_sees_all_that_the_person_said_since_the_last_turn() -> None:
    asked: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        asked.append([one.text for one in request.messages if one.role == "user" and "[card]" in one.text])
        assert "4111" not in str(request.messages)
        return "hello"

    agent = make(ToolCall("listen"), *[answer] * 4)
    agent.before_turn(mask_cards)
    result = await speak_meanwhile(agent, "No, it is 4111 1.", "Also [card] 2.", "Or 4111 3.")
    assert result.reason == "answer"
    wanted = ["My card is [card].", "No, it is [card] 1.", "Also [card] 2.", "Or [card] 3."]  # in the person's order
    assert asked[-1] == wanted
    await agent.run("And now?", history=result.messages)
    assert asked[-1] == wanted


@pytest.mark.parametrize("word", ["FORBIDDEN", "allowed"])
async def test_before_turn_blocks_a_message_that_is_not_the_last(word: str) -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(str([one.text for one in request.messages]))
        return "hello"

    agent = make(ToolCall("listen"), *[answer] * 4)
    agent.before_turn(lambda ctx: HookDecision(block="Not that.") if "FORBIDDEN" in ctx.prompt else None)
    result = await speak_meanwhile(agent, f"{word} things", "thanks")
    assert (result.reason == "error") == (word == "FORBIDDEN")
    again = await agent.replace(model=Scripted(answer)).run("Go on.", history=result.messages)
    assert again.reason == "answer"  # the refused message does not refuse all later ones
    assert ("allowed things" in asked[-1], "FORBIDDEN" in asked[-1]) == (word == "allowed", False)
    assert "thanks" in asked[-1]


async def test_a_background_result_does_not_hide_the_prompt_of_a_run() -> None:
    seen: list[str] = []
    agent = make(*["hello"] * 3)
    agent.before_turn(lambda ctx: seen.append(ctx.prompt))
    background = Message("user", "[over]", extra={BACKGROUND: "1"})
    for history in ([Message("user", "Hi"), background], [background]):
        await agent.run(history=history)
    assert seen == ["Hi", ""]


def test_before_turn_sees_the_run_and_can_end_it() -> None:
    agent = make(SAVE, "done", deps_type=str)
    seen: list[tuple[int, str, int, str]] = []

    @agent.before_turn
    async def look(ctx: TurnContext[str]) -> HookDecision | None:
        seen.append((ctx.turn, ctx.prompt, len(ctx.messages), ctx.deps))
        return HookDecision(block="The budget is spent.") if ctx.turn == 2 else None

    result = agent.run_sync("go", deps="Ada")
    assert seen == [(1, "go", 1, "Ada"), (2, "", 3, "Ada")]
    assert result.error is not None
    assert (result.reason, result.error.message) == ("error", "the hook 'look' refused turn 2: The budget is spent.")


def test_a_broken_hook_before_a_turn_ends_the_run_before_the_model_is_asked() -> None:
    hooks: list[Callable[[TurnContext], Any]] = [
        _fail,
        _exit,
        lambda ctx: HookDecision(result="x"),
        lambda ctx: HookDecision(prompt="x"),
    ]
    for hook in hooks:
        agent = make(SAVE, "done")

        @agent.before_turn
        def broken(ctx: TurnContext, hook: Callable[[TurnContext], Any] = hook) -> Any:
            return hook(ctx) if ctx.turn == 2 else None

        result = agent.run_sync("go")
        assert (result.reason, result.turns) == ("error", 1)
        assert result.error is not None
        assert "'broken'" in result.error.message


def test_on_end_sends_the_model_back_until_it_is_done() -> None:
    agent = make("Done.", SAVE, "Really done.")
    saved: list[str] = []
    agent.after_call(lambda ctx, result: saved.append(ctx.call.name))

    @agent.on_end
    def check(ctx: TurnContext) -> None:
        if not saved:
            raise Retry(f"You said {ctx.answer!r}, and nothing is saved.")

    result = agent.run_sync("Save it.")
    assert (result.text, result.reason, result.turns) == ("Really done.", "answer", 3)
    assert result.messages[2].text.endswith("You said 'Done.', and nothing is saved.")


def test_on_end_is_bounded_and_calls_do_not_reset_it() -> None:
    agent = make(*[part for at in range(20) for part in (ToolCall("save", {"path": f"{at}.txt"}), "Done.")])
    agent.on_end(name="never")(lambda ctx: HookDecision(block="No."))
    result = agent.run_sync("go")
    assert result.reason == "error"
    assert result.error is not None
    assert result.error.message.startswith("the model was sent back 5 times, and its answer is still refused")
    assert result.turns == 12


def test_on_end_checks_task_completion_and_structured_answers() -> None:
    agent = make(ToolCall("task_completion", {"result": "first"}), ToolCall("task_completion", {"result": "second"}))
    agent.on_end(lambda ctx: HookDecision(block="Not yet.") if ctx.answer == "first" else None)
    result = agent.run_sync("go")
    assert (result.text, result.reason, result.turns) == ("second", "task_completion", 2)
    typed = make(*[ToolCall("final_answer", {"value": number}) for number in (1, 2)], "gave up", output=int)
    typed.on_end(lambda ctx: HookDecision(block="Too small.") if ctx.answer == "1" else None)
    assert typed.run_sync("go").output == 2


def test_a_refused_structured_answer_is_not_the_output() -> None:
    from forge import Limits

    agent = make(ToolCall("final_answer", {"value": 1}), SAVE, SAVE, output=int, limits=Limits(turns=2))
    agent.on_end(lambda ctx: HookDecision(block="Too small."))
    result = agent.run_sync("go")
    assert (result.reason, result.output_or_none, result.has_output) == ("max_turns", None, False)


def test_a_question_to_the_person_is_no_end() -> None:
    agent, ends = make(ToolCall("ask_question", {"question": "Which file?"})), list[str]()
    agent.on_end(lambda ctx: ends.append(ctx.answer))
    assert agent.run_sync("go").reason == "question"
    assert ends == []


def test_words_to_the_person_are_an_end() -> None:
    agent = make(*[ToolCall("converse", {"message": word}) for word in ("first", "second")])
    agent.on_end(lambda ctx: HookDecision(block="Not yet.") if ctx.answer == "first" else None)
    result = agent.run_sync("go")
    assert (result.text, result.reason, result.turns) == ("second", "converse", 2)


def test_a_broken_check_of_the_end_is_no_success() -> None:
    agent = make("Done.")
    agent.on_end(name="check")(_fail)
    result = agent.run_sync("go")
    assert result.reason == "error"
    assert result.error is not None
    assert "asking the on_end hook 'check': it failed" in result.error.message


# The tools of a turn.


def test_the_model_gets_the_tools_that_are_chosen_for_a_turn() -> None:
    offered: list[list[str]] = []

    def note(*parts: Any) -> Callable[[ModelRequest], Any]:
        def turn(request: ModelRequest) -> Any:
            assert [one["name"] for one in request.definitions("anthropic")] == [spec.name for spec in request.tools]
            offered.append([spec.name for spec in request.tools if not spec.only_talks])
            return list(parts)

        return turn

    def choose(ctx: TurnContext[str]) -> list[str]:
        assert ctx.deps == "Ada"
        assert ctx.messages[0].text == "go"
        return ["save"] if ctx.turn == 1 else ["shell"]

    script = [note(ToolCall("shell", {"line": "ls"}), SAVE), note(ToolCall("shell", {"line": "ls"})), note("done")]
    result = make(*script, choose_tools=choose).run_sync("go", deps="Ada")
    assert offered == [["save"], ["shell"], ["shell"]]
    refused, saved, ran = told(result)
    assert refused.startswith("shell: it is not offered in this turn\nUse one of: ask_question, converse, save")
    assert (saved, ran) == ("saved a.txt 1x", "ran ls")


def test_tools_are_chosen_from_those_that_the_model_would_see() -> None:
    async def choose(ctx: TurnContext[Any]) -> set[str]:
        return {name for name in ctx.tools if name != "shell"}

    result = make([SAVE, ToolCall("shell", {"line": "ls"})], "done", choose_tools=choose).run_sync("go")
    assert [text.partition("\n")[0] for text in told(result)] == [
        "saved a.txt 1x",
        "shell: it is not offered in this turn",
    ]


def test_a_hidden_tool_can_be_chosen() -> None:
    hidden = tool(name="rare", description="Rare.", hidden=True)(lambda: "found")
    seen: list[str] = []

    def turn(request: ModelRequest) -> Any:
        seen.extend(spec.name for spec in request.tools if spec.name == "rare")
        return ToolCall("rare")

    result = make(turn, "done", tools=[save, hidden], choose_tools=lambda ctx: ["rare"]).run_sync("go")
    assert (seen, told(result)) == (["rare"], ["found"])


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (lambda ctx: ["shel"], "the agent has no tool 'shel'"),
        (lambda ctx: "shell", "choose_tools returned 'shell'"),
        (lambda ctx: [save], "choose_tools returned"),
        (lambda ctx: 1 / 0, "choose_tools failed"),
        (lambda ctx: None, "choose_tools failed"),
        (_exit, "choose_tools failed: SystemExit"),
        (_cancel, "choose_tools failed: CancelledError"),
    ],
)
def test_a_choice_that_cannot_be_used_ends_the_run(chosen: Callable[..., Any], problem: str) -> None:
    result = make(SAVE, "done", choose_tools=chosen).run_sync("go")
    assert (result.reason, result.turns) == ("error", 0)
    assert result.error is not None
    assert problem in result.error.message
    assert result.error.suggestion


def test_a_choice_that_hangs_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forge.agent.hooks.TIMEOUT", 0.05)

    async def hang(ctx: TurnContext) -> list[str]:
        await asyncio.Event().wait()
        return []

    result = make("done", choose_tools=hang).run_sync("go")
    assert result.error is not None
    assert "choose_tools gave no answer within 0.05 s" in result.error.message


def test_a_structured_answer_is_possible_whatever_is_chosen() -> None:
    assert (
        make(ToolCall("final_answer", {"value": 7}), output=int, choose_tools=lambda ctx: []).run_sync("go").output == 7
    )


def test_scripts_call_only_chosen_tools() -> None:
    pytest.importorskip("pydantic_monty")
    code = "await shell(line='ls')"
    for chosen, text in ((["save"], "shell is not offered in this turn"), (["shell"], "ran ls")):
        agent = make(
            ToolCall("run_code", {"code": code}), "done", code_mode=True, choose_tools=lambda ctx, chosen=chosen: chosen
        )
        assert text in told(agent.run_sync("go"))[0]


async def test_another_attempt_at_a_stored_run_gets_the_recorded_decisions() -> None:
    recorded: dict[tuple[str, int], Any] = {}

    async def attempt(agent: Agent[Any]) -> list[str]:
        numbers = count()

        async def record(name: str, ask: Callable[[], Any]) -> Any:
            key = (name, next(numbers))
            if key not in recorded:
                recorded[key] = json.loads(json.dumps(await ask()))
            return recorded[key]

        conversation = agent.begin("go")
        await agent.drive(agent.executor, conversation, Scope(), LoopSettings(record=record))
        return [message.text for message in conversation.messages]

    def make_agent(word: str, tools: list[str]) -> Agent[Any]:
        agent = make([SAVE, ToolCall("shell", {"line": "ls"})], "Done.", "Done.", choose_tools=lambda ctx: tools)
        agent.before_turn(name="turn")(
            lambda ctx: HookDecision(context=word, prompt=f"go {word}") if ctx.prompt else None
        )
        agent.on_end(name="end")(lambda ctx: HookDecision(block=word) if len(ctx.messages) < 9 else None)
        return agent

    first = await attempt(make_agent("first", ["save"]))
    assert "go first" in first
    assert await attempt(make_agent("second", ["shell"])) == first
    recorded.clear()
    assert "go second" in await attempt(make_agent("second", ["shell"]))  # the twin: nothing is recorded
