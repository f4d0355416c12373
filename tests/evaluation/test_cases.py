"""Files of cases: Forge's own, and datasets of pydantic-evals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from forge import Agent, Scripted, ToolError
from forge.evaluation import EvalCase, evaluate
from forge.evaluation.cases import read_cases

DATASET = """
# yaml-language-server: $schema=cases_schema.json
name: capitals
cases:
- name: France
  inputs: What is the capital of France?
  expected_output: Paris
  metadata: {difficulty: easy}
  evaluators:
  - Contains: {value: PARIS, case_sensitive: false}
- inputs: {question: the capital of Italy}
  expected_output: {city: Rome}
evaluators:
- EqualsExpected
- IsInstance: str
- MaxDuration: 600
"""


def read(tmp_path: Path, text: str, name: str = "cases.yaml", **settings) -> list[EvalCase]:
    (tmp_path / name).write_text(text)
    return read_cases(tmp_path / name, **settings)


def test_a_dataset_of_pydantic_evals_runs(tmp_path: Path):
    cases = read(tmp_path, DATASET)
    assert [one.name for one in cases] == ["France", "case 2"]
    assert cases[1].prompt == '{"question": "the capital of Italy"}'
    report = asyncio.run(evaluate(cases, Agent(Scripted("Paris", '{"city": "Rome"}')), jobs=1))
    assert report.passed, [one.failures for one in report.runs]
    report = asyncio.run(evaluate(cases, Agent(Scripted("paris", "Rome")), jobs=1))
    assert [one.failures for one in report.runs] == [
        ('the answer is "paris", expected "Paris"',),
        ('the answer is "Rome", expected {"city": "Rome"}',),
    ]


@pytest.mark.parametrize(
    ("evaluator", "answer", "passes"),
    [
        ("Equals: {value: 4}", "4", True),
        ("Equals: {value: '4'}", "4", True),
        ("Equals: 4", "5", False),
        ("Equals: {value: 1}", "true", False),
        ("Equals: {city: Rome}", '{"city": "Rome"}', True),
        ("Contains: b", "abc", True),
        ("Contains: {value: {a: 1}}", '{"a": 1, "b": 2}', True),
        ("Contains: {value: {a: 2}}", '{"a": 1}', False),
        ("Contains: {value: 2}", "[1, 2]", True),
        ("Contains: {value: 2, as_strings: true}", "12", True),
        ("Contains: {value: x}", "abc", False),
        ("IsInstance: str", "abc", True),
        ("IsInstance: {type_name: dict}", "{}", False),
        ("MaxDuration: {seconds: 0}", "abc", False),
        ("EqualsExpected: {evaluation_name: same}", "abc", True),
        ("LLMJudge: It is a greeting.", "Hello", True),
        ("LLMJudge: {rubric: It is a greeting., include_input: true}", "Hello", True),
    ],
)
def test_the_known_evaluators(tmp_path: Path, evaluator: str, answer: str, passes: bool):
    cases = read(tmp_path, f"cases:\n- inputs: go\n  evaluators:\n  - {evaluator}\n")
    judge = Scripted('{"pass": true}')
    report = asyncio.run(evaluate(cases, Agent(Scripted(answer)), judge=judge))
    assert report.passed is passes


def test_evaluators_that_forge_does_not_know_are_said(tmp_path: Path):
    text = "cases: [{inputs: go, evaluators: [{HasMatchingSpan: {query: {name_equals: x}}}, {Contains: a}]}]"
    with pytest.raises(ToolError, match="cannot evaluate HasMatchingSpan") as caught:
        read(tmp_path, text)
    assert "--skip-unsupported" in caught.value.suggestion
    (case,) = read(tmp_path, text, skip_unsupported=True)
    assert (case.skipped, [one["name"] for one in case.evaluators]) == (("HasMatchingSpan",), ["Contains"])
    report = asyncio.run(evaluate([case], Agent(Scripted("a"))))
    assert report.to_dict()["skipped_evaluators"] == {"case 1": ["HasMatchingSpan"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "not an object"),
        ("cases: []", "there are none"),
        ("cases: [a]", "is not a case"),
        ("cases: [{name: a}]", "prompt: it is missing"),
        ("cases: [{name: a, promt: x}]", "unknown key"),
        ("cases: [{name: a, prompt: x}, {name: a, prompt: y}]", "two cases have this name"),
        ("cases: [{name: a, prompt: x, files: {../b: x}}]", "is not a path in the workspace"),
        ("cases: [{name: a, prompt: x, workspace: none}]", "is no directory"),
        ("cases: [{name: a, prompt: x, script: hello}]", "not a list of turns"),
        ("cases: [{name: a, prompt: x, expect: {calls: [1]}}]", "is not a call"),
        ("cases: [{name: a, prompt: x, expect: {calls: {a: b}}}]", "is not a list"),
        ("cases: [{name: a, prompt: x, expect: {result: {like: b}}}]", "unknown key"),
        ("cases: [{name: a, prompt: x, expect: {result: {matches: '('}}}]", "not a regular expression"),
        ("cases: [{name: a, prompt: x, expect: {limits: {turns: many}}}]", "is not a number"),
        ("cases: [{name: a, prompt: x, expect: {files: {/etc/passwd: x}}}]", "is not a path in the workspace"),
        ("cases: [{inputs: a, evaluators: [{EqualsExpected: 1}]}]", "has no arguments"),
        ("cases: [{inputs: a, evaluators: [Contains]}]", "Contains needs value"),
        ("cases: [{inputs: a, evaluators: [{MaxDuration: {minutes: 1}}]}]", "no argument"),
        ("cases: [{inputs: a, evaluators: [{MaxDuration: long}]}]", "a number of seconds"),
        ("cases: [{inputs: a, evaluators: [{LLMJudge: {rubric: x, assertion: false}}]}]", "no verdict"),
        ("cases: [{inputs: a}]\nreport_evaluators: [ConfusionMatrix]", "no evaluators of whole reports"),
        ("cases: [", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, words: str):
    with pytest.raises(ToolError, match=words) as caught:
        read(tmp_path, text)
    assert "cases.yaml" in caught.value.message
    assert caught.value.suggestion


def test_json_is_read_too(tmp_path: Path):
    (case,) = read(tmp_path, json.dumps({"cases": [{"name": "a", "prompt": "x"}]}), "cases.json")
    assert (case.name, case.prompt) == ("a", "x")
    with pytest.raises(ToolError, match="not valid JSON"):
        read(tmp_path, "{", "cases.json")
    with pytest.raises(ToolError, match="No such file"):
        read_cases(tmp_path / "none.yaml")
