"""What it costs to import Forge, to list its tools and to begin a run, in whole processes."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Measure, median_pair, process
from forge.core.messages import Message
from forge.durable.store import NewRun, Outcome, RunStore

ROUNDS = 11
STORED = 100  # runs
READ_YAML = "import click, yaml; yaml.load(open('forge.yaml'), yaml.CSafeLoader)"
STATEMENT = """
columns = [sa.Column(name, sa.Text) for name in ('id', 'status', 'prompt', 'updated')]
table = sa.Table('forge_runs', sa.MetaData(), *columns)
with sa.create_engine('sqlite:///.forge/durable.db').connect() as connection:
    connection.execute(sa.select(table).order_by(table.c.updated.desc()).limit(21)).all()
"""
FLOORS = (  # what `forge runs list` cannot do without, step by step
    ("click, and a YAML file", READ_YAML),
    ("… and SQLAlchemy", f"{READ_YAML}; import sqlalchemy as sa"),
    ("… and one statement", f"{READ_YAML}; import sqlalchemy as sa{STATEMENT}"),
)
RUN_FLOOR = (  # what `forge run` cannot do without: the settings, the loop, the checks of a tool's arguments
    "click, YAML, asyncio, pydantic's core, jsonschema-rs",
    f"{READ_YAML}; import asyncio, pydantic_core, jsonschema_rs",
)


async def measures() -> list[Measure]:
    with TemporaryDirectory() as home:
        in_project = make_project(Path(home))
        rows = [
            (
                process("-c", "pass"),
                process("-c", "import forge"),
                process("-c", "import click"),
                process("-c", "import forge; forge.tool; forge.ToolRegistry"),
                process("-m", "forge", "tool", "list", directory=Path(home)),
                in_project("-m", "forge", "run", "--model", "scripted:script.yaml", "Hi"),
                in_project("-m", "forge", "runs", "list"),
                *(in_project("-c", code) for _, code in (*FLOORS, RUN_FLOOR)),
            )
            for _ in range(ROUNDS + 1)
        ][1:]  # the first one writes bytecode
    over_bare = statistics.median(imported - bare for bare, imported, *_ in rows)
    used, listed, began, looked, *floors = (
        median_pair([(row[2], row[number]) for row in rows]) for number in range(3, 8 + len(FLOORS))
    )
    run_over_floor = median_pair([(row[-1], row[5]) for row in rows])
    over_floor = median_pair([(row[-2], row[6]) for row in rows])
    click = "python -c 'import click'"
    return [
        Measure("import forge, over bare Python", "", 0.0, over_bare, "ms", 60.0, absolute=True),
        Measure("import forge and touch its core", click, *used, "ms", 1.5),
        Measure("forge tool list", click, *listed, "ms", 2.4),
        Measure("forge run, one turn, in a coding project", click, *began, "ms", 7.0),
        Measure("forge run, over its floor", RUN_FLOOR[0], *run_over_floor, "ms", 3.0),
        # wanted were 6: the floors below take nearly all of that, without anything of ours
        Measure(f"forge runs list, of {STORED}, in a coding project", click, *looked, "ms", 7.0),
        Measure(f"forge runs list, of {STORED}, over its floor", FLOORS[-1][0], *over_floor, "ms", 1.25),
        *(
            Measure(f"floor: {name}", click, *floor, "ms", None)
            for (name, _), floor in zip((*FLOORS, RUN_FLOOR), floors, strict=True)
        ),
    ]


def make_project(home: Path) -> Callable[..., float]:
    """Makes a trusted project with stored runs. Returns what measures a process in it."""
    project = home / "project"
    project.mkdir()
    environment = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    in_project = partial(process, environment=environment, directory=project)
    in_project("-m", "forge", "init", "--template", "coding")
    in_project("-m", "forge", "trust", "--yes")
    (project / "script.yaml").write_text("- text: Hello!\n", encoding="utf-8")
    in_project("-m", "forge", "run", "--model", "scripted:script.yaml", "Hi")  # makes .forge
    with RunStore(f"sqlite:///{project}/.forge/durable.db") as store:
        store.prepare()
        for number in range(STORED):
            name = f"run-{number:03}"
            store.create(NewRun(id=name, prompt="Hi", session=name, messages=(Message("user", "Hi"),)))
            store.begin(name, 1, "worker")
            done = Message("assistant", "Done.")
            store.close_segment(
                name, 1, Outcome(status="finished", messages=(done,), spent={}, result={"text": "Done."})
            )
    return in_project
