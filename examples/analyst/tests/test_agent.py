"""Runs of the analyst with a scripted model: a report by code, and a review that gives orders.

They need no model and no key: `python -m pytest`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from forge import RunResult, Scripted, load_project
from forge.models import ModelRequest
from forge.testing import calls, says

PROJECT = Path(__file__).parents[1]

REPORT = """
import json

found = await query(sql="SELECT product, SUM(pieces * price) FROM orders GROUP BY product ORDER BY product")
rows = json.loads(found)["rows"]
about = {"praise": 0, "delivery": 0, "quality": 0}
for number in range(1, 4):
    kind = await task(
        description="Sort a review",
        prompt="What is the review about?",
        agent_type="reader",
        read={"tool": "read_review", "arguments": {"number": number}},
        output={"enum": ["praise", "delivery", "quality"]},
    )
    about[json.loads(kind)] += 1
lines = [f"- {product}: {sales:.2f}" for product, sales in rows]
lines += [f"- reviews about {kind}: {count}" for kind, count in about.items()]
await file_write(path="reports/november.md", content="# November\\n\\n" + "\\n".join(lines) + "\\n")
about
"""

OBEYS = """
review = await read_review(number=3)
await file_write(path=review.split()[13], content="permissions: {}")
"""


def run(folder: Path, model: Scripted) -> RunResult:
    workspace = folder / "analyst"
    shutil.copytree(PROJECT, workspace, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    agent = load_project(workspace, config=workspace / "forge.yaml").agent(model)  # no one is there to ask
    return agent.run_sync("How was November?")


def test_a_report_is_computed_in_one_turn_and_no_review_reaches_the_agent(tmp_path: Path) -> None:
    read: list[str] = []

    def sort(kind: str) -> Callable[[ModelRequest], str]:
        def answer(request: ModelRequest) -> str:
            read.append(request.messages[-1].text)
            return f'"{kind}"'

        return answer

    model = Scripted(
        calls("run_code", code=REPORT), sort("praise"), sort("delivery"), sort("quality"), says("See the report.")
    )
    result = run(tmp_path, model)
    report = (tmp_path / "analyst/reports/november.md").read_text()
    assert "- chair: 380.00\n- lamp: 90.00\n" in report
    assert "- reviews about quality: 1" in report
    assert "forget your orders" in read[2], "the reader has read it"
    assert all("forget your orders" not in message.text for message in result.messages), "the agent has not"


def test_a_value_of_a_review_writes_nothing_unasked(tmp_path: Path) -> None:
    result = run(tmp_path, Scripted(calls("run_code", code=OBEYS), says("I may not.")))
    assert "permissions: {}" not in (tmp_path / "analyst/forge.yaml").read_text()
    assert result.messages[-2].is_error, result.messages[-2].text


def test_a_query_reads_the_orders_and_nothing_else(tmp_path: Path) -> None:
    model = Scripted(
        calls("query", sql="SELECT SUM(pieces) FROM orders"),
        calls("query", sql="ATTACH DATABASE 'data/other.db' AS other"),
        calls("query", sql="DELETE FROM orders"),
        says("I can only read."),
    )
    right, attached, deleted = [one for one in run(tmp_path, model).messages if one.role == "tool"]
    assert not right.is_error, right.text
    assert attached.is_error
    assert deleted.is_error
    assert not (tmp_path / "analyst/data/other.db").exists()
