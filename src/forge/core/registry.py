"""The tools of an agent, by name, and those of sources while they are open."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypedDict, runtime_checkable

from forge.core.check_definition import NameFilter, check_listed, check_settings, with_attributes
from forge.core.context import Scope
from forge.core.errors import DefinitionError, DuplicateToolError
from forge.core.extras import is_installed
from forge.core.spec import Category, Permission, PermissionName, ToolSpec
from forge.core.tool import FunctionTool, Tool, UnavailableTool, are_alike, check_parameters, unknown

ToolSource = AbstractAsyncContextManager[Sequence[Tool]]
"""Tools that need something kept open: an MCP server, an HTTP client, a watched folder. `async with` opens them.

Example:
    >>> isinstance(scripts("tools"), AbstractAsyncContextManager)
    True
"""


class SourceSettings(TypedDict, total=False):
    """The parameters that `mcp` and `openapi` share; both describe them."""

    name: str
    prefix: str | None
    include: Collection[str]
    exclude: Collection[str]
    timeout: float | None
    hidden: bool | None
    permissions: Collection[Permission | PermissionName] | None


def check_source(function: str, settings: SourceSettings) -> None:
    """Raises `TypeError` for a keyword that there is not, `DefinitionError` for one text where a list belongs."""
    check_settings(function, settings, SourceSettings)
    NameFilter.read(function, settings.get("include", ()), settings.get("exclude", ()))
    if settings.get("hidden") not in (None, True, False):
        raise DefinitionError(f"{function}(hidden={settings.get('hidden')!r:.80}): expected True, False or None")


class ReportsProblems(Protocol):
    """A source of tools that may offer only some of them, and reports the problems of the others."""

    @property
    def problems(self) -> Sequence[object]: ...


def problems_of(source: ToolSource | ReportsProblems) -> Sequence[object]:
    """Returns the problems of tools that a source does not offer; () where it reports none."""
    found: Sequence[object] = getattr(source, "problems", ())
    return found


MOST_SESSIONS = 1_000  # for which revealed tools are remembered
REVEALED_TURNS = 50  # for which a found tool stays visible: taking a definition away empties the provider's cache
SEARCH, RUN_CODE = "tool_search", "run_code"  # the tools that find tools, and that run scripts


class ToolRegistry(Mapping[str, Tool]):
    """A mapping of names to tools. Names are unique; replacing a tool needs `replace=True`.

    A lookup knows the aliases of a tool; a loop over the registry gives each tool once, by its own name.
    Writers copy, so readers never wait and never see half a change; every change counts up `version`. A tool that needs
    an extra which is not installed is no entry, so no model sees it: `unavailable` lists it, and `find` explains it.

    Args:
        tools: tools and functions to begin with.

    Example:
        >>> registry = ToolRegistry()
        >>> register_all(registry)
        >>> registry["math_calculate"].spec.permissions
        frozenset()
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._lock = threading.RLock()
        self._tools: dict[str, Tool] = {}
        self._names: dict[str, str] = {}  # every name and alias -> canonical name
        self._unavailable: dict[str, UnavailableTool] = {}  # by every name and alias
        self._revealed: dict[str, dict[str, int]] = {}  # session -> hidden tool -> turns left
        self._definitions: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = {}
        self._shown: tuple[int, list[ToolSpec]] = (-1, [])  # the specs of a version, where nothing is revealed
        self._deferred: frozenset[str] = frozenset()  # sent only once `tool_search` found them
        self._sent: frozenset[str] | None = None  # the tools whose definitions are sent; None: all that are not hidden
        self.version = 0
        check_listed(tools)
        self.add(*tools)

    def add(self, *tools: Tool | Callable[..., Any], replace: bool = False) -> None:
        """Registers all tools, or none; plain functions become tools.

        A tool that is already registered, as the same object or with the same settings, stays.
        """
        given = [item if isinstance(item, Tool) else FunctionTool(item, {}) for item in tools]
        with self._lock:
            given = self._set_aside_unavailable(given)
            known, names = dict(self._tools), dict(self._names)
            added = []
            for one in given:
                _check(one)
                old = known.get(one.spec.name)
                if old is None or replace or not are_alike(old, one):
                    _take(one, known, names, replace=replace)
                    added.append(one)
            if not added:
                return
            for one in added:
                one.reset()
            self._tools, self._names = known, names
            self._count_change()

    def remove(self, name: str) -> None:
        """Removes a tool, by its name or an alias."""
        with self._lock:
            canonical = self._names[name]
            if self._tools[canonical].spec.only_talks:
                raise DefinitionError(f"tool {canonical!r} hands over to the person and cannot be removed")
            self._tools = {key: value for key, value in self._tools.items() if key != canonical}
            self._names = {key: value for key, value in self._names.items() if value != canonical}
            self._count_change()

    def discard(self, names: Iterable[str]) -> None:
        """Removes the tools of these names, as far as they exist, in one change."""
        gone = {name for name in names if name in self._tools and not self._tools[name].spec.only_talks}
        if not gone:
            return
        with self._lock:
            self._tools = {key: value for key, value in self._tools.items() if key not in gone}
            self._names = {key: value for key, value in self._names.items() if value not in gone}
            self._count_change()

    def find(self, name: str) -> Tool:
        """Returns a tool like `[]`; for an unknown name, a tool that explains the mistake."""
        if not isinstance(name, str):
            return unknown(repr(name)[:80], self._names)
        found = self._tools.get(name)
        if found is None:
            canonical = self._names.get(name)
            found = self._tools.get(canonical) if canonical else self._unavailable.get(name)
        return found if found is not None else unknown(name, self._names)

    def select(self, keep: Callable[[ToolSpec], bool]) -> ToolRegistry:
        """Returns a new registry with the tools whose spec passes: read-only, production, one skill's."""
        chosen = ToolRegistry()
        chosen._tools = {name: one.inside(chosen) for name, one in self._tools.items() if keep(one.spec)}
        chosen._names = {alias: name for alias, name in self._names.items() if name in chosen._tools}
        chosen._unavailable = {name: one for name, one in self._unavailable.items() if keep(one.spec)}
        chosen._sent = self._sent
        chosen._deferred = self._deferred
        return chosen

    def enabled(self, permissions: Iterable[Permission | PermissionName]) -> ToolRegistry:
        """Returns only the tools that need nothing beyond these permissions."""
        granted = frozenset(map(Permission, permissions))
        return self.select(lambda spec: spec.permissions <= granted)

    def group(self, name: str) -> ToolRegistry:
        """Returns only the tools of a group, such as `search`, `read`, `write` or `code-agent`."""
        return self.select(lambda spec: name in spec.groups)

    async def ready(self, scope: Scope | None = None) -> None:
        """Awaits every definition that is built on first use. `scope`: for initialisers that take one."""
        for one in tuple(self._tools.values()):
            if scope is not None:
                one.take_scope(scope)
            await one.ready()

    def specs(self, session_id: str = "local") -> list[ToolSpec]:
        """Returns the specs that a model sees in this session: all that are not hidden, and the revealed ones."""
        if not self._revealed and self._shown[0] == self.version:
            return self._shown[1]
        revealed = self._revealed.get(session_id, {})
        shown = [
            one.spec for name, one in self._tools.items() if name not in revealed and not self.is_deferred(one.spec)
        ]
        # found tools come last, in the order in which they were found: what was sent before stays in the cache
        shown += [self._tools[name].spec for name in revealed if name in self._tools]
        if not self._revealed:
            self._shown = (self.version, shown)
        return shown

    def definitions(self, dialect: str = "openai", session_id: str = "local") -> list[dict[str, Any]]:
        """Returns the specs in a provider's spelling, in order of registration. Built once per version: read only."""
        key = (dialect, tuple(self._revealed.get(session_id, ())))
        cache = self._definitions  # a change puts another in its place: what is built now must not end up there
        built = cache.get(key)
        if built is None:
            from forge.core.arguments.tool_formats import DIALECTS  # listing tools spells none

            try:
                render = DIALECTS[dialect]
            except KeyError:
                raise ValueError(f"unknown dialect {dialect!r}; known: {', '.join(DIALECTS)}") from None
            built = [render(spec) for spec in self.specs(session_id)]
            cache[key] = built
        return list(built)

    def summaries(self) -> list[str]:
        """Renders one line per tool, for people and prompts."""
        return [f"- `{spec.name}` - {_summary(spec)}" for spec in self.specs()]

    @property
    def names(self) -> Collection[str]:
        """Every name a tool can be called by, aliases included."""
        return self._names.keys()

    @property
    def unavailable(self) -> list[ToolSpec]:
        """The specs of tools that cannot be used, because their extra is not installed."""
        return [one.spec for name, one in self._unavailable.items() if name == one.spec.name and name not in self]

    @property
    def sent(self) -> frozenset[str] | None:
        """The tools whose definitions are sent; None: all that are not hidden."""
        return self._sent

    def send_only(self, names: Iterable[str]) -> None:
        """Sends a model only the definitions of these tools. `tool_search` finds the others, and all can be called."""
        with self._lock:
            self._sent = frozenset(names)
            self._count_change()

    def defer(self, names: Iterable[str]) -> None:
        """Sends the definitions of these tools only once `tool_search` found them. All can be called."""
        with self._lock:
            self._deferred = frozenset(names)
            self._count_change()

    def is_deferred(self, spec: ToolSpec) -> bool:
        """Returns whether a model sees the tool only after `tool_search` found it."""
        if self._sent is not None:
            return spec.name not in self._sent
        return spec.hidden or spec.name in self._deferred

    def reveal(self, names: Iterable[str], session_id: str = "local", turns: int = REVEALED_TURNS) -> None:
        """Shows hidden tools to the model for a few turns of a session."""
        with self._lock:
            shown = dict(self._revealed.get(session_id, {}))
            deferred = [name for name in names if name in self._tools and self.is_deferred(self._tools[name].spec)]
            shown.update(dict.fromkeys(deferred, turns))
            others = {key: value for key, value in self._revealed.items() if key != session_id}
            for oldest in list(others)[: max(0, len(others) - MOST_SESSIONS + 1)]:
                del others[oldest]
            self._revealed = {**others, session_id: shown}

    def revealed(self, session_id: str = "local") -> Collection[str]:
        """Returns the hidden tools that a model sees in this session, because a search found them."""
        return self._revealed.get(session_id, {}).keys()

    @property
    def search(self) -> str:
        """The name of the tool that reveals hidden ones; "" if there is none, or if found tools are for scripts."""
        found = self._tools.get(SEARCH)
        return SEARCH if found is not None and found.reveals_tools and RUN_CODE not in (self._sent or ()) else ""

    def next_turn(self, session_id: str = "local") -> None:
        """Counts a turn: tools that were revealed long enough ago are hidden again."""
        if session_id not in self._revealed:
            return
        with self._lock:
            left = {name: turns - 1 for name, turns in self._revealed[session_id].items() if turns > 1}
            others = {key: value for key, value in self._revealed.items() if key != session_id}
            self._revealed = {**others, session_id: left} if left else others

    def forget(self, session_id: str) -> None:
        """Forgets the revealed tools of a session that is over."""
        with self._lock:
            self._revealed = {key: value for key, value in self._revealed.items() if key != session_id}

    def _set_aside_unavailable(self, given: list[Tool]) -> list[Tool]:
        """Returns the tools whose extra is installed; the others are only remembered."""
        usable = []
        for one in given:
            spec = getattr(one, "spec", None)  # one without a spec is refused later
            if isinstance(spec, ToolSpec) and spec.extra and not is_installed(spec.extra):
                names = dict.fromkeys((spec.name, *spec.aliases), UnavailableTool(one))
                self._unavailable = {**self._unavailable, **names}
            else:
                usable.append(one)
        return usable

    def _count_change(self) -> None:
        self.version += 1
        self._definitions = {}

    def __getitem__(self, name: str) -> Tool:
        found = self._tools.get(name)
        return found if found is not None else self._tools[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<ToolRegistry of {len(self)} tools>"


def _summary(spec: ToolSpec) -> str:
    try:
        return spec.description.partition("\n")[0]
    except DefinitionError:
        return "(not ready yet)"


def _check(one: Tool) -> None:
    """Raises `DefinitionError` for a tool that could not be called; applies the options of its attributes."""
    if not isinstance(getattr(one, "spec", None), ToolSpec):
        raise DefinitionError(
            f"{one!r} has no spec: a Tool subclass defines `run`, or sets `self.spec` and defines `invoke`{_hint(one)}"
        )
    if one.spec.has_own_schema and not getattr(one, "checked", False):
        from forge.core.arguments.schema import check_schema  # most tools have typed parameters

        check_schema(one.spec.name, one.spec.parameters)
    if type(one).invoke is Tool.invoke and not hasattr(one, "run"):
        raise DefinitionError(
            f"tool {one.spec.name!r} has a spec, but no `run` and no `invoke(arguments, ctx)`{_hint(one)}"
        )
    signature = getattr(one, "_signature", None)
    if signature is not None and one.spec.category is not Category.BUILTIN:
        signature.check_types()
    stated = with_attributes(one.spec, one.stated_options, vars(one))
    if stated is not one.spec:
        check_parameters(stated)
        one.spec = stated


def _hint(one: Tool) -> str:
    found = [name for name in ("execute", "execute_impl", "call", "_run") if hasattr(type(one), name)]
    return f"; rename `{found[0]}` to `run`" if found else ""


def _take(one: Tool, known: dict[str, Tool], names: dict[str, str], *, replace: bool) -> None:
    name = one.spec.name
    old = known.get(name)
    if old is not None and old.spec.only_talks and old is not one:
        raise DuplicateToolError(f"tool {name!r} hands over to the person and cannot be replaced")
    if old is not None and not replace:
        advice = "pass replace=True to replace it"
        if "__" in name:  # of a source, which has a prefix
            advice = f"give one of the two sources another prefix than {name.partition('__')[0]!r}: prefix=…"
        raise DuplicateToolError(f"tool {name!r} is already registered; {advice}")
    for alias in [key for key, value in names.items() if value == name] if old is not None else ():
        del names[alias]
    for alias in (name, *one.spec.aliases):
        taken = names.get(alias)
        if taken is not None and taken != name:
            raise DuplicateToolError(f"tool {name!r}: the name {alias!r} already belongs to {taken!r}; choose another")
        names[alias] = name
    known[name] = one


# Keeps the tools of a source in a registry while the source is open, and follows its changes.


log = logging.getLogger(__name__)

Prepare = Callable[[Tool], Tool]


@runtime_checkable
class LiveSource(Protocol):
    """A source whose tools change while it is open: a server that announces changes, a watched folder."""

    def follow(self, changed: Callable[[Sequence[Tool]], None]) -> None:
        """Calls `changed` with all current tools, on the event loop, whenever they differ from before."""


@runtime_checkable
class YieldingSource(Protocol):
    """A source of independent tools, such as a folder: one taken name must not cost the others."""

    def leave_out(self, names: Collection[str]) -> None:
        """Offers no tool of these names, which belong to others."""


@asynccontextmanager
async def mount_source(
    registry: ToolRegistry, source: ToolSource, prepare: Prepare = lambda tool: tool
) -> AsyncIterator[None]:
    """Keeps the source's tools in the registry while the block runs; `prepare` may replace a tool.

    A name that is taken raises `DuplicateToolError` at the beginning, unless the source yields. Of what comes later, a
    tool that cannot be registered is left out and logged: a source must not harm what is there.
    """
    if isinstance(source, YieldingSource):
        source.leave_out(frozenset(registry.names))
    async with source as tools:
        mount = _Mount(registry, prepare)
        registry.add(*(prepare(tool) for tool in tools))
        mount.held = {tool.spec.name: tool for tool in tools}
        if isinstance(source, LiveSource):
            source.follow(mount.change)
        try:
            yield
        finally:
            mount.end()


class _Mount:
    def __init__(self, registry: ToolRegistry, prepare: Prepare) -> None:
        self.registry = registry
        self.prepare = prepare
        self.held: dict[str, Tool] = {}  # by name, as the source gave it
        self._ended = False

    def change(self, tools: Sequence[Tool]) -> None:
        """Applies a change at once, so that no one sees half of it: a model's next turn has the new tools."""
        if self._ended:
            return
        now = {tool.spec.name: tool for tool in tools}
        gone = [name for name in self.held if name not in now]
        come = [tool for name, tool in now.items() if self.held.get(name) is not tool]
        taken = self._take(come)
        self.registry.discard(gone)
        self.held = {name: tool for name, tool in now.items() if name in self.held or name in taken}

    def _take(self, tools: list[Tool]) -> set[str]:
        prepared = [(tool.spec.name, self.prepare(tool)) for tool in tools]
        try:
            self._add(*prepared)
            return {name for name, _ in prepared}
        except DefinitionError:  # find out which
            return {name for name, tool in prepared if self._add_or_log(name, tool)}

    def _add_or_log(self, name: str, tool: Tool) -> bool:
        try:
            self._add((name, tool))
        except DefinitionError as error:
            log.warning("a tool of %s is left out: %s", tool.spec.origin or "a source", error)
            return False
        return True

    def _add(self, *tools: tuple[str, Tool]) -> None:
        self.registry.add(*(tool for name, tool in tools if name not in self.held))
        self.registry.add(*(tool for name, tool in tools if name in self.held), replace=True)

    def end(self) -> None:
        self._ended = True
        self.registry.discard(self.held)
