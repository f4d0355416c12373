"""What a build holds, and where it stops."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from forge.project.build.record import BuildOrder
from forge.project.build.stages import STAGES, build
from forge.project.version import version


def read(project: Any, path: str) -> Any:
    return json.loads((project.output / path).read_bytes())


def test_the_stages_are_in_the_order_that_is_promised() -> None:
    assert [name for name, _ in STAGES] == ["load", "resolve", "filter", "schemas", "compile", "manifest", "validate"]


def test_a_build_holds_the_agent_its_schemas_its_guards_its_files_and_a_list_of_them(project: Any) -> None:
    heard: list[str] = []
    order = BuildOrder(str(project.root / "forge.yaml"), project.root, project.output, prod=True)
    made = build(order, lambda stage, words: heard.append(stage) if words else None)
    agent, manifest = read(project, "agent.json"), read(project, "build-manifest.json")
    assert heard == [name for name, _ in STAGES]
    assert (agent["id"], agent["version"], agent["description"]) == ("pets", "1.2.0", "Looks after pets.")
    assert agent["tool_interface_version"] == "1.0"
    assert agent["prompt"] == "Be kind. \u2028é😀"
    assert agent["limits"] == {"turns": 7}
    assert agent["agents"]["reader"] == {"prompt": "Read.", "model": "", "tools": ["read"], "limits": {"turns": 3}}
    tools = {one["name"]: one for one in agent["tools"]}
    assert [tools[name]["category"] for name in ("bash", "notify", "pets__list_pets", "shout")] == [
        "builtin", "adapter", "adapter", "custom",
    ]  # fmt: skip
    assert tools["shout"]["origin"] == "script:tools/shout.py"
    assert tools["shout"]["permissions"] == ["execute"]
    assert manifest["counts"]["total"] == len(tools) == made.counts["total"]
    assert manifest["counts"]["dev"] == 0
    assert manifest["versions"]["tool_interface"] == "1.0"
    assert manifest["mode"] == "prod"
    assert {one["kind"] for one in manifest["sources"]} == {"openapi", "scripts", "webhook"}
    assert set(manifest["files"]) == project.bytes().keys() - {"build-manifest.json"}


def test_every_schema_is_a_schema_and_says_what_a_model_is_told(project: Any) -> None:
    project.make()
    for path in (project.output / "tools").iterdir():
        jsonschema_rs.meta.validate(json.loads(path.read_bytes()))
    shout = read(project, "tools/shout.schema.json")
    assert shout["description"] == "Say it loudly."
    assert jsonschema_rs.validator_for(shout).is_valid({"text": "hi"})
    assert not jsonschema_rs.validator_for(shout).is_valid({})


def test_what_guards_the_agent_is_compiled(project: Any) -> None:
    project.make()
    assert read(project, "compiled/policy.json")["rules"] == [
        {"action": "allow", "permission": "read"},
        {"action": "deny", "permission": "execute", "target": "rm *"},
        {"action": "ask", "tool": "http_*"},
    ]
    assert read(project, "compiled/egress.json")["domains"] == ["api.example.com"]
    assert read(project, "compiled/guardrails.json")["deny_commands"] == [{"pattern": "mkfs", "message": "no disks"}]


def test_the_dockerfile_names_what_the_image_needs(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_TOKEN", "0123456789")
    project.says(secrets=["PETS_TOKEN"])
    project.make(prod=True)
    text = (project.output / "Dockerfile").read_text()
    assert "FROM python:" in text
    assert "PETS_TOKEN" in text
    assert "0123456789" not in text
    assert '"--from", "/agent"' in text


def test_the_dockerfile_can_be_read_line_by_line(project: Any) -> None:
    """Nothing here builds an image: its instructions are known, and its commands are those of a shell."""
    project.make()
    lines = (project.output / "Dockerfile").read_text().splitlines()
    instructions = [line.partition(" ")[::2] for line in lines if not line.startswith("#")]
    assert [name for name, _ in instructions] == "ARG FROM RUN RUN RUN COPY USER WORKDIR ENTRYPOINT".split()
    for name, rest in instructions:
        if name == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    assert json.loads(instructions[-1][1]) == ["forge", "run", "--from", "/agent"]
    assert instructions[3][1].endswith(f" forge-tools=={version()}")


@pytest.mark.parametrize(
    ("tools", "extras"), [(["web_fetch"], "[web]"), (["web_fetch", "mcp_call"], "[mcp,web]"), (["file_read"], "")]
)
def test_the_image_has_the_extras_of_its_tools(project: Any, tools: list[str], extras: str) -> None:
    project.says(tools=tools)
    project.make()
    assert f"forge-tools{extras}=={version()}" in (project.output / "Dockerfile").read_text()


@pytest.mark.parametrize(("script", "packages"), [("low.py", ""), ("low.js", "nodejs "), ("low.ts", "esbuild nodejs ")])
def test_the_image_has_what_runs_the_scripts(project: Any, script: str, packages: str) -> None:
    mark = '"""' if script.endswith(".py") else ""
    opening, closing = (mark, mark) if mark else ("/*", "*/")
    project.write(f"tools/{script}", f"{opening}\nTool: low\nDescription: Say it quietly.\n{closing}\n")
    project.make()
    text = (project.output / "Dockerfile").read_text()
    assert f"bubblewrap ca-certificates {packages}&&" in text


def test_files_that_scripts_and_skills_need_come_along(project: Any) -> None:
    (project.root / "tools" / "runs").write_text("#!/bin/sh\n# Tool: runs\n# Description: Runs by itself.\necho hi\n")
    (project.root / "tools" / "runs").chmod(0o700)
    project.write("tools/__pycache__/loud.pyc", "x")
    project.write("tools/.env", "SECRET=1")
    project.write("other/unrelated.py", "x = 1\n")
    project.make()
    files = project.bytes()
    assert {path for path in files if path.startswith(("scripts", "skills", "openapi"))} == {
        "openapi/pets.yaml", "scripts/tools/loud.py", "scripts/tools/runs", "scripts/tools/shout.py",
        "skills/hello/SKILL.md", "skills/hello/more/names.txt",
    }  # fmt: skip
    assert stat.S_IMODE((project.output / "scripts/tools/runs").stat().st_mode) == 0o755
    assert stat.S_IMODE((project.output / "agent.json").stat().st_mode) == 0o644


def test_a_tools_folder_that_holds_no_tool_is_not_copied(project: Any) -> None:
    (project.root / "tools" / "shout.py").unlink()
    project.make()
    assert not any(path.startswith("scripts") for path in project.bytes())


@pytest.mark.parametrize(
    ("stage", "break_it", "said"),
    [
        ("load", lambda p: p.says(toolz=[]), "Did you mean 'tools'?"),
        ("load", lambda p: p.says(webhooks={"notify": {"url_env": "NOT_SET_AT_ALL"}}), "NOT_SET_AT_ALL is not set"),
        ("resolve", lambda p: p.says(tools=["file_raed"]), "there is no tool 'file_raed'"),
        ("resolve", lambda p: p.says(mcpServers={"x": {"command": "/no/such/program"}}), "x is left out"),
        ("resolve", lambda p: p.says(skills={"active": ["greet"]}), "there is no skill 'greet'"),
        ("resolve", lambda p: (p.root / "pets.yaml").write_text("openapi: 2"), "pets"),
        ("compile", lambda p: p.says(permissions={"rules": ["permit read"]}), "unknown action 'permit'"),
        ("manifest", lambda p: (p.root / "tools/link.txt").symlink_to("/etc/hostname"), "tools/link.txt"),
    ],
)
def test_the_first_error_stops_the_build_with_its_stage(
    project: Any, stage: str, break_it: Callable[[Any], object], said: str
) -> None:
    project.make()
    before = project.bytes()
    break_it(project)
    found, problems = project.problems()
    assert found == stage
    assert any(said in one for one in problems)
    assert project.bytes() == before
    assert not list(project.root.glob(".forge-tmp-*"))


def test_the_workspace_is_the_one_that_the_project_says_unless_it_is_named(project: Any) -> None:
    project.write("inner/tools/low.py", '"""\nTool: low\nDescription: Say it quietly.\n"""\n')
    project.says(workspace={"root": "inner"}, openapi={}, skills={})
    assert "low" in project.make().tools
    assert "shout" in project.make(named=True).tools


def test_an_output_among_the_scripts_is_refused(project: Any) -> None:
    stage, problems = project.problems(output=project.root / "tools" / "out")
    assert (stage, "which is copied" in problems[0]) == ("load", True)


def test_a_link_that_stays_in_the_project_is_copied_as_what_it_leads_to(project: Any) -> None:
    project.write("data/names.txt", "Ada\n")
    (project.root / "tools/names.txt").symlink_to("../data/names.txt")
    project.make()
    assert not (project.output / "scripts/tools/names.txt").is_symlink()
    assert (project.output / "scripts/tools/names.txt").read_text() == "Ada\n"
