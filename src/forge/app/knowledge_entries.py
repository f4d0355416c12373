"""The sections of `forge.yaml` about what an agent knows, remembers, does by the clock, and where it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forge.app.reading import Reader

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CHANNELS = {
    "terminal": (),
    "file": ("path",),
    "webhook": ("headers_env", "targets", "url_env"),
    "telegram": ("api", "chat_id", "targets", "token_env"),
}
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


def memory_entry(reader: Reader, value: Any) -> MemoryEntry:
    said = reader.mapping(value, "memory", ("embedder", "enabled"))
    embedder = said.get("embedder", "none")
    if not isinstance(embedder, str | dict | None):
        raise reader.error("memory.embedder", "expected none, local, or {type: endpoint, url: …, model: …, key_env: …}")
    return MemoryEntry(
        enabled=reader.flag(said.get("enabled", True), "memory.enabled"),
        embedder="none" if embedder is None else embedder,
    )


def skills_entry(reader: Reader, value: Any) -> SkillsEntry:
    said = reader.mapping(value, "skills", ("active", "paths"))
    return SkillsEntry(
        paths=reader.texts(said.get("paths", ["skills"]), "skills.paths"),
        active=reader.texts(said.get("active", []), "skills.active"),
    )


def schedule_entries(reader: Reader, value: Any) -> tuple[dict[str, Any], ...]:
    """As `ScheduleStore.declare` takes them, which checks the rest."""
    entries = []
    for index, one in enumerate(reader.sequence(value, "schedules")):
        said = reader.mapping(one, f"schedules[{index}]", _SCHEDULE)
        for key in ("id", "cron", "task"):
            if key not in said:
                raise reader.error(f"schedules[{index}]", f"{key} is missing")
        entries.append(dict(said))
    return tuple(entries)


def channel_entry(reader: Reader, value: Any, place: str) -> ChannelEntry:
    kind = reader.mapping(value, place).get("type")
    if kind not in _CHANNELS:
        raise reader.error(f"{place}.type", f"expected one of {', '.join(_CHANNELS)}", str(kind or ""), _CHANNELS)
    said = reader.mapping(value, place, ("type", *_CHANNELS[kind]))
    for key in {"file": ("path",), "webhook": ("url_env",), "telegram": ("token_env",)}.get(kind, ()):
        if key not in said:
            raise reader.error(place, f"{key} is missing")
    chat = said.get("chat_id", "")
    if isinstance(chat, bool) or not isinstance(chat, str | int):
        raise reader.error(f"{place}.chat_id", "expected a text or a number")
    headers = reader.mapping(said.get("headers_env", {}), f"{place}.headers_env")
    return ChannelEntry(
        place=place,
        type=kind,
        path=Path(reader.name).parent / reader.text(said["path"], f"{place}.path") if "path" in said else None,
        url_env=reader.variable(said["url_env"], f"{place}.url_env") if "url_env" in said else "",
        headers_env={key: reader.variable(one, f"{place}.headers_env.{key}") for key, one in headers.items()},
        token_env=reader.variable(said["token_env"], f"{place}.token_env") if "token_env" in said else "",
        chat_id=str(chat),
        api=reader.text(said["api"], f"{place}.api") if "api" in said else "",
        targets=reader.texts([str(one) for one in reader.sequence(said.get("targets", []), f"{place}.targets")], place),
    )
