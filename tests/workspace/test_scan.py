"""The search in a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forge
from forge.workspace import scan
from forge.workspace.expression import Expressions
from forge.workspace.pattern import literal_pattern, read_pattern

HOME = str(Path(forge.__file__).parents[1])


def run(folder: Path, paths: list[str], pattern: str, *, most: int = 100, kind: str = "regex", case: str = "exact"):
    """What the program says of each path: how many lines, and where."""
    start = "import sys; sys.path.append(sys.argv.pop()); from forge.workspace.scan import main; main()"
    command = [sys.executable, "-I", "-S", "-c", start, kind, case, str(most), "30", pattern, HOME]
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, check=True)
    found: dict[str, tuple[int, list[str]]] = {}
    for record in done.stdout.split(b"\n")[:-1]:
        path, _, rest = record.partition(b"\0")
        count, *positions = rest.decode().split()
        before = found.get(os.fsdecode(path), (0, []))
        found[os.fsdecode(path)] = (before[0] + int(count), before[1] + positions)
    return found


def positions(pattern: str, content: bytes, room: int = 10):
    return scan.matches(Expressions(read_pattern(pattern)), content, room)


def test_it_says_where_lines_match(tmp_path):
    (tmp_path / "a.txt").write_text("no\nxx needle\nno\nneedle needle\n")
    (tmp_path / "b.txt").write_text("nothing\n")
    assert run(tmp_path, ["a.txt", "b.txt"], "needle") == {"a.txt": (2, ["2:3:3", "4:0:16"])}


def test_many_files_are_shared_by_two_workers(tmp_path):
    names = [f"file-{number:04}-with-a-rather-long-name.txt" for number in range(400)]
    for number, name in enumerate(names):
        (tmp_path / name).write_text("needle\n" * (number % 3))
    found = run(tmp_path, names, "needle", most=5)
    assert {name: count for name, (count, _) in found.items()} == {
        name: number % 3 for number, name in enumerate(names) if number % 3
    }
    first = sorted(found)[:3]
    assert all(found[name][1] for name in first)  # each worker tells of the first ones it gets
    assert sum(len(where) for _, where in found.values()) <= 10


def test_counting_goes_on_when_there_are_positions_enough(tmp_path):
    (tmp_path / "a").write_text("x\n" * 5_000)
    count, where = run(tmp_path, ["a"], "x", most=2_000)["a"]
    assert (count, len(where), where[-1]) == (5_000, 2_000, "2000:0:3998")


def test_what_cannot_be_read_is_told_and_what_is_gone_is_not(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "a").write_text("x\n")
    assert run(tmp_path, ["gone", "a"], "x") == {"a": (1, ["1:0:0"])}
    assert run(tmp_path, ["folder", "link", "a"], ".") == {"a": (1, ["1:0:0"]), "": (2, [])}


def test_names_with_line_breaks_and_bytes_that_are_no_text(tmp_path):
    names = ["a\nb", os.fsdecode(b"\xff"), "-rf", "日本"]
    for name in names:
        (tmp_path / name).write_text("x\n")
    raw = subprocess.run(
        [sys.executable, "-m", "forge.workspace.scan", "fixed", "any", "9", "9", "X"],
        cwd=tmp_path,
        input=b"".join(os.fsencode(name) + b"\0" for name in names),
        capture_output=True,
        check=True,
        env={"PYTHONPATH": HOME},
    ).stdout
    assert raw == b"".join(os.fsencode(name) + b"\0" + b"1 1:0:0\n" for name in names)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"\n\n", 2),
        (b"a", 1),
        (b"a\n", 1),
        (b"a\nb", 2),
        (b"a\r\nb\r\n", 2),
        ("é\nb".encode(), 2),
    ],
)
def test_an_empty_match_counts_once_a_line(content, expected):
    assert positions("x*", content)[0] == expected


def test_columns_and_offsets_count_bytes():
    assert positions(".b", "éé\nééb\n".encode()) == (1, [(1, 2, 5)])
    assert positions("b", "éé\nééb\n".encode()) == (1, [(1, 4, 5)])


def test_no_match_reaches_over_a_line_break():
    content = b"a\nb\na x\nb\n"
    for pattern in (r"a\s*b", "a[^z]*b", r"a\W+b", r"a[\s\S]*b", "a(?s:.)*b"):
        assert positions(pattern, content) == (0, [])
    assert positions(r"a\s*x", content) == (1, [(2, 0, 4)])


def test_binary_files_are_not_searched(tmp_path):
    (tmp_path / "binary").write_bytes(b"needle\n" + b"x" * 200_000 + b"\0")
    (tmp_path / "text").write_bytes(b"needle\n" + b"x" * 200_000)
    assert run(tmp_path, ["binary", "text"], "needle") == {"text": (1, ["1:0:0"])}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_at_the_beginning_is_no_text(tmp_path, encoding):
    (tmp_path / "a").write_bytes("needle é\nneedle\n".encode(encoding))
    assert run(tmp_path, ["a"], "^needle") == {"a": (2, ["1:0:0", "2:0:10"])}


def test_large_files_are_searched_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "PIECE", 100_000)
    line = "é" * 40 + "\n"
    (tmp_path / "a").write_text((line * 3_000 + "needle\n") * 3 + "x" * 200_000 + "needle")
    found: list[bytes] = []
    search = scan.Scan(Expressions(literal_pattern("needle")), 10, found.append)
    search.search(os.fsencode(tmp_path / "a") + b"\0")
    size = len(line.encode()) * 3_000
    wanted = [(3_001, 0, size), (6_002, 0, 2 * size + 7), (9_003, 0, 3 * size + 14), (9_004, 200_000, 3 * size + 21)]
    assert found == [os.fsencode(tmp_path / "a") + b"\0004" + b"".join(b" %d:%d:%d" % one for one in wanted) + b"\n"]
