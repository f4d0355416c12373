"""One suite over every source of tools: whatever a tool is made of, the same gate, limits and events hold for it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from forge import Answer, Egress, PermissionRequest, Scope, Secrets, Tool, ToolRegistry, audit_log, rules
from forge.core.errors import ErrorKind
from forge.events import ActivityStream
from forge.pipeline import ToolExecutor, standard_executor
from tests.conformance.every_source import SOURCES, Source, opened

HERE = Egress(private=("127.0.0.1",))
SECRET = "s3cr3t-value-of-a-key"


class Bench:
    """A source behind the standard steps."""

    def __init__(self, source: Source, executor: ToolExecutor, scope: Scope) -> None:
        self.source = source
        self.executor = executor
        self.scope = scope
        self.turn = 0

    async def say(self, text: str, **more: Any) -> Any:
        self.turn += 1
        turn = replace(self.scope, message_id=str(self.turn))
        return await self.executor.execute(self.source.call(text=text, **more), turn)


Opening = Callable[..., Any]


@pytest.fixture(params=SOURCES, ids=[source.__name__ for source in SOURCES])
def bench(request, tmp_path) -> Opening:
    @asynccontextmanager
    async def opening(*lines: str, timeout: float | None = None, **more: Any) -> AsyncIterator[Bench]:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(request.param(tmp_path))
            tools = [_limited(tool, timeout) for tool in await opened(source, stack)]
            secrets = Secrets([SECRET])
            activity = more.pop("activity", None) or ActivityStream(secrets)
            executor = standard_executor(
                ToolRegistry(tools),
                policy=rules(*lines),
                activity=activity,
                secrets=secrets,
                egress=HERE,
                trial="off",  # a script would run first, and its effects would be asked about
                **more,
            )
            yield Bench(source, executor, Scope(workspace=tmp_path, session_id="s"))

    return opening


def _limited(tool: Tool, timeout: float | None) -> Tool:
    if timeout is None:
        return tool
    own = copy.copy(tool)
    own.spec = tool.spec.changed(timeout=timeout)
    return own


async def test_without_a_rule_nothing_runs_and_with_one_it_does(bench):
    async with bench() as made:
        refused = await made.say("hello")
        assert refused.failure.kind is ErrorKind.PERMISSION
        assert "there is no one to ask" in refused.failure.message
    async with bench("allow *") as made:
        answered = await made.say("hello")
        assert answered.success, answered.for_llm
        assert "hello" in answered.for_llm


async def test_a_deny_holds_whoever_says_yes(bench):
    async def yes(request: PermissionRequest) -> Answer:
        return Answer.ONCE

    async with bench("allow *", "deny tool:*say*", "deny tool:*_call", approve=yes) as made:
        refused = await made.say("hello")
        assert refused.failure.kind is ErrorKind.PERMISSION
        assert "denied" in refused.failure.message
    async with bench("allow *", "deny tool:other", approve=yes) as made:
        assert (await made.say("hello")).success


async def test_a_person_sees_what_will_run_and_their_answer_counts(bench):
    asked: list[PermissionRequest] = []

    async def person(request: PermissionRequest) -> Answer:
        asked.append(request)
        return Answer.no("not now") if len(asked) == 1 else Answer.ONCE

    async with bench(approve=person) as made:
        refused = await made.say("hello")
        assert "not now" in refused.failure.message
        assert (await made.say("hello")).success
    assert len(asked) >= 2  # a call that has to start a server first is two questions
    assert "hello" in json.dumps(dict(asked[0].arguments), default=dict)


async def test_what_a_person_writes_instead_is_what_runs(bench):
    async def person(request: PermissionRequest) -> Answer:
        changed = json.loads(json.dumps(dict(request.arguments), default=dict).replace("hello", "good day"))
        return Answer.edit(changed)

    async with bench(approve=person) as made:
        answered = await made.say("hello")
        assert answered.success, answered.for_llm
        assert "good day" in answered.for_llm
        assert "hello" not in answered.for_llm


async def test_secrets_are_masked_in_results_and_events(bench):
    activity = ActivityStream(Secrets([SECRET]))
    events: list[Any] = []
    activity.subscribe(lambda event: events.append(json.dumps(event.to_dict())), "*")
    async with bench("allow *", activity=activity) as made:
        answered = await made.say(f"the key is {SECRET}.")
        assert answered.success, answered.for_llm
    assert SECRET not in json.dumps(answered.to_dict())
    assert "the key is" in answered.for_llm
    assert events
    assert SECRET not in "".join(events)


async def test_time_is_bounded(bench):
    async with bench("allow *", timeout=0.4) as made:
        started = asyncio.get_running_loop().time()
        late = await made.say("hello", seconds=100)
        assert late.failure.kind is ErrorKind.TIMEOUT
        assert asyncio.get_running_loop().time() - started < 80
    async with bench("allow *", timeout=60.0) as made:
        assert (await made.say("hello", seconds=0.01)).success


async def test_output_is_bounded_and_says_so(bench):
    async with bench("allow *") as made:
        answered = await made.say("a line of some length", lines=5_000)
        assert answered.success, answered.for_llm[:500]
        assert len(answered.for_llm) < 60_000
        assert answered.data.get("truncated") or "truncated" in answered.for_llm
        whole = await made.say("a line", lines=3)
        assert whole.for_llm.count("a line") == 3


async def test_going_in_circles_is_noticed(bench):
    async with bench("allow *") as made:
        results = [await made.say("again") for _ in range(4)]
        assert "rounds" not in results[0].data
        assert "rounds" in results[-1].data
        other = await made.say("something else")
        assert "rounds" not in other.data


async def test_every_call_is_in_the_audit_log_with_one_beginning_and_one_end(bench, tmp_path):
    activity = ActivityStream(Secrets([SECRET]))
    log = tmp_path / "audit.ndjson"
    close = audit_log(activity, log)
    try:
        async with bench("allow *", "deny tool:other", activity=activity) as made:
            await made.say("hello")
            await made.say(5)
            await activity.drain()
    finally:
        close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [line for line in lines if line["event"] in ("tool_call_start", "tool_call_end")]
    assert [line["event"] for line in calls] == ["tool_call_start", "tool_call_end"] * 2
    assert {line["call"]["name"] for line in calls} == {made.source.name}


async def test_wrong_arguments_are_explained_and_nothing_runs(bench):
    asked: list[PermissionRequest] = []

    async def person(request: PermissionRequest) -> Answer:
        asked.append(request)
        return Answer.ONCE

    async with bench("allow *", approve=person) as made:
        wrong = await made.executor.execute(made.source.call(text=["no", "text"]), made.scope)
        assert wrong.is_error
        assert "text" in wrong.failure.message


async def test_a_cancelled_call_ends_at_once(bench, tmp_path):
    begun = tmp_path / "begun"
    async with bench("allow *") as made:
        task = asyncio.create_task(made.say(str(begun), seconds=30))
        async with asyncio.timeout(60):
            while not begun.exists():  # another process writes it
                assert not task.done(), task.result().for_llm
                await asyncio.sleep(0.005)
        task.cancel()
        started = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - started < 5
        assert (await made.say("still there")).success
