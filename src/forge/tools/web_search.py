"""Searches the web with one of several services: their requests, answers and refusals are below."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Protocol
from urllib.parse import urlencode

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

MAX_BYTES = 4 * 1024 * 1024  # of an answer
MAX_RESULTS = 20
LONGEST_TEXT = 2_000  # characters of a result's text
SEARCH_SECONDS = 30.0


class WebSearch(
    Tool,
    category=Category.BUILTIN,
    trust="untrusted",
    permissions={"network"},
    aliases=("websearch", "search_web"),
    argument_aliases={"q": "query", "num_results": "max_results", "count": "max_results", "limit": "max_results"},
    timeout=2 * SEARCH_SECONDS,
):
    """Search the web for recent or unknown facts. Returns titles, URLs and excerpts; web_fetch reads a page."""

    def __init__(self, base_url: str = "", model: str = "", seconds: float = SEARCH_SECONDS) -> None:
        """`base_url`: another server that speaks the provider's API, such as a proxy. `model`: Perplexity's."""
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.seconds = seconds

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:

        return [self._url(choose_service(os.environ, self.model)[0])]

    async def run(
        self,
        ctx: ToolContext,
        query: Annotated[str, ParameterLimits(min_length=1, max_length=2_000, example="python 3.14 release date")],
        max_results: Annotated[int, ParameterLimits(ge=1, le=MAX_RESULTS)] = 5,
        search_depth: Annotated[Literal["basic", "advanced"], "advanced: slower, finds more."] = "basic",
        time_range: Annotated[Literal["day", "week", "month", "year", ""], "Maximum age."] = "",
        include_domains: Annotated[list[str] | None, 'Such as ["example.com"].'] = None,
        exclude_domains: list[str] | None = None,
    ) -> ToolResult:

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

        from forge.network.client import fetch  # the network is loaded by the first request
        from forge.network.headers import RequestLimits as Bounds

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

        from forge.network.address import read_url
        from forge.network.egress import Egress

        server = read_url(url)
        host_and_port = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
        egress = Egress.current().including(host_and_port)
        return replace(egress, private=(*egress.private, host_and_port)) if is_configured else egress


def _answer(service: Service, search: SearchQuery, found: SearchResults) -> ToolResult:
    from forge.tools.web.content import mark_text

    hits = found.hits[: search.max_results]
    data: dict[str, Any] = {
        "provider": service.name,
        "query": search.query,
        "results": [
            {"title": hit.title, "url": hit.url, "content": hit.content[:LONGEST_TEXT]}
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
    from forge.tools.web.content import clean_line

    return clean_line(text, LONGEST_TEXT)


# Defines the search services: their requests, answers and refusals.

MODEL = "sonar"  # of Perplexity
_VARIABLES = "TAVILY_API_KEY, PERPLEXITY_API_KEY and SEARXNG_URL"


class SearchHit(NamedTuple):
    title: str
    url: str
    content: str = ""
    date: str = ""
    score: float | None = None


class SearchResults(NamedTuple):
    hits: list[SearchHit]
    answer: str = ""


class SearchQuery(NamedTuple):
    """A search's query and options."""

    query: str
    max_results: int
    depth: str  # basic, advanced
    time_range: str  # day, week, month, year, or empty
    include: Sequence[str]
    exclude: Sequence[str]


class Service(Protocol):
    name: str
    variable: str  # where its key is, or its address
    server: str
    path: str
    method: str

    def request(self, search: SearchQuery) -> dict[str, Any]: ...
    def read_results(self, answer: Mapping[str, Any]) -> SearchResults: ...


class Tavily:
    name = "tavily"
    variable = "TAVILY_API_KEY"
    server = "https://api.tavily.com"
    path = "/search"
    method = "POST"

    def request(self, search: SearchQuery) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "query": search.query,
            "max_results": search.max_results,
            "search_depth": search.depth,
        }
        if search.time_range:
            wanted["time_range"] = search.time_range
        if search.include:
            wanted["include_domains"] = [*search.include]
        if search.exclude:
            wanted["exclude_domains"] = [*search.exclude]
        return wanted

    def read_results(self, answer: Mapping[str, Any]) -> SearchResults:
        return SearchResults(
            [hit for one in _list(answer.get("results")) if (hit := _read_hit(one))], _text(answer.get("answer"))
        )


class Perplexity:
    name = "perplexity"
    variable = "PERPLEXITY_API_KEY"
    server = "https://api.perplexity.ai"
    path = "/chat/completions"
    method = "POST"

    def __init__(self, model: str = MODEL) -> None:
        self.model = model

    def request(self, search: SearchQuery) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": search.query}],
            "web_search_options": {"search_context_size": "high" if search.depth == "advanced" else "low"},
        }
        if search.time_range:
            wanted["search_recency_filter"] = search.time_range
        if domains := [*search.include, *(f"-{domain}" for domain in search.exclude)]:
            wanted["search_domain_filter"] = domains
        return wanted

    def read_results(self, answer: Mapping[str, Any]) -> SearchResults:
        choices = _list(answer.get("choices"))
        message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
        text = _text(message.get("content")) if isinstance(message, dict) else ""
        hits = [hit for one in _list(answer.get("search_results")) if (hit := _read_hit(one))]
        if not hits:
            hits = [SearchHit(url, url) for url in _list(answer.get("citations")) if _is_link(url)]
        return SearchResults(hits, text)


class Searxng:
    """A SearXNG server, which needs no key: its address is in the variable. Its settings must allow JSON."""

    name = "searxng"
    variable = "SEARXNG_URL"
    path = "/search"
    method = "GET"

    def __init__(self, server: str = "") -> None:
        self.server = server.rstrip("/").removesuffix("/search")

    def request(self, search: SearchQuery) -> dict[str, Any]:
        sites = " OR ".join(f"site:{domain}" for domain in search.include)
        parts = [search.query, f"({sites})" if len(search.include) > 1 else sites]
        parts += [f"-site:{domain}" for domain in search.exclude]
        wanted = {"q": " ".join(part for part in parts if part), "format": "json"}
        if search.time_range:
            wanted["time_range"] = search.time_range
        return wanted

    def read_results(self, answer: Mapping[str, Any]) -> SearchResults:
        answers = [
            _text(one.get("answer")) if isinstance(one, dict) else _text(one) for one in _list(answer.get("answers"))
        ]
        hits = [hit for one in _list(answer.get("results")) if (hit := _read_hit(one))]
        return SearchResults(hits, next(filter(None, answers), ""))


def choose_service(environment: Mapping[str, str], model: str = "") -> tuple[Service, str]:
    """Return the service and its key: the one that WEB_SEARCH_PROVIDER names, or the first one that is set.

    The order is Tavily, Perplexity, SearXNG. SearXNG has no key: an empty one is returned.
    """
    address = environment.get(Searxng.variable, "").strip()
    services: list[Service] = [Tavily(), Perplexity(model or MODEL), Searxng(address)]
    wanted = environment.get("WEB_SEARCH_PROVIDER", "").strip().lower()
    if wanted and wanted not in [one.name for one in services]:
        raise ToolError(
            f"WEB_SEARCH_PROVIDER is {wanted[:40]!r}, which is not a known provider",
            ErrorKind.CONFIG,
            "A person has to set it to tavily, perplexity or searxng, or unset it.",
        )
    for service in services:
        found = environment.get(service.variable, "").strip()
        if found and wanted in ("", service.name):
            return service, "" if service.variable == Searxng.variable else found
    if wanted:
        needed = next(one.variable for one in services if one.name == wanted)
        raise ToolError(
            f"WEB_SEARCH_PROVIDER is {wanted}, and {needed} is not set",
            ErrorKind.CONFIG,
            f"A person has to set {needed}, or another service without WEB_SEARCH_PROVIDER: {_VARIABLES}.",
        )
    raise ToolError(
        f"no search provider is configured: none of {_VARIABLES} is set",
        ErrorKind.CONFIG,
        "A person has to set one of them (SEARXNG_URL, the address of a SearXNG server, needs no key); "
        "continue without searching.",
    )


def refusal_error(service: Service, status: int, said: str, retry_after: str) -> ToolError:
    """Returns the error for a refusal. `said` is the service's own explanation, without the key."""
    more = f": {said}" if said else ""
    if status == 403 and service.name == Searxng.name:
        return ToolError(
            f"the SearXNG server of {service.variable} refused the search (HTTP 403){more}",
            ErrorKind.CONFIG,
            "A person has to add json to search.formats in its settings.yml, or to allow this client there.",
        )
    if status in (401, 403):
        return ToolError(
            f"{service.name} refused the key in {service.variable} (HTTP {status}){more}",
            ErrorKind.CONFIG,
            "A person has to check the key.",
        )
    if status == 429:
        when = f" in {retry_after} s" if retry_after.isascii() and retry_after.isdecimal() else " in a minute"
        return ToolError(
            f"{service.name} accepts no more searches for now (HTTP 429){more}",
            ErrorKind.RATE_LIMITED,
            f"Try again{when}; this says nothing about whether there are results.",
        )
    if status in (402, 432, 433):
        return ToolError(
            f"the quota of the key in {service.variable} is used up (HTTP {status}){more}",
            ErrorKind.RATE_LIMITED,
            "A person has to check the plan; this says nothing about whether there are results.",
        )
    if status >= 500:
        return ToolError(
            f"{service.name} is unavailable (HTTP {status}){more}", ErrorKind.SYSTEM, "Try again later.", passing=True
        )
    return ToolError(f"{service.name} refused the search (HTTP {status}){more}", ErrorKind.USER, "Change the search.")


def find_explanation(answer: Any) -> str:
    """Returns a service's explanation of its refusal, from any of its fields."""
    for key in ("detail", "error", "message"):
        if isinstance(answer, dict) and key in answer:
            return find_explanation(answer[key])
    return answer[:300] if isinstance(answer, str) else ""


def _read_hit(one: Any) -> SearchHit | None:
    url = one.get("url") if isinstance(one, dict) else None
    if not isinstance(url, str) or not _is_link(url):
        return None
    score = one.get("score")
    return SearchHit(
        title=_text(one.get("title")) or url,
        url=url,
        content=_text(one.get("content") or one.get("snippet")),
        date=_text(one.get("published_date") or one.get("publishedDate") or one.get("date")),
        score=float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None,
    )


def _is_link(url: Any) -> bool:
    return isinstance(url, str) and url.startswith(("http://", "https://")) and len(url) <= 2_000 and url.isprintable()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
