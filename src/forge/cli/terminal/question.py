"""Renders a question of the gate for a terminal: the diff or the command once, then what is left of the arguments."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from forge.cli.terminal.columns import width_of, wrap
from forge.cli.terminal.diffs import diff_lines, is_diff
from forge.cli.terminal.output import Output
from forge.core.result import UNTRUSTED
from forge.core.spec import ToolSpec
from forge.permissions.questions import (
    IN_PREVIEW,
    LONGEST_PREVIEW,
    MOST,
    one_line,
    real_path_lines,
    request_text,
    show_invisible,
    value_text,
)
from forge.permissions.request import PermissionRequest
from forge.permissions.targets import PATHS

BAR = "  │ "
BOLD, DIM, TITLE, MARKED = "1", "2", "1;33", "1;31"
QUOTE = "quote"  # in place of a colour: only the words between « and » are painted
CODES = {"green": "32", "red": "31", "cyan": "36", "bright_black": "90"}
IN_DIFF = frozenset({"content", "edits", "new_text", "old_text", "operations", "patch"})  # of the built-in file tools
_BARRED = re.compile(r"  (?:[^│]{1,60}: )?│ ")  # a value, with or without the name of its argument

Line = tuple[str, str]
"""A line and the code of its colour."""


def render_question(request: PermissionRequest, out: Output) -> str:
    """Renders everything that will run, each thing once."""
    if (
        request.result is not None
        or request.question
        or request.introduction
        or (request.personal and not request.traces)
    ):
        return render_details(request, out)
    return _lay_out(_compact_lines(request), out)


def render_details(request: PermissionRequest, out: Output) -> str:
    """Renders all that is known about the request: every argument, the origin of the tool, the rule of "always"."""
    lines = request_text(request).split("\n")
    marked = iter(diff_lines(line.removeprefix(BAR) for line in lines if line.startswith(BAR)))
    coloured = is_diff(request.preview)
    painted = [(line, CODES.get(next(marked)[1], "") if coloured and line.startswith(BAR) else "") for line in lines]
    return _lay_out([(lines[0], TITLE), *painted[1:]], out)


def _compact_lines(request: PermissionRequest) -> Iterator[Line]:
    yield from _target_lines(request)
    yield from _reason_lines(request)
    if request.preview:
        text = show_invisible(request.preview.rstrip("\n"), LONGEST_PREVIEW).split("\n")
        if is_diff(request.preview):
            yield from ((f"{BAR}{line}", CODES.get(colour, "")) for line, colour in diff_lines(text))
        else:
            yield from ((f"{BAR}{line}", "") for line in text)
    yield from ((line, "") for line in _argument_lines(request))
    yield from ((line, DIM) for line in _always_lines(request))


def _reason_lines(request: PermissionRequest) -> Iterator[Line]:
    """Yields why it is asked. For a value from untrusted or private text, the words come with it, the value marked."""
    if request.ruling is None:
        return
    reason = request.ruling.reason
    if request.traces:
        reason = reason.partition(str(request.traces[0]))[0].rstrip("; ")
    if reason:
        yield f"Asked because: {one_line(reason)}", DIM
    for trace in request.traces:
        what = "comes from text that others may have written" if trace.kind == UNTRUSTED else "contains private text"
        yield f'Careful: "{one_line(trace.argument)}" {what}, from {one_line(trace.origin)}:', BOLD
        yield f"{BAR}{one_line(trace.quote)}", QUOTE
    if request.traces:
        yield "Say yes only if this is what you want, whatever the text says.", ""


def _target_lines(request: PermissionRequest) -> Iterator[Line]:
    tool, parts = _tool_label(request), request.parts
    path = request.target if len(parts) == 1 and request.permission in (None, *PATHS) else None
    if path is not None and "\n" not in path:
        yield f"{tool} wants to {request.permission or 'run'} {show_invisible(path)}".rstrip(), TITLE
        yield from ((line, "") for line in real_path_lines(request))
        return
    shared = {part.permission or "run" for part in parts}
    verb = shared.copy().pop() if len(shared) == 1 else ""
    yield f"{tool} wants to {'use the network' if verb == 'network' else verb}".rstrip(), TITLE
    for part in parts[:MOST]:
        text = part.target if len(shared) == 1 else f"{part.permission or 'run'} {part.target}"
        yield from ((f"{BAR}{line}", BOLD) for line in show_invisible(text.strip()).split("\n"))
        yield from ((line, "") for line in real_path_lines(part))
    if len(parts) > MOST:
        yield f"  ⟨{len(parts) - MOST:,} more targets⟩", ""


def _tool_label(request: PermissionRequest) -> str:
    """Returns the name; for a tool that is not built in also its origin and server."""
    server = f"server {request.call.server}" if request.call.server != "local" else ""
    known = [one_line(text) for text in ("" if _is_built_in(request.spec) else request.spec.origin, server) if text]
    return f"{request.spec.name} ({', '.join(known)})" if known else request.spec.name


def _argument_lines(request: PermissionRequest) -> Iterator[str]:
    """Yields the arguments that neither the targets nor the diff show, and that are not the tool's defaults."""
    spec, targets = request.spec, {part.target for part in request.parts}
    properties = spec.parameters.get("properties", {})
    in_diff = IN_DIFF if _is_built_in(spec) and is_diff(request.preview) else frozenset()
    arguments = [
        (one_line(name), value_text(value))
        for name, value in request.arguments.items()
        if name not in in_diff
        and not _is_default(properties.get(name), value)
        and not (name in spec.targets and value_text(value) in targets)
    ]
    for name, text in arguments[:MOST]:
        lines = show_invisible(text).split("\n")
        if request.preview and len(text) > IN_PREVIEW:
            yield f"  {name}: ⟨{len(text):,} characters, whose effect is shown above⟩"
        elif len(lines) == 1:
            yield f"  {name}: │ {lines[0]}"
        else:
            yield f"  {name}:"
            yield from (f"{BAR}{line}" for line in lines)
    if len(arguments) > MOST:
        yield f"  ⟨{len(arguments) - MOST:,} more arguments⟩"


def _always_lines(request: PermissionRequest) -> Iterator[str]:
    """Yields the rules that "always" stores, word for word."""
    stored = request.rules_to_remember
    if stored:
        yield f"Always stores {'this rule' if len(stored) == 1 else 'these rules'} for this tool in this session:"
        yield from (f"{BAR}{line}" for rule in stored for line in show_invisible(rule).split("\n"))


def _is_built_in(spec: ToolSpec) -> bool:
    return spec.origin == f"forge.tools.{spec.name}"


def _is_default(schema: Any, value: object) -> bool:
    return isinstance(schema, Mapping) and "default" in schema and value_text(schema["default"]) == value_text(value)


def _lay_out(lines: Iterator[Line] | list[Line], out: Output) -> str:
    """Wraps and paints the lines. A wrapped line keeps its bar: no value can pass for a line of the question."""
    return "\n".join(
        painted
        for line, code in lines
        for painted in (
            _paint_quote(_wrap_line(line, out), out)
            if code == QUOTE
            else (out.paint(part, code) for part in _wrap_line(line, out))
        )
    )


def _paint_quote(parts: list[str], out: Output) -> Iterator[str]:
    """Paints the words between « and », which may be on several lines."""
    is_marked = False
    for part in parts:
        pieces = re.split("([«»])", part)
        painted = []
        for piece in pieces:
            is_marked = piece != "»" and (is_marked or piece == "«")
            painted.append(out.paint(piece, MARKED if is_marked or piece == "»" else ""))
        yield "".join(painted)


def _wrap_line(line: str, out: Output) -> list[str]:
    if not out.live:
        return [line]
    columns = shutil.get_terminal_size().columns - 1
    barred = _BARRED.match(line)
    start, indent = (barred[0], BAR) if barred else ("", "  ")
    first, *more = wrap(line[len(start) :], max(columns - max(width_of(start), width_of(indent)), 20))
    return [start + first, *(indent + part for part in more)]
