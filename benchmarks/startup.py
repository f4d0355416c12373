"""What it costs to import Forge and to list its tools, in whole processes."""

from __future__ import annotations

import statistics

from benchmarks.timing import Measure, median_pair, process

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
    over_bare = statistics.median(imported - bare for bare, imported, *_ in rows)
    used = median_pair([(click, used) for _, _, used, click, _ in rows])
    listed = median_pair([(click, listed) for *_, click, listed in rows])
    return [
        Measure("import forge, over bare Python", "", 0.0, over_bare, "ms", 60.0, absolute=True),
        Measure("import forge and touch its core", "python -c 'import click'", *used, "ms", 1.5),
        Measure("forge tool list", "python -c 'import click'", *listed, "ms", 2.4),
    ]
