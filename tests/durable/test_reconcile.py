"""A tool that can find out is asked before anybody learns that the state of a call is unknown."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import pytest

import forge.durable.engine.reconcile as reconciling
from forge import Agent, Reconciled, Tool, ToolCall, ToolContext, ToolResult, tool
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.durable.engine.reconcile import describe_intent
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, RunStore
from forge.durable.store.heartbeats import has_ended, mark_process
from forge.durable.store.rows import RunInfo
from forge.network.egress import Egress
from forge.openapi import openapi
from forge.permissions.gate import nobody
from forge.permissions.questions import Answer, PermissionRequest, approve_all
from forge.pipeline import standard_steps
from forge.workspace.state.store import StoreError
from tests.durable.working import begun, ended, rested, script, told, working
from tests.network.serving import Reply, serving

THIS = "this"  # the process of the test
LATER = "0/1/1"  # the mark of a process on another machine


@cache
def _ended_mark() -> str:
    """The mark of a process of this machine that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        place = mark_process().rpartition("/")[0].rpartition("/")[0]
        status = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        mark = f"{place}/{process.pid}/{status[19]}"
        assert not has_ended(mark)
    return mark


class Case(NamedTuple):
    """A call that a lost worker had begun."""

    says: Any  # the tool's `reconcile`
    mark: str | None = None  # of the lost process; None: one that has ended
    detail: Literal["new", "none", "other"] = "new"
    given: Mapping[str, Any] | None = None  # the arguments that a person made of it
    options: Mapping[str, Any] = {}


class TakenOver(NamedTuple):
    """What came of the calls, by name."""

    run: RunInfo
    told: Mapping[str, str]
    states: Mapping[str, str]
    ran: Counter[str]
    events: list[dict[str, Any]]
    unknown: int


def make_tool(name: str, case: Case, ran: Counter[str]) -> Tool:
    if isinstance(case.says, Tool):
        return case.says

    @tool(name=name, permissions={"write"}, reconcile=case.says, **case.options)
    def transfer(to: str, amount: int = 1) -> str:
        """Transfer money."""
        ran[name] += 1
        return f"sent to {to}"

    return transfer


async def take_over(
    database: str, place: Path, cases: Mapping[str, Case], approve: Any = approve_all, egress: Egress | None = None
) -> TakenOver:
    """Runs a segment whose earlier attempt stored the intents of these calls and was lost."""
    ran: Counter[str] = Counter()
    tools = {name: make_tool(name, case, ran) for name, case in cases.items()}
    calls = {name: ToolCall(name, {"to": "ada"}, name) for name in cases}
    with RunStore(database) as store:
        store.prepare()
        starter = Starter(store)
        starter.start(store.create(NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),))))
        store.begin_attempt("r", 1, "lost", "first")
        for name, case in cases.items():
            ctx = ToolContext(calls[name], tools[name], tools[name].parse(case.given or {"to": "ada"}))
            noted = dict(await describe_intent(ctx) or {})
            mark = mark_process() if case.mark == THIS else case.mark
            noted["process"] = _ended_mark() if mark is None else mark
            if case.detail == "other":
                noted["arguments"] = "others"
            store.record_intent("r", 1, "first", name, noted if case.detail != "none" else None)
        starter.close()
    agent = Agent(
        script([*calls.values()], "over"),
        tools=[*tools.values()],
        approve=approve,
        steps=partial(standard_steps, egress=egress),
    )
    agent.secrets.add("bank-password-123")
    async with working(database, agent, place) as worker:
        run = await (rested(worker) if approve is nobody else ended(worker))
        said = [message for message in worker.store.messages("r") if message.role == "tool"]
        events = [event for _, event in worker.store.events("r", limit=10_000)]
        told = {message.call_id: message.text for message in said}
        states = {one["call"]["name"]: one["state"] for one in events if one["event"] == "tool_reconciled"}
        return TakenOver(run, told, states, ran, events, worker.engine.context.counters.unknown)


async def _hang(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    await asyncio.Event().wait()
    raise AssertionError


async def _cancel(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    raise asyncio.CancelledError


def _fail(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    raise OSError("the bank is closed; bank-password-123")


def _not_done(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    return Reconciled.not_done()


def _find(key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
    return Reconciled.done(
        f"{key} {sorted(arguments.items())} {ctx.spec.name}, paid with bank-password-123", "the bank has it"
    )


class Transfer(Tool, permissions={"write"}):
    """Transfer money, and note the balance before."""

    async def run(self, to: str) -> str:
        return f"sent to {to}"

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return {"balance": 100}

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        return Reconciled.done(f"the balance was {ctx.noted['balance']}")


@tool(permissions={"write"}, reconcile=_find)
def pay_person(person: str, bank: str = "first") -> str:
    """Pay somebody."""
    raise AssertionError("it is done already")


SETTLED = {
    "reshaped": Case(pay_person.reshaped(name="reshaped", rename={"person": "to"}, fixed={"bank": "second"})),
    "found": Case(_find),
    "changed": Case(_find, given={"to": "ada", "amount": 7}),
    "long": Case(lambda key, arguments: Reconciled.done("x" * 400_000), options={"trust": "untrusted"}),
    "transfer": Case(Transfer()),
    "not_done": Case(_not_done),
    "later_pid": Case(_not_done, mark=f"{mark_process().rpartition('/')[0]}/0"),
    "final": Case(lambda key, arguments: Reconciled.not_done(final=True), mark=LATER),
}
UNSURE = {
    "says_so": (Case(lambda key, arguments: Reconciled.unknown("two look like it")), "two look like it"),
    "raises": (Case(_fail), "reconcile failed: OSError: the bank is closed"),
    "hangs": (Case(_hang), "reconcile gave no answer within 1 s"),
    "cancels": (Case(_cancel), "reconcile cancelled itself"),
    "text": (Case(lambda key, arguments: "done"), "reconcile returned str instead of Reconciled"),
    "nothing": (Case(lambda key, arguments: None), "reconcile returned NoneType instead of Reconciled"),
    "state": (Case(lambda key, arguments: Reconciled(cast(Any, "perhaps"))), "the state 'perhaps'"),
    "pending": (Case(lambda key, arguments: Reconciled.done(ToolResult.started("x"))), "still under way"),
    "signature": (Case(lambda key: Reconciled.done()), "reconcile failed"),
    "elsewhere": (Case(_not_done, mark=LATER), "may still be running it"),
    "no_mark": (Case(_not_done, mark=""), "may still be running it"),
    "this_process": (Case(_not_done, mark=THIS, options={"isolate": False}), "sent to ada"),
    "no_detail": (Case(_not_done, detail="none"), "may still be running it"),
    "other": (Case(_find, detail="other"), "in another way now"),
    "cannot": (Case(None, detail="none"), "may have taken effect"),
}


async def test_a_call_of_a_lost_worker_is_settled_by_its_tool(
    local_first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "SECONDS_TO_ANSWER", 1.0)
    unsure = {name: case for name, (case, _) in UNSURE.items()} if local_first.startswith("sqlite") else {}
    found = await take_over(local_first, tmp_path, {**SETTLED, **unsure})
    assert found.run.status == "finished"
    _check_settled(found)
    if unsure:
        _check_unsure(found)


def _check_settled(found: TakenOver) -> None:
    told = found.told
    assert told["found"].startswith("r/r.1/found [('amount', 1), ('to', 'ada')] found, paid with ")
    assert "('amount', 7)" in told["changed"], "the arguments that a person made of it"
    assert len(told["long"]) < 200_000, "a result that is found is limited like any other"
    assert told["transfer"] == "the balance was 100"
    assert "[('bank', 'second'), ('person', 'ada')] reshaped" in told["reshaped"], "its own names, and what is fixed"
    assert told["not_done"] == told["later_pid"] == told["final"] == "sent to ada"
    assert {name: found.ran[name] for name in SETTLED if found.ran[name]} == {"not_done": 1, "later_pid": 1, "final": 1}
    assert {found.states[name] for name in ("found", "changed", "long", "transfer", "reshaped")} == {"done"}
    assert {found.states[name] for name in ("not_done", "later_pid", "final")} == {"not_done"}
    assert "bank-password" not in str(told) + str(found.events)
    for kind in ("tool_call_start", "tool_call_end"):
        assert sum(one["event"] == kind and one["call"]["id"] == "found" for one in found.events) == 1


def _check_unsure(found: TakenOver) -> None:
    for name, (_, reason) in UNSURE.items():
        assert reason in found.told[name], name
        if name != "this_process":  # its twin: no call of it runs here any more
            assert "its state is unknown" in found.told[name]
            assert not found.ran[name]
    assert found.unknown == len(UNSURE) - 1
    assert "cannot" not in found.states
    assert "The tool was asked" not in found.told["cannot"]


async def test_a_call_that_the_gate_now_lets_through_with_other_arguments_does_not_run(
    sqlite: str, tmp_path: Path
) -> None:
    async def edit(request: PermissionRequest) -> Answer:
        return Answer("once", arguments={"to": "eve", "amount": 1})

    found = await take_over(sqlite, tmp_path, {"send": Case(_not_done)}, edit)
    assert not found.ran
    assert "its state is unknown" in found.told["send"]


async def test_a_call_that_a_person_must_approve_is_not_run_without(sqlite: str, tmp_path: Path) -> None:
    found = await take_over(sqlite, tmp_path, {"send": Case(_not_done)}, nobody)
    assert found.run.status == "waiting"
    assert not found.ran


PAYMENTS = {
    "openapi": "3.1.0",
    "info": {"title": "Bank", "version": "1"},
    "paths": {"/payments/{to}": {"get": {"operationId": "find"}, "delete": {"operationId": "cancel"}}},
}


@pytest.mark.parametrize("egress", [None, Egress("deny-all")])
async def test_an_operation_of_an_api_is_found_again_through_the_projects_egress(
    egress: Egress | None, sqlite: str, tmp_path: Path
) -> None:
    async with serving(Reply([b"{}"], 404)) as bank, openapi(PAYMENTS, name="bank", server=bank.url) as tools:
        (cancel,) = (one for one in tools if one.spec.name == "bank__cancel")
        found = await take_over(sqlite, tmp_path, {"bank__cancel": Case(cancel)}, egress=egress)
        assert [(one.method, one.path) for one in bank.asked] == ([("GET", "/payments/ada")] if egress is None else [])
        assert found.states == {"bank__cancel": "done" if egress is None else "unknown"}
        words = "It is deleted" if egress is None else "its state is unknown"
        assert words in found.told["bank__cancel"]


def test_a_reconcile_that_is_no_function_is_refused() -> None:
    with pytest.raises(Exception, match="must be a function of a key and arguments"):
        make_tool("send", Case("done"), Counter())
    assert make_tool("send", Case(_fail), Counter()).reconciles
    assert not make_tool("send", Case(None), Counter()).reconciles


def test_a_process_has_ended_only_if_that_is_certain() -> None:
    assert has_ended(_ended_mark())
    assert not has_ended(mark_process())
    assert not has_ended(LATER)
    assert not has_ended("")
    place, _, began = mark_process().rpartition("/")
    assert has_ended(f"{place}/{int(began) - 1}"), "the pid belongs to a later process"
    assert mark_process().split("/")[2] == str(os.getpid())


def test_an_intent_is_renewed_only_by_the_attempt_that_runs_the_segment(store: RunStore) -> None:
    store.create(NewRun(id="r", version="0", prompt="go"))
    for token in ("first", "second", "third"):
        store.begin_attempt("r", 1, "w", token)
        if token == "first":
            store.record_intent("r", 1, token, "t", {"arguments": "x"})
    assert store.record_intent("r", 1, "second", "t", {"arguments": "x"}, "first") == "lost"
    assert store.record_intent("r", 1, "third", "t", {"arguments": "x"}, "second") == "repeated"
    assert store.record_intent("r", 1, "third", "t", {"arguments": "x"}, "first") == "recorded"
    assert store.record_intent("r", 1, "third", "t", {"arguments": "x"}, "first") == "recorded", "a lost reply"


@pytest.mark.parametrize("begins", [False, True], ids=["intent fails", "call begins"])
async def test_a_call_is_open_in_this_process_only_once_it_begins(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    reached = asyncio.Event()
    attempts = 0

    @tool(permissions={"write"}, reconcile=_not_done, isolate=False)
    async def send(to: str) -> str:
        """Transfer money."""
        if attempts == 1:
            reached.set()
            await asyncio.Event().wait()
        return f"sent to {to}"

    call = ToolCall("send", {"to": "ada"}, f"send {begins}")  # its own id: one that began stays open in this process
    agent = Agent(script(call, "over"), tools=[send], approve=approve_all)
    async with working(sqlite, agent, tmp_path) as worker:
        record = worker.store.record_intent
        loop = asyncio.get_running_loop()

        def lose_reply(*given: Any) -> Any:
            nonlocal attempts
            attempts += 1
            found = record(*given)
            if attempts == 1 and not begins:
                loop.call_soon_threadsafe(reached.set)
                raise StoreError("the connection broke at the commit", ErrorKind.SYSTEM)
            return found

        monkeypatch.setattr(worker.store, "record_intent", lose_reply)
        await begun(worker)
        await asyncio.wait_for(reached.wait(), 60)
        if begins:
            worker.attempts["r"].abandon()
        while worker.engine.list_running():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for _ in range(2):  # a segment is forgotten if two checks find it so
            await asyncio.to_thread(worker.engine.requeue_forgotten)
        assert (await ended(worker)).status == "finished"
        (said,) = told(worker)
        assert ("may still be running it" if begins else "sent to ada") in said
