"""read_skill as a model calls it."""

from __future__ import annotations

import asyncio
import os

import pytest

from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, Permission
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.pipeline.guard import GuardCalls
from forge.skills.active import ActiveSkills
from forge.skills.tools import ReadSkill

STRANGE = [" ", "a\0b", "\ud800", "x" * 100_000, "../../etc/passwd", "/etc/passwd", "%s{0}", "..", ".", "~", "CON"]


@pytest.fixture
def bench(project):
    project.skill("deploy", "# Deploying\n\nSee reference.md.\n", description="Deploys.")
    project.put("skills/deploy/reference.md", "All the details.")
    project.put("skills/deploy/scripts/x.py", "print(1)")
    project.put("skills/deploy/.env", "KEY=1")
    project.put("skills/secret.md", "---\ndescription: x\n---\nOther.")
    return project


def called(project, active=None, policy=None, **arguments):
    tool = ReadSkill(active if active is not None else ActiveSkills(project.catalog()))
    executor = standard_executor([tool], policy=policy)
    return asyncio.run(executor.execute(ToolCall("read_skill", arguments), project.scope))


def test_the_spec_is_that_of_a_built_in():
    spec = ReadSkill.spec
    assert (spec.name, spec.category, set(spec.permissions)) == ("read_skill", Category.BUILTIN, {Permission.READ})
    assert spec.groups == {"default"}
    assert 8 <= len(spec.description.split()) <= 40
    assert spec.parameters["required"] == ["name"]


def test_the_body_comes_back_with_the_names_of_its_files(bench):
    result = called(bench, name="deploy")
    assert result.for_llm.startswith("# Deploying\n\nSee reference.md.")
    assert "reference.md, scripts/x.py]" in result.for_llm
    assert result.data["files"] == ["reference.md", "scripts/x.py"]
    assert result.data["path"] == "skills/deploy/SKILL.md"
    assert called(bench, name="secret").for_llm == "Other."


def test_a_file_of_the_skill(bench):
    result = called(bench, name="deploy", file="reference.md")
    assert result.for_llm == "All the details."
    assert called(bench, skill="deploy", path="scripts/x.py").for_llm == "print(1)"


def test_an_unknown_skill_lists_those_there_are(bench):
    result = called(bench, name="nothing")
    assert result.failure.kind == "not_found"
    assert "There are: deploy, secret." in result.for_llm


@pytest.mark.parametrize(
    "file", ["../secret.md", "/etc/passwd", "a/../../secret.md", "..\\secret.md", "out", "out/x.md"]
)
def test_nothing_leads_out_of_the_skill(bench, tmp_path_factory, file):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.md").write_text("secret")
    (bench.root / "skills/deploy/out").symlink_to(outside)
    result = called(bench, name="deploy", file=file)
    assert result.failure.kind == "security_error"
    assert "secret" not in result.for_llm.replace("secret.md", "")
    assert called(bench, name="deploy", file="./reference.md").success


def test_a_link_to_another_skill_is_refused_too(bench):
    (bench.root / "skills/deploy/other.md").symlink_to("../secret.md")
    assert called(bench, name="deploy", file="other.md").failure.kind == "security_error"


def test_what_is_no_text_is_refused(bench):
    bench.put("skills/deploy/image.png", b"\x89PNG\xff\xfe")
    os.mkfifo(bench.root / "skills/deploy/fifo")
    assert "not UTF-8" in called(bench, name="deploy", file="image.png").for_llm
    assert "FIFO" in called(bench, name="deploy", file="fifo").for_llm
    assert "It has: fifo, image.png, reference.md" in called(bench, name="deploy", file="nothing.md").for_llm
    assert "is a directory" in called(bench, name="deploy", file="scripts").for_llm
    assert "has no other files" in called(bench, name="secret", file="x").for_llm


@pytest.mark.parametrize("text", STRANGE)
def test_strange_arguments_are_answered(bench, text):
    assert called(bench, name=text).failure is not None
    assert called(bench, name="deploy", file=text).failure is not None or not text.strip()


def test_a_rule_about_the_path_holds(bench):
    policy = rules("allow read", "deny read skills/secret.md")
    assert called(bench, policy=policy, name="secret").failure.kind == "permission_error"
    assert called(bench, policy=policy, name="deploy").success


def test_a_skill_that_lacks_something_says_so(bench):
    bench.skill("lacking", more="metadata: {forge: {requires: {bins: [no-such-program]}}}\n")
    result = called(bench, name="lacking")
    assert result.for_llm.endswith("[This skill cannot be used here: the program no-such-program is not installed.]")
    assert result.data["missing"]


async def test_what_a_skill_denies_is_denied_from_the_moment_it_was_read(bench):
    bench.skill("careful", more="metadata: {forge: {denied_tools: [other], guardrails: {deny_output: [Details]}}}\n")

    def other() -> str:
        """Other."""
        return "fine"

    active = ActiveSkills(bench.catalog())
    executor = ToolExecutor(ToolRegistry([ReadSkill(active), other]), [GuardCalls(active)])
    assert (await executor.execute(ToolCall("other"), bench.scope)).for_llm == "fine"
    assert (await executor.execute(ToolCall("read_skill", {"name": "careful"}), bench.scope)).success
    refused = await executor.execute(ToolCall("other"), bench.scope)
    assert "other is denied by the skill careful" in refused.for_llm
    executor.clear_state("s")
    assert (await executor.execute(ToolCall("other"), bench.scope)).success
