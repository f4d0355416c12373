"""What the engine recorded of runs is removed with them; and so are all runs that have been over for long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from forge.durable import _removed
from forge.durable.starter import workflow_id
from forge.durable.store import RunStore

if TYPE_CHECKING:
    from dbos import DBOSClient

BATCH = 200  # runs that are removed in one transaction
SEGMENTS = 500  # … and segments in one of the engine's


def prune(store: RunStore, client: DBOSClient, seconds: float) -> Iterator[int]:
    """Remove what has been over for so long; how many runs, batch by batch.

    What the engine recorded goes first: whoever is killed in between has only to begin again.
    """
    before = store.now() - seconds
    database = store.database
    while roots := database.read(lambda connection: _removed.old(connection, before, BATCH)):
        forget_segments(client, database.read(lambda connection: _removed.family_of(connection, roots)))
        yield database.write(lambda connection: _removed.remove_old(connection, roots, before))
    database.tidy()


def prunable(store: RunStore, seconds: float) -> int:
    before = store.now() - seconds
    return store.database.read(lambda connection: _removed.count_old(connection, before))


def forget_segments(client: DBOSClient, family: Sequence[tuple[str, int]]) -> None:
    segments = [workflow_id(run, number) for run, last in family for number in range(1, last + 1)]
    for start in range(0, len(segments), SEGMENTS):
        client.delete_workflows(segments[start : start + SEGMENTS])
