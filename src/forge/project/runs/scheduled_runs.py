"""Lists the scheduled runs of workers, and lets one process claim each scheduled time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.extras import is_installed
from forge.project.assemble.workspace import ProjectFlags, project_scope
from forge.project.config import load_configuration
from forge.project.runs.durable_runs import project_database
from forge.schedules.schedule import Run, Status

if TYPE_CHECKING:  # an extra
    from forge.durable.store import RunStore
    from forge.durable.store.rows import RunInfo
    from forge.durable.worker.occurrences import ProcessOccurrences
    from forge.schedules.occurrences import Due, Refusal

_STATUS = {"finished": Status.COMPLETED, "failed": Status.FAILED, "cancelled": Status.CANCELLED}


def list_worker_runs(flags: ProjectFlags, id: str | None, limit: int) -> list[Run]:
    """Returns the runs of workers, the latest first; none if nothing durable was ever done here. Raises `ToolError`."""
    database = _database(flags)
    if not database:
        return []
    from forge.durable.store import RunStore

    with RunStore(database) as store:
        return list_scheduled(store, id, limit)


def list_scheduled(store: RunStore, id: str | None, limit: int) -> list[Run]:
    """Returns the runs of one schedule or of all, the latest first."""
    return [_to_schedule_run(run) for run in store.list_scheduled(id, limit)]


class ProjectClaims:
    """Claims times in the database of the project's workers, once there is one: before that no one else fires."""

    def __init__(self, flags: ProjectFlags) -> None:
        self._flags = flags
        self._occurrences: ProcessOccurrences | None = None

    def prepare(self) -> None:
        """Raises `ToolError` if there is a database that cannot be reached."""
        if claims := self._claims():
            claims.prepare()

    def claim(self, due: Due, now: float, owner: str) -> Refusal | None:
        claims = self._claims()  # after `due` has come: a worker that creates the database now skips this time
        return claims.claim(due, now, owner) if claims else None

    def beat(self, owner: str) -> None:
        if self._occurrences:
            self._occurrences.beat(owner)

    def release(self, owner: str, schedule_id: str | None = None) -> None:
        if self._occurrences:
            self._occurrences.release(owner, schedule_id)

    def _claims(self) -> ProcessOccurrences | None:
        if self._occurrences is None and (database := _database(self._flags)):
            from forge.durable.store import RunStore
            from forge.durable.worker.occurrences import ProcessOccurrences

            self._occurrences = ProcessOccurrences(RunStore(database))
        return self._occurrences


def _database(flags: ProjectFlags) -> str:
    """Returns the database of the project's workers; empty if there can be none."""
    if not is_installed("durable"):
        return ""
    configuration = load_configuration(flags.config)
    workspace = project_scope(flags.workspace, configuration).workspace
    url = project_database(configuration, workspace)
    file = Path(url.removeprefix("sqlite:///")).expanduser()
    return "" if url.startswith("sqlite:///") and not file.exists() else url


def _to_schedule_run(run: RunInfo) -> Run:
    result = run.result or {}
    error = (result.get("error") or {}).get("message", "")
    if run.status == "waiting":
        error = f"the run is waiting: forge runs show {run.id}"
    elif not error and run.status == "failed":
        error = f"the run ended with: {result.get('reason', run.status)}"
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
    """Reads the time from the run's id."""
    try:
        return datetime.strptime(run.id.rpartition("-")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return run.created
