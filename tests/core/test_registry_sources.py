"""Sources in a registry."""

from __future__ import annotations

import logging

import pytest

from forge import DuplicateToolError, Tool, ToolRegistry
from forge.core.registry import mount_source
from forge.core.spec import Category


def made(name: str, answer: str = "") -> Tool:
    schema = {"type": "object", "properties": {}}
    return Tool.from_schema(name, f"Says {answer}.", schema, lambda: answer, category=Category.ADAPTER, origin="test")


class Live:
    """A source that tells when its tools change."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = tools
        self.closed = False

    async def __aenter__(self):
        return self.tools

    async def __aexit__(self, *_):
        self.closed = True

    def follow(self, changed):
        self.changed = changed


async def test_tools_are_there_while_the_source_is_open():
    registry, source = ToolRegistry(), Live(made("a__one"))
    async with mount_source(registry, source):
        assert list(registry) == ["a__one"]
    assert list(registry) == []
    assert source.closed


async def test_what_comes_and_goes_is_followed():
    first, second = made("a__one"), made("a__two")
    registry, source = ToolRegistry(), Live(first)
    async with mount_source(registry, source):
        source.changed([first, second])
        assert list(registry) == ["a__one", "a__two"]
        assert registry["a__one"] is first
        other = made("a__two", "other")
        source.changed([other])
        assert list(registry) == ["a__two"]
        assert registry["a__two"] is other
    assert not registry
    source.changed([first])
    assert not registry  # it is closed: what it still says changes nothing


async def test_a_taken_name_is_refused_at_the_beginning_and_the_source_is_closed():
    registry, source = ToolRegistry([made("a__one")]), Live(made("a__one", "shadow"))
    with pytest.raises(DuplicateToolError):
        async with mount_source(registry, source):
            pass
    assert source.closed
    assert registry["a__one"].spec.description == "Says ."


async def test_a_later_tool_cannot_take_a_name_that_others_have_and_the_rest_is_added(caplog):
    registry, source = ToolRegistry([made("b__one", "ours")]), Live()
    with caplog.at_level(logging.WARNING):
        async with mount_source(registry, source):
            source.changed([made("b__one", "shadow"), made("a__two")])
            assert registry["b__one"].spec.description == "Says ours."
            assert "a__two" in registry
    assert "a tool of test is left out" in caplog.text
    assert list(registry) == ["b__one"]  # ours is not removed with the source


async def test_prepare_may_put_another_in_a_tools_place():
    registry, source = ToolRegistry(), Live(made("a__one"))

    def slower(tool):
        return Tool.from_schema(tool.spec.name, "slower", {}, tool.run, category=Category.ADAPTER)

    async with mount_source(registry, source, slower):
        assert registry["a__one"].spec.description == "slower"
        source.changed([made("a__one", "again")])
        assert registry["a__one"].spec.description == "slower"
    assert not registry


async def test_a_source_that_fails_leaves_nothing():
    class Broken(Live):
        async def __aenter__(self):
            raise OSError("no such server")

    registry = ToolRegistry()
    with pytest.raises(OSError, match="no such server"):
        async with mount_source(registry, Broken()):
            pass
    assert not registry
