"""The walk: what it finds, what it leaves out, and that nothing leads it astray."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forge.core.errors import ToolError
from forge.workspace.paths import Location, PathValidator
from forge.workspace.search.glob import compile_glob
from forge.workspace.search.walk import MOST_OPEN, FileWalk, walk

RG = shutil.which("rg") or shutil.which("rg", path=os.path.dirname(sys.executable))
NAMES = ["a", "b", "ab", "abc", "A", "x.py", "y.py", "a.b", "é", "[a", "a b", "#x", "!x", "{a}", "build2", ".h", "a,b"]
PIECES = ["a", "b", "c", "x", "*", "?", "**", "[ab]", "[!a]", "[a-c]", ".py", "[", "{a,b}", "{x,y}.py", "\\*", "é", "."]


def made(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)


def place(root: Path, path: str = ".") -> Location:
    return PathValidator(root).resolve(path)


def found(root: Path, path: str = ".", **options: object) -> list[str]:
    return sorted(entry.relative for entry in walk(place(root, path), **options))  # type: ignore[arg-type]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_it_finds_every_file_at_every_depth(tmp_path):
    made(tmp_path, "top.txt", "a/one.txt", "a/b/two.txt", ".hidden/three.txt", ".dot")
    assert found(tmp_path) == [".dot", ".hidden/three.txt", "a/b/two.txt", "a/one.txt", "top.txt"]


def test_paths_are_seen_from_the_place_that_is_walked(tmp_path):
    made(tmp_path, "a/b/two.txt", "other.txt")
    assert found(tmp_path, "a") == ["b/two.txt"]


def test_without_hidden_names_with_a_dot_are_left_out_unless_an_ignore_file_keeps_them(tmp_path):
    made(tmp_path, ".dot", ".kept", ".secret/file", "seen")
    assert found(tmp_path, hidden=False) == ["seen"]
    (tmp_path / ".ignore").write_text("!.kept\n")
    assert found(tmp_path, hidden=False) == [".kept", "seen"]


def test_git_and_forges_own_state_are_never_entered(tmp_path):
    made(tmp_path, ".git/config", ".forge/files/x", "a/.git/config", ".forge-tmp-1", "a/.forge-tmp-2", ".gitkeep")
    assert found(tmp_path, include_ignored=True, named=[".git", ".forge"]) == [".gitkeep"]


def test_heavy_directories_are_skipped_and_counted_unless_they_are_named_or_asked_for(tmp_path):
    made(tmp_path, "node_modules/x.js", "a/build/y.o", "main.c", "dist.txt", "vendored/build")
    walked = walk(place(tmp_path))
    assert sorted(entry.relative for entry in walked) == ["dist.txt", "main.c", "vendored/build"]
    assert (walked.ignored_directories, walked.ignored_files) == (2, 0)
    assert "a/build/y.o" in found(tmp_path, named=["build"])
    assert "node_modules/x.js" not in found(tmp_path, named=["build"])
    assert "node_modules/x.js" in found(tmp_path, include_ignored=True)
    assert found(tmp_path, "node_modules") == ["x.js"]


def test_ignored_files_are_counted_and_found_when_named(tmp_path):
    made(tmp_path, "a.log", "b.log", "c.txt", "logs/d.txt")
    (tmp_path / ".gitignore").write_text("*.log\nlogs/\n")
    walked = walk(place(tmp_path))
    assert sorted(entry.relative for entry in walked) == [".gitignore", "c.txt"]
    assert (walked.ignored_files, walked.ignored_directories) == (2, 1)
    assert found(tmp_path, named=["b.log"]) == [".gitignore", "b.log", "c.txt"]
    assert len(found(tmp_path, include_ignored=True)) == 5


def test_links_are_entries_and_never_followed(tmp_path):
    made(tmp_path, "real/file")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "real" / "up").symlink_to("..")
    assert found(tmp_path) == ["loop", "out", "real/file", "real/up"]


def test_a_directory_swapped_for_a_link_is_not_followed(tmp_path):
    made(tmp_path / "outside", "secret")
    made(tmp_path / "ws", "first.txt", "inner/fine.txt")
    seen = []
    walked = walk(place(tmp_path / "ws"))
    for entry in walked:
        seen.append(entry.relative)
        if entry.relative == "first.txt":
            shutil.rmtree(tmp_path / "ws" / "inner")
            (tmp_path / "ws" / "inner").symlink_to(tmp_path / "outside")
    assert seen == ["first.txt"]
    assert walked.unreadable == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_directories_are_counted(tmp_path):
    made(tmp_path, "open/a", "closed/b")
    (tmp_path / "closed").chmod(0)
    try:
        walked = walk(place(tmp_path))
        assert [entry.relative for entry in walked] == ["open/a"]
        assert walked.unreadable == 1
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_a_directory_that_disappears_is_counted_and_the_rest_is_found(tmp_path):
    made(tmp_path, "first", "gone/a", "stays/b")
    seen = []
    walked = walk(place(tmp_path))
    for entry in walked:
        seen.append(entry.relative)
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    assert sorted(seen) == ["first", "stays/b"]
    assert walked.unreadable == 1


def test_deep_trees_need_few_descriptors_and_give_them_all_back(tmp_path):
    deepest = 3 * MOST_OPEN
    path = tmp_path
    for _ in range(deepest):
        path = path / "d"
        made(path, "a.txt", "side/b.txt", "z.txt")
    before = open_descriptors()
    most = 0
    number = 0
    for entry in walk(place(tmp_path)):
        number += 1
        assert entry.status().st_size
        most = max(most, open_descriptors() - before)
    assert number == 3 * deepest
    assert most <= 2 * MOST_OPEN
    assert open_descriptors() <= before  # fewer: what earlier tests left may be closed meanwhile


def test_a_walk_that_is_given_up_gives_its_descriptors_back(tmp_path):
    made(tmp_path, "a/b/c/d", "a/e", "f")
    before = open_descriptors()
    entries = iter(walk(place(tmp_path)))
    next(entries)
    entries.close()  # type: ignore[attr-defined]
    assert open_descriptors() <= before  # fewer: what earlier tests left may be closed meanwhile


def test_it_can_be_stopped(tmp_path):
    made(tmp_path, *(f"{number}/file" for number in range(20)))
    answers = iter([False] * 3)
    walked = walk(place(tmp_path), stop=lambda: next(answers, True))
    assert len(list(walked)) < 20
    assert walked.stopped
    whole = walk(place(tmp_path), stop=lambda: False)
    assert len(list(whole)) == 20
    assert not whole.stopped


def test_large_directories_are_read_in_batches_and_their_ignore_file_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.workspace.search.walk.BATCH", 10)
    made(tmp_path, *(f"{number}.txt" for number in range(50)), "x.log")
    (tmp_path / ".gitignore").write_text("*.log")
    assert len(found(tmp_path)) == 51
    asked = iter([False, True])
    walked = walk(place(tmp_path), stop=lambda: next(asked))
    assert len(list(walked)) < 50
    assert walked.stopped


def test_a_pattern_prunes_the_walk(tmp_path, monkeypatch):
    made(tmp_path, "src/a/one.py", "src/two.py", "src/two.txt", "docs/three.py", "four.py")
    entered = []
    real = FileWalk._enter

    def noting(self, frame, name):
        entered.append(name)
        return real(self, frame, name)

    monkeypatch.setattr(FileWalk, "_enter", noting)
    assert found(tmp_path, only=compile_glob("src/**/*.py")) == ["src/a/one.py", "src/two.py"]
    assert entered == ["src", "a"]
    entered.clear()
    assert found(tmp_path, only=compile_glob("*/*.py")) == ["docs/three.py", "src/two.py"]
    assert "a" not in entered


def test_names_that_are_no_text_are_found(tmp_path):
    name = b"odd\xff.txt"
    try:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_text("x")
    except OSError:
        pytest.skip("this file system wants text")
    assert found(tmp_path) == [os.fsdecode(name)]
    assert found(tmp_path, only=compile_glob("*.txt")) == [os.fsdecode(name)]


def test_a_file_is_not_walked(tmp_path):
    made(tmp_path, "file")
    with pytest.raises(ToolError):
        list(walk(place(tmp_path, "file")))


def random_tree(root: Path, chance: random.Random) -> None:
    directories = [root]
    for _ in range(chance.randint(3, 12)):
        directory = chance.choice(directories) / chance.choice(NAMES)
        if not directory.exists():
            directory.mkdir()
            directories.append(directory)
    for _ in range(chance.randint(10, 60)):
        file = chance.choice(directories) / chance.choice(NAMES)
        if not file.exists():
            file.write_text("x")
    for _ in range(chance.randint(1, 4)):
        lines = [random_line(chance) for _ in range(chance.randint(1, 5))]
        (chance.choice(directories) / chance.choice([".gitignore", ".ignore", ".rgignore"])).write_text(
            chance.choice(["\n", "\r\n"]).join(lines)
        )


def random_line(chance: random.Random) -> str:
    number = chance.randint(1, 3)
    pieces = PIECES if number == 1 else [piece for piece in PIECES if piece != "["]  # to ripgrep, [ may span names
    segments = ["".join(chance.choice(pieces) for _ in range(chance.randint(1, 3))) for _ in range(number)]
    start = chance.choice(["", "", "", "!", "/", "!/", "\\", "# ", "**/"])
    return start + "/".join(segments) + chance.choice(["", "", "", "/", "/**", " ", "\\ ", "/*"])


@pytest.mark.skipif(RG is None, reason="ripgrep is not installed")
def test_ignore_files_mean_what_they_mean_to_ripgrep(tmp_path):
    compare_with_ripgrep(tmp_path, range(40))


@pytest.mark.slow
@pytest.mark.skipif(RG is None, reason="ripgrep is not installed")
def test_ignore_files_mean_what_they_mean_to_ripgrep_in_many_more_trees(tmp_path):
    compare_with_ripgrep(tmp_path, range(40, 340))


def compare_with_ripgrep(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        random_tree(root, random.Random(seed))
        assert found(root) == listed_by_ripgrep(root), seed


def listed_by_ripgrep(root: Path) -> list[str]:
    command = [str(RG), "--files", "--hidden", "--no-config", "--no-ignore-global", "--no-ignore-exclude", "-0"]
    command += ["--no-require-git", "--no-ignore-parent", "--no-messages"]
    listed = subprocess.run(command, cwd=root, capture_output=True).stdout
    return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


def test_an_error_in_the_middle_of_a_directory_keeps_what_was_found_before(tmp_path, monkeypatch):
    made(tmp_path, "a", "b", "c", "d")

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name = entry.name

        def is_dir(self, *, follow_symlinks: bool = True) -> bool:
            if self.name == "c":
                raise OSError(5, "input/output error")
            return False

    class Scan:
        def __init__(self, directory: int) -> None:
            self.entries = iter([Entry(one) for one in sorted(scandir(directory), key=lambda one: one.name)])

        def __iter__(self):
            return self.entries

        def close(self) -> None: ...

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", Scan)
    walked = walk(place(tmp_path))
    assert [entry.relative for entry in walked] == ["a", "b"]
    assert walked.unreadable == 1
