"""The keys about what an agent knows, remembers, does on a schedule, and where it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from forge.project.config.kinds import (
    AsWritten,
    Choice,
    FilePath,
    Flag,
    ListOf,
    MappingOf,
    Schema,
    Text,
    Variable,
    WholeNumber,
)
from forge.project.config.reader import Reader
from forge.project.config.section import PlainSection, Section, key


class _Endpoint(PlainSection):
    """An embeddings server that speaks OpenAI's API."""

    type: str = key(Choice("endpoint"), "Known from the URL.", "endpoint")
    url: str = key(Text(), "Where the server is.", "http://127.0.0.1:11434/v1", required=True)
    model: str = key(Text(), "The name of its model.", "nomic-embed-text", required=True)
    key_env: str = key(Variable(), "The variable that holds its key.", "EMBEDDINGS_KEY")
    dimensions: int = key(WholeNumber(1), "How long its vectors are.", 768)


class _Embedder(Choice):
    """A word, or a server; read as `forge.memory.embedders.embedder_from` takes it."""

    def read(self, reader: Reader, value: Any, key_path: str) -> Any:
        if not isinstance(value, dict):
            return super().read(reader, value, key_path)
        said = reader.mapping(value, key_path, _Endpoint.keys)
        kind = Choice("none", "local", "endpoint").read(reader, said.get("type", "endpoint"), f"{key_path}.type")
        if kind == "endpoint":
            return {**_Endpoint.read(reader, value, key_path), "type": kind}
        if len(said) > 1:
            raise reader.error(key_path, f"{kind} takes nothing else")
        return kind

    def schema(self) -> Schema:
        word = {"type": "object", "properties": {"type": {"enum": ["none", "local"]}}, "additionalProperties": False}
        return {"anyOf": [super().schema(), {**word, "required": ["type"]}, _Endpoint.schema()]}


class MemoryEntry(Section, example={"enabled": True, "embedder": "none"}):
    """Notes that are kept from one session to the next."""

    enabled: bool = key(Flag(), "By default it is, where memory is mentioned.", True, default=True, unset=False)
    embedder: Any = key(
        _Embedder("none", "local", also=(None, "none"), expected="none, local, or a url and a model"),
        "What finds things by their meaning; without it, by their words.",
        {"url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"},
        default="none",
    )


class SkillsEntry(Section, example={"paths": ["skills"], "active": ["code-agent"]}):
    """The skills of the agent."""

    paths: tuple[str, ...] = key(
        ListOf(Text(), single=True),
        "Where skills are, in the workspace.",
        ["skills"],
        default=("skills",),
        unset=["skills"],
    )
    active: tuple[str, ...] = key(
        ListOf(Text(), single=True), "Those that are active from the beginning.", ["code-agent"]
    )


class _Rule(PlainSection, alone="pattern", example={"pattern": "DROP TABLE", "message": "no tables are dropped here"}):
    """A regular expression, and why."""

    pattern: str = key(AsWritten({"type": "string"}), "In RE2's syntax.", "DROP TABLE", required="a regular expression")
    message: Any = key(AsWritten(), "Why; the model reads it.", "no tables are dropped here")

    @classmethod
    def read(cls, reader: Reader, value: Any, key_path: str) -> Any:
        super().read(reader, value, key_path)
        return value  # `forge.skills.guardrails` reads it


class _OutputRule(_Rule, example={"pattern": "BEGIN KEY", "action": "redact"}):
    """A regular expression, why, and whether the output is blocked or the match blotted out."""

    action: str = key(Choice("block", "redact"), "Hide all of it, or only the match.", "redact")


class GuardrailsEntry(
    PlainSection,
    example={"deny_commands": [{"pattern": "DROP TABLE", "message": "no tables are dropped here"}]},
):
    """Regular expressions (RE2) that nothing may match."""

    deny_commands: list[Any] = key(ListOf(_Rule), "Commands that must not run.")
    deny_output: list[Any] = key(ListOf(_OutputRule), "Output that must not be seen.")
    deny_prompts: list[Any] = key(ListOf(_Rule), "What may not be asked.", ["(?i)ignore your instructions"])
    deny_responses: list[Any] = key(ListOf(_Rule), "What may not be answered.", ["(?i)as a language model"])


class ScheduleEntry(
    PlainSection, example={"id": "nightly", "cron": "0 3 * * *", "task": "Check the logs and report what is new."}
):
    """A task, and when it is done; as `ScheduleStore.declare` takes it, which checks the rest."""

    id: str = key(Text(), "Its name.", "nightly", required=True)
    cron: str = key(Text(), "When.", "0 3 * * *", required=True)
    task: str = key(Text(), "What the agent is asked.", "Check the logs and report what is new.", required=True)
    timezone: str = key(Text(), "UTC by default.", "Europe/Berlin")
    enabled: bool = key(Flag(), "Whether it runs; true by default.", True)
    one_shot: bool = key(Flag(), "Once, and never again.", False)
    skill: str = key(Text(blank=True), "A skill that is active meanwhile.", "")
    channel: str = key(Text(blank=True), "The channel that gets the result.", "")
    channel_target: str = key(Text(blank=True), "A chat or room of the channel.", "")


class ChannelEntry(Section, example={"type": "webhook", "url_env": "TEAM_WEBHOOK"}):
    """A destination of messages."""

    type: str = key(Choice("terminal", "file", "webhook", "slack", "telegram"), "What it is.", "file", required=True)
    path: Path | None = key(FilePath(), "Relative to this file.", "news.txt")
    url_env: str = key(Variable(), "The variable that holds the URL.", "TEAM_WEBHOOK")
    headers_env: Mapping[str, str] = key(
        MappingOf(Variable()), "Headers whose values are held by variables.", {"Authorization": "DOCS_TOKEN"}
    )
    files: Literal["named", "json", "multipart"] = key(
        Choice("named", "json", "multipart"), "How files go along; named: they do not.", "json", default="named"
    )
    token_env: str = key(Variable(), "The variable that holds the bot's token.", "SLACK_BOT_TOKEN")
    chat_id: str = key(Text(blank=True, numeric=True), "The usual chat or room.", "C0123456789")
    api: str = key(Text(), "Another server than the usual one.", "https://slack-gov.com/api")
    targets: tuple[str, ...] = key(
        ListOf(Text(numeric=True)), "Chats or rooms that may be named beside the usual one.", ["-100200300"]
    )

    @classmethod
    def read(cls, reader: Reader, value: Any, key_path: str) -> Any:
        kind = cls.keys["type"].kind.read(reader, reader.mapping(value, key_path).get("type", ""), f"{key_path}.type")
        ways = [way for way in _WAYS if way[0] == kind]
        said = reader.mapping(
            value, key_path, ("type", *(name for _, needed, more in ways for name in (*needed, *more)))
        )
        if kind == "slack" and ("url_env" in said) == ("token_env" in said):
            raise reader.error(key_path, "expected either url_env (an incoming webhook) or token_env (a bot)")
        if kind == "slack" and "url_env" in said and (wrong := sorted(said.keys() - {"type", "url_env"})):
            raise reader.error(f"{key_path}.{wrong[0]}", "an incoming webhook belongs to one channel; use token_env")
        for name in ways[0][1] if kind != "slack" else ():
            if name not in said:
                raise reader.error(key_path, f"{name} is missing")
        return super().read(reader, value, key_path)

    @classmethod
    def schema(cls) -> Schema:
        made = super().schema()
        keys = made["properties"]
        ways = [
            {
                "type": "object",
                "properties": {"type": {"const": kind}, **{name: keys[name] for name in (*needed, *more)}},
                "additionalProperties": False,
                "required": ["type", *needed],
            }
            for kind, needed, more in _WAYS
        ]
        return {"anyOf": ways, "description": made["description"], "examples": made["examples"]}


_BOT = ("chat_id", "api", "targets")
_WAYS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (  # the type, keys it needs, keys it may have
    ("terminal", (), ()),
    ("file", ("path",), ()),
    ("webhook", ("url_env",), ("headers_env", "files", "targets")),
    ("slack", ("token_env",), _BOT),
    ("slack", ("url_env",), ()),
    ("telegram", ("token_env",), _BOT),
)
