"""Projects for tests."""

from __future__ import annotations

import pytest

from forge import tool_group
from forge.testing import calls, fails, project, says


def test_files_are_written_as_they_read():
    with project(
        {
            "notes/a.txt": """
                one
                  two
                """,
            "forge.yaml": {"limits": {"turns": 5}},
            "data.json": [1, 2],
            "raw.bin": b"\xff",
            "plain.txt": "  as it is",
        }
    ) as made:
        assert made.read("notes/a.txt") == "one\n  two\n"
        assert made.read("forge.yaml") == "limits:\n  turns: 5\n"
        assert made.read("data.json") == "[\n  1,\n  2\n]\n"
        assert (made / "raw.bin").read_bytes() == b"\xff"
        assert made.read("plain.txt") == "  as it is"
        folder = made.path
    assert not folder.exists()


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_nothing_is_written_elsewhere(name):
    with project() as made, pytest.raises(ValueError, match="is not a file of the project"):
        made.write({name: "x"})


def test_changes_are_told_without_our_own_state():
    with project({"a.txt": "one", "b.txt": "two"}) as made:
        assert made.changes() == {}
        tools = made.bench(tool_group("code-agent"))
        tools.text("file_read", path="a.txt")
        tools.text("file_write", path="a.txt", content="three")
        tools.text("file_write", path="c.txt", content="new")
        (made / "b.txt").unlink()
        assert made.changes() == {"a.txt": "changed", "b.txt": "removed", "c.txt": "added"}
        made.write({})
        assert made.changes() == {}
        assert made.scope().workspace == made.path


def test_forge_runs_in_it_as_a_user_would(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    with project({"a.txt": "hello", "yaml.py": "raise SystemExit('shadowed')"}) as made:
        model = made.script(says("Let me look.", calls("file_read", path="a.txt")), says("It says hello."))
        done = made.forge("run", "What does it say?", "--model", model, "--json")
        assert done.code == 0, done.errors
        assert done.lines[-1]["event"] == "run_finished"
        assert done.lines[-1]["text"] == "It says hello."
        failing = made.script(fails("overloaded", status=529))
        assert made.forge("run", "go", "--model", failing).code == 1
        assert made.forge("tool", "call", "uuid_generate", "--json").json["success"]


def test_a_script_that_a_file_cannot_hold_is_refused():
    with project() as made, pytest.raises(TypeError, match="texts, calls and failures"):
        made.script(lambda request: "hi")
