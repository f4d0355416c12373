"""Events as the page gets them: long ones cut, attachments apart, pieces of text together."""

from __future__ import annotations

import base64
import json

import pytest

from forge.console.api.runs import LEFT_OUT, as_markdown, as_ndjson
from forge.console.event_entries import LONGEST_TEXT, attachment, build_entry, of_runs, one_entry, tail_of_runs
from forge.core.errors import ToolError, Waiting
from forge.core.result import Attachment, ToolResult
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun


@pytest.fixture
def store(tmp_path):
    with RunStore(f"sqlite:///{tmp_path}/durable.db") as made:
        made.prepare()
        made.create(NewRun(id="run-1", prompt="# not a heading"))
        yield made


def result_event(**result: object) -> dict[str, object]:
    call = {"id": "c1", "name": "t", "arguments": "{}"}
    return {"event": "tool_call_end", "call": call, "success": True, "result": {"for_llm": "", **result}}


def test_a_text_that_is_too_long_is_cut_and_whole_when_it_is_asked_for(store):
    text = "<script>" + "x" * 10_000_00
    store.add_events("run-1", [(None, {"event": "tool_output_chunk", "call": {"id": "c"}, "text": text})])
    (entry,), following = of_runs(store, ["run-1"], 0, 10)
    assert entry.to_dict()["clipped"] is True
    assert len(entry.event["text"]) < LONGEST_TEXT + 100
    assert following is None
    whole = one_entry(store, ["run-1"], entry.number)
    assert (whole.event["text"], whole.clipped) == (text, False)


def test_long_lists_are_cut_too():
    entry = build_entry(1, "r", {"event": "tool_progress", "data": {"rows": list(range(100_000))}})
    assert entry.clipped
    assert len(entry.line()) < 50_000


def test_a_short_event_is_as_it_was():
    event = {"event": "text_delta", "ts": 1.5, "text": "a\u202eb\x1b[31m\x00</script>"}
    assert build_entry(1, "r", event).event == event


def test_an_attachment_that_is_not_in_the_event_says_where_it_is(store):
    large = Attachment("image/png", b"x" * 9_000_000, "a.png", "/files/a.png")
    wire = ToolResult(for_llm="", attachments=(large,)).to_dict()
    store.add_events("run-1", [(None, result_event(attachments=wire["attachments"]))])
    (entry,), _ = of_runs(store, ["run-1"], 0, 10)
    (named,) = entry.event["result"]["attachments"]
    assert named["size"] == 9_000_000
    assert "/files/a.png" in named["left_out"]
    with pytest.raises(ToolError, match=r"the content is in /files/a\.png"):
        attachment(store, ["run-1"], entry.number, 0)


def test_attachments_are_named_and_their_bytes_are_apart(store):
    data = b"\x89PNG<script>"
    one = {"name": "a.png", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    store.add_events("run-1", [(None, result_event(attachments=[one]))])
    (entry,), _ = of_runs(store, ["run-1"], 0, 10)
    named = {"name": "a.png", "media_type": "image/png", "size": len(data), "index": 0}
    assert entry.event["result"]["attachments"] == [named]
    assert attachment(store, ["run-1"], entry.number, 0) == ("a.png", data)
    with pytest.raises(ToolError, match="no attachment 1"):
        attachment(store, ["run-1"], entry.number, 1)
    with pytest.raises(ToolError, match="no event"):
        attachment(store, ["run-2"], entry.number, 0)


def test_a_call_that_waits_is_told_from_one_that_failed():
    waits = ToolResult.failed(Waiting("it waits", kind="approval"), during="t()").to_dict()
    failed = ToolResult.failed(ToolError("no"), during="t()").to_dict()
    assert build_entry(1, "r", result_event(**waits)).event["waits"] is True
    assert "waits" not in build_entry(1, "r", result_event(**failed)).event


def test_pieces_of_one_text_come_together_and_others_do_not(store):
    def piece(kind: str, text: str, call: str = "") -> tuple[None, dict[str, object]]:
        return None, {"event": kind, "agent": "main", "text": text, **({"call": {"id": call}} if call else {})}

    pieces = [piece("text_delta", one) for one in "abc"]
    pieces += [piece("tool_output_chunk", "1", "c1"), piece("tool_output_chunk", "2", "c1")]
    pieces += [piece("tool_output_chunk", "3", "c2"), piece("text_delta", "d")]
    store.add_events("run-1", pieces)
    found, _ = of_runs(store, ["run-1"], 0, 100)
    assert [one.event["text"] for one in found] == ["abc", "12", "3", "d"]
    first = found[0].number - 2
    assert [one.number - first for one in found] == [2, 4, 5, 6]
    assert [one.event["text"] for one in tail_of_runs(store, ["run-1"], 2)] == ["3", "d"]
    page, following = of_runs(store, ["run-1"], 0, 2)
    assert ([one.event["text"] for one in page], following) == (["ab"], first + 1)


def test_arguments_that_are_text_are_read_where_they_can_be():
    def arguments(text: str) -> object:
        return build_entry(1, "r", {"event": "tool_call_start", "call": {"id": "c", "arguments": text}}).event["call"]

    assert arguments('{"a": 1}')["arguments"] == {"a": 1}  # type: ignore[index]
    for broken in ('{"a": ', "[1]", "[" * 100_000):
        assert arguments(broken)["arguments"][:10] == broken[:10]  # type: ignore[index]


def test_markdown_does_not_let_a_result_become_markup(store):
    hostile = "```\n# heading\n<script>alert(1)</script>\n````"
    store.add_events(
        "run-1", [(None, {"event": "text_delta", "text": "# heading"}), (None, result_event(for_llm=hostile))]
    )
    text = as_markdown(store, store.get("run-1"), ["run-1"]).decode()
    assert "\n# heading\n<script>" in text
    assert "`````" in text
    assert "    # heading" in text
    assert json.dumps(text)


def test_markdown_says_what_the_model_is_not_sent_again(store):
    event = {"event": "context_shortened", "outputs": 12, "repeats": 0, "summaries": 0, "tokens": 20400}
    store.add_events("run-1", [(None, event)])
    text = as_markdown(store, store.get("run-1"), ["run-1"]).decode()
    assert "Not sent again: 12 outputs, 20400 tokens\n" in text


def test_what_is_taken_away_is_whole(store):
    text = "x" * (2 * LONGEST_TEXT)
    store.add_events("run-1", [(None, result_event(for_llm=text))])
    (line,) = as_ndjson(store, ["run-1"]).decode().splitlines()
    assert json.loads(line)["result"]["for_llm"] == text
    assert text in as_markdown(store, store.get("run-1"), ["run-1"]).decode()


def test_what_is_too_much_for_a_file_says_so(store, monkeypatch):
    monkeypatch.setattr("forge.console.api.runs.MOST_EXPORTED", 3)
    store.add_events("run-1", [(None, result_event(for_llm=str(number))) for number in range(3)])
    assert as_ndjson(store, ["run-1"]).decode().count("tool_call_end") == 3
    store.add_events("run-1", [(None, result_event(for_llm="more"))])
    told = [json.loads(line) for line in as_ndjson(store, ["run-1"]).decode().splitlines()]
    assert [one["event"] for one in told] == ["tool_call_end"] * 3 + [LEFT_OUT]
    assert told[-1]["after"] == told[-2]["n"]
    assert "The export ends here" in as_markdown(store, store.get("run-1"), ["run-1"]).decode()


def test_a_text_of_many_pieces_is_put_together_in_bounded_entries(store):
    pieces = [(None, {"event": "text_delta", "agent": "main", "text": "0123456789"}) for _ in range(5_000)]
    store.add_events("run-1", pieces)
    found, _ = of_runs(store, ["run-1"], 0, 5_000)
    assert "".join(one.event["text"] for one in found) == "0123456789" * 5_000
    assert len(found) == 2
    assert max(len(one.event["text"]) for one in found) <= LONGEST_TEXT
