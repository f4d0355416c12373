"""Examples of calls and what a policy should say to them, and whether it does. Nothing is called or started."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from forge.core.arguments.checks import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.policy import Decision
from forge.project.assemble.choose import configured
from forge.project.assemble.own_tools import project_tools
from forge.project.assemble.policy import project_policy
from forge.project.assemble.skills import active_skills
from forge.project.assemble.sources import Sources, mounted_tools
from forge.project.assemble.workspace import project_scope
from forge.project.config import Configuration, load_configuration
from forge.project.config.reader import Reader
from forge.project.preview_call import preview_call
from forge.project.read_yaml import read_yaml

if TYPE_CHECKING:  # where a project has some
    from forge.sources.mcp import McpServer

MOST = 10_000  # examples of one file
MOST_PROBLEMS = 20  # that are told at once
_KEYS = ("agent", "arguments", "channel", "expect", "note", "tool", "user")
_EXAMPLE = '{tool: bash, arguments: {command: "rm -rf build"}, expect: deny}'
_ANYTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}


class Asked(Protocol):
    """The flags that matter here."""

    @property
    def workspace(self) -> str | None: ...
    @property
    def config(self) -> str | None: ...
    @property
    def policy(self) -> str | None: ...
    @property
    def session(self) -> str: ...
    @property
    def dev(self) -> bool: ...


class Example(NamedTuple):
    """A call, who makes it, and what is expected of the policy."""

    place: str
    tool: str
    expect: Decision
    arguments: Mapping[str, Any] | None = None
    who: Mapping[str, str] = {}  # agent, channel, user
    note: str = ""


class Verdict(NamedTuple):
    """What the policy says to an example."""

    example: Example
    decision: Decision
    reason: str
    rule: str = ""
    layer: str = ""

    @property
    def is_expected(self) -> bool:
        return self.decision is self.example.expect

    def to_dict(self) -> dict[str, Any]:
        example = self.example
        return {
            "place": example.place,
            "tool": example.tool,
            "arguments": None if example.arguments is None else dict(example.arguments),
            **example.who,
            "expect": str(example.expect),
            "decision": str(self.decision),
            "ok": self.is_expected,
            "reason": self.reason,
            "rule": self.rule,
            "layer": self.layer,
            "note": example.note,
        }


def try_examples(asked: Asked, path: str) -> list[Verdict]:
    """One verdict an example. Raises `ToolError` or `PolicyError`: also where an example is no possible call."""
    examples = read_examples(path)
    configuration = load_configuration(asked.config)
    scope = project_scope(asked.workspace, configuration, asked.session)
    policy = project_policy(configuration, asked.policy)
    tools = _Tools(configuration, scope, dev=asked.dev)
    verdicts: list[Verdict] = []
    problems: list[ToolError] = []
    for example in examples:
        try:
            tool = tools.named(example.tool)
            arguments = {} if example.arguments is None else tool.parse(dict(example.arguments))
        except ToolError as error:
            problems.append(ToolError(f"{path}: {example.place}: {error.message}", error.kind, error.suggestion))
            continue
        foreseen = preview_call(configuration, policy, tool, arguments, _as(scope, example.who))
        ruling = foreseen.decisive.ruling
        verdicts.append(Verdict(example, ruling.decision, ruling.reason, ruling.rule, ruling.layer))
    if problems:
        raise _together(problems)
    return verdicts


def _as(scope: Scope, who: Mapping[str, str]) -> Scope:
    agent, channel, user = (who.get(key, getattr(scope, key)) for key in ("agent", "channel", "user"))
    return replace(scope, agent=agent, channel=channel, user=user)


def read_examples(path: str) -> list[Example]:
    """A list, or a list under `examples`. Raises `ToolError`, naming the place."""
    reader = _Reader(path)
    document = read_yaml(path)
    place = ""
    if isinstance(document, dict):
        document, place = reader.mapping(document, "", ("examples",)).get("examples"), "examples"
    if not isinstance(document, list) or not document:
        raise ToolError(f"{path}: it holds no examples", ErrorKind.CONFIG, f"Write a list of them, such as {_EXAMPLE}.")
    if len(document) > MOST:
        problem = f"{path}: it holds {len(document):,} examples, {MOST:,} are the most"
        raise ToolError(problem, ErrorKind.CONFIG, "Use several files.")
    return [_example(reader, one, f"{place}[{number}]") for number, one in enumerate(document)]


class _Reader(Reader):
    """Like that of a configuration, which has other examples to show."""

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        hint = near(written, [str(one) for one in known], 1) if written else []
        advice = f"Did you mean {hint[0]!r}? " if hint else ""
        return ToolError(f"{self.name}: {place}: {problem}", ErrorKind.CONFIG, f"{advice}For example: {_EXAMPLE}")


def _example(reader: Reader, value: Any, place: str) -> Example:
    said = reader.mapping(value, place, _KEYS)
    for key in ("tool", "expect"):
        if key not in said:
            raise reader.error(place, f"{key} is missing")
    expect = str(said["expect"])
    if expect not in list(Decision):
        raise reader.error(f"{place}.expect", f"expected allow, ask or deny, got {expect!r:.60}", expect, Decision)
    return Example(
        place=place,
        tool=reader.text(said["tool"], f"{place}.tool"),
        expect=Decision(expect),
        arguments=reader.mapping(said["arguments"], f"{place}.arguments") if "arguments" in said else None,
        who={key: reader.text(said[key], f"{place}.{key}") for key in ("agent", "channel", "user") if key in said},
        note=reader.text(said["note"], f"{place}.note") if "note" in said else "",
    )


class _Tools:
    """The tools of a project that can be known without starting or asking anything.

    Those of MCP servers, and of documents that are somewhere else, are stood in for: they are judged by the permissions
    that every tool of their source has, as if a person had approved them.
    """

    def __init__(self, configuration: Configuration, scope: Scope, *, dev: bool) -> None:
        sources = Sources(configuration, scope.workspace, watch=False)
        own = project_tools(
            configuration, scope.workspace, sources, lambda: active_skills(configuration, scope), dev=dev
        )
        here = copy.copy(sources)
        here.servers = {}
        here.documents = {name: one for name, one in sources.documents.items() if _is_here(one.spec)}
        here.is_part = True
        self.problems: list[str] = []
        self._registry: ToolRegistry = mounted_tools(own, here, self.problems.append)
        self._configuration = configuration
        self._absent: dict[str, Tool] = {}
        self._sources = {
            **{server.prefix: server for server in sources.servers.values()},
            **{name: None for name, one in sources.documents.items() if name not in here.documents},
        }

    def named(self, name: str) -> Tool:
        """Raises `ToolError` for a name that nothing can have."""
        found = self._registry.find(name)
        if found.spec.name in self._registry:
            return found
        prefix, separator, rest = name.partition("__")
        if separator and rest and prefix in self._sources:
            if name not in self._absent:
                stand_in = _StandIn(name, self._sources[prefix])
                self._absent[name] = configured(stand_in, self._configuration)
            return self._absent[name]
        raise ToolError(f"there is no tool {name!r:.80}", ErrorKind.NOT_FOUND, self._advice(name))

    def _advice(self, name: str) -> str:
        known = [one for tool in self._registry.values() for one in (tool.spec.name, *tool.spec.aliases)]
        hints = " or ".join(repr(hint) for hint in near(name, known))
        problems = " ".join(self.problems)
        return f"Did you mean {hints}?" if hints else problems or "`forge tool list` shows all of them."


class _StandIn(Tool):
    """A tool of a server that is not asked."""

    checked = True

    def __init__(self, name: str, server: McpServer | None) -> None:
        from forge.sources.mcp.tools import default_permissions

        self.spec = ToolSpec(
            name=name,
            description="A tool of a server that is not asked.",
            parameters=_ANYTHING,
            category=Category.ADAPTER,
            permissions=default_permissions(None, is_program=server is not None and bool(server.command)),
        )
        self._address = _address(server.url) if server is not None and server.url else ""

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        return dict(arguments) if isinstance(arguments, Mapping) else {}

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        wanted = sorted(self.spec.permissions)
        return [(one, self._address if one is Permission.NETWORK else "") for one in wanted] or [(None, "")]


def _address(url: str) -> str:
    from forge.network.url import read_url

    return read_url(url).origin


def _is_here(spec: Any) -> bool:
    return not (isinstance(spec, str) and spec.startswith(("http://", "https://")))


def _together(problems: list[ToolError]) -> ToolError:
    """All at once, so that a file is repaired once."""
    lines = list(_lines(problems))
    shown = lines[:MOST_PROBLEMS]
    more = [f"and {len(lines) - MOST_PROBLEMS:,} more"] if len(lines) > MOST_PROBLEMS else []
    return ToolError("\n".join([*shown, *more]), ErrorKind.CONFIG, "Fix the examples: nothing was tested.")


def _lines(problems: list[ToolError]) -> Iterator[str]:
    for one in problems:
        yield f"{one.message}. {one.suggestion}".rstrip()
