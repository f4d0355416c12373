"""Names near a missing one."""

from __future__ import annotations

import os

import pytest

from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import open_directory
from forge.workspace.search import glob as module
from forge.workspace.search.glob import find_similar_names


@pytest.fixture
def near(tmp_path):
    """What is found for a missing path in the workspace."""

    def find(path: str, most: int = 3) -> list[str]:
        return find_similar_names(PathValidator(tmp_path).resolve(path), most)

    return find


def make(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")


def test_another_case_extension_or_spelling_is_found_in_that_order(near, tmp_path):
    make(tmp_path, "src/readme.md", "src/Readme.txt", "src/README.MD", "src/reamde.md", "src/other.py")
    assert near("src/Readme.md", 4) == ["src/README.MD", "src/readme.md", "src/Readme.txt", "src/reamde.md"]
    assert near("src/readme.mx", 1) == ["src/README.MD"]


def test_a_name_with_a_slip_is_found(near, tmp_path):
    make(tmp_path, "a/settings.py", "a/unrelated.txt")
    assert near("a/setings.py") == ["a/settings.py"]


def test_at_most_so_many_are_named(near, tmp_path):
    make(tmp_path, *(f"name{number}.txt" for number in range(9)))
    assert len(near("name.txt")) == 3
    assert len(near("name.txt", 5)) == 5


def test_a_file_of_that_name_is_found_in_another_directory(near, tmp_path):
    make(tmp_path, "src/forge/core/tool.py", "tests/test_tool.py", "node_modules/x/tool.py")
    assert near("src/tool.py") == ["src/forge/core/tool.py"]
    assert near("no/such/directory/tool.py") == ["src/forge/core/tool.py"]


def test_what_is_beside_comes_before_what_is_elsewhere(near, tmp_path):
    make(tmp_path, "a/tools.py", "b/tool.py")
    assert near("a/tool.py") == ["a/tools.py", "b/tool.py"]


def test_nothing_alike_gives_nothing(near, tmp_path):
    make(tmp_path, "a/alpha.txt")
    assert near("a/zzzz.bin") == []
    assert near("empty/zzzz.bin") == []


def test_directories_special_files_and_temporaries_are_not_named(near, tmp_path):
    (tmp_path / "notes.tx").mkdir()
    os.mkfifo(tmp_path / "notes.tt")
    make(tmp_path, ".forge-tmp-notes.txt")
    assert near("notes.txt") == []
    assert near("forge-tmp-notes.txt") == []


def test_a_path_through_a_file_finds_nothing_and_does_no_harm(near, tmp_path):
    make(tmp_path, "file.txt")
    assert near("file.txt/inside.txt") == []


def test_links_are_not_followed_out(near, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    make(outside, "secret.txt")
    os.symlink(outside, tmp_path / "link")
    assert near("secret.txt") == []


def test_a_name_in_another_root_is_shown_whole(tmp_path):
    from forge.core.context import Root

    other = tmp_path / "other"
    make(other, "deep/tool.py", "tools.py")
    (tmp_path / "ws").mkdir()
    paths = PathValidator(tmp_path / "ws", [Root(other, False)])
    assert find_similar_names(paths.resolve(str(other / "tool.py"))) == [
        str(other / "tools.py"),
        str(other / "deep/tool.py"),
    ]


def test_a_huge_directory_is_only_looked_at_in_part(near, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_NAMES", 50)
    monkeypatch.setattr(module, "MOST_ELSEWHERE", 100)
    make(tmp_path, *(f"d{number}/unlike" for number in range(300)))
    seen: list[str] = []

    def noted(place):
        seen.append(place.shown)
        return open_directory(place)

    monkeypatch.setattr(module, "open_directory", noted)
    assert near("zzzz.bin") == []
    assert len(seen) < 110
