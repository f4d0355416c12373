"""A worker on a machine of its own loses its network in the middle of a run: others go on, and it comes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge.durable.store.heartbeats import list_workers
from tests.durable import conftest
from tests.durable._proxy import proxied
from tests.durable.fleet import fleet_of, until

QUICK = {"every": 0.5, "silent": 5.0}
WHERE, THERE = "10.231.77.1", "10.231.77.2"  # this machine, and the one in the namespace


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=150)


@contextmanager
def machine() -> Iterator[tuple[str, str]]:
    """A network namespace with one cable to this one; its name, and that of the cable's end here."""
    name = f"forge-{os.getpid()}"
    near, far = f"fg{os.getpid()}a", f"fg{os.getpid()}b"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("address", "add", f"{WHERE}/30", "dev", near)
        _ip("link", "set", near, "up")
        for command in (["address", "add", f"{THERE}/30", "dev", far], ["link", "set", far, "up"]):
            _ip("-n", name, *command)
        _ip("-n", name, "link", "set", "lo", "up")
        yield name, near
    finally:
        for command in (["link", "delete", near], ["netns", "delete", name]):
            subprocess.run(["ip", *command], check=False, capture_output=True, timeout=150)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, str]]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        _skip("needs root and the program ip")
    try:
        with machine():
            pass
    except (OSError, subprocess.SubprocessError):
        _skip("needs a machine that makes network namespaces")
    with machine() as made:
        yield made


def _skip(why: str) -> None:
    words = f"CUTTING A WORKER OFF IS NOT TESTED: it {why}"
    conftest._skipped.append(words)
    pytest.skip(words)


@pytest.mark.slow
def test_a_worker_that_is_cut_off_runs_nothing_twice_and_comes_back(
    postgres: str, tmp_path: Path, elsewhere: tuple[str, str]
) -> None:
    namespace, cable = elsewhere
    with proxied(postgres, WHERE) as proxy, fleet_of(postgres, tmp_path) as fleet:
        fleet.database = proxy.url
        # its own pids too, so that nobody here sees that it lives
        cut_off = fleet.worker("ip", "netns", "exec", namespace, "unshare", "--pid", "--fork", "--kill-child", **QUICK)
        names = [fleet.submit(f"r{number}", tool="note", calls=5, seconds=0.5) for number in range(3)]
        until(lambda: all(len(fleet.begun(name)) >= 2 for name in names), "all runs to be under way")
        _ip("link", "set", cable, "down")
        started = time.monotonic()
        fleet.database = postgres
        other = fleet.worker(**QUICK)
        runs = fleet.over(*names)
        assert time.monotonic() - started < 30 + 5 * 0.5
        for run in runs:
            assert run.status == "finished"
            assert run.worker == other.id
            ran = Counter(number for number, _ in fleet.begun(run.id))
            assert max(ran.values()) == 1
            assert run.result is not None
            assert run.result["text"] in ("5 calls, 0 unknown", "5 calls, 1 unknown")  # the one that was under way
        before = len(fleet.lines())
        _ip("link", "set", cable, "up")
        until(lambda: len(_here(fleet.store)) == 2, "the one that was cut off to come back")
        assert cut_off.id not in _here(fleet.store)
        assert len(fleet.lines()) == before  # it did nothing of what was taken over
        other.signal(signal.SIGTERM)
        assert other.last_word() == "drained"
        fleet.submit("new", calls=2)
        (new,) = fleet.over("new")
        assert new.status == "finished"
        assert new.worker != other.id


def _here(store: object) -> list[str]:
    return [one.id for one in list_workers(store.database) if one.state != "gone"]  # type: ignore[attr-defined]
