"""The examples run."""

import shutil
import sys
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXPECTED = {
    "coding.py": ["was not read in this session", '+    return "Good morning"', "its protection", "greet.py restored"],
    "quickstart.py": ["ok  6", "ok  web is live in eu", "not on a Friday", "denied", 'did you mean "text"'],
    "streaming.py": ["output: 2", "progress: 1 to go", "2 1 0", "Indexing has started.", "completed: indexed 42 files"],
    "own_step.py": ["Hello, Ada! measured"],
    "with_langchain.py": ["tool: HELLO", "denied by the rule", "Said, not written."],
    "with_openai_agents.py": ["42", "denied by the rule"],
    "with_pydantic_ai.py": ["called deploy", "Good morning, a!", "denied by the rule"],
    "trial_run.py": ["$ rm old.txt; echo 2 > new.txt", "old.txt"],
    "tour.py": [
        "316912650057057350374175801344",
        "repaired: Count → count",
        "a person is asked",
        "timed out after 0.2 s",
    ],
}


def run(*command: str, folder: Path = ROOT) -> str:
    done = programs.run([sys.executable, *command], capture_output=True, text=True, timeout=150, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "example",
    [pytest.param(one, marks=[pytest.mark.slow] * one.name.startswith("with_"), id=one.name) for one in EXAMPLES],
)
def test_an_example_runs_and_says_what_it_should(example):
    output = run(str(example))
    for words in EXPECTED[example.name]:
        assert words in output


def test_the_example_of_an_evaluation_passes():
    output = run("-m", "forge", "eval", "examples/evaluation.yaml", "--yes")
    assert "all              3/3 100 %" in output


@pytest.mark.parametrize("name", ["analyst", "maintainer", pytest.param("oncall", marks=pytest.mark.slow)])
def test_the_project_of_an_example_passes_its_own_tests_rules_and_evaluation(tmp_path, name):
    project = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, project, ignore=shutil.ignore_patterns("__pycache__"))
    forge = ("-m", "forge")
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", folder=project)
    assert "all as expected" in run(
        *forge, "policy", "test", "policy-tests.yaml", "--config", "forge.yaml", folder=project
    )
    evaluated = run(*forge, "eval", "evaluation.yaml", "--yes", "--config", "forge.yaml", folder=project)
    assert "100 %" in evaluated.splitlines()[-1]
