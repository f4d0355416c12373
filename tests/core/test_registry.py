"""The tools an agent has, by name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from forge.core.errors import DefinitionError, DuplicateToolError, ToolError
from forge.core.executor import ToolExecutor
from forge.core.extras import install_command
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool, tool
from forge.tools import register_all
from forge.tools.conversation import CONVERSATION
from tests.core.calling import SCOPE


def named(name: str, says: str = "", **options: Any) -> Tool:
    def run(text: str = "") -> str:
        return says or name

    return tool(name=name, description=f"The tool {name}.\nWith a second line.", **options)(run)


def registry(*names: str, **options: Any) -> ToolRegistry:
    return ToolRegistry([named(name, **options) for name in names])


def shown(tools: ToolRegistry, session: str = "local") -> list[str]:
    return [definition["function"]["name"] for definition in tools.definitions(session_id=session)]


def test_a_registry_is_a_mapping():
    tools = registry("b", "a")
    assert isinstance(tools, Mapping)
    assert len(tools) == 2
    assert list(tools) == ["b", "a"]
    assert "a" in tools
    assert "c" not in tools
    assert tools["a"].spec.name == "a"
    assert dict(tools.items())["b"] is tools["b"]
    assert tools.get("c") is None
    with pytest.raises(KeyError):
        tools["c"]


def test_plain_functions_become_tools_on_the_way_in():
    def greet(name: str) -> str:
        """Greet."""
        return name

    assert ToolRegistry([greet])["greet"].spec.description == "Greet."


def test_what_is_no_tool_is_refused():
    class Empty(Tool):
        pass

    with pytest.raises(DefinitionError, match="has no spec"):
        ToolRegistry([Empty()])


def test_a_name_is_given_once():
    tools = registry("a")
    with pytest.raises(DuplicateToolError, match="'a' is already registered; pass replace=True"):
        tools.add(named("a"))
    assert len(tools) == 1


def test_replacing_is_said_out_loud():
    tools = registry("a", "b")
    other = named("a", "other")
    tools.add(other, replace=True)
    assert tools["a"] is other
    assert list(tools) == ["a", "b"]


def test_all_are_added_or_none():
    tools = registry("a")
    version = tools.version
    with pytest.raises(DuplicateToolError):
        tools.add(named("b"), named("a"), named("c"))
    with pytest.raises(DuplicateToolError):
        tools.add(named("b"), named("b"))
    assert list(tools) == ["a"]
    assert tools.version == version


def test_a_tool_can_be_removed():
    tools = registry("a", "b")
    tools.remove("a")
    assert list(tools) == ["b"]
    assert shown(tools) == ["b"]
    tools.add(named("a"))
    assert list(tools) == ["b", "a"]
    with pytest.raises(KeyError):
        tools.remove("c")


@pytest.mark.parametrize("name", sorted(CONVERSATION))
def test_a_conversation_tool_can_be_neither_replaced_nor_removed(name):
    tools = ToolRegistry()
    register_all(tools)
    for change in (
        lambda: tools.add(named(name)),
        lambda: tools.add(named(name), replace=True),
        lambda: tools.add(named("mine", aliases=[name])),
        lambda: tools.add(named("mine", aliases=[name]), replace=True),
        lambda: tools.remove(name),
    ):
        with pytest.raises(DefinitionError):
            change()
    assert tools[name].spec.ends_turn


def test_the_three_conversation_tools_are_built_in():
    assert {"task_completion", "ask_question", "converse"} == CONVERSATION
    tools = ToolRegistry()
    register_all(tools)
    assert set(tools) >= CONVERSATION


async def test_a_tool_is_found_and_called_by_its_other_names_but_shown_by_one():
    tools = registry("file_read", aliases=["read", "read_file"])
    assert tools.find("read") is tools.find("read_file") is tools["file_read"]
    assert tools["read"] is tools.get("read_file") is tools["file_read"]
    assert "read" in tools
    assert "reed" not in tools
    assert tools.get("reed") is None
    with pytest.raises(KeyError, match="reed"):
        tools["reed"]
    assert (list(tools), len(tools)) == (["file_read"], 1)
    assert shown(tools) == ["file_read"]
    assert (await ToolExecutor(tools, []).execute(ToolCall("read"), SCOPE)).for_llm == "file_read"


def test_an_alias_belongs_to_one_tool():
    tools = registry("file_read", aliases=["read"])
    with pytest.raises(DuplicateToolError, match="'read' already belongs to 'file_read'"):
        tools.add(named("other", aliases=["read"]))
    with pytest.raises(DuplicateToolError, match="already belongs to 'file_read'"):
        tools.add(named("read"))
    with pytest.raises(DuplicateToolError):
        tools.add(named("other", aliases=["file_read"]), replace=True)
    assert list(tools) == ["file_read"]


def test_the_aliases_of_a_replaced_or_removed_tool_are_free_again():
    tools = registry("file_read", aliases=["read"])
    tools.add(named("file_read"), replace=True)
    tools.add(named("read"))
    assert tools.find("read").spec.name == "read"
    tools = registry("file_read", aliases=["read"])
    tools.remove("read")
    assert len(tools) == 0
    tools.add(named("read"))


def test_an_unknown_name_finds_a_tool_that_explains():
    tools = registry("file_read", "file_write", aliases=())
    assert tools.find("file_raed").spec.name == "file_raed"
    assert "file_raed" not in tools


async def test_near_names_are_suggested():
    runs = ToolExecutor(registry("file_read", "file_write", "bash"), [])
    result = await runs.execute(ToolCall("file_reed"), SCOPE)
    assert 'Did you mean "file_read"' in result.for_llm
    result = await runs.execute(ToolCall("zzz"), SCOPE)
    assert "Did you mean" not in result.for_llm
    assert "Call one of the tools you were given" in result.for_llm


def test_tools_are_selected_by_their_spec():
    tools = ToolRegistry([named("a", category=Category.DEV), named("b", aliases=["other_b"])])
    production = tools.select(lambda spec: spec.category is not Category.DEV)
    assert list(production) == ["b"]
    assert production.find("other_b").spec.name == "b"
    assert production.find("a") is not tools["a"]
    assert shown(production) == ["b"]
    assert list(tools) == ["a", "b"]


async def test_what_was_not_selected_cannot_be_run_by_name():
    tools = ToolRegistry([named("a", category=Category.DEV, aliases=["alias_a"]), named("b")])
    runs = ToolExecutor(tools.select(lambda spec: spec.category is not Category.DEV), [])
    for name in ("a", "alias_a"):
        result = await runs.execute(ToolCall(name), SCOPE)
        assert result.failure is not None
        assert result.failure.kind == "not_found"
    assert (await runs.execute(ToolCall("b"), SCOPE)).for_llm == "b"


def test_enabled_tools_need_nothing_beyond_what_is_granted():
    tools = ToolRegistry(
        [
            named("thinks"),
            named("reads", permissions={"read"}),
            named("writes", permissions={"read", "write"}),
            named("maybe", permissions={"read"}, optional_permissions={"network"}),
        ]
    )
    assert list(tools.enabled(set())) == ["thinks"]
    assert list(tools.enabled({"read"})) == ["thinks", "reads", "maybe"]
    assert list(tools.enabled({"read", "write"})) == ["thinks", "reads", "writes", "maybe"]
    with pytest.raises(ValueError, match="fly"):
        tools.enabled({"fly"})  # type: ignore[arg-type]


def test_groups_hold_what_is_labelled_with_them():
    tools = ToolRegistry(
        [
            named("grep", groups={"search", "read"}),
            named("cat", groups={"read"}),
            named("edit", groups={"write"}),
        ]
    )
    assert list(tools.group("search")) == ["grep"]
    assert list(tools.group("read")) == ["grep", "cat"]
    assert list(tools.group("write")) == ["edit"]
    assert list(tools.group("nothing")) == []
    assert set(tools.group("search")) <= set(tools.group("read"))


def test_summaries_are_one_line_a_tool():
    assert registry("a", "b").summaries() == ["- `a` - The tool a.", "- `b` - The tool b."]


def test_hidden_tools_are_shown_for_a_few_turns_after_they_were_revealed():
    tools = ToolRegistry([named("a"), named("h", hidden=True), named("z")])
    assert shown(tools) == ["a", "z"]
    assert tools.summaries() == ["- `a` - The tool a.", "- `z` - The tool z."]
    tools.reveal(["h", "a", "no such tool"], turns=2)
    assert shown(tools) == ["a", "z", "h"]
    tools.next_turn()
    assert shown(tools) == ["a", "z", "h"]
    tools.next_turn()
    assert shown(tools) == ["a", "z"]
    tools.next_turn()


def test_revealing_again_starts_the_turns_again():
    tools = ToolRegistry([named("h", hidden=True)])
    tools.reveal(["h"], turns=2)
    tools.next_turn()
    tools.reveal(["h"], turns=2)
    tools.next_turn()
    assert shown(tools) == ["h"]
    tools.next_turn()
    assert shown(tools) == []


def test_what_is_revealed_in_one_session_stays_hidden_in_others():
    tools = ToolRegistry([named("h", hidden=True)])
    tools.reveal(["h"], session_id="one", turns=1)
    assert shown(tools, "one") == ["h"]
    assert shown(tools, "other") == []
    tools.next_turn("other")
    assert shown(tools, "one") == ["h"]
    tools.next_turn("one")
    assert shown(tools, "one") == []


async def test_a_hidden_tool_can_be_called_by_its_name():
    runs = ToolExecutor(ToolRegistry([named("h", hidden=True)]), [])
    assert (await runs.execute(ToolCall("h"), SCOPE)).for_llm == "h"


def test_definitions_are_deterministic_and_built_once():
    built = []

    def description() -> str:
        built.append(1)
        return "Late."

    class Late(Tool):
        def __init__(self, name: str) -> None:
            self.spec = ToolSpec(name=name, description=description, parameters={})

        async def invoke(self, arguments, ctx):
            return "late"

    tools = ToolRegistry([Late("a"), Late("b")])
    first = tools.definitions()
    assert tools.definitions() == first == tools.definitions()
    assert tools.definitions("anthropic") == tools.definitions("anthropic")
    assert len(built) == 2
    assert registry("x", "y").definitions() == registry("x", "y").definitions()


def test_a_changed_list_of_definitions_changes_no_other():
    tools = registry("a", "b")
    tools.definitions().clear()
    assert shown(tools) == ["a", "b"]


def test_definitions_follow_every_change():
    tools = registry("a")
    versions = [tools.version]
    assert shown(tools) == ["a"]
    tools.add(named("b"))
    versions.append(tools.version)
    assert shown(tools) == ["a", "b"]
    tools.remove("a")
    versions.append(tools.version)
    assert shown(tools) == ["b"]
    tools.add(named("b", description_file="nowhere.txt"), replace=True)
    versions.append(tools.version)
    assert versions == sorted(set(versions))


def test_a_change_while_definitions_are_built_is_not_lost():
    def initialise() -> Tool:
        if "latecomer" not in tools:
            tools.add(named("latecomer"))
        return named("first")

    tools = ToolRegistry([Tool.define("first", initialise)])
    tools.definitions()
    assert shown(tools) == ["first", "latecomer"]


async def test_a_tool_replaced_or_removed_between_two_calls_is_replaced_at_once():
    tools = registry("a")
    runs = ToolExecutor(tools, [])
    assert (await runs.execute(ToolCall("a"), SCOPE)).for_llm == "a"
    tools.add(named("a", "new"), replace=True)
    assert (await runs.execute(ToolCall("a"), SCOPE)).for_llm == "new"
    tools.remove("a")
    assert (await runs.execute(ToolCall("a"), SCOPE)).is_error
    tools.add(named("a", "newer"))
    assert (await runs.execute(ToolCall("a"), SCOPE)).for_llm == "newer"


def test_threads_may_change_and_read_a_registry_at_once():
    tools = registry("stays", aliases=["remains"])
    failures: list[BaseException] = []
    together = threading.Barrier(6)

    def guarded(work: Any) -> Any:
        def run() -> None:
            together.wait(60)
            try:
                for turn in range(100):
                    work(turn)
            except BaseException as error:
                failures.append(error)

        return run

    def changes(prefix: str):
        def work(turn: int) -> None:
            tools.add(named(f"{prefix}{turn}", aliases=[f"alias-{prefix}{turn}"]))
            tools.add(named(f"{prefix}{turn}"), replace=True)
            if turn % 2:
                tools.remove(f"{prefix}{turn}")

        return work

    def reads(_: int) -> None:
        names = shown(tools)
        assert names[0] == "stays"
        assert len(names) == len(set(names))
        assert tools.find("remains").spec.name == "stays"
        tools.summaries()
        tools.select(lambda spec: True)

    work = [changes("a"), changes("b"), changes("c"), reads, reads, reads]
    threads = [threading.Thread(target=guarded(one)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(tools) == 1 + 3 * 50
    assert set(shown(tools)) == set(tools) == {"stays", *(f"{p}{n}" for p in "abc" for n in range(0, 100, 2))}


def test_a_thousand_tools_are_listed_without_building_a_schema():
    tools = registry(*(f"tool{n}" for n in range(1_000)))
    assert len(tools.summaries()) == 1_000
    assert [spec.name for spec in tools.specs()][:2] == ["tool0", "tool1"]


def test_a_tool_whose_extra_is_missing_is_no_entry_but_is_explained(monkeypatch):
    @tool(extra="web", aliases=["surf"])
    def browse() -> str:
        """Browse."""
        return "a page"

    assert "browse" in ToolRegistry([browse])
    assert ToolRegistry([browse]).unavailable == []
    monkeypatch.setitem(sys.modules, "selectolax", None)
    registry = ToolRegistry([browse])
    assert not registry
    assert not registry.names
    assert registry.definitions() == []
    assert registry.unavailable == [browse.spec]
    assert registry.select(lambda spec: True).unavailable == [browse.spec]
    for name in ("browse", "surf"):
        with pytest.raises(ToolError, match="browse cannot be used: the extra 'web' is not installed") as caught:
            registry.find(name).parse({})
        assert caught.value.suggestion == f"Install it with: {install_command('web')}"

    @tool(name="browse")
    def own() -> str:
        """Browse in another way."""
        return "another page"

    registry.add(own)
    assert registry.find("browse") is own
    assert registry.unavailable == []


def test_an_unknown_extra_is_refused():
    with pytest.raises(DefinitionError, match=r"extra='webs' is no extra of Forge; there are .*web"):
        named("browse", extra="webs")
