"""Searches the web."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.arguments.parameters import Limits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

if TYPE_CHECKING:  # the services are loaded by the first search
    from forge.tools.web_search.services import SearchQuery, SearchResults, Service

MAX_BYTES = 4 * 1024 * 1024  # of an answer
MAX_RESULTS = 20
LONGEST = 2_000  # characters of a result's text
SECONDS = 30.0


class WebSearch(
    Tool,
    category=Category.BUILTIN,
    trust="untrusted",
    permissions={"network"},
    aliases=("websearch", "search_web"),
    argument_aliases={"q": "query", "num_results": "max_results", "count": "max_results", "limit": "max_results"},
    timeout=2 * SECONDS,
):
    """Search the web for recent or unknown facts. Returns titles, URLs and excerpts; web_fetch reads a page."""

    def __init__(self, base_url: str = "", model: str = "", seconds: float = SECONDS) -> None:
        """`base_url`: another server that speaks the provider's API, such as a proxy. `model`: Perplexity's."""
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.seconds = seconds

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        from forge.tools.web_search.services import choose_service

        return [self._url(choose_service(os.environ, self.model)[0])]

    async def run(
        self,
        ctx: ToolContext,
        query: Annotated[str, Limits(min_length=1, max_length=2_000, example="python 3.14 release date")],
        max_results: Annotated[int, Limits(ge=1, le=MAX_RESULTS)] = 5,
        search_depth: Annotated[Literal["basic", "advanced"], "advanced: slower, finds more."] = "basic",
        time_range: Annotated[Literal["day", "week", "month", "year", ""], "Maximum age."] = "",
        include_domains: Annotated[list[str] | None, 'Such as ["example.com"].'] = None,
        exclude_domains: list[str] | None = None,
    ) -> ToolResult:
        from forge.tools.web_search.services import SearchQuery, choose_service

        if not query.strip():
            raise ToolError("the query is empty", ErrorKind.VALIDATION, "Give a few search words.")
        service, key = choose_service(os.environ, self.model)
        search = SearchQuery(
            query=query.strip(),
            max_results=max_results,
            depth=search_depth,
            time_range=time_range,
            include=[one.strip() for one in include_domains or () if one.strip()],
            exclude=[one.strip() for one in exclude_domains or () if one.strip()],
        )
        return _answer(service, search, await self._search(service, key, search))

    async def _search(self, service: Service, key: str, search: SearchQuery) -> SearchResults:
        import json  # listing tools does without
        from urllib.parse import urlencode

        from forge.network.client import fetch  # the network is loaded by the first request
        from forge.network.headers import Limits as Bounds
        from forge.tools.web_search.services import find_explanation, refusal_error

        url = self._url(service)
        wanted = service.request(search)
        try:
            body = json.dumps(wanted, ensure_ascii=False).encode() if service.method == "POST" else b""
            query = "" if service.method == "POST" else f"?{urlencode(wanted)}"
        except UnicodeEncodeError:
            problem = "the query has half a character (a lone surrogate)"
            raise ToolError(problem, ErrorKind.VALIDATION, "Leave it out.") from None
        answer = await fetch(
            service.method,
            f"{url}{query}",
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"} if key else {},
            body=body,
            egress=self._egress(url, is_configured=bool(self.base_url) or not key),
            limits=Bounds(read=self.seconds, total=self.seconds, size=MAX_BYTES),
            follow="none",  # the key is for this server
        )
        text = answer.text().text
        text = text.replace(key, "[secret]") if key else text
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not 200 <= answer.status < 300:
            raise refusal_error(service, answer.status, _one_line(find_explanation(said)), answer.header("retry-after"))
        if not isinstance(said, dict):
            raise ToolError(
                f"{service.name} returned a response that is not a JSON object", ErrorKind.SYSTEM, "Try again later."
            )
        return service.read_results(said)

    def _url(self, service: Service) -> str:
        return f"{self.base_url or service.server}{service.path}"

    def _egress(self, url: str, *, is_configured: bool = False) -> Any:
        """Allow the provider's server, or the one that a person configured, which may have a private address."""
        from dataclasses import replace

        from forge.network.address import read_url
        from forge.network.egress import Egress

        server = read_url(url)
        host_and_port = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
        egress = Egress.current().including(host_and_port)
        return replace(egress, private=(*egress.private, host_and_port)) if is_configured else egress


def _answer(service: Service, search: SearchQuery, found: SearchResults) -> ToolResult:
    from forge.tools.web_parts.mark_untrusted import mark_text

    hits = found.hits[: search.max_results]
    data: dict[str, Any] = {
        "provider": service.name,
        "query": search.query,
        "results": [
            {"title": hit.title, "url": hit.url, "content": hit.content[:LONGEST]}
            | ({"date": hit.date} if hit.date else {})
            | ({"score": hit.score} if hit.score is not None else {})
            for hit in hits
        ],
    }
    if found.answer:
        data["answer"] = found.answer
    title = f"{len(hits)} result{'s' * (len(hits) != 1)} for {search.query[:60]}"
    if not hits and not found.answer:
        return ToolResult(
            for_llm="No results. Try other words, or fewer restrictions.", title=f"No {title[2:]}", data=data
        )
    return ToolResult(
        for_llm=mark_text(_render_results(found.answer, data["results"]), f"a web search ({service.name})"),
        title=title,
        data=data,
    )


def _render_results(answer: str, results: list[dict[str, Any]]) -> str:
    parts = [answer] if answer else []
    for number, one in enumerate(results, 1):
        date = f" ({_one_line(one['date'])[:40]})" if one.get("date") else ""
        lines = [f"{number}. {_one_line(one['title'])}{date}", f"   {one['url']}"]
        if one["content"]:
            lines.append(f"   {_one_line(one['content'])}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _one_line(text: str) -> str:
    from forge.tools.web_parts.mark_untrusted import clean_line

    return clean_line(text, LONGEST)
