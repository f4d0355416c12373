"""Makes tool calls for the command line: reads `name=value`, assembles the project, logs events, prints results."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import click

from forge.agent.agent import Agent
from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.running.event_log import log_events
from forge.cli.running.loop_thread import run_interruptible
from forge.cli.running.tool_names import find_tool, print_note, why_left_out
from forge.cli.terminal.answer_lines import MAX_LINE, answer_lines
from forge.cli.terminal.approve import ask_on_terminal
from forge.cli.terminal.keyboard import read_all, read_some, write_all, write_soon
from forge.cli.terminal.print_result import as_line, as_text
from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.plain_values import json_type
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.permissions.questions import Approver, Decision, approve_all, nobody
from forge.project.assemble.sources import Sources
from forge.project.project import Project
from forge.tools.file_read import FileRead
from forge.workspace.paths.open import read_file

NEED_ALL = frozenset({"tool_search"})  # it searches the tools of every source


def call_once(options: Options, flags: dict[str, Any], name: str, arguments: Sequence[str]) -> int:
    """`forge tool call NAME [JSON | - | NAME=VALUE…]`."""
    at_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    project, agent = _load_project(options, flags, ask_on_terminal if at_terminal else nobody)
    if not project.sources.all:
        find_tool(name, agent.registry)  # before anything is logged
    try:
        pairs = arguments if are_pairs(arguments) else ()
    except ToolError as error:
        raise click.UsageError(f"{error.message}. {error.suggestion}") from None
    text, problem = ("{}", None) if pairs else _read_arguments(next(iter(arguments), None))
    call = ToolCall(name, text)

    async def work() -> int:
        nonlocal call, problem
        spec = find_tool(name, agent.registry).spec
        try:
            if pairs:
                call = replace(call, arguments=parse_pairs(pairs, spec, lambda path: _read_text(project, path)))
        except ToolError as error:
            problem = ToolResult.error(error.message, error.kind, error.suggestion)
        scope = replace(project.scope, message_id=uuid4().hex[:12])
        result = problem or _advise_person(name, spec, await agent.executor.execute(call, scope))
        if options.json or not sys.stdout.isatty():
            write_all(as_line(result, call.id, name))
        else:
            click.echo(as_text(result))
        return 0 if result.success else 1

    with _log_events(agent, project, flags):
        is_there = name in agent.registry.names and name not in NEED_ALL
        sources = None if is_there else project.sources.of(name)
        return run_interruptible(_run_to_end(agent, work(), sources))


def _advise_person(name: str, spec: ToolSpec, result: ToolResult) -> ToolResult:
    """Replace the hint about unreadable arguments, which is written for a model, by one for a command line."""
    failure = result.failure
    if failure is None or failure.kind is not ErrorKind.VALIDATION or "not valid JSON" not in failure.message:
        return result
    parameter = next(iter(spec.parameters.get("properties", {})), "name")
    hint = (
        f"Write {parameter}=VALUE, or one JSON object in single quotes: forge tool call {name} '{{\"{parameter}\": …}}'"
    )
    return ToolResult.error(failure.message, failure.kind, hint)


def _read_text(project: Project, path: str) -> str:
    """Returns the text of a file in the workspace that no rule hides. Raises `ToolError`."""
    from forge.project.preview_call import preview_call
    from forge.workspace.text import decode

    if not path:
        raise ToolError("the name of the file is missing", ErrorKind.VALIDATION, "Write it after the @.")
    found = preview_call(project.configuration, project.policy, FileRead(), {"path": path}, project.scope)
    if found.decision is Decision.DENY:
        ruling = found.decisive.ruling
        raise ToolError(f"reading the file is denied: {ruling.reason}", ErrorKind.PERMISSION, "Name another file.")
    return decode(read_file(project.scope, path, MAX_LINE)).text


def call_lines(options: Options, flags: dict[str, Any]) -> int:
    """`forge tool call -`. No one is asked, because the standard input carries the calls."""
    project, agent = _load_project(options, flags, nobody)

    async def work() -> int:
        await answer_lines(agent.executor, project.scope, read_some, write_soon, why_left_out)
        return 0

    with _log_events(agent, project, flags):
        return run_interruptible(_run_to_end(agent, work(), project.sources))


async def _run_to_end(agent: Agent, work: Coroutine[Any, Any, int], sources: Sources | None) -> int:
    """Waits for background work and for listeners, which would otherwise end with the process."""
    async with AsyncExitStack() as stack:
        try:
            if sources is not None:
                with refusals():
                    await stack.enter_async_context(sources.mount(agent.registry, print_note))
        except BaseException:
            work.close()
            raise
        code = await work
        await agent.executor.background.settled()
        await agent.activity.drain()
        return code


def _load_project(options: Options, flags: dict[str, Any], approve: Approver) -> tuple[Project, Agent]:
    with refusals():
        project = Project(
            replace(options.for_project(), dry_run=flags["dry_run"], record=flags["record"], replay=flags["replay"])
        )
        agent = project.agent(with_model=False, approve=approve_all if options.yes else approve)
        project.add_task(agent)
        return project, agent


def _log_events(agent: Agent, project: Project, flags: dict[str, Any]) -> AbstractContextManager[None]:
    return log_events(agent.activity, project.workspace, flags["audit"], wanted=not flags["no_audit"])


def _read_arguments(given: str | None) -> tuple[str, ToolResult | None]:
    """Returns the text of the arguments, or the reason why they cannot be read."""
    content = read_all(MAX_LINE) if given == "-" else (given or "").encode("utf-8", "surrogateescape")
    if len(content) > MAX_LINE:
        problem = f"the arguments are longer than {MAX_LINE // (1024 * 1024)} MiB"
        return "", ToolResult.error(problem, ErrorKind.VALIDATION, "Send less at once.")
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode().strip() or "{}", None
    except UnicodeDecodeError as error:
        problem = f"the arguments are not UTF-8 text: byte {error.start} cannot be decoded"
        return "", ToolResult.error(problem, ErrorKind.VALIDATION, "Send JSON, encoded as UTF-8.")


# Reads the arguments of a call that were typed as `name=value`: each value as the parameter's schema wants it.


DEEPEST_SCHEMA = 10  # references and alternatives that are followed
_PAIR = re.compile(r"([^\W\d][\w.-]*)=(.*)", re.DOTALL)
_EXAMPLE = "Write either one JSON object, or only name=value pairs: count=3 text='to be'."


def are_pairs(given: Sequence[str]) -> bool:
    """Returns whether these words are `name=value` pairs, and not JSON. Raises `ToolError` for a mixture."""
    matching = [word for word in given if _PAIR.fullmatch(word)]
    if not matching:
        if len(given) > 1:
            raise ToolError(f"{given[1][:60]!r} is no argument of the form name=value", ErrorKind.VALIDATION, _EXAMPLE)
        return False
    other = next((word for word in given if word not in matching), None)
    if other is not None:
        problem = f"{other[:60]!r} is not name=value, unlike {matching[0][:60]!r}"
        raise ToolError(problem, ErrorKind.VALIDATION, _EXAMPLE)
    return True


def parse_pairs(given: Sequence[str], spec: ToolSpec, read: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Returns the arguments by name. A list takes several pairs of one name. Raises `ToolError`.

    `read` returns the text of a file: the value of `name=@path`. `name=@@text` is the text `@text`.
    """
    pairs: dict[str, list[str]] = {}
    for word in given:
        found = _PAIR.fullmatch(word)
        assert found is not None
        pairs.setdefault(found[1], []).append(_read_value(found[1], found[2], read))
    properties = spec.parameters.get("properties", {})
    _check_names(pairs, spec, properties)
    return {name: _parse_values(name, values, properties.get(name, {}), spec) for name, values in pairs.items()}


def _read_value(name: str, value: str, read: Callable[[str], str] | None) -> str:
    if read is None or not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    try:
        return read(value[1:])
    except ToolError as error:
        hint = f"For a text that begins with @, write {name}=@{value[:60]}."
        raise ToolError(
            f"{name}={value[:200]}: {error.message}", error.kind, f"{error.suggestion} {hint}".strip()
        ) from None


def _check_names(pairs: Mapping[str, Any], spec: ToolSpec, properties: Mapping[str, Any]) -> None:
    if spec.parameters.get("additionalProperties") or "patternProperties" in spec.parameters:
        return
    known = [*properties, *spec.argument_aliases]
    for name in pairs:
        if name in known:
            continue
        hint = near(name, known, 1)
        listed = f"Known are {', '.join(properties)}." if properties else "It takes no arguments."
        advice = f"Did you mean {hint[0]!r}?" if hint else listed
        raise ToolError(f"{spec.name} has no parameter {name!r}", ErrorKind.VALIDATION, advice)


def _parse_values(name: str, values: Sequence[str], schema: Any, spec: ToolSpec) -> Any:
    types = set(_types(schema, spec.parameters, DEEPEST_SCHEMA))
    if "array" in types and not values[0].lstrip().startswith("["):
        items = set(_types(schema.get("items", {}), spec.parameters, DEEPEST_SCHEMA))
        return [_parse_value(value, items) for value in values]
    if len(values) > 1:
        raise ToolError(f"{name} is given {len(values)} times", ErrorKind.VALIDATION, f"Write {name}= once.")
    return _parse_value(values[0], types)


def _parse_value(value: str, types: set[str]) -> Any:
    """Returns the value of one of these types; the text itself if it has another: the call then says what is wrong."""
    if not types - {"string", "null"}:
        return value
    try:
        parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value
    kind = json_type(parsed)
    return parsed if kind in types or (kind == "integer" and "number" in types) else value


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yields the JSON types that a schema allows."""
    if not isinstance(schema, Mapping) or not depth:
        return
    named = schema.get("type")
    yield from [named] if isinstance(named, str) else named or ()
    if "type" not in schema:
        yield from (json_type(value) for value in schema.get("enum", ()))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for key in reference[2:].split("/"):
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        yield from _types(target, root, depth - 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for alternative in schema.get(keyword, ()):
            yield from _types(alternative, root, depth - 1)
