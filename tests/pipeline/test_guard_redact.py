"""Registered secrets never reach results, events or logs."""

import asyncio
import json
import logging

from forge import Attachment, Scope, Secrets, ToolCall, ToolResult, audit_log, tool
from forge.pipeline import standard_executor

SECRET = 'p4ss"word\\with-quotes'


@tool
def leak(text: str, fail: bool = False) -> ToolResult:
    """Leak."""
    if fail:
        raise RuntimeError(f"cannot use {text}")
    return ToolResult(
        for_llm=f"for llm {text}",
        for_user=f"for user {text}",
        title=text,
        data={"deep": [{text: text}]},
        attachments=(Attachment("text/plain", text.encode()),),
    )


def run(secrets, *calls, path=None):
    executor = standard_executor([leak], secrets=secrets)
    events: list = []
    executor.activity.subscribe(lambda event: events.append(json.dumps(event.to_dict(), ensure_ascii=False)))
    stop = audit_log(executor.activity, path) if path else None
    results = [asyncio.run(executor.execute(call, Scope())) for call in calls]
    if stop:
        stop()
    return results, "\n".join(events)


def test_a_registered_secret_is_masked_everywhere(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    log = tmp_path / "audit.ndjson"
    calls = [
        ToolCall("leak", {"text": SECRET}),
        ToolCall("leak", {"text": SECRET, "fail": True}),
        ToolCall("leak", {"x": SECRET}),
    ]
    results, events = run(Secrets([SECRET]), *calls, path=log)
    wire = json.dumps([result.to_dict() for result in results])
    for seen in (wire, events, log.read_text(), caplog.text):
        assert SECRET not in seen
        assert json.dumps(SECRET)[1:-1] not in seen
    assert results[0].attachments[0].data == b"[secret]"
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_same_text_passes_when_nobody_called_it_secret():
    results, _ = run(Secrets(), ToolCall("leak", {"text": SECRET}))
    assert results[0].for_llm == f"for llm {SECRET}"


def test_what_looks_like_a_secret_stays_in_results_but_not_in_events():
    key = "sk-" + "a1B2" * 8
    results, events = run(Secrets(), ToolCall("leak", {"text": f"key={key}"}))
    assert key in results[0].for_llm
    assert key not in events


def test_a_secret_registered_later_is_masked_from_then_on():
    secrets = Secrets()
    executor = standard_executor([leak], secrets=secrets)
    call = ToolCall("leak", {"text": "hunter2hunter2"})
    assert "hunter2" in asyncio.run(executor.execute(call, Scope())).for_llm
    secrets.add("hunter2hunter2")
    assert "hunter2" not in asyncio.run(executor.execute(call, Scope())).for_llm


def test_background_results_are_masked_too():
    from forge import ToolContext
    from forge.events import ToolCompleted

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            return f"it was {SECRET}"

        return ctx.background(work(), "started")

    async def main() -> list:
        executor = standard_executor([later], secrets=[SECRET])
        done: list = []
        executor.activity.subscribe(done.append, ToolCompleted)
        await executor.execute(ToolCall("later"), Scope())
        await executor.background.settled(5)
        return done

    [event] = asyncio.run(main())
    assert event.result.for_llm == "it was [secret]"
