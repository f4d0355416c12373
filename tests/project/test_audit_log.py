"""Pages of a session's events: each is read alone, whatever happens to the log meanwhile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ToolError
from forge.project.audit.log import Log
from forge.project.audit.log_events import read_line
from forge.project.audit.log_index import EventIndex


def line(session: str, number: int, **more: object) -> bytes:
    event = {"event": "tool_progress", "ts": 1.5, "seq": number, "session": session, "agent": "main", **more}
    return f"{json.dumps(event, ensure_ascii=False)}\n".encode()


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as stream:
        stream.writelines(lines)


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "audit.ndjson"
    append(path, *(line(session, number) for number in range(1, 11) for session in ("talk", "other")))
    return path


def pages(path: Path) -> Log:
    return Log(path, index=EventIndex(path.with_name("index.db")))


def numbers(index: Log, session: str = "talk") -> list[int]:
    page, following = index.page(session, 0, 1_000)
    assert following is None
    assert [place for place, _ in page] == list(range(1, len(page) + 1))
    return [event["seq"] for _, event in page]


def test_pages_follow_each_other_to_the_end(log):
    index = pages(log)
    found, after = [], 0
    for expected in (4, 8, None):
        page, following = index.page("talk", after, 4)
        found += [(place, event["seq"]) for place, event in page]
        assert following == expected
        after = following or 0
    assert found == [(number, number) for number in range(1, 11)]
    assert index.page("talk", 99, 4) == ([], None)
    assert index.page("nobody", 0, 4) == ([], None)


def test_what_was_looked_at_is_not_read_again(log, monkeypatch):
    index = pages(log)
    seen: list[bytes] = []

    def counted(one: bytes) -> Any:
        seen.append(one)
        return read_line(one)

    monkeypatch.setattr("forge.project.audit.log_index.read_line", counted)
    numbers(index)
    assert len(seen) == 20
    numbers(index)
    index.page("other", 5, 2)
    assert len(seen) == 20
    append(log, line("talk", 11))
    assert numbers(index)[-1] == 11
    assert len(seen) == 21


def test_a_log_that_is_rotated_packed_or_emptied_is_followed(log):
    index = pages(log)
    assert numbers(index) == list(range(1, 11))
    log.rename(f"{log}.1")
    append(log, line("talk", 11))
    assert numbers(index) == list(range(1, 12))
    packed = Path(f"{log}.1.gz")
    packed.write_bytes(gzip.compress(Path(f"{log}.1").read_bytes()))
    Path(f"{log}.1").unlink()
    log.touch()  # younger than what was packed
    assert numbers(index) == list(range(1, 12))
    assert [event["seq"] for _, event in index.page("talk", 8, 3)[0]] == [9, 10, 11]
    log.write_bytes(b"")
    append(log, line("talk", 7))
    assert numbers(index)[-2:] == [10, 7]
    log.unlink()
    packed.unlink()
    assert numbers(index) == []


def test_a_line_that_is_being_written_comes_when_it_is_whole(log):
    index, new = pages(log), line("talk", 11)
    append(log, new[:30])
    assert len(numbers(index)) == 10
    append(log, new[30:])
    assert numbers(index)[-1] == 11


def test_what_is_no_event_is_left_out_and_what_a_crash_left_is_found(log):
    index = pages(log)
    odd = [b"\n", b"nonsense\n", b"[]\n", b"\xff\xfe\n", b'{"event": 1}\n', line("other", 98)[:40] + line("talk", 11)]
    append(log, *odd, line("talk", 12, data={"event": "within"}), line('a "b" \\ ü\n', 1))
    assert numbers(index)[-2:] == [11, 12]
    assert 98 not in numbers(index, "other")
    assert numbers(index, 'a "b" \\ ü\n') == [1]


def test_a_line_that_is_too_long_hides_nothing_after_it(log, monkeypatch):
    monkeypatch.setattr("forge.project.audit.log_index.LONGEST_LINE", 1_000)
    append(log, line("talk", 11, text="x" * 5_000), line("talk", 12))
    assert numbers(pages(log))[-2:] == [10, 12]


def test_what_is_no_file_of_ours_is_not_read(log, tmp_path):
    assert numbers(pages(log))
    link = tmp_path / "linked.ndjson"
    link.symlink_to(log)
    with pytest.raises(ToolError, match="cannot be read"):
        pages(link).page("talk", 0, 10)
    (tmp_path / "folder.ndjson").mkdir()
    with pytest.raises(ToolError, match="cannot be read"):
        pages(tmp_path / "folder.ndjson").page("talk", 0, 10)
    assert pages(tmp_path / "none.ndjson").page("talk", 0, 10) == ([], None)
