"""The folders of hooks that a repository names are those that Git itself uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from forge.process.git_hooks import hook_folders

SETTINGS = {
    "plain": "[core]\n\thooksPath = .husky\n",
    "one line": "[core] hooksPath = .husky\n",
    "other case": "[CoRe]\n\tHOOKSPATH=.husky\n",
    "quoted": '[core]\n\thooksPath = "a b/hooks" ; why\n',
    "escaped": "[core]\n\thooksPath = a\\\\b\n",
    "comment": "[core]\n\thooksPath = .husky # mine\n",
    "goes on": "[core]\n\thooksPath = .hus\\\nky\n",
    "the last of two": "[core]\n\thooksPath = first\n[user]\n\tname = x\n[core]\n\thooksPath = second\n",
    "other section": '[core "x"]\n\thooksPath = no\n[user]\n\thooksPath = no\n',
    "dots": "[core]\n\thooksPath = ./x/../.husky/\n",
}


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_it_reads_settings_as_git_does(tmp_path: Path, text: str):
    if shutil.which("git") is None:
        pytest.skip("NOT TESTED: there is no git here")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / ".git/config").write_text(text)
    asked = subprocess.run(
        ["git", "config", "--file", ".git/config", "core.hooksPath"], cwd=tmp_path, capture_output=True, text=True
    )
    said = asked.stdout.removesuffix("\n")
    expected = {os.path.normpath(said)} if said else set()
    assert expected <= set(hook_folders(str(tmp_path)))
    assert bool(expected) is bool(hook_folders(str(tmp_path)))


def test_a_change_of_the_settings_is_seen(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    assert hook_folders(str(tmp_path)) == ()
    (tmp_path / ".git/config").write_text("[core]\n\thooksPath = one\n")
    assert hook_folders(str(tmp_path)) == ("one",)
    (tmp_path / ".git/config.worktree").write_text("[core]\n\thooksPath = another\n")
    assert hook_folders(str(tmp_path)) == ("another", "one")


def test_what_is_included_counts(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[include]\n\tpath = more\n")
    (tmp_path / ".git/more").write_text('[core]\n\thooksPath = one\n[includeIf "gitdir:x"]\n\tpath = more\n')
    assert hook_folders(str(tmp_path)) == ("one",)


def test_a_work_tree_beside_its_repository_has_the_settings_of_both(tmp_path: Path):
    tree, git = tmp_path / "tree", tmp_path / "main/.git/worktrees/tree"
    tree.mkdir()
    git.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {git}\n")
    (git / "commondir").write_text("../..\n")
    (tmp_path / "main/.git/config").write_text("[core]\n\thooksPath = shared\n")
    (git / "config.worktree").write_text("[core]\n\thooksPath = own\n")
    assert hook_folders(str(tree)) == ("own", "shared")


@pytest.mark.parametrize("value", ["/elsewhere", "..", ".", "../beside", ".git/hooks"])
def test_what_lies_elsewhere_is_none_of_the_work_tree(tmp_path: Path, value: str):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(f"[core]\n\thooksPath = {value}\n")
    assert hook_folders(str(tmp_path)) == ()


def test_a_pipe_or_a_huge_file_in_the_place_of_the_settings_does_no_harm(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/config")
    assert hook_folders(str(tmp_path)) == ()
    (tmp_path / ".git/config.worktree").write_text("[core]\n" + "#" * 3_000_000 + "\n\thooksPath = late\n")
    assert hook_folders(str(tmp_path)) == ()
    (tmp_path / ".git/config.worktree").write_text("[core]\n\thooksPath = soon\n")
    assert hook_folders(str(tmp_path)) == ("soon",)
