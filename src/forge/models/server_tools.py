"""Tools that a provider runs on its own servers: what each may do, what it costs, and what its results say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.messages import SERVER_CALLS, Message, server_calls
from forge.core.plain_values import clip_bytes, sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.core.tool import Tool

PREFIX = "server_"  # of the names in rules and events: Forge has tools of its own that search and fetch
EVERYWHERE = "*"  # the target of a tool that may reach any host

_WEB = ("allowed_domains", "blocked_domains")
_KINDS: dict[str, tuple[str, Permission, tuple[str, ...]]] = {  # what it does, the permission, all settings
    "web_search": ("search the web", Permission.NETWORK, (*_WEB, "max_uses", "user_location", "search_context_size")),
    "web_fetch": ("read pages and PDF files of the web", Permission.NETWORK, (*_WEB, "max_uses", "max_content_tokens")),
    "code_execution": ("run code in a container of the provider", Permission.EXECUTE, ("container",)),
    "file_search": ("search files that were stored at the provider", Permission.NETWORK, ("vector_store_ids",)),
}
_PRICES = {  # of one call in US dollars, as published in November 2026
    "anthropic": {"web_search": 0.01, "web_fetch": 0.0, "code_execution": 0.0042},  # five minutes of a container
    "openai": {"web_search": 0.01, "file_search": 0.0025, "code_execution": 0.03},
}
_LONGEST = 2_000  # characters of a result that another model is told
_MOST_HITS = 10


class ServerTool(Tool):
    """A tool that the provider runs while the model answers, such as its web search.

    No one can be asked about its calls: Forge sees them only when the answer is there. So the rules decide once, when
    a run begins, whether the tool is offered. Its name in rules is `server_` and the kind.

    Args:
        kind: "web_search", "web_fetch" (Anthropic), "code_execution" or "file_search" (OpenAI).
        price: the price of a call in US dollars; by default the published one.
        settings: settings of the tool: `allowed_domains`, `blocked_domains`, `max_uses`, `user_location`,
            `max_content_tokens`, `search_context_size`, `container`, `vector_store_ids`. Each provider takes some.

    Example:
        >>> search = ServerTool("web_search", allowed_domains=["docs.python.org"])
        >>> agent = Agent(Scripted("Hi"), server_tools=[search], policy=rules("allow network docs.python.org"))
    """

    def __init__(self, kind: str, *, price: float | None = None, **settings: Any) -> None:
        if kind not in _KINDS:
            raise DefinitionError(
                f"ServerTool({kind!r:.60}): there is none of this kind; there are {', '.join(_KINDS)}"
            )
        does, permission, known = _KINDS[kind]
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise DefinitionError(f"ServerTool({kind!r}): no setting {unknown[0]!r:.60}; there are {', '.join(known)}")
        for name in ("allowed_domains", "blocked_domains", "vector_store_ids"):
            given = settings.get(name)
            if given is not None and (isinstance(given, str) or not all(isinstance(one, str) for one in given)):
                raise DefinitionError(f"ServerTool({kind!r}, {name}={given!r:.60}): write a list of texts")
        self.kind, self.price = kind, price
        self.settings = {name: value for name, value in settings.items() if value is not None}
        self.spec = ToolSpec(
            name=f"{PREFIX}{kind}",
            description=f"Let the provider {does} while it answers.",
            parameters={"type": "object", "additionalProperties": True, "properties": {}},
            permissions=frozenset({permission}),
            trust="untrusted",
            idempotent=True,
        )

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return [*self.settings.get("allowed_domains", ())] or [EVERYWHERE]

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Runs when the rules allow to offer it. Raises `ToolError` if the project's egress does not."""
        if self.kind.startswith("web_"):
            _check_egress(self.settings.get("allowed_domains", ()))
        return ToolResult.text(f"offered: the model may {_KINDS[self.kind][0]}, at the provider")

    def price_at(self, provider: str) -> float | None:
        """Returns the price of a call at a provider; None if it is not known."""
        family = "openai" if provider.startswith(("openai", "azure")) else provider
        return self.price if self.price is not None else _PRICES.get(family, {}).get(self.kind)


def read_server_tools(given: Mapping[str, Any]) -> list[ServerTool]:
    """Returns the tools of a configuration: kinds, each with its settings. Raises `DefinitionError`."""
    tools = []
    for kind, settings in given.items():
        if settings is not None and not isinstance(settings, Mapping):
            raise DefinitionError(f"agent.server_tools.{kind}: write its settings, or {{}}, not {settings!r:.60}")
        tools.append(ServerTool(str(kind), **(settings or {})))
    return tools


def _check_egress(domains: Sequence[str]) -> None:
    from forge.network.egress import Egress  # the network is loaded by the first request

    egress = Egress.current()
    if egress.mode == "open":
        return
    listed = egress.domains if egress.mode == "allowlist" else ()
    covered = all(one in listed and f"*.{one}" in listed for one in domains)  # a provider includes subdomains
    if not domains or not covered:
        hint = "Give it allowed_domains, and list each of them, and `*.` of each, in egress.domains."
        raise ToolError("the egress rules do not allow a provider to reach any host", ErrorKind.PERMISSION, hint)


# What a model's API takes.


def explain_missing(label: str, takes: Mapping[str, Sequence[str]], tool: ServerTool) -> str:
    """Returns why an API does not take a tool; "" if it does. `takes`: the settings of each kind."""
    if tool.kind not in takes:
        return f"{label} has no server tool {tool.kind!r}" + (f"; it has {', '.join(takes)}" if takes else "")
    unknown = [name for name in tool.settings if name not in takes[tool.kind]]
    return f"{label} has no setting {unknown[0]!r} for {tool.kind}" if unknown else ""


def spell_for_anthropic(request: ModelRequest, label: str) -> list[dict[str, Any]]:
    """Returns the definitions for the Messages API. Raises `ProviderError` for a name that is taken."""
    versions = {"web_search": "20250305", "web_fetch": "20250910", "code_execution": "20250825"}
    for tool in request.server_tools:
        if any(spec.name == tool.kind for spec in request.tools):
            message = f"asking {label}: a tool and the server tool have the same name, {tool.kind!r}"
            raise ProviderError(message, ErrorKind.CONFIG, "Leave one of them out of the agent's tools.")
    kinds = [(tool.kind, tool.settings) for tool in request.server_tools]
    return [{"type": f"{kind}_{versions[kind]}", "name": kind, **settings} for kind, settings in kinds]


def spell_for_openai(request: ModelRequest) -> list[dict[str, Any]]:
    """Returns the definitions for the Responses API."""
    found = []
    for tool in request.server_tools:
        settings = dict(tool.settings)
        if tool.kind == "code_execution":
            settings = {"container": settings.get("container", {"type": "auto"})}
        if domains := settings.pop("allowed_domains", None):
            settings["filters"] = {"allowed_domains": domains}
        if place := settings.get("user_location"):
            settings["user_location"] = {"type": "approximate", **place}
        found.append({"type": {"code_execution": "code_interpreter"}.get(tool.kind, tool.kind), **settings})
    return found


OPENAI_RESULTS = {  # what a request asks to include, so that results can be read and sent back
    "web_search": "web_search_call.action.sources",
    "file_search": "file_search_call.results",
    "code_execution": "code_interpreter_call.outputs",
}


# Reads the calls in an answer, each with its result in words.


def read_anthropic_calls(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the calls in the blocks of an answer."""
    found: dict[Any, dict[str, Any]] = {}
    for block in blocks:
        kind = str(block.get("type"))
        if kind == "server_tool_use" and (name := _kind_of(str(block.get("name")))):
            found[block.get("id")] = _entry(name, block.get("id"), block.get("input"))
        elif kind.endswith("_tool_result") and (entry := found.get(block.get("tool_use_id"))) is not None:
            content = block.get("content")
            failed = isinstance(content, Mapping) and str(content.get("type")).endswith("_error")
            entry |= {"text": _shorten("\n".join(_read_result(content)))}
            entry |= {"failed": True} if failed else {}
            entry |= {"unread": True} if "encrypted_content" in json.dumps(content, default=str) else {}
    return [entry for entry in found.values() if "text" in entry]


def read_openai_calls(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the calls in the items of an answer."""
    found = []
    for item in items:
        kind = str(item.get("type")).removesuffix("_call")
        name = _kind_of(kind)
        if not name or not str(item.get("type")).endswith("_call"):
            continue
        action = item.get("action") if isinstance(item.get("action"), Mapping) else {}
        given = action or {key: item[key] for key in ("queries", "code") if item.get(key)}
        sources = [_line(one) for one in _list(given.get("sources") if kind == "web_search" else item.get("results"))]
        lines = [*sources, *(_line(one) for one in _list(item.get("outputs")))]
        entry = _entry(name, item.get("id"), {key: value for key, value in given.items() if key != "sources"})
        entry |= {"text": _shorten("\n".join(lines)), "unread": True}  # the model reads more than the answer shows
        entry |= {"failed": True} if item.get("status") == "failed" else {}
        entry |= {"free": True} if kind == "web_search" and given.get("type") not in (None, "search") else {}
        found.append(entry)
    return found


def _entry(kind: str, id: Any, given: Any) -> dict[str, Any]:
    return {"name": f"{PREFIX}{kind}", "id": str(id), "input": dict(given) if isinstance(given, Mapping) else {}}


def _kind_of(name: str) -> str:
    """Returns the kind of a tool by the API's name; "" for others, such as a search for tools."""
    if name.endswith("code_execution") or name == "code_interpreter":
        return "code_execution"
    return name if name in _KINDS else ""


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _read_result(content: Any) -> Iterator[str]:
    if isinstance(content, list):
        yield from (_line(one) for one in _list(content)[:_MOST_HITS])
        return
    if not isinstance(content, Mapping):
        return
    if code := content.get("error_code"):
        yield f"failed: {code}"
    for key in ("url", "stdout", "stderr", "title"):
        if isinstance(text := content.get(key), str) and text:
            yield text
    document = content.get("content")
    if isinstance(document, Mapping):
        source = document.get("source")
        yield str(document.get("title") or "")
        if isinstance(source, Mapping) and source.get("type") == "text":
            yield str(source.get("data"))


def _line(one: Mapping[str, Any]) -> str:
    keys = ("title", "url", "filename", "text", "logs")
    return " - ".join(str(one[key]) for key in keys if isinstance(one.get(key), str) and one[key])


def _shorten(text: str) -> str:
    return clip_bytes(sendable(text.strip()), _LONGEST) or "(nothing that can be shown)"


def note_calls(extra: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what a message carries, with the calls that the provider made."""
    return {**extra, SERVER_CALLS: calls} if calls else extra


def text_for_others(message: Message) -> str:
    """Returns an answer as another provider reads it: with the calls that its own provider made, in words."""
    calls = server_calls(message)
    if not calls:
        return message.text
    notes = [
        f"[{one['name']}({json.dumps(one.get('input', {}), ensure_ascii=False)[:500]}) returned, from others:\n"
        f"{one.get('text', '')}]"
        for one in calls
    ]
    return sendable("\n\n".join([*notes, message.text]).strip())
