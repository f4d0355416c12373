"""`forge build`: what is said, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.cli import forge as commands
from forge.cli.commands.build import command
from forge.project.trust import accept
from tests import programs
from tests.cli.scripts import script

READY = "egress: {mode: deny-all}\ntools: [{group: read}, local_shell]\n"


@pytest.fixture(autouse=True)
def _home(workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's; and the command is there, whoever registered it."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "FORGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(commands, "modules", {**commands.modules, "build": "forge.cli.commands.build"})
    (workspace / "forge.yaml").write_text(READY)


def test_a_project_is_built_and_it_is_said_how_to_run_it(here: Any, workspace: Path) -> None:
    done = here("build", "--prod", "--config", "forge.yaml")
    assert done.code == 0
    assert "for development only: local_shell" in done.err
    assert f"forge run --from {workspace / '.forge-output'} --expect" in done.out
    assert json.loads((workspace / ".forge-output/agent.json").read_bytes())["tool_interface_version"] == "1.0"


def test_programs_read_json(here: Any, workspace: Path) -> None:
    done = here("build", "--config", "forge.yaml", "--output", "out", "--json")
    assert done.code == 0
    assert done.json["ok"] is True
    assert done.json["counts"]["dev"] == 1
    assert done.json["mode"] == "plain"
    assert (workspace / "out" / "build-manifest.json").is_file()


def test_a_refusal_names_the_stage_and_all_that_is_wrong(here: Any, workspace: Path) -> None:
    (workspace / "forge.yaml").write_text("sandbox: off\nsecrets: [NOBODY_SET_THIS]\n")
    done = here("build", "--prod", "--config", "forge.yaml")
    assert done.code == 2
    assert done.out == ""
    lines = done.err.strip().splitlines()
    assert len(lines) == 3
    assert all("forge build: filter: " in line for line in lines)
    told = here("build", "--prod", "--config", "forge.yaml", "--json")
    assert (told.code, told.json["ok"], told.json["stage"]) == (2, False, "filter")
    assert told.json["problems"][0]["advice"]
    assert not (workspace / ".forge-output").exists()


def test_dev_and_prod_exclude_each_other(here: Any, workspace: Path) -> None:
    done = here("build", "--dev", "--prod", "--config", "forge.yaml")
    assert done.code == 2
    assert "cannot be combined" in done.err
    assert not (workspace / ".forge-output").exists()
    assert here("build", "--dev", "--config", "forge.yaml").code == 0


def test_a_configuration_that_was_found_is_built_once_it_is_trusted(here: Any, workspace: Path) -> None:
    done = here("build")
    assert done.code == 2
    assert "cannot build: untrusted project" in done.err
    accept(workspace)
    assert here("build").code == 0
    (workspace / "forge.yaml").write_text(f"{READY}sandbox: required\n")
    assert here("build").code == 2


def test_where_there_is_no_project_nothing_is_built(here: Any, workspace: Path) -> None:
    (workspace / "forge.yaml").unlink()
    done = here("build")
    assert done.code == 2
    assert "cannot build: there is no forge.yaml here" in done.err


def test_the_help_has_examples_and_the_exit_codes(here: Any) -> None:
    done = here("build", "--help")
    assert done.code == 0
    assert "forge build --prod" in done.out
    assert "Exit codes:" in done.out
    assert command.name == "build"


def test_at_a_terminal_every_stage_is_seen(workspace: Path) -> None:
    script = "import sys; from forge.cli.commands.build import command; command(sys.argv[1:])"
    ours, theirs = pty.openpty()
    with programs.Popen(
        [sys.executable, "-c", script, "--config", "forge.yaml"],
        cwd=workspace, stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = _all_of(ours)
        assert process.wait(60) == 0
    for stage in ("load", "resolve", "filter", "schemas", "compile", "manifest", "validate"):
        assert f"✓ {stage}" in re.sub(r"\x1b\[\d*m", "", seen)


def _all_of(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # the other side is closed
        pass
    os.close(terminal)
    return b"".join(parts).decode()


def test_what_was_built_runs_without_a_word_about_the_project_beside_it(here: Any, workspace: Path) -> None:
    built = here("build", "--config", "forge.yaml", "--json").json
    model = script(workspace, "ok", "ok")
    ran = here("run", "go", "--from", ".forge-output", "--expect", built["sha256"], "--model", model)
    assert ran.code == 0
    assert "forge.yaml" not in ran.err
    assert f"forge run --from .forge-output --expect {built['sha256']} --session " in ran.err
    assert "forge.yaml is not trusted yet" in here("run", "go", "--model", model).err
