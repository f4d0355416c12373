"""What a schedule shall be, from what somebody asked for: checked, and laid over what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Required, TypedDict, Unpack, cast

from forge.core.errors import ErrorKind, ToolError
from forge.schedules._rows import Row
from forge.schedules.cron import Cron
from forge.schedules.schedule import Schedule, Source, check_id, check_name, check_task, default_id

_KEYS = {"id": str, "cron": str, "task": str, "timezone": str, "enabled": bool, "one_shot": bool}
_KEYS |= {"skill": str, "channel": str, "channel_target": str}


class Definition(TypedDict, total=False):
    """What can be said of a schedule; the rule and the task must be."""

    cron: Required[str]
    task: Required[str]
    id: str | None  # by default, made of the task
    timezone: str  # UTC
    enabled: bool | None  # None: a new one is, an existing one stays as it is
    one_shot: bool
    skill: str
    channel: str
    channel_target: str


def checked(*, source: Source, origin: str = "", **definition: Unpack[Definition]) -> Schedule:
    """A schedule that has no plan yet. Raises `ToolError`."""
    task = check_task(definition["task"])
    name = (definition.get("id") or "").strip()
    if name:
        check_id(name)
    rule = Cron.parse(definition["cron"], definition.get("timezone", "UTC"))
    return Schedule(
        id=name or default_id(task),
        cron=rule.text,
        task=task,
        timezone=rule.timezone,
        enabled=definition.get("enabled") is not False,
        one_shot=definition.get("one_shot", False),
        skill=check_name("skill", definition.get("skill", "")),
        channel=check_name("channel", definition.get("channel", "")),
        channel_target=check_name("channel target", definition.get("channel_target", "")),
        source=source,
        origin=origin,
    )


def revised(old: Row | None, wanted: Schedule, now: float, *, arm: bool = False) -> Row:
    """The row of a schedule as it shall be. Its plan is kept unless something about its times changed.

    `arm`: a one-shot that has fired is to fire again; otherwise only where its times changed.
    """
    if old is not None and same(old, wanted) and not (arm and old.spent):
        return old
    before = old.schedule if old is not None else None
    made = replace(
        wanted,
        created=before.created if before else now,
        updated=now,
        last_fire=before.last_fire if before else None,
    )
    rule = (made.cron, made.timezone, made.one_shot)
    same_rule = before is not None and rule == (before.cron, before.timezone, before.one_shot)
    if old is not None and before is not None and same_rule:
        if old.spent and not arm:
            return Row(replace(made, enabled=False), old.anchor, old.planned, True)
        if before.enabled and made.enabled and not old.spent:
            return Row(replace(made, next_fire=before.next_fire), old.anchor, old.planned)
    anchor = old.anchor if old is not None and same_rule else now
    following = Cron.parse(made.cron, made.timezone).next_after(now, anchor) if made.enabled else None
    return Row(replace(made, next_fire=following), anchor, now)


def same(row: Row, wanted: Schedule) -> bool:
    """Whether it is defined so already; what became of it in the meantime does not count."""
    old = row.schedule
    return old == replace(
        wanted,
        enabled=old.enabled if row.spent else wanted.enabled,
        created=old.created,
        updated=old.updated,
        next_fire=old.next_fire,
        last_fire=old.last_fire,
    )


def check_may_change(schedule: Schedule) -> None:
    if schedule.source is Source.CONFIG:
        raise ToolError(
            f"{schedule.id} is declared in {schedule.origin}, and cannot be changed here",
            ErrorKind.PERMISSION,
            f"Ask the person to edit {schedule.origin}, or use another id.",
        )


def declared(entries: Sequence[Mapping[str, Any]], origin: str) -> dict[str, Schedule]:
    found: dict[str, Schedule] = {}
    for index, entry in enumerate(entries):
        place = f"{origin}: schedules[{index}]"
        for key, value in entry.items():
            if key not in _KEYS:
                known = ", ".join(sorted(_KEYS))
                raise ToolError(f"{place}.{key}: unknown key", ErrorKind.CONFIG, f"Known are {known}.")
            if not isinstance(value, _KEYS[key]):
                kind = "true or false" if _KEYS[key] is bool else "a text"
                raise ToolError(f"{place}.{key}: expected {kind}", ErrorKind.CONFIG, "Mend the file.")
        if missing := {"cron", "task"} - entry.keys():
            raise ToolError(f"{place}: {min(missing)} is missing", ErrorKind.CONFIG, "Mend the file.")
        try:
            one = checked(**cast(Definition, entry), source=Source.CONFIG, origin=origin)
        except ToolError as error:
            raise ToolError(f"{place}: {error.message}", ErrorKind.CONFIG, error.suggestion) from error
        if one.id in found:
            raise ToolError(f"{place}: there is a schedule {one.id!r} already", ErrorKind.CONFIG, "Give it another id.")
        found[one.id] = one
    return found
