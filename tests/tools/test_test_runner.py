"""`test_runner`: finds a project's tests, really runs them, and reads what each framework reports."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.events import ToolOutput
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.policy import TrialMode, rules
from forge.pipeline import standard_executor
from forge.process.sandbox import Tier, problem
from forge.tools.test_runner import TestRunner
from forge.tools.test_runner.frameworks import plan_run
from forge.tools.test_runner.reports import (
    MAX_FAILURES,
    MAX_MESSAGE,
    read_cargo,
    read_go,
    read_jest,
    read_junit,
    read_tap,
    read_unittest,
)
from tests.patience import longer

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def works(program: str) -> bool:
    """Some are only found, and have nothing behind them in this home directory."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


needs_cargo = pytest.mark.skipif(not works("cargo"), reason="cargo is not installed")

PYTEST = """
import pytest

class TestGroup:
    def test_passes(self):
        print("hello")

    @pytest.mark.parametrize("number", [1, 2])
    def test_compares(self, number):
        assert number == 1, "not one"

@pytest.mark.skip
def test_later(): ...

@pytest.fixture
def torn():
    raise RuntimeError("no fixture")

def test_torn(torn): ...
"""
UNITTEST = """
import unittest

class Case(unittest.TestCase):
    def test_passes(self): ...

    def test_fails(self):
        self.assertEqual(1, 2, "why")

    def test_breaks(self):
        raise ValueError("two\\n\\nparagraphs")

    @unittest.skip("later")
    def test_skipped(self): ...
"""
NODE = """
const { test, describe, it } = require('node:test');
const assert = require('node:assert');
test('passes', () => {});
describe('group', () => {
  it('fails', () => {
    assert.strictEqual(1, 2, 'not two');
  });
  it.skip('later', () => {});
});
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """`project(**files)` writes files; `project.call(...)` runs their tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)

    class Project:
        path = tmp_path
        scope = Scope(session_id="tests", workspace=tmp_path)

        def write(self, files: dict[str, str]) -> None:
            for name, text in files.items():
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)

        def call(
            self, *policy: str, activity: ActivityStream | None = None, trial: TrialMode = "auto", **arguments: Any
        ) -> ToolResult:
            runner = TestRunner(env_passthrough=["PYTEST_DISABLE_PLUGIN_AUTOLOAD"])
            allowed = rules(*(policy or ("allow execute",)))
            executor = standard_executor([runner], policy=allowed, activity=activity, trial=trial)
            return asyncio.run(executor.execute(ToolCall("test_runner", arguments), self.scope))

        def line(self, framework: str = "auto", target: str = "") -> str:
            return plan_run(self.scope, framework, target).line

    return Project()


def counts(result: ToolResult) -> tuple[int, int, int, int]:
    assert result.success, result.for_llm
    return tuple(result.data[key] for key in ("passed", "failed", "skipped", "errors"))


def test_pytest_is_run_and_each_failure_is_told_with_its_place(project):
    project.write({"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/test_a.py": PYTEST})
    result = project.call()
    assert counts(result) == (2, 1, 1, 1)
    assert result.data["framework"] == "pytest"
    assert result.data["outcome"] == "failed"
    assert result.data["exit_code"] == 1
    failed, broken = result.data["failures"]
    assert failed["name"] == "tests/test_a.py::TestGroup::test_compares[2]"
    assert (failed["file"], failed["line"]) == ("tests/test_a.py", 10)
    assert failed["message"].startswith("AssertionError: not one")
    assert (broken["line"], "no fixture" in broken["message"]) == (17, True)
    assert result.for_llm.startswith("pytest: 2 passed, 1 failed, 1 error, 1 skipped in ")
    assert "FAILED tests/test_a.py::TestGroup::test_compares[2] (tests/test_a.py:10)" in result.for_llm
    assert "<?xml" not in result.data["output"]
    again = project.call(target=failed["name"])
    assert counts(again) == (0, 1, 0, 0)


def test_what_pytest_writes_is_shown_while_it_runs_without_its_report(project):
    project.write({"conftest.py": "", "test_a.py": "def test_a(): ..."})
    activity, shown = ActivityStream(), []
    activity.subscribe(lambda event: shown.append(event.text), ToolOutput)
    result = project.call(activity=activity)
    assert counts(result) == (1, 0, 0, 0)
    assert result.data["outcome"] == "passed"
    assert "test_a.py ." in "".join(shown)
    assert "<testsuite" not in "".join(shown)


def test_a_file_that_cannot_be_imported_is_an_error_and_not_a_failed_test(project):
    project.write({"conftest.py": "", "test_a.py": "import no_such_module_here\n"})
    result = project.call()
    assert counts(result) == (0, 0, 0, 1)
    assert result.data["failures"][0]["name"] == "test_a.py"
    assert result.data["failures"][0]["line"] == 1
    assert "No module named 'no_such_module_here'" in result.for_llm


def test_unittest_is_run_where_nothing_says_pytest(project):
    project.write({"tests/test_u.py": UNITTEST})
    result = project.call()
    assert result.data["command"] == "python3 -m unittest discover -v -s tests"
    assert counts(result) == (1, 1, 1, 1)
    broken, failed = result.data["failures"]
    assert (failed["name"], failed["file"], failed["line"]) == ("test_u.Case.test_fails", "tests/test_u.py", 8)
    assert failed["message"] == "AssertionError: 1 != 2 : why"
    assert broken["message"] == "ValueError: two\n\nparagraphs"
    assert counts(project.call(target="tests/test_u.py::Case::test_passes")) == (1, 0, 0, 0)
    assert counts(project.call(framework="unittest", target="tests.test_u.Case.test_fails")) == (0, 1, 0, 0)


@needs_node
def test_node_is_run_with_its_own_runner(project):
    project.write({"package.json": '{"scripts": {"test": "node --test"}}', "test/a.test.js": NODE})
    result = project.call()
    assert result.data["framework"] == "node"
    assert counts(result) == (1, 1, 1, 0)
    failed = result.data["failures"][0]
    assert (failed["name"], failed["file"], failed["line"]) == ("fails", "test/a.test.js", 7)
    assert failed["message"].startswith("not two")
    project.write({"test/b.test.js": "throw new Error('at once')"})
    broken = project.call(target="test/b.test.js")
    assert counts(broken) == (0, 0, 0, 1)
    assert "Error: at once" in broken.for_llm
    assert counts(project.call(target="test")) == (1, 1, 1, 1)


@needs_cargo
@pytest.mark.slow
def test_cargo_is_run(project):
    project.write(
        {
            "Cargo.toml": '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "#[test]\nfn passes() {}\n#[test]\nfn fails() {\n    assert_eq!(1, 2);\n}\n",
        }
    )
    result = project.call()
    assert counts(result) == (1, 1, 0, 0)
    assert result.data["failures"][0].items() >= {"name": "fails", "file": "src/lib.rs", "line": 5}.items()
    project.write({"src/lib.rs": "fn broken( {"})
    unbuilt = project.call()
    assert unbuilt.failure is not None
    assert "stopped before it ran any test" in unbuilt.failure.message
    assert "error" in unbuilt.data["output"]


def test_no_tests_is_a_result_of_its_own(project):
    result = project.call(framework="unittest")
    assert counts(result) == (0, 0, 0, 0)
    assert result.data["outcome"] == "no tests"
    assert result.for_llm.startswith("unittest: no tests were found.")


def test_a_framework_that_is_not_installed_is_told_apart(project):
    project.write({"package.json": '{"devDependencies": {"jest": "*"}}', "go.mod": "module x", "a_test.go": ""})
    jest = project.call(framework="jest")
    assert jest.failure is not None
    assert (jest.failure.kind, jest.failure.message) == ("config_error", "jest is not installed")
    (project.path / ".venv" / "bin").mkdir(parents=True)
    python = project.path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pytest" >&2\nexit 1\n')
    python.chmod(0o755)
    result = project.call(framework="pytest")
    assert result.failure is not None
    assert result.failure.kind == "config_error"
    assert result.failure.message == "pytest is not installed for .venv/bin/python"
    assert result.data["outcome"] == "error"


def test_a_runner_that_breaks_off_is_no_failed_test(project):
    project.write({"conftest.py": "raise SystemExit('broken configuration')\n", "test_a.py": "def test_a(): ..."})
    result = project.call()
    assert result.failure is not None
    assert result.failure.kind == "user_error"
    assert "stopped before it ran any test" in result.failure.message
    assert "broken configuration" in result.for_llm
    project.write({"conftest.py": ""})
    assert project.call().success


def test_time_that_runs_out_is_told_with_the_output_until_then(project):
    project.write({"test_a.py": "import unittest\nprint('begun', flush=True)\nimport time\ntime.sleep(60)\n"})
    for seconds in longer(1.5):
        result = project.call(timeout=seconds)
        if "begun" in result.for_llm:
            break
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert result.data["timed_out"] is True
    assert result.data["outcome"] == "timeout"
    assert "begun" in result.for_llm


def test_an_exit_code_that_does_not_fit_the_counts_is_said(project):
    project.write({"conftest.py": "def pytest_sessionfinish(session): session.exitstatus = 9\n"})
    project.write({"test_a.py": "def test_a(): ..."})
    result = project.call()
    assert counts(result) == (1, 0, 0, 0)
    assert "[exit code 9, although no test failed]" in result.for_llm


def test_the_command_line_is_what_is_asked_for(project):
    project.write({"conftest.py": "", "test_a.py": "def test_a(): ..."})
    refused = project.call("allow read", trial="off")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert "python3 -m pytest" in refused.failure.message
    assert project.call("allow execute python3 -m pytest *").success
    assert project.call("allow execute", "deny execute python3 -m pytest *").failure is not None


@pytest.mark.parametrize(
    ("files", "framework"),
    [
        ({"pytest.ini": ""}, "pytest"),
        ({"pyproject.toml": '[dependency-groups]\ndev = ["pytest>=8"]\n'}, "pytest"),
        ({"requirements-dev.txt": "pytest==8\n"}, "pytest"),
        ({"tests/conftest.py": ""}, "pytest"),
        ({"tests/test_a.py": "def test_a(): ...\n"}, "pytest"),
        ({"tests/test_a.py": "import unittest\n"}, "unittest"),
        ({"test_a.py": "import unittest\n", "pyproject.toml": "[project]\nname = 'x'\n"}, "unittest"),
        ({"test_a.test.mjs": ""}, "node"),
        ({"package.json": '{"scripts": {"test": "node --test"}}'}, "node"),
        ({"go.mod": "module x\n"}, "go"),
        ({"Cargo.toml": "[package]\n"}, "cargo"),
        ({"package.json": '{"devDependencies": {"jest": "*"}}', "node_modules/.bin/jest": ""}, "jest"),
        ({"package.json": '{"jest": {}}', "node_modules/.bin/jest": ""}, "jest"),
        ({"package.json": "{}", "vitest.config.ts": "", "node_modules/.bin/vitest": ""}, "vitest"),
        (
            {
                "package.json": '{"scripts": {"test": "jest"}, "devDependencies": {"jest": "1", "vitest": "1"}}',
                "node_modules/.bin/jest": "",
            },
            "jest",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_the_framework_is_found_out_from_the_files(project, files, framework):
    project.write(files)
    assert plan_run(project.scope, "auto", "").framework == framework


def test_several_frameworks_are_a_question_and_a_target_answers_it(project):
    project.write({"pytest.ini": "", "Cargo.toml": "", "tests/test_a.py": "", "src/lib.rs": ""})
    with pytest.raises(ToolError, match="several frameworks: pytest, cargo"):
        project.line()
    assert plan_run(project.scope, "auto", "tests/test_a.py").framework == "pytest"
    assert plan_run(project.scope, "auto", "src/lib.rs").framework == "cargo"
    assert plan_run(project.scope, "cargo", "").framework == "cargo"


def test_a_target_in_a_project_below_is_run_there(project):
    project.write(
        {"packages/web/package.json": '{"devDependencies": {"vitest": "*"}}', "packages/web/src/a.test.ts": ""}
    )
    project.write({"node_modules/.bin/vitest": ""})
    plan = plan_run(project.scope, "auto", "packages/web/src/a.test.ts")
    assert plan.folder == "packages/web"
    assert plan.line == "../../node_modules/.bin/vitest run --reporter=json src/a.test.ts"


@pytest.mark.parametrize(
    ("framework", "target", "ends"),
    [
        ("pytest", "tests", "tests"),
        ("pytest", "tests/test_a.py::test_b", "tests/test_a.py::test_b"),
        ("pytest", "adds two", "-k 'adds two'"),
        ("unittest", "tests", "discover -v -s tests"),
        ("unittest", "tests/test_a.py", "-v tests/test_a.py"),
        ("jest", "web/a.test.js", "--runTestsByPath web/a.test.js"),
        ("jest", "web/a.test.js::adds", "web/a.test.js -t adds"),
        ("jest", "adds 1/2", "-t 'adds 1/2'"),
        ("vitest", "web", "--reporter=json web"),
        ("node", "web", "--test-reporter=tap"),
        ("node", "adds", "--test-name-pattern=adds"),
        ("go", "", "-json ./..."),
        ("go", "./...", "-json ./..."),
        ("go", "calc", "./calc/..."),
        ("go", "calc/add_test.go::TestAdd", "-run '^TestAdd$' ./calc"),
        ("go", "TestAdd/negative", "-run TestAdd/negative ./..."),
        ("cargo", "tests/it.rs", "--test it"),
        ("cargo", "tests::adds", "--no-fail-fast tests::adds"),
    ],
)
def test_a_target_is_said_the_way_the_framework_takes_it(project, framework, target, ends):
    names = ["tests/test_a.py", "tests/it.rs", "web/a.test.js", "calc/add_test.go"]
    project.write(dict.fromkeys([*names, "node_modules/.bin/jest", "node_modules/.bin/vitest"], ""))
    assert project.line(framework, target).endswith(f" {ends}")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("--collect-only", "validation_error"),
        ("a\nb", "validation_error"),
        ("x" * 5_000, "validation_error"),
        ("../outside", "security_error"),
        ("/etc/passwd", "security_error"),
        ("tests/missing.py", "not_found"),
        ("missing.py", "not_found"),
    ],
)
def test_a_target_that_cannot_be_one_is_refused_before_anybody_is_asked(project, target, kind):
    project.write({"tests/test_a.py": "import unittest"})
    result = project.call(framework="unittest", target=target)
    assert result.failure is not None
    assert result.failure.kind == kind
    assert project.line("unittest", "tests/test_a.py")


def test_words_of_a_shell_in_a_target_stay_one_word(project):
    project.write({"test_a.py": "import unittest"})
    assert project.line("unittest", "a; touch b $(touch c)").endswith("-v 'a; touch b $(touch c)'")
    project.call(framework="unittest", target="a; touch b $(touch c)")
    assert sorted(path.name for path in project.path.iterdir() if path.suffix != ".pyc") == ["test_a.py"]


def test_nothing_to_run_is_told_before_anybody_is_asked(project):
    result = project.call("allow read")
    assert result.failure is not None
    assert result.failure.kind == "not_found"
    assert "no tests were recognised in the workspace" in result.failure.message


def test_a_project_can_set_the_time(project):
    runner = TestRunner()
    assert runner.parse({})["timeout"] == 300
    runner = TestRunner()
    runner.spec = runner.spec.changed(timeout=20.0)
    assert runner.parse({})["timeout"] == 20
    assert runner.parse({"timeout": 50})["timeout"] == 50


JEST = {
    "numFailedTests": 1,
    "numPassedTests": 1,
    "numPendingTests": 1,
    "numTodoTests": 1,
    "startTime": 1794725004635,
    "testResults": [
        {
            "assertionResults": [
                {"fullName": "ok", "status": "passed", "failureMessages": []},
                {
                    "fullName": "group bad",
                    "status": "failed",
                    "failureMessages": [
                        "Error: expect(received).toEqual(expected)\n\n- Expected  - 1\n    at Object.toEqual"
                        " (/project/sum.test.js:2:61)\n    at new Promise (<anonymous>)"
                    ],
                },
            ],
            "endTime": 1794725005121,
            "name": "/project/sum.test.js",
            "status": "failed",
            "message": "",
        },
        {
            "assertionResults": [],
            "endTime": 1794725005234,
            "message": "  ● Test suite failed to run\n\n    Cannot find module './nowhere.js' from 'broken.test.js'\n",
            "name": "/project/broken.test.js",
            "status": "failed",
        },
    ],
}


def test_what_jest_reports_is_read():
    report = read_jest(f"noise\n{json.dumps(JEST)}\nmore noise", "")
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == (1, 1, 2, 1)
    assert report.duration == 0.599
    bad, broken = report.failures
    assert (bad.name, bad.file, bad.line) == ("group bad", "/project/sum.test.js", 2)
    assert bad.message == "Error: expect(received).toEqual(expected)\n\n- Expected  - 1"
    assert "Cannot find module" in broken.message


def test_what_vitest_reports_is_read_the_same_way():
    frames = "    at /project/a.test.js:3:61\n    at file:///project/node_modules/@vitest/runner/dist/index.js:146:14"
    test = {"fullName": "bad", "status": "failed", "failureMessages": [f"AssertionError: expected 1 to be 2\n{frames}"]}
    told = {"numTotalTestSuites": 1, "numPassedTests": 0, "numFailedTests": 1, "numPendingTests": 0}
    file = {"name": "/project/a.test.js", "status": "failed", "assertionResults": [test]}
    report = read_jest(json.dumps({**told, "testResults": [file]}), "")
    assert report is not None
    assert report.failures[0][1:] == ("/project/a.test.js", 3, "AssertionError: expected 1 to be 2")


def test_a_report_of_jest_that_was_cut_still_has_its_counts():
    report = read_jest(json.dumps(JEST)[:200], "")
    assert report is not None
    assert (report.passed, report.failed, report.skipped) == (1, 1, 2)
    assert read_jest("", "SyntaxError: broken") is None
    nothing = read_jest("", "No tests found, exiting with code 1\n")
    assert nothing is not None
    assert nothing.nothing


GO = [
    {"Action": "start", "Package": "x/calc"},
    {"Action": "run", "Package": "x/calc", "Test": "TestAdd"},
    {"Action": "output", "Package": "x/calc", "Test": "TestAdd", "Output": "=== RUN   TestAdd\n"},
    {"Action": "run", "Package": "x/calc", "Test": "TestAdd/one"},
    {"Action": "pass", "Package": "x/calc", "Test": "TestAdd/one", "Elapsed": 0},
    {"Action": "output", "Package": "x/calc", "Test": "TestAdd/two", "Output": "    add_test.go:12: got 1, want 2\n"},
    {"Action": "output", "Package": "x/calc", "Test": "TestAdd/two", "Output": "    --- FAIL: TestAdd/two (0.00s)\n"},
    {"Action": "fail", "Package": "x/calc", "Test": "TestAdd/two", "Elapsed": 0},
    {"Action": "output", "Package": "x/calc", "Test": "TestAdd", "Output": "--- FAIL: TestAdd (0.00s)\n"},
    {"Action": "fail", "Package": "x/calc", "Test": "TestAdd", "Elapsed": 0},
    {"Action": "skip", "Package": "x/calc", "Test": "TestLater", "Elapsed": 0},
    {"Action": "pass", "Package": "x/calc", "Test": "TestPlain", "Elapsed": 0},
    {"Action": "fail", "Package": "x/calc", "Elapsed": 0.25},
    {"ImportPath": "x/bad [x/bad.test]", "Action": "build-output", "Output": "./b.go:3:2: undefined: y\n"},
    {"ImportPath": "x/bad [x/bad.test]", "Action": "build-fail"},
    {"Action": "output", "Package": "x/bad", "Output": "FAIL\tx/bad [build failed]\n"},
    {"Action": "fail", "Package": "x/bad", "Elapsed": 0, "FailedBuild": "x/bad [x/bad.test]"},
    {"Action": "output", "Package": "x/none", "Output": "?   \tx/none\t[no test files]\n"},
    {"Action": "skip", "Package": "x/none", "Elapsed": 0},
]


def test_what_go_reports_is_read():
    report = read_go("\n".join(["noise", "{broken", *map(json.dumps, GO)]), "")
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == (2, 1, 1, 1)
    assert report.duration == 0.25
    two, bad = report.failures
    assert two[:3] == ("x/calc.TestAdd/two", "add_test.go", 12)
    assert two.message.strip() == "add_test.go:12: got 1, want 2"
    assert bad[:3] == ("x/bad", "./b.go", 3)
    assert read_go("", "go: cannot find main module") is None


CARGO = """
running 3 tests
test tests::bad ... FAILED
test tests::later ... ignored
test tests::ok ... ok

failures:

---- tests::bad stdout ----

thread 'tests::bad' (7) panicked at src/lib.rs:8:45:
assertion `left == right` failed: why
  left: 2
 right: 3
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    tests::bad

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
test old ... FAILED

failures:

---- old stdout ----
thread 'old' panicked at 'no', tests/it.rs:1:24

failures:
    old

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
"""


def test_what_cargo_writes_is_read():
    report = read_cargo(CARGO, "")
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == (1, 2, 1, 0)
    bad, old = report.failures
    assert bad == ("tests::bad", "src/lib.rs", 8, "assertion `left == right` failed: why\n  left: 2\n right: 3")
    assert old == ("old", "tests/it.rs", 1, "no")
    assert read_cargo("", "error[E0425]: cannot find value") is None


def test_parts_of_one_test_of_unittest_fail_as_one_and_set_up_is_no_test():
    block = "=" * 70 + "\n{}\n" + "-" * 70 + '\nTraceback (most recent call last):\n  File "/p/t.py", line 4, in {}\n'
    text = "".join(
        block.format(*one) + "AssertionError: no\n\n"
        for one in (
            ("FAIL: test_sub (t.Case.test_sub) (i=0)", "test_sub"),
            ("FAIL: test_sub (t.Case.test_sub) (i=2)", "test_sub"),
            ("ERROR: setUpClass (t.Other)", "setUpClass"),
        )
    )
    report = read_unittest("", f"{text}{'-' * 70}\nRan 3 tests in 0.002s\n\nFAILED (failures=2, errors=1, skipped=1)\n")
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == (1, 2, 1, 1)
    assert [one.name for one in report.failures] == [
        "t.Case.test_sub (i=0)",
        "t.Case.test_sub (i=2)",
        "t.Other.setUpClass",
    ]


def test_a_report_of_pytest_that_was_cut_keeps_the_counts_of_its_head():
    case = '<testcase classname="test_a" name="test_x" file="test_a.py" line="1"><failure message="no">x</failure>'
    head = '<?xml version="1.0"?><testsuites><testsuite errors="1" failures="3" skipped="2" tests="10" time="0.5">'
    report = read_junit("", f"noise {head}{case}</testcase><testcase name=")
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == (4, 3, 2, 1)
    assert [one.name for one in report.failures] == ["test_a.py::test_x"]
    assert read_junit("", "") is None
    assert read_junit("", '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa">]><testsuites/>') is None


def test_failures_are_bounded_in_number_and_length_and_obey_no_terminal():
    case = "<testcase classname='t' name='test_{}' file='t.py' line='1'><failure message='{}'>x</failure></testcase>"
    cases = "".join(case.format(number, "long " * 2_000) for number in range(MAX_FAILURES + 20))
    report = read_junit("", f'<?xml version="1.0"?><testsuites><testsuite tests="70">{cases}</testsuite></testsuites>')
    assert report is not None
    assert report.failed == MAX_FAILURES + 20
    assert len(report.failures) == MAX_FAILURES
    assert max(len(one.message) for one in report.failures) < MAX_MESSAGE + 20
    tap = read_tap("TAP version 13\nnot ok 1 - \x1b[31mred\x07\n  ---\n  error: '\x1b[2Jno'\n  ...\n", "")
    assert tap is not None
    assert (tap.failures[0].name, tap.failures[0].message) == ("red", "no")


@pytest.mark.parametrize("read", [read_junit, read_unittest, read_jest, read_tap, read_go, read_cargo])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" * 200_000,
        "/" * 200_000,
        "{" * 200_000,
        "<?xml" + "<a>" * 50_000,
        "TAP version 13\n" + "not ok 1 - a\n  ---\n" * 20_000,
        "=" * 200_000,
        "thread '" * 30_000,
        '{"num' + "[" * 100_000,
        "    at " + "(/" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_no_output_breaks_a_reader_or_keeps_it_long(read, text):
    read(text, text)


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="rules about hosts of programs need bubblewrap")
async def test_the_hosts_that_tests_did_not_reach_are_told(tmp_path):
    (tmp_path / "test_network.py").write_text(
        "import socket, unittest\n\nclass Network(unittest.TestCase):\n  def test_it(self):\n"
        "    with socket.create_connection(('127.0.0.1', 3128)) as proxy:\n"
        "        proxy.sendall(b'CONNECT denied.test:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "        assert b' 403 ' in proxy.recv(100)\n"
    )
    for policy, refused in ((("allow network x.test", "deny network denied.test"), True), ((), False)):
        executor = standard_executor([TestRunner()], policy=rules("allow execute", *policy))
        call = ToolCall("test_runner", {"framework": "unittest"})
        result = await executor.execute(call, Scope(workspace=tmp_path))
        assert result.data is not None
        assert [one["host"] for one in result.data.get("network", [])] == ["denied.test"] * refused
        assert result.data["passed"] == int(refused)  # without a rule there is no proxy
        assert ("[denied.test:443 was not reached: the rule `deny network denied.test`" in result.for_llm) is refused
