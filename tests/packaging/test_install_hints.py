"""The command that installs an extra works as it is printed: from a clone or a wheel, with pip or with uv."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from forge.core import extras
from forge.core.extras import install_command, install_program
from tests.packaging.base_install import ROOT


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def python(tmp_path, monkeypatch):
    """An environment whose folder is not on the PATH."""
    program = make_program(tmp_path / "its own" / "bin" / "python")
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    return program


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "lib/python3/site-packages/forge/core/extras.py"))


@pytest.mark.usefixtures("wheel")
def test_pip_is_enough_where_the_shell_finds_the_one_of_this_environment(python, monkeypatch):
    make_program(python.with_name("pip"))
    monkeypatch.setenv("PATH", str(python.parent))
    assert install_command("mcp") == "pip install 'forge-tools[mcp]'"


@pytest.mark.usefixtures("wheel")
def test_another_pip_on_the_path_is_not_named(python, tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: object())
    make_program(tmp_path / "elsewhere" / "pip")
    assert install_command("web") == f"'{python}' -m pip install 'forge-tools[web]'"


@pytest.mark.usefixtures("wheel")
def test_an_environment_without_pip_is_filled_by_uv(python, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert install_command("web") == f"uv pip install --python '{python}' 'forge-tools[web]'"


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize(
    ("source", "requirement"),
    [
        ({"url": "file:///my%20clone", "dir_info": {}}, "/my clone[web]"),
        ({"url": "file:///forge.whl", "archive_info": {}}, "forge-tools[web] @ file:///forge.whl"),
        (
            {"url": "https://x.example/f.git", "vcs_info": {"vcs": "git"}},
            "forge-tools[web] @ git+https://x.example/f.git",
        ),
        ({}, "forge-tools[web]"),
    ],
)
def test_an_extra_comes_from_where_forge_was_installed(tmp_path, source, requirement):
    about = tmp_path / "lib/python3/site-packages/forge_tools-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: forge-tools\nVersion: 0.1.0\n")
    (about / "direct_url.json").write_text(json.dumps(source))
    assert shlex.split(install_command("web"))[-1] == requirement


def test_a_clone_is_installed_from_where_it_is():
    words = shlex.split(install_command("web"))
    assert words[-2:] == ["-e", f"{ROOT}[web]"]
    assert words[:-2] == shlex.split(install_program())


def test_a_folder_with_spaces_is_quoted(tmp_path, monkeypatch):
    clone = tmp_path / "my forge"
    (clone / "src/forge/core").mkdir(parents=True)
    (clone / "pyproject.toml").write_text('[project]\nname = "forge-tools"\n')
    monkeypatch.setattr(extras, "__file__", str(clone / "src/forge/core/extras.py"))
    assert shlex.split(install_command("web"))[-1] == f"{clone}[web]"
    (clone / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert install_command("web").endswith(" 'forge-tools[web]'")


def test_every_hint_of_the_sources_comes_from_one_place():
    """Only examples in prose and programs of others are written out."""
    written = {
        str(path.relative_to(ROOT / "src/forge"))
        for path in (ROOT / "src/forge").rglob("*.py")
        for line in path.read_text().splitlines()
        if "pip install" in line
    }
    others = {"project/build/manifest.py", "project/templates.py", "tools/test_runner/frameworks.py"}
    others |= {"permissions/shell/programs.py"}  # it knows lines that need the network
    assert written == {"core/extras.py", *others}
