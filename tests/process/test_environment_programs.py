"""Where a trusted program is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forge.process.environment import find_packaged_program, find_trusted_program


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No program beside this Python."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "empty" / "python"))
    return tmp_path


def program(folder: Path, name: str = "rg") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_one_beside_this_python_comes_first(tmp_path, monkeypatch):
    ours, other = program(tmp_path / "ours"), program(tmp_path / "other")
    monkeypatch.setattr(sys, "executable", str(ours.parent / "python"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_trusted_program("rg", [tmp_path]) == str(ours)


def test_then_the_first_one_on_the_path(alone, monkeypatch):
    first, second = program(alone / "1"), program(alone / "2")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", str(alone / "none"), str(first.parent), str(second.parent)]))
    assert find_trusted_program("rg") == str(first)


def test_one_that_lies_in_a_writable_root_is_passed_over(alone, monkeypatch):
    planted, real = program(alone / "workspace" / "bin"), program(alone / "usr")
    monkeypatch.setenv("PATH", os.pathsep.join([str(planted.parent), str(real.parent)]))
    assert find_trusted_program("rg", [alone / "workspace"]) == str(real)
    assert find_trusted_program("rg", [alone / "work"]) == str(planted)


def test_links_into_a_writable_root_and_out_of_it_are_passed_over(alone, monkeypatch):
    planted = program(alone / "workspace" / "bin")
    outside = alone / "outside"
    outside.mkdir()
    (outside / "rg").symlink_to(planted)
    (alone / "folder").symlink_to(planted.parent)
    real = program(alone / "real")
    (alone / "workspace" / "link").symlink_to(real.parent)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, [outside, alone / "folder", alone / "workspace" / "link"])))
    assert find_trusted_program("rg", [alone / "workspace"]) is None


def test_what_cannot_be_run_is_no_program(alone, monkeypatch):
    path = program(alone / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    path.chmod(0o644)
    (alone / "bin" / "fd").mkdir()
    assert find_trusted_program("rg") is None
    assert find_trusted_program("fd") is None
    path.chmod(0o755)
    assert find_trusted_program("rg") == str(path)


@pytest.fixture
def system(alone, monkeypatch):
    """A Python outside any virtual environment, whose packages put their programs into `scripts` and `user`."""
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    folders = {None: str(alone / "scripts"), "user": str(alone / "user")}
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme=None: folders[scheme])
    monkeypatch.setattr("sysconfig.get_preferred_scheme", lambda kind: kind)
    monkeypatch.setenv("PATH", str(alone / "path"))
    return alone


def test_a_packaged_program_comes_before_one_on_the_path_and_one_beside_the_python_of_the_system(system):
    last = program(system / "path")
    assert find_packaged_program("rg") == str(last)
    beside = program(system / "empty")
    assert find_packaged_program("rg") == str(beside)
    user = program(system / "user")
    assert find_packaged_program("rg") == str(user)
    scripts = program(system / "scripts")
    assert find_packaged_program("rg") == str(scripts)
    assert find_packaged_program("rg", [system / "scripts"]) == str(user)
    assert find_packaged_program("rg", [system]) == str(beside)


def test_in_a_virtual_environment_the_packaged_program_is_beside_its_python(tmp_path, monkeypatch):
    ours, other = program(tmp_path / "venv" / "bin"), program(tmp_path / "other")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "executable", str(ours.parent / "python"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_packaged_program("rg", [tmp_path]) == str(ours)
