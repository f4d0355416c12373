"""`tools: [module:attribute]` imports a project's own tools, in every program that uses the project."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge import Scripted, ToolCall, ToolError, load_project
from forge.agent.agent import Agent
from forge.permissions.gate import approve_all
from forge.project.config import load_configuration
from forge.project.doctor.project import examine_tools
from forge.project.project import Project, RunOptions
from forge.project.trust import accept
from forge.project.trust_summary import trust_summary

SHOP = '''
"""The tools of a shop."""
from forge import tool

RATE = 3

@tool(permissions={"write"})
def refund(order: str, amount: int) -> str:
    """Refund an order."""
    return f"refunded {order}: {amount}"

@tool
def stock(item: str) -> str:
    """Say how many there are."""
    return f"{RATE} {item}"

def plain() -> str:
    """Not a tool."""
    return ""

every = [refund, stock]
none = []
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Writes a project with a module of its own name; returns the options to open it with."""
    monkeypatch.chdir(tmp_path)
    module = f"shop_{abs(hash(request.node.name)) % 10**8}"
    (tmp_path / f"{module}.py").write_text(SHOP)
    before, path = set(sys.modules), list(sys.path)

    def write(tools: str, more: str = "") -> Project:
        (tmp_path / "forge.yaml").write_text(f"tools: {tools.replace('SHOP', module)}\n{more.replace('SHOP', module)}")
        return Project(RunOptions(config=str(tmp_path / "forge.yaml"), session="test"))

    yield write
    assert sys.path == path
    for name in set(sys.modules) - before:
        if name.startswith(module):
            del sys.modules[name]


def call(agent: Agent, name: str, **arguments: Any) -> Any:
    async def open_and_call() -> Any:
        async with agent:
            return await agent.call(name, arguments)

    return asyncio.run(open_and_call())


def refusal(project: Any, tools: str) -> str:
    with pytest.raises(ToolError) as caught:
        project(tools).agent(with_model=False)
    assert caught.value.suggestion
    return f"{caught.value.message} | {caught.value.suggestion}"


def test_a_tool_of_a_module_is_loaded_with_its_permissions(project):
    opened = project("[SHOP:refund, math_calculate]")
    assert not call(opened.agent(with_model=False), "refund", order="a", amount=2).success  # nobody to ask
    agent = opened.agent(with_model=False, approve=approve_all)
    assert call(agent, "refund", order="a", amount=2).for_llm == "refunded a: 2"
    assert "stock" not in agent.registry
    assert "math_calculate" in agent.registry


def test_a_list_of_tools_is_loaded_and_settings_apply(project):
    agent = project("[{name: 'SHOP:every', config: {timeout: 7}}, {name: stock, config: {confirm: true}}]").agent(
        with_model=False
    )
    assert agent.registry["refund"].spec.timeout == 7
    assert agent.registry["stock"].spec.timeout == 7
    assert agent.registry["stock"].spec.confirm
    assert not agent.registry["refund"].spec.confirm


def test_a_sub_agent_may_name_it_either_way(project):
    for named in ("SHOP:refund", "refund"):
        agent = project("['SHOP:refund', 'SHOP:stock']", f"agents: {{clerk: {{tools: ['{named}']}}}}\n").agent(
            Scripted("Done.")
        )
        chosen = agent.subagent("clerk").registry
        assert "refund" in chosen
        assert "stock" not in chosen


def test_a_model_calls_it(project):
    model = Scripted(ToolCall("stock", {"item": "cups"}), "There are three.")

    async def run() -> Any:
        async with project("['SHOP:stock']").agent(model) as agent:
            return await agent.run("How many?")

    result = asyncio.run(run())
    assert [message.text for message in result.messages if message.role == "tool"] == ["3 cups"]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("[nowhere_at_all:refund]", "there is no module 'nowhere_at_all' in"),
        ("['SHOP.deeper:refund']", "there is no module 'shop_"),
        ("['SHOP:refnd']", ":refund?"),
        ("['SHOP:plain']", "plain is a function, not a tool | Decorate"),
        ("['SHOP:RATE']", "RATE is of type int, not a tool"),
        ("['SHOP:none']", "the list none is empty"),
    ],
)
def test_what_cannot_be_loaded_is_explained(project, tools, words):
    said = refusal(project, tools)
    assert words in said
    assert "forge.yaml: tools[0]" in said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import not_installed_here", "imports 'not_installed_here', which is not installed"),
        ("raise ValueError('no key\\nhere')", "raised ValueError: no key here"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("def broken(:", "raised SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_error_and_not_a_crash(project, tmp_path, code, words):
    (tmp_path / "shop_broken.py").write_text(code)
    assert words in refusal(project, "['shop_broken:refund']")


def test_a_module_never_stands_for_another_of_the_same_name(project, tmp_path):
    (tmp_path / "json.py").write_text(SHOP)
    assert "cannot be imported, because the module 'json' is" in refusal(project, "['json:refund']")


def test_a_project_that_nobody_trusts_imports_nothing(project, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    project("['SHOP:refund']")
    (module,) = tmp_path.glob("shop_*.py")
    module.write_text(f"import os; os.mkdir('imported')\n{SHOP}")
    with pytest.raises(ToolError, match="is not trusted"):
        load_project(tmp_path)
    assert not (tmp_path / "imported").exists()
    accept(tmp_path)
    assert "refund" in load_project(tmp_path).agent(with_model=False).registry
    assert (tmp_path / "imported").exists()


def test_the_person_who_trusts_a_project_sees_what_it_imports():
    assert ("imports code", True) in {(one.kind, one.risky) for one in trust_summary("tools: ['shop:refund']", "f")}
    assert not any(one.kind == "imports code" for one in trust_summary("tools: [bash]", "f"))


def test_the_doctor_examines_it(project, tmp_path):
    good = project("['SHOP:refund']")
    assert examine_tools(good.configuration, good.scope, dev=False).status == "ok"
    (tmp_path / "forge.yaml").write_text("tools: ['nowhere_at_all:refund']\n")
    bad = load_configuration(str(tmp_path / "forge.yaml"))
    assert "nowhere_at_all" in examine_tools(bad, good.scope, dev=False).detail


def test_an_isolated_tool_runs_in_its_own_process(project, tmp_path):
    (module,) = tmp_path.glob("shop_*.py")
    module.write_text(SHOP.replace("@tool\n", "@tool(isolate=True)\n"))
    result = call(project("['SHOP:stock']").agent(with_model=False), "stock", item="cups")
    assert json.dumps(result.for_llm) == '"3 cups"'


def test_a_build_refuses_a_file_of_the_project_and_takes_an_installed_package(project, tmp_path):
    from forge.project.build.record import BuildOrder
    from forge.project.build.stages import BuildError, build

    project("['SHOP:refund']")
    order = BuildOrder(config=str(tmp_path / "forge.yaml"), workspace=tmp_path, output=tmp_path / "out")
    with pytest.raises(BuildError, match="is in a file of the project"):
        build(order)
    (tmp_path / "forge.yaml").write_text("tools: ['forge.tools.math_calculate:math_calculate']\n")
    assert "math_calculate" in build(order).tools


def test_a_list_of_tools_is_prefixed_and_filtered(project: Any) -> None:
    agent = project("[{name: 'SHOP:every', prefix: shop, exclude: [refund], config: {timeout: 7}}]").agent(
        with_model=False
    )
    assert [name for name in agent.registry if name.startswith("shop") or name in ("refund", "stock")] == ["shop_stock"]
    assert agent.registry["shop_stock"].spec.timeout == 7
    assert call(agent, "shop_stock", item="pears").for_llm == "3 pears"


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ("[{name: 'SHOP:every', include: [stok]}]", "include: 'stok' matches no tool; did you mean 'stock'?"),
        ("[{name: 'SHOP:every', prefix: shop_}]", "write prefix='shop', which names tools shop_NAME"),
        ("[{name: math_calculate, prefix: my}]", "prefix belongs to an entry with name: MODULE:ATTRIBUTE"),
        ("[{group: read, exclude: ['web_*']}]", "exclude belongs to an entry with name: MODULE:ATTRIBUTE"),
    ],
)
def test_what_no_tool_of_an_entry_has_is_told(project: Any, tools: str, problem: str) -> None:
    assert problem in refusal(project, tools)


def test_scripts_and_documents_of_a_project_have_the_same_keys(project: Any, tmp_path: Path) -> None:
    for name in ("report", "draft"):
        script = f'"""\nTool: {name}\nDescription: It is {name}.\n"""\nprint("ran {name}")\n'
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / f"{name}.py").write_text(script)
    operations: dict[str, Any] = {f"/{one}": {"get": {"operationId": one, "responses": {}}} for one in ("cats", "dogs")}
    document = {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": operations}
    (tmp_path / "pets.json").write_text(json.dumps(document))
    more = (
        "scripts: {prefix: ops, exclude: [draft, drafts]}\n"
        "openapi: {pets: {spec: pets.json, server: 'https://example.com', prefix: zoo, include: [cats, bats]}}\n"
    )
    told: list[str] = []
    opened = project("[math_calculate]", more)
    opened._report = told.append

    async def names() -> list[str]:
        async with opened.agent(with_model=False) as agent:
            return [name for name in agent.registry if name.startswith(("ops", "zoo", "report", "draft", "pets"))]

    assert sorted(asyncio.run(names())) == ["ops_report", "zoo__cats"]
    assert "tools: exclude: 'drafts' matches no tool; did you mean 'draft'?" in told
    assert "pets: include: 'bats' matches no tool; did you mean 'cats'?" in told
