"""Prints the table: `python -m benchmarks [--json] [calls|definitions|loop|reading …]`."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from importlib import import_module

from benchmarks.timing import Measure

PARTS = (
    *("calls", "labels", "definitions", "parallel", "loop", "context", "models", "tokens", "startup"),
    *(
        "reading",
        "search",
        "tool_search",
        "prompt_cache",
        "grep",
        "editing",
        "programs",
        "sandboxed",
        "program_network",
        "web",
        "pages",
    ),
    *(
        "adapters_serve",
        "serve_start",
        "adapters_scripts",
        "adapters_openapi",
        "scripts",
        "memory",
        "schedules",
        "durable",
        "console",
    ),
)


def main() -> int:
    wanted = [argument for argument in sys.argv[1:] if argument != "--json"] or PARTS
    unknown = set(wanted) - set(PARTS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    found = [measure for part in wanted for measure in asyncio.run(import_module(f"benchmarks.{part}").measures())]
    if "--json" in sys.argv:
        print(json.dumps([{**asdict(one), "ratio": one.ratio, "holds": one.holds} for one in found]))
    else:
        print("| measure | floor | floor's | ours | ratio | must | |\n|---|---|---|---|---|---|---|")
        for one in found:
            print(row(one))
    return 0 if all(one.holds for one in found) else 1


def row(one: Measure) -> str:
    if one.must is None:
        return f"| {one.name} | | | {one.ours:.1f} {one.unit} | | | |"
    verdict = "ok" if one.holds else "MISSED"
    if one.absolute:
        return f"| {one.name} | | | {one.ours:.1f} {one.unit} | | ≤ {one.must:g} {one.unit} | {verdict} |"
    return (
        f"| {one.name} | {one.floor_name} | {one.floor:.1f} {one.unit} | {one.ours:.1f} {one.unit} "
        f"| {one.ratio:.2f} | ≤ {one.must:g} | {verdict} |"
    )


if __name__ == "__main__":
    sys.exit(main())
