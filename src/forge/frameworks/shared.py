"""Shared by all frameworks: selects tools to show and runs another framework's calls; mounts the tools of others."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from forge.core.activity import ActivityStream
from forge.core.arguments.schema import take_schema
from forge.core.context import Scope, ToolContext, new_session
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import text_of
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import Category, ToolSpec, ToolTraits
from forge.core.tool import SchemaTool, Tool
from forge.core.untrusted import clean, clean_schema
from forge.permissions.questions import Approver, Policy
from forge.pipeline import standard_executor

if TYPE_CHECKING:
    from pydantic import ValidationError

    from forge.network.egress import Egress


log = logging.getLogger(__name__)

Tools = ToolRegistry | ToolExecutor | Iterable[Tool | Callable[..., Any]]
OnToolResult = Callable[[ToolCall, ToolResult], object]

NEEDS_REVEALING = "tool_search"  # its hits could not be called if the list of tools is fixed
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # formats that models accept

T = TypeVar("T")


class GuardOptions(TypedDict, total=False):
    """Options that guard exported tools; an executor brings its own."""

    policy: Policy | None  # without one, only reading is allowed
    approve: Approver  # without one, calls that need approval are refused
    activity: ActivityStream
    secrets: Secrets | Iterable[str]
    egress: Egress | None


class ExportOptions(GuardOptions, total=False):
    """Options that guard and observe exported tools."""

    # Or a function of the framework's own context. If it names no session, each conversation has its own session, if
    # the framework distinguishes conversations; otherwise this export has one.
    scope: Scope | Callable[[Any], Scope]
    on_tool_result: OnToolResult  # sync or async; receives every call and its full result


class ExportedTools(list[T]):
    """A list of another framework's tools, with the latest results of their calls."""

    def __init__(self, tools: Iterable[T], calls: ExportedCalls) -> None:
        super().__init__(tools)
        self.executor = calls.executor
        self.last_results: Mapping[str, ToolResult] = calls.last_results  # the latest of each tool


class ExportedCalls:
    """Runs the tool calls of another framework's agent."""

    def __init__(
        self, tools: Tools, options: ExportOptions, conversation: Callable[[Any], str] = lambda context: ""
    ) -> None:
        """`conversation` returns the id of a call's conversation from the framework's context; "" if it is unknown."""
        scope = options.get("scope")
        self._scope: Scope | Callable[[Any], Scope] = Scope() if scope is None else scope
        self._session, self._conversation = new_session(), conversation
        self._on_tool_result = options.get("on_tool_result")
        self._shows_hidden = not isinstance(tools, ToolExecutor | ToolRegistry)  # a list names its tools explicitly
        guarding: Any = {key: value for key, value in options.items() if key not in ("scope", "on_tool_result")}
        self.executor = _executor(tools, guarding)
        self.registry = self.executor.registry
        self.last_results: dict[str, ToolResult] = {}

    def specs(self, *, fixed: bool, context: Any = None) -> list[ToolSpec]:
        """Returns the specs that the model sees, without conversation tools: the other framework's loop ends turns."""
        shown = [one.spec for one in self.registry.values()]
        if not self._shows_hidden:
            shown = self.registry.specs(self.session(context))
        return [spec for spec in shown if not spec.only_talks and not (fixed and spec.name == NEEDS_REVEALING)]

    def session(self, context: Any = None) -> str:
        """Returns the session of a call; the export's own session before the first call brings a context."""
        if context is None and not isinstance(self._scope, Scope):
            return self._session
        return self._scope_of(context).session_id

    async def run(self, call: ToolCall, context: Any, turn: str = "") -> ToolResult:
        """Runs one call. Without a `turn` each call is a turn of its own, since nothing marks the start of one."""
        scope = self._scope_of(context)
        result = await self.executor.execute(call, scope if scope.message_id else scope.in_turn(turn or call.id))
        self.last_results[call.name] = result
        if self._on_tool_result is not None:
            await self._report_result(self._on_tool_result, call, result)
        return result

    def _scope_of(self, context: Any) -> Scope:
        scope = self._scope if isinstance(self._scope, Scope) else self._scope(context)
        if scope.names_session:
            return scope
        name = self._conversation(context) if context is not None else ""
        return replace(scope, session_id=f"{self._session}/{name}" if name else self._session)

    async def _report_result(self, listener: OnToolResult, call: ToolCall, result: ToolResult) -> None:
        try:
            answer = listener(call, result)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # an observer must not break the call
            log.error("on_tool_result failed on %s: %s", call.name, self.executor.secrets.mask_all(text_of(error)))


def call_of(name: str, arguments: Any, id: str | None) -> ToolCall:
    """Returns a call as it was sent, with a new id if it has none."""
    return ToolCall(name, arguments, id) if id else ToolCall(name, arguments)


def parameters_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns a copy of the parameters' schema, which the other framework may change."""
    parameters: dict[str, Any] = deepcopy(spec.to_function()["function"]["parameters"])
    return parameters


def metadata_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns metadata of a tool for programs; models do not see it."""
    return {
        "permissions": sorted(spec.permissions),
        "category": str(spec.category),
        "groups": sorted(spec.groups),
        "origin": spec.origin,
    }


def images_of(result: ToolResult) -> list[Attachment]:
    return [one for one in result.attachments if one.data and one.media_type in IMAGES]


def without_cause(result: ToolResult) -> ToolResult:
    """Returns the result without its exception, which cannot be stored."""
    return replace(result, failure=replace(result.failure, cause=None)) if result.failure else result


def registry_of(tools: Tools) -> ToolRegistry:
    if isinstance(tools, ToolExecutor):
        return tools.registry
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)


def _executor(tools: Tools, guarding: GuardOptions) -> ToolExecutor:
    if not isinstance(tools, ToolExecutor):
        return standard_executor(registry_of(tools), **guarding)
    if guarding:
        raise TypeError(
            f"an executor has its own {', '.join(sorted(guarding))}; pass them to the executor, or export its registry"
            " instead"
        )
    return tools


# --- Mounts tools of other frameworks: the code that their sources share.


Run = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]

MOST_PROBLEMS = 10

_STRANGE = re.compile(r"[^a-zA-Z0-9_-]+")


class BorrowedTool(SchemaTool):
    """A tool with another framework's code behind our schema; the code receives the context of the call."""

    def __init__(self, spec: ToolSpec, run: Run) -> None:
        super().__init__(spec, run)
        if spec.isolate:
            raise DefinitionError(
                f"tool {spec.name!r}: isolate=True needs a function that another process can import; write a function"
                " at module level that calls the tool, and decorate that function"
            )

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        result: ToolResult = await self.run(dict(arguments), ctx)
        return result


def make_borrowed_tool(
    framework: str, name: str, description: str, parameters: Mapping[str, Any], run: Run, traits: ToolTraits
) -> BorrowedTool:
    """Makes a tool of unknown code: it may run programs and use the network unless `traits` declare less."""
    called = safe_name(name)
    schema = take_schema(called, parameters)
    try:
        schema = clean_schema(schema)
    except ValueError as error:
        raise DefinitionError(f"tool {called!r}: {error}") from None
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}  # the spec has them
    all_traits: Any = {
        "category": Category.ADAPTER,
        "permissions": {"execute", "network"},
        "origin": f"{framework}:{name}",
        **traits,
    }
    return BorrowedTool(ToolSpec(name=called, description=clean(description), parameters=schema, **all_traits), run)


def validation_error(error: ValidationError) -> ToolError:
    """Explains a value that fits the schema but not the other framework's own types."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_PROBLEMS]
    lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
    return ToolError(clean("; ".join(lines)), ErrorKind.VALIDATION, "Send arguments that match the schema.")


def framework_error(message: str) -> ToolError:
    """Returns an error with the other framework's message."""
    return ToolError(clean(message) or "it failed without a message")


def safe_name(name: str) -> str:
    """Returns a name that every provider accepts."""
    safe = _STRANGE.sub("_", name).strip("_") or "tool"
    return (safe if safe[0].isalpha() else f"tool_{safe}")[:64]
