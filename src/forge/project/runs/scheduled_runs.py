"""A project's schedules and its workers: what the workers ran, and how each time is fired by one process."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forge.project.assemble.workspace import project_scope
from forge.project.config import load_configuration
from forge.project.runs.durable_runs import project_database
from forge.schedules.schedule import Run, Status

if TYPE_CHECKING:  # an extra
    from forge.durable.store import RunStore
    from forge.durable.store.rows import RunInfo
    from forge.durable.worker.occurrences import ProcessOccurrences
    from forge.project.assemble.schedule_store import ScheduleOptions
    from forge.schedules.occurrences import Due, Refusal

_STATUS = {"finished": Status.COMPLETED, "failed": Status.FAILED, "cancelled": Status.CANCELLED}


def ran_on_workers(options: ScheduleOptions, id: str | None, limit: int) -> list[Run]:
    """The latest first; none where nothing durable was ever done here. Raises `ToolError`."""
    database = _database(options)
    if not database:
        return []
    from forge.durable.store import RunStore

    with RunStore(database) as store:
        return scheduled(store, id, limit)


def scheduled(store: RunStore, id: str | None, limit: int) -> list[Run]:
    """Of one schedule or of all, the latest first."""
    return [_shown(run) for run in store.scheduled(id, limit)]


class ProjectClaims:
    """Claims in the database of the project's workers, from when there is one: until then nobody else fires."""

    def __init__(self, options: ScheduleOptions) -> None:
        self._options = options
        self._opened: ProcessOccurrences | None = None

    def prepare(self) -> None:
        """Raises `ToolError` where there is a database and it is away."""
        if claims := self._claims():
            claims.prepare()

    def claim(self, due: Due, now: float, owner: str) -> Refusal | None:
        claims = self._claims()  # looked for after `due` has come: whoever makes the database now lets it go by
        return claims.claim(due, now, owner) if claims else None

    def beat(self, owner: str) -> None:
        if self._opened:
            self._opened.beat(owner)

    def release(self, owner: str, schedule_id: str | None = None) -> None:
        if self._opened:
            self._opened.release(owner, schedule_id)

    def _claims(self) -> ProcessOccurrences | None:
        if self._opened is None and (database := _database(self._options)):
            from forge.durable.store import RunStore
            from forge.durable.worker.occurrences import ProcessOccurrences

            self._opened = ProcessOccurrences(RunStore(database))
        return self._opened


def _database(options: ScheduleOptions) -> str:
    """Where workers of this project would be; empty where none can ever have been."""
    from importlib.util import find_spec

    if find_spec("dbos") is None or find_spec("sqlalchemy") is None:
        return ""
    configuration = load_configuration(options.config)
    workspace = project_scope(options.workspace, configuration).workspace
    url = project_database(configuration, workspace)
    file = Path(url.removeprefix("sqlite:///")).expanduser()
    return "" if url.startswith("sqlite:///") and not file.exists() else url


def _shown(run: RunInfo) -> Run:
    result = run.result or {}
    error = (result.get("error") or {}).get("message", "")
    if run.status == "waiting":
        error = f"it waits: forge runs show {run.id}"
    elif not error and run.status == "failed":
        error = f"it ended with: {result.get('reason', run.status)}"
    return Run(
        id=0,
        run_id=run.id,
        schedule_id=str(run.scope.get("schedule", "")),
        status=_STATUS.get(run.status, Status.RUNNING),
        due=_due(run),
        started=run.created,
        duration=run.updated - run.created if run.is_over else None,
        error=error,
        result="" if error else str(result.get("text", "")),
        session=run.session,
    )


def _due(run: RunInfo) -> float:
    """Its name has the time."""
    try:
        return datetime.strptime(run.id.rpartition("-")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return run.created
