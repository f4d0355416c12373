"""Checks requested schedule definitions and merges them with the stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict, Unpack, cast

from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.schedules.cron import Cron
from forge.schedules.schedule import Schedule, Source, check_id, check_name, check_task, default_id

_KEYS = {"id": str, "cron": str, "task": str, "timezone": str, "enabled": bool, "one_shot": bool, "command": bool}
_KEYS |= {"skill": str, "channel": str, "channel_target": str}


class Definition(TypedDict, total=False):
    """The keys of a schedule; the rule and the task are required."""

    cron: Required[str]
    task: Required[str]
    id: str | None  # derived from the task by default
    # None, or left out: an existing schedule keeps what it has; a new one has the default
    timezone: str | None  # UTC
    enabled: bool | None  # True
    one_shot: bool | None  # False
    command: bool | None  # False; only a person or the configuration may set it
    skill: str | None
    channel: str | None
    channel_target: str | None


class CurrentChat(NamedTuple):
    """The chat of the current conversation: a new schedule that names no channel answers there."""

    channel: str = ""
    target: str = ""


NO_CHAT = CurrentChat()


def complete_new(definition: Definition, here: CurrentChat) -> Definition:
    """Fills in the current chat for a new schedule that names no channel."""
    if definition.get("channel") or not here.channel:
        return complete_change(definition, here)
    return {**definition, "channel": here.channel, "channel_target": definition.get("channel_target") or here.target}


def complete_change(definition: Definition, here: CurrentChat) -> Definition:
    """Fills in the current chat if the definition names its channel without a target."""
    if definition.get("channel") and definition["channel"] == here.channel and not definition.get("channel_target"):
        return {**definition, "channel_target": here.target}
    return definition


def id_of(definition: Definition) -> str:
    """Returns the requested or the default id. Raises `ToolError` if it is invalid."""
    name = (definition.get("id") or "").strip()
    if name:
        check_id(name)
    return name or default_id(check_task(definition["task"]))


def build_schedule(
    *, source: Source, origin: str = "", old: Schedule | None = None, **definition: Unpack[Definition]
) -> Schedule:
    """Returns a schedule without a plan; missing keys keep the old schedule's values. Raises `ToolError`."""
    before = old if old is not None else _NEW
    given: dict[str, Any] = {key: value for key, value in definition.items() if value is not None}
    if given.get("channel", before.channel) != before.channel:
        given.setdefault("channel_target", "")  # the old target belongs to the other channel
    rule = Cron.parse(definition["cron"], given.get("timezone", before.timezone))
    return Schedule(
        id=id_of(definition),
        cron=rule.text,
        task=check_task(definition["task"]),
        timezone=rule.timezone,
        enabled=given.get("enabled", before.enabled),
        one_shot=given.get("one_shot", before.one_shot),
        command=_check_command(given.get("command", before.command), source),
        skill=check_name("skill", given.get("skill", before.skill)),
        channel=check_name("channel", given.get("channel", before.channel)),
        channel_target=check_name("channel target", given.get("channel_target", before.channel_target)),
        source=source,
        origin=origin,
    )


def _check_command(command: bool, source: Source) -> bool:
    if command and source is Source.MODEL:
        raise ToolError(
            "a model cannot schedule a command", ErrorKind.PERMISSION, "Describe the work as a task for the agent."
        )
    return command


_NEW = Schedule(id="", cron="", task="")


def check_no_secret(definition: Mapping[str, Any], secrets: Secrets) -> None:
    """Raises `ToolError` if a text contains a registered secret: a masked secret would break the task."""
    for key, value in definition.items():
        if isinstance(value, str) and secrets.mask(value) != value:
            raise ToolError(
                f"the {key} contains a secret, but schedules are stored and shown",
                ErrorKind.SECURITY,
                "Name the environment variable or the file with the secret; the task can read the value there.",
            )


def check_may_change(schedule: Schedule, by: Source) -> None:
    """Raises `ToolError` for a schedule of the configuration, and for a model that did not set the schedule itself."""
    if schedule.source is Source.CONFIG:
        raise ToolError(
            f"{schedule.id} is declared in {schedule.origin}, so it cannot be changed here",
            ErrorKind.PERMISSION,
            f"Ask the person to edit {schedule.origin}, or use another id.",
        )
    if by is Source.MODEL and schedule.source is not Source.MODEL:
        raise ToolError(
            f"{schedule.id} was added or changed by a person, so only a person may change or remove it",
            ErrorKind.PERMISSION,
            "Ask the person to do it with `forge schedule` or in the console, or use another id.",
        )


def read_declared(entries: Sequence[Mapping[str, Any]], origin: str) -> dict[str, Schedule]:
    found: dict[str, Schedule] = {}
    for index, entry in enumerate(entries):
        key_path = f"{origin}: schedules[{index}]"
        for key, value in entry.items():
            if key not in _KEYS:
                known = ", ".join(sorted(_KEYS))
                raise ToolError(f"{key_path}.{key}: unknown key", ErrorKind.CONFIG, f"Use one of {known}.")
            if not isinstance(value, _KEYS[key]):
                kind = "true or false" if _KEYS[key] is bool else "a string"
                raise ToolError(f"{key_path}.{key}: expected {kind}", ErrorKind.CONFIG, "Fix the file.")
        if missing := {"cron", "task"} - entry.keys():
            raise ToolError(f"{key_path}: {min(missing)} is missing", ErrorKind.CONFIG, "Fix the file.")
        try:
            one = build_schedule(**cast(Definition, entry), source=Source.CONFIG, origin=origin)
        except ToolError as error:
            raise ToolError(f"{key_path}: {error.message}", ErrorKind.CONFIG, error.suggestion) from error
        if one.id in found:
            raise ToolError(f"{key_path}: the id {one.id!r} is already in use", ErrorKind.CONFIG, "Use another id.")
        found[one.id] = one
    return found
