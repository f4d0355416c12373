"""Ignore files: what each kind of line means."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from forge.workspace.paths import PathValidator
from forge.workspace.search.ignore import parse_rules
from forge.workspace.search.walk import walk


def is_ignored(lines: str, path: str) -> bool | None:
    rules = parse_rules(lines.encode())
    assert rules is not None
    bare = path.removesuffix("/")
    return rules.verdict(bare, bare.rpartition("/")[2], path.endswith("/"))


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("months", "months"),
        ("months", "a/months"),
        ("*.lock", "a/Cargo.lock"),
        ("*.tar.gz", "x.tar.gz"),
        ("src/*.rs", "src/main.rs"),
        ("/src", "src/"),
        ("foo/", "a/foo/"),
        ("**/foo", "a/b/foo"),
        ("**/foo", "foo"),
        ("foo/**", "foo/a/b"),
        ("a/**/b", "a/b"),
        ("a/**/b", "a/x/y/b"),
        ("[ab].txt", "b.txt"),
        ("[!ab].txt", "c.txt"),
        ("{a,b}.txt", "b.txt"),
        (r"\!x", "!x"),
        (r"\#x", "#x"),
        (r"\*", "*"),
        ("[abc", "[abc"),
        ("à", "à"),
        ("a ", "a"),
        (r"a\ ", "a "),
        ("??", "é"),
        ("**", "a"),
    ],
)
def test_a_line_ignores(line, path):
    assert is_ignored(line, path) is True


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("months", "amonths"),
        ("/src", "a/src/"),
        ("foo/", "foo"),
        ("foo/**", "foo/"),
        ("src/*.rs", "src/a/main.rs"),
        ("src/*.rs", "a/src/main.rs"),
        ("*.lock", "lock"),
        ("*.html", "a.HTML"),
        ("[!ab].txt", "a.txt"),
        ("?", "é"),
        (r"\*", "a"),
        ("a?b", "a/b"),
        ("[z-a]", "z"),
        ("x{a", "xa"),
    ],
)
def test_a_line_does_not_ignore(line, path):
    assert is_ignored(f"{line}\nother", path) is None


def test_the_last_line_that_fits_counts():
    assert is_ignored("*.log\n!keep.log", "keep.log") is False
    assert is_ignored("!keep.log\n*.log", "keep.log") is True
    assert is_ignored("*.log\n!/a/keep.log", "a/keep.log") is False
    assert is_ignored("build\n!build/", "build") is True
    assert is_ignored("build\n!build/", "build/") is False


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only words\n", b"  \n"])
def test_a_file_without_lines_that_say_something_has_no_rules(content):
    assert parse_rules(content) is None


def test_a_mark_at_the_beginning_and_line_ends_of_windows_are_no_part_of_a_line():
    rules = parse_rules(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert rules is not None
    assert rules.verdict("one", "one", False)
    assert rules.verdict("two", "two", False)


def test_what_follows_a_line_that_is_no_text_is_not_read():
    rules = parse_rules(b"one\n\xff\ntwo\n")
    assert rules is not None
    assert rules.verdict("one", "one", False)
    assert rules.verdict("two", "two", False) is None


@pytest.mark.parametrize("line", ["a*" * 100 + "b", "**/a/" * 50 + "b", "*a" * 60, "[!b]*" * 50 + "c", "**" * 500])
def test_no_line_takes_long(line):
    started = time.process_time()
    is_ignored(line, "a" * 255)
    is_ignored(line, "a/" * 1_000 + "c")
    is_ignored(f"/{line}/x", "a/" * 1_000 + "c")
    assert time.process_time() - started < 1


def found(root: Path, path: str = ".") -> list[str]:
    entries = walk(PathValidator(root).resolve(path))
    return sorted(entry.relative for entry in entries if not entry.entry.name.endswith("ignore"))


def made(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_nearer_files_count_before_farther_ones(tmp_path):
    made(tmp_path, {".gitignore": "*.log", "a/.gitignore": "!*.log", "a/x.log": "", "x.log": "", "a/b/y.log": ""})
    assert found(tmp_path) == ["a/b/y.log", "a/x.log"]


def test_rgignore_counts_before_ignore_before_gitignore_however_near_they_are(tmp_path):
    made(tmp_path, {".ignore": "!*.log", "a/.gitignore": "*.log", "a/x.log": "", "a/y.log": ""})
    assert found(tmp_path) == ["a/x.log", "a/y.log"]
    made(tmp_path, {".rgignore": "x.log"})
    assert found(tmp_path) == ["a/y.log"]


def test_files_above_the_place_count_up_to_the_root_and_no_farther(tmp_path):
    made(tmp_path, {".gitignore": "*", "ws/.gitignore": "*.log\n/a/b/only.txt", "ws/a/b/x.log": ""})
    made(tmp_path / "ws", {"a/b/only.txt": "", "a/b/c/only.txt": ""})
    assert found(tmp_path / "ws", "a/b") == ["c/only.txt"]


def test_an_ignore_file_that_is_a_link_or_a_pipe_is_left_alone(tmp_path):
    made(tmp_path, {"outside": "*", "ws/x": "", "ws/a/y": ""})
    (tmp_path / "ws/.gitignore").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "ws/a/.gitignore")
    assert found(tmp_path / "ws") == ["a/y", "x"]
