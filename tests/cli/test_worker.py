"""`forge worker`: what cannot work is refused when it starts, and one that cannot go on ends so that it is seen."""

from __future__ import annotations

import json
import re
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


@pytest.mark.parametrize("form", ["json", "text"])
def test_every_line_of_its_log_says_when_and_about_what(there: Any, workspace: Path, form: str) -> None:
    """A failed run leaves one line with its reason; a run that ends well leaves none."""
    model = script(workspace, call("file_read", path="none.txt"))  # then it has nothing more to say
    submit = ("run", "--durable", "--detach", "--json", "--model", model, "--session", "talk one", "Read it")
    failed = there(*submit).json["run"]
    process = start(workspace, "worker", "--model", model, "--log-format", form)
    assert process.stderr is not None
    lines: list[str] = []
    while not any(f"run {failed} of agent main failed" in line for line in lines):
        lines.append(process.stderr.readline().decode())
        assert lines[-1], lines
    process.send_signal(signal.SIGTERM)
    lines += process.communicate(timeout=150)[1].decode().splitlines()
    read = [read_log_line(form, line) for line in lines]
    for time, level, *_ in read:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
        assert level in ("info", "warning", "error")
    session = "talk one" if form == "json" else "talk_one"
    (line,) = [one for one in read if "failed: " in one[-1] and one[1] == "error"]
    assert line[2:4] == [failed, session]
    assert "error: " in line[-1]
    (called,) = [one for one in read if "file_read failed" in one[-1]]
    assert called[1:5] == ["warning", failed, session, "file_read"]
    assert "takes no new runs" in read[-1][-1]


def read_log_line(form: str, line: str) -> list[str]:
    """Time, level, run, session, tool and message."""
    if form == "json":
        found = json.loads(line)
        return [found[name] for name in ("time", "level", "run", "session", "tool", "message")]
    time, level, run, session, tool, message = line.split(" ", 5)
    about = [part.split("=", 1)[1].replace("-", "", part.endswith("=-")) for part in (run, session, tool)]
    return [time, level.lower(), *about, message]


def test_without_a_form_only_warnings_are_printed_for_people(there: Any, workspace: Path) -> None:
    model = script(workspace, "hello")
    run = there("run", "--durable", "--detach", "--json", "--model", model, "Hi").json["run"]
    process = start(workspace, "worker", "--model", model)
    assert process.stderr is not None
    assert b"queues default" in process.stderr.readline()
    assert there("runs", "show", run, "--follow").code == 0
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=150)[1].decode()
    assert [line for line in said.splitlines() if "takes no new runs" not in line] == []


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
