"""The keys about what an agent knows, remembers, does on a schedule, and where it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.project.config.section import PlainSection, Schema, Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import (
        Accepts,
        AsWritten,
        BlankText,
        FilePath,
        Folder,
        Key,
        NumericBlank,
        NumericText,
        Of,
        OneOf,
        Single,
        Text,
        Variable,
        Whole,
    )
    from forge.project.config.reader import ConfigReader


_EMBEDDERS = "none, local, or a url and a model"
_TYPES = "one of none, local, endpoint"


class _Endpoint(PlainSection):
    """An embeddings server with OpenAI's API."""

    type: Annotated[str, OneOf("endpoint", expected=_TYPES), Key("Optional: follows from the URL.", "endpoint")]
    url: Annotated[Text, Key("URL of the server.", "http://127.0.0.1:11434/v1", required=True)]
    model: Annotated[Text, Key("Name of the embedding model.", "nomic-embed-text", required=True)]
    key_env: Annotated[Variable, Key("The environment variable with the server's API key.", "EMBEDDINGS_KEY")]
    dimensions: Annotated[int, Whole(1), Key("Number of dimensions of the vectors.", 768)]


class _NamedEmbedder(PlainSection):
    """An embedder by its name."""

    type: Annotated[str, OneOf("none", "local", expected=_TYPES), Key("The kind of embedder.", "local", required=True)]


class MemoryEntry(Section, example={"enabled": True, "embedder": "none"}):
    """Notes that the agent keeps between sessions."""

    enabled: Annotated[bool, Key("True by default once there is a `memory` section.", True, unset=False)] = True
    embedder: Annotated[
        Any,
        Of(_NamedEmbedder | _Endpoint | Annotated[str, OneOf("none", "local", None, expected=_EMBEDDERS)]),
        Key(
            "The embedder for searching notes by meaning. Without one, notes are found by keywords.",
            {"url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"},
        ),
    ] = "none"

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """Reads the embedder as `forge.memory.embedders.embedder_from` takes it."""
        said = values.get("embedder", "none") or "none"
        if isinstance(said, dict):
            said = {**said, "type": "endpoint"} if "url" in said else said["type"]
        return super().from_keys(reader, {**values, "embedder": said}, key_path)


class SkillsEntry(Section, example={"paths": ["skills"], "active": ["code-agent"]}):
    """The skills of the agent."""

    paths: Annotated[
        tuple[Folder, ...], Single(), Key("Folders with skills, inside the workspace.", ["skills"], unset=["skills"])
    ] = ("skills",)
    active: Annotated[tuple[Text, ...], Single(), Key("Skills that are active from the start.", ["code-agent"])] = ()


class _Rule(PlainSection, alone="pattern", example={"pattern": "DROP TABLE", "message": "no tables are dropped here"}):
    """A regular expression, and a reason."""

    pattern: Annotated[
        str,
        Accepts({"type": "string"}),
        Key("A regular expression in RE2 syntax.", "DROP TABLE", required="a regular expression"),
    ]
    message: Annotated[Any, Key("The reason, which the model reads.", "no tables are dropped here")]


class _OutputRule(_Rule, example={"pattern": "BEGIN KEY", "action": "redact"}):
    """A regular expression, a reason, and whether to block the output or redact the match."""

    action: Annotated[
        Literal["block", "redact"], Key("`block` hides the whole output, `redact` only the match.", "redact")
    ]


class GuardrailsEntry(
    PlainSection, example={"deny_commands": [{"pattern": "DROP TABLE", "message": "no tables are dropped here"}]}
):
    """Regular expressions (RE2) that commands, output, prompts or responses must not match."""

    deny_commands: Annotated[list[_Rule], AsWritten(), Key("Commands that must not run.")]
    deny_output: Annotated[list[_OutputRule], AsWritten(), Key("Output that must not reach the model.")]
    deny_prompts: Annotated[
        list[_Rule], AsWritten(), Key("Prompts that are refused.", ["(?i)ignore your instructions"])
    ]
    deny_responses: Annotated[
        list[_Rule], AsWritten(), Key("Responses of the model that are refused.", ["(?i)as a language model"])
    ]


class ScheduleEntry(
    PlainSection, example={"id": "nightly", "cron": "0 3 * * *", "task": "Check the logs and report what is new."}
):
    """A task and its times, as `ScheduleStore.declare` takes it, which checks the rest."""

    id: Annotated[Text, Key("Name of the schedule.", "nightly", required=True)]
    cron: Annotated[Text, Key("The times, as a cron expression.", "0 3 * * *", required=True)]
    task: Annotated[Text, Key("The prompt for the agent.", "Check the logs and report what is new.", required=True)]
    timezone: Annotated[Text, Key("Time zone of `cron`. Default: UTC.", "Europe/Berlin")]
    enabled: Annotated[bool, Key("Set to false to pause the schedule. Default: true.", True)]
    one_shot: Annotated[bool, Key("Run once, then never again.", False)]
    command: Annotated[bool, Key("The task is a command line, which `bash` runs without a model.", False)]
    skill: Annotated[BlankText, Key("A skill that the agent reads first.", "")]
    channel: Annotated[BlankText, Key("The channel that gets the result.", "")]
    channel_target: Annotated[BlankText, Key("A chat or room of the channel.", "")]


_BOT = ("token_env", "chat_id", "api", "targets")
_EITHER = {"errorMessage": "expected either url_env (an incoming webhook) or token_env (a bot)"}
_ONE_CHANNEL = {"errorMessage": "an incoming webhook always posts to one channel; use token_env instead"}


def _channel_rules() -> Iterator[Schema]:
    """Yields which keys a type of channel needs, and which it may have."""
    for kind, needed, known in (
        ("terminal", (), ()),
        ("file", ("path",), ("path",)),
        ("webhook", ("url_env",), ("url_env", "headers_env", "files", "targets")),
        ("slack", (), ("url_env", *_BOT)),
        ("telegram", ("token_env",), _BOT),
    ):
        then: Schema = {"required": [*needed], "propertyNames": {"enum": ["type", *known]}}
        yield {"if": {"properties": {"type": {"const": kind}}}, "then": then}
    is_slack = {"properties": {"type": {"const": "slack"}}}
    yield {"if": is_slack, "then": {"oneOf": [{"required": ["url_env"]}, {"required": ["token_env"]}], **_EITHER}}
    is_webhook = {**is_slack, "required": ["url_env"], "not": {"required": ["token_env"]}}
    yield {"if": is_webhook, "then": {"propertyNames": {"enum": ["type", "url_env"], **_ONE_CHANNEL}}}


class ChannelEntry(Section, rules=_channel_rules(), example={"type": "webhook", "url_env": "TEAM_WEBHOOK"}):
    """A destination for messages."""

    type: Annotated[
        Literal["terminal", "file", "webhook", "slack", "telegram"], Key("The kind of channel.", "file", required=True)
    ]
    path: Annotated[FilePath | None, Key("The file to append to, relative to this file.", "news.txt")] = None
    url_env: Annotated[Variable, Key("The environment variable with the URL.", "TEAM_WEBHOOK")] = ""
    headers_env: Annotated[
        Mapping[str, Variable],
        Key("Headers, each with the environment variable that has its value.", {"Authorization": "DOCS_TOKEN"}),
    ] = field(default_factory=dict)
    files: Annotated[
        Literal["named", "json", "multipart"],
        Key("How to send attached files. `named` sends only their names.", "json"),
    ] = "named"
    token_env: Annotated[Variable, Key("The environment variable with the bot's token.", "SLACK_BOT_TOKEN")] = ""
    chat_id: Annotated[NumericBlank, Key("The default chat or room.", "C0123456789")] = ""
    api: Annotated[Text, Key("URL of the API, if it is not the default.", "https://slack-gov.com/api")] = ""
    targets: Annotated[
        tuple[NumericText, ...], Key("Further chats or rooms that messages may go to.", ["-100200300"])
    ] = ()
