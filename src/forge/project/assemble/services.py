"""Opens a project's channels and schedules from its configuration, and checks the targets of messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.errors import ErrorKind, ToolError
from forge.project.assemble.access import ProjectFlags, project_scope
from forge.project.config.declaration import Configuration
from forge.project.config.load import load_configuration

if TYPE_CHECKING:
    from forge.channels.channel import Channel
    from forge.core.result import Attachment
    from forge.project.config.services import ChannelEntry
    from forge.schedules.schedule import Schedule
    from forge.schedules.store import ScheduleStore


class ProjectChannels:
    """The configured channels by name. A channel is built when it is first needed."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._built_channels: dict[str, Channel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._configuration.channels)

    async def deliver(self, text: str, channel: str, to: str = "", attachments: Sequence[Attachment] = ()) -> None:
        """Sends a message. Raises `ToolError`, also for a target that the person did not list."""
        from forge.channels.channel import Channels

        entries = self._configuration.channels
        if channel in entries:
            _check_target(channel, entries[channel], to)
            if channel not in self._built_channels:
                self._built_channels[channel] = build_channel(self._configuration, entries[channel])
        known: dict[str, Channel] = {name: self._built_channels.get(name, _UnbuiltChannel()) for name in entries}
        await Channels(known).deliver(text, channel, to, attachments)


class _UnbuiltChannel:
    """Stands for a channel that is not built yet."""

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        raise AssertionError("a channel is made before it is used")


def _check_target(name: str, entry: ChannelEntry, to: str) -> None:
    """Refuses targets that the person did not list, because a bot can write to everyone who ever wrote to it."""
    if not to or entry.type in ("terminal", "file") or to == entry.chat_id or to in entry.targets:
        return
    allowed = [one for one in (entry.chat_id, *entry.targets) if one]
    raise ToolError(
        f"the channel {name} may not send to {to[:60]!r}",
        ErrorKind.PERMISSION,
        f"It may send to {', '.join(allowed)}." if allowed else "Omit the target, or list it in the channel's targets.",
    )


def build_channel(configuration: Configuration, entry: ChannelEntry) -> Channel:
    if entry.type == "terminal":
        from forge.channels.channel import Terminal

        return Terminal()
    if entry.type == "file":
        from forge.channels.channel import FileChannel

        assert entry.path is not None
        return FileChannel(entry.path)
    if entry.type == "webhook":
        from forge.channels.webhook import Webhook

        headers = {key: _read_variable(configuration, entry, one) for key, one in entry.headers_env.items()}
        return Webhook(_read_variable(configuration, entry, entry.url_env), headers, files=entry.files)
    if entry.type == "slack":
        return _build_slack(configuration, entry)
    from forge.channels.telegram import API, Telegram

    return Telegram(
        _read_variable(configuration, entry, entry.token_env),
        entry.chat_id,
        webhook=entry.webhook_url or "",
        secret=_read_optional(configuration, entry, entry.webhook_secret_env),
        api=entry.api or API,
    )


def _build_slack(configuration: Configuration, entry: ChannelEntry) -> Channel:
    from forge.channels.slack import API, Slack, SlackHook

    if entry.url_env:
        return SlackHook(_read_variable(configuration, entry, entry.url_env))
    return Slack(
        _read_variable(configuration, entry, entry.token_env),
        entry.chat_id,
        app_token=_read_optional(configuration, entry, entry.app_token_env),
        signing_secret=_read_optional(configuration, entry, entry.signing_secret_env),
        api=entry.api or API,
    )


def _read_optional(configuration: Configuration, entry: ChannelEntry, variable: str) -> str:
    return _read_variable(configuration, entry, variable) if variable else ""


def _read_variable(configuration: Configuration, entry: ChannelEntry, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        error = configuration.error(entry.key_path, f"the environment variable {variable} is not set")
        raise ToolError(error.message, ErrorKind.CONFIG, f"Set it before Forge starts: export {variable}=…")
    return value


# Schedules: the workspace's own and those that the configuration declares.


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
