"""Reading a skill only tightens; what loosens needs a person."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import forge
from forge.core.errors import ToolError
from forge.skills.active import ActiveSkills
from forge.skills.guardrails import Guardrails
from tests import programs

TIGHT = "metadata: {forge: {denied_tools: [bash], guardrails: {deny_commands: [{pattern: rm -rf}]}}}\n"
LOOSE = """\
metadata:
  forge:
    egress_domains: [api.example.com]
    groups: [code-agent]
    requires: {env: {optional: [SKILL_KEY]}}
"""


def denied(active: ActiveSkills, session: str) -> list[str]:
    found = active.rules(session)
    return sorted(found.tools) if found is not None else []


def test_reading_tightens_for_that_session_alone(project):
    project.skill("tight", more=TIGHT)
    active = ActiveSkills(project.catalog())
    assert active.rules("a") is None
    active.read(active.catalog.find("tight"), "a")
    assert denied(active, "a") == ["bash"]
    assert (active.rules("a") or Guardrails()).commands
    assert active.rules("b") is None
    active.forget("a")
    assert active.rules("a") is None


def test_reading_never_loosens(project):
    project.skill("loose", "## Tool: t\nT.\n", LOOSE)
    project.put("skills/loose/scripts/t.py", "")
    active = ActiveSkills(project.catalog())
    active.read(active.catalog.find("loose"), "a")
    assert (active.groups, active.egress_domains, active.environment, active.tools()) == ((), (), (), [])
    named = ActiveSkills(project.catalog(), ["loose"])
    assert named.groups == ("code-agent",)
    assert named.egress_domains == ("api.example.com",)
    assert named.environment == ("SKILL_KEY",)
    assert [tool.spec.name for tool in named.tools()] == ["t"]


def test_what_a_person_named_holds_in_every_session(project):
    project.skill("tight", more=TIGHT)
    own = Guardrails.of({"deny_output": ["secret"]})
    active = ActiveSkills(project.catalog(), ["tight"], own)
    assert denied(active, "any") == ["bash"]
    assert (active.rules("any") or Guardrails()).output
    active.forget("any")
    assert denied(active, "any") == ["bash"]


def test_one_that_lacks_something_brings_nothing_and_denies_all_the_same(project):
    project.skill(
        "both",
        more="metadata: {forge: {requires: {bins: [no-such-program]}, groups: [code-agent], denied_tools: [bash]}}\n",
    )
    active = ActiveSkills(project.catalog(), ["both"])
    assert active.groups == ()
    assert active.inactive == {"both": ("the program no-such-program is not installed",)}
    assert denied(active, "s") == ["bash"]


def test_a_name_that_no_skill_has_is_an_error(project):
    with pytest.raises(ToolError, match="there is no skill 'nothing'"):
        ActiveSkills(project.catalog(), ["nothing"])


def test_names_of_tools_are_taken_once(project):
    for name in ("one", "two"):
        project.skill(name, "## Tool: t\nT.\n## Tool: bash\nB.\n")
        project.put(f"skills/{name}/scripts/t.py", "")
    active = ActiveSkills(project.catalog(), ["one", "two"])
    assert [tool.spec.origin for tool in active.tools(taken={"bash"})] == ["skill:one"]
    assert len(active.problems) == 3


def test_a_session_that_goes_on_elsewhere_is_as_bound(project):
    project.skill("tight", more=TIGHT)
    path = project.root / ".forge/state.db"
    first = ActiveSkills(project.catalog(), path=path)
    assert first.rules("a") is None
    assert not path.exists()  # nothing is kept where nothing was read
    first.read(first.catalog.find("tight"), "a")
    second = ActiveSkills(project.catalog(), path=path)
    assert denied(second, "a") == ["bash"]
    assert denied(second, "b") == []
    second.forget("a")
    assert denied(ActiveSkills(project.catalog(), path=path), "a") == []


def test_a_skill_without_limits_leaves_nothing_behind(project):
    project.skill("plain")
    path = project.root / ".forge/state.db"
    active = ActiveSkills(project.catalog(), path=path)
    active.read(active.catalog.find("plain"), "a")
    assert not path.exists()


def test_a_store_that_cannot_be_used_does_not_loosen(project, caplog):
    project.skill("tight", more=TIGHT)
    project.put(".forge", "a file where the folder should be")
    active = ActiveSkills(project.catalog(), path=project.root / ".forge/state.db")
    active.read(active.catalog.find("tight"), "a")
    assert denied(active, "a") == ["bash"]
    assert "could not be stored" in caplog.text


def test_while_the_store_is_held_by_another_nothing_is_loosened(project, monkeypatch):
    project.skill("tight", more=TIGHT)
    path = project.root / ".forge/state.db"
    first = ActiveSkills(project.catalog(), path=path)
    first.read(first.catalog.find("tight"), "a")
    first._store._store.close()
    second = ActiveSkills(project.catalog(), path=path)
    monkeypatch.setattr("forge.workspace.state.store.PATIENCE", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ToolError, match="locked by another process"):
            second.rules("a")
    assert denied(second, "a") == ["bash"]  # it is asked again, not taken for nothing


def test_a_damaged_store_is_set_aside_and_said(project):
    project.skill("tight", more=TIGHT)
    path = project.root / ".forge/state.db"
    first = ActiveSkills(project.catalog(), path=path)
    first.read(first.catalog.find("tight"), "a")
    first._store._store.close()
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 8_000)
    second = ActiveSkills(project.catalog(), path=path)
    with pytest.raises(ToolError, match=r"set aside as state\.db\.corrupt-"):
        second.rules("a")
    assert list(path.parent.glob("state.db.corrupt-*"))
    assert denied(first, "a") == ["bash"]  # who read it knows it still


CHILD = """
import sys
from pathlib import Path
from forge.skills.active import ActiveSkills
from forge.skills.catalog import Catalog
from forge.core.context import Scope
root = Path(sys.argv[1])
active = ActiveSkills(Catalog(("skills",), Scope(workspace=root)), path=root / ".forge/state.db")
skill = active.catalog.find("tight")
number = 0
while True:
    active.read(skill, f"s{sys.argv[2]}-{number}")
    print(number, flush=True)
    number += 1
"""


def test_what_was_kept_survives_being_killed_and_two_processes_at_once(project):
    project.skill("tight", more=TIGHT)
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    last: dict[str, int] = {}
    for number in range(3):
        children = [
            programs.Popen(
                [sys.executable, "-c", CHILD, str(project.root), f"{number}{letter}"],
                stdout=subprocess.PIPE,
                env=environment,
            )
            for letter in "ab"
        ]
        for child, letter in zip(children, "ab", strict=True):
            assert child.stdout is not None
            for _ in range(5 + 7 * number):
                last[f"{number}{letter}"] = json.loads(child.stdout.readline())
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.communicate()
    active = ActiveSkills(project.catalog(), path=project.root / ".forge/state.db")
    for name, most in last.items():
        for number in range(most + 1):
            assert denied(active, f"s{name}-{number}") == ["bash"]
