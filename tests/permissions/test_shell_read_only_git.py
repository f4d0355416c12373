"""Git only reads where no setting of the repository names a program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from forge.core.context import Scope
from forge.permissions.shell.read_only import only_reads

READING = ["git status", "git diff", "git log -p", "git show HEAD", "git blame a", "git grep foo"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    _git(place, "init", "-q")
    _git(place, "commit", "-q", "--allow-empty", "-m", "first")
    return place


def _git(place: Path, *words: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *who, *words], cwd=place, env=env, check=True, capture_output=True)


def _reads(place: Path, line: str, directory: str = "") -> bool:
    return only_reads(line, Scope(workspace=place), directory) is not None


def _write(place: Path, text: str) -> None:
    (place / ".git" / "config").write_text(text)


@pytest.mark.parametrize("line", READING)
def test_an_ordinary_repository_may_be_looked_at(repository: Path, line: str) -> None:
    _git(repository, "remote", "add", "origin", "https://example.com/a.git")
    _git(repository, "config", "branch.main.remote", "origin")
    _git(repository, "config", "user.email", "a@example.com")
    assert _reads(repository, line)


@pytest.mark.parametrize(
    "text",
    [
        '[core]\n\tfsmonitor = "touch PWNED; false"\n',
        "[core] fsmonitor = ./x\n",
        "[CORE]\n\tFsMonitor = ./x\n",
        "[core]\n\tbare = false\n\tfsmonitor\n",
        "[core]\n\tpager = ./x\n",
        "[core]\n\tsshCommand = ./x\n",
        "[core]\n\thooksPath = x\n",
        "[core]\n\tworktree = /etc\n",
        "[diff]\n\texternal = ./x\n",
        '[diff "y"]\n\ttextconv = ./x\n',
        '[diff "y"]\n\tcommand = ./x\n',
        '[filter "y"]\n\tclean = ./x\n',
        "[gpg]\n\tprogram = ./x\n",
        "[include]\n\tpath = ../x\n",
        '[includeIf "gitdir:/"]\n\tpath = ../x\n',
        "[pager]\n\tlog = ./x\n",
        "[log]\n\tshowSignature = true\n",
        '[remote "origin"]\n\tpromisor = true\n',
        '[remote "origin"]\n\tuploadpack = ./x\n',
        "[extensions]\n\tpartialClone = origin\n",
        "[core.x]\n\tbare = false\n",
        "[user]\n\tname = a\\\n\tb\n",
        "[user]\n\tname = a ; b\n[core]fsmonitor=x\n",
        "nonsense\n",
        "\ufeff[core]\n\tbare = false\n",
    ],
)
def test_a_setting_that_is_not_known_to_be_harmless_makes_git_ask(repository: Path, text: str) -> None:
    _write(repository, text)
    for line in READING:
        assert not _reads(repository, line)


def test_settings_of_a_worktree_and_comments_count_too(repository: Path) -> None:
    _write(repository, "# fsmonitor = x\n; more\n[core]\n\tbare = false # fsmonitor = x\n")
    assert _reads(repository, "git status")
    (repository / ".git" / "config.worktree").write_text("[core]\n\tfsmonitor = x\n")
    assert not _reads(repository, "git status")


def test_a_repository_elsewhere_that_a_file_names_is_judged_by_its_settings(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _git(repository, "worktree", "add", "-q", str(other))
    assert _reads(other, "git status")
    _write(repository, "[core]\n\tfsmonitor = x\n")
    assert not _reads(other, "git status")
    _write(repository, "[core]\n\tbare = false\n")
    (other / ".git").write_text("no such line\n")
    assert not _reads(other, "git status")


def test_a_blank_at_the_end_of_a_named_repository_is_part_of_its_name(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    _git(tmp_path / "other", "init", "-q")
    (repository / "sub").mkdir()
    (repository / "sub" / ".git").write_text("gitdir: ../../other/.git\n")
    assert _reads(repository, "git status", "sub")
    (tmp_path / "other" / ".git ").mkdir()
    (tmp_path / "other" / ".git " / "config").write_text("[diff]\n\texternal = ./x\n")
    (repository / "sub" / ".git").write_text("gitdir: ../../other/.git \n")
    assert not _reads(repository, "git status", "sub")


def test_a_hook_that_runs_when_git_looks_makes_it_ask(repository: Path) -> None:
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").write_text("")
    assert _reads(repository, "git status")
    (hooks / "post-index-change").write_text("")
    assert not _reads(repository, "git status")


def test_git_enters_submodules_by_their_settings_and_then_asks(repository: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    _git(inner, "init", "-q")
    _git(inner, "commit", "-q", "--allow-empty", "-m", "first")
    assert _reads(repository, "git status")
    _git(repository, "submodule", "add", "-q", str(inner), "part")
    assert not _reads(repository, "git status")
    assert not _reads(repository, "git diff")
    assert _reads(repository, "git status --ignore-submodules")
    assert _reads(repository, "git log --oneline")


def test_a_fifo_in_place_of_the_settings_keeps_nobody_waiting(repository: Path) -> None:
    (repository / ".git" / "config").unlink()
    assert _reads(repository, "git status")
    os.mkfifo(repository / ".git" / "config")
    assert not _reads(repository, "git status")
