"""Runs scheduled tasks of a project with no one to ask, lists their runs, and claims each scheduled time once."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.core.events import ToolFinished
from forge.core.extras import is_installed
from forge.models.command import COMMAND
from forge.project.assemble.access import ProjectFlags, project_scope
from forge.project.assemble.services import ProjectChannels, project_schedules
from forge.project.config.declaration import Configuration
from forge.project.config.load import load_configuration
from forge.schedules.schedule import ScheduleOutcome, ScheduleRun, Status
from forge.workspace.state import state_directory

if TYPE_CHECKING:
    from forge.core.result import Attachment
    from forge.durable.store import RunStore
    from forge.durable.store.rows import RunInfo
    from forge.durable.worker.schedules import ProcessOccurrences
    from forge.project.project import Project
    from forge.schedules.runner import Runner
    from forge.schedules.schedule import ClaimRefusal, Due, Schedule, ScheduleOutcome


MOST_FILES = 10  # files of a run that a channel receives
LARGEST_FILES = 20_000_000  # bytes of all files together
UNATTENDED = """
This is a scheduled task, and no person is present: do not ask questions, and continue without anything that is \
refused. Your last answer is delivered unchanged."""


def make_runner(flags: ProjectFlags, model: str | None = None) -> Runner:
    """Returns the runner. Raises `ToolError` if the configuration, the workspace or the model cannot be used."""
    from forge.project.project import Project, RunOptions
    from forge.schedules.runner import Runner

    configuration = load_configuration(flags.config)
    channels = ProjectChannels(configuration)

    def load() -> Project:
        return Project(RunOptions(workspace=flags.workspace, config=flags.config, policy=flags.policy))

    check_channels(configuration, channels)  # errors are reported before anything is due
    store = project_schedules(flags)
    enabled = store.list(enabled_only=True)
    load().agent(COMMAND if enabled and all(one.command for one in enabled) else model)

    async def run(schedule: Schedule) -> ScheduleOutcome:
        return await _run_task(schedule, load(), model, channels)

    return Runner(store, run, shared=ProjectClaims(flags))


def check_channels(configuration: Configuration, channels: ProjectChannels) -> None:
    """Raises `ToolError` for a schedule with an unknown channel."""
    for index, entry in enumerate(configuration.schedules or ()):
        name = entry.get("channel", "")
        if name and name not in channels.names:
            problem = f"there is no channel {name[:60]!r}"
            raise configuration.error(f"schedules[{index}].channel", problem, name, channels.names)


async def _run_task(
    schedule: Schedule, project: Project, model: str | None, channels: ProjectChannels
) -> ScheduleOutcome:
    """Runs one task in a session of its own. Questions are refused; its files are delivered with its answer."""
    from forge.project.audit.log import NAME as AUDIT
    from forge.project.audit.write_log import audit_log
    from forge.project.runs.sessions import new_name, open_conversation, session_store

    session = f"{schedule.id}-{new_name()}"
    agent = project.agent(COMMAND if schedule.command else model)
    files: list[Attachment] = []
    agent.activity.subscribe(lambda event: collect_files(event, files), ToolFinished)
    stop = audit_log(agent.activity, state_directory(project.workspace) / AUDIT)
    try:
        with closing(session_store(project.workspace)) as store:
            stored = open_conversation(store, session, agent)
            async with agent:  # no one continues it: its background work ends with the agent
                result = await agent.run(
                    scheduled_prompt(schedule),
                    history=stored.conversation,
                    session=session,
                    prepare=stored.shortening,
                    wait_for_background=True,
                )
    finally:
        stop()
    success = result.error is None and result.reason in ("answer", "task_completion", "converse")
    text = result.text
    error = (
        "" if success else (result.error.text() if result.error is not None else f"the run ended with: {result.reason}")
    )
    if schedule.channel:
        said = (
            text or f"{schedule.id} ended without an answer"
            if success
            else f"{schedule.id} failed ({result.reason}): {text or error}"
        )
        try:
            await channels.deliver(said, schedule.channel, schedule.channel_target, files)
        except ToolError as undelivered:  # the work is done: its result is stored
            message = f"its answer was not delivered to {schedule.channel}: {undelivered.message}"
            success, error = False, f"{error}; {message}" if error else message
    mask = agent.secrets.mask  # the result is stored and listed
    return ScheduleOutcome(success=success, text=mask(text), error=mask(error), session=session)


def scheduled_prompt(schedule: Schedule) -> str:
    """Return the prompt for a task that runs with no one present; a command is the prompt of its own model."""
    if schedule.command:
        return schedule.task
    skill = f'Read the skill "{schedule.skill}" with read_skill first.\n' if schedule.skill else ""
    return f"{skill}{schedule.task}\n{UNATTENDED}"


def collect_files(event: object, files: list[Attachment]) -> None:
    """Adds the files that a call of `file_create` made, as far as a channel takes them."""
    result = getattr(event, "result", None)
    call = getattr(event, "call", None)
    if result is None or call is None or call.name != "file_create" or result.is_error:
        return
    for one in result.attachments:
        if len(files) < MOST_FILES and sum(len(file.data) for file in files) + len(one.data) <= LARGEST_FILES:
            files.append(one)


# Lists the scheduled runs of workers, and lets one process claim each scheduled time.


_STATUS = {"finished": Status.COMPLETED, "failed": Status.FAILED, "cancelled": Status.CANCELLED}


def list_worker_runs(flags: ProjectFlags, id: str | None, limit: int) -> list[ScheduleRun]:
    """Returns the runs of workers, the latest first; none if nothing durable was ever done here. Raises `ToolError`."""
    database = _database(flags)
    if not database:
        return []
    from forge.durable.store import RunStore

    with RunStore(database) as store:
        return list_scheduled(store, id, limit)


def list_scheduled(store: RunStore, id: str | None, limit: int) -> list[ScheduleRun]:
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

    def claim(self, due: Due, now: float, owner: str) -> ClaimRefusal | None:
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
            from forge.durable.worker.schedules import ProcessOccurrences

            self._occurrences = ProcessOccurrences(RunStore(database))
        return self._occurrences


def _database(flags: ProjectFlags) -> str:
    """Returns the database of the project's workers; empty if there can be none."""
    from forge.project.runs.durable_runs import project_database

    if not is_installed("durable"):
        return ""
    configuration = load_configuration(flags.config)
    workspace = project_scope(flags.workspace, configuration).workspace
    url = project_database(configuration, workspace)
    file = Path(url.removeprefix("sqlite:///")).expanduser()
    return "" if url.startswith("sqlite:///") and not file.exists() else url


def _to_schedule_run(run: RunInfo) -> ScheduleRun:
    result = run.result or {}
    error = (result.get("error") or {}).get("message", "")
    if run.status == "waiting":
        error = f"the run is waiting: forge runs show {run.id}"
    elif not error and run.status == "failed":
        error = f"the run ended with: {result.get('reason', run.status)}"
    return ScheduleRun(
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
