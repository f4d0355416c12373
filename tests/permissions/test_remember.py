""" "Always" covers exactly this path, host, command prefix or set of arguments."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.spec import Permission
from forge.permissions.policy import PermissionRequest
from forge.permissions.remember import fingerprint, make_memory
from tests.permissions.judging import NOWHERE, spec_of


def covers(permission: str, approved: str, later: str, workspace: Path = NOWHERE) -> bool:
    spec = spec_of("tool_a", permission)
    keys = [
        make_memory(spec, Permission(permission), target, {"x": target}, Scope(workspace=workspace)).key
        for target in (approved, later)
    ]
    return keys[0] == keys[1] and bool(keys[0])


@pytest.mark.parametrize(
    ("approved", "later", "covered"),
    [
        ("git log -5", "git log --oneline src", True),
        ("git log", "git  log -p", True),
        ("git log", "git push", False),
        ("git log", "git", False),
        ("git log", "git log; rm x", False),
        ("git log", "git log | sh", False),
        ("git log", "git log $(x)", False),
        ("git log", "sudo git log", False),
        ("git log", "git log --output=/etc/x", False),
        ("git log", "git log --ext-diff", False),
        ("git grep a", "git grep -Osh a", False),
        ("git grep a", "git grep -nOsh a", False),
        ("git grep a", "git grep -n b", True),
        ("git log", "git log --outp=/etc/x", False),
        ("git log", 'git log --out"put=/etc/x"', False),
        ("git log", "git log --grep='a b'", True),
        ("git log", "git log --oneline", True),
        ("docker ps", "docker ps -a", True),
        ("docker container ls", "docker container ls -a", True),
        ("docker container ls", "docker container rm x", False),
        ("docker container ls", "docker container exec x sh", False),
        ("kubectl config view", "kubectl config view --minify", True),
        ("kubectl config view", "kubectl config set a b", False),
        ("kubectl get pods", "kubectl get pods --kubeconfig=evil", False),
        ("pip list", "pip list --python=./evil", False),
        ("gh pr list", "gh pr list --state all", True),
        ("gh pr list", "gh pr merge 1", False),
        ("git -c a.b=c log", "git log", False),
        ("git -c a.b=c log", "git -c a.b=evil log", False),
        ("npm test", "npm test -- -x", False),
        ("npm test", "npm test a", False),
        ("npm ls", "npm ls --all", True),
        ("npm run build", "npm run evil", False),
        ("ls -la src", "ls", True),
        ("ls", "ls; rm x", False),
        ("git log a && git log b", "git log a && git log b", True),
        ("git log a && git log b", "git log a && git log c", False),
        ("rm tmp.txt", "rm tmp.txt", True),
        ("rm tmp.txt", "rm tmp.txt -rf /", False),
        ("cat *.py", "cat a.py", False),
    ],
)
def test_a_simple_command_is_remembered_by_its_first_words(approved, later, covered):
    assert covers("execute", approved, later) is covered


@pytest.mark.parametrize(
    "program",
    "python python3 python3.12 node deno bun bash sh zsh perl ruby php lua env sudo doas xargs npx uvx make just find"
    " ssh awk sed tar curl vim gdb docker-compose my_script ./ls /tmp/git unknown_program".split(),
)
def test_no_interpreter_wrapper_or_unknown_program_is_remembered_by_its_name(program):
    assert not covers("execute", f"{program} a", f"{program} b")
    assert not covers("execute", f"{program} run a", f"{program} run b")
    assert covers("execute", f"{program} a", f"{program} a")


@pytest.mark.parametrize(
    "line",
    [
        "docker compose up",
        "docker compose ps",
        "docker build .",
        "docker container exec a",
        "uv pip list",
        "uv sync",
        "npm test",
        "npm ci",
        "npm run",
        "npm install",
        "cargo test",
        "cargo build",
        "cargo tree",
        "go test",
        "go generate",
        "go list",
        "go build",
        "systemctl edit a",
        "systemctl restart a",
        "gh api /",
        "gh extension exec",
        "helm plugin install",
        "helm template a",
        "make a",
        "gradle a",
        "mvn a",
        "yarn list",
        "brew info a",
        "git commit -m",
        "git push",
        "git checkout a",
        "git fetch a",
        "kubectl exec a",
        "poetry show",
        "apt list",
        "dotnet test",
        "uv run a",
        "docker run a",
        "docker exec a",
        "npm exec a",
        "go run a",
        "git config a",
        "cargo run",
        "pip install a",
    ],
)
def test_no_subcommand_that_runs_code_is_remembered_by_its_name(line):
    assert not covers("execute", line, f"{line} evil")


def test_a_path_is_remembered_with_all_its_spellings_and_nothing_beside_it(tmp_path):
    assert covers("write", "src/a.py", "./src/a.py")
    assert covers("write", "src/a.py", f"{NOWHERE}/src/a.py")
    assert not covers("write", "src/a.py", "src/b.py")
    assert not covers("write", "src/a.py", "src")
    assert not covers("write", "src", "src/a.py")
    assert not covers("write", "src/*.py", "src/a.py")
    (tmp_path / "link").symlink_to("a")
    assert not covers("write", "a", "link", tmp_path)


def test_a_path_whose_link_changed_is_another(tmp_path):
    def key():
        spec = spec_of("tool_a", "write")
        return make_memory(spec, Permission.WRITE, "x", {}, Scope(workspace=tmp_path)).key

    before = key()
    assert key() == before
    (tmp_path / "x").symlink_to("/etc/passwd")
    assert key() != before


def test_a_host_is_remembered_with_its_port():
    assert covers("network", "https://api.example.com/a", "https://API.example.com./b?c")
    assert covers("network", "https://api.example.com:8443/a", "https://api.example.com:8443/b")
    assert not covers("network", "https://api.example.com/a", "https://api.example.com:22/")
    assert not covers("network", "https://api.example.com/a", "https://evil.org/")
    assert not covers("network", "https://api.example.com/a", "https://api.example.com@evil.org/")
    assert not covers("network", "https://a\\@b/1", "https://a\\@b/2")
    assert covers("network", "https://api.example.com/a", "http://api.example.com/b")
    assert not covers("network", "https://api.example.com/a", "ftp://api.example.com/a")
    assert covers("network", "ftp://api.example.com/a", "ftp://api.example.com/a")


@pytest.mark.parametrize(
    ("permission", "target", "rule"),
    [
        ("execute", "git log -5", "allow execute git log *"),
        ("execute", "ls -la", "allow execute ls *"),
        ("execute", "python x.py", "allow execute python x.py"),
        ("execute", "cat *.py", "allow execute cat [*].py"),
        ("write", "src/a.py", "allow write src/a.py"),
        ("write", "a[1].py", "allow write a[[]1].py"),
        ("network", "https://api.example.com/v1", "allow network api.example.com"),
        ("network", "http://[::1]:8080/", "allow network [::1]:8080"),
        ("execute", "", "allow tool:tool_a with exactly these arguments"),
        (None, "x", "allow tool:tool_a with exactly these arguments"),
    ],
)
def test_the_person_is_told_what_would_be_remembered(permission, target, rule):
    wanted = Permission(permission) if permission else None
    spec = spec_of("tool_a", *([permission] if permission else []))
    request = PermissionRequest(spec, ToolCall("tool_a"), {}, wanted, target, Scope(workspace=NOWHERE))
    assert request.remember == rule


def test_what_a_tool_wants_confirmed_is_remembered_for_the_same_arguments_only():
    spec = spec_of("deploy", "execute", confirm=True)
    scope = Scope(workspace=NOWHERE)
    one, same, other = (
        make_memory(spec, Permission.EXECUTE, "ls", {"service": "a", "dry": dry}, scope).key
        for dry in (True, True, False)
    )
    assert one == same != other


def test_a_memory_belongs_to_one_tool_and_permission():
    scope = Scope(workspace=NOWHERE)
    keys = {
        make_memory(spec_of(name, "read", "write"), permission, "a", {}, scope).key
        for name in ("tool_a", "tool_b")
        for permission in (Permission.READ, Permission.WRITE)
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": "x"}, {"b": "x"}),
        ({"a": "x"}, {"a": "x "}),
        ({"a": float("nan")}, {"a": "NaN"}),
        ({"a": object()}, {"a": object()}),
    ],
)
def test_different_arguments_have_different_fingerprints(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_equal_arguments_have_equal_fingerprints():
    values: dict[str, Any] = {"a": 1, "b": {"c": [Path("x"), datetime.date(2026, 1, 1)], "d": b"\xff"}, "e": "\ud800"}
    assert fingerprint(values) == fingerprint(dict(reversed(values.items()))) != ""


def test_arguments_without_a_text_are_never_remembered():
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    assert fingerprint(cyclic) == ""
    assert not make_memory(spec_of("tool_a"), None, "", cyclic, Scope(workspace=NOWHERE)).key
