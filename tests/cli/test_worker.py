"""`forge worker`: what cannot work is refused when it starts, and one that cannot go on ends so that it is seen."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.conftest import start
from tests.cli.scripts import call, script

pytest.importorskip("dbos")
from forge.durable.worker import Worker


def declared(workspace: Path, *schedules: str) -> tuple[str, ...]:
    """A project with these schedules; the arguments that start its worker."""
    (workspace / "forge.yaml").write_text(f"schedules: [{', '.join(schedules)}]\n")
    return "worker", "--config", "forge.yaml", "--model", script(workspace, "hello")


GOOD = '{id: minute, cron: "* * * * *", task: look}'


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{id: bad, cron: "@every 5s", task: look}', "schedules[1]: "),
        ('{id: bad, cron: "* * * * *", timezone: Europe/Atlantis, task: look}', "Europe/Atlantis"),
        ('{id: bad, cron: "* * * * *", task: look, channel: nobody}', "nobody"),
    ],
)
def test_a_declared_schedule_that_cannot_be_planned_is_refused(
    there: Any, workspace: Path, bad: str, words: str
) -> None:
    ended = there(*declared(workspace, GOOD, bad))
    assert ended.code == 2
    assert words in ended.err


def test_one_whose_schedules_are_right_starts_and_leaves_when_told(workspace: Path) -> None:
    process = start(workspace, *declared(workspace, GOOD))
    assert process.stderr is not None
    assert b"queues default" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0
    assert b"takes no new runs" in err


def test_one_that_cannot_go_on_ends_with_an_exit_code(
    here: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(worker: Worker) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr(Worker, "_look_after_own", broken)
    ended = here(*declared(workspace))
    assert ended.code == 2
    assert "cannot continue: RuntimeError: no more threads" in ended.err


def test_it_loads_the_projects_own_tools_and_serves_its_health(workspace: Path) -> None:
    (workspace / "shop_of_worker.py").write_text(
        'from forge import tool\n\n\n@tool\ndef stock() -> str:\n    """Count."""\n    return "three"\n'
    )
    (workspace / "forge.yaml").write_text("tools: ['shop_of_worker:stock']\ndurable: {health: 0}\n")
    model = script(workspace, call("stock"), "There are three.")
    flags = ("--config", "forge.yaml", "--model", model)
    process = start(workspace, "worker", *flags)
    assert process.stderr is not None
    address = process.stderr.readline().decode().rpartition("metrics at ")[2].strip()
    with urlopen(address.replace("/metrics", "/readyz"), timeout=30) as answer:
        assert answer.status == 200
    asked = start(workspace, "run", "--durable", "--json", "How many?", *flags)
    out, err = asked.communicate(timeout=150)
    assert asked.returncode == 0, err
    assert b"There are three." in out
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=150)
    assert process.returncode == 0
