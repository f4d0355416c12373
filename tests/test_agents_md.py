"""AGENTS.md is true: its commands and paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
TARGETS = re.findall(r"^make ([a-z-]+)", TEXT, re.MULTILINE)
PROGRAMS = re.findall(r"\.venv/bin/([a-z-]+)", TEXT)
PATHS = re.findall(r"`((?:src|tests|docs|changelog\.d|pyproject)[\w./-]*)`", TEXT)
LINKS = re.findall(r"\]\(([^)]+)\)", TEXT)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_of_make_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", [*PATHS, *LINKS])
def test_a_path_exists(path):
    assert (ROOT / path).exists()


def test_the_programs_are_those_of_the_development_packages():
    wanted = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {"pytest": "pytest", "ruff": "ruff", "mypy": "mypy", "lint-imports": "import-linter"}
    assert set(PROGRAMS) == set(packages)
    assert all(re.search(rf'"{package}\b', wanted) for package in packages.values())


def test_it_is_short_and_something_is_checked():
    assert len(TEXT.splitlines()) <= 80
    assert min(len(TARGETS), len(PROGRAMS), len(PATHS), len(LINKS)) >= 2


def test_every_layer_of_the_code_is_named():
    folders = {one.name for one in (ROOT / "src" / "forge").iterdir() if (one / "__init__.py").is_file()}
    missing = {name for name in folders if f"src/forge/{name}`" not in TEXT}
    assert missing <= {"skills", "memory", "schedules", "channels"}  # what an agent knows: ARCHITECTURE.md has them
