"""What it costs to import Forge and to list its tools, in whole processes."""

from __future__ import annotations

import statistics

from benchmarks.timing import Measure, process

ROUNDS = 11


async def measures() -> list[Measure]:
    rows = [
        (
            process("-c", "pass"),
            process("-c", "import forge"),
            process("-c", "import forge; forge.tool; forge.ToolRegistry"),
            process("-c", "import click"),
            process("-m", "forge", "tool", "list"),
        )
        for _ in range(ROUNDS + 1)
    ][1:]  # the first one writes bytecode
    bare, imported, used, click, listed = (statistics.median(column) for column in zip(*rows, strict=True))
    return [
        Measure("import forge, over bare Python", "", 0.0, imported - bare, "ms", 60.0, absolute=True),
        Measure("import forge and touch its core", "", 0.0, used - bare, "ms", 100.0, absolute=True),
        Measure("forge tool list", "python -c 'import click'", click, listed, "ms", 2.3),
    ]
