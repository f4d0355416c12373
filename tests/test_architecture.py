"""Imports only point down, listing tools loads nothing heavy, and private parts of others are in few places."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import forge

ROOT = Path(__file__).parents[1]
CONTRACTS = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
LISTING = """
from forge.core.registry import ToolRegistry
from forge.tools import register_all
registry = ToolRegistry()
register_all(registry)
assert "math_calculate" in registry
assert all(spec.name and spec.description and spec.origin for spec in registry.specs())
assert registry.summaries()
assert len(registry.enabled({"read"}))
"""


def test_the_import_contracts_hold():
    found = _python("-c", CONTRACTS)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 broken" in found.stdout


@pytest.mark.parametrize("program", ["import forge", LISTING], ids=["import forge", "list tools"])
@pytest.mark.parametrize("heavy", ["asyncio", "pydantic", "pydantic_core", "jsonschema_rs", "docstring_parser"])
def test_nothing_heavy_is_loaded_before_it_is_used(program, heavy):
    found = _python("-c", f"{program}\nimport sys\nassert {heavy!r} not in sys.modules")
    assert found.returncode == 0, found.stderr


FIRST_USE = """
import asyncio
from forge import Agent, Message, ToolCall, rules, tool

@tool
async def add(a: int, b: int) -> int:
    'Add two numbers.'
    return a + b

class Model:
    async def stream(self, request):
        calls = () if request.messages[-1].role == 'tool' else (ToolCall('add', '{"a": 2, "b": 3}', 'c1'),)
        yield Message('assistant', '' if calls else 'done', tool_calls=calls)

result = asyncio.run(Agent(Model(), tools=[add], policy=rules('allow *')).run('go'))
assert (result.reason, result.calls) == ('answer', 1), result
"""
NOT_AT_FIRST_USE = (  # what a run needs only for certain types, rules, tools or errors
    *("docstring_parser", "httpcore2", "httpx2", "jsonschema_rs", "mcp", "platform", "pydantic", "random", "uuid"),
    *("yaml", "forge.agent.quarantine", "forge.agent.subagent", "forge.core.arguments.repair", "forge.core.yaml"),
    *("forge.permissions.policy_files", "forge.permissions.shell", "forge.process", "forge.tools.run_code"),
)


def test_the_first_run_of_an_agent_loads_nothing_that_it_does_not_need():
    found = _python(
        "-c", f"{FIRST_USE}\nimport sys\nprint([one for one in {NOT_AT_FIRST_USE!r} if one in sys.modules])"
    )
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr


OPENS_CONNECTIONS = re.compile(
    r"\b(?:Async)?(?:ConnectionPool|HTTPProxy|SOCKSProxy|HTTPConnection|HTTPTransport|Client)\(|\bHTTPSConnection\("
    r"|\b(?:urlopen|urlretrieve|open_connection|create_connection|sock_connect)\(|httpx2\.(?:get|post|request|stream)\("
)


def test_requests_leave_from_one_place():
    """Other programs' clients, such as that of MCP, get a transport of ours."""
    source = Path(forge.__file__).parent
    found = {
        (file.relative_to(source).as_posix(), match[0].rstrip("("))
        for file in source.rglob("*.py")
        for match in OPENS_CONNECTIONS.finditer(file.read_text())
    }
    ours = {("network/connections.py", one) for one in ("AsyncConnectionPool", "sock_connect", "open_connection")}
    assert found == {*ours, ("mcp/guarded_http.py", "AsyncClient")}
    assert "AsyncClient(\n        transport=transport," in (source / "mcp/guarded_http.py").read_text()


def test_defining_and_registering_a_tool_builds_no_schema():
    found = _python(
        "-c",
        "import sys\n"
        "from forge import tool, ToolRegistry\n"
        "def greet(name: str, times: int = 1) -> str:\n    'Greet.'\n    return name * times\n"
        "ToolRegistry([tool(greet)])\n"
        "assert 'pydantic' not in sys.modules",
    )
    assert found.returncode == 0, found.stderr


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=150,
    )


# Private parts of other packages: which files touch them, and whether they still exist.

PRIVATE_PARTS = {  # file -> the dependency whose private parts it may touch
    "cli/terminal/input_line.py": "prompt_toolkit",
    "core/arguments/pydantic_private.py": "pydantic",
    "core/execution/deadline.py": "asyncio",
    "durable/engine/dbos_private.py": "dbos",
    "frameworks/langchain.py": "langchain-core",
    "mcp/sdk_parts.py": "mcp",
}
DOCUMENTED = {"_replace", "_make", "_fields", "_asdict", "_exit", "_getframe", "_thread.allocate_lock"}


def test_private_parts_of_others_are_touched_in_one_place_for_each_dependency():
    found = [one for one in _census() if one.kind == "private part"]
    strange = [one for one in found if one.file not in PRIVATE_PARTS]
    assert not strange, "\n".join(map(str, strange))
    assert found, "the census finds nothing at all: it is broken"


def test_nothing_is_assigned_to_an_object_of_others():
    found = [one for one in _census() if one.kind == "assignment"]
    assert not found, "\n".join(map(str, found))


def test_the_census_finds_private_parts_and_assignments():
    code = "import json\nfrom a._b import c\nx._y()\njson.loads = 1\nx.__class__ = 2\nvars(x)['z'] = 3\nx._replace()\n"
    kinds = sorted((one.line, one.kind) for one in _look_at("made.py", ast.parse(code), set()))
    private, assigned = "private part", "assignment"
    assert kinds == [(2, private), (3, private), (4, assigned), (5, assigned), (6, assigned)]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from 3.13 on a group takes its own cancellation back")
def test_the_private_parts_of_asyncio_exist():
    assert hasattr(asyncio.TaskGroup(), "_parent_cancel_requested"), "see core/execution/deadline.py"


def test_the_private_parts_of_mcp_exist():
    from mcp.client.auth import OAuthClientProvider
    from mcp.server.session import ServerSession

    assert inspect.iscoroutinefunction(OAuthClientProvider._perform_authorization), "see mcp/sdk_parts.py"
    assert inspect.isfunction(OAuthClientProvider._get_token_endpoint), "see mcp/sdk_parts.py"
    assert "_connection" in inspect.getsource(ServerSession.__init__), "see mcp/sdk_parts.py"


def test_the_private_parts_of_langchain_exist():
    from langchain_core.tools import BaseTool, StructuredTool

    assert inspect.isfunction(StructuredTool._to_args_and_kwargs), "see frameworks/langchain.py"
    assert inspect.iscoroutinefunction(BaseTool._arun), "see frameworks/langchain.py"


def test_the_private_parts_of_prompt_toolkit_exist():
    pytest.importorskip("prompt_toolkit")  # an extra
    from prompt_toolkit.application import Application
    from prompt_toolkit.renderer import Renderer

    assert inspect.isfunction(Application._on_resize), "see cli/terminal/input_line.py"
    assert "_cursor_pos" in inspect.getsource(Renderer.reset), "see cli/terminal/input_line.py"


class Touched(NamedTuple):
    file: str
    line: int
    kind: str
    name: str


MADE = re.compile(r'(?:def|class) (_\w+)|(?:self|cls)\.(_\w+)[^=\n]*=|^\s*(_\w+)\b[^=\n]*[:=]|^\s+"(_\w+)",$', re.M)
LIKELY = re.compile(
    r"\b(?!self|cls)\w+\)?\._[a-z]|etattr\(|__class__|vars\(|import.* _|\._\w+ import|^\s*(?!self)[\w.]+\.\w+ [+-]?= ",
    re.M,
)


@cache
def _census() -> list[Touched]:
    """Looks at the source of Forge by name alone: a private name that no class of ours has belongs to others."""
    source = Path(forge.__file__).parent
    texts = {str(path.relative_to(source)): path.read_text() for path in sorted(source.rglob("*.py"))}
    ours = {name for text in texts.values() for names in MADE.findall(text) for name in names if name}
    likely = {file: text for file, text in texts.items() if LIKELY.search(text)}  # to parse everything takes long
    return [one for file, text in likely.items() for one in _look_at(file, ast.parse(text), ours)]


def _look_at(file: str, tree: ast.AST, ours: set[str]) -> Iterator[Touched]:
    imported: set[str] = set()  # names of other packages
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {
                (one.asname or one.name).split(".")[0] for one in node.names if not one.name.startswith("forge")
            }
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in ("forge", "__future__"):
            imported |= {one.asname or one.name for one in node.names}
            for name in (f"{node.module}.{one.name}" for one in node.names):
                if any(map(_is_private, name.split("."))) and name not in DOCUMENTED:
                    yield Touched(file, node.lineno, "private part", name)
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_self(node.value):
            if node.attr not in DOCUMENTED and (node.attr not in ours or _root(node) in imported):
                yield Touched(file, node.lineno, "private part", node.attr)
        elif isinstance(node, ast.Call) and _root(node.func) in ("getattr", "setattr", "hasattr"):
            name = ast.unparse(node.args[1]).strip("'")
            if _is_private(name) and name.isidentifier() and name not in ours:
                yield Touched(file, node.lineno, "private part", name)
            if _root(node.func) == "setattr" and _root(node.args[0]) in imported - {"sys"}:
                yield Touched(file, node.lineno, "assignment", ast.unparse(node))
        elif isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if _is_foreign(target, imported):
                    yield Touched(file, node.lineno, "assignment", ast.unparse(target))


def _is_foreign(target: ast.expr, imported: set[str]) -> bool:
    """Returns whether an assignment changes an imported object, a class of an object, or attributes behind its back."""
    if isinstance(target, ast.Subscript):
        return ast.unparse(target.value).startswith("vars(") and ast.unparse(target.value) != "vars(self)"
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name | ast.Attribute):
        return False
    return target.attr == "__class__" or _root(target) in imported


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _is_self(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(called, ast.Name) and called.id in ("self", "cls", "super")


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_every_context_variable_is_in_the_table_with_who_sets_and_reads_it():
    source, text = Path(forge.__file__).parent, (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("**Context variables.**") : text.index("**Module-level state**")]
    found = {
        f"{path.relative_to(source).with_suffix('')}.{name}"
        for path in source.rglob("*.py")
        for name in re.findall(r"^(\w+): ContextVar\[", path.read_text(), re.M)
    }
    assert found
    assert found == set(re.findall(r"^\| `([a-z_/]+\.\w+)` \|", table, re.M))


CHANGES = {"add", "append", "clear", "discard", "insert", "pop", "popitem", "put", "remove", "setdefault", "update"}
HOLDERS = re.compile(r"^(set|deque|count|local|\w*Queue|\w+Dict|Weak\w+Dictionary|WeakSet|_?[A-Z]\w+)$")
NO_STATE = {"CDLL", "Lock", "MetaData", "RLock", "Table"}


def test_module_level_state_is_in_the_table():
    source = Path(forge.__file__).parent
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tables = text[text.index("**Module-level state**") : text.index("## Glossary")]
    named = set(re.findall(r"`([a-z_/]+\.\w+)`", tables)) - {"functools.cache"}
    found = {
        f"{path.relative_to(source).with_suffix('')}.{name}".replace("/__init__.", ".")
        for path in source.rglob("*.py")
        for name in _list_state(ast.parse(path.read_text()))
    }
    assert found == named


def test_the_census_finds_state_and_leaves_constants_alone():
    code = """
LIMIT, names, _lock, table = 3, ("a", "b"), threading.Lock(), sa.Table("t")
jobs, made, writers, current, HERE, clerk = {}, set(), WeakKeyDictionary(), None, {}, Clerk()
def change():
    global current
    current = jobs["a"] = HERE.setdefault("b", 1)
"""
    assert sorted(_list_state(ast.parse(code))) == ["HERE", "clerk", "current", "jobs", "made", "writers"]


def _list_state(tree: ast.Module) -> Iterator[str]:
    """Lists the names of a module that are bound again, hold something that changes, or are objects by a small name."""
    changed = {name for node in ast.walk(tree) for name in _list_changed(node)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for one, value in pairs:
                if isinstance(one, ast.Name) and (one.id in changed or _is_holder(one.id, value)):
                    yield one.id


def _list_changed(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Global):
        yield from (name for name in node.names if "lock" not in name)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        yield from (node.func.value.id,) if isinstance(node.func.value, ast.Name) else ()
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                yield target.value.id


def _is_holder(name: str, value: ast.expr) -> bool:
    made = ast.unparse(value.func).split("[")[0].split(".")[-1] if isinstance(value, ast.Call) else ""
    if not name.lstrip("_")[0].islower() or made in NO_STATE or made == "ContextVar":
        return False
    return bool(HOLDERS.match(made)) or ast.unparse(value) in ("{}", "[]")


def test_the_files_that_the_architecture_names_exist():
    folders = (ROOT / name for name in ("src", "tests", "benchmarks"))
    files = [f"/{path.relative_to(ROOT)}" for folder in folders for path in folder.rglob("*.*")]
    assert _list_missing((ROOT / "ARCHITECTURE.md").read_text(), files) == []


def test_a_file_that_does_not_exist_is_missed():
    files = ["/src/forge/core/tool.py", "/src/forge/core/execution/threads.py"]
    named = (
        "`core/tool.py` and `tool.py`, `core/execution/threads` and `core/execution/`, but `moved.py` and `core/gone`"
    )
    assert _list_missing(named, files) == ["moved.py", "core/gone"]


def _list_missing(text: str, files: list[str]) -> list[str]:
    """Lists the names of our files and folders in a text that no file has: `core/tool.py`, `tool.py`, `core/tool`."""
    named = [name.rstrip("/") for name in re.findall(r"`([a-z_/]+/[a-z_]*|[a-z_/]+\.py)`", text)]
    return [one for one in named if not any(_is_named(one.removesuffix(".py"), file) for file in files)]


def _is_named(name: str, file: str) -> bool:
    return file.endswith(f"/{name}.py") or f"/{name}/" in file
