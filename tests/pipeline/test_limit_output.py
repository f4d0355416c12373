"""Long results are cut where a model can still use them, and kept whole."""

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64encode
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge import Scope, ToolCall, ToolContext, ToolResult, tool
from forge.core.errors import ErrorKind
from forge.core.execution import threads
from forge.core.result import Attachment, Failure
from forge.pipeline.limit_output import MAX_BYTES, MAX_DATA, LimitOutput, bound_data, fit_text, size_of
from forge.workspace.state import keep_newest
from tests.pipeline.calling import call_once, executor_of

module = import_module("forge.pipeline.limit_output")  # the package has a function of this name


@tool
def say(text: str) -> str:
    """Say it."""
    return text


@tool(keep_end=True)
def say_like_a_shell(text: str) -> str:
    """Say it."""
    return text


def test_a_result_exactly_at_the_limits_is_not_cut():
    lines = "\n".join(["x" * 20] * 2_000)
    assert len(lines) <= MAX_BYTES
    assert fit_text(lines, 2_000, MAX_BYTES, 2_000) is None
    assert fit_text(lines + "\n", 2_000, MAX_BYTES, 2_000) is None


WORDS = ["", " ", "word ", "x" * 59, "x" * 60, "Qm9" * 25, "Qm9" * 26, "aB3/" * 260, "data:image/png;base64,", "=", "é"]
ENDS = ["\n", "\r\n", "\n\n", ""]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(ENDS)), max_size=20),
    st.integers(0, 14),
    st.sampled_from(ENDS[:2]),
)
def test_a_text_that_is_not_searched_has_no_payload(parts, lines, end):
    text = "".join(word + end for word, end in parts) + ("aB3/" * 16 + end) * lines
    if module._PAYLOAD.search(text):
        assert module._may_have_payload(text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([*WORDS, "\ud800", "y" * 2_001]), st.sampled_from(ENDS)), max_size=60))
def test_what_is_left_alone_on_the_spot_would_be_left_alone_in_a_thread(parts):
    ctx = ToolContext(ToolCall("say"), say)
    result = ToolResult(for_llm="".join(word + end for word, end in parts), title="t", data={"a": [1, "b"]})
    if module._is_light(result) and module._is_within(result, 30, 4_000, 2_000):
        assert module._limit_text(ctx, module._bound_fields(result), 30, 4_000, 2_000) == result


def test_code_and_logs_are_not_searched():
    assert not module._may_have_payload(Path(threads.__file__).read_text())
    assert not module._may_have_payload("2026-01-01 GET /a/b/c 200\n" * 1_000)


def test_one_line_more_is_cut_and_says_so(tmp_path):
    result = call_once(say, LimitOutput(), workspace=tmp_path, text="\n".join(f"line {n}" for n in range(2_001)))
    assert "line 1999" in result.for_llm
    assert "line 2000" not in result.for_llm
    assert "2000 of 2001 lines" in result.for_llm
    assert result.data["truncated"] is True
    assert result.data["total_lines"] == 2_001


def test_the_whole_text_is_kept_in_a_private_file_named_in_the_note(tmp_path):
    text = "ä" * 60_000
    result = call_once(say, LimitOutput(), workspace=tmp_path, text=text)
    [kept] = (tmp_path / ".forge" / "spill").iterdir()
    assert str(kept) in result.for_llm
    assert kept.read_text(encoding="utf-8") == text
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".forge").stat().st_mode & 0o777 == 0o700


def test_a_planted_link_is_not_followed(tmp_path):
    executor, call = executor_of([say], LimitOutput()), ToolCall("say", {"text": "y\n" * 3_000}, "c1")
    asyncio.run(executor.execute(call, Scope(workspace=tmp_path)))
    [kept] = (tmp_path / ".forge" / "spill").iterdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    kept.unlink()
    kept.symlink_to(victim)
    result = asyncio.run(executor.execute(call, Scope(workspace=tmp_path)))
    assert victim.read_text() == "mine"
    assert kept.is_symlink()
    assert kept.stem in result.for_llm, "the same call has the same name, and another one beside what is there"


def test_calls_of_two_sessions_that_are_numbered_alike_have_files_of_their_own(tmp_path):
    names = set()
    for session in ("one", "two", "\ud800"):
        executor = executor_of([say], LimitOutput())
        scope = Scope(workspace=tmp_path, session_id=session)
        result = asyncio.run(executor.execute(ToolCall("say", {"text": "y\n" * 3_000}, "c1"), scope))
        names.add(Path(result.data["spilled"]).name)
    assert len(names) == 3
    assert {len(name) for name in names} == {len("say-c1-12345678.txt")}


def test_a_workspace_that_cannot_be_written_still_gives_a_result(tmp_path):
    missing = tmp_path / "gone" / "deeper"
    result = call_once(say, LimitOutput(), workspace=missing, text="z\n" * 3_000)
    assert result.success
    assert "2000 of 3000 lines" in result.for_llm


def test_long_lines_are_clipped_and_characters_stay_whole():
    cut = fit_text("é" * 5_000, 2_000, MAX_BYTES, 2_000)
    assert cut is not None
    assert cut.text.startswith("é" * 2_000)
    assert "3000 more characters" in cut.text
    one = fit_text("é" * 100, 10, 51, 2_000)
    assert one is not None
    assert one.text == "é" * 25


def test_a_shell_keeps_its_end_as_well():
    text = "\n".join(f"line {n}" for n in range(10_000))
    result = call_once(say_like_a_shell, LimitOutput(), text=text)
    assert "line 0\n" in result.for_llm
    assert "line 9999" in result.for_llm
    assert "lines left out" in result.for_llm
    assert "line 5000\n" not in result.for_llm


@pytest.mark.parametrize("wrap", ["data:image/png;base64,{}", "before {} after"])
def test_base64_becomes_an_attachment(wrap):
    payload = bytes(range(256)) * 8
    result = call_once(say, LimitOutput(), text=wrap.format(b64encode(payload).decode()))
    assert [one.data for one in result.attachments] == [payload]
    assert len(result.for_llm) < 120


def test_text_that_is_merely_long_is_left_alone():
    text = "a" * 1_500
    assert call_once(say, LimitOutput(), text=text).for_llm == text


def test_texts_in_data_are_bounded():
    @tool
    def heavy() -> ToolResult:
        """Heavy."""
        return ToolResult(for_llm="ok", data={"log": ["x" * 2_000_000], "n": 1})

    data = call_once(heavy, LimitOutput()).data
    assert len(data["log"][0]) < 1_100_000
    assert "more characters" in data["log"][0]
    assert data["n"] == 1


def giving(**fields):
    @tool
    def give() -> ToolResult:
        """Give."""
        return ToolResult(**{"for_llm": "ok", **fields})

    return call_once(give, LimitOutput())


def test_what_the_person_sees_is_bounded_too():
    result = giving(for_user="ä" * 300_000, title="t" * 2_000)
    assert len(result.for_user.encode()) < 210_000
    assert "of 600000 bytes shown" in result.for_user
    assert len(result.title) < 600
    same = giving(for_user="ä" * 100_000, title="t" * 500)
    assert (same.for_user, same.title) == ("ä" * 100_000, "t" * 500)


def test_failures_are_bounded_and_stay_what_they_are():
    cause = ValueError()
    result = giving(failure=Failure("m" * 9_000, ErrorKind.TIMEOUT, "s" * 9_000, True, cause))
    failure = result.failure
    assert failure is not None
    assert len(failure.message) < 4_100
    assert len(failure.suggestion) < 4_100
    assert "5000 more characters" in failure.message
    assert (failure.kind, failure.passing, failure.cause) == ("timeout", True, cause)
    short = giving(failure=Failure("m" * 4_000)).failure
    assert short is not None
    assert short.message == "m" * 4_000


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: ["a small text"] * 500_000, marks=pytest.mark.slow),
        pytest.param(lambda: {f"key {n}": "a small text" for n in range(400_000)}, marks=pytest.mark.slow),
        pytest.param(lambda: [[["x" * 1_000] * 1_000] * 10] * 10, marks=pytest.mark.slow),
        lambda: ["x" * 1_000_000] * 20,
    ],
    ids=["list", "dict", "nested", "large"],
)
def test_data_as_a_whole_is_bounded_and_small_entries_stay(made):
    data = giving(data={"much": made(), "count": 5, "name": "n"}).data
    assert len(json.dumps(data, ensure_ascii=False)) < 1.2 * MAX_DATA
    assert (data["count"], data["name"], data["data_truncated"]) == (5, "n", True)
    assert "left out" in json.dumps(data["much"], ensure_ascii=False)
    assert size_of(data["much"], MAX_DATA) > MAX_DATA / 20


def test_data_within_the_bounds_is_left_alone():
    data = {"rows": [{"a": n, "b": "x" * 100} for n in range(10_000)], "set": {1, 2}}
    assert giving(data=data).data == data


def test_data_that_is_nested_or_cyclic_without_end_still_gives_a_result():
    cyclic: dict = {"n": 1}
    cyclic["self"] = [cyclic, cyclic]
    result = giving(data=cyclic)
    assert result.for_llm == "ok"
    assert result.data["n"] == 1
    deep: list = []
    for _ in range(500):
        deep = [deep]
    assert giving(data={"deep": deep}).data["deep"] == deep
    assert "deeply" in json.dumps(bound_data({"deep": deep, "much": ["x"] * 10_000}, 50_000))


def test_a_long_line_of_json_is_spread_over_lines_and_not_clipped():
    rows = [{"number": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(400)]

    @tool
    def table() -> dict:
        """Give a table."""
        return {"rows": rows, "count": len(rows)}

    text = call_once(table, LimitOutput()).for_llm
    assert "more characters" not in text
    assert json.loads(text) == {"rows": rows, "count": 400}
    assert 400 < text.count("\n") < 410
    assert call_once(say, LimitOutput(), text='["' + "x" * 5_000).for_llm.count("more characters") == 1
    assert giving(for_llm='["\\ud800", "' + "x" * 5_000 + '"]').success


def test_with_every_thread_hung_a_long_result_is_still_cut(monkeypatch, tmp_path):
    @tool
    async def long() -> str:
        """Be long."""
        return "y\n" * 3_000

    monkeypatch.setattr(threads, "MOST_THREADS", -1)
    monkeypatch.setattr(threads._threads, "idle", 0)
    result = call_once(long, LimitOutput(), workspace=tmp_path)
    assert result.success
    assert "2000 of 3000 lines" in result.for_llm


def test_lone_surrogates_do_no_harm(tmp_path):
    result = giving(for_llm="\ud800" * 60_000, for_user="\ud800" * 300_000)
    assert result.success
    assert "lines shown" in result.for_llm


def test_old_files_make_room_for_new_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("forge.pipeline.limit_output"), "MOST_SPILLS", 3)
    for number in range(5):
        call_once(say, LimitOutput(), workspace=tmp_path, text=f"{number}\n" * 3_000)
        for file in (tmp_path / ".forge" / "spill").iterdir():
            moved = file.stat().st_mtime_ns - 10**9
            os.utime(file, ns=(moved, moved))
    kept = [file.read_text()[0] for file in (tmp_path / ".forge" / "spill").iterdir()]
    assert sorted(kept) == ["2", "3", "4"]


def test_the_newest_file_stays_however_large(tmp_path):
    for number, size in enumerate((10, 10, 10, 100)):
        file = tmp_path / str(number)
        file.write_text("x" * size)
        os.utime(file, ns=(number, number))
    keep_newest(tmp_path, 10, 115)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["2", "3"]
    keep_newest(tmp_path, 10, 50)
    assert [file.name for file in tmp_path.iterdir()] == ["3"]


FULL = """
import resource, sys
from pathlib import Path
from tests.pipeline.calling import call_once, executor_of
from tests.pipeline.test_limit_output import say
from forge.pipeline.limit_output import LimitOutput

__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
print(call_once(say, LimitOutput(), workspace=Path(sys.argv[1]), text="z\\n" * 30_000).for_llm[-200:])
"""


def test_a_file_for_which_there_is_no_room_is_removed(tmp_path):
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
        capture_output=True,
        text=True,
    )
    assert "the whole text could not be stored: File too large" in found.stdout, found.stderr
    assert list((tmp_path / ".forge" / "spill").iterdir()) == []


def test_the_hundredth_call_of_the_same_id_is_kept_as_well(tmp_path):
    executor = executor_of([say], LimitOutput())
    call = ToolCall("say", {"text": "y\n" * 3_000}, "1")
    results = [asyncio.run(executor.execute(call, Scope(workspace=tmp_path))) for _ in range(102)]
    assert all("the whole text is in" in result.for_llm for result in results)
    assert len(list((tmp_path / ".forge" / "spill").iterdir())) == 102


@tool
def attach(size: int) -> ToolResult:
    """Attach so many bytes."""
    return ToolResult(for_llm="here", attachments=(Attachment("a/b", b"x" * size, "big.bin"),))


def test_an_attachment_too_large_for_json_is_kept_in_a_file_that_is_named(tmp_path):
    result = call_once(attach, LimitOutput(), workspace=tmp_path, size=9_000_000)
    (one,) = result.attachments
    assert len(one.data) == 9_000_000, "who holds the result has all of it"
    assert Path(one.path).read_bytes() == one.data
    assert Path(one.path).stat().st_mode & 0o777 == 0o600
    assert one.path in result.to_dict()["attachments"][0]["left_out"]


def test_an_ordinary_attachment_is_not_kept_in_a_file(tmp_path):
    result = call_once(attach, LimitOutput(), workspace=tmp_path, size=1_000)
    assert result.attachments[0].path == ""
    assert not (tmp_path / ".forge").exists()
