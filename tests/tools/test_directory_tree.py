"""directory_tree: the shape of a tree, within its limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forge import ErrorKind, Scope, ToolCall, ToolRegistry, rules
from forge.core.result import ToolResult
from forge.permissions.gate import PolicyGate
from forge.pipeline import ToolExecutor, standard_steps
from forge.tools.directory_tree import DirectoryTree


def caller(tool: DirectoryTree, workspace: Path) -> Callable[..., ToolResult]:
    steps = standard_steps(PolicyGate(rules("allow read")), without={"skip_repeats", "break_loops"})
    executor = ToolExecutor(ToolRegistry([tool]), steps)

    def call(path: str = "", **arguments: object) -> ToolResult:
        sent = ToolCall("directory_tree", {"path": path, **arguments})
        return asyncio.run(executor.execute(sent, Scope(workspace=workspace)))

    return call


@pytest.fixture
def tree(tmp_path):
    return caller(DirectoryTree(), tmp_path)


def made(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)


def test_it_is_drawn_with_branches_and_sizes_from_a_kibibyte_on(tree, tmp_path):
    made(tmp_path, "src/a/deep.py", "src/main.py", "README.md", ".git/config", "node_modules/x/y.js")
    (tmp_path / "README.md").write_bytes(b"x" * 1_024)
    assert tree().for_llm.split("\n") == [
        "./",
        "├── .git/…",
        "├── node_modules/…",
        "├── src/",
        "│   ├── a/",
        "│   │   └── deep.py",
        "│   └── main.py",
        "└── README.md (1.0 KiB)",
    ]


def test_it_ends_at_the_depth_that_was_asked_for(tree, tmp_path):
    made(tmp_path, "a/b/c/d/e")
    assert tree(max_depth=1).for_llm == "./\n└── a/"
    assert "d" not in tree().for_llm
    assert tree(max_depth=5).for_llm.endswith("└── e")


def test_what_is_ignored_is_left_out_and_counted(tree, tmp_path):
    made(tmp_path, "a.log", "out/x", "b.txt", "src/c.log", ".env")
    (tmp_path / ".gitignore").write_text("*.log\nout/\n")
    result = tree()
    assert result.for_llm.split("\n")[1:] == [
        "├── out/…",
        "├── src/",
        "├── .env",
        "├── .gitignore",
        "└── b.txt",
        "[2 files ignored by ignore files; directory_list of one directory shows all]",
    ]
    assert tree("out").for_llm == "out/\n└── x"


def test_too_many_entries_are_counted_where_they_are(tree, tmp_path):
    made(tmp_path, *(f"a/{number}" for number in range(20)), "b/x", "c")
    result = tree(max_entries=6)
    lines = result.for_llm.split("\n")
    assert lines[1] == "├── a/"
    assert "│   └── … 17 more" in lines
    assert "├── b/" in lines
    assert "└── c" in lines
    assert result.data["truncated"] is True
    assert len(result.data["entries"]) == 6
    assert result.data["total"] == 24
    assert lines[-1].startswith("[6 of 24 entries; ")
    exact = tree(max_entries=24)
    assert (exact.data["truncated"], exact.data["total"]) == (False, 24)
    assert "more" not in exact.for_llm


def test_links_are_shown_and_not_followed(tree, tmp_path):
    made(tmp_path, "real/x")
    (tmp_path / "loop").symlink_to(".")
    assert tree().for_llm.split("\n") == ["./", "├── real/", "│   └── x", "└── loop -> ."]


def test_a_directory_with_very_many_entries_is_bounded(tree, tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(3_000):
        os.close(os.open(tmp_path / "many" / f"{number:05}", os.O_CREAT | os.O_WRONLY))
    result = tree()
    assert len(result.data["entries"]) == 500
    assert "└── … 2,501 more" in result.for_llm


def test_an_unreadable_directory_says_so_and_the_rest_is_shown(tree, tmp_path, monkeypatch):
    made(tmp_path, "closed/x", "open/y")
    import forge.workspace.search.walk as module
    from forge.workspace.paths.open import open_directory as real

    def refusing(place):
        if place.name == "closed":
            raise PermissionError(13, "Permission denied")
        return real(place)

    monkeypatch.setattr(module, "open_directory", refusing)
    assert tree().for_llm.split("\n") == ["./", "├── closed/ [cannot be read]", "└── open/", "    └── y"]


def test_a_file_is_no_tree_and_a_missing_one_is_not_found(tree, tmp_path):
    made(tmp_path, "a.txt", "b/c")
    assert tree("a.txt").failure.kind is ErrorKind.USER
    assert tree("nowhere").failure.kind is ErrorKind.NOT_FOUND
    assert tree("b").for_llm == "b/\n└── c"
    assert tree("..").failure.kind is ErrorKind.SECURITY


def test_odd_names_stay_on_their_line(tree, tmp_path):
    made(tmp_path, "a\nb", "dir\r/x")
    assert tree().for_llm.split("\n") == ["./", '├── "dir\\r"/', "│   └── x", '└── "a\\nb"']


def test_only_levels_that_would_be_shown_are_counted(tree, tmp_path):
    made(tmp_path, "a/b/c/d", "e")
    assert tree(max_depth=2, max_entries=1).data["total"] == 3
    assert tree(max_depth=2).data["total"] == 3


def test_circles_of_links_and_special_files_are_refused(tree, tmp_path):
    made(tmp_path, "real/x")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "fine").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    assert "is in a loop of links" in tree("itself").for_llm
    assert "is a FIFO" in tree("pipe").for_llm
    assert tree("fine").for_llm == "real/\n└── x"
