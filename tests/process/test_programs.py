"""Where a trusted program is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forge.process.programs import trusted_program


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
    assert trusted_program("rg", [tmp_path]) == str(ours)


def test_then_the_first_one_on_the_path(alone, monkeypatch):
    first, second = program(alone / "1"), program(alone / "2")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", str(alone / "none"), str(first.parent), str(second.parent)]))
    assert trusted_program("rg") == str(first)


def test_one_that_lies_in_a_writable_root_is_passed_over(alone, monkeypatch):
    planted, real = program(alone / "workspace" / "bin"), program(alone / "usr")
    monkeypatch.setenv("PATH", os.pathsep.join([str(planted.parent), str(real.parent)]))
    assert trusted_program("rg", [alone / "workspace"]) == str(real)
    assert trusted_program("rg", [alone / "work"]) == str(planted)


def test_links_into_a_writable_root_and_out_of_it_are_passed_over(alone, monkeypatch):
    planted = program(alone / "workspace" / "bin")
    outside = alone / "outside"
    outside.mkdir()
    (outside / "rg").symlink_to(planted)
    (alone / "folder").symlink_to(planted.parent)
    real = program(alone / "real")
    (alone / "workspace" / "link").symlink_to(real.parent)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, [outside, alone / "folder", alone / "workspace" / "link"])))
    assert trusted_program("rg", [alone / "workspace"]) is None


def test_what_cannot_be_run_is_no_program(alone, monkeypatch):
    path = program(alone / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    path.chmod(0o644)
    (alone / "bin" / "fd").mkdir()
    assert trusted_program("rg") is None
    assert trusted_program("fd") is None
    path.chmod(0o755)
    assert trusted_program("rg") == str(path)
