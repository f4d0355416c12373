"""A result for whoever reads it: one line of JSON for programs, words and colour for people."""

from __future__ import annotations

import json
from typing import Any

import click

from forge.core.result import ToolResult


def as_line(result: ToolResult, id_: Any, name: str) -> bytes:
    """`ToolResult.to_dict()` as one line of UTF-8."""
    wire = {**result.to_dict(name=name), "id": id_}
    return json.dumps(wire, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
