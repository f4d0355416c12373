"""Tools for language-model agents. Everything a user needs is importable from here, and loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "forge.agent.agent": ("Agent",),
    "forge.agent.conversation": ("Conversation",),
    "forge.agent.limits": ("Limits", "Price"),
    "forge.agent.loop": ("run_loop",),
    "forge.agent.result": ("RunResult",),
    "forge.agent.session": ("SessionStore",),
    "forge.agent.subagent": ("AgentType",),
    "forge.core.activity": ("ActivityStream",),
    "forge.core.context": ("Scope", "ToolContext"),
    "forge.core.errors": ("DefinitionError", "DuplicateToolError", "ErrorKind", "ToolError"),
    "forge.core.events": (
        "Event",
        "PermissionAnswered",
        "PermissionAsked",
        "RunFinished",
        "RunStarted",
        "TextDelta",
        "ToolCompleted",
        "ToolFailed",
        "ToolFinished",
        "ToolOutput",
        "ToolProgress",
        "ToolStarted",
        "TurnFinished",
    ),
    "forge.core.executor": ("Next", "Step", "ToolExecutor"),
    "forge.core.messages": ("Message", "ToolCall", "Usage", "unanswered_calls"),
    "forge.core.provider": ("ModelRequest", "Provider", "ProviderError"),
    "forge.core.registry": ("ToolRegistry", "ToolSource"),
    "forge.core.result": ("Attachment", "Failure", "ToolResult"),
    "forge.core.secrets": ("Secrets",),
    "forge.core.spec": ("Category", "Permission", "Rate", "ToolSpec"),
    "forge.core.tool": ("Tool", "tool", "toolset"),
    "forge.listeners.audit": ("audit_log",),
    "forge.permissions.gate": ("Answer", "Approver", "PolicyGate", "approve_all", "nobody"),
    "forge.permissions.policy": (
        "Decision",
        "PermissionRequest",
        "Policy",
        "PolicyError",
        "Ruling",
        "layered",
        "load_rules",
        "rules",
    ),
    "forge.pipeline": ("standard_executor", "standard_steps"),
    "forge.pipeline.dry_run": ("dry_run",),
    "forge.pipeline.record": ("record", "replay"),
    "forge.providers.anthropic": ("Anthropic",),
    "forge.providers.fallback": ("fallback",),
    "forge.providers.names": ("provider_for",),
    "forge.providers.openai": ("OpenAI",),
    "forge.providers.scripted": ("Scripted", "scripted"),
    "forge.providers.text_calls": ("text_calls",),
    "forge.tools": ("register_all",),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    try:
        module = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module 'forge' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if TYPE_CHECKING:  # what editors and type checkers see; a test keeps it equal to the table above
    from forge.agent.agent import (
        Agent as Agent,
    )
    from forge.agent.conversation import (
        Conversation as Conversation,
    )
    from forge.agent.limits import (
        Limits as Limits,
        Price as Price,
    )
    from forge.agent.loop import (
        run_loop as run_loop,
    )
    from forge.agent.result import (
        RunResult as RunResult,
    )
    from forge.agent.session import (
        SessionStore as SessionStore,
    )
    from forge.agent.subagent import (
        AgentType as AgentType,
    )
    from forge.core.activity import (
        ActivityStream as ActivityStream,
    )
    from forge.core.context import (
        Scope as Scope,
        ToolContext as ToolContext,
    )
    from forge.core.errors import (
        DefinitionError as DefinitionError,
        DuplicateToolError as DuplicateToolError,
        ErrorKind as ErrorKind,
        ToolError as ToolError,
    )
    from forge.core.events import (
        Event as Event,
        PermissionAnswered as PermissionAnswered,
        PermissionAsked as PermissionAsked,
        RunFinished as RunFinished,
        RunStarted as RunStarted,
        TextDelta as TextDelta,
        ToolCompleted as ToolCompleted,
        ToolFailed as ToolFailed,
        ToolFinished as ToolFinished,
        ToolOutput as ToolOutput,
        ToolProgress as ToolProgress,
        ToolStarted as ToolStarted,
        TurnFinished as TurnFinished,
    )
    from forge.core.executor import (
        Next as Next,
        Step as Step,
        ToolExecutor as ToolExecutor,
    )
    from forge.core.messages import (
        Message as Message,
        ToolCall as ToolCall,
        Usage as Usage,
        unanswered_calls as unanswered_calls,
    )
    from forge.core.provider import (
        ModelRequest as ModelRequest,
        Provider as Provider,
        ProviderError as ProviderError,
    )
    from forge.core.registry import (
        ToolRegistry as ToolRegistry,
        ToolSource as ToolSource,
    )
    from forge.core.result import (
        Attachment as Attachment,
        Failure as Failure,
        ToolResult as ToolResult,
    )
    from forge.core.secrets import (
        Secrets as Secrets,
    )
    from forge.core.spec import (
        Category as Category,
        Permission as Permission,
        Rate as Rate,
        ToolSpec as ToolSpec,
    )
    from forge.core.tool import (
        Tool as Tool,
        tool as tool,
        toolset as toolset,
    )
    from forge.listeners.audit import (
        audit_log as audit_log,
    )
    from forge.permissions.gate import (
        Answer as Answer,
        Approver as Approver,
        PolicyGate as PolicyGate,
        approve_all as approve_all,
        nobody as nobody,
    )
    from forge.permissions.policy import (
        Decision as Decision,
        PermissionRequest as PermissionRequest,
        Policy as Policy,
        PolicyError as PolicyError,
        Ruling as Ruling,
        layered as layered,
        load_rules as load_rules,
        rules as rules,
    )
    from forge.pipeline import (
        standard_executor as standard_executor,
        standard_steps as standard_steps,
    )
    from forge.pipeline.dry_run import (
        dry_run as dry_run,
    )
    from forge.pipeline.record import (
        record as record,
        replay as replay,
    )
    from forge.providers.anthropic import (
        Anthropic as Anthropic,
    )
    from forge.providers.fallback import (
        fallback as fallback,
    )
    from forge.providers.names import (
        provider_for as provider_for,
    )
    from forge.providers.openai import (
        OpenAI as OpenAI,
    )
    from forge.providers.scripted import (
        Scripted as Scripted,
        scripted as scripted,
    )
    from forge.providers.text_calls import (
        text_calls as text_calls,
    )
    from forge.tools import (
        register_all as register_all,
    )
