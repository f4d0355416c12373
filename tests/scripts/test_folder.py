"""Which files of a project become tools, and that they follow their files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from forge.core.errors import DefinitionError, ToolError
from forge.core.registry import ToolRegistry, mount_source
from forge.core.spec import Category
from forge.process.run_script import ScriptSettings
from forge.scripts import folder as folder_module
from forge.scripts import header
from forge.scripts.folder import ScriptFolder, scripts
from forge.tools.file_read import FileRead
from tests.descriptors import open_below

HEADER = "Tool: {name}\nDescription: It is {name}.\n"


def python(name: str, more: str = "") -> str:
    return f'"""\n{HEADER.format(name=name)}{more}"""\nprint("ran {name}")\n'


def script(name: str) -> str:
    return "".join(f"// {line}\n" for line in HEADER.format(name=name).splitlines()) + "console.log(1)\n"


def put(root: Path, path: str, content: str | bytes, mode: int = 0o644) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(mode)
    return file


def names(folder: ScriptFolder) -> list[str]:
    return sorted(tool.spec.name for tool in folder.load())


def why(folder: ScriptFolder) -> dict[str, str]:
    return {problem.path: problem.why for problem in folder.problems}


def test_all_the_places_are_found(tmp_path):
    put(tmp_path, "tools/a.py", python("a"))
    put(tmp_path, "tools/tool_b.py", python("b"))
    put(tmp_path, "tools/tool_c.ts", script("c"))
    put(tmp_path, "tools/tool_d.js", script("d"))
    put(tmp_path, "tools/e/tool.py", python("e"))
    put(tmp_path, "tools/f/tool.ts", script("f"))
    put(tmp_path, "tools/g", "#!/bin/sh\n# Tool: g\n# Description: It is g.\n", 0o755)
    put(tmp_path, "tool_h.py", python("h"))
    put(tmp_path, "i.ts", script("i"))
    folder = scripts(root=tmp_path)
    assert names(folder) == [*"abcdefghi"]
    assert folder.problems == []
    by_name = {tool.spec.name: tool.spec for tool in folder.load()}
    assert by_name["e"].origin == "script:tools/e/tool.py"
    assert (by_name["g"].category, set(by_name["g"].permissions)) == (Category.CUSTOM, {"execute"})
    assert by_name["h"].description == "It is h."


def test_other_files_are_none_and_nothing_is_said_of_them(tmp_path):
    put(tmp_path, "tools/__init__.py", "")
    put(tmp_path, "tools/_shared.py", python("shared"))
    put(tmp_path, "tools/.hidden.py", python("hidden"))
    put(tmp_path, "tools/library.py", '"""Functions for the others."""')
    put(tmp_path, "tools/README.md", "Tool: x\nDescription: y")
    put(tmp_path, "tools/types.d.ts", script("types"))
    put(tmp_path, "tools/plain", "#!/bin/sh\necho", 0o755)
    put(tmp_path, "tools/compiled", b"\x7fELF\xff\xfe\0", 0o755)
    put(tmp_path, "tools/node_modules/tool.js", script("module"))
    put(tmp_path, "tools/deep/er/tool.py", python("deep"))
    put(tmp_path, "setup.py", "import setuptools")
    put(tmp_path, "tool_config.py", "X = 1")
    put(tmp_path, "notes.py", '"""Of this and that.\n\nTool: hammer\nDescription: x\n"""')
    put(tmp_path, "latin.py", b'"""Tool: latin\xe4"""')
    put(tmp_path, "src/tool_x.py", python("x"))
    folder = scripts(root=tmp_path)
    assert names(folder) == []
    assert folder.problems == []


def test_a_project_without_tools_has_none(tmp_path):
    assert names(scripts(root=tmp_path)) == []
    assert names(scripts("other/place", root=tmp_path)) == []


def test_a_folder_outside_is_refused(tmp_path):
    (tmp_path / "project").mkdir()
    put(tmp_path, "tools/a.py", python("a"))
    (tmp_path / "project/tools").symlink_to(tmp_path / "tools")
    for folder in ("../tools", "tools"):
        with pytest.raises(ToolError, match="outside") as refused:
            scripts(folder, root=tmp_path / "project").load()
        assert refused.value.kind == "config_error"
    assert names(scripts("tools", root=tmp_path)) == ["a"]
    assert names(scripts(tmp_path / "tools")) == ["a"]


def test_what_is_wrong_is_reported_and_the_others_load(tmp_path, caplog):
    outside = put(tmp_path, "outside.py", python("outside"))
    project = tmp_path / "project"
    put(project, "tools/good.py", python("good"))
    put(project, "tools/other.py", python("taken"))
    put(project, "tools/second.py", python("good"))
    put(project, "tools/latin.py", b'"""\nTool: latin\nDescription: \xe4\n"""')
    put(project, "tools/type.py", python("type", "Input:\n  a (strng): x\n"))
    put(project, "tools/tool_none.ts", "console.log(1)")
    put(project, "tools/late.py", f"import json\n\n{python('late')}")
    put(project, "tools/quiet.py", "import json\n\nTOOL = 'Tool: quiet'\n")
    put(project, "tools/named.py", python("not a name"))
    put(project, "tools/doubled.py", python("a__b"))
    put(project, "tools/large.py", python("large") + "#" * 5_000_000)
    put(project, "tools/headless", "# Tool: headless\n# Description: x.\n", 0o755)
    (project / "tools/link.py").symlink_to(outside)
    (project / "tools/dangling.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(project / "tools/fifo.py")
    folder = scripts(root=project, taken={"taken"})
    assert names(folder) == ["good"]
    assert {path.removeprefix("tools/"): text.partition(":")[0][:40] for path, text in why(folder).items()} == {
        "dangling.py": '"tools/dangling.py" leads outside the wo',
        "doubled.py": "'a__b' cannot be the name of a tool",
        "fifo.py": '"tools/fifo.py" is a FIFO and cannot be ',
        "headless": "it has a header, but no first line such ",
        "large.py": "it has more than 4 MiB, the maximum for ",
        "late.py": "the lines Tool",
        "latin.py": "it is not UTF-8",
        "link.py": '"tools/link.py" leads outside the worksp',
        "named.py": "'not a name' cannot be the name of a too",
        "other.py": "the name 'taken' is taken by another too",
        "second.py": "the name 'good' is already taken by tool",
        "tool_none.ts": "it has no header",
        "type.py": "line 5",
    }
    assert "tools/latin.py is left out: it is not UTF-8" in caplog.text
    assert open_below(project) == []


def test_a_link_inside_the_project_is_fine(tmp_path):
    put(tmp_path, "src/real.py", python("real"))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/alias.py").symlink_to("../src/real.py")
    assert names(scripts(root=tmp_path)) == ["real"]


def test_the_name_of_the_file_will_do(tmp_path):
    put(tmp_path, "tools/tool_counted.py", '"""\nDescription: Counts.\n"""')
    put(tmp_path, "tools/sized/tool.py", '"""\nDescription: Measures.\n"""')
    assert names(scripts(root=tmp_path)) == ["counted", "sized"]


def test_files_that_did_not_change_are_not_read_again(tmp_path):
    put(tmp_path, "tools/a.py", python("a"))
    put(tmp_path, "tools/b.py", python("b"))
    folder = scripts(root=tmp_path)
    before = {tool.spec.name: tool for tool in folder.load()}
    put(tmp_path, "tools/b.py", python("b", "Input:\n  n (int): New.\n"))
    after = {tool.spec.name: tool for tool in folder.load()}
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
    assert list(after["b"].spec.parameters["properties"]) == ["n"]


async def test_tools_follow_their_files(tmp_path):
    put(tmp_path, "tools/a.py", python("a"))
    put(tmp_path, "tools/b.py", python("b"))
    registry = ToolRegistry()
    folder = ScriptFolder("tools", tmp_path, scripts(root=tmp_path).settings, every=0.01)
    async with mount_source(registry, folder):
        assert sorted(registry) == ["a", "b"]
        unchanged = registry["a"]
        (tmp_path / "tools/b.py").unlink()
        put(tmp_path, "tools/c.py", python("c"))
        await _until(lambda: sorted(registry) == ["a", "c"])
        assert registry["a"] is unchanged
        put(tmp_path, "tools/a.py", python("a", "Input:\n  n (int): New.\n"))
        await _until(lambda: "n" in registry["a"].spec.parameters["properties"])
        put(tmp_path, "tools/a.py", python("a", "Input:\n  n (nonsense): New.\n"))
        await _until(lambda: sorted(registry) == ["c"])
        assert "tools/a.py" in why(folder)
    assert sorted(registry) == []
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_without_watching_nothing_changes(tmp_path):
    registry, watching = ToolRegistry(), ToolRegistry()
    still = ScriptFolder("tools", tmp_path, ScriptSettings(), every=0.01, watch=False)
    async with mount_source(registry, still):
        async with mount_source(watching, ScriptFolder("tools", tmp_path, ScriptSettings(), every=0.01)):
            put(tmp_path, "tools/a.py", python("a"))
            await _until(lambda: sorted(watching) == ["a"])
        assert sorted(registry) == []


def test_a_look_at_a_thousand_files_takes_a_moment(tmp_path):
    for number in range(1_000):
        put(tmp_path, f"tools/t{number}.py", python(f"t{number}"))
    folder = scripts(root=tmp_path)
    assert len(folder.load()) == 1_000
    began = time.process_time()
    assert not folder._has_changes()
    assert time.process_time() - began < 0.25  # a few hundredths as a rule
    assert folder.problems == []
    put(tmp_path, "tools/zzz.py", python("zzz"))
    assert len(folder.load()) == 1_000
    assert "more than 1,000 files" in why(folder)["tools"]


async def _until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of files nobody tells us
            await asyncio.sleep(0.005)


async def test_a_script_of_a_taken_name_or_alias_does_not_cost_the_others(tmp_path):
    for name in ("fine", "file_read", "read"):
        put(tmp_path, f"tools/{name}.py", python(name))
    registry = ToolRegistry([FileRead()])
    folder = scripts(root=tmp_path)
    for _ in range(2):  # opened again, its own names are not taken
        async with mount_source(registry, folder):
            assert sorted(registry) == ["file_read", "fine"]
            assert registry["file_read"].spec.category is Category.BUILTIN
            assert why(folder).keys() == {"tools/file_read.py", "tools/read.py"}
    async with mount_source(ToolRegistry(), folder) as _:
        assert folder.problems == []


def test_a_header_that_nobody_thought_of_costs_no_other_script(tmp_path, monkeypatch):
    def read(lines):
        if "odd" in str(lines):
            raise TypeError("nobody thought of it")
        return header.read_header(lines)

    put(tmp_path, "tools/odd.py", python("odd"))
    put(tmp_path, "tools/fine.py", python("fine"))
    monkeypatch.setattr(folder_module, "read_header", read)
    folder = scripts(root=tmp_path)
    assert names(folder) == ["fine"]
    assert why(folder) == {"tools/odd.py": "its header is invalid (TypeError)"}


async def test_whoever_is_told_of_changes_and_fails_is_told_again(tmp_path):
    told: list[list[str]] = []
    twice = asyncio.Event()

    def changed(tools):
        told.append(sorted(tool.spec.name for tool in tools))
        if len(told) == 1:
            put(tmp_path, "tools/second.py", python("second"))
            raise ValueError("not now")
        twice.set()

    folder = ScriptFolder("tools", tmp_path, ScriptSettings(), every=0.01)
    async with folder:
        folder.follow(changed)
        put(tmp_path, "tools/first.py", python("first"))
        async with asyncio.timeout(60):
            await twice.wait()
    assert told == [["first"], ["first", "second"]]


def test_line_ends_that_hide_the_interpreter_are_told(tmp_path):
    content = f"#!/bin/sh\n# {HEADER.format(name='it').replace(chr(10), chr(10) + '# ')}\n"
    file = put(tmp_path, "tools/it", content.replace("\n", "\r\n"), 0o755)
    folder = scripts(root=tmp_path)
    assert names(folder) == []
    assert "carriage return" in why(folder)["tools/it"]
    file.write_text(content)
    assert names(folder) == ["it"]


@pytest.mark.parametrize(
    ("name", "text", "mode", "why"),
    [
        ("asleep", "#!/bin/sh\n# Tool: asleep\n# Description: x.\n", 0o644, "not executable"),
        ("asleep.sh", "#!/bin/sh\n# Tool: asleep\n# Description: x.\n", 0o644, "not executable"),
        ("late.py", 'import sys\n\n"""\nTool: late\nDescription: x.\n"""\n', 0o644, "Tool:"),
        ("below.js", "const a = 1;\n// Tool: below\n// Description: x.\n", 0o644, "Tool:"),
    ],
)
def test_a_script_that_looks_like_a_tool_and_is_none_is_told(tmp_path, name, text, mode, why):
    put(tmp_path, f"tools/{name}", text, mode)
    folder = scripts(root=tmp_path)
    assert names(folder) == []
    (problem,) = folder.problems
    assert problem.path == f"tools/{name}"
    assert why in problem.why


@pytest.mark.parametrize("text", ["# Tools: a list\nX = 1\n", "tool = 3\n", "# the tool: it is sharp\n"])
def test_a_file_that_only_speaks_of_tools_is_not_told(tmp_path, text):
    put(tmp_path, "tools/shared.py", text)
    folder = scripts(root=tmp_path)
    assert names(folder) == []
    assert folder.problems == []


def test_scripts_are_prefixed_and_filtered_like_every_set(tmp_path):
    for name in ("report_sales", "report_stock", "draft"):
        put(tmp_path, f"tools/{name}.py", python(name))
    folder = scripts(root=tmp_path, prefix="ops", include=["report_*", "raport_*"], exclude=["*_stock"])
    assert names(folder) == ["ops_report_sales"]
    assert "include: 'raport_*' matches no tool; did you mean" in why(folder)["tools"]
    assert names(scripts(root=tmp_path)) == ["draft", "report_sales", "report_stock"]


@pytest.mark.parametrize("wrong", [{"prefix": "ops_"}, {"include": "a"}, {"exclude": "a"}])
def test_a_wrong_prefix_or_filter_of_scripts_is_an_error_at_once(tmp_path, wrong):
    with pytest.raises(DefinitionError):
        scripts(root=tmp_path, **wrong)
