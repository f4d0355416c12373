"""A skill's scripts as tools: what they are given, what comes back, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from forge.core.messages import ToolCall
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.process.run_script import ScriptSettings
from forge.skills.script_tool import skill_tools
from forge.skills.skill import files_of, tool_of

PYTHON = "import json, os, sys\ngiven = json.load(sys.stdin)\nprint(json.dumps({'got': given, 'cwd': os.getcwd()}))\n"
SHELL = "printf 'said %s' \"$(cat)\"\n"
BODY = "## Tool: echoed\nEchoes.\n\n**Input:**\n- text (str): What.\n- times (int) = 2: How often.\n"
OFF = ScriptSettings(sandbox="off")


def made(project, name="echo", settings=OFF, taken=()):
    return skill_tools(project.catalog().find(name), settings, taken)


def called(project, tool, **arguments):
    executor = standard_executor([tool], policy=rules("allow execute"))
    return asyncio.run(executor.execute(ToolCall(tool.spec.name, arguments), project.scope))


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_script_gets_its_arguments_and_gives_a_result(project, sandbox):
    project.skill("echo", BODY)
    project.put("skills/echo/scripts/echoed.py", PYTHON)
    (tool,), problems = made(project, settings=ScriptSettings(sandbox=sandbox))
    assert problems == []
    assert (tool.spec.origin, tool.spec.category, set(tool.spec.permissions)) == ("skill:echo", "custom", {"execute"})
    result = called(project, tool, text="hello")
    assert result.success, result.for_llm
    assert result.data["result"] == {"got": {"text": "hello", "times": 2}, "cwd": str(project.root)}
    assert tool.targets({}) == ["skills/echo/scripts/echoed.py"]


def test_a_shell_script_and_a_named_one(project):
    project.skill("echo", "## Tool: echoed\nE.\n**Script:** bin/it.sh\n\n## Tool: do-it\nD.\n")
    project.put("skills/echo/bin/it.sh", SHELL)
    project.put("skills/echo/scripts/do_it.sh", "echo done\n")
    (first, second), problems = made(project)
    assert problems == []
    assert called(project, first).for_llm == "said {}"
    assert called(project, second).for_llm == "done"


def test_arguments_are_checked(project):
    project.skill("echo", BODY)
    project.put("skills/echo/scripts/echoed.py", PYTHON)
    (tool,), _ = made(project)
    assert "times: expected integer" in called(project, tool, text="a", times="many").for_llm


def test_a_script_that_fails_says_why(project):
    project.skill("echo", BODY)
    project.put("skills/echo/scripts/echoed.py", "import sys; sys.exit('no \\x1b[31mway')")
    (tool,), _ = made(project)
    result = called(project, tool, text="a")
    assert result.failure.message == "skills/echo/scripts/echoed.py failed with exit code 1: no [31mway"


def test_a_script_that_was_changed_is_not_run(project):
    project.skill("echo", BODY)
    script = project.put("skills/echo/scripts/echoed.py", PYTHON)
    (tool,), _ = made(project)
    script.write_text("print('evil')")
    result = called(project, tool, text="a")
    assert result.failure.kind == "security_error"
    assert "has changed since the skill was loaded" in result.for_llm


def test_what_can_be_no_tool_is_reported(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "x.py"
    outside.write_text(PYTHON)
    project.skill(
        "echo",
        BODY
        + "## Tool: bash\nB.\n## Tool: a__b\nA.\n## Tool: gone\nG.\n## Tool: out\nO.\n**Script:** ../../other.py\n"
        + "## Tool: linked\nL.\n## Tool: typed\nT.\n**Input:** x (strng): y\n## Tool: echoed\nAgain.\n",
    )
    project.put("skills/echo/scripts/echoed.py", PYTHON)
    (project.root / "skills/echo/scripts/linked.py").symlink_to(outside)
    tools, problems = made(project, taken={"bash"})
    assert [tool.spec.name for tool in tools] == ["echoed"]
    assert [problem.path for problem in problems] == ["skills/echo/SKILL.md"] * 7
    said = [problem.why for problem in problems]
    assert said[0] == "tool bash: the name is taken by another tool. Choose another."
    assert "cannot be the name of a tool" in said[1]
    assert "there is no script scripts/gone" in said[2]
    assert "is outside the skill" in said[3]
    assert "outside" in said[4]
    assert "the type 'strng'" in said[5]
    assert said[6].startswith("tool echoed: the name is taken by another tool")


def test_the_hint_and_the_variables_of_the_skill_count(project, monkeypatch):
    more = "metadata: {forge: {timeout_hint: 7, requires: {env: {optional: [SKILL_KEY]}}}}\n"
    project.skill("echo", BODY, more)
    project.put("skills/echo/scripts/echoed.py", "import os; print(os.environ.get('SKILL_KEY'), 'OTHER' in os.environ)")
    monkeypatch.setenv("SKILL_KEY", "k")
    monkeypatch.setenv("OTHER", "o")
    (tool,), _ = made(project)
    assert tool.spec.timeout == 7.0
    assert called(project, tool, text="a").for_llm == "k False"


def test_a_flat_skill_has_no_scripts(project):
    project.put("skills/flat.md", f"---\ndescription: x\n---\n{BODY}")
    tools, (problem,) = made(project, "flat")
    assert tools == []
    assert "there is no script" in problem.why


@pytest.mark.parametrize("name", ["weather", "a-b-c", "9-lives", "x" * 64])
def test_the_template_works_as_it_is(project, name):
    for path, content in files_of(name).items():
        project.put(f"skills/{name}/{path}", content)
    catalog = project.catalog()
    assert catalog.problems == []
    (tool,), problems = made(project, name)
    assert problems == []
    assert tool.spec.name == tool_of(name)
    assert called(project, tool, text="a", times=2).data["result"] == {"result": "a a"}
