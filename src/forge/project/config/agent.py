"""The keys about the agent, its sub-agents, their limits and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.spec import REPAIR_NAMES, Permission
from forge.project.config.section import PlainSection, Section, exactly_one
from forge.project.config.sources import AcpEntry

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import (
        Above0,
        Accepts,
        BlankText,
        From0,
        Key,
        Matches,
        NullableAbove0,
        Of,
        OneOf,
        Single,
        Text,
        Whole,
    )
    from forge.project.config.reader import ConfigReader

_REFERENCE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_IDENTITY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "letters, digits, - _ and dots, at most 64"
_NO_CONFIG = "a sub-agent's tools use the agent's settings; write the settings under the top-level `tools`"
_NOT_HERE = {"not": {}, "errorMessage": "a sub-agent has tools of the agent; write this under the top-level `tools`"}
_NOT_OUTSIDE = "an agent of others has its own model, and no quarantine; remove acp, model or quarantine"
_NO_TOOLS = "a sub-agent in quarantine has no tools; remove tools or quarantine"


class PriceEntry(PlainSection, example={"input": 3, "output": 15}):
    """The price of a million tokens."""

    input: Annotated[Above0, Key("Price of input tokens.", 3, required=True)]
    output: Annotated[Above0, Key("Price of output tokens.", 15, required=True)]
    cached: Annotated[Above0, Key("Price of cached input tokens.", 0.3)]
    cache_writes: Annotated[Above0, Key("Price of input tokens written to the cache.", 3.75)]


class LimitsEntry(PlainSection, example={"turns": 50, "calls": 200}):
    """The limits of a run, as `forge.agent.limits.Limits` takes them."""

    turns: Annotated[
        int, Whole(1), Key("Maximum number of turns: requests to the model.", 50, unset=50, variable="FORGE_TURNS")
    ]
    calls: Annotated[int, Whole(), Key("Maximum number of tool calls.", 200)]
    tokens: Annotated[int, Whole(), Key("Maximum number of tokens, input and output together.", 100_000)]
    cost: Annotated[From0, Key("Maximum cost, in the currency of `price`; without a price, in US dollars.", 2.5)]
    seconds: Annotated[From0, Key("Maximum duration of the run, in seconds.", 600)]
    price: Annotated[PriceEntry, Key()]


class ContextEntry(PlainSection, example={"clear_outputs": 20_000, "keep_turns": 6}):
    """Rules for the results that are sent to the model: when they are shortened. Sessions and runs store them whole."""

    refer_to_repeats: Annotated[
        bool, Key("Send a long result that the model still sees only once; later ones refer to it.", False, unset=True)
    ]
    clear_outputs: Annotated[
        int,
        Whole(),
        Key(
            "Replace old outputs by notes as soon as this frees that many tokens, and when half of the model's window"
            " is used; 0: only then.",
            40_000,
            unset=20_000,
        ),
    ]
    keep_turns: Annotated[int, Whole(1), Key("Never replace outputs of this many latest turns by notes.", 10, unset=6)]


class AgentEntry(
    Section,
    example={"id": "ops", "version": "0.1.0", "description": "Looks after the servers.", "model": "anthropic:MODEL"},
):
    """The agent that `forge run` runs and `forge build` builds."""

    id: Annotated[str, Matches(*_IDENTITY), Key("The agent's name in builds and logs.", "ops")] = ""
    version: Annotated[
        str, Matches(*_IDENTITY), Key("The agent's version. Put a version with one dot in quotes.", "0.1.0")
    ] = ""
    description: Annotated[BlankText, Key("The purpose of the agent.", "Looks after the servers.")] = ""
    prompt: Annotated[
        BlankText, Key("Instructions for the model, in addition to Forge's own.", "Answer in one paragraph.")
    ] = ""
    instruction_files: Annotated[
        bool,
        Key(
            "Add the project's trusted AGENTS.md or CLAUDE.md files to the instructions: those from the workspace's"
            " root down to the current directory.",
            False,
            unset=True,
        ),
    ] = True
    session_titles: Annotated[
        bool,
        Key(
            "Let the model write the title of a new session after its first answer, at a terminal. This is one short"
            " request.",
            False,
            unset=True,
        ),
    ] = True
    model: Annotated[
        Text,
        Key(
            "The model, as PROVIDER:MODEL.",
            "anthropic:MODEL",
            unset="the first whose API key is set",
            variable="FORGE_MODEL",
        ),
    ] = ""
    options: Annotated[
        Mapping[str, Any],
        Accepts({"type": "object"}),
        Key(
            "Options of the model, such as its temperature or the effort of its reasoning.",
            {"reasoning_effort": "low", "max_tokens": 8_000},
        ),
    ] = field(default_factory=dict)
    server_tools: Annotated[
        Mapping[str, Any],
        Accepts({"type": "object", "additionalProperties": {"type": ["object", "null"]}}),
        Key(
            "Tools that the provider runs on its own servers, each with its settings: `web_search`, `web_fetch`,"
            " `code_execution`, `file_search`. Rules name them `tool:server_web_search` and so on.",
            {"web_search": {"max_uses": 5}},
        ),
    ] = field(default_factory=dict)
    code_mode: Annotated[
        bool,
        Key(
            "Send the model one tool, `run_code`, whose scripts call the others. Needs the extra `code`.",
            True,
            unset=False,
        ),
    ] = False
    trace_content: Annotated[
        bool,
        Key(
            "Put messages, arguments and results into the spans of OpenTelemetry, with secrets masked.",
            True,
            unset=False,
        ),
    ] = False
    tool_search: Annotated[
        Literal["meaning", "words"],
        Key(
            "How `tool_search` ranks tools: by their words and by `meaning`, if the local embedder is installed; or by"
            " `words` alone.",
            "words",
            unset="meaning",
        ),
    ] = "meaning"
    limits: Mapping[str, Any] = field(default_factory=dict)  # those of the section `limits`


class RateEntry(PlainSection, example={"calls": 10, "seconds": 60}):
    """A limit on how often the tool may be called."""

    calls: Annotated[int, Whole(), Key("Maximum number of calls in `seconds`.", 10)]
    seconds: Annotated[Above0, Key("Length of the period, in seconds.", 60)]
    max_calls: Annotated[int, Whole(), Key("Maximum number of calls in one run.", 100)]


class ToolConfig(PlainSection, is_open=True, example={"timeout": 30}):
    """Settings of the tool. Those listed here work for every tool."""

    timeout: Annotated[NullableAbove0, Key("Time limit of a call, in seconds.", 30)]
    confirm: Annotated[bool, Key("Ask before each call, even if a rule allows it.", True)]
    permissions: Annotated[
        list[Annotated[str, OneOf(*Permission)]],
        Key("The permissions that the tool needs, instead of those it declares.", ["read"]),
    ]
    rate: Annotated[RateEntry, Key()]
    max_concurrency: Annotated[
        int, Whole(), Key("Maximum number of calls that run at once in this process; others wait. 0: no limit.", 4)
    ]
    concurrency_key: Annotated[
        Text, Key("Parameters, separated by spaces: `max_concurrency` then counts for each of their values.", "host")
    ]
    repairs: Annotated[
        list[Annotated[str, OneOf(*REPAIR_NAMES)]],
        Key("The kinds of repair that calls of the tool may get.", ["names", "values"]),
    ]


class ToolEntry(
    Section,
    alone="name",
    rules=[exactly_one(("name", "group"), "either a name or a group")],
    example={"name": "cli_execute", "config": {"allowed_binaries": ["git", "jq"], "timeout": 120}},
):
    """A tool by name, pattern or Python reference, or a group, with settings."""

    name: Annotated[
        Text,
        Key(
            "A tool, a pattern such as git__*, or MODULE:ATTRIBUTE: a tool, or a list of tools, in a Python module of"
            " the project's directory or of an installed package. Forge imports the module.",
            "cli_execute",
        ),
    ] = ""
    group: Annotated[Text, Key("A group of tools.", "read")] = ""
    prefix: Annotated[Text, Key("With MODULE:ATTRIBUTE: the tools are named PREFIX_NAME.", "shop")] = ""
    include: Annotated[
        tuple[Text, ...], Single(), Key("With MODULE:ATTRIBUTE: only tools that match one of these globs.", ["get_*"])
    ] = ()
    exclude: Annotated[
        tuple[Text, ...], Single(), Key("With MODULE:ATTRIBUTE: no tools that match one of these globs.", ["*_all"])
    ] = ()
    config: Annotated[Mapping[str, Any], Of(ToolConfig), Key()] = field(default_factory=dict)

    @property
    def is_reference(self) -> bool:
        """True for a tool in Python code: MODULE:ATTRIBUTE."""
        return ":" in self.name and re.fullmatch(_REFERENCE, self.name) is not None


class _ToolName(ToolEntry, example={"group": "read"}):
    """A tool by name or pattern, or a group."""

    config: Annotated[
        Mapping[str, Any],
        Accepts({"type": "object", "maxProperties": 0, "errorMessage": _NO_CONFIG}),
        Key("Not allowed here.", {}),
    ] = field(default_factory=dict)
    prefix: Annotated[str, Accepts(_NOT_HERE), Key("Not allowed here.")] = ""
    include: Annotated[tuple[str, ...], Accepts(_NOT_HERE), Key("Not allowed here.")] = ()
    exclude: Annotated[tuple[str, ...], Accepts(_NOT_HERE), Key("Not allowed here.")] = ()

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return values.get("name") or values["group"]


class SubAgentEntry(
    Section,
    rules=[
        {
            "if": {"properties": {"quarantine": {"const": True}}, "required": ["quarantine"]},
            "then": {"properties": {"tools": {"maxItems": 0, "errorMessage": _NO_TOOLS}}},
        },
        {
            "if": {"required": ["acp"]},
            "then": {
                "properties": {
                    "model": {"not": {}, "errorMessage": _NOT_OUTSIDE},
                    "quarantine": {"not": {}, "errorMessage": _NOT_OUTSIDE},
                }
            },
        },
    ],
    example={"prompt": "Look things up.", "tools": [{"group": "read"}]},
):
    """A sub-agent."""

    prompt: Annotated[BlankText, Key("Instructions for the sub-agent.", "Look things up; change nothing.")] = ""
    model: Annotated[Text, Key("The sub-agent's model. Default: the agent's model.", "anthropic:MODEL")] = ""
    tools: Annotated[
        tuple[str, ...],
        Of(tuple[_ToolName, ...]),
        Key("The sub-agent's tools. Default: the agent's read-only tools.", [{"group": "read"}, "math_calculate"]),
    ] = ()
    limits: Annotated[Mapping[str, Any], Of(LimitsEntry), Key("Limits of the sub-agent's runs.")] = field(
        default_factory=dict
    )
    quarantine: Annotated[
        bool, Key("Read untrusted text without tools, and return only a typed value.", True, unset=False)
    ] = False
    acp: Annotated[
        AcpEntry | None,
        Of(AcpEntry),
        Key("An agent of others works on the tasks: a program that speaks the Agent Client Protocol."),
    ] = None
