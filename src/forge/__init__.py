"""Tools for language-model agents. Everything a user needs is importable from here, and loaded when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "forge.core.activity": ("ActivityStream",),
    "forge.core.context": ("Scope", "ToolContext"),
    "forge.core.errors": ("DefinitionError", "DuplicateToolError", "ErrorKind", "ToolError"),
    "forge.core.events": (
        "Event",
        "PermissionAnswered",
        "PermissionAsked",
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
    "forge.core.messages": ("Message", "ToolCall", "unanswered_calls"),
    "forge.core.provider": ("ModelRequest", "Provider"),
    "forge.core.registry": ("ToolRegistry", "ToolSource"),
    "forge.core.result": ("Attachment", "Failure", "ToolResult"),
    "forge.core.secrets": ("Secrets",),
    "forge.core.spec": ("Category", "Permission", "Rate", "ToolSpec"),
    "forge.core.tool": ("Tool", "tool", "toolset"),
    "forge.listeners.audit": ("audit_log",),
    "forge.permissions.gate": ("Answer", "Approver", "PolicyGate", "nobody"),
    "forge.permissions.policy": ("Decision", "PermissionRequest", "Policy", "Ruling", "layered", "load_rules", "rules"),
    "forge.pipeline": ("standard_steps",),
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


if TYPE_CHECKING:  # for editors and type checkers, which do not run `__getattr__`
    from forge.core.activity import ActivityStream as ActivityStream
    from forge.core.context import Scope as Scope
    from forge.core.context import ToolContext as ToolContext
