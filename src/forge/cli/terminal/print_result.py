"""Renders results: one line of JSON for programs, words and colour for people."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from forge.cli.terminal.diffs import colour_diff, is_diff
from forge.core.result import ToolResult

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # would steer the terminal or reorder it


def as_line(result: ToolResult, id_: Any, name: str) -> bytes:
    """Renders `ToolResult.to_dict()` as one line of UTF-8."""
    wire = {**result.to_dict(name=name), "id": id_}
    return json.dumps(wire, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def as_text(result: ToolResult) -> str:
    """Renders a result for a person at a terminal."""
    if result.failure is not None:
        failure = result.failure
        parts = [click.style(f"Error ({failure.kind}): {harmless(failure.message)}", fg="red")]
        return "\n".join([*parts, harmless(failure.suggestion)] if failure.suggestion else parts)
    if result.silent and result.data.get("delivered") is not False:  # such a message is for the person at the terminal
        return click.style("Done. The result is for the model alone; --json prints it.", dim=True)
    parts = [click.style(harmless(result.title), bold=True)] if result.title else []
    text = harmless(result.for_user or result.for_llm)
    parts.append(colour_diff(text.rstrip("\n")) if is_diff(text) else text)
    parts += [
        f"[attachment {harmless(one.name) or 'without name'}: {harmless(one.media_type)}, {len(one.data):,} bytes]"
        for one in result.attachments
    ]
    parts += [click.style(f"repaired: {harmless(note)}", dim=True) for note in result.data.get("repaired", ())]
    return "\n".join(parts)


def harmless(text: str) -> str:
    """Replaces characters that would move the cursor, change colours or reverse the text."""
    return _HARMFUL.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))
