"""The sections of `forge.yaml` about what an agent knows, remembers, does by the clock, and where it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from forge.app.reading import Reader

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CHANNELS = {
    "terminal": (),
    "file": ("path",),
    "webhook": ("files", "headers_env", "targets", "url_env"),
    "slack": ("api", "chat_id", "targets", "token_env", "url_env"),
    "telegram": ("api", "chat_id", "targets", "token_env"),
}
_GUARDRAILS = ("deny_commands", "deny_output", "deny_prompts", "deny_responses")
_SCHEDULE = "channel channel_target cron enabled id one_shot skill task timezone".split()


class MemoryEntry(NamedTuple):
    """Whether there is a memory, and what finds things by their meaning."""

    enabled: bool = False
    embedder: Any = "none"  # as `forge.memory.embed.embedder_from` takes it


class SkillsEntry(NamedTuple):
    """Where skills are, and which are active from the beginning."""

    paths: tuple[str, ...] = ("skills",)
    active: tuple[str, ...] = ()


class ChannelEntry(NamedTuple):
    """Where something is delivered. `targets` are the chats or rooms that may be named beside the usual one."""

    place: str
    type: str
    path: Path | None = None
    url_env: str = ""
    headers_env: Mapping[str, str] = _NOTHING
    token_env: str = ""
    chat_id: str = ""
    api: str = ""
    targets: tuple[str, ...] = ()
    files: Literal["named", "json", "multipart"] = "named"  # how a webhook takes files


def memory_entry(reader: Reader, value: Any) -> MemoryEntry:
    said = reader.mapping(value, "memory", ("embedder", "enabled"))
    return MemoryEntry(
        enabled=reader.flag(said.get("enabled", True), "memory.enabled"),
        embedder=_embedder(reader, said.get("embedder", "none"), "memory.embedder"),
    )


def _embedder(reader: Reader, value: Any, place: str) -> Any:
    """As `embedder_from` takes it."""
    if not isinstance(value, dict):
        known = ("none", "local")
        return reader.choice("none" if value is None else value, place, known, "none, local, or a url and a model")
    said = reader.mapping(value, place, ("dimensions", "key_env", "model", "type", "url"))
    kind = reader.choice(said.get("type", "endpoint"), f"{place}.type", ("none", "local", "endpoint"))
    if kind != "endpoint":
        if len(said) > 1:
            raise reader.error(place, f"{kind} takes nothing else")
        return kind
    for key in ("url", "model"):
        if key not in said:
            raise reader.error(place, f"{key} is missing")
        reader.text(said[key], f"{place}.{key}")
    made = {**said, "type": kind}
    if "key_env" in said:
        made["key_env"] = reader.variable(said["key_env"], f"{place}.key_env")
    if "dimensions" in said:
        made["dimensions"] = reader.whole(said["dimensions"], f"{place}.dimensions", 1)
    return made


def skills_entry(reader: Reader, value: Any) -> SkillsEntry:
    said = reader.mapping(value, "skills", ("active", "paths"))
    return SkillsEntry(
        paths=reader.texts(said.get("paths", ["skills"]), "skills.paths"),
        active=reader.texts(said.get("active", []), "skills.active"),
    )


def guardrail_entries(reader: Reader, value: Any) -> dict[str, Any]:
    """As `forge.skills.guardrails.Guardrails.of` takes them, which reads the patterns."""
    said = reader.mapping(value, "guardrails", _GUARDRAILS)
    for key, rules in said.items():
        known = ("action", "message", "pattern") if key == "deny_output" else ("message", "pattern")
        for index, one in enumerate(reader.sequence(rules, f"guardrails.{key}")):
            place = f"guardrails.{key}[{index}]"
            rule = reader.mapping({"pattern": one} if isinstance(one, str) else one, place, known)
            if not isinstance(rule.get("pattern"), str):
                raise reader.error(place, "pattern is missing: a regular expression")
            reader.choice(rule.get("action", "block"), f"{place}.action", ("block", "redact"))
    return said


def schedule_entries(reader: Reader, value: Any) -> tuple[dict[str, Any], ...]:
    """As `ScheduleStore.declare` takes them, which checks the rest."""
    entries = []
    for index, one in enumerate(reader.sequence(value, "schedules")):
        said = reader.mapping(one, f"schedules[{index}]", _SCHEDULE)
        for key in ("id", "cron", "task"):
            if key not in said:
                raise reader.error(f"schedules[{index}]", f"{key} is missing")
        for key, one in said.items():
            read: Any = reader.flag if key in ("enabled", "one_shot") else reader.text
            (reader.words if key in ("channel", "channel_target", "skill") else read)(one, f"schedules[{index}].{key}")
        entries.append(dict(said))
    return tuple(entries)


def channel_entry(reader: Reader, value: Any, place: str) -> ChannelEntry:
    kind = reader.choice(reader.mapping(value, place).get("type", ""), f"{place}.type", _CHANNELS)
    said = reader.mapping(value, place, ("type", *_CHANNELS[kind]))
    for key in {"file": ("path",), "webhook": ("url_env",), "telegram": ("token_env",)}.get(kind, ()):
        if key not in said:
            raise reader.error(place, f"{key} is missing")
    if kind == "slack" and ("url_env" in said) == ("token_env" in said):
        raise reader.error(place, "expected either url_env (an incoming webhook) or token_env (a bot)")
    if kind == "slack" and "url_env" in said and (wrong := sorted({"api", "chat_id", "targets"} & set(said))):
        raise reader.error(f"{place}.{wrong[0]}", "an incoming webhook belongs to one channel; use token_env")
    files: Any = reader.choice(said.get("files", "named"), f"{place}.files", ("named", "json", "multipart"))
    chat = _target(reader, said.get("chat_id", ""), f"{place}.chat_id")
    headers = reader.mapping(said.get("headers_env", {}), f"{place}.headers_env")
    return ChannelEntry(
        place=place,
        type=kind,
        path=Path(reader.name).parent / reader.text(said["path"], f"{place}.path") if "path" in said else None,
        url_env=reader.variable(said["url_env"], f"{place}.url_env") if "url_env" in said else "",
        headers_env={key: reader.variable(one, f"{place}.headers_env.{key}") for key, one in headers.items()},
        token_env=reader.variable(said["token_env"], f"{place}.token_env") if "token_env" in said else "",
        chat_id=chat,
        api=reader.text(said["api"], f"{place}.api") if "api" in said else "",
        files=files,
        targets=tuple(
            reader.text(_target(reader, one, f"{place}.targets[{index}]"), f"{place}.targets[{index}]")
            for index, one in enumerate(reader.sequence(said.get("targets", []), f"{place}.targets"))
        ),
    )


def _target(reader: Reader, value: Any, place: str) -> str:
    """A chat or a room: many are numbers."""
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    if not isinstance(value, str):
        raise reader.error(place, "expected a text or a whole number")
    return value
