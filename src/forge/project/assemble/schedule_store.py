"""Opens a project's schedules: the workspace's own and those that its configuration declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from forge.project.assemble.workspace import project_scope
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # it loads SQLite, which listing tools does without
    from forge.schedules.store import ScheduleStore

FILE = "state.db"


class ScheduleOptions(Protocol):
    """The flags that schedules need."""

    @property
    def workspace(self) -> str | None: ...
    @property
    def config(self) -> str | None: ...
    @property
    def policy(self) -> str | None: ...


def project_schedules(options: ScheduleOptions) -> ScheduleStore:
    """Opens the workspace's schedules, with those that the configuration declares. Raises `ToolError`."""
    configuration = load_configuration(options.config)
    return open_schedule_store(configuration, project_scope(options.workspace, configuration).workspace)


@contextmanager
def read_schedules(options: ScheduleOptions) -> Iterator[ScheduleStore]:
    """Opens the schedules for reading, also where nothing can be written. Raises `ToolError`."""
    from forge.schedules.store import ScheduleStore
    from forge.workspace.state.state_copy import copy_state_file, is_writable

    configuration = load_configuration(options.config)
    workspace = project_scope(options.workspace, configuration).workspace
    if is_writable(workspace):
        with open_schedule_store(configuration, workspace) as store:
            yield store
        return
    with copy_state_file(workspace, FILE) as path, ScheduleStore(path) as store:
        if configuration.schedules is not None:
            store.declare(configuration.schedules, configuration.name)
        yield store


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
