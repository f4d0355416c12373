"""The pytest plugin, in runs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import forge.testing

# forge_mcp is used in test_docs.py: the SDK takes a second to load in every process
USES = """
    from forge.testing import assert_called, calls, says

    def add(a: int, b: int = 0) -> int:
        "Add two numbers."
        return a + b

    def test_bench(forge_bench, forge_project):
        made = forge_bench(add)
        assert made.text("add", a=1) == "1"
        assert made.workspace == forge_project.path

    def test_model(forge_model):
        from forge import Agent
        result = Agent(forge_model(calls("add", a=1), says("Done.")), tools=[add]).run_sync("go")
        assert_called(result, "add", a=1)

    def test_script_left(forge_model):
        forge_model("never asked for")

    def test_question_left(forge_person):
        forge_person("yes")

    def test_fails_by_itself(forge_model):
        forge_model("never asked for")
        assert 1 == 2, "its own words"

    def test_clock(forge_clock):
        assert forge_clock.now().year == 2026

    def test_tape(forge_bench, forge_tape):
        assert forge_bench(add, tape=forge_tape).text("add", a=3) == "3"

    def test_person(forge_person, forge_bench):
        from forge import rules, tool
        made = forge_bench(tool(permissions={"execute"})(add), policy=rules("ask execute"), approve=forge_person("yes"))
        assert made.text("add", a=3) == "3"
"""


def run(folder: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(textwrap.dedent(content))
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-Werror",
            *options,
            "test_it.py",
        ],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_the_fixtures_work_and_complain_only_where_a_test_passed(tmp_path):
    done = run(tmp_path, USES, "-p", "forge.testing.plugin")
    assert "5 passed" in done.stdout, done.stdout + done.stderr
    assert "3 failed" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
    assert "turns were not used" in done.stdout
    assert "1 answers were not used" in done.stdout
    assert "its own words" in done.stdout
    assert (tmp_path / "tapes" / "test_it.test_tape.ndjson").exists()


@pytest.mark.slow
def test_an_entry_point_and_the_option_go_together(tmp_path):
    info = tmp_path / "site" / "of_a_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nforge.testing.plugin = forge.testing.plugin\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["forge.testing.plugin"]\n')
    content = "def test_clock(forge_clock):\n    assert forge_clock.now()\n"
    program = (
        f"import sys; sys.path.insert(0, {str(info.parent)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    )
    (tmp_path / "test_it.py").write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", program, "-p", "no:cacheprovider", "-Werror", "-p", "forge.testing.plugin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_whoever_uses_no_fixture_loads_nothing(tmp_path):
    content = """
        import sys

        def test_nothing_is_loaded():
            ours = {name for name in sys.modules if name.split(".")[0] == "forge"}
            folders = {"forge.mcp", "forge.openapi", "forge.scripts"}  # of which only the names are there
            folders |= {"forge.core", "forge.core.public"}  # which looks names up
            assert ours <= {"forge", "forge.testing", "forge.testing.plugin", *folders}
    """
    done = run(tmp_path, content, "-p", "forge.testing.plugin")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", forge.testing.__all__)  # type: ignore[attr-defined]
def test_every_public_name_can_be_imported(name):
    assert getattr(forge.testing, name).__doc__
    assert name in dir(forge.testing)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        forge.testing.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_the_same_names():
    import ast

    tree = ast.parse(Path(forge.testing.__file__).read_text(encoding="utf-8"))
    [seen] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [alias.asname for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(filter(None, imported)) == forge.testing.__all__  # type: ignore[attr-defined]
