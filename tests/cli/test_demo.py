"""`forge demo` works anywhere: no model, no key, no network, no clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from forge.cli.commands.demo import FILES
from forge.testing import Project


def test_the_demo_runs_in_an_empty_directory_and_leaves_nothing(forge_project: Project):
    ended = forge_project.forge("demo")
    assert ended.code == 0, ended.errors
    assert "North sold most in the first quarter" in ended.output
    assert "forge init helper" in ended.output
    assert "The report was not written" in ended.output
    for words in ("is never closed", "leads outside the workspace", "Sub-agent", "there is no one to ask"):
        assert words in ended.errors
    assert not list(forge_project.path.iterdir())


@pytest.mark.slow
def test_the_demo_needs_no_network(forge_project: Project):
    blocked = forge_project.home / "sitecustomize.py"
    blocked.write_text(
        "import socket\n"
        "real = socket.socket.connect\n"
        "def connect(self, address):\n"
        "    if self.family != socket.AF_UNIX: raise SystemExit('the demo used the network')\n"
        "    return real(self, address)\n"
        "socket.socket.connect = connect\n"
    )
    ended = forge_project.forge("demo", environment={"PYTHONPATH": str(forge_project.home)})
    assert ended.code == 0, ended.errors
    assert "used the network" not in ended.output + ended.errors


def test_the_files_of_the_demo_belong_to_the_package():
    import forge

    assert Path(forge.__file__).parent in FILES.parents
    assert {path.name for path in FILES.iterdir()} == {"conversation.yaml", "rules", "sales.csv"}
