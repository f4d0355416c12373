"""The keys about schedules and channels: what an agent does at certain times, where it delivers and receives."""

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


_BOT = ("token_env", "chat_id", "api", "targets", "people", "approvers")
_SLACK = ("url_env", *_BOT, "app_token_env", "signing_secret_env")
_TELEGRAM = (*_BOT, "webhook_url", "webhook_secret_env")
_SECRET = {"errorMessage": "expected webhook_url and webhook_secret_env together, or neither"}
_RECEIVES = {"errorMessage": "people and approvers need app_token_env (Socket Mode) or signing_secret_env (Events API)"}
_EITHER = {"errorMessage": "expected either url_env (an incoming webhook) or token_env (a bot)"}
_ONE_CHANNEL = {"errorMessage": "an incoming webhook always posts to one channel; use token_env instead"}


def _channel_rules() -> Iterator[Schema]:
    """Yields which keys a type of channel needs, and which it may have."""
    for kind, needed, known in (
        ("terminal", (), ()),
        ("file", ("path",), ("path",)),
        ("webhook", ("url_env",), ("url_env", "headers_env", "files", "targets")),
        ("slack", (), _SLACK),
        ("telegram", ("token_env",), _TELEGRAM),
    ):
        then: Schema = {"required": [*needed], "propertyNames": {"enum": ["type", *known]}}
        yield {"if": {"properties": {"type": {"const": kind}}}, "then": then}
    is_slack = {"properties": {"type": {"const": "slack"}}}
    yield {"if": is_slack, "then": {"oneOf": [{"required": ["url_env"]}, {"required": ["token_env"]}], **_EITHER}}
    is_webhook = {**is_slack, "required": ["url_env"], "not": {"required": ["token_env"]}}
    yield {"if": is_webhook, "then": {"propertyNames": {"enum": ["type", "url_env"], **_ONE_CHANNEL}}}
    named = {"anyOf": [{"required": ["people"]}, {"required": ["approvers"]}]}
    receives = {"anyOf": [{"required": ["app_token_env"]}, {"required": ["signing_secret_env"]}], **_RECEIVES}
    yield {"if": {"allOf": [is_slack, named]}, "then": receives}
    pair = ("webhook_url", "webhook_secret_env")
    yield {"if": {"anyOf": [{"required": [one]} for one in pair]}, "then": {"required": [*pair], **_SECRET}}


class ChannelEntry(Section, rules=_channel_rules(), example={"type": "webhook", "url_env": "TEAM_WEBHOOK"}):
    """A destination for messages, and where people may talk to the agent."""

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
    people: Annotated[
        tuple[NumericText, ...],
        Key("Ids of the people whose messages start runs, with `forge listen`. Default: nobody.", ["U0123456789"]),
    ] = ()
    approvers: Annotated[
        tuple[NumericText, ...],
        Key("Ids of the people who may answer the questions of runs there. Default: nobody.", ["U0123456789"]),
    ] = ()
    app_token_env: Annotated[
        Variable, Key("Slack's Socket Mode: the environment variable with the app-level token.", "SLACK_APP_TOKEN")
    ] = ""
    signing_secret_env: Annotated[
        Variable,
        Key("Slack's Events API: the environment variable with the signing secret.", "SLACK_SIGNING_SECRET"),
    ] = ""
    webhook_url: Annotated[
        Text | None,
        Key("The public URL at which Telegram reaches `forge listen`.", "https://bot.example.com/phone"),
    ] = None
    webhook_secret_env: Annotated[
        Variable, Key("The environment variable with the secret of Telegram's webhook.", "TELEGRAM_WEBHOOK_SECRET")
    ] = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that the channel needs."""
        own = (self.url_env, self.token_env, self.app_token_env, self.signing_secret_env, self.webhook_secret_env)
        return tuple(filter(None, (*own, *self.headers_env.values())))
