"""Labels of untrusted text: a call with labels beside the same call without, and a large text that enters a run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from benchmarks.timing import Measure, per_await, side_by_side_async
from forge import Scope, ToolCall, tool
from forge.permissions import Label
from forge.permissions.labels.provenance import Provenance
from forge.pipeline import standard_executor

CALLS = 3_000
LARGE = "A page of plain words that says nothing of interest. " * 20_000  # about 1 MB
ALLOWED = 2.0  # milliseconds for it


@tool(trust="untrusted")
async def read_page() -> str:
    """Read a page."""
    return "A short page."


async def measures() -> list[Measure]:
    plain, labelled = (standard_executor([read_page], labels=on) for on in (False, True))
    scope, call = Scope(), ToolCall("read_page", {}, id="1")

    def timed(run: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[float]]:
        async def measured() -> float:
            return await per_await(run, CALLS)

        return measured

    small = await side_by_side_async(
        timed(lambda: plain.execute(call, scope)), timed(lambda: labelled.execute(call, scope))
    )
    return [
        Measure("labels: a call with a small result", "the same without labels", *small, "µs", 1.05),
        Measure("labels: 1 MB enters a run", "2 ms", ALLOWED, min(_note_large() for _ in range(50)), "ms", 1.0),
    ]


def _note_large() -> float:
    provenance, labels = Provenance(), (Label("untrusted", "read_page"),)
    before = time.perf_counter()
    provenance.note(LARGE, labels)
    return (time.perf_counter() - before) * 1_000
