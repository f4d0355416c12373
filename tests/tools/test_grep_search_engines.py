"""The same search gives the same answer by both engines of ripgrep, by our own walk, and from Python."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.context import Scope, ToolContext
from forge.core.messages import ToolCall
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.grep_search import GrepSearch
from forge.tools.grep_search.ripgrep import FileFilter
from forge.workspace.paths import PathValidator
from forge.workspace.search.walk import walk

ATOMS = [
    *("a", "b", "A", "_", "1", " ", ".", ";", "k", "s", "i", r"\.", r"\t", "é", "ß", "ı", "日", "{", r"\x{e9}"),
    *(r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\b", "^", "$"),
    *("[ab]", "[^a]", "[^ab]", "[a-z]", r"[\w-]", r"[^\w]", r"[\W1]", r"[^\W_]", "[é-ü]", "[^é]", "[[:alpha:]]"),
]
TEXT = "abAkKsSiI_1 .;-\téßİıſ\u212a日µ\u0308\u00a0"
NAMES = ["a", "b.py", "c.log", ".d", "src", "node_modules", "build", "é", ".git", "日 本"]
IGNORE_LINES = ["*.log", "a", "/src/", "src/*", "!b.py", "!c.log", "b.*", "# a", "**/a", "é/"]

atoms = st.sampled_from(ATOMS)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda two: f"(?:{two[0]}){two[1]}"),
        inner.map(lambda one: f"(?i:{one})"),
    ),
    max_leaves=5,
)
lines = st.tuples(st.text(TEXT, max_size=6), st.sampled_from(["\n", "\n", "\r\n"])).map("".join)
contents = st.tuples(st.lists(lines, max_size=5).map("".join), st.sampled_from(["", "", "a", "\0"])).map("".join)
encodings = st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16"])
files = st.tuples(contents, encodings).map(lambda two: two[0].encode(two[1]))
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
ignore_files = st.dictionaries(
    st.sampled_from([".gitignore", ".ignore", "src/.gitignore", "src/.rgignore", "a/.gitignore"]),
    st.lists(st.sampled_from(IGNORE_LINES), min_size=1, max_size=3).map(lambda some: "\n".join(some).encode() + b"\n"),
    max_size=2,
)


def answer(top: Path, **arguments: Any) -> tuple[str, Any]:
    executor = standard_executor([GrepSearch()], policy=rules("allow read"))
    result = asyncio.run(executor.execute(ToolCall("grep_search", arguments), Scope(workspace=top)))
    return result.for_llm, result.data


def other_engine(pattern: str) -> str:
    """The same, with a look-ahead that is always true: only PCRE2 can read it."""
    return f"(?:{pattern})(?=)"


def grow(top: Path, tree: dict[str, bytes]) -> None:
    for name, content in sorted(tree.items()):
        path = top / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:  # a file where a directory should be, or the other way round
            continue


@settings(max_examples=25)
@given(patterns, st.lists(files, min_size=1, max_size=8), st.booleans(), st.integers(0, 2))
def test_patterns_find_the_same_lines(pattern, several, case_sensitive, context):
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), {str(number): content for number, content in enumerate(several)})
        options = {"case_sensitive": case_sensitive, "context": context}
        assert answer(Path(top), pattern=pattern, **options) == answer(
            Path(top), pattern=other_engine(pattern), **options
        )


@settings(max_examples=25)
@given(
    st.dictionaries(paths, st.just(b"x\ny\nx\n"), min_size=1, max_size=12),
    ignore_files,
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.sampled_from(["src", "a", "node_modules", "src/a", "b.py", "c.log"]),
            "include": st.sampled_from(["*.py", "a", "src/**", ["*.log", "b*"], "!*.py", "*.{py,log}"]),
            "exclude": st.sampled_from(["*.py", "src", "a/", ["src/a", ".d"]]),
            "include_ignored": st.booleans(),
            "max_results": st.integers(1, 6),
            "names_only": st.booleans(),
        },
    ),
)
def test_files_are_those_of_our_own_walk(tree, ignored, arguments):
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), {**tree, **ignored})
        found = answer(Path(top), pattern="^x", **arguments)[1]
        if found is None or "files" not in found:  # the place is missing
            return
        files = walked(Path(top), **arguments)
        most = arguments.get("max_results", 100)
        is_short = arguments.get("names_only", False)
        assert found["total_files"] == len(files)
        assert found["files"] == files[: most if is_short else (most + 1) // 2]
        assert found["total"] == (len(files) if is_short else 2 * len(files))


def walked(
    top: Path, path: str = "", include: Any = "", exclude: Any = "", include_ignored: bool = False, **other: Any
) -> list[str]:
    """The files below `path` that fit, as glob_search would find them."""
    place = PathValidator.of(Scope(workspace=top)).resolve(path or ".")
    if place.path.is_file():
        return [place.shown]
    wanted = FileFilter(place, include, exclude)
    entries = walk(place, include_ignored=include_ignored)
    found = [
        one.relative for one in entries if wanted(one.relative) and b"x" in (place.path / one.relative).read_bytes()
    ]
    return [place.child(one).shown for one in sorted(found, key=lambda one: [part.encode() for part in one.split("/")])]


@settings(max_examples=10)
@given(st.text("ab.*[(\\é-", min_size=1, max_size=4), st.lists(st.text("ab.*[(\\é-ÉAB\n", max_size=20), max_size=4))
def test_plain_text_is_found_in_the_same_places(text, several):
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), {str(number): content.encode() for number, content in enumerate(several)})
        folded = len(text) % 2 == 1
        found = answer(Path(top), pattern=text, fixed_strings=True, case_sensitive=not folded)[1]
        shown = [content.lower() if folded else content for content in several]
        wanted = text.lower() if folded else text
        assert found["total"] == sum(wanted in line for content in shown for line in content.split("\n"))


def test_it_is_the_same_from_python_without_an_executor(tmp_path):
    grow(tmp_path, {"a": b"x\n", "b/c": b"y x\n"})

    async def direct() -> str:
        tool = GrepSearch()
        ctx = ToolContext(ToolCall("grep_search", {}), tool, scope=Scope(workspace=tmp_path))
        return (await tool.run(ctx, "x")).for_llm

    assert asyncio.run(direct()) == answer(tmp_path, pattern="x")[0] == "a:1:x\nb/c:1:y x"


@pytest.mark.slow
@settings(max_examples=60)
@given(patterns, st.lists(files, min_size=1, max_size=4), st.booleans())
def test_many_more_patterns_find_the_same_lines(pattern, several, case_sensitive):
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), {str(number): content for number, content in enumerate(several)})
        one, other = (
            answer(Path(top), pattern=text, case_sensitive=case_sensitive) for text in (pattern, other_engine(pattern))
        )
        assert one == other
