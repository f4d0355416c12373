"""The log of everything that happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

from forge import audit_log
from forge.core.events import RunStarted, ToolFinished, ToolStarted
from forge.core.messages import ToolCall
from forge.core.result import Attachment, ToolResult
from forge.events import ActivityStream
from forge.workspace.state import append_whole

ROOT = Path(__file__).parents[2]

FULL = """
import logging, resource, sys
from forge import audit_log
from forge.events import ActivityStream
from forge.core.events import RunStarted

logging.basicConfig()
activity = ActivityStream()
stop = audit_log(activity, sys.argv[1])
__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
for text in ("short", "x" * 5_000, "y" * 5_000, "end"):
    activity.emit(RunStarted(text))
stop()
"""


def prompts(path: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in path.read_text().splitlines()]


def test_every_event_is_a_line(tmp_path):
    activity = ActivityStream()
    stop = audit_log(activity, tmp_path / "log")
    for text in ("a", "b" * 50_000):
        activity.emit(RunStarted(text))
    stop()
    activity.emit(RunStarted("c"))
    first, second = prompts(tmp_path / "log")
    assert first == "a"
    assert "more characters" in second
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_half_a_surrogate_pair_is_no_gap_in_the_log(tmp_path):
    activity = ActivityStream()
    stop = audit_log(activity, tmp_path / "log")
    activity.emit(ToolStarted(ToolCall("look", {"\ud800": 1})))
    activity.emit(RunStarted("b"))
    stop()
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (first["event"], second["event"]) == ("tool_call_start", "run_started")


def test_half_a_line_is_taken_back(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "log"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert prompts(tmp_path / "log") == ["short", "end"], found.stderr
    assert "File too large" in found.stderr


def test_a_line_that_is_written_in_pieces_is_whole(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, line: real(file, line[:3]))
    file = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    append_whole(file, b"a whole line\n")
    os.close(file)
    assert (tmp_path / "log").read_bytes() == b"a whole line\n"


def test_the_log_names_attachments_without_their_content_and_masks_what_looks_like_a_secret(tmp_path):
    activity = ActivityStream()
    stop = audit_log(activity, tmp_path / "log")
    call = ToolCall(
        "bash", {"command": "DB_PASSWORD=hunter2 PGPASSWORD=hunter2 run; curl -u bob:hunter2 https://x.org"}
    )
    activity.emit(ToolStarted(call))
    result = ToolResult(for_llm="", attachments=(Attachment("a/b", b"0" * 10**7, "big.bin", "/files/big.bin"),))
    activity.emit(ToolFinished(call, True, result))
    activity.emit(ToolStarted(ToolCall("mail", {"attachments": [{"data": "stays"}]})))
    stop()
    lines = (tmp_path / "log").read_text()
    assert "hunter2" not in lines
    assert "DB_PASSWORD=[secret]" in lines
    _, finished, other = map(json.loads, lines.splitlines())
    (told,) = finished["result"]["attachments"]
    assert (told["name"], told["bytes"], told["path"]) == ("big.bin", 10**7, "/files/big.bin")
    assert other["call"]["arguments"] == {"attachments": [{"data": "stays"}]}
    assert len(lines) < 3_000
