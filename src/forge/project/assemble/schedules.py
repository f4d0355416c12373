"""Opens a project's schedules: the workspace's own and those that its configuration declares."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from forge.project.assemble.access import ProjectFlags, project_scope
from forge.project.config.declaration import Configuration
from forge.project.config.load import load_configuration

if TYPE_CHECKING:  # it loads SQLite, which listing tools does without
    from forge.schedules.schedule import Schedule
    from forge.schedules.store import ScheduleStore

FILE = "state.db"


def project_schedules(flags: ProjectFlags) -> ScheduleStore:
    """Opens the workspace's schedules, with those that the configuration declares. Raises `ToolError`."""
    configuration = load_configuration(flags.config)
    return open_schedule_store(configuration, project_scope(flags.workspace, configuration).workspace)


@contextmanager
def read_schedules(flags: ProjectFlags) -> Iterator[ScheduleStore]:
    """Opens the schedules for reading, also where nothing can be written. Raises `ToolError`."""
    from forge.schedules.store import ScheduleStore
    from forge.workspace.state.store import copy_state_file, is_writable

    configuration = load_configuration(flags.config)
    workspace = project_scope(flags.workspace, configuration).workspace
    if is_writable(workspace):
        with open_schedule_store(configuration, workspace) as store:
            yield store
        return
    with copy_state_file(workspace, FILE) as path, ScheduleStore(path) as store:
        if configuration.schedules is not None:
            store.declare(configuration.schedules, configuration.name)
        yield store


def missing_names(schedule: Schedule, configuration: Configuration, skills: Container[str]) -> list[str]:
    """Returns warnings about a channel or a skill that does not exist."""
    channel, skill = schedule.channel, schedule.skill
    found: list[str] = []
    if channel and channel not in configuration.channels:
        found.append(f"There is no channel {channel!r} in the configuration: nothing is delivered until you add it.")
    if skill and skill not in skills:
        found.append(f"There is no skill {skill!r}: `forge skill list` lists the skills.")
    return found


def schedule_store_opener(configuration: Configuration, workspace: Path) -> Callable[[], ScheduleStore]:
    """Returns a function that opens the store at its first call, for tools."""
    return cache(lambda: open_schedule_store(configuration, workspace))


def open_schedule_store(configuration: Configuration, workspace: Path) -> ScheduleStore:
    """Opens the store of a workspace and declares the configured schedules in it."""
    from forge.schedules.store import ScheduleStore

    store = ScheduleStore.of(workspace)
    if configuration.schedules is not None:
        store.declare(configuration.schedules, configuration.name)
    return store
