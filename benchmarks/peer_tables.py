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
FIRST_USE = {"import and first use, ms of CPU over bare Python": "first_use"}  # without a floor
SIZES = {
    "distributions installed": "packages",
    "MB installed, without compiled modules": "megabytes",
}
BEST = {  # of the rows about agents with tools of their own, where a cell is plainly better than the others
    "a file to write, nobody there": "kept in the run, not on the disk",
    "a command prints an API key of the environment": "model does not get it",
    "a command writes outside the directory": "file not changed",
    "an edit with other indentation": "applied right",
    "`cd` in one command: where the next one runs": "in the new directory",
    "a picture is read": "model sees it",
    "`AGENTS.md` in the directory": "model gets it",
    "the program ends: its conversation": "stored",
}
BEHIND = "▲"
SPEEDS = """
CPU time in multiples of the floor's; naps are time on the clock, and the last row has no floor. Every system has an
environment and a process of its own, and is measured there in turns with the floor. Arguments are new at every call.
The Claude Agent SDK is not measured: its loop is a program of its own.

`*` not validated: a wrong value reaches the function. `~` the same text whatever is wrong. "at 430": cut after 20 s of
CPU or less, at that turn; a longer run costs more a turn. "no loop": the system has no agent. "plain only": the
system takes no async functions.
"""
BEHAVIOUR = """
Observed with each system's own settings and a scripted model; Forge has the policy `allow *`. FastMCP has no agent and
is seen through its own client. pydantic-ai-harness is pydantic-ai with the capability `Coder`. The Claude Agent SDK
runs the program that it brings, against a server on this machine that speaks Anthropic's API; the tool is in
`allowed_tools`. "up to the model adapter": arguments reach the system parsed. "no such mark": a tool cannot say that a
person must approve its calls; LangChain has a middleware of the agent for it. "interruption", "interrupt",
"confirmation", "paused": the caller can ask a person, and resume the run.
"""
WORK = """
Agents that bring tools of their own, in a directory: Forge's is the project of `forge init --template coding`,
pydantic-ai's `Coder` in a `LocalWorkspace`, OpenAI's a `SandboxAgent` with the local sandbox, Deep Agents' the one of
`create_deep_agent`, Claude's the one of `ClaudeSDKClient`. In the first two rows nobody is there, and nothing is
configured. In the others a person allows every call; Deep Agents then has its `LocalShellBackend`. Forge reads
`AGENTS.md` after `forge trust`, and stores conversations of `forge run`, or with `store=`.
"""
REPAIR = """
Arguments that are nearly right are repaired, refused with an error that the model gets, or passed on wrong.
"""

Found = dict[str, Any]


def write_speeds(found: dict[str, Found]) -> str:
    there, heads, missing = sort_found(found)
    rows, behind = rank_speeds(there)
    parts = [
        SPEEDS.strip(),
        missing,
        draw_table(["", "floor", "floor's µs or ms", *heads.values()], rows),
        name_leaders(behind, there),
    ]
    return "\n\n".join(part for part in parts if part)


def write_behaviour(found: dict[str, Found]) -> str:
    there, heads, missing = sort_found(found)
    working = {name: one for name, one in there.items() if one["work"]}
    repairs, unrepaired = rank_words(there, "repair", dict.fromkeys(list_rows(there, "repair"), "repaired"))
    works, behind = rank_words(working, "work", BEST)
    sizes, larger = rank_sizes(there)
    parts = [
        missing,
        BEHAVIOUR.strip(),
        draw_table(["the model or the tool", *heads.values()], list_words(there, "behaviour")),
        REPAIR.strip(),
        draw_table(["the model sends", *heads.values()], repairs),
        WORK.strip() if works else "",
        draw_table(["the agent's own tools", *(heads[name] for name in working)], works) if works else "",
        "What is installed:",
        draw_table(["installed", *heads.values()], sizes),
        name_leaders(unrepaired | behind | larger, there),
    ]
    return "\n\n".join(part for part in parts if part)


def sort_found(found: dict[str, Found]) -> tuple[dict[str, Found], dict[str, str], str]:
    """The systems that are there, the heads of their columns, and a list of those that are not."""
    there = {name: one for name, one in found.items() if "reason" not in one}
    missing = [f"- {name} is not in the tables: {one['reason']}" for name, one in found.items() if "reason" in one]
    return there, {name: f"{name} {one['version']}" for name, one in there.items()}, "\n".join(missing)


def draw_table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def rank_speeds(there: dict[str, Found]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The rows; and where Forge is not first, who is ahead, the best one first."""
    rows: list[list[str]] = []
    behind: dict[str, list[str]] = {}
    for measure in [*FLOORS, *FIRST_USE]:
        floored = measure in FLOORS
        first, figures, cells = (
            read_floored(there, measure) if floored else ([measure, "", ""], *read_whole(there, FIRST_USE[measure]))
        )
        mark_figures(measure, figures, cells, behind)
        rows.append([*first, *cells.values()])
    return rows, behind


def rank_sizes(there: dict[str, Found]) -> tuple[list[list[str]], dict[str, list[str]]]:
    rows: list[list[str]] = []
    behind: dict[str, list[str]] = {}
    for measure, key in SIZES.items():
        figures, cells = read_whole(there, key)
        mark_figures(measure, figures, cells, behind)
        rows.append([measure, *cells.values()])
    return rows, behind


def mark_figures(measure: str, figures: dict[str, float], cells: dict[str, str], behind: dict[str, list[str]]) -> None:
    ours = figures.get(OURS)
    ahead = {name: figure for name, figure in figures.items() if ours is not None and figure < ours}
    if ahead:
        behind[measure] = sorted(ahead, key=lambda name: ahead[name])
        cells[OURS] += f" {BEHIND}"


def read_floored(there: dict[str, Found], measure: str) -> tuple[list[str], dict[str, float], dict[str, str]]:
    rows = {name: one["rows"][measure] for name, one in there.items()}
    figures = {name: row["ours"] / row["floor"] for name, row in rows.items() if row["ours"]}
    cells = {name: write_cell(row, figures.get(name)) for name, row in rows.items()}
    bare = next((rows[name]["floor"] for name in [OURS, *rows] if rows.get(name, {}).get("floor")), None)
    return [measure, FLOORS[measure], f"{bare:,.1f}" if bare else ""], figures, cells


def read_whole(there: dict[str, Found], key: str) -> tuple[dict[str, float], dict[str, str]]:
    figures = {name: float(one[key]) for name, one in there.items()}
    return figures, {name: f"{figure:,.0f}" for name, figure in figures.items()}


def write_cell(row: Found, figure: float | None) -> str:
    if figure is None:
        return str(row["note"])
    number = f"{figure:.2f}" if figure < 10 else f"{figure:,.0f}"
    return f"{number}{row['mark']} {row['note']}".strip()


def rank_words(
    there: dict[str, Found], part: str, best: dict[str, str]
) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The rows; and where Forge has not the best cell, who has."""
    rows = list_words(there, part)
    behind: dict[str, list[str]] = {}
    for row in rows:
        cells = dict(zip(there, row[1:], strict=True))
        ahead = [name for name, cell in cells.items() if cell == best.get(row[0])]
        if ahead and OURS in there and OURS not in ahead:
            behind[row[0]] = ahead
            row[1 + list(there).index(OURS)] += f" {BEHIND}"
    return rows, behind


def list_words(there: dict[str, Found], part: str) -> list[list[str]]:
    return [[row, *(one[part][row] for one in there.values())] for row in list_rows(there, part)]


def list_rows(there: dict[str, Found], part: str) -> list[str]:
    return list(next(iter(there.values()), {part: {}})[part])


def name_leaders(behind: dict[str, list[str]], there: dict[str, Found]) -> str:
    if OURS not in there or len(there) < 2:
        return "Forge was not measured beside others, so no row is marked."
    if not behind:
        return "Forge is first in every row."
    rows = "; ".join(f"{measure} ({', '.join(names)})" for measure, names in behind.items())
    return f"{BEHIND} Forge is not first in these rows, who is ahead in brackets: {rows}."
