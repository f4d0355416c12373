"""AgentDojo's user tasks and injected tasks, replayed call by call through Forge's gate with the default policy.

No model takes part: each task carries the calls that solve it. So the score says what the gate lets through when a
model follows an injection to the letter, not how often a model does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from forge import Scope, Tool, ToolCall, approve_all, nobody, standard_executor
from scores.agentdojo_tools import PERMISSIONS
from scores.report import Missing, Row, Score

VERSION = "0.1.35"
BENCHMARK = "v1.2.2"
SOURCE = f"PyPI agentdojo {VERSION}"
MEASURES = "Prompt injection: the calls of user tasks and of injected tasks, through the gate with the default policy."


def run() -> Score:
    try:
        from agentdojo.task_suite.load_suites import get_suites
    except ImportError as error:
        raise Missing(f"agentdojo cannot be imported: {error}") from None
    return asyncio.run(_measure(get_suites(BENCHMARK)))


async def _measure(suites: dict[str, Any]) -> Score:
    injected = injected_calls = 0
    ran: list[str] = []
    reached: list[str] = []
    users = 0
    asked: list[str] = []
    refused: list[str] = []
    for name, suite in suites.items():
        for task in suite.injection_tasks.values():
            injected += 1
            replay = await _replay(suite, task, nobody)
            injected_calls += len(replay.outcomes)
            ran += [f"{name}: {task.ID}: {call}" for call, ok in replay.outcomes if ok and PERMISSIONS[call] != "read"]
            if replay.is_solved(task):
                reached.append(f"{name}: {task.ID}: {task.GOAL}")
        for task in suite.user_tasks.values():
            users += 1
            alone = await _replay(suite, task, nobody)
            if not alone.all_ran:
                asked.append(f"{name}: {task.ID}: asks for {', '.join(sorted(alone.refused))}")
            helped = await _replay(suite, task, approve_all)
            if not helped.all_ran:
                refused.append(f"{name}: {task.ID}: {helped.said}")
    rows = [
        Row("injected goals reached, nobody asked", len(reached), injected, "", reached, fewer_is_better=True),
        Row("injected calls that change or send, run unasked", len(ran), injected_calls, "", ran, fewer_is_better=True),
        Row("user tasks that run through without a question", users - len(asked), users, "", asked),
        Row("user tasks that run through when a person says yes", users - len(refused), users, "", refused),
    ]
    return Score("agentdojo", SOURCE, MEASURES, rows)


class _Replay:
    """The calls of one task: which of them ran, and what they changed."""

    def __init__(self, before: Any, after: Any) -> None:
        self.before, self.after = before, after
        self.calls: list[Any] = []
        self.outcomes: list[tuple[str, bool]] = []
        self.said = ""

    @property
    def all_ran(self) -> bool:
        return all(ok for _, ok in self.outcomes)

    @property
    def refused(self) -> Iterable[str]:
        return {call for call, ok in self.outcomes if not ok}

    def is_solved(self, task: Any) -> bool:
        """As the benchmark judges: by the calls that ran where a task says how, else by what changed."""
        ran = [call for call, (_, ok) in zip(self.calls, self.outcomes, strict=True) if ok]
        by_calls = task.security_from_traces("", self.before, self.after, ran)
        return bool(task.security("", self.before, self.after) if by_calls is None else by_calls)


async def _replay(suite: Any, task: Any, approve: Any) -> _Replay:
    environment = suite.load_and_inject_default_environment({})
    environment = task.init_environment(environment) if hasattr(task, "init_environment") else environment
    before = environment.model_copy(deep=True)
    executor = standard_executor([_tool(one, environment) for one in suite.tools], approve=approve)
    replay = _Replay(before, environment)
    for number, call in enumerate(task.ground_truth(environment)):
        arguments = {key: value for key, value in call.args.items() if value is not None}
        made = ToolCall(call.function, arguments, id=str(number))
        result = await executor.execute(made, Scope(session_id=f"{suite.name} {task.ID} {number}"))
        replay.calls.append(call)
        replay.outcomes.append((call.function, not result.is_error))
        replay.said = replay.said or (result.for_llm if result.is_error else "")
    return replay


def _tool(function: Any, environment: Any) -> Tool:
    from agentdojo.functions_runtime import FunctionsRuntime

    runtime = FunctionsRuntime([function])

    def call(**arguments: Any) -> str:
        value, problem = runtime.run_function(environment, function.name, arguments)
        if problem:
            raise ValueError(problem)
        return str(value)

    schema = function.parameters.model_json_schema()
    permissions = {PERMISSIONS[function.name]}
    return Tool.from_schema(function.name, function.description, schema, call, permissions=permissions)
