"""What an agent plans to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import Next
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.pipeline.track_files import TrackFiles
from forge.tools.todo import TodoRead, TodoWrite, complete_items
from forge.workspace.history.tracking import SessionState, Todos


class Plans:
    """The two tools over one store."""

    def __init__(self, workspace: Path | None = None, write: TodoWrite | None = None) -> None:
        registry = ToolRegistry([write or TodoWrite(), TodoRead()])
        self.executor = ToolExecutor(registry, [TrackFiles(SessionState(workspace))])

    def send(self, tool: str, arguments, session: str = "one") -> ToolResult:
        return asyncio.run(self.executor.execute(ToolCall(tool, arguments), Scope(session_id=session)))

    def write(self, *items, session: str = "one") -> ToolResult:
        return self.send("todo_write", {"items": list(items)}, session)

    def read(self, session: str = "one") -> ToolResult:
        return self.send("todo_read", {}, session)


@pytest.fixture
def plans():
    return Plans()


def test_the_list_is_kept_and_shown(plans):
    result = plans.write(
        {"content": "look", "status": "completed"},
        {"content": "write\n it", "status": "in_progress", "priority": "high"},
        {"content": "test", "id": "t"},
        {"content": "rest", "status": "cancelled"},
    )
    assert result.for_llm == "[x] look\n[>] write it (high)\n[ ] test\n[-] rest"
    assert result.data["items"] == [
        {"id": "1", "content": "look", "status": "completed"},
        {"id": "2", "content": "write\n it", "status": "in_progress", "priority": "high"},
        {"id": "t", "content": "test", "status": "pending"},
        {"id": "3", "content": "rest", "status": "cancelled"},
    ]
    assert result.title == "2 of 4 to do"
    assert plans.read().for_llm == result.for_llm
    assert plans.read().data == result.data


def test_writing_replaces_the_whole_list_and_an_empty_one_clears_it(plans):
    plans.write({"content": "a"}, {"content": "b"})
    assert plans.write({"content": "c"}).for_llm == "[ ] c"
    assert plans.write().data == {"items": []}
    assert plans.read().for_llm == "The to-do list is empty."


def test_each_session_has_its_own(plans):
    plans.write({"content": "a"}, session="one")
    plans.write({"content": "b"}, session="two")
    assert plans.read("one").for_llm == "[ ] a"
    assert plans.read("two").for_llm == "[ ] b"
    assert plans.read("three").data == {"items": []}


def test_the_list_outlives_the_process_that_wrote_it(tmp_path):
    Plans(tmp_path).write({"content": "größer"})
    assert Plans(tmp_path).read().for_llm == "[ ] größer"
    assert Todos(tmp_path / ".forge/state.db").get("one") == [{"id": "1", "content": "größer", "status": "pending"}]


def test_two_in_progress_are_refused_and_both_are_named(plans):
    plans.write({"content": "kept"})
    one, two = ({"content": name, "status": "in_progress"} for name in ("first", "second"))
    failure = plans.write(one, {"content": "x"}, two).failure
    assert failure is not None
    assert 'items[0] ("first"), items[2] ("second")' in failure.message
    assert plans.read().for_llm == "[ ] kept"
    assert plans.write(one, {"content": "second"}).success


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"content": " \n"}], "items[0].content is blank"),
        ([{"content": "a"}, {"content": "x" * 2_001}], "items[1].content has 2,001 characters, the limit is 2,000"),
        ([{"content": "a"}] * 101, "101 items, the limit is 100"),
        ([{"content": "a", "id": "7"}, {"content": "b", "id": 7}], 'items[1].id "7" is also the id of items[0]'),
        ([{"content": "a", "status": "doing"}], "items[0].status"),
        ([{"content": "a", "priority": "urgent"}], "items[0].priority"),
        ([{"status": "pending"}], "items[0].content"),
        ([{"content": "a", "colour": "red"}], "items[0].colour"),
    ],
)
def test_a_wrong_item_is_named(plans, items, words):
    failure = plans.write(*items).failure
    assert failure is not None
    assert failure.kind == "validation_error"
    assert words in failure.message
    assert plans.read().data == {"items": []}


def test_as_much_as_the_limits_allow_is_fine(plans):
    assert plans.write(*[{"content": "x" * 2_000}] * 100).success


def test_limits_are_settings():
    plans = Plans(write=TodoWrite(max_items=1, max_length=3))
    assert plans.write({"content": "abc"}).success
    assert plans.write({"content": "abcd"}).failure is not None
    assert plans.write({"content": "a"}, {"content": "b"}).failure is not None


def test_null_stands_for_what_is_left_out_and_numbers_are_ids(plans):
    result = plans.write({"content": "a", "status": None, "priority": None, "id": None}, {"content": "b", "id": 1})
    assert result.data["items"] == [
        {"id": "2", "content": "a", "status": "pending"},
        {"id": "1", "content": "b", "status": "pending"},
    ]


def test_other_names_work(plans):
    assert plans.send("todowrite", {"todos": [{"content": "a"}]}).success
    assert plans.send("todoread", {}).for_llm == "[ ] a"


def test_without_a_session_state_a_list_is_kept_in_memory():
    async def nothing(ctx: ToolContext, proceed: Next) -> ToolResult:
        return await proceed(ctx)

    executor = ToolExecutor(ToolRegistry([TodoWrite(), TodoRead()]), [nothing])
    scope = Scope(session_id="untracked")
    asyncio.run(executor.execute(ToolCall("todo_write", {"items": [{"content": "a"}]}), scope))
    assert asyncio.run(executor.execute(ToolCall("todo_read", {}), scope)).for_llm == "[ ] a"


statuses = st.sampled_from(["pending", "in_progress", "completed", "cancelled", None])
items = st.fixed_dictionaries(
    {"content": st.text(max_size=4)},
    optional={"status": statuses, "id": st.sampled_from(["1", "2", 2, "x", "", " ", None])},
)


@given(st.lists(items, max_size=6))
def test_any_list_is_completed_or_explained(given_items):
    try:
        kept = complete_items(given_items, max_items=5, max_length=3)
    except ToolError:
        return
    assert [item["content"] for item in kept] == [item["content"] for item in given_items]
    assert len({item["id"] for item in kept}) == len(kept)
    assert sum(item["status"] == "in_progress" for item in kept) <= 1


def test_a_registered_secret_is_not_stored(tmp_path):
    state = SessionState(tmp_path)
    secrets = Secrets(["hunter2hunter2"])
    executor = ToolExecutor(ToolRegistry([TodoWrite()]), [TrackFiles(state)], secrets=secrets)
    call = ToolCall("todo_write", {"items": [{"content": "log in with hunter2hunter2"}, {"content": "log out"}]})
    assert asyncio.run(executor.execute(call, Scope(session_id="one", workspace=tmp_path))).success
    assert [item["content"] for item in state.todos.get("one")] == ["log in with [secret]", "log out"]


def test_the_form_of_an_item_in_progress_is_kept_under_the_name_that_others_give_it():
    plans = Plans()
    result = plans.write({"content": "Read", "status": "in_progress", "activeForm": "Reading"}, {"content": "Write"})
    assert result.success, result.for_llm
    assert [item.get("active_form") for item in result.data["items"]] == ["Reading", None]
    assert "activeForm" not in str(TodoWrite().spec.parameters), "it would cost tokens"
    assert plans.write({"content": "Read", "activeForm": None}).success
    assert plans.write({"content": "Read", "active": "Reading"}).is_error
    assert plans.write({"content": "Read", "activeForm": "x" * 3_000}).is_error
