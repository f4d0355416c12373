"""Runs a script that calls the other tools: many calls, and the work on their results, in one turn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.extras import check_extra
from forge.core.plain_values import is_flat, plain
from forge.core.registry import ToolRegistry
from forge.core.result import RESULT, ToolResult
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool
from forge.tools.conversation import CONVERSATION
from forge.tools.tool_search import ToolSearch

if TYPE_CHECKING:
    from forge.tools.run_code.interpreter import ScriptCall, ScriptLimits
    from forge.tools.run_code.journal import Journal, JournalStore, MemoryJournals

MAX_CODE = 100_000  # characters
SHOWN = 40  # signatures in the description; if there are more tools, `tool_search` finds them
NOT_IN_SCRIPTS = frozenset({"run_code", "tool_search"})

_HOW = (
    "Run a Python script that calls your tools as async functions, and return the value of its last expression. "
    "Use it for several calls, loops and filters in one step: only the value and what you print come back.\n"
    "Await every call; asyncio.gather runs calls in parallel. A refused or failed call raises. There are no files, "
    "no network and no imports beyond parts of the standard library (asyncio, json, re, math, datetime, random …)."
)
_EXCEPTIONS = {
    ErrorKind.PERMISSION: "PermissionError",
    ErrorKind.SECURITY: "PermissionError",
    ErrorKind.NOT_FOUND: "FileNotFoundError",
    ErrorKind.VALIDATION: "ValueError",
    ErrorKind.TIMEOUT: "TimeoutError",
}
_WORD = r"[A-Za-z_]\w*"


class RunCode(
    Tool,
    category=Category.BUILTIN,
    parallel=False,
    groups={"code-mode"},
    timeout=300.0,
    aliases=("execute_code", "code_execution"),
    argument_aliases={"script": "code", "source": "code", "python": "code"},
    extra="code",
):
    """Run a Python script that calls your tools as async functions, and return the value of its last expression."""

    keeps_journal = True

    def __init__(self, registry: ToolRegistry, limits: ScriptLimits | None = None) -> None:
        self._registry = registry
        self._limits = limits
        self._journals: MemoryJournals | None = None
        self.spec = self.spec.changed(description=self._describe)

    def inside(self, registry: ToolRegistry) -> RunCode:
        return RunCode(registry, self._limits)

    async def run(
        self,
        ctx: ToolContext,
        code: Annotated[str, ParameterLimits(example="sum(n * n for n in range(10))"), "The script."],
    ) -> ToolResult:
        if len(code) > MAX_CODE:
            message = f"the script has {len(code):,} characters; the limit is {MAX_CODE:,}"
            raise ToolError(message, ErrorKind.VALIDATION, "Write a shorter one.")
        return await _Script(ctx, self._find_tools(code), self._store(ctx), code).run(code, self._limits)

    def _store(self, ctx: ToolContext) -> JournalStore:
        from forge.tools.run_code.journal import MemoryJournals, OffersJournals

        store = ctx.executor.find_journals(ctx.call.id) if isinstance(ctx.executor, OffersJournals) else None
        if store is None:
            store = self._journals = self._journals or MemoryJournals()
        return store

    def _find_tools(self, code: str) -> dict[str, ToolSpec]:
        """Returns the tools that the script names, by their name in Python."""
        from forge.tools.shared.signatures import function_name

        words = set(re.findall(_WORD, code))
        specs = {function_name(tool.spec.name): tool.spec for tool in self._callable_tools()}
        return {name: spec for name, spec in specs.items() if name in words}

    def _callable_tools(self) -> list[Tool]:
        return [
            tool
            for tool in list(self._registry.values())
            if tool.spec.name not in NOT_IN_SCRIPTS and not tool.spec.ends_turn
        ]

    def _describe(self) -> str:
        """Describes the tool; in code mode with the signatures of the others, or how to find them if there are many."""
        if "run_code" not in (self._registry.sent or ()):  # the model sees the definitions of the others
            return f"{(type(self).__doc__ or '').strip()} Use it for loops and many calls at once."
        from forge.tools.shared.signatures import write_signature

        tools = self._callable_tools()
        shown = [tool.spec for tool in tools if not tool.spec.hidden][:SHOWN]
        lines = [write_signature(spec, summary=True) for spec in shown]
        if len(shown) < len(tools):
            lines.append("# more functions: tool_search finds them and shows their signatures")
        return "\n".join([_HOW, *lines])


def enter_code_mode(registry: ToolRegistry) -> None:
    """Sends a model only `run_code`, `tool_search` and the tools that talk to the person; scripts call the others.

    Args:
        registry: the tools. `run_code` and `tool_search` are added if they are missing.

    Example:
        >>> registry = ToolRegistry()
        >>> register_all(registry)
        >>> enter_code_mode(registry)
        >>> [spec.name for spec in registry.specs() if not spec.ends_turn]
        ['tool_search', 'run_code']
    """

    check_extra("code", "code mode cannot be used")
    registry.send_only({"run_code", "tool_search", "task", *CONVERSATION})
    if "tool_search" not in registry:
        registry.add(ToolSearch(registry))
    before = registry.get("run_code")
    limits = before._limits if isinstance(before, RunCode) else None
    registry.add(RunCode(registry, limits), replace=True)  # its description is another now


class _Script:
    """One run of a script."""

    def __init__(self, ctx: ToolContext, tools: Mapping[str, ToolSpec], store: JournalStore, code: str) -> None:
        from forge.tools.run_code.data_flow import ScriptOrigins  # listing tools does without

        self._ctx, self._tools, self._store = ctx, tools, store
        self._journal: Journal | None = None
        self._origins = ScriptOrigins(code, ctx.call.id, tools)
        self._names: dict[str, list[str]] = {}  # of the parameters, by tool: a schema is read once in a script

    async def run(self, code: str, limits: ScriptLimits | None) -> ToolResult:
        from forge.tools.run_code.interpreter import Interpreter, ScriptLimits
        from forge.tools.shared.signatures import write_signature

        key = self._ctx.key
        self._journal = journal = await self._store.load(key)
        signatures = {name: write_signature(spec) for name, spec in self._tools.items()}
        bounds, seed = limits or ScriptLimits(), self._ctx.call.id
        alone = [name for name, spec in self._tools.items() if not spec.parallel]
        interpreter = Interpreter(self._answer, signatures, bounds, journal.started, seed, alone)
        try:
            value = await interpreter.run(code)
        except Waiting:
            await self._store.save(key, journal)
            raise
        return _make_result(value, interpreter.printed.text, interpreter.made)

    async def _answer(self, call: ScriptCall) -> Any:
        """Makes a call of the script, or returns its result from before the script waited."""
        from forge.tools.run_code.interpreter import CallFailed

        assert self._journal is not None
        spec = self._tools.get(call.function)
        if spec is None:
            raise CallFailed("NameError", f"name {call.function!r} is not defined")
        budget = self._ctx.scope.budget
        if budget is not None and budget.offered is not None and spec.name not in budget.offered:
            raise CallFailed("PermissionError", f"{spec.name} is not offered in this turn")
        names = self._parameters(spec)
        if len(call.values) > len(names):
            raise CallFailed("TypeError", f"{call.function} takes {len(names)} arguments, not {len(call.values)}")
        arguments = {**dict(zip(names, call.values, strict=False)), **call.named}
        if not is_flat(arguments):
            arguments = plain(arguments)
        result = self._journal.find(call.number, spec.name, arguments)
        if result is None:
            inner = f"{self._ctx.call.id}.{call.number}"  # as `run_tool` names it
            self._origins.note_arguments(inner, call.function, names, arguments)
            try:
                result = await self._ctx.run_tool(spec.name, arguments, number=call.number)
            finally:
                self._origins.forget_arguments(inner)
            if result.failure is not None and isinstance(result.failure.cause, Waiting):
                raise result.failure.cause
            self._journal.keep(call.number, spec.name, arguments, result)
            self._origins.note_result(call.function, result)
        else:
            self._origins.note_stored(call.function, result)
        if result.failure is not None:
            raise CallFailed(_EXCEPTIONS.get(result.failure.kind, "RuntimeError"), result.failure.text())
        return _value_of(spec, result)

    def _parameters(self, spec: ToolSpec) -> list[str]:
        if spec.name not in self._names:
            from forge.tools.shared.signatures import parameter_names

            self._names[spec.name] = parameter_names(spec)
        return self._names[spec.name]


def _make_result(value: Any, printed: str, made: int) -> ToolResult:
    data = plain(value)
    text = "" if value is None else value if isinstance(value, str) else json.dumps(data, ensure_ascii=False)
    said = "\n".join(filter(None, (printed.rstrip("\n"), text)))
    calls = f"{made} call" + ("" if made == 1 else "s")
    return ToolResult(
        for_llm=said or f"The script ran ({calls}). Its last expression has no value, and it printed nothing.",
        title=f"ran a script with {calls}",
        data={"value": data, "calls": made},
    )


def _value_of(spec: ToolSpec, result: ToolResult) -> Any:
    """Returns the value that a script gets: the declared data, or the text."""
    if spec.returns is None:
        return "" if result.data.get(RESULT) == "" else result.for_llm

    try:
        return json.loads(result.for_llm)
    except ValueError:
        return plain(result.data) if result.data else result.for_llm
