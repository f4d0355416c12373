"""A running console is found again by its owner alone, and its key stays when it ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from forge.console import running_console


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "forge" / "console"


@pytest.fixture
def workspace(tmp_path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def test_a_console_that_runs_gives_links_that_work(folder, workspace):
    running = running_console.register_console(workspace, 8485)
    found = running_console.find_console(workspace)
    assert found is not None
    token = found.url.partition("token=")[2]
    assert running.entrance.enter(token) is not None


def test_its_file_is_readable_by_its_owner_alone_and_not_in_the_workspace(folder, workspace):
    running_console.register_console(workspace, 8485)
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(workspace.iterdir()) == []


def test_one_that_ended_is_not_found_and_open_pages_go_on_with_the_next(folder, workspace):
    first = running_console.register_console(workspace, 8485)
    cookie = first.entrance.enter(first.entrance.new_link())
    assert cookie is not None
    running_console.unregister_console(first)
    assert running_console.find_console(workspace) is None
    second = running_console.register_console(workspace, 8485)
    assert second.entrance.knows(cookie)
    assert second.entrance.enter(first.entrance.new_link()) is None


def test_the_end_of_one_does_not_hide_another(folder, workspace):
    first, second = running_console.register_console(workspace, 8485), running_console.register_console(workspace, 8486)
    assert running_console.find_console(workspace) == second
    running_console.unregister_console(second)
    assert running_console.find_console(workspace) == first
    assert first.key == second.key
    running_console.unregister_console(first)
    assert running_console.find_console(workspace) is None


def test_a_file_that_others_can_read_or_that_is_broken_counts_as_none(folder, workspace):
    before = running_console.register_console(workspace, 8485)
    (file,) = folder.iterdir()
    file.chmod(0o644)
    assert running_console.find_console(workspace) is None
    assert running_console.register_console(workspace, 8485).key != before.key
    for broken in ("{", "[]", "{}", '{"key": 1, "running": []}', file.read_text().replace(str(os.getpid()), '"x"')):
        file.write_text(broken)
        assert running_console.find_console(workspace) is None
    assert running_console.register_console(workspace, 8485).port == 8485


def test_where_tools_could_read_the_key_nothing_is_written(workspace, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(workspace / "data"))
    running = running_console.register_console(workspace, 8485)
    assert running.entrance.new_link()
    assert running_console.find_console(workspace) is None
    assert list(workspace.iterdir()) == []


def test_a_dead_process_is_not_found(folder, workspace, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)
    running_console.register_console(workspace, 8485)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(folder.parents[1]))
    assert running_console.find_console(workspace) is None
