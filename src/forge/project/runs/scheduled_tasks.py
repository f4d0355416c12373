"""Runs scheduled tasks of a project: an agent of its own, with no one to ask."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.models.command import COMMAND
from forge.project.assemble.channels import ProjectChannels
from forge.project.assemble.schedule_store import project_schedules
from forge.project.assemble.workspace import ProjectFlags
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # they load SQLite and asyncio, which listing tools does without
    from forge.core.result import Attachment
    from forge.project.project import Project
    from forge.schedules.runner import Runner
    from forge.schedules.schedule import Outcome, Schedule

MOST_FILES = 10  # files of a run that a channel receives
LARGEST_FILES = 20_000_000  # bytes of all files together
UNATTENDED = """
This is a scheduled task, and no person is present: do not ask questions, and continue without anything that is \
refused. Your last answer is delivered unchanged."""


def make_runner(flags: ProjectFlags, model: str | None = None) -> Runner:
    """Returns the runner. Raises `ToolError` if the configuration, the workspace or the model cannot be used."""
    from forge.project.project import Project, RunOptions
    from forge.project.runs.scheduled_runs import ProjectClaims
    from forge.schedules.runner import Runner

    configuration = load_configuration(flags.config)
    channels = ProjectChannels(configuration)

    def load() -> Project:
        return Project(RunOptions(workspace=flags.workspace, config=flags.config, policy=flags.policy))

    check_channels(configuration, channels)  # errors are reported before anything is due
    store = project_schedules(flags)
    enabled = store.list(enabled_only=True)
    load().agent(COMMAND if enabled and all(one.command for one in enabled) else model)

    async def run(schedule: Schedule) -> Outcome:
        return await _run_task(schedule, load(), model, channels)

    return Runner(store, run, shared=ProjectClaims(flags))


def check_channels(configuration: Configuration, channels: ProjectChannels) -> None:
    """Raises `ToolError` for a schedule with an unknown channel."""
    for index, entry in enumerate(configuration.schedules or ()):
        name = entry.get("channel", "")
        if name and name not in channels.names:
            problem = f"there is no channel {name[:60]!r}"
            raise configuration.error(f"schedules[{index}].channel", problem, name, channels.names)


async def _run_task(schedule: Schedule, project: Project, model: str | None, channels: ProjectChannels) -> Outcome:
    """Runs one task in a session of its own. Questions are refused; its files are delivered with its answer."""
    from forge.core.events import ToolFinished
    from forge.pipeline.audit_log import audit_log
    from forge.project.audit.read_log import NAME as AUDIT
    from forge.project.runs.stored_conversation import new_name, open_conversation, session_store
    from forge.schedules.schedule import Outcome
    from forge.workspace.state import state_directory

    session = f"{schedule.id}-{new_name()}"
    agent = project.agent(COMMAND if schedule.command else model)
    files: list[Attachment] = []
    agent.activity.subscribe(lambda event: _collect_files(event, files), ToolFinished)
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
            words = f"its answer was not delivered to {schedule.channel}: {undelivered.message}"
            success, error = False, f"{error}; {words}" if error else words
    mask = agent.secrets.mask  # the result is stored and listed
    return Outcome(success=success, text=mask(text), error=mask(error), session=session)


def scheduled_prompt(schedule: Schedule) -> str:
    """Return the prompt for a task that runs with no one present; a command is the prompt of its own model."""
    if schedule.command:
        return schedule.task
    skill = f'Read the skill "{schedule.skill}" with read_skill first.\n' if schedule.skill else ""
    return f"{skill}{schedule.task}\n{UNATTENDED}"


def _collect_files(event: object, files: list[Attachment]) -> None:
    result = getattr(event, "result", None)
    call = getattr(event, "call", None)
    if result is None or call is None or call.name != "file_create" or result.is_error:
        return
    for one in result.attachments:
        if len(files) < MOST_FILES and sum(len(file.data) for file in files) + len(one.data) <= LARGEST_FILES:
            files.append(one)
