"""The gate: denies before anyone is asked, one question for the rest, answers bound to the arguments."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import PermissionAnswered, PermissionAsked
from forge.core.messages import ToolCall
from forge.core.spec import Permission
from forge.core.tool import tool
from forge.permissions.gate import Answer, Grant, PolicyGate, approve_all, nobody
from forge.permissions.policy import Decision, PermissionRequest, Ruling, layered, rules
from forge.permissions.questions import request_text
from forge.tools.conversation import converse


@tool(permissions={"write"}, target="path")
def save(path: str, text: str = "") -> str:
    """Save a text."""
    return f"{path}: {text}"


@tool(permissions={"read", "write"}, target="sources destination")
def merge(sources: list[str], destination: Path, count: int = 1) -> str:
    """Merge files."""
    return ""


@tool(permissions={"execute"}, target="command")
def shell(command: str) -> str:
    """Run a line."""
    return command


@tool(permissions={"network"}, target="url")
def get(url: str) -> str:
    """Get it."""
    return url


@tool(confirm=True)
def launch(what: str) -> str:
    """Launch it."""
    return what


@tool
def plain(text: str = "") -> str:
    """Do nothing to the world."""
    return text


class Person:
    """An approver that gives its answers in turn, the last one again and again, and notes what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[PermissionRequest] = []

    async def __call__(self, request: PermissionRequest) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer(request) if callable(answer) else answer


def context(made: Any, workspace: Path = Path("/nowhere"), session: str = "s", **arguments: Any) -> ToolContext:
    return ToolContext(
        ToolCall(made.spec.name, arguments),
        made,
        arguments=made.parse(arguments),
        scope=Scope(workspace=workspace, session_id=session),
        activity=ActivityStream(),
    )


async def refusal(gate: PolicyGate, ctx: ToolContext) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await gate.authorize(ctx)
    return caught.value


async def test_nobody_to_ask_means_no_and_says_what_would_allow_it():
    error = await refusal(PolicyGate(), context(save, path="a"))
    assert error.kind is ErrorKind.PERMISSION
    assert "there is no one to ask" in error.message
    assert "`allow write a`" in error.suggestion
    assert "--yes" in error.suggestion
    await PolicyGate(rules("allow write a")).authorize(context(save, path="a"))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://Api.Example.com/a?b=c", "allow network api.example.com"),
        ("http://127.0.0.1:8080/", "allow network 127.0.0.1:8080"),
        ("http://[::1]:8080/", "allow network [::1]:8080"),
        ("http://a b/", "allow network"),  # no host: no narrower rule can allow it
    ],
)
async def test_the_rule_that_would_allow_a_url_is_one_that_does(url, rule):
    error = await refusal(PolicyGate(), context(get, url=url))
    assert f"`{rule}`" in error.suggestion
    await PolicyGate(rules(rule)).authorize(context(get, url=url))


async def test_a_deny_names_the_rule_and_the_setting_and_asks_nobody():
    person = Person(Answer.ONCE)
    policy = layered(organisation=["deny write secrets/**"], session=["allow write"])
    error = await refusal(PolicyGate(policy, person), context(save, path="secrets/x"))
    assert "`deny write secrets/**`" in error.message
    assert "organisation" in error.suggestion
    assert "`allow write secrets/x`" in error.suggestion
    assert person.asked == []
    await PolicyGate(policy, person).authorize(context(save, path="public/x"))


async def test_one_denied_target_refuses_the_call_before_anyone_is_asked():
    person = Person(Answer.ONCE)
    gate = PolicyGate(rules("deny read secrets/**"), person)
    await refusal(gate, context(merge, sources=["a", "b", "./secrets/x"], destination="out"))
    assert person.asked == []
    await gate.authorize(context(merge, sources=["a", "b"], destination="out"))
    assert len(person.asked) == 1


async def test_all_that_asks_is_one_question():
    person = Person(Answer.ONCE)
    gate = PolicyGate(rules("ask *", "allow read b"), person)
    await gate.authorize(context(merge, sources=["a", "b", "a"], destination="out"))
    (request,) = person.asked
    asked = [(part.permission, part.target) for part in request.parts]
    assert asked == [("read", "a"), ("read", "out"), ("write", "a"), ("write", "b"), ("write", "out")]
    assert request.ruling is not None
    assert request.ruling.rule == "ask *"


async def test_too_many_targets_are_refused():
    error = await refusal(
        PolicyGate(rules("allow *")), context(merge, sources=[f"f{n}" for n in range(1_001)], destination="x")
    )
    assert "1,002 targets" in error.message
    await PolicyGate(rules("allow *")).authorize(context(merge, sources=[f"f{n}" for n in range(900)], destination="x"))


async def test_a_tool_without_targets_is_judged_by_its_permission():
    @tool(permissions={"write"})
    def sweep() -> None:
        """Sweep."""

    await PolicyGate(rules("allow write", "deny write secrets/**")).authorize(context(sweep))
    await refusal(PolicyGate(rules("allow write src/**")), context(sweep))


async def test_a_refusal_carries_the_feedback_to_the_model():
    error = await refusal(PolicyGate(approve=Person(Answer.no("use the other file"))), context(save, path="a"))
    assert error.kind is ErrorKind.PERMISSION
    assert error.message == "the person refused write a: use the other file"
    assert "refused" in (await refusal(PolicyGate(approve=Person(Answer.NO)), context(save, path="a"))).message


async def test_once_is_asked_again_and_always_is_not():
    person = Person(Answer.ONCE, Answer.ALWAYS)
    gate = PolicyGate(approve=person)
    for expected in (1, 2, 2, 2):
        await gate.authorize(context(save, path="a", text=str(expected)))
        assert len(person.asked) == expected
    await gate.authorize(context(save, path="b"))
    assert len(person.asked) == 3


async def test_always_is_for_one_session_and_can_be_forgotten():
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(approve=person)
    await gate.authorize(context(save, path="a"))
    await gate.authorize(context(save, path="a", session="other"))
    assert len(person.asked) == 2
    assert gate.remembered("s") == ["allow write a"]
    gate.forget("s")
    assert (gate.remembered("s"), gate.remembered("other")) == ([], ["allow write a"])
    await gate.authorize(context(save, path="a"))
    assert len(person.asked) == 3
    gate.forget()
    assert gate.remembered("other") == []


async def test_always_loosens_asks_and_never_denies():
    allowed = True

    def policy(request: PermissionRequest) -> Decision:
        return Decision.ASK if allowed else Decision.DENY

    gate = PolicyGate(policy, Person(Answer.ALWAYS))
    await gate.authorize(context(save, path="a"))
    allowed = False
    assert "denied" in (await refusal(gate, context(save, path="a"))).message


async def test_always_for_a_command_covers_its_prefix_and_no_opaque_line():
    person = Person(Answer.ALWAYS, Answer.NO)
    gate = PolicyGate(approve=person)
    await gate.authorize(context(shell, command="git log -1"))
    await gate.authorize(context(shell, command="git log -2"))
    for command in ("git push", "git log; rm x", "git log $(x)", "sudo git log"):
        await refusal(gate, context(shell, command=command))


async def test_a_remembered_path_that_became_a_link_is_asked_about_again(tmp_path):
    person = Person(Answer.ALWAYS, Answer.NO)
    gate = PolicyGate(approve=person)
    await gate.authorize(context(save, tmp_path, path="x"))
    await gate.authorize(context(save, tmp_path, path="x"))
    (tmp_path / "x").symlink_to("/etc/passwd")
    await refusal(gate, context(save, tmp_path, path="x"))


async def test_confirm_asks_even_where_the_policy_allows():
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(rules("allow tool:launch"), person)
    for what, expected in (("a", 1), ("a", 1), ("b", 2)):
        await gate.authorize(context(launch, what=what))
        assert len(person.asked) == expected
    assert "confirmation" in str(person.asked[0].ruling)
    await refusal(PolicyGate(rules("allow tool:launch")), context(launch, what="a"))
    await refusal(PolicyGate(rules("deny tool:launch"), person), context(launch, what="a"))


async def test_an_edit_is_validated_judged_again_and_run():
    person = Person(Answer.edit({"path": "b", "text": "new"}))
    granted = await PolicyGate(approve=person).authorize(context(save, path="a", text="old"))
    assert granted.arguments == {"path": "b", "text": "new"}
    assert len(person.asked) == 1
    assert isinstance(granted.gate, Grant)
    assert granted.gate.edited == granted.arguments


async def test_an_edit_cannot_get_around_a_deny():
    gate = PolicyGate(rules("deny write secrets/**"), Person(Answer.edit({"path": "secrets/x"})))
    assert "`deny write secrets/**`" in (await refusal(gate, context(save, path="a"))).message
    gate = PolicyGate(rules("deny write secrets/**"), Person(Answer.edit({"path": "public/x"})))
    assert (await gate.authorize(context(save, path="a"))).arguments["path"] == "public/x"


async def test_an_edit_that_does_not_fit_is_refused_in_words():
    for wrong in ({"path": 5.5}, {}, {"path": "a", "nonsense": 1}):
        error = await refusal(PolicyGate(approve=Person(Answer.edit(wrong))), context(save, path="a"))
        assert "the person changed the arguments, and they are not valid" in error.message
        assert error.kind is ErrorKind.VALIDATION


async def test_an_edit_that_had_to_be_mended_is_shown_again():
    person = Person(Answer.edit({"sources": "a", "destination": "b", "count": "2"}), Answer.ONCE)
    granted = await PolicyGate(approve=person).authorize(context(merge, sources=["x"], destination="y"))
    assert len(person.asked) == 2
    assert person.asked[1].arguments["sources"] == ["a"] == granted.arguments["sources"]
    assert granted.arguments["count"] == 2


async def test_an_edit_that_brings_in_what_was_never_shown_is_shown_again():
    person = Person(Answer.edit({"path": "b"}), Answer.ONCE)
    granted = await PolicyGate(approve=person).authorize(context(save, path="a", text="old"))
    assert granted.arguments == {"path": "b", "text": ""}
    assert [request.arguments["text"] for request in person.asked] == ["old", ""]


async def test_the_same_edit_again_is_a_yes():
    person = Person(Answer.edit({"sources": "a", "destination": "b"}))
    granted = await PolicyGate(approve=person).authorize(context(merge, sources=["x"], destination="y"))
    assert granted.arguments["sources"] == ["a"]
    assert len(person.asked) == 2


async def test_editing_without_end_is_ended():
    numbers = iter(range(100))
    person = Person(lambda request: Answer.edit({"sources": f"a{next(numbers)}", "destination": "b"}))
    assert (
        "5 questions"
        in (await refusal(PolicyGate(approve=person), context(merge, sources=["x"], destination="y"))).message
    )
    assert len(person.asked) == 5


async def test_a_yes_to_other_arguments_does_not_count_after_an_edit(tmp_path):
    def swap(request: PermissionRequest) -> Answer:
        (tmp_path / "x").symlink_to("elsewhere")
        return Answer.ONCE

    def swap_back(request: PermissionRequest) -> Answer:
        (tmp_path / "x").unlink()
        return Answer.edit({"path": "x"})

    person = Person(swap, swap_back, Answer.NO)
    await refusal(PolicyGate(approve=person), context(save, tmp_path, path="x", text="shown"))
    assert [request.arguments["text"] for request in person.asked] == ["shown", "shown", ""]


async def test_an_edit_with_always_remembers_what_was_edited():
    person = Person(Answer("always", arguments={"path": "b", "text": ""}), Answer.NO)
    gate = PolicyGate(approve=person)
    await gate.authorize(context(save, path="a"))
    assert gate.remembered("s") == ["allow write b"]
    await gate.authorize(context(save, path="b"))
    await refusal(gate, context(save, path="a"))


async def test_arguments_that_change_while_the_person_reads_are_not_run():
    ctx = context(merge, sources=["a"], destination="b")

    def change(request: PermissionRequest) -> Answer:
        ctx.arguments["sources"].append("secrets")
        return Answer.ONCE

    error = await refusal(PolicyGate(approve=Person(change)), ctx)
    assert error.kind is ErrorKind.SECURITY
    assert "changed while the person was asked" in error.message


async def test_what_runs_is_out_of_reach_for_everyone_who_saw_it():
    ctx = context(merge, sources=["a"], destination="b")

    def scribble(request: PermissionRequest) -> Answer:
        request.arguments["sources"].append("secrets")
        with pytest.raises(TypeError):
            request.arguments["sources"] = []  # type: ignore[index]
        return Answer.ONCE

    person = Person(scribble)
    granted = await PolicyGate(approve=person).authorize(ctx)
    ctx.arguments["sources"].append("later")
    person.asked[0].arguments["sources"].append("much later")
    assert granted.arguments["sources"] == ["a"]


async def test_a_policy_function_cannot_change_what_runs():
    def policy(request: PermissionRequest) -> Decision:
        request.arguments["sources"].append("secrets")
        return Decision.ALLOW

    granted = await PolicyGate(policy).authorize(context(merge, sources=["a"], destination="b"))
    assert granted.arguments["sources"] == ["a"]


async def test_a_link_that_appears_while_the_person_reads_is_judged(tmp_path):
    (tmp_path / "secrets").mkdir()

    def swap(request: PermissionRequest) -> Answer:
        (tmp_path / "x").symlink_to("secrets/key")
        return Answer.ONCE

    gate = PolicyGate(rules("deny write secrets/**"), Person(swap))
    assert "denied" in (await refusal(gate, context(save, tmp_path, path="x"))).message


async def test_a_link_to_another_place_is_asked_about_again(tmp_path):
    def swap(request: PermissionRequest) -> Answer:
        (tmp_path / "x").symlink_to("elsewhere")
        return Answer.ONCE

    person = Person(swap, Answer.NO)
    await refusal(PolicyGate(approve=person), context(save, tmp_path, path="x"))
    assert len(person.asked) == 2


@pytest.mark.parametrize(
    "answer", [False, "once", "yes", None, 1, object(), Decision.ALLOW, ValueError("x"), SystemExit(0)]
)
async def test_an_approver_that_fails_or_talks_nonsense_means_no(answer):
    assert (await refusal(PolicyGate(approve=Person(answer)), context(save, path="a"))).kind is ErrorKind.PERMISSION


async def test_a_plain_function_may_answer_too():
    gate = PolicyGate(approve=lambda request: Answer.ONCE)
    await gate.authorize(context(save, path="a"))


async def test_true_is_a_yes_for_this_call_and_false_is_a_no():
    asked: list[str] = []

    def only_a(request: PermissionRequest) -> bool:
        asked.append(request.target)
        return request.target == "a"

    gate = PolicyGate(approve=only_a)
    for _ in range(2):
        await gate.authorize(context(save, path="a"))
    assert (await refusal(gate, context(save, path="b"))).kind is ErrorKind.PERMISSION
    assert asked == ["a", "a", "b"]


def test_an_answer_is_one_of_three():
    with pytest.raises(ValueError, match="once, always or no"):
        Answer("yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dictionary of arguments"):
        Answer("once", arguments=["a"])  # type: ignore[arg-type]


async def test_a_cancelled_question_cancels_the_call_and_is_answered_with_no():
    asked = asyncio.Event()
    events: list[Any] = []

    async def wait(request: PermissionRequest) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        return Answer.ONCE

    gate = PolicyGate(approve=wait)
    ctx = context(save, path="a")
    ctx.activity.subscribe(events.append)
    task = asyncio.create_task(gate.authorize(ctx))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(type(event), getattr(event, "answer", "")) for event in events] == [
        (PermissionAsked, ""),
        (PermissionAnswered, "no"),
    ]
    gate.approve = Person(Answer.ONCE)
    await gate.authorize(context(save, path="a"))


async def test_an_approver_that_was_cancelled_itself_means_no():
    error = await refusal(PolicyGate(approve=Person(asyncio.CancelledError())), context(save, path="a"))
    assert "without an answer" in error.message


async def test_an_always_answers_the_same_questions_that_wait():
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(approve=person)
    await asyncio.gather(*(gate.authorize(context(save, path="a", text=str(n))) for n in range(20)))
    assert len(person.asked) == 1


async def test_questions_of_one_session_come_one_after_another_and_do_not_hold_up_others():
    open_questions: dict[str, int] = {}
    most: dict[str, int] = {}
    both = asyncio.Barrier(2)

    async def approve(request: PermissionRequest) -> Answer:
        session = request.scope.session_id
        open_questions[session] = open_questions.get(session, 0) + 1
        most[session] = max(most.get(session, 0), open_questions[session])
        await both.wait()  # passes only if a question of the other session is open too
        open_questions[session] -= 1
        return Answer.ONCE

    gate = PolicyGate(approve=approve)
    calls = [context(save, path=f"{n}", session=session) for n in range(3) for session in "ab"]
    await asyncio.wait_for(asyncio.gather(*map(gate.authorize, calls)), 60)
    assert most == {"a": 1, "b": 1}


def test_one_gate_serves_several_event_loops_at_once():
    first_asks, go_on = threading.Event(), threading.Event()

    async def approve(request: PermissionRequest) -> Answer:
        if request.target == "first":
            first_asks.set()
            await asyncio.to_thread(go_on.wait, 10)
        return Answer.ONCE

    gate = PolicyGate(approve=approve)
    thread = threading.Thread(target=lambda: asyncio.run(gate.authorize(context(save, path="first"))))
    thread.start()
    assert first_asks.wait(60)

    async def crowd() -> None:
        await asyncio.gather(*(gate.authorize(context(save, path=f"{n}")) for n in range(5)))

    try:
        asyncio.run(asyncio.wait_for(crowd(), 60))
    finally:
        go_on.set()
        thread.join(60)
    asyncio.run(crowd())


async def test_an_approver_whose_own_calls_would_ask_does_not_wait_for_itself():
    async def approve(request: PermissionRequest) -> Answer:
        if request.target == "outer":
            await gate.require(context(save, path="x"), Permission.READ, "notes")
            await gate.authorize(context(save, path="inner", session="its own"))
            error = await refusal(gate, context(save, path="inner"))
            assert "its own session" in error.suggestion
        return Answer.ONCE

    gate = PolicyGate(approve=approve)
    await asyncio.wait_for(gate.authorize(context(save, path="outer")), 60)
    await gate.authorize(context(save, path="inner"))


async def test_events_say_what_was_asked_and_answered():
    for answer, said in (
        (Answer("once", by="ann"), "once"),
        (Answer.ALWAYS, "always"),
        (Answer.edit({"path": "a", "text": ""}), "edited"),
    ):
        events: list[Any] = []
        ctx = context(save, path="a")
        ctx.activity.subscribe(events.append)
        await PolicyGate(rules("ask write a"), Person(answer)).authorize(ctx)
        asked, answered = events
        assert (asked.permission, asked.target, asked.rule) == ("write", "a", "ask write a")
        assert (answered.answer, answered.by, answered.session) == (said, answer.by, "s")


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        (Answer.ONCE, True),
        (Answer.ALWAYS, True),
        (Answer.edit({"sources": ["a", "b"], "destination": "c", "count": 1}), True),
        (Answer.no("later", by="ann"), False),
        (ValueError("broken"), False),
    ],
)
async def test_one_question_is_one_pair_of_events_whatever_it_asks_for(answer, ends):
    """Of several permissions and targets, the first is named, and the others are in `others`."""
    events: list[Any] = []
    ctx = context(merge, sources=["a", "b"], destination="c")
    ctx.activity.subscribe(events.append)
    person = Person(answer)
    gate = PolicyGate(rules("ask read", "ask write"), person)
    if ends:
        await gate.authorize(ctx)
    else:
        await refusal(gate, ctx)
    assert [type(event) for event in events] == [PermissionAsked, PermissionAnswered]
    asked = events[0]
    parts = [(str(part.permission), part.target) for part in person.asked[0].parts]
    assert [(asked.permission, asked.target), *asked.others] == parts
    assert sorted(parts) == [(what, target) for what in ("read", "write") for target in ("a", "b", "c")]
    assert asked.to_dict()["others"] == [list(part) for part in parts[1:]]


async def test_an_edit_that_asks_again_is_a_second_pair_of_events():
    events: list[Any] = []
    ctx = context(save, path="a", text="1")
    ctx.activity.subscribe(events.append)
    person = Person(Answer.edit({"path": " b", "text": "2"}), Answer.ONCE)
    await PolicyGate(rules("ask write"), person).authorize(ctx)
    kinds = [type(event) for event in events]
    assert kinds == [PermissionAsked, PermissionAnswered] * len(person.asked)


@pytest.mark.parametrize(
    ("made", "arguments", "stored"),
    [
        (save, {"path": "big.txt", "text": "one"}, ["allow write big.txt"]),
        (save, {"path": "what[1]*.txt"}, ["allow write what[[]1][*].txt"]),
        (shell, {"command": "git log -1"}, ["allow execute git log *"]),
        (shell, {"command": "make all"}, ["allow execute make all"]),
        (get, {"url": "https://api.example.com/a"}, ["allow network api.example.com"]),
        (launch, {"what": "x"}, ["allow tool:launch with exactly these arguments"]),
        (
            merge,
            {"sources": ["a"], "destination": "b"},
            ["allow read a", "allow read b", "allow write a", "allow write b"],
        ),
    ],
)
async def test_a_question_shows_the_rules_that_always_stores_word_for_word(made, arguments, stored):
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(rules("ask *"), person)
    ctx = context(made, **arguments)
    await gate.authorize(ctx)
    (request,) = person.asked
    assert sorted(request.rules_to_remember) == sorted(gate.remembered("s")) == sorted(stored)
    assert request.remember.split("\n") == list(request.rules_to_remember)
    lines = request_text(request).split("\n")
    shown = lines[lines.index('"Always" stores, for this tool in this session:') + 1 :]
    assert shown == [f"  │ {rule}" for rule in request.rules_to_remember]
    await gate.authorize(context(made, **arguments))
    assert len(person.asked) == 1


async def test_what_no_person_can_read_is_not_stored():
    """With more rules than a question shows, "always" counts for this call."""
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(rules("ask write", "allow read"), person)
    many: Any = {"sources": [f"f{number}" for number in range(60)], "destination": "x"}
    await gate.authorize(context(merge, **many))
    assert (person.asked[0].remember, gate.remembered("s")) == ("", [])
    await gate.authorize(context(merge, sources=["a"], destination="b"))
    assert gate.remembered("s") == ["allow write a", "allow write b"]


async def test_yes_to_all_answers_asks_and_not_denies():
    gate = PolicyGate(rules("deny write secrets/**"), approve_all)
    await gate.authorize(context(save, path="a"))
    await refusal(gate, context(save, path="secrets/a"))
    assert gate.remembered("s") == []


async def test_a_policy_function_judges_every_tool_but_the_conversation():
    @tool(name="converse")
    def disguised(message: str) -> str:
        """Say."""
        return message

    seen: list[Any] = []

    def policy(request: PermissionRequest) -> Ruling:
        seen.append((request.spec.name, request.permission, request.target))
        return Ruling(Decision.DENY, "the full moon")

    gate = PolicyGate(policy)
    assert gate.concerns(plain.spec)
    assert not gate.concerns(converse.spec)
    assert "denied by the full moon" in (await refusal(gate, context(plain))).message
    await gate.authorize(context(converse, message="x"))
    assert seen == [("plain", None, "")]
    assert gate.concerns(disguised.spec)  # the name alone is not enough
    assert "denied by the full moon" in (await refusal(gate, context(disguised, message="x"))).message


@pytest.mark.parametrize("said", [None, "maybe", 3, True])
async def test_a_policy_that_says_nothing_clear_says_no(said):
    await refusal(PolicyGate(lambda request: said), context(plain))
    await PolicyGate(lambda request: Decision.ALLOW).authorize(context(plain))


async def test_a_policy_that_fails_says_no():
    def policy(request: PermissionRequest) -> Decision:
        raise RuntimeError("no idea")

    assert "RuntimeError" in (await refusal(PolicyGate(policy), context(plain))).message


async def test_what_was_granted_is_not_asked_again_while_the_tool_runs():
    person = Person(Answer.ONCE)
    granted = await PolicyGate(approve=person).authorize(context(save, path="a"))
    await granted.require("write", "a")
    assert len(person.asked) == 1
    await granted.require("write", "b")
    await granted.require("write", "b")
    assert len(person.asked) == 2


async def test_what_a_running_tool_requires_is_judged():
    granted = await PolicyGate(rules("deny read secrets/**"), Person(Answer.NO)).authorize(context(plain))
    await granted.require("read", "public")
    for permission, target in (("read", "secrets/x"), ("write", "x")):
        with pytest.raises(ToolError) as caught:
            await granted.require(permission, target)  # type: ignore[arg-type]
        assert caught.value.kind is ErrorKind.PERMISSION


async def test_a_grant_does_not_outlive_a_link(tmp_path):
    (tmp_path / "secrets").mkdir()
    granted = await PolicyGate(rules("deny write secrets/**"), Person(Answer.ONCE)).authorize(
        context(save, tmp_path, path="x")
    )
    await granted.require("write", "x")
    (tmp_path / "x").symlink_to("secrets/key")
    with pytest.raises(ToolError, match="denied"):
        await granted.require("write", "x")


async def test_arguments_in_use_cannot_be_edited():
    granted = await PolicyGate(approve=Person(Answer.edit({"text": "x"}))).authorize(context(plain))
    with pytest.raises(ToolError, match="already in use"):
        await granted.require("write", "x")


async def test_the_gate_itself_can_be_required():
    gate = PolicyGate(rules("allow read", "deny write"))
    await gate.require(context(plain), Permission.READ, "a")
    with pytest.raises(ToolError):
        await gate.require(context(plain), Permission.WRITE, "a")


async def test_arguments_that_cannot_be_shown_are_not_asked_about():
    ctx = context(save, path="a")
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    ctx.arguments = {"path": "a", "text": deep}
    assert "cannot be shown" in (await refusal(PolicyGate(approve=Person(Answer.ONCE)), ctx)).message


async def test_confirm_asks_whether_to_go_on():
    person = Person(Answer.ONCE, Answer.NO)
    gate = PolicyGate(approve=person)
    assert await gate.confirm(context(plain), "go on?")
    assert not await gate.confirm(context(plain), "go on?")
    assert person.asked[0].question == "go on?"
    assert not await PolicyGate(approve=nobody).confirm(context(plain), "go on?")


def test_which_tools_must_pass():
    @tool(optional_permissions={"read"})
    def maybe(path: str = "") -> str:
        """Read, perhaps."""
        return path

    gate = PolicyGate(rules("deny tool:plain_*"))
    assert [gate.concerns(made.spec) for made in (save, launch, maybe, plain)] == [True, True, True, False]
    assert PolicyGate(rules("deny tool:pl*")).concerns(plain.spec)


async def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("forge.permissions.remember.MOST_ANSWERS", 3)
    monkeypatch.setattr("forge.permissions.remember.MOST_SESSIONS", 2)
    gate = PolicyGate(approve=Person(Answer.ALWAYS))
    for session in "abc":
        for n in range(5):
            await gate.authorize(context(save, path=f"{n}", session=session))
    assert gate.remembered("a") == []
    assert gate.remembered("c") == ["allow write 2", "allow write 3", "allow write 4"]


class Changed(type(save)):  # type: ignore[misc]
    """A tool that is not what a person approved any more."""

    needs_person = True


async def test_what_needs_a_person_is_answered_by_no_rule_no_always_and_no_flag():
    changed = Changed(save.run, {"name": "save", "permissions": {"write"}, "target": "path"})
    error = await refusal(PolicyGate(rules("allow *"), nobody), context(changed, path="a"))
    assert "it changed, or may have changed, since a person last allowed it" in error.message
    assert "Neither a rule nor --yes can allow it" in error.suggestion
    error = await refusal(PolicyGate(rules("allow *"), approve_all), context(changed, path="a"))
    assert "needs a person's approval" in error.message
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(rules("allow *"), person)
    await gate.authorize(context(save, path="a"))  # the twin: nobody is asked
    assert person.asked == []
    await gate.authorize(context(changed, path="a"))
    await gate.authorize(context(changed, path="a"))
    assert [request.personal for request in person.asked] == [True, True]
    assert person.asked[0].remember == ""


async def test_a_destructive_program_with_unknown_targets_asks_even_where_everything_is_allowed():
    person = Person(Answer.ONCE)
    gate = PolicyGate(rules("allow execute *"), person)
    await gate.authorize(context(shell, command="rm -rf build && ls $x"))
    assert not person.asked
    await gate.authorize(context(shell, command='rm -rf "$x"'))
    assert len(person.asked) == 1
    ruling = person.asked[0].ruling
    assert ruling is not None
    assert "known only when the line runs" in ruling.reason
    refused = await refusal(PolicyGate(rules("allow execute *")), context(shell, command='rm -rf "$x"'))
    assert refused.kind is ErrorKind.PERMISSION


async def test_a_rule_that_names_exactly_that_line_allows_it():
    gate = PolicyGate(rules('allow execute rm -rf "$x"'))
    await gate.authorize(context(shell, command='rm -rf "$x"'))
    assert (await refusal(gate, context(shell, command='rm -rf "$y"'))).kind is ErrorKind.PERMISSION


async def test_no_approver_is_nobody():
    error = await refusal(PolicyGate(rules("ask write"), None), context(save, path="a"))
    assert "there is no one to ask" in error.message
    await PolicyGate(rules("allow write"), None).authorize(context(save, path="a"))


async def test_an_approver_that_fails_is_not_a_person_who_refused():
    async def broken(request: PermissionRequest) -> Answer:
        raise ValueError("boom")

    error = await refusal(PolicyGate(rules("ask write"), broken), context(save, path="a"))
    assert error.message == "write a needs a person's approval, and the question could not be asked (ValueError)"
    assert "person's words" not in error.suggestion
    said_no = await refusal(PolicyGate(rules("ask write"), Person(Answer.no("not today"))), context(save, path="a"))
    assert said_no.message == "the person refused write a: not today"
    assert said_no.suggestion == "Follow the person's words."
