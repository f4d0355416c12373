"""The public names are a promise: a change here needs a changelog entry."""

from __future__ import annotations

import ast
import compileall
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import forge

PUBLIC = """
    Agent AgentType Answer Approver Attachment Audio Category ContextRules Decision DefinitionError
    Document DuplicateToolError DurableAgent DurableResult Egress ErrorKind Failure Image Limits Message
    Permission PermissionRequest Policy Price Project Rate Reconciled Root Retry RunContext RunResult Runs
    Scope Scripted Secrets SessionStore Tool ToolCall ToolContext ToolError ToolRegistry ToolResult
    ToolSource ToolSpec Usage Waiting WorkerSettings approve_all audit_log dry_run fallback load_project
    mcp messages_from_json messages_to_json nobody openapi register_all rules scripts text_calls tool
    tool_group toolset webhook
""".split()


def test_the_public_names_are_these():
    assert forge.__all__ == sorted(PUBLIC)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name):
    assert getattr(forge, name) is not None
    assert name in dir(forge)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        forge.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_class_and_function_says_what_it_is_for():
    silent = [
        name
        for name in PUBLIC
        if (inspect.isclass(getattr(forge, name)) or inspect.isfunction(getattr(forge, name)))
        and not getattr(forge, name).__doc__
    ]
    assert not silent


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(forge.__file__).read_text(encoding="utf-8"))
    [seen] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [alias.asname for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(filter(None, imported)) == sorted(PUBLIC)


def test_a_name_is_found_where_only_the_compiled_module_is_installed(tmp_path):
    package = Path(forge.__file__).parent
    shutil.copytree(package, tmp_path / "forge", ignore=shutil.ignore_patterns("__pycache__", "static"))
    compiled = compileall.compile_file(tmp_path / "forge" / "__init__.py", legacy=True, quiet=1)
    assert compiled
    (tmp_path / "forge" / "__init__.py").unlink()
    code = "import forge; assert forge.__file__.endswith('.pyc'); assert forge.ToolError; assert forge.__all__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150, env={"PYTHONPATH": str(tmp_path)})


@pytest.mark.slow
def test_help_and_a_star_import_work_without_the_extras():
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dbos", "starlette", "opentelemetry", "langchain_core"):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Blocked())
from forge import *
from forge.core.extras import install_command
import forge, pydoc
assert Agent is forge.Agent
assert "DurableAgent" not in forge.__all__ and "DurableAgent" not in dir(forge)
assert "class Agent" in pydoc.plain(pydoc.render_doc(forge))
try:
    forge.DurableAgent
except ImportError as error:
    assert install_command("durable") in str(error), error
else:
    raise AssertionError("it needs dbos")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150)


@pytest.mark.slow
def test_help_and_a_star_import_work_with_the_extras():
    code = "from forge import *; import forge, pydoc; assert DurableAgent; pydoc.render_doc(forge)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150)


@pytest.mark.parametrize("first", ["forge.mcp.client.source", "forge.openapi.source", "forge.scripts.folder"])
def test_a_function_with_the_name_of_a_folder_is_the_function_whatever_is_imported_first(first):
    code = f"""
import {first}
from forge import mcp, openapi, scripts
from types import ModuleType
import forge.mcp.server, forge.scripts.header
assert not any(isinstance(one, ModuleType) for one in (mcp, openapi, scripts, forge.mcp, forge.openapi, forge.scripts))
assert all(map(callable, (mcp, openapi, scripts)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150)
