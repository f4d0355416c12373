"""Finds tools by their purpose, so that a thousand tools cost a model nothing until it searches."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Annotated

from forge.core.arguments.parameters import Limits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.lazy import LazyLog
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool

if TYPE_CHECKING:  # the first search loads them
    from forge.tools.tool_search.index import Hit, Index
    from forge.tools.tool_search.vector_ranking import Embed, VectorRanking

log = LazyLog(__name__)

REVEALED_TURNS = 50  # for which a found tool stays visible: taking a definition away empties the provider's cache
RUN_CODE = "run_code"  # the tool that runs scripts
MAX_QUERY = 1_000  # characters
MAX_DESCRIPTION = 200  # characters of a description in the answer


class ToolSearch(Tool, category=Category.BUILTIN, idempotent=True, timeout=10.0):
    """Find tools by what they do. There are more than you see: search before you call something impossible."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._index: Index | None = None
        self._indexed = -1  # the version of the registry
        self._ranking: VectorRanking | None = None

    def inside(self, registry: ToolRegistry) -> ToolSearch:
        own = ToolSearch(registry)
        own._ranking = self._ranking  # with the vectors that it has
        return own

    def rank_by_meaning(self, embed: Embed) -> ToolSearch:
        """Ranks by meaning, too, from now on. `embed` turns texts into vectors; if it fails, words alone count.

        The first search calls it.
        """
        from forge.tools.tool_search.vector_ranking import VectorRanking

        self._ranking = VectorRanking(embed)
        return self

    def run(
        self,
        ctx: ToolContext,
        query: Annotated[str, "A few words."],
        regex: bool = False,
        max_results: Annotated[int, Limits(ge=1, le=50)] = 5,
    ) -> ToolResult:
        if not query.strip():
            raise ToolError("the query is empty", ErrorKind.VALIDATION, "Say in a few words what the tool should do.")
        if len(query) > MAX_QUERY:
            raise ToolError(
                f"the query has more than {MAX_QUERY:,} characters", ErrorKind.VALIDATION, "Use a few words."
            )
        found, total = self._search(query, ctx.spec.name, regex=regex)
        hits = [hit.tool.spec for hit in found[:max_results]]
        in_scripts = RUN_CODE in (self._registry.sent or ())  # found tools are called from scripts
        hidden = [spec.name for spec in hits if self._registry.is_deferred(spec)]
        if hidden and not in_scripts:
            self._registry.reveal(hidden, ctx.scope.session_id, turns=REVEALED_TURNS)
        return _answer(hits, total, query, in_scripts=in_scripts)

    def _search(self, query: str, own_name: str, *, regex: bool) -> tuple[list[Hit], int]:
        """Returns the best tools, at most 50, and the number of tools that fit."""
        with self._lock:  # a second search waits for the index
            index = self._update_index(own_name)
            found, total = index.find_matching(query) if regex else index.rank_by_words(query)
            tools = index.tools
        if regex or self._ranking is None:
            return found, total
        try:
            found = self._ranking.rank(query, found, tools)
        except Exception as error:  # search works without it
            self._ranking = None
            log.warning("tool_search ranks by words alone from now on, because the embedder failed: %r", error)
        return found, max(total, len(found))

    def _update_index(self, own_name: str) -> Index:
        version = self._registry.version  # before the tools are read: a change meanwhile makes the index old, not wrong
        if self._index is None:
            from forge.tools.tool_search.index import Index

            self._index = Index()
        if self._indexed != version:
            tools = dict(self._registry)
            for name in (own_name, RUN_CODE):
                tools.pop(name, None)
            self._index.update(tools)
            self._indexed = version
        return self._index


def _answer(hits: list[ToolSpec], total: int, query: str, *, in_scripts: bool = False) -> ToolResult:
    lines = [_signature_of(spec) if in_scripts else f"- `{spec.name}` - {_shorten(spec.description)}" for spec in hits]
    if not lines:
        lines = [f"No tool matches {query[:100]!r}. Try other words for what it should do."]
    if total > len(hits):
        lines.append(f"[{len(hits)} of {total} matches; see more with max_results={min(total, 50)}]")
    tools = [{"name": spec.name, "description": spec.description} for spec in hits]
    return ToolResult(for_llm="\n".join(lines), data={"tools": tools, "total": total, "truncated": total > len(hits)})


def _signature_of(spec: ToolSpec) -> str:
    from forge.tools.code_parts.signatures import write_signature  # only in code mode

    return write_signature(spec, summary=True)


def _shorten(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= MAX_DESCRIPTION else f"{line[:MAX_DESCRIPTION]}…"
