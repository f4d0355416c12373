"""From a configuration and a person's wishes to an agent at work: a model, the project's tools, their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge.agent.conversation import Conversation, Prepare
from forge.agent.limits import Limits, Price
from forge.agent.loop import run_loop
from forge.agent.result import RunResult
from forge.agent.subagent import AgentType, Task
from forge.app.assemble import Assembly, Wishes, assemble
from forge.app.choose import configured
from forge.app.config import AgentEntry, Configuration
from forge.app.guarded import Check, Guarded, is_refused
from forge.app.model import chosen_model
from forge.app.skills import told_of
from forge.core.context import Scope
from forge.core.events import RunStarted
from forge.core.executor import Step
from forge.core.messages import Message, unanswered_calls
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.permissions.gate import Approver, nobody
from forge.pipeline.guard import MARK
from forge.providers.names import provider_for

INSTRUCTIONS = """\
You are an agent that works for a person at their command line. Your tools work in the directory {workspace}.
Find out with your tools what you do not know; do not guess. Do what was asked, no more, and check that it worked.
A tool that fails says why: try something else, and do not repeat what was refused.
When you are done, answer briefly, in plain text: what you found or did, and what is left to do."""
INTERRUPTED = "{}: interrupted while it was under way. Whether it happened is unknown; check before you repeat it."


@dataclass(slots=True, kw_only=True)
class Assistant:
    """An agent whose runs share an executor: background work of one is heard of in the next."""

    model: str
    provider: Guarded
    made: Assembly
    scope: Scope
    limits: Limits
    prompt: str = ""  # what the project adds to the instructions

    async def answer(
        self, conversation: Conversation, prompt: str | None, prepare: Prepare | None = None, *, wait: bool = False
    ) -> RunResult:
        """Run on a conversation, with something new to say or from where it was stopped.

        `wait`: background work is waited for, and the model told of it. Raises only to be cancelled, or where the
        conversation cannot be stored.
        """
        executor, scope = self.made.executor, self.scope
        await executor.registry.ready()
        started = RunStarted(prompt or "")
        started.session, started.agent = scope.session_id, scope.agent
        executor.activity.emit(started)
        if prompt is not None:
            self.hear(conversation, prompt)
        try:
            result = await run_loop(
                self.provider, executor, conversation, scope, self.limits, prepare=prepare, wait_for_background=wait
            )
            if wait:
                await executor.background.settled()
        except BaseException:
            executor.background.cancel()
            raise
        finally:
            await executor.activity.drain()
        rules = self.made.skills.rules(scope.session_id)
        if rules is not None and rules.responses and is_refused(result.text, rules.check_response):
            result = replace(result, text=MARK)
        return result

    def _skills(self) -> str:
        """Only where the model can read them."""
        return told_of(self.made.skills) if "read_skill" in self.made.registry.names else ""

    def hear(self, conversation: Conversation, prompt: str) -> None:
        """Begin a conversation, or go on with one. Raises `ToolError` for what a guardrail denies."""
        rules = self.made.skills.rules(self.scope.session_id)
        if rules is not None:
            rules.check_prompt(prompt)
        if not conversation.messages:
            told = [INSTRUCTIONS.format(workspace=self.scope.workspace), self.prompt, self._skills()]
            conversation.say(Message("system", "\n\n".join(filter(None, told))))
        left = unanswered_calls(conversation.messages)
        conversation.say(
            *(Message("tool", INTERRUPTED.format(call.name), call_id=call.id, is_error=True) for call in left)
        )
        conversation.say(Message("user", prompt))


def assistant(
    wishes: Wishes,
    model: str | None = None,
    *,
    turns: int | None = None,
    approve: Approver = nobody,
    provider: Provider | None = None,
) -> Assistant:
    """Raises `ToolError` or `PolicyError` where the model, a file, a rule or the workspace cannot be used.

    `provider` is asked instead of the model, which then need not be there.
    """
    made = assemble(wishes, approve)
    configuration = made.configuration
    configuration.check_set()  # an agent has all that was configured, or is told why not
    chosen = chosen_model(configuration, model) if provider is None else model or ""
    provider = Guarded(provider if provider is not None else provider_for(chosen), _response_check(made))
    task = task_of(configuration, provider, made.registry, made.executor.steps)
    made.registry.add(configured(task, configuration))
    limits = _limits(configuration.agent.limits)
    return Assistant(
        model=chosen,
        provider=provider,
        made=made,
        scope=made.scope,
        limits=replace(limits, turns=turns) if turns is not None else limits,
        prompt=configuration.agent.prompt,
    )


def task_of(
    configuration: Configuration, provider: Provider | None, registry: ToolRegistry, steps: tuple[Step, ...]
) -> Task:
    """The tool that starts sub-agents, with the types that the project configures. Raises `ToolError`."""
    types = {name: _agent_type(entry) for name, entry in configuration.agents.items()}
    return Task(provider, registry, steps, types or None)


def _response_check(made: Assembly) -> Callable[[], Check | None]:
    def check() -> Check | None:
        rules = made.skills.rules(made.scope.session_id)
        return rules.check_response if rules is not None and rules.responses else None

    return check


def _agent_type(entry: AgentEntry) -> AgentType:
    standard = AgentType()
    return AgentType(
        prompt=entry.prompt or standard.prompt,
        tools=entry.tools,
        provider=provider_for(entry.model) if entry.model else None,
        limits=_limits(entry.limits, standard.limits),
    )


def _limits(said: Mapping[str, Any], standard: Limits | None = None) -> Limits:
    price = {"price": Price(**said["price"])} if "price" in said else {}
    return replace(standard if standard is not None else Limits(), **{**said, **price})
