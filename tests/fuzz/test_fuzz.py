"""The fuzzer and the soak in short, and that they would notice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from forge.core.result import ToolResult
from fuzz.__main__ import LARGE, laid_out
from fuzz.campaign import Report, campaign
from fuzz.ground import KEY, SECRET, Ground
from fuzz.mutate import Mutations
from fuzz.right import right_calls
from fuzz.soak import right_lines
from fuzz.stream import Size, Stream
from fuzz.verdict import grown, wrong_with

SITE = "http://127.0.0.1:1"
FINE = ToolResult.text("").to_dict(id="1", name="x")


def mutations(seed: int, ground: Ground | None = None) -> Mutations:
    site, beside = (ground.site, str(ground.beside)) if ground else (SITE, "/beside")
    return Mutations(seed, right_calls(site), beside, site)


def assert_nothing_found(report: Report, calls: int) -> None:
    assert [(one.problem, [line[:2_000] for line in one.lines]) for one in report.findings] == []
    assert report.calls == calls
    assert report.outcomes["fine"] > calls / 5  # most of it must not end at the door


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_800_mutated_calls_end_in_results_and_touch_nothing():
    with laid_out() as ground:
        lines = mutations(20_26, ground)
        assert_nothing_found(campaign(ground, iter(lines.line, None), 800, slack=LARGE), 800)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_600_right_calls_leave_memory_and_descriptors_flat():
    with laid_out() as ground:
        assert_nothing_found(campaign(ground, right_lines(1, right_calls(ground.site)), 600), 600)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("many", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_calls_of_both_kinds(many):
    with laid_out() as ground:
        wrong, right = mutations(3, ground), right_lines(3, right_calls(ground.site))
        lines = (line for pair in zip(iter(wrong.line, None), right, strict=False) for line in pair)
        assert_nothing_found(campaign(ground, lines, many), many)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_tool_of_the_ground_is_called():
    with laid_out() as ground:
        command = ground.command("tool", "list", "--dev", "--json")
        done = subprocess.run(command, cwd=ground.root, env=ground.environment(), capture_output=True, check=True)
        assert {one["name"] for one in json.loads(done.stdout)["tools"]} <= right_calls(ground.site).keys()
        with Stream(ground) as stream:
            for name in ("repeat", "say__say", "pets__getPet", "notify", "memory_search", "math_calculate", "bash"):
                stream.send(json.dumps({"name": name, "arguments": right_calls(ground.site)[name][0]}).encode())
                answer = stream.answer(60)
                assert answer is not None
                assert answer["success"], answer["for_llm"]


def test_a_seed_decides_the_calls():
    first, again, other = mutations(5), mutations(5), mutations(6)
    lines = [first.line() for _ in range(300)]
    assert [again.line() for _ in range(300)] == lines
    assert [other.line() for _ in range(300)] != lines
    assert all(line.strip() and b"\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"is_error": True}, "does not know"),
        ({"id": "2"}, "the id '2'"),
        ({"for_llm": f"found {SECRET}"}, "outside the workspace"),
        ({"title": KEY}, "registered secret"),
        ({"success": False, "is_error": True, "error": "x", "error_type": "oops"}, "no kind of error"),
        (
            {"success": False, "is_error": True, "error": "failed unexpectedly", "error_type": "system_error"},
            "nobody foresaw",
        ),
    ],
)
def test_a_wrong_result_is_noticed(changed, words):
    found = wrong_with({**FINE, **changed}, b'{"name": "x", "id": "1"}')
    assert words in found if words else found == ""


def test_no_result_at_all_is_noticed():
    assert wrong_with({"id": "1"}, b"{}")


def test_growth_is_noticed_and_a_start_is_not():
    flat = [Size(100_000, 20, 5)] * 20
    assert grown([Size(50_000, 10, 2)] * 5 + flat + flat) == ""
    assert "memory" in grown([Size(100_000 + step * 3_000, 20, 5) for step in range(40)])
    assert "descriptors" in grown([Size(100_000, 20 + step, 5) for step in range(40)])


@pytest.mark.parametrize("name", ["beside/secret.txt", "beside/new.txt", "home/new.txt"])
def test_a_touched_file_is_noticed(tmp_path, name):
    ground = Ground(tmp_path, SITE)
    assert ground.touched() == []
    Path(tmp_path, "workspace", "new.txt").write_text("this is allowed")
    assert ground.touched() == []
    (tmp_path / name).write_text("this is not")
    assert str(tmp_path / name) in ground.touched()
