"""Commands and modes of a conversation with a project's agent, at the terminal and elsewhere.

A mode is a layer of rules of its own: the gate that judges every call judges by it, too. A project's own commands are
texts in `.forge/commands`, which count once a person trusts the project. Prompts of MCP servers are commands, too.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forge.agent.context_window import find_window
from forge.agent.labels import quote_text
from forge.agent.tokens import estimate_definition, estimate_messages, find_weights
from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.messages import Message, Usage
from forge.core.plain_values import visible
from forge.core.spec import Permission
from forge.models.vendors import ModelWithoutKey, find_model
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision, approve_all
from forge.permissions.rules import Rule
from forge.project.trust import is_trusted
from forge.workspace.history.tracking import SessionState

if TYPE_CHECKING:
    from forge.agent.agent import Agent
    from forge.agent.session import SessionStore
    from forge.mcp.client.contents import ServerPrompt
    from forge.mcp.client.source import McpSource

ASK, ACCEPT_EDITS, PLAN = "ask", "accept edits", "plan"
MODES = (ASK, ACCEPT_EDITS, PLAN)
NEWEST = 20  # sessions that are listed


class Modes:
    """The mode of an agent's conversation. Rules that are no list of rules have only the mode `ask`."""

    def __init__(self, agent: Agent) -> None:
        self.mode = ASK
        self._agent = agent
        self._policy = agent.gate.policy

    @property
    def all(self) -> tuple[str, ...]:
        return MODES if isinstance(self._policy, Rules) else (ASK,)

    def use(self, mode: str) -> None:
        """Changes the mode for the calls from now on. Raises `ToolError` for a mode that there is not."""
        if mode not in self.all:
            message = f"changing the mode to {visible(mode[:60])!r}: there is no such mode"
            raise ToolError(message, ErrorKind.USER, f"Choose one of: {', '.join(self.all)}.")
        self.mode, gate = mode, self._agent.gate
        if isinstance(self._policy, Rules):
            gate.use_policy(add_mode(self._policy, mode, can_ask=gate.approve is not approve_all))


def add_mode(policy: Rules, mode: str, *, can_ask: bool = True) -> Rules:
    """Returns the rules with those of a mode as a further layer. No mode loosens a deny.

    Plan mode denies all writing, and asks about programs that rules allow; reading and programs that only read stay as
    they were. Where everything is answered with yes (`can_ask=False`), it denies programs, too. Accepting edits allows
    the file tools to write in the workspace where nothing more than `ask write` or a default would ask: rules with a
    target, a tool or a condition, and rules about effects, still decide.
    """
    above = (*policy.layers, *((("project", Rules(policy.rules)),) if policy.rules else ()))
    if mode == PLAN:
        why = "the person wants a plan before anything changes"
        found = [_make_rule(Decision.DENY, Permission.WRITE, why)]
        allows = (one for one in policy.all_rules() if one.decision is Decision.ALLOW)
        if not can_ask:
            found.append(_make_rule(Decision.DENY, Permission.EXECUTE, why))
        elif any(one.permission in (None, Permission.EXECUTE) for one in allows):
            found.append(_make_rule(Decision.ASK, Permission.EXECUTE, why))
        return replace(policy, rules=(), layers=(*above, ("plan mode", Rules(tuple(found)))))
    if mode == ACCEPT_EDITS:
        allow = replace(_make_rule(Decision.ALLOW, Permission.WRITE, "edits are accepted"), tool="file_*", target="**")
        kept = (
            one for one in policy.all_rules() if one.target or one.tool or one.conditions or one.agent or one.effects
        )
        layer = Rules((allow, *(one for one in kept if one.decision is not Decision.DENY)))
        return replace(policy, rules=(), layers=(*above, (ACCEPT_EDITS, layer)))
    return policy


def _make_rule(decision: Decision, permission: Permission, where: str) -> Rule:
    return Rule(decision=decision, permission=permission, text=f"{decision} {permission}", where=where)


# The words of the commands, one line each.


def change_model(agent: Agent, name: str) -> None:
    """Gives an agent another model. Raises `ToolError` if it cannot be used."""
    found = find_model(name)
    if isinstance(found, ModelWithoutKey):
        raise found.problem
    agent.provider, agent.model, agent.window = found, name, find_window(found)


def describe_cost(runs: int, usage: Usage, cost: float | None) -> list[str]:
    """Returns the tokens and the cost of a conversation."""
    return _align(
        [
            ("runs", f"{runs:,}"),
            ("tokens in", f"{usage.input:,}"),
            ("  of them cached", f"{usage.cached:,}"),
            ("tokens out", f"{usage.output:,}"),
            ("cost", f"{cost:.4f}" if cost is not None else "not known for this model"),
        ]
    )


def describe_context(agent: Agent, session: str, shown: Sequence[Message]) -> list[str]:
    """Returns what fills the model's window."""
    weights = find_weights(agent.provider)
    names = {"system": "instructions", "user": "your messages", "assistant": "the model's", "tool": "results"}
    counted = {
        name: estimate_messages([one for one in shown if one.role == role], weights) for role, name in names.items()
    }
    counted["tools"] = sum(map(estimate_definition, agent.registry.specs(session)))
    total, window = sum(counted.values()), agent.window
    of = window or total or 1
    counted["all"] = total
    rows = [(name, f"{tokens:>9,}", f"{tokens / of:5.1%}") for name, tokens in counted.items()]
    known = f"The window has {window:,}." if window else "The window is unknown."
    return [*_align(rows), f"Tokens, estimated. {known}"]


def session_diff(workspace: Path, session: str) -> str:
    """Returns the changes of files since a session began; empty if there are none."""
    return visible(SessionState(workspace).undo.session_diff(session)).rstrip("\n")


NO_DIFF = "No file differs from what it was before this session's tools changed it."


def describe_rules(agent: Agent, session: str, mode: str) -> Iterator[str]:
    """Yields the mode, the rules, and what the person always allows."""
    policy = agent.gate.policy
    yield f"Mode: {mode}."
    layers = policy.layers if isinstance(policy, Rules) else ()
    rules = [f"  {name:<12} {visible(rule.text)}" for name, layer in layers for rule in layer.all_rules()]
    rules += [f"  {'always':<12} {visible(rule)}" for rule in agent.gate.remembered(session)]
    yield from rules
    words = "Otherwise reading" if rules else "There are no rules: reading"
    yield f"{words} is allowed, and everything else asks. `forge policy explain` says more."


def describe_servers(servers: Mapping[str, McpSource]) -> list[str]:
    """Returns the MCP servers and their state."""
    if not servers:
        return ["This project has no MCP servers. `forge mcp add` adds one."]
    return _align(
        [
            (name, "open" if one.is_open else "closed", f"{len(one.tools)} tools", visible("; ".join(one.problems)))
            for name, one in servers.items()
        ]
    )


def describe_sessions(store: SessionStore | None, session: str) -> list[str]:
    """Returns the name of this session, and the newest others."""
    if store is None:
        return [f"This is {session}, which is not stored."]
    rows = [
        (
            f"  {one.name}",
            datetime.fromtimestamp(one.updated).strftime("%Y-%m-%d %H:%M"),
            f"{one.messages:>4} messages",
            visible(one.title).replace("\n", " "),
        )
        for one in store.list()[:NEWEST]
    ]
    return [f"This is {session}.", *_align(rows)]


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows as lines with columns of one width; the last one is as long as it is."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)] if rows else []
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


# The project's own commands.


FOLDER = ".forge/commands"
MOST_COMMANDS = 100
LARGEST_COMMAND = 64 * 1024  # bytes
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])\b")


class OwnCommand(NamedTuple):
    """A command of the project: what the model is told."""

    words: str  # its description
    text: str


def find_own_commands(workspace: Path) -> dict[str, OwnCommand]:
    """Returns the commands by name. Without trust in the project there are none."""
    found: dict[str, OwnCommand] = {}
    folder = workspace / FOLDER
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".md"))[:MOST_COMMANDS]
    except OSError:
        return {}
    if not names or not is_trusted(workspace):
        return {}
    for name in names:
        try:
            text = read_regular(folder / name, LARGEST_COMMAND, os.O_RDONLY | os.O_NOFOLLOW).decode("utf-8", "replace")
        except OSError:
            continue
        if _NAME.fullmatch(name.removesuffix(".md")) and text.strip():
            first = visible(text.strip().partition("\n")[0]).lstrip("# ")[:100]
            found[f"/{name.removesuffix('.md')}"] = OwnCommand(first, text.strip())
    return found


def explain_unknown(word: str, known: Iterable[str], workspace: Path) -> str:
    """Returns a sentence about a command that there is not."""
    if Path(workspace, FOLDER, f"{word[1:]}.md").is_file():
        return f"{word} is a command of a project that is not trusted. `forge trust` lets you trust it."
    hint = near(word, list(known), 1)
    return f"There is no command {word}. " + (f"Did you mean {hint[0]}?" if hint else "/help lists them.")


def fill_in(text: str, rest: str) -> str:
    """Puts the arguments of a command into its text: `$ARGUMENTS` all of them, `$1` the first."""
    try:
        words = shlex.split(rest)
    except ValueError:  # an open quote
        words = rest.split()
    if rest and not _PLACE.search(text):
        return f"{text}\n\n{rest}"

    def value(place: re.Match[str]) -> str:
        if place[1] == "ARGUMENTS":
            return rest
        return words[int(place[1]) - 1] if int(place[1]) <= len(words) else ""

    return _PLACE.sub(value, text)


# Prompts of MCP servers as commands: `/server:prompt name=value`.


PROMPT = re.compile(r"/[A-Za-z][\w-]*:\S+")
FRESH = 30.0  # seconds for which a list of prompts counts
PATIENCE = 5.0  # seconds for all servers to list their prompts, or for one to suggest values


class ServerPrompts:
    """The prompts of the open servers of a conversation."""

    def __init__(self, servers: Mapping[str, McpSource]) -> None:
        self.listed: dict[str, tuple[McpSource, ServerPrompt]] = {}  # by command, as they were last read
        self._servers = servers
        self._read_at = float("-inf")

    @property
    def is_fresh(self) -> bool:
        return not self._servers or time.monotonic() - self._read_at <= FRESH

    async def find_all(self) -> dict[str, tuple[McpSource, ServerPrompt]]:
        """Returns the prompts by command. Servers that do not answer are left out."""
        if not self.is_fresh:
            self.listed = await self._read()
            self._read_at = time.monotonic()
        return self.listed

    def describe(self) -> dict[str, str]:
        """Returns the help of each command that was read."""
        return {
            command: " ".join(filter(None, (prompt.description, _usage(prompt))))
            for command, (_, prompt) in self.listed.items()
        }

    async def fetch(self, command: str, rest: str) -> Message:
        """Returns a prompt for the model, marked as text that others wrote. Raises `ToolError`."""
        server, prompt = (await self.find_all())[command]
        arguments = read_arguments(command, prompt, rest)
        text = join_messages(await server.get_prompt(prompt.name, arguments))
        return quote_text(text, f"prompt {command[1:]}", rest)

    async def complete(self, line: str, word: str) -> list[str]:
        """Returns what the last word of a command may become: an argument, or a value of the server."""
        command, _, rest = line.partition(" ")
        if command not in await self.find_all():
            return []
        server, prompt = self.listed[command]
        name, has_value, value = word.partition("=")
        if not has_value:
            return [f"{one.name}=" for one in prompt.arguments if one.name.startswith(word)]
        words = rest.removesuffix(word).split()
        known = dict(one.split("=", 1) for one in words if "=" in one)
        try:
            async with asyncio.timeout(PATIENCE):
                values = await server.complete_argument(prompt.name, name, value, known)
        except (ToolError, TimeoutError):
            return []
        return [f"{name}={shlex.quote(one)}" for one in values]

    async def _read(self) -> dict[str, tuple[McpSource, ServerPrompt]]:
        async def read(server: McpSource) -> list[ServerPrompt]:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await server.list_prompts()
            except (ToolError, TimeoutError):
                return []

        servers = {name: one for name, one in self._servers.items() if one.is_open}
        found = await asyncio.gather(*(read(one) for one in servers.values()))
        return {
            f"/{name}:{prompt.name}": (server, prompt)
            for (name, server), prompts in zip(servers.items(), found, strict=True)
            for prompt in prompts
            if " " not in prompt.name
        }


def read_arguments(command: str, prompt: ServerPrompt, rest: str) -> dict[str, str]:
    """Reads `name=value` words. The only argument of a prompt needs no name. Raises `ToolError`."""
    names = [one.name for one in prompt.arguments]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    if len(names) == 1 and words and not words[0].startswith(f"{names[0]}="):
        return {names[0]: rest.strip()}
    found = dict(word.split("=", 1) for word in words if "=" in word)
    odd = [word for word in words if "=" not in word] + [name for name in found if name not in names]
    missing = [one.name for one in prompt.arguments if one.required and not found.get(one.name)]
    if odd or missing:
        problem = f"{odd[0]!r} is not one of its arguments" if odd else f"it needs {', '.join(missing)}"
        raise ToolError(f"{command}: {problem}", ErrorKind.VALIDATION, f"Write {command} {_usage(prompt)}".rstrip())
    return found


def join_messages(messages: Iterable[Message]) -> str:
    """Returns the messages as one text: the model reads who says what."""
    listed = list(messages)
    if all(one.role == "user" for one in listed):
        return "\n\n".join(one.text for one in listed)
    return "\n\n".join(f"{'Assistant' if one.role == 'assistant' else 'User'}: {one.text}" for one in listed)


def _usage(prompt: ServerPrompt) -> str:
    return " ".join(f"{one.name}=…" if one.required else f"[{one.name}=…]" for one in prompt.arguments)
