"""Long results are cut where a model can still use them, and kept whole."""

import os
from base64 import b64encode

import pytest

from forge import ToolResult, tool
from forge.pipeline.limit_output import MAX_BYTES, fitted, limit_output
from tests.pipeline.calling import call_once


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
    assert fitted(lines, 2_000, MAX_BYTES, 2_000) is None
    assert fitted(lines + "\n", 2_000, MAX_BYTES, 2_000) is None


def test_one_line_more_is_cut_and_says_so(tmp_path):
    result = call_once(say, limit_output(), workspace=tmp_path, text="\n".join(f"line {n}" for n in range(2_001)))
    assert "line 1999" in result.for_llm
    assert "line 2000" not in result.for_llm
    assert "2000 of 2001 lines" in result.for_llm
    assert result.data["truncated"] is True
    assert result.data["total_lines"] == 2_001


def test_the_whole_text_is_kept_in_a_private_file_named_in_the_note(tmp_path):
    text = "ä" * 60_000
    result = call_once(say, limit_output(), workspace=tmp_path, text=text)
    [kept] = (tmp_path / ".forge" / "spill").iterdir()
    assert str(kept) in result.for_llm
    assert kept.read_text(encoding="utf-8") == text
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".forge").stat().st_mode & 0o777 == 0o700


def test_a_planted_link_is_not_followed(tmp_path):
    spill = tmp_path / ".forge" / "spill"
    spill.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("say-c1.txt",):
        os.symlink(victim, spill / name)
    call_once(say, limit_output(), workspace=tmp_path, text="y\n" * 3_000)
    assert victim.read_text() == "mine"


def test_a_workspace_that_cannot_be_written_still_gives_a_result(tmp_path):
    missing = tmp_path / "gone" / "deeper"
    result = call_once(say, limit_output(), workspace=missing, text="z\n" * 3_000)
    assert result.success
    assert "2000 of 3000 lines" in result.for_llm


def test_long_lines_are_clipped_and_characters_stay_whole():
    cut = fitted("é" * 5_000, 2_000, MAX_BYTES, 2_000)
    assert cut is not None
    assert cut.text.startswith("é" * 2_000)
    assert "3000 more characters" in cut.text
    one = fitted("é" * 100, 10, 51, 2_000)
    assert one is not None
    assert one.text == "é" * 25


def test_a_shell_keeps_its_end_as_well():
    text = "\n".join(f"line {n}" for n in range(10_000))
    result = call_once(say_like_a_shell, limit_output(), text=text)
    assert "line 0\n" in result.for_llm
    assert "line 9999" in result.for_llm
    assert "lines left out" in result.for_llm
    assert "line 5000\n" not in result.for_llm


@pytest.mark.parametrize("wrap", ["data:image/png;base64,{}", "before {} after"])
def test_base64_becomes_an_attachment(wrap):
    payload = bytes(range(256)) * 8
    result = call_once(say, limit_output(), text=wrap.format(b64encode(payload).decode()))
    assert [one.data for one in result.attachments] == [payload]
    assert len(result.for_llm) < 120


def test_text_that_is_merely_long_is_left_alone():
    text = "a" * 1_500
    assert call_once(say, limit_output(), text=text).for_llm == text


def test_texts_in_data_are_bounded():
    @tool
    def heavy() -> ToolResult:
        """Heavy."""
        return ToolResult(for_llm="ok", data={"log": ["x" * 2_000_000], "n": 1})

    data = call_once(heavy, limit_output()).data
    assert len(data["log"][0]) < 1_100_000
    assert "more characters" in data["log"][0]
    assert data["n"] == 1
