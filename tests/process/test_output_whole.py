"""Long output is kept whole: in the file that the note names, with the totals that the note gives."""

from __future__ import annotations

import asyncio
import pickle
import re
import shlex
import sys
import tracemalloc
from pathlib import Path

import pytest

from forge import Scope, ToolCall, rules
from forge.core.result import ToolResult
from forge.pipeline import standard_executor
from forge.process.running import output as whole_output
from forge.process.running.output import Capture, CapturedOutput, WholeOutput
from forge.tools.bash import Bash, BashKill, BashOutput

PYTHON = shlex.quote(sys.executable)
LINES = 200_000
WRITE = f"{PYTHON} -c 'for number in range({LINES}): print(f\"{{number:09}}\")'"
TEXT = "".join(f"{number:09}\n" for number in range(LINES))  # 2,000,000 bytes
SECRET = "hunter2-hunter2-hunter2"


def call(tmp_path: Path, *calls: ToolCall, secrets: tuple[str, ...] = ()) -> list[ToolResult]:
    async def all_of_them() -> list[ToolResult]:
        executor = standard_executor([Bash(sandbox="off"), BashOutput()], policy=rules("allow *"), secrets=secrets)
        scope = Scope(session_id="whole", workspace=tmp_path)
        return [await executor.execute(one, scope) for one in calls]

    return asyncio.run(all_of_them())


def spilled(result: ToolResult) -> str:
    note = result.for_llm.splitlines()[-1]
    found = re.search(r' in "([^"]+)": read it', note)
    assert found is not None, note
    assert found[1] == result.data["spilled"]
    return Path(found[1]).read_text()


@pytest.mark.parametrize("ending", ["", "; exit 3", "; sleep 60"])
def test_the_file_holds_all_that_bash_wrote(tmp_path, ending):
    timeout = 15 if "sleep" in ending else 60
    (result,) = call(tmp_path, ToolCall("bash", {"command": WRITE + ending, "timeout": timeout}))
    assert result.success is ("sleep" not in ending)
    assert spilled(result) == TEXT
    assert f" of {LINES} lines shown, {len(TEXT)} bytes in all; the whole text is in" in result.for_llm
    assert (result.data["total_lines"], result.data["total_bytes"]) == (LINES, len(TEXT))
    assert len(result.for_llm) < 60_000
    assert result.whole is None


def test_short_output_is_no_file(tmp_path):
    (result,) = call(tmp_path, ToolCall("bash", {"command": "echo hi"}))
    assert result.for_llm == "hi"
    assert "spilled" not in result.data


def test_secrets_are_masked_in_the_file_wherever_they_stand(tmp_path):
    write = f'{PYTHON} -c \'print(("x" * 9_973 + "{SECRET[:8]}" + "{SECRET[8:]}\\n") * 300)\''
    (result,) = call(tmp_path, ToolCall("bash", {"command": write, "timeout": 60}), secrets=(SECRET,))
    text = spilled(result)
    assert SECRET not in text
    assert "hunter2" not in text
    assert text.count("x") == 300 * 9_973
    (plain,) = call(tmp_path, ToolCall("bash", {"command": write, "timeout": 60}))
    assert spilled(plain).count(SECRET) == 300


def test_a_job_of_bash_is_kept_whole_as_well(tmp_path):
    async def look() -> ToolResult:
        executor = standard_executor([Bash(sandbox="off"), BashOutput()], policy=rules("allow *"))
        scope = Scope(session_id="whole job", workspace=tmp_path)
        started = await executor.execute(ToolCall("bash", {"command": WRITE, "background": True}), scope)
        name = started.data["job_id"]
        while (await executor.execute(ToolCall("bash_output", {"id": name, "wait": 60}), scope)).data["running"]:
            pass
        return await executor.execute(ToolCall("bash_output", {"id": name, "since": 0}), scope)

    result = asyncio.run(look())
    assert spilled(result) == TEXT
    assert (result.data["total_lines"], result.data["total_bytes"]) == (LINES, len(TEXT))
    assert len(result.data["output"]) < 1_100_000


@pytest.mark.parametrize("most", [whole_output.MOST_KEPT, 1_500_000, 1_000])
def test_what_the_log_of_a_job_no_longer_holds_is_in_the_file(tmp_path, monkeypatch, most):
    monkeypatch.setattr(whole_output, "MOST_KEPT", most)

    async def look() -> list[ToolResult]:
        executor = standard_executor(
            [Bash(sandbox="off", max_log_bytes=100_000), BashOutput()], policy=rules("allow *")
        )
        scope = Scope(session_id=f"short log {most}", workspace=tmp_path)
        started = await executor.execute(ToolCall("bash", {"command": WRITE, "background": True}), scope)
        name = started.data["job_id"]
        while (await executor.execute(ToolCall("bash_output", {"id": name, "wait": 60}), scope)).data["running"]:
            pass
        asked = [ToolCall("bash_output", {"id": name, "since": since}) for since in (0, 1_000_000, 1_950_000)]
        return [await executor.execute(one, scope) for one in asked]

    everything, half, last = asyncio.run(look())
    assert "spilled" in last.data or last.data["dropped"] == 0
    if most > len(TEXT):
        assert spilled(everything) == TEXT
        assert spilled(half) == TEXT
        assert half.data["spilled"] == everything.data["spilled"], "a job has one file"
        assert (half.data["total_lines"], half.data["total_bytes"]) == (LINES, len(TEXT))
        assert "bytes before this are not shown" in half.for_llm
    elif most > 1_000_000:
        assert spilled(half).startswith(TEXT[:most] + "\n[the text ends here: only the first")
        assert "the whole text" not in half.for_llm
        counted = half.data["lines_counted"]
        assert "total_lines" not in half.data
        assert f"of more than {counted} lines shown, {len(TEXT)} bytes in all" in half.for_llm
        assert counted == TEXT[:most].count("\n") + (not TEXT[:most].endswith("\n"))
    else:
        assert "bytes before this are gone: only the newest are kept" in half.for_llm
        assert "199999\n" in spilled(half)


def test_a_text_beyond_the_limit_says_so_in_the_file_and_outside(monkeypatch):
    monkeypatch.setattr(whole_output, "MOST_KEPT", 1_000)
    kept = CapturedOutput(Capture(10, 10), wants_whole=True)
    for _ in range(20):
        kept.add(memoryview(b"x" * 99 + b"\n"))
    assert kept.whole is not None
    assert (kept.whole.total_bytes, kept.whole.total_lines) == (2_000, 10)  # lines that are stored
    text = b"".join(kept.whole.pieces()).decode()
    assert text.startswith(("x" * 99 + "\n") * 10)
    assert text.endswith(f"\n[the text ends here: {kept.whole.problem}]\n")
    assert text.count("x" * 99) == 10


def test_what_fits_is_not_kept_twice_and_no_byte_is_lost_where_it_no_longer_does():
    for sizes in ([20], [19, 1], [1] * 20):
        kept = CapturedOutput(Capture(10, 10), wants_whole=True)
        for size in sizes:
            kept.add(memoryview(b"a" * size))
        assert kept.whole is None
        kept.add(memoryview(b"b"))
        assert kept.whole is not None
        assert b"".join(kept.whole.pieces()) == b"a" * 20 + b"b"


def test_characters_and_secrets_are_not_cut_between_pieces(monkeypatch):
    monkeypatch.setattr(whole_output, "PIECE", 7)
    monkeypatch.setattr(whole_output, "LONGEST_SECRET", 10)
    text = "äöü secret€ßecret secretsecret" * 20
    masked = WholeOutput.of(text.encode()).masked(lambda piece: piece.replace("secret", "***"))
    assert b"".join(masked.pieces()).decode() == text.replace("secret", "***")
    assert b"".join(WholeOutput.of(text.encode()).pieces()).decode() == text


def test_a_result_that_goes_to_another_process_leaves_the_file_behind():
    result = ToolResult(for_llm="a part", whole=WholeOutput.of(b"all"))
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.slow
def test_a_large_log_costs_little_memory(tmp_path):
    """Ten megabytes: one copy of them, and not a dozen."""

    async def look() -> int:
        executor = standard_executor([Bash(sandbox="off"), BashOutput()], policy=rules("allow *"))
        scope = Scope(session_id="large log", workspace=tmp_path)
        line = f"{PYTHON} -c 'for number in range(1_000_000): print(f\"{{number:09}}\")'"
        started = await executor.execute(ToolCall("bash", {"command": line, "background": True}), scope)
        name = started.data["job_id"]
        while (await executor.execute(ToolCall("bash_output", {"id": name, "wait": 60}), scope)).data["running"]:
            pass
        tracemalloc.start()
        try:
            await executor.execute(ToolCall("bash_output", {"id": name, "since": 0}), scope)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(look()) < 45_000_000


@pytest.mark.parametrize("limit", [whole_output.MOST_KEPT, 500_000])
def test_a_job_has_one_file_however_often_it_is_read(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(whole_output, "MOST_KEPT", limit)

    async def look() -> list[ToolResult]:
        executor = standard_executor(
            [Bash(sandbox="off", max_log_bytes=100_000), BashOutput(), BashKill()], policy=rules("allow *")
        )
        scope = Scope(session_id=f"one file {limit}", workspace=tmp_path)
        command = f"{WRITE}; sleep 600"
        name = (await executor.execute(ToolCall("bash", {"command": command, "background": True}), scope)).data[
            "job_id"
        ]
        while (await executor.execute(ToolCall("bash_output", {"id": name, "wait": 60}), scope)).data["next"] < len(
            TEXT
        ):
            pass
        asked = [ToolCall("bash_output", {"id": name, "since": 0}) for _ in range(6)]
        found = [await executor.execute(one, scope) for one in asked]
        await executor.execute(ToolCall("bash_kill", {"id": name}), scope)
        return found

    found = asyncio.run(look())
    assert len({one.data["spilled"] for one in found}) == 1
    folder = Path(found[0].data["spilled"]).parent
    stored = [path for path in folder.iterdir() if "newest" not in path.name]
    assert stored == [Path(found[0].data["spilled"])]
    assert spilled(found[-1]).startswith(TEXT[:limit])


def test_bytes_that_are_no_text_are_stored_as_they_are(tmp_path):
    content = bytes(range(256)) * 8_000
    (tmp_path / "data").write_bytes(content + SECRET.encode() + content)
    (result,) = call(tmp_path, ToolCall("bash", {"command": "cat data"}), secrets=(SECRET,))
    path = Path(result.data["spilled"])
    assert path.suffix == ".bin"
    assert path.read_bytes() == content + b"[secret]" + content
    text = "ä\n" * 700_000
    (tmp_path / "data").write_text(text)
    (plain,) = call(tmp_path, ToolCall("bash", {"command": "cat data"}))
    assert Path(plain.data["spilled"]).suffix == ".txt"
    assert spilled(plain) == text
