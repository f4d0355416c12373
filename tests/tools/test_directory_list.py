"""directory_list: what is in a directory, and what is said about the rest."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forge import ErrorKind, Scope, ToolCall, ToolRegistry, rules
from forge.core.result import ToolResult
from forge.permissions.gate import PolicyGate
from forge.pipeline import ToolExecutor, standard_executor, standard_steps
from forge.tools.directory_list import DirectoryList
from forge.tools.shared.listing import printable, size_text


def caller(tool: DirectoryList, workspace: Path) -> Callable[..., ToolResult]:
    steps = standard_steps(PolicyGate(rules("allow read")), without={"skip_repeats", "break_loops"})
    executor = ToolExecutor(ToolRegistry([tool]), steps)

    def call(path: str = "", **arguments: object) -> ToolResult:
        sent = ToolCall("directory_list", {"path": path, **arguments})
        return asyncio.run(executor.execute(sent, Scope(workspace=workspace)))

    return call


@pytest.fixture
def listed(tmp_path):
    return caller(DirectoryList(), tmp_path)


def made(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)


def test_directories_come_first_and_files_have_sizes(listed, tmp_path):
    made(tmp_path, "b.txt", "z/x", "A.txt", "m/y")
    (tmp_path / "b.txt").write_bytes(b"x" * 2_000)
    result = listed()
    assert result.for_llm.split("\n") == ["m/", "z/", "A.txt  5 B", "b.txt  2.0 KiB"]
    assert result.data["entries"] == [
        {"name": "m", "path": "m", "type": "directory"},
        {"name": "z", "path": "z", "type": "directory"},
        {"name": "A.txt", "path": "A.txt", "type": "file", "size": 5},
        {"name": "b.txt", "path": "b.txt", "type": "file", "size": 2_000},
    ]
    assert result.data["truncated"] is False


def test_hidden_names_are_counted_or_shown(listed, tmp_path):
    made(tmp_path, ".env", ".git/config", "a", ".forge-tmp-1")
    result = listed()
    assert result.for_llm == "a  1 B\n[2 hidden entries; include_hidden=true shows them]"
    assert listed(include_hidden=True).for_llm == ".git/…\n.env  4 B\na  1 B"


def test_a_directory_below_is_listed_with_whole_paths_in_data(listed, tmp_path):
    made(tmp_path, "src/a/b.txt", "src/c.txt")
    result = listed("src")
    assert result.for_llm == "a/\nc.txt  9 B"
    assert [entry["path"] for entry in result.data["entries"]] == ["src/a", "src/c.txt"]


def test_recursively_all_levels_are_listed_but_what_is_ignored(listed, tmp_path):
    made(tmp_path, "src/a/b.txt", "src/c.log", "node_modules/x.js", "out/y", "top")
    (tmp_path / ".gitignore").write_text("*.log\nout/\n")
    result = listed(recursive=True)
    assert result.for_llm.split("\n")[:6] == [
        "node_modules/…",
        "out/…",
        "src/",
        "src/a/",
        "src/a/b.txt  11 B",
        "top  3 B",
    ]
    assert "1 file ignored" in result.for_llm
    assert "c.log  9 B" in listed("src").for_llm


def test_everything_is_listed_of_one_directory_even_what_is_ignored(listed, tmp_path):
    made(tmp_path, "a.log", "node_modules/x.js")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert listed().for_llm.split("\n")[:2] == ["node_modules/", "a.log  5 B"]
    assert listed("node_modules").for_llm == "x.js  17 B"


def test_links_and_special_files_are_told_apart(listed, tmp_path):
    made(tmp_path, "real")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    result = listed()
    assert result.for_llm.split("\n") == ["link -> real", "out -> /etc/passwd", "pipe [special file]", "real  4 B"]
    assert result.data["entries"][0] == {"name": "link", "path": "link", "type": "link", "target": "real"}


def test_too_many_entries_are_counted(listed, tmp_path):
    made(tmp_path, *(f"{number:02}" for number in range(12)), "d/x")
    result = listed(max_entries=3)
    assert result.for_llm.split("\n")[:4] == ["d/", "00  2 B", "01  2 B", "[10 more entries left out]"]
    assert result.data["truncated"] is True
    assert result.data["total"] == 13
    assert "[3 of 13 entries; ask for more" in result.for_llm
    exact = listed(max_entries=13)
    assert (exact.data["truncated"], exact.data["total"]) == (False, 13)
    assert "[" not in exact.for_llm


def test_upper_levels_come_before_lower_ones(listed, tmp_path):
    made(tmp_path, *(f"a/{number}" for number in range(50)), "z/only", "top")
    result = listed(recursive=True, max_entries=10)
    assert "z/" in result.for_llm.split("\n")
    assert "top  3 B" in result.for_llm.split("\n")
    assert "[43 more entries in a/ left out]" in result.for_llm
    assert result.data["total"] == 54
    assert listed(recursive=True).data["total"] == 54


def test_what_is_in_directories_that_are_not_shown_is_counted(listed, tmp_path):
    made(tmp_path, "a/1", "a/2", "b/x/y/z", "c/1", "node_modules/never/1", "top")
    cut = listed(recursive=True, max_entries=3)
    assert [entry["name"] for entry in cut.data["entries"]] == ["a", "b", "c"]
    whole = listed(recursive=True)
    assert cut.data["total"] == whole.data["total"] == len(whole.data["entries"]) == 11
    assert (cut.data["truncated"], whole.data["truncated"]) == (True, False)
    only_directories = listed(recursive=True, max_entries=5)  # all of the first level, and nothing below it
    assert (only_directories.data["truncated"], only_directories.data["total"]) == (True, 11)


def test_counting_ends_in_time_and_says_so(listed, tmp_path, monkeypatch):
    made(tmp_path, "a/1", "b/1", "c")
    monkeypatch.setattr("forge.workspace.search.walk.COUNTING", -1.0)
    cut = listed(recursive=True, max_entries=3)
    assert (cut.data["total"], cut.data["total_is_minimum"], cut.data["truncated"]) == (3, True, True)
    whole = listed(recursive=True, max_entries=5)
    assert (whole.data["total"], whole.data["truncated"]) == (5, False)
    assert "total_is_minimum" not in whole.data


def test_circles_of_links_and_special_files_are_refused_and_files_are_not(listed, tmp_path):
    made(tmp_path, "real")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    (tmp_path / "fine").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    for name, words in [("itself", "is in a loop of links"), ("one", "is in a loop of links"), ("pipe", "is a FIFO")]:
        refused = listed(name)
        assert refused.failure is not None
        assert words in refused.failure.message
        assert refused.failure.suggestion == "Name a directory."
    assert listed("fine").for_llm == "real  4 B"
    assert listed("real").data["entries"][0]["type"] == "file"


def test_an_empty_directory_says_so(listed, tmp_path):
    (tmp_path / "empty").mkdir()
    assert listed("empty").for_llm == "empty is empty."


def test_a_file_is_its_own_entry(listed, tmp_path):
    made(tmp_path, "src/a.txt")
    result = listed("src/a.txt")
    assert result.for_llm == "src/a.txt  9 B"
    assert result.data["entries"] == [{"name": "a.txt", "path": "src/a.txt", "type": "file", "size": 9}]


def test_what_is_not_there_is_not_found(listed, tmp_path):
    made(tmp_path, "source/a")
    result = listed("nowhere")
    assert result.failure.kind is ErrorKind.NOT_FOUND
    assert listed("source").success


@pytest.mark.parametrize("path", ["..", "/etc", "../x", "~", "link"])
def test_outside_is_refused(listed, tmp_path, path):
    (tmp_path / "link").symlink_to("/etc")
    result = listed(path)
    assert result.failure.kind is ErrorKind.SECURITY
    assert "passwd" not in result.for_llm


def test_odd_names_break_neither_lines_nor_terminals(listed, tmp_path):
    made(tmp_path, "a\nb", "\x1b[2J", "x\u202ey")
    result = listed()
    assert sorted(line.split("  ")[0] for line in result.for_llm.split("\n")) == [
        '"\\x1b[2J"',
        '"a\\nb"',
        '"x\\u202ey"',
    ]
    json.dumps(result.to_dict()).encode()


def test_a_directory_of_very_many_entries_is_bounded(listed, tmp_path):
    for number in range(5_000):
        os.close(os.open(tmp_path / f"{number:05}", os.O_CREAT | os.O_WRONLY))
    result = listed()
    assert len(result.data["entries"]) == 500
    assert "[4,500 more entries left out]" in result.for_llm


async def test_denied_entries_are_left_out_and_said(tmp_path):
    made(tmp_path, "a", "secret/b")
    executor = standard_executor(
        [DirectoryList()], policy=rules("allow read", "deny read secret", "deny read secret/**")
    )
    result = await executor.execute(ToolCall("directory_list", {"recursive": True}), Scope(workspace=tmp_path))
    assert result.success, result.for_llm
    assert result.for_llm == "a  1 B\n[1 entry left out: a rule denies reading]"


def test_sizes_are_short():
    shown = [size_text(size) for size in (0, 1, 1_023, 1_024, 1_500, 10_240, 5 << 20, 3 << 30, 1 << 62)]
    assert shown == ["0 B", "1 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 KiB", "5.0 MiB", "3.0 GiB", "4096 PiB"]


def test_names_are_quoted_only_where_they_must_be():
    plain = ["a b", "日本", "👩‍👩‍👧‍👦", "é", 'a"b', "a\\b", "-rf", "..name"]
    assert [printable(name) for name in plain] == plain
    assert printable('a\t"\\') == '"a\\t\\"\\\\"'
    assert printable("\udcff\x00\U000e0001") == '"\\xff\\x00\\U000e0001"'
