"""glob_search: what is found, in which order, and what is said about the rest."""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from forge import ErrorKind, Scope, ToolCall, ToolRegistry, rules
from forge.core.result import ToolResult
from forge.permissions.gate import PolicyGate
from forge.pipeline import ToolExecutor, standard_executor, standard_steps
from forge.tools.glob_search import GlobSearch


def caller(tool: GlobSearch, workspace: Path) -> Callable[..., ToolResult]:
    steps = standard_steps(PolicyGate(rules("allow read")), without={"skip_repeats", "break_loops"})
    executor = ToolExecutor(ToolRegistry([tool]), steps)

    def call(pattern: str, **arguments: object) -> ToolResult:
        sent = ToolCall("glob_search", {"pattern": pattern, **arguments})
        return asyncio.run(executor.execute(sent, Scope(workspace=workspace)))

    return call


@pytest.fixture
def glob(tmp_path):
    return caller(GlobSearch(), tmp_path)


def made(root: Path, *files: str) -> None:
    """Each newer than the one before it."""
    for number, file in enumerate(files):
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
        os.utime(path, (1_000 + number, 1_000 + number))


def files(result: ToolResult) -> list[str]:
    assert result.success, result.for_llm
    return list(result.data["files"])


def test_the_newest_come_first_and_ties_by_path(glob, tmp_path):
    made(tmp_path, "old.py", "src/new.py", "b.py")
    os.utime(tmp_path / "b.py", (1_000, 1_000))
    result = glob("**/*.py")
    assert files(result) == ["src/new.py", "b.py", "old.py"]
    assert result.for_llm == "src/new.py\nb.py\nold.py"
    assert result.data == {"files": ["src/new.py", "b.py", "old.py"], "total": 3, "truncated": False, "hidden": 0}


def test_patterns_mean_what_they_say(glob, tmp_path):
    made(tmp_path, "a.ts", "src/a.ts", "src/x/b.ts", "lib/src/c.ts", ".github/ci.yml")
    assert set(files(glob("src/**/*.ts"))) == {"src/a.ts", "src/x/b.ts"}
    assert files(glob("*.ts")) == ["a.ts"]
    assert set(files(glob("**/*.TS"))) == {"a.ts", "src/a.ts", "src/x/b.ts", "lib/src/c.ts"}
    assert files(glob("**/*.TS", case_sensitive=True)) == []
    assert files(glob("**/*.yml")) == [".github/ci.yml"]
    assert set(files(glob("{src,lib}/**/[bc].ts"))) == {"src/x/b.ts", "lib/src/c.ts"}
    assert set(files(glob("src/"))) == {"src/a.ts", "src/x/b.ts"}
    assert set(files(glob("SRC/*.ts"))) == {"src/a.ts"}
    assert files(glob("SRC/*.ts", case_sensitive=True)) == []


def test_a_path_is_where_it_starts(glob, tmp_path):
    made(tmp_path, "a.py", "src/b.py", "src/x/c.py")
    assert files(glob("*.py", path="src")) == ["src/b.py"]
    assert files(glob("**/*.py", path=str(tmp_path / "src" / "x"))) == ["src/x/c.py"]
    assert set(files(glob("**/*.py", path="."))) == {"a.py", "src/b.py", "src/x/c.py"}
    assert files(glob("../*.py", path="src")) == ["a.py"]
    assert files(glob("src/../*.py")) == ["a.py"]
    assert files(glob(f"{tmp_path}/src/*.py")) == ["src/b.py"]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "/*/x", "..", "src/../../*", "~/x/*", "/"])
def test_patterns_that_leave_the_root_are_refused(glob, tmp_path, pattern):
    made(tmp_path, "src/b.py")
    result = glob(pattern)
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.SECURITY
    assert "root:" not in result.for_llm


@pytest.mark.parametrize("pattern", ["", " ", "a\0b", "x" * 5_000, "*/../x", "{a,b}" * 9, "[z-a]"])
def test_patterns_that_mean_nothing_are_refused(glob, pattern):
    result = glob(pattern)
    assert result.failure is None or result.failure.kind in (ErrorKind.VALIDATION, ErrorKind.SECURITY)
    assert len(result.for_llm) < 3_000


def test_only_files_and_links_to_files_inside_are_found(glob, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("x")
    made(tmp_path, "real.txt", "folder.txt/inner")
    (tmp_path / "inside.txt").symlink_to("real.txt")
    (tmp_path / "whole.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "out.txt").symlink_to(outside / "secret.txt")
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "directory.txt").symlink_to("folder.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    assert sorted(files(glob("*.txt"))) == ["inside.txt", "real.txt", "whole.txt"]


def test_a_directory_that_is_a_link_is_entered_only_when_it_is_named(glob, tmp_path):
    made(tmp_path, "documentation/a.md")
    (tmp_path / "docs").symlink_to("documentation")
    (tmp_path / "away").symlink_to("/etc")
    assert files(glob("**/*.md")) == ["documentation/a.md"]
    assert files(glob("docs/*.md")) == ["documentation/a.md"]
    assert glob("away/*").failure.kind is ErrorKind.SECURITY
    assert files(glob("aw*/*")) == []


def test_ignored_files_are_left_out_and_counted_and_found_by_name(glob, tmp_path):
    made(tmp_path, "a.py", "gen.py", ".env", "node_modules/m/x.py", "out/y.py", "out/z.txt")
    (tmp_path / ".gitignore").write_text("gen.py\n.env\nout/\n")
    result = glob("**/*.py")
    assert files(result) == ["a.py"]
    assert result.data["hidden"] == 3
    assert "1 file and 2 directories hidden by ignore rules" in result.for_llm
    assert sorted(files(glob("**/*.py", include_ignored=True))) == [
        "a.py",
        "gen.py",
        "node_modules/m/x.py",
        "out/y.py",
    ]
    assert files(glob("gen.py")) == ["gen.py"]
    assert files(glob("**/.env")) == [".env"]
    assert files(glob("node_modules/**/*.py")) == ["node_modules/m/x.py"]
    assert files(glob("**/node_modules/**/*.py")) == ["node_modules/m/x.py"]
    assert files(glob("*.py", path="out")) == ["out/y.py"]


def test_git_is_never_searched(glob, tmp_path):
    made(tmp_path, ".git/config", "a.txt")
    assert files(glob("**/*", include_ignored=True)) == ["a.txt"]
    for arguments in ({"pattern": ".git/*"}, {"pattern": "*", "path": ".git"}):
        result = glob(**arguments)
        assert result.failure is not None
        assert "never searched" in result.for_llm


def test_what_is_too_much_is_counted(glob, tmp_path):
    made(tmp_path, *(f"{number}.txt" for number in range(12)))
    result = glob("*.txt", max_results=5)
    assert files(result) == ["11.txt", "10.txt", "9.txt", "8.txt", "7.txt"]
    assert result.data["total"] == 12
    assert result.data["truncated"] is True
    assert "[5 of 12 files" in result.for_llm
    exact = glob("*.txt", max_results=12)
    assert exact.data["truncated"] is False
    assert "[" not in exact.for_llm


def test_nothing_found_is_a_result_with_a_hint(glob, tmp_path):
    made(tmp_path, "src/a.py")
    result = glob("*.py")
    assert files(result) == []
    assert "No files match *.py." in result.for_llm
    assert "**/*.py" in result.for_llm
    assert files(glob("nowhere/*.py")) == []


def test_a_missing_directory_names_those_that_are_there(glob, tmp_path):
    made(tmp_path, "source/a.py")
    result = glob("*.py", path="nowhere")
    assert result.failure.kind is ErrorKind.NOT_FOUND
    assert files(glob("*.py", path="source")) == ["source/a.py"]


def test_a_file_is_no_place_to_start_from(glob, tmp_path):
    made(tmp_path, "a.py")
    result = glob("*.py", path="a.py")
    assert result.failure.kind is ErrorKind.USER
    assert "not a directory" in result.for_llm


def test_odd_names_break_neither_lines_nor_terminals(glob, tmp_path):
    made(tmp_path, "a\nb.txt", "\x1b[31mred.txt", "\u202egnp.txt", "日本.txt", "שלום.txt", "plain.txt")
    result = glob("*.txt")
    lines = result.for_llm.split("\n")
    assert set(lines) == {'"a\\nb.txt"', '"\\x1b[31mred.txt"', '"\\u202egnp.txt"', "日本.txt", "שלום.txt", "plain.txt"}
    assert "a\nb.txt" in files(result)
    json.dumps(result.to_dict()).encode()


def test_names_that_are_no_text_are_shown_escaped(glob, tmp_path):
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system wants text")
    result = glob("*.txt")
    assert result.for_llm == '"x\\xff.txt"'
    json.dumps(result.to_dict()).encode()


def test_a_search_that_takes_too_long_keeps_what_it_has(tmp_path):
    made(tmp_path, "a.txt", "x/b.txt", "y/c.txt")
    result = caller(GlobSearch(patience=0.0), tmp_path)("**/*.txt")
    assert files(result) == ["a.txt"]
    assert result.data["truncated"] is True
    assert "took too long" in result.for_llm


async def test_denied_files_are_left_out_and_said(tmp_path):
    made(tmp_path, "a.txt", "secret/b.txt")
    executor = standard_executor([GlobSearch()], policy=rules("allow read", "deny read secret/**"))
    result = await executor.execute(ToolCall("glob_search", {"pattern": "**/*.txt"}), Scope(workspace=tmp_path))
    assert files(result) == ["a.txt"]
    assert "1 file left out" in result.for_llm


def test_the_gate_is_asked_about_where_the_search_begins():
    assert GlobSearch().targets({"pattern": "src/**/*.py"}) == ["src"]
    assert GlobSearch().targets({"pattern": "x/*", "path": "src"}) == ["src/x"]
    assert GlobSearch().targets({"pattern": "*"}) == [""]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_files(glob, tmp_path):
    glob("*")  # so that what a first call loads is not counted
    for number in range(20_000):
        if number % 10_000 == 0:
            folder = tmp_path / str(number)
            folder.mkdir()
        os.close(os.open(folder / f"{number}.txt", os.O_CREAT | os.O_WRONLY))
    tracemalloc.start()
    try:
        result = glob("**/*.txt")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.data["total"] == 20_000
    assert len(files(result)) == 100
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("pattern", ["", " "])
def test_an_empty_pattern_is_refused_and_one_for_everything_is_not(bench, pattern):
    assert "the pattern is empty" in bench.call("glob_search", pattern=pattern).failure.message
    assert bench.call("glob_search", pattern="**").data["files"] == ["here.txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("app/[slug]/page.tsx", ["app/[slug]/page.tsx"]),
        ("app/[slug]/*.tsx", ["app/[slug]/page.tsx"]),
        ("**/[[...rest]]/**/*.{ts,tsx}", ["app/[[...rest]]/a/b.ts"]),
        ("file[1].txt", ["file[1].txt"]),
        ("FILE[1].txt", ["file[1].txt"]),
        ("api/{id}.json", ["api/{id}.json"]),
        ("api/[v1]/{id,name}.json", ["api/[v1]/{id,name}.json"]),
        ("[2024-01-15] notes.md", ["[2024-01-15] notes.md"]),  # no range that could be a class
    ],
)
def test_brackets_that_match_nothing_as_a_glob_are_parts_of_names(glob, tmp_path, pattern, expected):
    made(
        tmp_path,
        *("app/[slug]/page.tsx", "app/[[...rest]]/a/b.ts", "file[1].txt", "api/{id}.json", "api/[v1]/{id,name}.json"),
        "[2024-01-15] notes.md",
    )
    result = glob(pattern)
    assert files(result) == expected
    assert result.for_llm.endswith(
        "[the brackets in the pattern were read as plain characters: as a glob it finds nothing]"
    )


def test_brackets_that_match_something_are_a_glob(glob, tmp_path):
    made(tmp_path, "file[1].txt", "file1.txt", "a.ts", "b.ts")
    assert files(glob("file[1].txt")) == ["file1.txt"]
    assert "brackets" not in glob("file[1].txt").for_llm
    assert files(glob("[ab].ts")) == ["b.ts", "a.ts"]
    assert files(glob(r"file\[1\].txt")) == ["file[1].txt"]


def test_brackets_that_match_nothing_at_all_say_nothing_more(glob, tmp_path):
    made(tmp_path, "a.ts")
    assert "brackets" not in glob("src/[slug]/page.tsx").for_llm
    refused = glob("[2024-01-15] notes.md")
    assert refused.failure is not None
    assert "goes backwards" in refused.for_llm


def test_brackets_do_not_lead_past_a_rule(tmp_path):
    made(tmp_path, "app/[slug]/page.tsx", "app/[id]/page.tsx")
    policy = rules("allow read", "deny read app/?slug?/**")
    executor = standard_executor([GlobSearch()], policy=policy)
    scope = Scope(workspace=tmp_path)
    hidden = asyncio.run(executor.execute(ToolCall("glob_search", {"pattern": "app/[slug]/*.tsx"}), scope))
    assert files(hidden) == []
    shown = asyncio.run(executor.execute(ToolCall("glob_search", {"pattern": "app/[id]/*.tsx"}), scope))
    assert files(shown) == ["app/[id]/page.tsx"]
