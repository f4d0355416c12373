"""The keys about the agent, its sub-agents, their limits and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.spec import Permission
from forge.project.config.kinds import NOTHING, AsWritten, Choice, Flag, ListOf, Number, Text, WholeNumber
from forge.project.config.reader import Reader
from forge.project.config.section import ExactlyOne, Needs, PlainSection, Section, key

_IDENTITY = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "letters, digits, - _ and dots, at most 64")
_NO_PRICE = "without a price nobody knows the cost; say price: {input: …, output: …}"
_NO_CONFIG = "a sub-agent's tools have the settings of the agent's own; write them under the file's `tools`"


class PriceEntry(PlainSection, example={"input": 3, "output": 15}):
    """The price of a million tokens."""

    input: float = key(Number(), "Tokens that are sent.", 3, required=True)
    output: float = key(Number(), "Tokens that the model writes.", 15, required=True)
    cached: float = key(Number(), "Tokens that are sent and were cached.", 0.3)


class LimitsEntry(PlainSection, checks=[Needs("cost", "price", _NO_PRICE)], example={"turns": 50, "calls": 200}):
    """As `forge.agent.limits.Limits` takes them."""

    turns: int = key(
        WholeNumber(1, "a number"), "How often the model may be asked.", 50, unset=50, variable="FORGE_TURNS"
    )
    calls: int = key(WholeNumber(0, "a number"), "Calls of tools.", 200)
    tokens: int = key(WholeNumber(0, "a number"), "Tokens, in and out.", 100_000)
    cost: float = key(Number(zero=True), "In the currency of `price`.", 2.5)
    seconds: float = key(Number(zero=True), "From beginning to end.", 600)
    price: PriceEntry = key(PriceEntry)


class AgentEntry(
    Section,
    example={"id": "ops", "version": "0.1.0", "description": "Looks after the servers.", "model": "anthropic:MODEL"},
):
    """The agent that `forge run` and `forge build` make."""

    id: str = key(_IDENTITY, "Its name in builds and logs.", "ops")
    version: str = key(_IDENTITY, "Its version; in quotes where it has one dot.", "0.1.0")
    description: str = key(Text(blank=True), "What it is for.", "Looks after the servers.")
    prompt: str = key(
        Text(blank=True), "What the model is told, beside Forge's own instructions.", "Answer in one paragraph."
    )
    model: str = key(Text(), "PROVIDER:MODEL.", "anthropic:MODEL", unset="one whose key is set", variable="FORGE_MODEL")
    limits: Mapping[str, Any] = NOTHING  # those of the section `limits`


class RateEntry(PlainSection, example={"calls": 10, "seconds": 60}):
    """A limit on how often the tool may be called."""

    calls: int = key(WholeNumber(), "So many calls …", 10)
    seconds: float = key(Number(), "… in so many seconds.", 60)
    max_calls: int = key(WholeNumber(), "In one run.", 100)


class ToolConfig(PlainSection, is_open=True, example={"timeout": 30}):
    """Settings of the tool; those that are listed here can be set for any tool."""

    timeout: float | None = key(Number(nullable=True), "Seconds.", 30)
    confirm: bool = key(Flag(), "Ask before each call, whatever the rules say.", True)
    permissions: Any = key(ListOf(Choice(*Permission)), "What it needs, instead of what it declares.", ["read"])
    rate: RateEntry = key(RateEntry)


class ToolEntry(
    Section,
    alone="name",
    checks=[ExactlyOne(("name", "group"), "either a name or a group")],
    example={"name": "cli_execute", "config": {"allowed_binaries": ["git", "jq"], "timeout": 120}},
):
    """A tool by name or pattern, or a group, with settings."""

    name: str = key(Text(), "A tool, or a pattern such as git__*.", "cli_execute")
    group: str = key(Text(), "A group of tools.", "read")
    config: Mapping[str, Any] = key(ToolConfig, default=NOTHING)


class _ToolName(ToolEntry, example={"group": "read"}):
    """A tool by name or pattern, or a group."""

    config: Mapping[str, Any] = key(AsWritten({"type": "object", "maxProperties": 0}), "Nothing.", {})

    @classmethod
    def from_keys(cls, reader: Reader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("config"):
            raise reader.error(f"{key_path}.config", _NO_CONFIG)
        return values.get("name") or values["group"]


class SubAgentEntry(Section, example={"prompt": "Look things up.", "tools": [{"group": "read"}]}):
    """A kind of sub-agent."""

    prompt: str = key(Text(blank=True), "What it is told.", "Look things up; change nothing.")
    model: str = key(Text(), "Its model; the agent's own by default.", "anthropic:MODEL")
    tools: tuple[str, ...] = key(
        ListOf(_ToolName), "Its tools; the agent's own by default.", [{"group": "read"}, "math_calculate"]
    )
    limits: Mapping[str, Any] = key(LimitsEntry, "How far it may go.", default=NOTHING)
