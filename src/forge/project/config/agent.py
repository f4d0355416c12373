"""The keys about the agent, its sub-agents, their limits and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.lazy import lazy_pattern
from forge.core.spec import REPAIR_NAMES, Permission
from forge.project.config.kinds import NOTHING, AsWritten, Choice, Flag, ListOf, Number, Text, WholeNumber
from forge.project.config.reader import ConfigReader
from forge.project.config.section import ExactlyOne, PlainSection, Section, key

_REFERENCE = lazy_pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_IDENTITY = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "letters, digits, - _ and dots, at most 64")
_NO_CONFIG = "a sub-agent's tools use the agent's settings; write the settings under the top-level `tools`"


class PriceEntry(PlainSection, example={"input": 3, "output": 15}):
    """The price of a million tokens."""

    input: float = key(Number(), "Price of input tokens.", 3, required=True)
    output: float = key(Number(), "Price of output tokens.", 15, required=True)
    cached: float = key(Number(), "Price of cached input tokens.", 0.3)
    cache_writes: float = key(Number(), "Price of input tokens written to the cache.", 3.75)


class LimitsEntry(PlainSection, example={"turns": 50, "calls": 200}):
    """The limits of a run, as `forge.agent.limits.Limits` takes them."""

    turns: int = key(
        WholeNumber(1, "a number"),
        "Maximum number of turns: requests to the model.",
        50,
        unset=50,
        variable="FORGE_TURNS",
    )
    calls: int = key(WholeNumber(0, "a number"), "Maximum number of tool calls.", 200)
    tokens: int = key(WholeNumber(0, "a number"), "Maximum number of tokens, input and output together.", 100_000)
    cost: float = key(
        Number(zero=True), "Maximum cost, in the currency of `price`; without a price, in US dollars.", 2.5
    )
    seconds: float = key(Number(zero=True), "Maximum duration of the run, in seconds.", 600)
    price: PriceEntry = key(PriceEntry)


class ContextEntry(PlainSection, example={"clear_outputs": 20_000, "keep_turns": 6}):
    """Rules for the results that are sent to the model: when they are shortened. Sessions and runs store them whole."""

    refer_to_repeats: bool = key(
        Flag(), "Send a long result that the model still sees only once; later ones refer to it.", False, unset=True
    )
    clear_outputs: int = key(
        WholeNumber(0, "a number"),
        "Replace old outputs by notes as soon as this frees that many tokens, and when half of the model's window"
        " is used; 0: only then.",
        40_000,
        unset=20_000,
    )
    keep_turns: int = key(
        WholeNumber(1, "a number"), "Never replace outputs of this many latest turns by notes.", 10, unset=6
    )


class AgentEntry(
    Section,
    example={"id": "ops", "version": "0.1.0", "description": "Looks after the servers.", "model": "anthropic:MODEL"},
):
    """The agent that `forge run` runs and `forge build` builds."""

    id: str = key(_IDENTITY, "The agent's name in builds and logs.", "ops")
    version: str = key(_IDENTITY, "The agent's version. Put a version with one dot in quotes.", "0.1.0")
    description: str = key(Text(blank=True), "The purpose of the agent.", "Looks after the servers.")
    prompt: str = key(
        Text(blank=True), "Instructions for the model, in addition to Forge's own.", "Answer in one paragraph."
    )
    instruction_files: bool = key(
        Flag(),
        "Add the project's trusted AGENTS.md or CLAUDE.md files to the instructions: those from the workspace's root"
        " down to the current directory.",
        False,
        default=True,
        unset=True,
    )
    session_titles: bool = key(
        Flag(),
        "Let the model write the title of a new session after its first answer, at a terminal. This is one short"
        " request.",
        False,
        default=True,
        unset=True,
    )
    model: str = key(
        Text(),
        "The model, as PROVIDER:MODEL.",
        "anthropic:MODEL",
        unset="the first whose API key is set",
        variable="FORGE_MODEL",
    )
    options: Mapping[str, Any] = key(
        AsWritten({"type": "object"}),
        "Options of the model, such as its temperature or the effort of its reasoning.",
        {"reasoning_effort": "low", "max_tokens": 8_000},
        default=NOTHING,
    )
    code_mode: bool = key(
        Flag(),
        "Send the model one tool, `run_code`, whose scripts call the others. Needs the extra `code`.",
        True,
        default=False,
        unset=False,
    )
    tool_search: str = key(
        Choice("meaning", "words"),
        "How `tool_search` ranks tools: by their words and by `meaning`, if the local embedder is installed; or by"
        " `words` alone.",
        "words",
        default="meaning",
        unset="meaning",
    )
    limits: Mapping[str, Any] = NOTHING  # those of the section `limits`


class RateEntry(PlainSection, example={"calls": 10, "seconds": 60}):
    """A limit on how often the tool may be called."""

    calls: int = key(WholeNumber(), "Maximum number of calls in `seconds`.", 10)
    seconds: float = key(Number(), "Length of the period, in seconds.", 60)
    max_calls: int = key(WholeNumber(), "Maximum number of calls in one run.", 100)


class ToolConfig(PlainSection, is_open=True, example={"timeout": 30}):
    """Settings of the tool. Those listed here work for every tool."""

    timeout: float | None = key(Number(nullable=True), "Time limit of a call, in seconds.", 30)
    confirm: bool = key(Flag(), "Ask before each call, even if a rule allows it.", True)
    permissions: Any = key(
        ListOf(Choice(*Permission)), "The permissions that the tool needs, instead of those it declares.", ["read"]
    )
    rate: RateEntry = key(RateEntry)
    repairs: Any = key(
        ListOf(Choice(*REPAIR_NAMES)), "The kinds of repair that calls of the tool may get.", ["names", "values"]
    )


class ToolEntry(
    Section,
    alone="name",
    checks=[ExactlyOne(("name", "group"), "either a name or a group")],
    example={"name": "cli_execute", "config": {"allowed_binaries": ["git", "jq"], "timeout": 120}},
):
    """A tool by name, pattern or Python reference, or a group, with settings."""

    name: str = key(
        Text(),
        "A tool, a pattern such as git__*, or MODULE:ATTRIBUTE: a tool, or a list of tools, in a Python module of the"
        " project's directory or of an installed package. Forge imports the module.",
        "cli_execute",
    )
    group: str = key(Text(), "A group of tools.", "read")
    config: Mapping[str, Any] = key(ToolConfig, default=NOTHING)

    @property
    def is_reference(self) -> bool:
        """True for a tool in Python code: MODULE:ATTRIBUTE."""
        return ":" in self.name and _REFERENCE.fullmatch(self.name) is not None


class _ToolName(ToolEntry, example={"group": "read"}):
    """A tool by name or pattern, or a group."""

    config: Mapping[str, Any] = key(AsWritten({"type": "object", "maxProperties": 0}), "Not allowed here.", {})

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("config"):
            raise reader.error(f"{key_path}.config", _NO_CONFIG)
        return values.get("name") or values["group"]


class SubAgentEntry(Section, example={"prompt": "Look things up.", "tools": [{"group": "read"}]}):
    """A sub-agent."""

    prompt: str = key(Text(blank=True), "Instructions for the sub-agent.", "Look things up; change nothing.")
    model: str = key(Text(), "The sub-agent's model. Default: the agent's model.", "anthropic:MODEL")
    tools: tuple[str, ...] = key(
        ListOf(_ToolName),
        "The sub-agent's tools. Default: the agent's read-only tools.",
        [{"group": "read"}, "math_calculate"],
    )
    limits: Mapping[str, Any] = key(LimitsEntry, "Limits of the sub-agent's runs.", default=NOTHING)
    quarantine: bool = key(
        Flag(), "Read untrusted text without tools, and return only a typed value.", True, default=False, unset=False
    )

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("quarantine") and values.get("tools"):
            raise reader.error(
                f"{key_path}.tools", "a sub-agent in quarantine has no tools; remove tools or quarantine"
            )
        return super().from_keys(reader, values, key_path)
