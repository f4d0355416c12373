"""Builds the built-in tools that need a project's servers, documents, channels, schedules or memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.project.assemble.channels import ProjectChannels
from forge.project.assemble.choose import apply_settings, choose_tools
from forge.project.assemble.imported_tools import imported_tools
from forge.project.assemble.schedule_store import schedule_store_opener
from forge.project.assemble.sources import Sources
from forge.project.config import Configuration
from forge.tools.conversation import Deliver, SendMessage

if TYPE_CHECKING:  # listing tools reads no skill
    from forge.skills.active import ActiveSkills

Skills = Callable[[], "ActiveSkills"]


def project_tools(
    configuration: Configuration,
    workspace: Path,
    sources: Sources,
    skills: Skills,
    *,
    dev: bool = False,
    own: Sequence[Tool] | None = None,
    later: bool = False,
) -> ToolRegistry:
    """Returns every tool of a project before its sources are mounted. `skills` is called if some are active.

    `own` are the built-in tools that are built for the project, instead of `own_tools`. `later`: sources that are not
    in `sources` may bring more tools.
    """
    is_active = configuration.skills is not None and bool(configuration.skills.active)
    registry = choose_tools(
        configuration,
        dev=dev,
        own=own_tools(configuration, workspace, sources, skills) if own is None else own,
        always=[*sources.webhooks(), *imported_tools(configuration)],
        groups=skills().groups if is_active else (),
        later=later or bool(sources.all) or is_active,
    )
    if is_active:
        from forge.process.scripts.settings import ScriptSettings

        made = skills().tools(ScriptSettings(sandbox=configuration.sandbox), registry.names)
        registry.add(*(apply_settings(tool, configuration) for tool in made))
    return registry


def own_tools(configuration: Configuration, workspace: Path, sources: Sources, skills: Skills) -> list[Tool]:
    """Returns the built-in tools that are built for the project."""
    from forge.schedules.tools import schedule_tools
    from forge.skills.tools import ReadSkill

    channels = ProjectChannels(configuration)
    planning = schedule_tools(
        schedule_store_opener(configuration, workspace),
        channels=channels.names,
        skills=lambda: skills().catalog.skills.keys(),
    )
    made = [*sources.direct_tools(), *planning]
    if configuration.channels:
        made.append(SendMessage(_make_deliver(channels)))
    if configuration.memory is not None and configuration.memory.enabled:
        from forge.memory.tools import memory_tools
        from forge.project.assemble.memory import memory_of

        made += memory_tools(memory_of(configuration, workspace, writes=configuration.writes))
    return [*made, ReadSkill(skills)]


def _make_deliver(channels: ProjectChannels) -> Deliver:
    """Returns the function with which `send_message` delivers."""

    async def deliver(text: str, channel: str, to: str) -> bool:
        """Returns whether the message was sent; one for the current conversation is shown there."""
        if not channel:
            return False
        await channels.deliver(text, channel, to)
        return True

    return deliver
