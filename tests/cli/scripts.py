"""Scripts for the scripted model, written where a test works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def script(folder: Path, *turns: Any, name: str = "script.json") -> str:
    """A model of these turns: texts, or mappings as a script file has them."""
    (folder / name).write_text(json.dumps(turns))
    return f"scripted:{folder / name}"


def call(tool: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    """A turn that makes one call."""
    return {"call": tool, "arguments": arguments, **({"text": text} if text else {})}
