"""Writes what was measured of Forge and its peers as tables, and says where Forge is not first."""

from __future__ import annotations

from typing import Any

from benchmarks.peer_systems import OURS

FLOORS = {
    "call, async function": "validate_json + await",
    "call, plain function": "validate_json + call",
    "call with 20 nested objects": "validate_json + await",
    "invalid arguments to text": "pydantic's error text",
    "define a tool with 5 parameters": "pydantic model and schema",
    "loop: a turn at 10 turns": "validate_json + await + two appends",
    "loop: a turn at 100 turns": "validate_json + await + two appends",
    "loop: a turn at 1,000 turns": "validate_json + await + two appends",
    "loop: a turn at 10,000 turns": "validate_json + await + two appends",
    "100 async naps of 10 ms in a turn": "asyncio.sleep, on the clock",
    "100 plain naps of 10 ms in a turn": "100 threads, on the clock",
    "1,000 definitions, second time": "copy of the list",
}
WHOLE = {  # figures without a floor
    "import and first use, ms of CPU over bare Python": "first_use",
    "distributions installed": "packages",
    "MB installed, without compiled modules": "megabytes",
}
BEHIND = "▲"
SPEEDS = """
CPU time in multiples of the floor's; naps are time on the clock, and the last three rows have no floor. Every system
has an environment and a process of its own, and is measured there in turns with the floor. Arguments are new at every
call.

`*` not validated: a wrong value reaches the function. `~` the same text whatever is wrong. "at 430": cut after 20 s of
CPU or less, at that turn; a longer run costs more a turn. "no loop": the system has no agent. "plain only": the
system takes no async functions.
"""
BEHAVIOUR = """
Observed with each system's own settings and a scripted model; Forge has the policy `allow *`. FastMCP has no agent and
is seen through its own client. "up to the model adapter": arguments reach the system parsed. "no such mark":
a tool cannot say that a person must approve its calls; LangChain has a middleware of the agent for it. "interruption",
"confirmation", "paused": the caller can ask a person, and resume the run.
"""
REPAIR = """
Arguments that are nearly right are repaired, refused with an error that the model gets, or passed on wrong.
"""

Found = dict[str, Any]


def write_tables(found: dict[str, Found]) -> str:
    there = {name: one for name, one in found.items() if "reason" not in one}
    missing = [f"- {name} is not in the tables: {one['reason']}" for name, one in found.items() if "reason" in one]
    heads = [f"{name} {one['version']}" for name, one in there.items()]
    speeds, behind = rank_speeds(there)
    repairs, unrepaired = rank_repairs(there)
    parts = [
        SPEEDS.strip(),
        "\n".join(missing),
        draw_table(["", "floor", "floor's µs or ms", *heads], speeds),
        name_leaders(behind | unrepaired, there),
        "## Default behaviour",
        BEHAVIOUR.strip(),
        draw_table(["the model or the tool", *heads], list_words(there, "behaviour")),
        REPAIR.strip(),
        draw_table(["the model sends", *heads], repairs),
    ]
    return "\n\n".join(part for part in parts if part)


def draw_table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def rank_speeds(there: dict[str, Found]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The rows; and where Forge is not first, who is ahead, the best one first."""
    rows: list[list[str]] = []
    behind: dict[str, list[str]] = {}
    for measure in [*FLOORS, *WHOLE]:
        first, figures, cells = read_floored(there, measure) if measure in FLOORS else read_whole(there, measure)
        ours = figures.get(OURS)
        ahead = {name: figure for name, figure in figures.items() if ours is not None and figure < ours}
        if ahead:
            behind[measure] = sorted(ahead, key=lambda name: ahead[name])
            cells[OURS] += f" {BEHIND}"
        rows.append([*first, *cells.values()])
    return rows, behind


def read_floored(there: dict[str, Found], measure: str) -> tuple[list[str], dict[str, float], dict[str, str]]:
    rows = {name: one["rows"][measure] for name, one in there.items()}
    figures = {name: row["ours"] / row["floor"] for name, row in rows.items() if row["ours"]}
    cells = {name: write_cell(row, figures.get(name)) for name, row in rows.items()}
    bare = next((rows[name]["floor"] for name in [OURS, *rows] if rows.get(name, {}).get("floor")), None)
    return [measure, FLOORS[measure], f"{bare:,.1f}" if bare else ""], figures, cells


def read_whole(there: dict[str, Found], measure: str) -> tuple[list[str], dict[str, float], dict[str, str]]:
    figures = {name: float(one[WHOLE[measure]]) for name, one in there.items()}
    return [measure, "", ""], figures, {name: f"{figure:,.0f}" for name, figure in figures.items()}


def write_cell(row: Found, figure: float | None) -> str:
    if figure is None:
        return str(row["note"])
    number = f"{figure:.2f}" if figure < 10 else f"{figure:,.0f}"
    return f"{number}{row['mark']} {row['note']}".strip()


def rank_repairs(there: dict[str, Found]) -> tuple[list[list[str]], dict[str, list[str]]]:
    rows = list_words(there, "repair")
    behind: dict[str, list[str]] = {}
    for row in rows:
        cells = dict(zip(there, row[1:], strict=True))
        ahead = [name for name, cell in cells.items() if cell == "repaired"]
        if ahead and cells.get(OURS, "repaired") != "repaired":
            behind[row[0]] = ahead
            row[1 + list(there).index(OURS)] += f" {BEHIND}"
    return rows, behind


def list_words(there: dict[str, Found], part: str) -> list[list[str]]:
    names = list(next(iter(there.values()), {part: {}})[part])
    return [[name, *(one[part][name] for one in there.values())] for name in names]


def name_leaders(behind: dict[str, list[str]], there: dict[str, Found]) -> str:
    if OURS not in there or len(there) < 2:
        return "Forge was not measured beside others, so no row is marked."
    if not behind:
        return "Forge is first in every row."
    rows = "; ".join(f"{measure} ({', '.join(names)})" for measure, names in behind.items())
    return f"{BEHIND} Forge is not first in these rows, who is ahead in brackets: {rows}."
