"""Counts the tokens that tool definitions cost: those in every request, and those that the model must search."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from forge.agent.tokens import estimate_definition
from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.core.registry import ToolRegistry
from forge.project.assemble.choose_tools import defer_tools
from forge.project.config import load_configuration


@dataclass(frozen=True, slots=True)
class ToolCosts:
    """The estimated tokens of every definition, and the tools whose definitions are in every request."""

    tokens: Mapping[str, int]
    sent: Collection[str]

    def sum_sent(self) -> int:
        return sum(self.tokens[name] for name in self.sent)

    def sum_deferred(self) -> int:
        return sum(self.tokens.values()) - self.sum_sent()

    def summary(self) -> str:
        """Renders the sums in two lines."""
        deferred = len(self.tokens) - len(self.sent)
        return (
            f"In every request: {_count(len(self.sent))}, {self.sum_sent():,} tokens.\n"
            f"Found with tool_search: {_count(deferred)}, {self.sum_deferred():,} tokens."
        )


def count_costs(registry: ToolRegistry, options: Options) -> ToolCosts:
    """Counts the definitions of a project's tools. The registry then sends what the project's agent sends."""
    with refusals():
        configuration = load_configuration(options.config)
        if configuration.agent.code_mode:
            from forge.tools.run_code import enter_code_mode  # few projects use it

            enter_code_mode(registry)
        else:
            defer_tools(registry, configuration, ends_by_call=False)
    tokens = {tool.spec.name: estimate_definition(tool.spec) for tool in registry.values()}
    return ToolCosts(tokens, frozenset(spec.name for spec in registry.specs()))


def _count(definitions: int) -> str:
    return f"{definitions:,} definition{'' if definitions == 1 else 's'}"
