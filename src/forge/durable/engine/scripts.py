"""Keeps the journals of waiting `run_code` scripts as rows, so that a script which is run again repeats no call."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256

from forge.core.execution.threads import in_thread
from forge.core.result import ToolResult
from forge.durable.engine.attempt import Attempt
from forge.durable.store.encoding import result_from_json, result_to_json
from forge.tools.run_code.journal import Journal, KeptCall

PREFIX = "script-"  # of the names of journals among a run's files


class StoredJournals:
    """Stores a journal with the segment in which its script waited. Later segments read the newest one before them:
    a worker that lost its segment overwrites nothing of the worker that took over.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def load(self, key: str) -> Journal:
        stored = await in_thread(lambda: self._read(key))
        if stored is not None:
            return stored
        begun = await self._attempt.record("script", _begin)  # every attempt has the same clock
        return Journal(started=datetime.fromisoformat(begun["started"]))

    async def save(self, key: str, journal: Journal) -> None:
        wire = {
            "started": journal.started.isoformat(),
            "calls": [[number, call, result_to_json(result)] for number, call, result in journal.written()],
        }
        name = f"{_prefix(key)}{self._attempt.run.segment}.json"
        content = json.dumps(wire).encode()
        await in_thread(lambda: self._attempt.store.put_file(self._attempt.run.id, name, content))

    def _read(self, key: str) -> Journal | None:
        store, run, prefix = self._attempt.store, self._attempt.run, _prefix(key)
        names = [name for name, _ in store.files(run.id) if name.startswith(prefix)]
        segments = [int(name.removeprefix(prefix).removesuffix(".json")) for name in names]
        earlier = [number for number in segments if number < run.segment]
        if not earlier:
            return None
        wire = json.loads(store.file(run.id, f"{prefix}{max(earlier)}.json"))
        results: dict[int, tuple[KeptCall, ToolResult]] = {
            number: (call, result_from_json(result)) for number, call, result in wire["calls"]
        }
        return Journal(datetime.fromisoformat(wire["started"]), results)


async def _begin() -> dict[str, str]:
    return {"started": datetime.now(UTC).isoformat()}


def _prefix(key: str) -> str:
    return f"{PREFIX}{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}-"
