"""Diffs, applied with the programs they are made for."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.workspace.text import find_shared_blocks
from forge.workspace.text.diff import content_diff, find_changed_lines, unified_diff

PROGRAMS = [program for program in ("patch", "git") if shutil.which(program)]
WAYS = {
    "patch": ["patch", "-p1", "--force", "--quiet", "--fuzz=0"],
    "git": ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"],
}
EDGES = [
    ("a\nb\nc\n", "a\nX\nc\n"),
    ("a\nb\nc\n", "a\nb\nc"),
    ("a\nb\nc", "a\nb\nc\n"),
    ("a\nb\nc", "a\nb\nX"),
    ("a\nb\nc", "X\nb\nc"),
    ("", "a\n"),
    ("", "a"),
    ("a", ""),
    ("a\n", ""),
    ("\n", ""),
    ("a\r\nb\r\n", "a\r\nc\r\n"),
    ("a\r\nb\r\n", "a\nb\n"),
    ("a\nb\r\nc\rd\n", "a\nb\r\nc\rX\n"),
    ("a\r", "b\r"),
    ("\\ No newline\n--- a\n+++ b\n@@ -1 +1 @@\n", "\\ No newline\n--- a\n@@ -1 +1 @@\n\\"),
    ("x\n" * 20, "x\n" * 10 + "y\n" + "x\n" * 10),
    ("".join(f"{n}\n" for n in range(40)), "".join(f"{n}\n" for n in range(40) if n not in (0, 7, 8, 30, 39))),
    ("größe\u2028\x0b\x0c\n", "größe\u2028\x0b\n"),
]


def apply(program: str, folder: Path, diff: str) -> None:
    done = subprocess.run(WAYS[program], input=diff.encode(), cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode() + diff


def applied(program: str, folder: Path, before: str | None, after: str | None, name: str = "a.txt") -> bytes | None:
    """What the program makes of `before` when it is given the diff."""
    file = folder / name
    if before is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(before.encode())
    apply(program, folder, unified_diff(before, after, name))
    content = file.read_bytes() if file.exists() else None
    file.unlink(missing_ok=True)
    return content


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("before", "after"), EDGES)
def test_the_programs_make_the_new_text_of_the_old(program, tmp_path, before, after):
    assert applied(program, tmp_path, before, after) == after.encode()
    assert applied(program, tmp_path, after, before) == before.encode()


lines = st.sampled_from(["a", "b", "", "a\r", "\r", " ", "-", "+", "\\", "@@ -1 +1 @@", "c\rd", "é"])
texts = st.builds(lambda parts, last: "\n".join([*parts, last]), st.lists(lines, max_size=14), lines | st.just(""))


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=60)
@given(before=texts, after=texts)
def test_any_two_texts(program, tmp_path_factory, before, after):
    if before != after:
        assert applied(program, tmp_path_factory.getbasetemp(), before, after) == after.encode()


@given(before=texts, after=texts, context=st.integers(0, 4))
def test_any_two_texts_without_a_program(before, after, context):
    assert patched(before, unified_diff(before, after, "a", context=context)) == after


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("content", ["a\nb\n", "a", "", "a\r\n"])
@pytest.mark.parametrize("name", ["a.txt", "deep/er/a b.txt", 'tab\there"q\\.txt', "größe.txt", "-rf"])
def test_files_that_come_and_go(program, tmp_path, content, name):
    assert applied(program, tmp_path, None, content, name) == content.encode()
    assert applied(program, tmp_path, content, None, name) is None


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("before", "after"), [("a\nb\n", "a\nc\n"), ("a\nb\n", "a\nb\n"), ("", "")])
def test_a_file_that_moves(program, tmp_path, before, after):
    (tmp_path / "old name.txt").write_text(before)
    if program == "git":
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    apply(program, tmp_path, unified_diff(before, after, "old name.txt", "new/name.txt"))
    assert (tmp_path / "new/name.txt").read_text() == after
    assert not (tmp_path / "old name.txt").exists()


@given(before=texts | st.none(), after=texts | st.none(), codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_contents_have_the_diff_of_their_texts(before, after, codec):
    old, new = (None if text is None else text.encode(codec) for text in (before, after))
    assert content_diff(old, new, "a") == unified_diff(before, after, "a")


def test_a_large_content_is_compared_as_it_is():
    before = "größe\n" * 30_000 + "a\n" + "日本\n" * 30_000
    after = before.replace("a\n", "ä\r\n")
    assert content_diff(before.encode(), after.encode(), "a") == unified_diff(before, after, "a")
    assert content_diff(before.encode(), before.encode(), "a", "b") == unified_diff(before, before, "a", "b")


@pytest.mark.parametrize("content", [b"a\0b", b"caf\xe9\n", b"\xff\xfea"])
def test_what_is_no_text_has_no_diff(content):
    for before, after in ((content, b"a\n"), (b"a\n", content), (None, content)):
        with pytest.raises(ToolError):
            content_diff(before, after, "a")
    assert content_diff(None, "café\n".encode(), "a")


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("a\nb\nc\n", "a\nX\nc\n", [(2, 2)]),
        ("a\nb\nc\n", "a\nX\nY\nc\n", [(2, 3)]),
        ("a\nb\nc\n", "a\nc\n", [(2, 2)]),
        ("a\nb\nc\n", "b\nc\n", [(1, 1)]),
        ("a\n", "", [(1, 1)]),
        ("", "a\nb", [(1, 2)]),
        ("a\nb", "a\nb\n", [(2, 2)]),
        ("@@ -1 +1 @@\n+\n-\n", "@@ -1 +1 @@\n-\n-\n@@ -7 +7 @@\n", [(2, 4)]),
        ("\n" * 40, "x\n" + "\n" * 38 + "y\n", [(1, 1), (40, 40)]),
    ],
)
def test_changed_lines_are_told(before, after, lines):
    assert find_changed_lines(unified_diff(before, after, "a")) == lines


def test_nothing_changed_is_no_diff():
    assert unified_diff("a\n", "a\n", "a") == ""
    assert unified_diff("", "", "a") == ""
    assert unified_diff(None, None, "a") == ""


def test_it_reads_as_people_know_it():
    before = "".join(f"{n}\n" for n in range(1, 21))
    assert unified_diff(before, before.replace("10\n", "ten\n"), "src/a.py") == (
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )
    assert unified_diff(None, "a\nb", "new") == (
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    )
    assert unified_diff("a\n", None, "old") == "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"


def test_changes_far_apart_are_hunks_of_their_own():
    before = [f"{n}\n" for n in range(1, 100)]
    after = ["first\n", *before[1:49], "middle\n", *before[50:]]
    assert unified_diff("".join(before), "".join(after), "a").count("\n@@ ") == 2
    assert unified_diff("".join(before), "".join(after), "a", context=0).splitlines()[2] == "@@ -1 +1 @@"


LARGE = [f"line {number}, of which there are many\n" for number in range(300_000)]  # 10 MB


def quickest(before: str, after: str) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        unified_diff(before, after, "a")
        times.append(time.process_time() - start)
    return min(times)


def test_one_changed_line_of_ten_megabytes_is_quick():
    before = "".join(LARGE)
    assert len(before) > 10_000_000
    for number in (0, 150_000, 299_999):
        assert quickest(before, before.replace(LARGE[number], "other\n")) < 0.1


@pytest.mark.slow
def test_two_changed_lines_of_ten_megabytes_are_two_hunks():
    before = "".join(LARGE)
    after = before.replace(LARGE[3], "other\n").replace(LARGE[-3], "and another\n\n")
    diff = unified_diff(before, after, "a")
    assert diff.count("\n@@ ") == 2
    assert len(diff) < 2_000
    assert quickest(before, after) < 2
    repeated = "x\n" * 200_000
    assert len(unified_diff(repeated, "y\n" + repeated[2:-2] + "y\n", "a")) < 200


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("".join(LARGE[:50_000]), "".join(LARGE[50_000:100_000])),
        pytest.param("".join(LARGE[:50_000]), "".join(LARGE[25_000:75_000]), marks=pytest.mark.slow),
        ("".join(LARGE[:50_000]), "".join(reversed(LARGE[:50_000]))),
        pytest.param("".join(LARGE[:50_000]), "".join(f"{one}x\n" for one in LARGE[:50_000]), marks=pytest.mark.slow),
        ("x\n" * 50_000, "y\nx\n" * 30_000),
        ("x\ny\n" * 20_000, "y\nz\n" * 30_000 + "x\n"),
    ],
    ids=["different", "moved", "reversed", "doubled", "repeated", "interleaved"],
)
def test_fifty_thousand_lines_do_not_take_their_square(before, after):
    start = time.process_time()
    diff = unified_diff(before, after, "a")
    assert time.process_time() - start < 2
    assert patched(before, diff) == after


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_shared_blocks_are_shared_and_rise(before, after):
    here = there = 0
    blocks = find_shared_blocks(before, after)
    for start, position, size in blocks:
        assert start >= here
        assert position >= there
        assert before[start : start + size] == after[position : position + size]
        here, there = start + size, position + size
    assert blocks[-1] == (len(before), len(after), 0)


def test_large_blocks_are_found_around_scattered_changes():
    generator = random.Random(4)
    after = [line for line in LARGE[:20_000] if generator.random() > 0.01]
    for place in sorted(generator.sample(range(len(after)), 200), reverse=True):
        after.insert(place, f"new {place}\n")
    shared = sum(block.size for block in find_shared_blocks(LARGE[:20_000], after))
    assert shared == len(after) - 200


def patched(before: str, diff: str) -> str:
    """A simple program that applies a diff, and checks every line it passes."""
    source, made, position = before.split("\n"), [], 0
    body = diff.split("\n")[2:-1] if diff else []
    ended = True  # whether the new text ends with a newline
    mark = ""
    for line in body:
        if line.startswith("@@ "):
            start, _, size = line.split()[1][1:].partition(",")
            until = int(start) - (size != "0")
            made += source[position:until]
            position = until
        elif line.startswith("\\"):
            ended = ended and mark == "-"
        else:
            mark = line[0]
            if mark in " -":
                assert source[position] == line[1:]
                position += 1
            if mark in " +":
                made.append(line[1:])
    rest = source[position:]
    text = "\n".join([*made, *rest])
    if not rest and diff:
        text += "\n" * (ended and bool(made))
    elif rest == [""] and not ended:
        text = text.removesuffix("\n")
    return text
