"""With Forge's overrides Git starts no program that a repository's settings name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from forge.process.environment import GIT_OVERRIDES

PLAIN = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, PLAIN, "init", "-q")
    (tmp_path / "a").write_text("one\n")
    _git(tmp_path, PLAIN, "add", "a")
    _git(tmp_path, PLAIN, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first")
    (tmp_path / "a").write_text("two\n")
    return tmp_path


def _git(place: Path, env: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, env=env, check=False, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("core.fsmonitor", ("status", "--short")),
        ("core.hooksPath", ("status", "--short")),
        ("core.sshCommand", ("ls-remote", "ssh://example.invalid/x")),
        ("gpg.program", ("log", "--format=%G?", "signed")),
    ],
)
def test_a_program_that_a_setting_names_is_not_started(repository: Path, key: str, words: tuple[str, ...]) -> None:
    program = repository / ".git" / "program"
    program.write_text(f"#!/bin/sh\ntouch {repository}/started\n")
    program.chmod(0o755)
    if key == "core.hooksPath":
        (repository / ".git" / "own").mkdir()
        (repository / ".git" / "own" / "post-index-change").symlink_to(program)
        program = repository / ".git" / "own"
    if key == "gpg.program":
        _sign(repository)
    _git(repository, PLAIN, "config", key, str(program))
    _git(repository, {**PLAIN, **GIT_OVERRIDES}, *words)
    assert not (repository / "started").exists()
    os.utime(repository / "a", (1, 1))  # so that the index is refreshed once more
    _git(repository, PLAIN, "add", "a") if key == "core.hooksPath" else _git(repository, PLAIN, *words)
    assert (repository / "started").exists()


def _sign(repository: Path) -> None:
    """A commit that claims to be signed."""
    commit = _git(repository, PLAIN, "cat-file", "commit", "HEAD")
    head, _, message = commit.partition("\n\n")
    signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{message}"
    argv = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    done = subprocess.run(argv, cwd=repository, env=PLAIN, input=signed, check=True, capture_output=True, text=True)
    _git(repository, PLAIN, "update-ref", "refs/heads/signed", done.stdout.strip())


def test_git_still_answers_with_them(repository: Path) -> None:
    env = {**PLAIN, **GIT_OVERRIDES}
    assert _git(repository, env, "status", "--short") == " M a\n"
    assert "+two" in _git(repository, env, "diff")
    assert "first" in _git(repository, env, "log", "-p")


def test_they_hold_where_git_runs_itself_in_a_submodule(repository: Path) -> None:
    inner = repository / "part"
    inner.mkdir()
    _git(inner, PLAIN, "init", "-q")
    _git(inner, PLAIN, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x")
    _git(repository, PLAIN, "add", "part")
    program = repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {repository}/started\n")
    program.chmod(0o755)
    _git(inner, PLAIN, "config", "core.fsmonitor", str(program))
    _git(repository, {**PLAIN, **GIT_OVERRIDES}, "status")
    assert not (repository / "started").exists()
    _git(repository, PLAIN, "status")
    assert (repository / "started").exists()
