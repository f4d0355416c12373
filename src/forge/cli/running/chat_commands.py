"""Commands of a conversation beside those that steer it: the model, the costs, the context, the rules and the modes.

A mode is a layer of rules of its own: the gate that judges every call judges by it, too. A project's own commands are
texts in `.forge/commands`, which count once a person trusts the project.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from forge.agent.context_window import find_window
from forge.agent.tokens import estimate_definition, estimate_messages, find_weights
from forge.cli.running.run_prompts import PromptRunner
from forge.cli.terminal.print_result import colour_diff, harmless, table_lines
from forge.cli.terminal.render import ForPeople
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.messages import Message, export_message
from forge.core.spec import Permission
from forge.models.vendors import ModelWithoutKey, find_model
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision, approve_all
from forge.permissions.rules import Rule
from forge.project.runs.sessions import new_name
from forge.project.trust import is_trusted
from forge.workspace.history.tracking import SessionState

ASK, ACCEPT_EDITS, PLAN = "", "accept edits", "plan mode"
MODES = (ASK, ACCEPT_EDITS, PLAN)


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
        return replace(policy, rules=(), layers=(*above, (PLAN, Rules(tuple(found)))))
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


class MoreCommands:
    """The commands; each prints through `say`."""

    def __init__(self, runner: PromptRunner) -> None:
        self.runner = runner
        self.mode = ASK
        self._policy = runner.agent.gate.policy

    def change_mode(self) -> None:
        """Changes to the next mode. Rules that are no list of rules have no modes."""
        if isinstance(self._policy, Rules):
            self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
            gate = self.runner.agent.gate
            gate.use_policy(add_mode(self._policy, self.mode, can_ask=gate.approve is not approve_all))

    def model(self, name: str) -> Iterator[str]:
        agent = self.runner.agent
        if not name:
            yield f"The model is {agent.model}. /model NAME changes it, such as /model anthropic:MODEL."
            return
        found = find_model(name)
        if isinstance(found, ModelWithoutKey):
            raise found.problem
        agent.provider, agent.model, agent.window = found, name, find_window(found)
        self.runner.use_model(name)
        yield f"The model is {name} from now on."

    def clear(self, _: str) -> Iterator[str]:
        before, begun = self.runner.session, self.runner.has_begun
        self.runner.begin_anew(new_name())
        yield "A new session begins: the model knows nothing of the earlier messages."
        if begun and self.runner.store is not None:
            yield f"/resume {before} returns to them."

    def cost(self, _: str) -> Iterator[str]:
        view = self.runner.view
        if isinstance(view, ForPeople):
            runs, usage, cost = view.totals
            rows = [("runs", f"{runs:,}"), ("tokens in", f"{usage.input:,}"), ("  of them cached", f"{usage.cached:,}")]
            rows += [("tokens out", f"{usage.output:,}")]
            rows += [("cost", f"{cost:.4f}" if cost is not None else "not known for this model")]
            yield from table_lines(rows)

    def context(self, _: str) -> Iterator[str]:
        agent, shown = self.runner.agent, self.runner.stored.conversation.shown
        weights = find_weights(agent.provider)
        names = {"system": "instructions", "user": "your messages", "assistant": "the model's", "tool": "results"}
        counted = {
            name: estimate_messages([one for one in shown if one.role == role], weights) for role, name in names.items()
        }
        counted["tools"] = sum(map(estimate_definition, agent.registry.specs(self.runner.session)))
        total, window = sum(counted.values()), agent.window
        of = window or total or 1
        rows = [(name, f"{tokens:>9,}", f"{tokens / of:5.1%}") for name, tokens in counted.items()]
        yield from table_lines([*rows, ("all", f"{total:>9,}", f"{total / of:5.1%}")])
        yield (
            f"Tokens, estimated. The window has {window:,}." if window else "Tokens, estimated. The window is unknown."
        )

    def diff(self, _: str) -> Iterator[str]:
        changes = SessionState(self.runner.workspace).undo.session_diff(self.runner.session)
        if not changes:
            yield "No file differs from what it was before this session's tools changed it."
            return
        yield colour_diff(harmless(changes).rstrip("\n"))

    def export(self, rest: str) -> Iterator[str]:
        name = rest or f"{self.runner.session}.md"
        path = Path(self.runner.workspace, name)
        messages = self.runner.stored.conversation.messages
        text = (
            json.dumps([export_message(one) for one in messages], ensure_ascii=False, indent=2)
            if path.suffix == ".json"
            else "\n\n".join(_to_markdown(one) for one in messages if one.role != "system")
        )
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8", errors="replace") as stream:
                stream.write(f"{text}\n")
        except OSError as error:
            hint = "Name another file: /export NAME.md, or NAME.json."
            raise ToolError(f"exporting to {name}: {error.strerror}", ErrorKind.USER, hint) from None
        yield f"{len(messages)} messages are in {name}."

    def permissions(self, _: str) -> Iterator[str]:
        policy = self.runner.agent.gate.policy
        yield f"Mode: {self.mode or 'ask'}. Shift-Tab changes it."
        for name, layer in policy.layers if isinstance(policy, Rules) else ():
            yield from (f"  {name:<12} {harmless(rule.text)}" for rule in layer.all_rules())
        remembered = self.runner.agent.gate.remembered(self.runner.session)
        yield from (f"  {'always':<12} {harmless(rule)}" for rule in remembered)
        yield "Otherwise reading is allowed, and everything else asks. `forge policy explain` says more."

    def mcp(self, _: str) -> Iterator[str]:
        rows = [
            (name, "open" if one.is_open else "closed", f"{len(one.tools)} tools", harmless("; ".join(one.problems)))
            for name, one in self.runner.servers.items()
        ]
        yield from table_lines(rows) if rows else ["This project has no MCP servers. `forge mcp add` adds one."]


def _to_markdown(message: Message) -> str:
    title = {"user": "You", "assistant": "Model", "tool": "Result"}[message.role]
    calls = "".join(f"\n\n`{call.name}` {json.dumps(call.arguments, default=str)}" for call in message.tool_calls)
    return f"## {title}\n\n{message.text}{calls}"


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
            first = harmless(text.strip().partition("\n")[0]).lstrip("# ")[:100]
            found[f"/{name.removesuffix('.md')}"] = OwnCommand(first, text.strip())
    return found


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
