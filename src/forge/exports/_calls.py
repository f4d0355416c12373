"""What all exports share: which tools are shown, and how another framework's call becomes one of ours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from forge.core.activity import ActivityStream
from forge.core.context import Scope, new_session
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import text_of
from forge.core.registry import CONVERSATION, ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.permissions.gate import Approver
from forge.permissions.policy import Policy
from forge.pipeline import standard_executor

if TYPE_CHECKING:  # a program without an egress of its own needs nothing of the network
    from forge.network.egress import Egress

log = logging.getLogger(__name__)

Tools = ToolRegistry | ToolExecutor | Iterable[Tool | Callable[..., Any]]
OnToolResult = Callable[[ToolCall, ToolResult], object]

NEEDS_REVEALING = "tool_search"  # what it finds could not be called where the list of tools is fixed
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # what models look at

T = TypeVar("T")


class Guarding(TypedDict, total=False):
    """How exported tools are guarded; an executor brings all of it itself."""

    policy: Policy | None  # without one, only reading is allowed
    approve: Approver  # without one, whatever asks is refused
    activity: ActivityStream
    secrets: Secrets | Iterable[str]
    egress: Egress | None


class ExportOptions(Guarding, total=False):
    """How exported tools are guarded and watched."""

    # Or a function of the framework's own context. Where it names no session, each conversation has one of its own, if
    # the framework can tell them apart; otherwise this export has one.
    scope: Scope | Callable[[Any], Scope]
    on_tool_result: OnToolResult  # plain or async; hears of every call and its whole result


class Exported(list[T]):
    """Another framework's tools, as the list it takes, and what became of their calls."""

    def __init__(self, tools: Iterable[T], calls: Calls) -> None:
        super().__init__(tools)
        self.executor = calls.executor
        self.last_results: Mapping[str, ToolResult] = calls.last_results  # the newest of each tool


class Calls:
    """Runs what another framework's agent calls."""

    def __init__(
        self, tools: Tools, options: ExportOptions, conversation: Callable[[Any], str] = lambda context: ""
    ) -> None:
        """`conversation` names the one that a call belongs to, by the framework's context; empty: it cannot be told."""
        scope = options.get("scope")
        self._scope: Scope | Callable[[Any], Scope] = Scope() if scope is None else scope
        self._session, self._conversation = new_session(), conversation
        self._on_tool_result = options.get("on_tool_result")
        self._shows_hidden = not isinstance(tools, ToolExecutor | ToolRegistry)  # a list names what it wants
        guarding: Any = {key: value for key, value in options.items() if key not in ("scope", "on_tool_result")}
        self.executor = _executor(tools, guarding)
        self.registry = self.executor.registry
        self.last_results: dict[str, ToolResult] = {}

    def specs(self, *, fixed: bool, context: Any = None) -> list[ToolSpec]:
        """What the other framework's model is shown. Its own loop ends its turns, so ours are not among them."""
        shown = [one.spec for one in self.registry.values()]
        if not self._shows_hidden:
            shown = self.registry.specs(self.session(context))
        left_out = {*CONVERSATION, NEEDS_REVEALING} if fixed else CONVERSATION
        return [spec for spec in shown if spec.name not in left_out]

    def session(self, context: Any = None) -> str:
        """The session of a call; the export's own where a context is still to be given by the first call."""
        if context is None and not isinstance(self._scope, Scope):
            return self._session
        return self._scope_of(context).session_id

    async def run(self, call: ToolCall, context: Any, turn: str = "") -> ToolResult:
        """One call to its result. Without a `turn` each call is one of its own, as nobody says when one begins."""
        scope = self._scope_of(context)
        result = await self.executor.execute(call, scope if scope.message_id else scope.in_turn(turn or call.id))
        self.last_results[call.name] = result
        if self._on_tool_result is not None:
            await self._tell(self._on_tool_result, call, result)
        return result

    def _scope_of(self, context: Any) -> Scope:
        scope = self._scope if isinstance(self._scope, Scope) else self._scope(context)
        if scope.names_session:
            return scope
        name = self._conversation(context) if context is not None else ""
        return replace(scope, session_id=f"{self._session}/{name}" if name else self._session)

    async def _tell(self, told: OnToolResult, call: ToolCall, result: ToolResult) -> None:
        try:
            answer = told(call, result)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # whoever watches cannot harm the call
            log.error("on_tool_result failed on %s: %s", call.name, self.executor.secrets.mask_all(text_of(error)))


def call_of(name: str, arguments: Any, id: str | None) -> ToolCall:
    """A call as it was sent; without an id it gets one."""
    return ToolCall(name, arguments, id) if id else ToolCall(name, arguments)


def parameters_of(spec: ToolSpec) -> dict[str, Any]:
    """A schema that the other framework may do with as it likes."""
    parameters: dict[str, Any] = deepcopy(spec.to_function()["function"]["parameters"])
    return parameters


def about(spec: ToolSpec) -> dict[str, Any]:
    """What programs may want to know of a tool and no model is shown."""
    return {
        "permissions": sorted(spec.permissions),
        "category": str(spec.category),
        "groups": sorted(spec.groups),
        "origin": spec.origin,
    }


def images_of(result: ToolResult) -> list[Attachment]:
    return [one for one in result.attachments if one.data and one.media_type in IMAGES]


def without_cause(result: ToolResult) -> ToolResult:
    """The result as something that can be stored: an exception cannot."""
    return replace(result, failure=replace(result.failure, cause=None)) if result.failure else result


def registry_of(tools: Tools) -> ToolRegistry:
    if isinstance(tools, ToolExecutor):
        return tools.registry
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)


def _executor(tools: Tools, guarding: Guarding) -> ToolExecutor:
    if not isinstance(tools, ToolExecutor):
        return standard_executor(registry_of(tools), **guarding)
    if guarding:
        raise TypeError(
            f"an executor brings its own {', '.join(sorted(guarding))}; give them to it, or export its registry instead"
        )
    return tools
