"""Reads the JSON Schema of `forge run --output-schema FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forge.agent.output import NAME, Structured
from forge.core.errors import DefinitionError, ErrorKind, ToolError

LARGEST = 1024 * 1024  # bytes


def read_output_schema(path: str) -> dict[str, Any]:
    """Returns the schema in a file. Raises `ToolError` where it cannot be used."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise _error(path, f"the file cannot be read: {error.strerror}", "Name a file with a JSON Schema.") from None
    if len(content) > LARGEST:
        raise _error(path, f"the file is larger than {LARGEST:,} bytes", "Use a smaller schema.")
    try:
        schema = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _error(path, f"the file is not JSON: {str(error)[:200]}", "Write the schema as JSON.") from None
    if not isinstance(schema, dict) or not schema:
        advice = 'Write an object such as {"type": "object", "properties": {…}}.'
        raise _error(path, "a schema is a JSON object that is not empty", advice)
    try:
        Structured(schema)
    except DefinitionError as error:
        problem = str(error).removeprefix(f"tool {NAME!r}: ")
        raise _error(path, problem, "Fix the schema: https://json-schema.org explains it.") from None
    return schema


def _error(path: str, problem: str, suggestion: str) -> ToolError:
    return ToolError(f"reading --output-schema {path[:200]}: {problem}", ErrorKind.CONFIG, suggestion)
