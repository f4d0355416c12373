"""`forge policy explain`, `forge policy test` and the run decide alike: one function decides in all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forge import Agent, Answer, PermissionRequest, Scope, Tool, ToolContext, rules, tool
from forge.core.errors import ToolError
from forge.permissions.policy import Rules, explain_call
from forge.permissions.questions import strictest
from forge.tools.bash import Bash, guard
from tests.permissions.test_shell_against_bash import AROUND, BEFORE, JOINTS, NAMES, WORDS
from tests.permissions.test_shell_destructive import DESTRUCTIVE, FINE
from tests.permissions.test_shell_read_only_git import READING

READS = ["ls", "ls -la src", "cat a.txt", "cat secret/key", "cat *.txt", "head -1 a.txt | wc -l", "grep -rn x .", "pwd"]
CORPUS = [*READS, *READING, *FINE, *DESTRUCTIVE]
RULES = [
    "ask execute *",
    "allow execute *",
    "deny execute *",
    "ask execute",
    "allow execute ls *",
    "deny execute ls *",
    "ask execute cat *",
    "allow execute git *",
    "deny execute git push *",
    "deny execute rm *",
    "ask execute rm *",
    "allow execute rm -rf build",
    "allow read",
    "ask read",
    "deny read",
    "deny read secret/**",
    "deny read *.txt",
    "ask read secret/key",
    "allow tool:bash",
    "ask tool:bash",
    "deny tool:bash",
    "deny write **",
    "allow network",
]


class JudgedBash(Bash, name="bash"):
    """Everything of `bash` that decides, and nothing that runs."""

    async def run(  # type: ignore[override]
        self,
        ctx: ToolContext,
        command: str,
        description: str = "",
        timeout: float = 60.0,
        working_dir: str = "",
        background: bool = False,
        stdin: str = "",
    ) -> str:
        await guard.recheck_permission(ctx, "auto")
        return "ran"


class Refusing:
    """Says no, and notes the questions."""

    def __init__(self) -> None:
        self.asked: list[PermissionRequest] = []

    async def __call__(self, request: PermissionRequest) -> Answer:
        self.asked.append(request)
        return Answer.NO


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "secret").mkdir()
    (folder / "src").mkdir()
    for name in ("a.txt", "secret/key", "src/a.py"):
        (folder / name).write_text("x\n")
    return folder


def run_decision(policy: Rules, made: Tool, arguments: dict[str, Any], scope: Scope) -> str:
    person = Refusing()
    agent = Agent(None, tools=[made], policy=policy, approve=person, scope=scope, trial="off")
    result = asyncio.run(agent.call(made.spec.name, arguments))
    assert len(person.asked) <= 1, "one question"
    assert all(request.editable for request in person.asked), "nothing has run yet"
    if person.asked:
        return "ask"
    if result.failure is None:
        return "allow"
    assert result.failure.kind in ("permission_error", "security_error"), result.for_llm
    return "deny"


def explained(policy: Rules, made: Tool, arguments: dict[str, Any], scope: Scope) -> str:
    wants = explain_call(policy, made, made.parse(arguments), scope)
    found = strictest(one.ruling for one in wants if not one.optional)
    assert found is not None
    return str(found.decision)


POLICIES: list[list[str]] = [
    [],
    ["ask execute *"],
    ["allow read", "ask execute *", "deny read secret/**"],
    ["allow execute *", "deny execute rm *"],
    ["deny execute", "allow execute git *", "allow execute ls *"],
    ["deny read *.txt"],
]


SLOW = [pytest.param(lines, marks=pytest.mark.slow) for lines in POLICIES[2:]]


@pytest.mark.parametrize("lines", [*POLICIES[:2], *SLOW], ids=lambda lines: "; ".join(lines) or "defaults")
def test_the_run_does_what_explain_says_of_every_line_of_the_corpus(place: Path, lines: list[str]) -> None:
    made, scope, policy = JudgedBash(), Scope(session_id="s", workspace=place), rules(*lines)
    differ = []
    for line in CORPUS:
        said, done = (judge(policy, made, {"command": line}, scope) for judge in (explained, run_decision))
        if said != done:
            differ.append((line, said, done))
    assert not differ


@pytest.mark.parametrize("lines", POLICIES[:3], ids=lambda lines: "; ".join(lines) or "defaults")
def test_policy_test_says_what_explain_says(here: Any, workspace: Path, lines: list[str]) -> None:
    (workspace / "p.rules").write_text("\n".join(lines) or "# none\n")
    for name in ("secret", "src"):
        (workspace / name).mkdir()
    (workspace / "a.txt").write_text("x\n")
    (workspace / "secret" / "key").write_text("x\n")
    corpus = [*READS, *READING, *CORPUS[20::9]]
    examples = [{"tool": "bash", "arguments": {"command": line}, "expect": "allow"} for line in corpus]
    (workspace / "e.yaml").write_text(json.dumps(examples))
    tested = here("policy", "test", "e.yaml", "--json", "--policy", "p.rules").json["examples"]
    scope, policy = Scope(session_id="s", workspace=workspace), rules(*lines)
    told = {line: explained(policy, JudgedBash(), {"command": line}, scope) for line in corpus}
    assert {one["arguments"]["command"]: one["decision"] for one in tested} == told
    for line in READS[:3]:  # the command itself, and the call
        sent = json.dumps({"command": line})
        assert here("policy", "explain", "bash", sent, "--json", "--policy", "p.rules").json["decision"] == told[line]
        called = here("tool", "call", "bash", sent, "--policy", "p.rules")
        assert (called.code == 0) is (told[line] == "allow"), called.err


def _join(parts: Sequence[str]) -> str:
    return "".join(parts)


_COMMANDS = st.tuples(
    st.sampled_from(BEFORE), st.sampled_from([*NAMES, "ls", "cat", "git"]), st.sampled_from(WORDS)
).map(lambda one: f"{one[0]}{one[1]} {one[2]}")
LINES = st.one_of(
    st.sampled_from(CORPUS),
    _COMMANDS,
    st.tuples(_COMMANDS, st.sampled_from(JOINTS), st.sampled_from(READS)).map(_join),
    st.tuples(st.sampled_from(AROUND), _COMMANDS).map(lambda one: one[0].format(one[1]) if "{}" in one[0] else one[1]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.sampled_from(RULES), max_size=5), command=LINES)
def test_the_run_does_what_explain_says_under_any_rules(place: Path, lines: list[str], command: str) -> None:
    made, scope, policy = JudgedBash(), Scope(session_id="s", workspace=place), rules(*lines)
    try:
        made.parse({"command": command})
    except ToolError:
        return
    assert explained(policy, made, {"command": command}, scope) == run_decision(
        policy, made, {"command": command}, scope
    )


VALUES = [
    "a.txt",
    "secret/key",
    "src",
    "../x",
    "/etc/passwd",
    ".git/config",
    "api.example.com",
    "https://a.example/",
    "rm x",
]
TARGETS = [*VALUES, 7, 7.5, True, ["a.txt", 7], [["x"]], {"a": 1}, None]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    declared=st.sets(st.sampled_from(["read", "write", "execute", "network"]), max_size=2),
    later=st.sets(st.sampled_from(["read", "write", "execute", "network"]), max_size=1),
    confirm=st.booleans(),
    value=st.sampled_from(TARGETS),
    lines=st.lists(
        st.tuples(
            st.sampled_from(["allow ", "ask ", "deny "]),
            st.sampled_from(["read", "write", "execute", "network", "*", "tool:act"]),
            st.sampled_from(["", " *", " 7", " true", " a.txt", " secret", " rm"]),
        ).map(_join),
        max_size=4,
    ),
)
def test_every_tool_is_judged_alike(
    place: Path, declared: set[Any], later: set[Any], confirm: bool, value: Any, lines: list[str]
) -> None:
    @tool(permissions=declared, optional_permissions=later, confirm=confirm, target="thing")
    def act(thing: Any = None) -> str:
        """Act."""
        return "done"

    scope, policy = Scope(session_id="s", workspace=place), rules(*lines)
    assert explained(policy, act, {"thing": value}, scope) == run_decision(policy, act, {"thing": value}, scope)


def test_a_rule_about_execute_covers_lines_that_only_read_in_a_coding_project(here: Any, workspace: Path) -> None:
    """`explain` said `allow read`, and the call was refused by `ask execute`."""
    assert here("init", "--template", "coding").code == 0
    (workspace / "p.rules").write_text("ask execute\n")
    asks = ("--policy", "p.rules")
    sent = json.dumps({"command": "ls"})
    said = here("policy", "explain", "bash", sent, "--json", *asks).json
    assert said["decision"] == "ask"
    assert [one["permission"] for one in said["rulings"] if not one["optional"]] == ["read", "execute"]
    assert here("tool", "call", "bash", sent, *asks).code != 0
    assert here("tool", "call", "bash", sent, "--yes", *asks).code == 0
    assert here("tool", "call", "bash", sent).code == 0  # the template has no such rule


def test_a_call_that_the_tool_itself_refuses_is_a_deny(here: Any, workspace: Path) -> None:
    (workspace / "e.yaml").write_text(
        "- {tool: bash, arguments: {command: rm -rf /}, expect: deny}\n"
        "- {tool: bash, arguments: {command: rm -rf build}, expect: ask}\n"
    )
    ended = here("policy", "test", "e.yaml")
    assert (ended.code, ended.out) == (0, "2 examples, all as expected.\n"), ended.err
    sent = json.dumps({"command": "rm -rf /"})
    assert here("policy", "explain", "bash", sent, "--json").json["decision"] == "deny"
