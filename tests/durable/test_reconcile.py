"""A tool that can find out is asked before anybody learns that the state of a call is unknown."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import sqlalchemy as sa

import forge.durable.engine.reconcile as reconciling
from forge import Agent, Reconciled, Tool, ToolCall, ToolContext, ToolResult, tool
from forge.core.messages import Message
from forge.durable.engine.reconcile import describe_intent
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, RunStore
from forge.durable.store.processes import has_ended, mark_process
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import intents, versions
from forge.permissions.answers import Answer, approve_all
from forge.permissions.request import PermissionRequest
from tests.durable.working import ended, rested, script, told, working

Says = Callable[..., Reconciled | Awaitable[Reconciled]]
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


def transferring(says: Any, ran: list[str], **options: Any) -> Any:
    @tool(permissions={"write"}, reconcile=says, **options)
    def transfer(to: str, amount: int = 1) -> str:
        """Transfer money."""
        ran.append(to)
        return f"sent to {to}"

    return transfer


async def take_over(
    database: str,
    place: Path,
    transfer: Tool,
    *,
    mark: str | None = None,
    detail: Literal["new", "none", "other"] = "new",
    approve: Any = approve_all,
    steps: Any = None,
    given: Mapping[str, Any] | None = None,
) -> tuple[RunInfo, list[str], list[dict[str, Any]], int]:
    """Runs a segment whose earlier attempt stored the intent of one call and was lost; the run, what the model was
    told, the events, and how many calls stayed unknown.
    """
    call = ToolCall("transfer", {"to": "ada"}, "t")
    with RunStore(database) as store:
        store.prepare()
        starter = Starter(store)
        starter.start(store.create(NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),))))
        store.begin_attempt("r", 1, "lost", "first")
        ctx = ToolContext(call, transfer, transfer.parse(given or call.arguments))
        noted = dict(await describe_intent(ctx) or {})
        noted["process"] = _ended_mark() if mark is None else mark
        if detail == "other":
            noted["arguments"] = "others"
        store.record_intent("r", 1, "first", "t", noted if detail != "none" else None)
        starter.close()
    agent = Agent(script(call, "over"), tools=[transfer], approve=approve, **({"steps": steps} if steps else {}))
    agent.secrets.add("bank-password-123")
    async with working(database, agent, place) as worker:
        run = await (rested(worker) if approve is None else ended(worker))
        events = [event for _, event in worker.store.events("r")]
        return run, told(worker), events, worker.engine.counters.unknown


def states(events: list[dict[str, Any]]) -> list[str]:
    return [event["state"] for event in events if event["event"] == "tool_reconciled"]


async def test_what_was_done_is_not_run_again_and_its_result_is_used(database: str, tmp_path: Path) -> None:
    ran: list[str] = []
    asked: list[Any] = []

    def find(key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        asked.append((key, dict(arguments), ctx.spec.name))
        return Reconciled.done("receipt 12, paid with bank-password-123", "the bank has it")

    run, heard, events, unknown = await take_over(database, tmp_path, transferring(find, ran))
    assert (run.status, ran, unknown) == ("finished", [], 0)
    assert len(heard) == 1
    assert heard[0].startswith("receipt 12, paid with ")
    assert "bank-password" not in heard[0], "the result passes the same steps as any other"
    assert asked == [("r/r.1/t", {"to": "ada", "amount": 1}, "transfer")]
    assert states(events) == ["done"]
    assert [event["event"] for event in events if event["event"].startswith("tool_call")] == [
        "tool_call_start",
        "tool_call_end",
    ]


async def test_a_result_that_is_found_is_bounded_and_labelled(sqlite: str, tmp_path: Path) -> None:
    long = "x" * 400_000
    transfer = transferring(lambda key, arguments: Reconciled.done(long), [], trust="untrusted")
    _, heard, _, _ = await take_over(sqlite, tmp_path, transfer)
    assert len(heard[0]) < len(long) / 2
    with RunStore(sqlite) as store:
        (message,) = [one for one in store.messages("r") if one.role == "tool"]
        assert "transfer" in str(message.extra)


async def test_what_was_not_done_runs_once(database: str, tmp_path: Path) -> None:
    ran: list[str] = []
    run, heard, events, unknown = await take_over(
        database, tmp_path, transferring(lambda key, arguments: Reconciled.not_done(), ran)
    )
    assert (run.status, ran, heard, unknown) == ("finished", ["ada"], ["sent to ada"], 0)
    assert states(events) == ["not_done"]
    with RunStore(database) as store:
        row = store.database.read(lambda connection: connection.execute(sa.select(intents)).one())
    assert row.attempt != "first", "the intent belongs to the attempt that ran it"
    assert row.detail["process"] == mark_process()


async def _hang(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    await asyncio.Event().wait()
    raise AssertionError


async def _cancel(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    raise asyncio.CancelledError


def _fail(key: str, arguments: Mapping[str, Any]) -> Reconciled:
    raise OSError("the bank is closed; bank-password-123")


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (lambda key, arguments: Reconciled.unknown("two transfers look like it"), "two transfers look like it"),
        (_fail, "reconcile failed: OSError: the bank is closed"),
        (_hang, "reconcile gave no answer within 0.05 s"),
        (_cancel, "reconcile cancelled itself"),
        (lambda key, arguments: "done", "reconcile returned str instead of Reconciled"),
        (lambda key, arguments: None, "reconcile returned NoneType instead of Reconciled"),
        (lambda key, arguments: Reconciled("perhaps"), "reconcile returned the state 'perhaps'"),  # type: ignore[arg-type]
        (lambda key, arguments: Reconciled.done(ToolResult.started("x")), "work that is still under way"),
        (lambda key: Reconciled.done(), "reconcile failed"),
    ],
    ids=["unknown", "raises", "hangs", "cancels", "text", "nothing", "state", "pending", "signature"],
)
async def test_what_is_not_sure_is_unknown_and_the_reason_is_said(
    sqlite: str, tmp_path: Path, says: Says, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "SECONDS", 0.05 if says is _hang else 30.0)
    ran: list[str] = []
    run, heard, events, unknown = await take_over(sqlite, tmp_path, transferring(says, ran))
    assert (run.status, ran, unknown) == ("finished", [], 1)
    assert "its state is unknown" in heard[0]
    assert reason in heard[0]
    assert "bank-password" not in heard[0] + str(events)
    assert states(events) == ["unknown"]


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"mark": LATER}, id="on another machine"),
        pytest.param({"mark": ""}, id="of a system that tells too little"),
        pytest.param({"mark": f"{mark_process().rpartition('/')[0].rpartition('/')[0]}/1/0"}, id="ended", marks=[]),
        pytest.param({"detail": "none"}, id="of an older version"),
        pytest.param({"detail": "other"}, id="with other arguments"),
    ],
)
async def test_not_done_counts_only_if_the_earlier_worker_has_certainly_ended(
    sqlite: str, tmp_path: Path, lost: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    ran: list[str] = []
    transfer = transferring(lambda key, arguments: Reconciled.not_done(), ran)
    _, heard, _, unknown = await take_over(sqlite, tmp_path, transfer, **lost)
    if request.node.callspec.id == "ended":  # the twin: the pid is another process now
        assert (ran, unknown) == (["ada"], 0)
    else:
        assert (ran, unknown) == ([], 1)
        assert "its state is unknown" in heard[0]


async def test_a_final_answer_counts_wherever_the_earlier_worker_is(sqlite: str, tmp_path: Path) -> None:
    ran: list[str] = []
    transfer = transferring(lambda key, arguments: Reconciled.not_done(final=True), ran)
    _, heard, _, unknown = await take_over(sqlite, tmp_path, transfer, mark=LATER)
    assert (ran, heard, unknown) == (["ada"], ["sent to ada"], 0)


async def test_arguments_that_a_person_changed_are_those_that_the_tool_is_asked_about(
    sqlite: str, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def find(key: str, arguments: Mapping[str, Any]) -> Reconciled:
        asked.append(dict(arguments))
        return Reconciled.done("sent")

    await take_over(sqlite, tmp_path, transferring(find, []), given={"to": "ada", "amount": 7})
    assert asked == [{"to": "ada", "amount": 7}]


async def test_a_call_that_the_gate_now_lets_through_with_other_arguments_does_not_run(
    sqlite: str, tmp_path: Path
) -> None:
    async def edit(request: PermissionRequest) -> Answer:
        return Answer("once", arguments={"to": "eve", "amount": 1})

    ran: list[str] = []
    transfer = transferring(lambda key, arguments: Reconciled.not_done(), ran)
    _, heard, _, _ = await take_over(sqlite, tmp_path, transfer, approve=edit)
    assert ran == []
    assert "its state is unknown" in heard[0]


async def test_a_call_that_a_person_must_approve_is_not_run_without(sqlite: str, tmp_path: Path) -> None:
    ran: list[str] = []
    transfer = transferring(lambda key, arguments: Reconciled.not_done(), ran)
    run, *_ = await take_over(sqlite, tmp_path, transfer, approve=None)
    assert (run.status, ran) == ("waiting", [])


async def test_a_class_may_note_what_it_must_know_later(sqlite: str, tmp_path: Path) -> None:
    class Transfer(Tool, permissions={"write"}):
        """Transfer money."""

        async def run(self, to: str) -> str:
            return f"sent to {to}"

        def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
            return {"balance": 100}

        async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
            return Reconciled.done(f"the balance was {ctx.noted['balance']}")

    assert Transfer().reconciles
    _, heard, _, _ = await take_over(sqlite, tmp_path, Transfer())
    assert heard == ["the balance was 100"]


async def test_a_tool_without_one_is_unknown_as_before(sqlite: str, tmp_path: Path) -> None:
    ran: list[str] = []
    _, heard, events, unknown = await take_over(sqlite, tmp_path, transferring(None, ran), detail="none")
    assert (ran, unknown, states(events)) == ([], 1, [])
    assert "The tool was asked" not in heard[0]


def test_a_reconcile_that_is_no_function_is_refused() -> None:
    with pytest.raises(Exception, match="must be a function of a key and arguments"):
        transferring("done", [])
    assert transferring(_fail, []).reconciles


def test_a_process_has_ended_only_if_that_is_certain() -> None:
    assert has_ended(_ended_mark())
    assert not has_ended(mark_process())
    assert not has_ended(LATER)
    assert not has_ended("")
    place, _, began = mark_process().rpartition("/")
    assert has_ended(f"{place}/{int(began) - 1}"), "the pid belongs to a later process"
    assert mark_process().split("/")[2] == str(os.getpid())


def test_a_database_of_the_version_before_opens_and_its_intents_count(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="r", version="0", prompt="go"))
        store.begin_attempt("r", 1, "lost", "first")
        store.record_intent("r", 1, "first", "t")

        def downgrade(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"ALTER TABLE {intents.name} DROP COLUMN {intents.c.detail.name}")
            connection.execute(sa.update(versions).values(version=3))

        store.database.write(downgrade)
    with RunStore(database) as store:
        store.prepare()
        begun = store.begin_attempt("r", 1, "w", "second")
        assert begun is not None
        assert begun.intents == {"t": ("first", {})}
        assert store.record_intent("r", 1, "second", "t") == "repeated"
        assert store.record_intent("r", 1, "second", "u", {"noted": 1}) == "recorded"


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
