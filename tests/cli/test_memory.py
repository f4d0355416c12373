"""`forge memory`: searched, shown, indexed and counted by a person."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import click
import pytest

from forge.cli.commands import memory as module
from forge.cli.refusal import Refusal
from forge.memory.memory import Memory
from forge.workspace.state import state_directory


@pytest.fixture
def command(workspace, monkeypatch, capsys):
    """`command("search", "tea")`: what it printed, on a memory of its own."""
    stub = ModuleType("forge.project.assemble.knowledge")
    stub.project_memory = lambda options: Memory(workspace / ".forge" / "memory")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "forge.project.assemble.knowledge", stub)

    def run(*arguments):
        capsys.readouterr()
        module.command.main([*arguments], prog_name="memory", standalone_mode=False)
        return capsys.readouterr()

    return run


@pytest.fixture
def notes(workspace):
    folder = state_directory(workspace, "memory")
    (folder / "MEMORY.md").write_text("# Tea\n\nThe person likes \x1b[31mtea.\n")
    (folder / "2026-01-02.md").write_text("Coffee.\n")
    return folder


def test_what_is_found_is_shown_with_its_place(command, notes):
    shown = command("search", "tea")
    assert shown.out == "MEMORY.md:1  1.000\n    # Tea\n    \n    The person likes ⟨U+001B⟩[31mtea.\n\n"
    wire = json.loads(command("search", "tea", "--json").out)
    assert [(one["source"], one["line_start"], one["line_end"]) for one in wire["results"]] == [("MEMORY.md", 1, 3)]
    assert wire["remarks"] == []
    assert command("search", "nothing").err == "No results.\n"


def test_notes_are_listed_and_shown(command, notes):
    assert command("show").out == "MEMORY.md\n2026-01-02.md\n"
    assert json.loads(command("show", "--json").out) == {"notes": ["MEMORY.md", "2026-01-02.md"]}
    assert command("show", "2026-01-02.md").out == "Coffee.\n"
    assert json.loads(command("show", "2026-01-02.md", "--json").out) == {
        "path": "2026-01-02.md",
        "content": "Coffee.\n",
    }


@pytest.mark.parametrize("name", ["2026-01-03.md", "../../secret.md", "/etc/passwd"])
def test_a_note_that_is_none_is_exit_code_2(command, notes, name):
    with pytest.raises(Refusal) as refused:
        command("show", name)
    assert refused.value.exit_code == 2


def test_the_index_is_brought_up_to_date(command, notes):
    assert command("reindex").out.startswith("2 notes in 2 pieces; 2 changed, in ")
    done = json.loads(command("reindex", "--json").out)
    assert (done["notes"], done["changed"], done["chunks"], done["remarks"]) == (2, 0, 2, [])
    assert json.loads(command("reindex", "--rebuild", "--json").out)["changed"] == 2


def test_a_damaged_index_is_reported(command, notes, workspace):
    command("reindex")
    (workspace / ".forge" / "memory.db").write_bytes(b"nonsense" * 1_000)
    shown = command("search", "tea")
    assert "set aside" in shown.err
    assert "MEMORY.md" in shown.out


def test_how_much_there_is(command, notes, workspace):
    shown = command("stats").out
    assert shown.startswith(f"notes     2 in {workspace}/.forge/memory\npieces    2\nembedder  none\n")
    wire = json.loads(command("stats", "--json").out)
    assert (wire["notes"], wire["chunks"], wire["vectors"]) == (2, 2, 0)
    assert wire["index_bytes"] > 0


def test_a_workspace_without_notes_stays_as_it_is(command, workspace):
    assert command("show").err == "There are no notes.\n"
    assert command("search", "x").err == "No results.\n"
    assert json.loads(command("stats", "--json").out)["notes"] == 0
    assert json.loads(command("reindex", "--json").out)["notes"] == 0
    assert list(workspace.iterdir()) == []


def test_a_wrong_flag_is_explained(command):
    with pytest.raises(click.UsageError):
        command("search", "x", "--max-results", "0")
