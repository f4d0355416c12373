"""The tools with which a model schedules tasks: set, list, delete, and read the history of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from forge.core.arguments.names import near
from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

if TYPE_CHECKING:  # they load SQLite, which listing tools does without
    from forge.schedules.schedule import CurrentChat, Definition, Schedule, ScheduleRun, Source
    from forge.schedules.store import ScheduleStore

LONGEST_SHOWN = 200  # characters of a task in a list
MOST_HISTORY = 50

Open = Callable[[], "ScheduleStore"]
Names = Collection[str] | Callable[[], Collection[str]] | None


def schedule_tools(store: Open, *, channels: Collection[str] | None = None, skills: Names = None) -> list[Tool]:
    """Returns the four tools on one store: set, list, delete and history.

    Args:
        store: opens the store when it is first needed.
        channels: the known channels; None: any name is accepted.
        skills: the known skills, or a function that returns them; None: any name is accepted.

    Example:
        >>> [made.spec.name for made in schedule_tools(lambda: ScheduleStore(None))]
        ['schedule_set', 'schedule_list', 'schedule_delete', 'schedule_history']
    """
    return [ScheduleSet(store, channels, skills), ScheduleList(store), ScheduleDelete(store), ScheduleHistory(store)]


class ScheduleSet(
    Tool,
    category=Category.BUILTIN,
    permissions={"write"},
    argument_aliases={
        "cron_expression": "cron",
        "expression": "cron",
        "schedule": "cron",
        "prompt": "task",
        "message": "task",
        "tz": "timezone",
        "time_zone": "timezone",
        "schedule_id": "id",
        "name": "id",
        "once": "one_shot",
    },
    idempotent=True,
    timeout=30.0,
):
    """Create or change a task that an agent runs on a schedule, unattended. Returns when it fires next."""

    def __init__(self, store: Open, channels: Collection[str] | None = None, skills: Names = None) -> None:
        self._open = store
        self.channels = channels
        self.skills = skills

    def run(
        self,
        ctx: ToolContext,
        cron: Annotated[
            str,
            ParameterLimits(example="30 9 * * MON-FRI"),
            "Five fields, @hourly … @yearly, or @every 90m (at least 1m).",
        ],
        task: Annotated[str, "The complete prompt: the agent does not know this conversation."],
        id: Annotated[
            str,
            "Lower-case words with hyphens. With the id of your own schedule, omitted settings stay unchanged.",
        ] = "",
        timezone: Annotated[str | None, "Such as Europe/Berlin or +02:00. Default: UTC."] = None,
        enabled: Annotated[bool | None, "Default: true."] = None,
        skill: Annotated[str | None, "Read first."] = None,
        channel: Annotated[str | None, "For the result. Default: the one of this conversation."] = None,
        channel_target: Annotated[str | None, "A chat, room or file in the channel."] = None,
        one_shot: Annotated[bool | None, "Fire only once."] = None,
    ) -> ToolResult:
        definition: Definition = {
            "id": id, "cron": cron, "task": task, "timezone": timezone, "enabled": enabled, "skill": skill,
            "channel": channel, "channel_target": channel_target, "one_shot": one_shot,
        }  # fmt: skip
        self._check(definition, ctx)
        made = self._open().set(by=_model(), here=_current_chat(ctx), **definition)
        verb = "set" if made.created == made.updated else "changed"
        return ToolResult(
            for_llm=f"{verb.capitalize()}: {_format_schedule(made)}",
            title=f"{verb} {made.id}",
            data={"schedule": made.to_dict()},
        )

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        from forge.core.execution.threads import in_thread  # asyncio, which listing tools does without

        preview: str = await in_thread(lambda: self._preview(arguments, ctx))
        return preview

    def _preview(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        from forge.schedules.cron import Cron

        self._check(cast("Definition", arguments), ctx)
        old, new = self._open().draft(by=_model(), here=_current_chat(ctx), **cast("Definition", arguments))
        rule = Cron.parse(new.cron, new.timezone).explain()
        following = new.format_time(new.next_fire) or "no time"
        head = f"{'Change' if old else 'New'} schedule {new.id}: {rule}; next at {following}"
        before = [f"- {line}" for line in old.task.splitlines()] if old and old.task != new.task else []
        return "\n".join([head, *before, *(f"+ {line}" for line in new.task.splitlines())])

    def _check(self, definition: Definition, ctx: ToolContext) -> None:
        from forge.schedules.schedule import check_no_secret  # SQLite, which listing tools does without

        check_no_secret(definition, ctx.activity.secrets)
        channel = definition.get("channel") or ""
        self._check_names("" if channel == ctx.scope.channel else channel, definition.get("skill") or "")

    def _check_names(self, channel: str, skill: str) -> None:
        names: tuple[tuple[str, str, Names], ...] = (("channel", channel, self.channels), ("skill", skill, self.skills))
        for kind, name, there in names:
            known = there() if name and callable(there) else there
            if name and known is not None and not callable(known) and name not in known:
                hint = near(name, known) or sorted(known)[:10]
                advice = f"Available: {', '.join(hint)}." if hint else f"Omit the {kind}: none is configured."
                raise ToolError(f"there is no {kind} {brief(name)}", ErrorKind.NOT_FOUND, advice)


class ScheduleList(
    Tool, category=Category.BUILTIN, permissions={"read"}, repeatable=False, idempotent=True, timeout=30.0
):
    """List scheduled tasks, each with its id, cron rule and next time."""

    def __init__(self, store: Open) -> None:
        self._open = store

    def run(self, enabled_only: bool = False) -> ToolResult:
        found = self._open().list(enabled_only)
        text = "\n".join(map(_format_schedule, found)) or (
            "No schedule is enabled." if enabled_only else "There are no schedules."
        )
        return ToolResult(
            for_llm=text, title=f"{len(found)} schedules", data={"schedules": [one.to_dict() for one in found]}
        )


class ScheduleDelete(
    Tool,
    category=Category.BUILTIN,
    permissions={"write"},
    irreversible=True,
    argument_aliases={"schedule_id": "id", "name": "id"},
    timeout=30.0,
):
    """Remove a schedule for good; those of the configuration and of people cannot be removed."""

    def __init__(self, store: Open) -> None:
        self._open = store

    def run(self, id: Annotated[str, "From schedule_list."]) -> ToolResult:
        gone = self._open().delete(id.strip(), _model())
        return ToolResult(
            for_llm=f"Removed: {_format_schedule(gone)}", title=f"removed {gone.id}", data={"deleted": gone.id}
        )

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        from forge.core.execution.threads import in_thread  # asyncio, which listing tools does without

        preview: str = await in_thread(lambda: f"- {_format_schedule(self._open().removable(arguments['id'].strip()))}")
        return preview


class ScheduleHistory(
    Tool,
    category=Category.BUILTIN,
    permissions={"read"},
    argument_aliases={"id": "schedule_id", "name": "schedule_id", "max_results": "limit"},
    idempotent=True,
    timeout=30.0,
):
    """Show the latest runs of scheduled tasks: status, duration and errors."""

    def __init__(self, store: Open, max_limit: int = MOST_HISTORY) -> None:
        self._open = store
        self.max_limit = max_limit

    def run(
        self,
        schedule_id: Annotated[str, "Only this schedule."] = "",
        limit: Annotated[int, ParameterLimits(ge=1, le=MOST_HISTORY)] = 20,
    ) -> ToolResult:
        found = self._open().history(schedule_id.strip() or None, min(limit, self.max_limit))
        text = "\n".join(map(_format_run, found)) or "No schedule has run yet."
        return ToolResult(for_llm=text, title=f"{len(found)} runs", data={"history": [one.to_dict() for one in found]})


def _model() -> Source:
    from forge.schedules.schedule import Source  # not needed to list tools

    return Source.MODEL


def _current_chat(ctx: ToolContext) -> CurrentChat:
    from forge.schedules.schedule import CurrentChat  # SQLite, which listing tools does without

    return CurrentChat(ctx.scope.channel, ctx.scope.chat_id)


def _format_schedule(one: Schedule) -> str:
    """Formats a schedule as one line. The task is quoted, so that it cannot pass for another entry."""
    following = one.format_time(one.next_fire)
    state = f"next {following}" if following else "not planned" if one.enabled else "off"
    marks = [f"from {one.origin}"] if one.origin else ["a person's"] if str(one.source) == "person" else []
    marks += ["once"] if one.one_shot else []
    marks += [f"skill {brief(one.skill)}"] if one.skill else []
    marks += (
        [f"to {brief(one.channel)} {brief(one.channel_target) if one.channel_target else ''}".rstrip()]
        if one.channel
        else []
    )
    return (
        f"{one.id}  [{one.cron}, {one.timezone}]  {state}{''.join(f', {mark}' for mark in marks)}  {_quote(one.task)}"
    )


def _format_run(one: ScheduleRun) -> str:
    shown = one.to_dict()
    took = f" in {one.duration:.1f} s" if one.duration is not None else ""
    message = one.error or one.result
    return f"{shown['started']}  {one.schedule_id}  {one.status}{took}{f'  {_quote(message)}' if message else ''}"


def _quote(text: str) -> str:

    return json.dumps(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…", ensure_ascii=False)
