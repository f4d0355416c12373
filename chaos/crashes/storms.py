"""Runs storms beside each other, each in a process and with a database of its own."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from typing import Any

from benchmarks.peer_environments import NotInstalledError
from chaos.crashes.injected import Injected, inject
from chaos.crashes.killed import Plan, StormError, find_python, kill_workers
from chaos.crashes.score import Score
from chaos.crashes.systems import SYSTEMS, System
from chaos.crashes.table import Row
from chaos.postgres import fresh
from chaos.processes import open_processes


def run_storms(given: argparse.Namespace) -> Iterator[Row]:
    """Runs all storms, as many at once as there are jobs, and yields the row of each when it is over."""
    systems = [one for one in SYSTEMS if given.kills and one.module in given.systems]
    with open_processes(given.jobs) as submit:
        storms: dict[Future[Any], str] = {submit(_kill, one, given): one.name for one in systems}
        parts: dict[str, list[Injected]] = {}
        wanted: Counter[str] = Counter()
        for name, reconciles in (("Forge, with `reconcile`", True), ("Forge, without", False)):
            for points, seed in _divide(given, reconciles):
                storms[submit(_inject, points, seed, reconciles, 60 * given.minutes)] = name
                wanted[name] += 1
        for ended in as_completed(storms):
            found, name = ended.result(), storms[ended]
            if isinstance(found, Row):
                yield found
                continue
            parts.setdefault(name, []).append(found)
            if len(parts[name]) == wanted[name]:
                yield _add_up(name, parts[name])


def _divide(given: argparse.Namespace, reconciles: bool) -> list[tuple[int, int]]:
    """Returns the points and the seed of each part: one a job. Each begins with every point once."""
    points: int = given.points if reconciles else -(-given.points // 10)
    parts = min(given.jobs if reconciles else 1, points)
    return [(points // parts + (part < points % parts), given.seed * 1_000 + part) for part in range(parts)]


def _inject(points: int, seed: int, reconciles: bool, seconds: float) -> Injected:
    return asyncio.run(inject(points, seed=seed, reconciles=reconciles, seconds=seconds))


def _add_up(name: str, parts: list[Injected]) -> Row:
    total = Score()
    for part in parts:
        total = total.plus(part.score)
    return Row(name, "this version", "injected", sum(part.crashes for part in parts), total)


def _kill(system: System, given: argparse.Namespace) -> Row:
    try:
        python = find_python(system)
        with fresh(given.database) as url:
            plan = Plan(given.kills, 60 * given.minutes, seed=given.seed)
            found = kill_workers(system, python, url, plan, _say)
    except (NotInstalledError, StormError) as error:
        return Row(system.name, "", "killed", 0, Score(), str(error)[:200])
    return Row(system.name, found.version, "killed", found.kills, found.score, system.note)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
