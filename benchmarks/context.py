"""Input tokens of a coding session of 50 turns, with and without shortened results, and what a cache can answer.

The model is scripted, the tools and the repository are real: a copy of `src/forge/agent` and `src/forge/core`, in
which eight small changes are made. Each request is counted as it is sent. Money is in tokens at the price of a fresh
one: a token that the provider's cache answers costs a tenth, one that is written to it a quarter more.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import Measure
from forge import Agent, ContextRules, Limits, Message, Scope, ToolCall, rules, tool_group
from forge.agent.tokens import estimate, estimate_message
from forge.events import TextDelta
from forge.models import ModelRequest
from forge.tools.bash import Bash

SOURCE = Path(__file__).parent.parent / "src" / "forge"
TURNS = 50
CACHED, WRITTEN = 0.1, 1.25
NEVER = ContextRules(refer_to_repeats=False, clear_outputs=0)
INSTRUCTIONS = "You change code in the current directory. Look before you change, and check what you did."


class Session(NamedTuple):
    """What a session sent: tokens of all requests, the share that a cache answers, and what the tokens cost."""

    tokens: int
    cached: float
    cost: float
    longest: int


class Coder:
    """A model that follows a list of calls, and counts what it is sent."""

    def __init__(self, turns: list[list[ToolCall]]) -> None:
        self.turns = iter(turns)
        self.tokens = self.cached = self.longest = 0
        self.before: list[Message] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        counts = [estimate_message(message) for message in request.messages]
        definitions = estimate(json.dumps(request.definitions("openai")))
        same = definitions if self.before else 0
        for earlier, now, count in zip(self.before, request.messages, counts, strict=False):
            if earlier is not now and earlier != now:
                break
            same += count
        self.tokens += definitions + sum(counts)
        self.cached += same
        self.longest = max(self.longest, definitions + sum(counts))
        self.before = list(request.messages)
        calls = next(self.turns, [])
        yield Message("assistant", "Next." if calls else "Done.", tuple(calls))


def plan(workspace: Path) -> list[list[ToolCall]]:
    """Returns 50 turns: an overview, then eight changes, each with its search, reading, edit, diff and check."""
    turns = [
        [ToolCall("directory_tree", {"path": "."})],
        [ToolCall("bash", {"command": "git log --stat | head -80; wc -l */*.py"})],
    ]
    files = ("loop", "agent", "session", "summary", "tokens", "subagent", "labels", "limits")
    for number, name in enumerate(files):
        path = f"agent/{name}.py"
        first = (workspace / path).read_text().splitlines()[0]
        other = f"agent/{files[number - 1]}.py"
        reads = [ToolCall("file_read", {"path": path}), ToolCall("file_read", {"path": "core/messages.py"})]
        turns += [
            [ToolCall("grep_search", {"pattern": f"agent.{name} import|def .*{name}", "path": "."})],
            reads if number % 2 else reads[:1],  # messages.py is read again now and then, unchanged
            [
                ToolCall("file_read", {"path": other}),
                ToolCall("bash", {"command": f"grep -rn '{name}' core | head -40"}),
            ],
            [ToolCall("file_edit", {"path": path, "old_text": first, "new_text": f'{first[:-3]} Checked."""'})],
            [ToolCall("bash", {"command": f"git diff --stat; git diff -U20 {path}"})],
            [ToolCall("bash", {"command": "python3 -m compileall -q agent core && git status --short; wc -l */*.py"})],
        ]
    return turns[: TURNS - 1]


async def session(rules_of_context: ContextRules) -> Session:
    """Runs the session in its own copy of the repository."""
    with tempfile.TemporaryDirectory(prefix="forge-context-") as folder:
        workspace = Path(folder).resolve()
        for name in ("agent", "core"):
            shutil.copytree(SOURCE / name, workspace / name, ignore=shutil.ignore_patterns("__pycache__"))
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "The beginning"]):
            subprocess.run([*git, *command], cwd=workspace, check=True)
        model = Coder(plan(workspace))
        agent = Agent(
            model,
            tools=[*tool_group("code-agent"), Bash()],
            instructions=INSTRUCTIONS,
            policy=rules("allow *"),
            limits=Limits(turns=TURNS, calls=0),
            scope=Scope(workspace=workspace),
            context=rules_of_context,
        )
        result = await agent.run("Note in eight modules that they were checked.")
        assert (result.reason, result.turns) == ("answer", TURNS), result
        failed = [message.text for message in result.messages if message.is_error]
        assert not failed, failed
        cost = model.cached * CACHED + (model.tokens - model.cached) * WRITTEN
        return Session(model.tokens, model.cached / model.tokens, cost, model.longest)


async def measures() -> list[Measure]:
    before, repeats, after = [await session(one) for one in (NEVER, ContextRules(clear_outputs=0), ContextRules())]
    found = [
        Measure("context: input tokens, repeats referred to", "all sent", before.tokens, repeats.tokens, "", 1.0),
        Measure("context: input tokens, old outputs cleared, too", "all sent", before.tokens, after.tokens, "", 0.7),
        Measure("context: the same in money, with a cache", "all sent", before.cost, after.cost, "", 1.0),
        Measure("context: the longest request", "all sent", before.longest, after.longest, "", 0.7),
    ]
    shares = (("all sent", before), ("repeats referred to", repeats), ("old outputs cleared, too", after))
    for name, one in shares:
        found.append(Measure(f"context: read from the cache, {name}", "", 0.0, 100 * one.cached, "%", None))
    return found
