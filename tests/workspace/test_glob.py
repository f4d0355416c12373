"""Patterns: what fits, where they lead, and that none of them takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.workspace.search.glob import MOST_ALTERNATIVES, compile_glob, literal_head


def fits(pattern: str, path: str, *, case_sensitive: bool = True) -> bool:
    glob = compile_glob(pattern, case_sensitive)
    whole = bool(glob.fits(path))
    name = path.rpartition("/")[2]
    if whole:
        assert glob.fits_name is None or glob.fits_name(name)
    if glob.decided_by_name:
        assert glob.fits_name is not None
        assert whole == bool(glob.fits_name(name))
    return whole


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/*.py", "main.py"),
        ("**/*.py", "a/b/main.py"),
        ("src/**/*.ts", "src/a.ts"),
        ("src/**/*.ts", "src/a/b/c.ts"),
        ("*.py", "a.py"),
        ("src/**", "src/a/b"),
        ("src/", "src/a"),
        ("**", "a/b"),
        ("a/**/b/**/c", "a/x/b/y/z/c"),
        ("a/**/b/**/c", "a/b/c"),
        ("**/b/c", "b/b/c"),
        ("**/a/*/c", "a/a/b/c"),
        ("a?c", "abc"),
        ("[a-c]x", "bx"),
        ("[!a-c]x", "dx"),
        ("[^a-c]x", "dx"),
        ("[]]", "]"),
        ("[-a]", "-"),
        ("[a-]", "-"),
        ("[a", "[a"),
        ("*.{ts,tsx}", "a.tsx"),
        ("{src,tests}/**/*.py", "tests/a/b.py"),
        ("a{b,{c,d}e}f", "adef"),
        ("a{,b}", "a"),
        ("a{,b}", "ab"),
        ("{a/b,c}/d", "a/b/d"),
        ("a{b", "a{b"),
        ("a}b", "a}b"),
        ("a,b", "a,b"),
        (r"\*", "*"),
        (r"\{a,b\}", "{a,b}"),
        ("./a/*", "a/b"),
        ("a//b", "a/b"),
        ("a/../b", "b"),
        ("**.py", "a.py"),
        ("*a*b*c*", "xaybzc"),
        ("日*", "日本"),
        ("?", "日"),
        ("..name", "..name"),
        ("-rf", "-rf"),
        ("a b*", "a b c"),
        ("*", "a\nb"),
        ("x.*", "x.\udcff"),
        ("*ab", "aab"),
        ("*aba", "ababa"),
        ("a*b", "ab"),
    ],
)
def test_it_fits(pattern, path):
    assert fits(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a/b.py"),
        ("src/**/*.ts", "a.ts"),
        ("src/**/*.ts", "lib/src/a.ts"),
        ("src/*.ts", "src/a/b.ts"),
        ("**/a/*/c", "a/c"),
        ("a?c", "a/c"),
        ("a[!b]c", "a/c"),
        ("a[/]c", "a/c"),
        ("[!a-c]x", "ax"),
        ("*.py", "a.pyc"),
        ("*.py", "a.PY"),
        ("**.py", "a/b.py"),
        ("a/**/b", "a/xb"),
        (r"\*", "a"),
        ("*.{ts,tsx}", "a.js"),
        ("a*b*a", "aba b"),
    ],
)
def test_it_does_not_fit(pattern, path):
    assert not fits(pattern, path)


def test_case_counts_only_where_it_should():
    assert fits("**/READ*.MD", "a/readme.md", case_sensitive=False)
    assert fits("*.py", "A.PY", case_sensitive=False)
    assert fits("[a-c]", "B", case_sensitive=False)
    assert not fits("**/READ*.MD", "a/readme.md")


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a\0b",
        "x" * 5_000,
        "*/../x",
        "..",
        "a/../..",
        "[z-a]",
        "a\\",
        "{a,b}" * 9,
        "{" + "," * 300 + "}",
        ".",
        "{" * 65,
    ],
)
def test_a_pattern_that_means_nothing_is_refused(pattern):
    with pytest.raises(ToolError) as raised:
        compile_glob(pattern)
    assert raised.value.kind == "validation_error"
    assert len(raised.value.message) < 200


def test_as_many_alternatives_as_allowed_work():
    pattern = "{a,b}" * 8
    assert MOST_ALTERNATIVES == 2**8
    assert fits(pattern, "abababab")
    assert not fits(pattern, "abababac")


@pytest.mark.parametrize(
    "pattern",
    [
        "**/**/**/a*a*a*a*b",
        "**/" * 300 + "a",
        "**/a/" * 300 + "b",
        "*a" * 500 + "b",
        "{" * 64 + "a" * 3_000 + "}" * 64,
        "{a}" * 64,
        "[!b]*" * 300 + "c",
        "{a*,*a}" * 8 + "b",
        "?*" * 1_000 + "b",
    ],
)
def test_no_pattern_takes_long(pattern):
    started = time.process_time()
    glob = compile_glob(pattern, case_sensitive=False)
    for path in ("a" * 255, "a/" * 1_500 + "c", "/".join(["a" * 255] * 15)):
        glob.fits(path)
        glob.leads_below(path)
    assert time.process_time() - started < 2


@given(st.text("ab*?[]{},/\\.!-", max_size=24), st.text("ab/.", min_size=1, max_size=12))
def test_whatever_is_written_is_a_pattern_or_is_refused(pattern, path):
    try:
        glob = compile_glob(pattern)
    except ToolError:
        return
    if glob.fits(path):
        directories = path.split("/")[:-1]
        above = ["/".join(directories[: number + 1]) for number in range(len(directories))]
        assert glob.leads_anywhere or all(glob.leads_below(one) for one in above) or "//" in f"/{path}/"


def reference(pattern: str, path: str) -> bool:
    """The slow and obvious way: every way to spread the names over `**`, every way to spread letters over `*`."""

    def names(segments: list[str], parts: list[str]) -> bool:
        if not segments:
            return not parts
        if segments[0] == "**":
            if len(segments) == 1:
                return bool(parts)
            return any(names(segments[1:], parts[start:]) for start in range(len(parts) + 1))
        return bool(parts) and name(segments[0], parts[0]) and names(segments[1:], parts[1:])

    def name(segment: str, text: str) -> bool:
        if not segment:
            return not text
        if segment[0] == "*":
            return any(name(segment[1:], text[start:]) for start in range(len(text) + 1))
        return bool(text) and segment[0] in ("?", text[0]) and name(segment[1:], text[1:])

    return names(pattern.split("/"), path.split("/"))


@given(
    st.lists(st.sampled_from(["**", "*", "a", "b", "a*", "*b", "?a*b", "*a*", "ab*a"]), min_size=1, max_size=5),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6),
)
def test_it_fits_what_the_obvious_way_fits(segments, names):
    pattern, path = "/".join(segments), "/".join(names)
    assert bool(compile_glob(pattern).fits(path)) == reference(pattern, path)


def test_a_pattern_knows_where_it_leads():
    glob = compile_glob("src/*/test_*.py")
    assert glob.leads_below("src")
    assert glob.leads_below("src/a")
    assert not glob.leads_below("src/a/b")
    assert not glob.leads_below("docs")
    assert compile_glob("src/**").leads_below("src/a/b/c")
    assert compile_glob("{src,docs}/**").leads_below("docs")
    assert compile_glob("SRC/**", False).leads_below("src")
    assert compile_glob("**/x").leads_anywhere


def test_a_pattern_names_what_it_writes_literally():
    glob = compile_glob("**/node_modules/{a,b}/*.js")
    assert "node_modules" in glob
    assert "b" in glob
    assert "*.js" not in glob
    assert ".ENV" in compile_glob(".env", False)
    assert ".ENV" not in compile_glob(".env")


@pytest.mark.parametrize(
    ("pattern", "head", "rest"),
    [
        ("a/b/*.c", "a/b", "*.c"),
        ("*.c", "", "*.c"),
        ("a.c", "", "a.c"),
        ("a/b.c", "a", "b.c"),
        ("a/", "a", "**"),
        ("/a/b/*", "/a/b", "*"),
        ("/x", "/", "x"),
        ("/*/x", "/", "*/x"),
        ("../x/*", "../x", "*"),
        ("..", "..", "**"),
        ("./*.c", ".", "*.c"),
        ("{a,b}/c/*", "", "{a,b}/c/*"),
        ("a/{b,c}/d", "a", "{b,c}/d"),
    ],
)
def test_the_directories_it_begins_with_are_taken_off(pattern, head, rest):
    assert literal_head(pattern) == (head, rest)
