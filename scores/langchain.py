"""LangChain's standard tests for tools, run against Forge's tools as `to_langchain` exports them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from scores.report import ROOT, Missing, Row, Score

VERSION = "1.1.9"
SOURCE = f"PyPI langchain-tests {VERSION}"
MEASURES = "The standard unit and integration tests for tools that LangChain gives to authors, for our exported tools."
NOTES = (
    "The package's tests of a sandbox backend judge a class of another framework (deepagents' `SandboxBackendProtocol`:"
    " upload, download, and files that are read by scripts inside the sandbox). Forge exports tools, and has no such"
    " class to be tested.",
    "The two that fail call a tool without arguments: of a tool whose parameters are a JSON Schema, LangChain makes a"
    " root model, which cannot be made from nothing. The calls themselves work.",
)
SECONDS = 600
# the arguments of one right call of each tool, in a folder with a.txt and a Git repository
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "bash": {"command": "echo hello"},
    "csv_parse": {"content": "a,b\n1,2\n"},
    "datetime_now": {},
    "directory_list": {"path": "."},
    "directory_tree": {"path": "."},
    "file_create": {"path": "new.txt", "content": "x\n"},
    "file_edit": {"path": "a.txt", "old_string": "one", "new_string": "one"},
    "file_patch": {"patch": "*** Begin Patch\n*** Add File: p.txt\n+x\n*** End Patch"},
    "file_read": {"path": "a.txt"},
    "file_write": {"path": "a.txt", "content": "one\n"},
    "glob_search": {"pattern": "*.txt"},
    "grep_search": {"pattern": "one"},
    "json_parse": {"content": "[1, 2]"},
    "math_calculate": {"expression": "6 * 7"},
    "uuid_generate": {},
}
_TEST = "from scores.langchain import make_classes\nglobals().update(make_classes())\n"


def run() -> Score:
    with tempfile.TemporaryDirectory() as folder:
        results = run_tests(Path(folder))
    failures = [f"{name}: {said}" for name, said in results.items() if said]
    row = Row("standard tests of exported tools", len(results) - len(failures), len(results), "", failures)
    return Score("langchain", SOURCE, MEASURES, [row], notes=NOTES)


def run_tests(folder: Path) -> dict[str, str]:
    """Runs the tests in a process of their own; returns what failed, by test, "" for those that passed."""
    (folder / "test_exports.py").write_text(_TEST, encoding="utf-8")
    workspace, report = folder / "workspace", folder / "report.xml"
    workspace.mkdir()
    argv = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:randomly"]
    argv += ["-o", "asyncio_mode=auto", f"--rootdir={folder}", f"--junit-xml={report}", str(folder)]
    path = os.pathsep.join(str(Path(one).resolve()) for one in (str(ROOT), str(ROOT / "src"), *sys.path) if one)
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        argv, cwd=workspace, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if not report.exists() or "No module named" in done.stdout:
        raise Missing(f"langchain-tests could not be run: {(done.stdout + done.stderr)[-300:]}")
    return {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": _read_failure(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def _read_failure(case: ElementTree.Element) -> str:
    problems = [*case.findall("failure"), *case.findall("error"), *case.findall("skipped")]
    return (problems[0].get("message") or "failed")[:300] if problems else ""


def make_classes() -> dict[str, type]:
    """Makes a class of the standard unit tests and one of the integration tests for each exported tool."""
    integration: Any = import_module("langchain_tests.integration_tests.tools").ToolsIntegrationTests
    unit: Any = import_module("langchain_tests.unit_tests.tools").ToolsUnitTests

    from forge import Scope, ToolRegistry, rules
    from forge.frameworks.langchain import to_langchain
    from forge.pipeline import standard_executor
    from forge.tools import built_ins

    Path("a.txt").write_text("one\n", encoding="utf-8")
    made: dict[str, type] = {}
    scope = Scope(session_id="scores", workspace=Path.cwd())
    registry = ToolRegistry()
    for one in built_ins(registry):
        if one.spec.name in EXAMPLES:
            registry.add(one)
    for tool in to_langchain(standard_executor(registry, policy=rules("allow *")), scope=scope):
        parts = {"tool_constructor": tool, "tool_invoke_params_example": dict(EXAMPLES[tool.name])}
        for kind, base in (("Unit", unit), ("Integration", integration)):
            name = f"Test{tool.name.title().replace('_', '')}{kind}"
            made[name] = type(name, (base,), parts)
    return made
