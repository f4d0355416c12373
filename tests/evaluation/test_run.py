"""Cases run in workspaces of their own, and say what was not as expected."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from forge import Agent, Message, Scripted, ToolCall, ToolError, rules
from forge.evaluation import EvalCase, EvalExpect, EvalReport, evaluate
from forge.tools import tool_group

READ = ToolCall("file_read", {"path": "notes.txt"})
WRITE = ToolCall("file_write", {"path": "out.txt", "content": "42"})


def case(**given) -> EvalCase:
    return EvalCase(**{"name": "a", "prompt": "Go.", **given})


def run(one: EvalCase, *turns, policy="allow *", **settings) -> EvalReport:
    agent = Agent(Scripted(*turns), tools=tool_group("code-agent"), policy=rules(policy))
    return asyncio.run(evaluate([one], agent, **settings))


def failures(one: EvalCase, *turns, **settings) -> list[str]:
    report = run(one, *turns, **settings)
    assert report.passed == (not report.runs[0].failures)
    return list(report.runs[0].failures)


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (EvalExpect(calls=["file_read"]), ""),
        (EvalExpect(calls=[{"file_read": {"path": "notes.txt"}}]), ""),
        (EvalExpect(calls=[{"file_read": {"path": {"matches": r"\.txt$"}}}]), ""),
        (EvalExpect(calls=[{"file_read": {"path": "b.txt"}}]), "with other arguments"),
        (EvalExpect(calls=["bash"]), "bash was not called"),
        (EvalExpect(no_calls=["bash"]), ""),
        (EvalExpect(no_calls=["file_*"]), "was called"),
        (EvalExpect(order=["file_read", {"file_write": {"path": "out.txt"}}]), ""),
        (EvalExpect(order=["file_write", "file_read"]), "was not called after"),
        (EvalExpect(result={"contains": ["milk", "42"]}), ""),
        (EvalExpect(result={"lacks": "milk"}), "contains"),
        (EvalExpect(result={"matches": "^Milk"}), "does not match"),
        (EvalExpect(result="milk, and 42"), ""),
        (EvalExpect(result="bread"), "expected"),
        (EvalExpect(files={"out.txt": "42", "none.txt": None}), ""),
        (EvalExpect(files={"out.txt": {"contains": "43"}}), "the file out.txt does not contain"),
        (EvalExpect(files={"none.txt": "x"}), "cannot be read"),
        (EvalExpect(files={"notes.txt": None}), "expected none"),
        (EvalExpect(limits={"turns": 3, "calls": 2, "tokens": 10_000, "seconds": 600}), ""),
        (EvalExpect(limits={"turns": 2}), "turns: 3, expected at most 2"),
        (EvalExpect(limits={"cost": 1}), "the cost is not known"),
        (EvalExpect(reason="answer"), ""),
        (EvalExpect(reason="question"), "the run ended with answer"),
    ],
)
def test_a_run_is_compared_with_what_is_expected(expect: EvalExpect, words: str):
    found = failures(case(files={"notes.txt": "Buy milk."}, expect=expect), READ, WRITE, "milk, and 42")
    assert (words in found[0]) if words else not found


def test_an_answer_in_json_is_compared_as_a_value():
    wanted = EvalExpect(result={"json": {"n": [1, 2]}})
    assert failures(case(expect=wanted), '```json\n{"n": [1, 2]}\n```') == []
    assert "expected the JSON value" in failures(case(expect=wanted), '{"n": [1]}')[0]


def test_a_run_that_ends_without_an_answer_fails():
    looks = [ToolCall("glob_search", {"pattern": f"{number}*"}) for number in range(60)]
    assert "ended with max_turns" in failures(case(), *looks)[0]
    assert "ended in an error" in failures(case(), RuntimeError("no"))[0]
    assert failures(case(expect=EvalExpect(reason="error")), RuntimeError("no")) == []


def test_each_run_has_a_fresh_workspace(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("copied")
    (tmp_path / ".forge").mkdir()
    one = case(
        workspace=tmp_path,
        files={"b/c.txt": "written"},
        script=[{"call": "file_write", "arguments": {"path": "new.txt", "content": "x"}}, "ok"],
        expect=EvalExpect(files={"deep/a.txt": "copied", "b/c.txt": "written", "new.txt": "x"}),
    )
    report = run(one, times=3)
    assert (report.passed, len(report.runs)) == (True, 3)
    assert report.summarise("a").rate == 1
    assert not (tmp_path / "new.txt").exists()


def test_files_do_not_leave_the_workspace(tmp_path: Path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "link").symlink_to(tmp_path)
    with pytest.raises(ToolError, match="leads out of the workspace"):
        run(case(workspace=tmp_path / "made", files={"link/x.txt": "x"}), "ok")
    assert run(case(workspace=tmp_path / "made", files={"x.txt": "x"}), "ok").passed


def test_few_run_at_the_same_time():
    now, most = 0, 0

    class Slow:
        async def stream(self, request):
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            yield Message("assistant", "ok")

    cases = [case(name=str(number)) for number in range(12)]
    report = asyncio.run(evaluate(cases, Agent(Slow()), jobs=3))
    assert [one.case for one in report.runs] == [one.name for one in cases]
    assert most <= 3


def test_calls_that_nobody_approves_are_denied():
    one = case(expect=EvalExpect(files={"out.txt": None}))
    assert failures(one, WRITE, "denied", policy="allow read") == []
    assert failures(one, WRITE, "done") != []


def test_an_answer_is_recorded_and_replayed(tmp_path: Path):
    file = tmp_path / "answers.ndjson"

    def absolute(request):
        return ToolCall("file_read", {"path": f"{workspaces[-1]}/notes.txt"})

    workspaces: list[Path] = []

    def make(workspace: Path, model) -> Agent:
        workspaces.append(workspace)
        chosen = model if model is not None else Scripted(absolute, "It says: Buy milk.")
        return Agent(chosen, tools=tool_group("read"), secrets=["hunter2hunter2"])

    one = case(files={"notes.txt": "Buy milk."}, expect=EvalExpect(calls=["file_read"], result={"contains": "milk"}))
    recorded = asyncio.run(evaluate([one], make, record=file, times=2))
    assert recorded.passed
    assert str(workspaces[0]) not in file.read_text()
    again = asyncio.run(evaluate([one], make, replay=file))
    assert (again.passed, len(again.runs)) == (True, 2)
    assert [run.tokens for run in again.runs] == [run.tokens for run in recorded.runs]
    with pytest.raises(ToolError, match="the file exists"):
        asyncio.run(evaluate([one], make, record=file))
    other = asyncio.run(evaluate([case(name="b")], make, replay=file))
    assert "the recording has 0 answers" in other.runs[0].failures[0]


def test_a_recording_that_cannot_be_read_is_refused(tmp_path: Path):
    with pytest.raises(ToolError, match="No such file"):
        run(case(), replay=tmp_path / "none.ndjson")
    broken = tmp_path / "broken.ndjson"
    broken.write_text('{"case": "a"}\n')
    with pytest.raises(ToolError, match="line 1"):
        run(case(), replay=broken)


def test_a_judge_decides_and_needs_a_model():
    one = case(expect=EvalExpect(judge="The answer is polite."))
    seen: list[str] = []

    def verdict(request):
        seen.append(request.messages[-1].text)
        return '{"reason": "It is rude.", "pass": false}'

    assert failures(one, "Thank you.", judge=Scripted('{"reason": "Yes.", "pass": true}')) == []
    assert "It is rude." in failures(one, "No.", judge=Scripted(verdict))[0]
    assert json.loads(seen[0]) == {"rule": "The answer is polite.", "answer": "No.", "input": "Go."}
    assert "no verdict" in failures(one, "No.", judge=Scripted("Whatever."))[0]
    assert "could not be asked" in failures(one, "No.", judge=Scripted(RuntimeError("away")))[0]
    with pytest.raises(ToolError, match="no model for it"):
        run(one, "No.")


def test_a_report_is_a_table_json_and_junit():
    script = Scripted("yes", "no")
    cases = [case(name="a<b>", expect=EvalExpect(result="yes"))]
    report = asyncio.run(evaluate(cases, Agent(script), times=2, jobs=1, setup="one"))
    assert not report.passed
    assert report.holds(0.5)
    rows = list(report.rows())
    assert rows[0] == ("CASE", "PASSED", "TURNS", "TOKENS", "COST", "SECONDS")
    assert rows[1][:3] == ("a<b>", "1/2 50 %", "1.0")
    found = report.to_dict()
    assert found["setups"][0]["cases"]["a<b>"]["pass_rate"] == 0.5
    assert [one["passed"] for one in found["runs"]] == [True, False]
    assert json.loads(json.dumps(found)) == found
    junit = report.to_junit()
    assert '<testsuite name="forge eval" tests="2" failures="1">' in junit
    assert 'name="a&lt;b&gt; [2]"' in junit


def test_two_configurations_are_compared():
    cases = [case(expect=EvalExpect(result="yes"))]
    report = asyncio.run(evaluate(cases, Agent(Scripted("no")), setup="A"))
    report.runs += asyncio.run(evaluate(cases, Agent(Scripted("yes")), setup="B")).runs
    assert report.comparison().startswith("B compared with A: passed +100 points")
    assert [row[:3] for row in report.rows()][1:3] == [("a", "A", "0/1 0 %"), ("a", "B", "1/1 100 %")]
    assert not report.passed, "the first one counts"
