"""The keys about schedules and channels: what an agent does at certain times, and where it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Literal

from forge.project.config.section import PlainSection, Schema, Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import BlankText, FilePath, Key, NumericBlank, NumericText, Text, Variable


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
