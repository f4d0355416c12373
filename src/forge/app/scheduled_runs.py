"""What workers ran of a project's schedules: runs like any other, in the database that the workers share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forge.app.config import load_configuration
from forge.app.durable import project_database, project_version
from forge.app.workspace import project_scope
from forge.core.errors import ErrorKind, ToolError
from forge.schedules.schedule import Run, Status

if TYPE_CHECKING:  # an extra
    from forge.app.schedules import Asked
    from forge.durable.rows import RunInfo
    from forge.durable.store import RunStore

_STATUS = {"finished": Status.COMPLETED, "failed": Status.FAILED, "cancelled": Status.CANCELLED}


def ran_on_workers(asked: Asked, id: str | None, limit: int) -> list[Run]:
    """The latest first; none where nothing durable was ever done here. Raises `ToolError`."""
    database = _database(asked)
    if not database:
        return []
    from forge.durable.store import RunStore

    with RunStore(database) as store:
        return scheduled(store, id, limit)


def scheduled(store: RunStore, id: str | None, limit: int) -> list[Run]:
    """Of one schedule or of all, the latest first."""
    return [_shown(run) for run in store.scheduled(id, limit)]


def check_no_workers(asked: Asked) -> None:
    """Raises `ToolError` where workers see to the schedules: each time would fire twice."""
    database = _database(asked)
    if not database:
        return
    from forge.durable.beats import listed
    from forge.durable.store import RunStore

    with RunStore(database) as store:
        version = project_version(load_configuration(asked.config))  # workers of other projects fire other schedules
        working = [one.id for one in listed(store.database) if one.state == "working" and one.version == version]
    if working:
        some = ", ".join(working[:3]) + (" …" if len(working) > 3 else "")
        words = f"workers are up that run what is due: {some}"
        way = "Leave it to them (forge schedule history shows what they ran), or stop them first."
        raise ToolError(words, ErrorKind.USER, way)


def _database(asked: Asked) -> str:
    """Where workers of this project would be; empty where none can ever have been."""
    from importlib.util import find_spec

    if find_spec("dbos") is None or find_spec("sqlalchemy") is None:
        return ""
    configuration = load_configuration(asked.config)
    workspace = project_scope(asked.workspace, configuration).workspace
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
