"""The tools as an agent calls them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import replace

import jsonschema_rs
import pytest

from forge import Scope, ToolCall, rules
from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.memory.tools import MemorySearch, memory_tools
from forge.permissions.questions import Answer
from forge.pipeline import standard_executor
from tests.memory.remembering import memory_in, note

ALLOWED = rules("allow read", "allow write")
STRANGE = [
    " ",
    "a\0b",
    "\ud800",
    "👩‍👩‍👧‍👦",
    "x" * 1_000_000,
    "\n" * 1_000_000,
    "../../etc/passwd",
    "%s{0}",
    "9" * 5_000,
]


@pytest.fixture
def project(tmp_path):
    """`project.call("memory_get", path=…)`."""

    class Project:
        memory = memory_in(tmp_path)
        scope = Scope(session_id="test", workspace=tmp_path)
        turn = 0

        def call(self, name, policy=ALLOWED, secrets=(), approve=None, **arguments):
            more = {"approve": approve} if approve else {}
            executor = standard_executor(memory_tools(self.memory), policy=policy, secrets=secrets, **more)
            self.turn += 1
            return asyncio.run(executor.execute(ToolCall(name, arguments), self.scope.in_turn(str(self.turn))))

    return Project()


def test_what_was_written_is_found_and_read(project):
    written = project.call("memory_write", content="The person likes tea.")
    assert written.data == {"source": "2026-11-20.md", "line_start": 1, "line_end": 3}
    found = project.call("memory_search", query="tea?")
    assert found.data["results"] == [
        {
            "text": "## 14:05\n\nThe person likes tea.",
            "source": "2026-11-20.md",
            "line_start": 1,
            "line_end": 3,
            "score": 1.0,
        }
    ]
    assert "2026-11-20.md:1-3" in found.for_llm
    assert "likes tea" in found.for_llm
    read = project.call("memory_get", path=found.data["results"][0]["source"])
    assert read.for_llm == read.data["content"] == "## 14:05\n\nThe person likes tea.\n"


def test_nothing_found_is_an_answer(project):
    assert project.call("memory_search", query="x").data == {"results": []}
    note(project.memory, "MEMORY.md", "something")
    result = project.call("memory_search", query="other")
    assert result.success
    assert result.for_llm.startswith("Nothing was found")


def test_as_many_are_given_as_are_wanted(project):
    for number in range(12):
        note(project.memory, f"{number}.md", f"tea {number}")
    assert len(project.call("memory_search", query="tea").data["results"]) == 5
    assert len(project.call("memory_search", query="tea", max_results=10).data["results"]) == 10
    own = standard_executor([MemorySearch(project.memory, max_results=2)])
    result = asyncio.run(own.execute(ToolCall("memory_search", {"query": "tea"}), project.scope))
    assert len(result.data["results"]) == 2


def test_reading_is_free_and_writing_asks(project):
    note(project.memory, "MEMORY.md", "here")
    assert project.call("memory_search", policy=rules(), query="here").success
    assert project.call("memory_get", policy=rules(), path="MEMORY.md").success
    for target in ("today", "memory"):
        refused = project.call("memory_write", policy=rules(), content="x", target=target)
        assert refused.failure is not None
        assert refused.failure.kind == "permission_error"
    assert project.memory.names() == ["MEMORY.md"]


def test_a_rule_can_allow_the_daily_note_alone(project):
    policy = rules("allow tool:memory_write today")
    assert project.call("memory_write", policy=policy, content="x").success
    assert not project.call("memory_write", policy=policy, content="x", target="memory").success
    assert project.memory.names() == ["2026-11-20.md"]


def test_who_is_asked_sees_what_would_be_written(project):
    seen = []

    async def approve(request):
        seen.append(request.preview)
        return Answer.ONCE

    note(project.memory, "MEMORY.md", "one\n")
    assert project.call("memory_write", policy=rules(), approve=approve, content="two", target="memory").success
    assert "+++ b/.forge/memory/MEMORY.md" in seen[0] or "+++ .forge/memory/MEMORY.md" in seen[0]
    assert "+two" in seen[0]
    assert project.memory.read("MEMORY.md") == "one\n\ntwo\n"


def test_a_rule_can_deny_reading_notes(project):
    note(project.memory, "MEMORY.md", "here")
    refused = project.call("memory_get", policy=rules("allow read", "deny read .forge/**"), path="MEMORY.md")
    assert refused.failure is not None
    assert "here" not in refused.for_llm


@pytest.mark.parametrize(
    "content",
    [
        "the key is hunter2hunter2",
        "one\ntwo hunter2hunter2",
        "token: abcdefgh12345678",
        "sk-abcdefghijklmnopqrstuv",
        "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
        "https://user:pa55word@example.com",
    ],
)
@pytest.mark.parametrize("target", ["today", "memory"])
def test_a_secret_is_not_written(project, content, target):
    refused = project.call("memory_write", secrets=["hunter2hunter2"], content=content, target=target)
    assert refused.failure is not None
    assert refused.failure.kind == "security_error"
    assert "hunter2" not in refused.failure.message
    assert project.memory.names() == []


def test_who_is_asked_is_not_asked_about_a_secret(project):
    async def approve(request):
        raise AssertionError("asked")

    refused = project.call("memory_write", policy=rules(), approve=approve, content="token: abcdefgh12345678")
    assert refused.failure is not None
    assert refused.failure.kind == "security_error"


def test_words_about_secrets_are_written(project):
    assert project.call("memory_write", content="The password is in the vault; the token is [secret].").success


@pytest.mark.parametrize("content", ["", "  \n ", "x" * 20_001, "half \ud800"])
def test_what_cannot_be_noted_is_explained(project, content):
    refused = project.call("memory_write", content=content)
    assert refused.failure is not None
    assert refused.failure.kind == "validation_error"
    assert project.memory.names() == []


def test_writing_that_is_switched_off_is_refused(project):
    project.scope = replace(project.scope, writes=False)
    refused = project.call("memory_write", content="x")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"


@pytest.mark.parametrize("path", ["../state.db", "/etc/passwd", "../../secret.md"])
def test_nothing_outside_is_read(project, path):
    project.call("memory_write", content="x")
    refused = project.call("memory_get", path=path)
    assert refused.failure is not None
    assert refused.failure.kind == "security_error"


@pytest.mark.parametrize("name", ["memory_search", "memory_get", "memory_write"])
def test_it_keeps_the_contract_of_every_tool(project, name):
    spec = ToolRegistry(memory_tools(project.memory))[name].spec
    assert spec.category is Category.BUILTIN
    assert spec.permissions == ({"write"} if name == "memory_write" else {"read"})
    assert 8 <= len(re.findall(r"\w+", spec.description)) <= 40
    assert spec.description.endswith(".")
    jsonschema_rs.meta.validate(dict(spec.parameters))
    assert spec.parameters["additionalProperties"] is False
    assert set(spec.targets) <= set(spec.parameters["properties"])
    required = spec.parameters["required"]
    for parameter in required:
        for text in STRANGE:
            result = project.call(name, **{parameter: text})
            assert result.for_llm
            assert result.failure is None or result.failure.kind != "system_error", result.for_llm[:300]


def test_listing_the_tools_imports_nothing_heavy(tmp_path):
    code = (
        "import sys, pathlib; from forge.memory.tools import memory_tools; from forge.memory.memory import Memory\n"
        "from forge.core.registry import ToolRegistry\n"
        "ToolRegistry(memory_tools(Memory(pathlib.Path(sys.argv[1])))).summaries()\n"
        "heavy = 'asyncio pydantic sqlite3 numpy ctypes hashlib'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
