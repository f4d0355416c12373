"""The built-in tools that are made for a project: they need its servers, documents, channels, schedules or memory."""

from __future__ import annotations

from pathlib import Path

from forge.app.channels import ProjectChannels
from forge.app.choose import choose_tools
from forge.app.config import Configuration
from forge.app.schedules import opening
from forge.app.sources import Sources
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.tools.conversation import Deliver, SendMessage


def project_tools(
    configuration: Configuration, workspace: Path, sources: Sources, *, dev: bool = False
) -> ToolRegistry:
    """Every tool that a project has before its sources are mounted."""
    return choose_tools(
        configuration,
        dev=dev,
        own=own_tools(configuration, workspace, sources),
        always=sources.webhooks(),
        later=bool(sources.all),
    )


def own_tools(configuration: Configuration, workspace: Path, sources: Sources) -> list[Tool]:
    from forge.schedules.tools import schedule_tools

    channels = ProjectChannels(configuration)
    made = [*sources.one_off(), *schedule_tools(opening(configuration, workspace), channels=channels.names or None)]
    if configuration.channels:
        made.append(SendMessage(_delivering(channels)))
    if configuration.memory is not None and configuration.memory.enabled:
        from forge.app.memory import memory_of
        from forge.memory.tools import memory_tools

        made += memory_tools(memory_of(configuration, workspace, writes=configuration.writes))
    return made


def _delivering(channels: ProjectChannels) -> Deliver:
    async def deliver(text: str, channel: str, to: str) -> bool:
        """Whether it went somewhere; what is for the current conversation is shown there."""
        if not channel:
            return False
        await channels.deliver(text, channel, to)
        return True

    return deliver
