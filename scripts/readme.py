"""Writes the table of built-in tools into the README (`make readme`); with `--check` it only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from forge import ToolRegistry
from forge.core.spec import Category
from forge.sources.mcp.call import McpCall
from forge.sources.openapi.call import OpenapiCall
from forge.tools import built_ins

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- tools: written by `make readme` -->", "<!-- end of tools -->"


def table() -> str:
    registry = ToolRegistry()
    registry.add(*(tool for tool in built_ins(registry) if tool.spec.category is not Category.DEV))
    registry.add(McpCall(), OpenapiCall())
    rows = ["| tool | permissions | what it does |", "|---|---|---|"]
    for name in sorted(registry):
        spec = registry[name].spec
        optional = [f"{permission}?" for permission in sorted(spec.optional_permissions)]
        permissions = ", ".join([*sorted(spec.permissions), *optional]) or "none"
        rows.append(f"| `{name}` | {permissions} | {' '.join(spec.description.split())} |")
    return "\n".join(rows)


def current(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    text = README.read_text(encoding="utf-8")
    new = current(text)
    if "--check" in sys.argv:
        return 0 if new == text else 1
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
