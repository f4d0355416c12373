"""`pytest -p tests.forked_workers --forks 4`: collects the tests once, then forks processes that run them.

Each process of pytest-xdist collects all tests by itself: with 18,000 tests on two cores that takes a minute. Even for
342 tests of four files it is slower: on two busy cores, with two processes and in turns, forks took 43, 58 and 85 s,
xdist 72 and twice more than 100 s. xdist is used where a fork is not safe (macOS), and where somebody runs a few tests.

A few tests that failed are run again at the end, alone: on a busy machine a program may be late. The summary lists them
as rerun. A test that fails twice has failed.
"""

from __future__ import annotations

import atexit
import copy
import os
import re
import signal
import struct
import tempfile
import uuid
from collections.abc import Container, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests import programs

LARGEST = 30
"""The tests that a process takes at once, at most. They are of one module, whose fixtures are then made once."""

MOST_AGAIN = 12
"""Where more tests than this failed, it is not the machine: none of them is run again."""

Chunk = tuple[int, int]
_WARNING = re.compile(r"^[ |]*\w*Warning: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="Run the tests in N forks of this process.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.forks or option.collectonly or session.testsfailed or not session.items:
        return None
    _Workers(session, option.forks).run()
    return True


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None  # type: ignore[comparison-overlap]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the tests that were run again, each with what went wrong at first."""
    reports = terminalreporter.stats.get("rerun", [])
    if not reports:
        return
    terminalreporter.write_sep("=", "failed at first and run again", cyan=True)
    for report in reports:
        words = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))
        line = words.strip().partition("\n")[0]
        terminalreporter.write_line(f"RERUN {report.nodeid} - {line[:300]}")
        if line.startswith("ExceptionGroup"):  # of warnings: the line does not say which
            found = [one.strip(" |") for one in str(report.longrepr).splitlines() if _WARNING.search(one)]
            for cause in dict.fromkeys(found):
                terminalreporter.write_line(f"      {cause[:300]}")


def cut(modules: list[Any], workers: int, whole: Container[Any] = ()) -> Iterator[Chunk]:
    """Small ones at the end, so that all processes end at the same time. The modules of `whole` are not divided."""
    start = 0
    while start < len(modules):
        most = max(1, min(LARGEST, (len(modules) - start) // (8 * workers)))
        if modules[start] in whole:
            most = len(modules)
        end = start + 1
        while end < len(modules) and end - start < most and modules[end] is modules[start]:
            end += 1
        yield start, end
        start = end


def find_whole(items: list[pytest.Item]) -> set[Any]:
    """Returns the modules that share a fixture of their own among tests: it is expensive, and made in one process."""
    found = set()
    for item in items:
        # private: which fixtures a test uses
        known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        if any(one.scope == "module" for definitions in known.values() for one in definitions):
            found.add(item.getparent(pytest.Module))
    return found


class _Workers:
    """The processes, and what each of them has taken and not reported yet."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self.session, self.number = session, number
        os.environ |= {"PYTEST_XDIST_TESTRUNUID": uuid.uuid4().hex, "PYTEST_XDIST_WORKER_COUNT": str(number)}
        self.chunks, write = os.pipe()  # whoever reads next takes the next chunk
        modules, whole = [item.getparent(pytest.Module) for item in session.items], find_whole(session.items)
        # whole modules first: the last chunks must be short
        chunks = sorted(cut(modules, number, whole), key=lambda chunk: modules[chunk[0]] not in whole)
        for start, end in chunks[: 60_000 // 8]:  # what a pipe holds
            os.write(write, struct.pack("II", start, end))
        os.close(write)
        self.first = [number for start, end in chunks[60_000 // 8 :] for number in range(start, end)]
        self.left: dict[Connection, list[int]] = {}
        self.names: dict[Connection, str] = {}
        self.pids: dict[Connection, int] = {}
        self.failed: dict[int, list[pytest.TestReport]] = {}
        self.is_last_try = False

    def run(self) -> None:
        if programs.is_warm():
            programs.start_server()  # one for all
        try:
            for number in range(self.number):
                self._fork(f"gw{number}", self.first[number :: self.number])
            self._listen_to_all()
            self._run_failed_again()
        finally:
            for pid in self.pids.values():
                os.kill(pid, signal.SIGKILL)

    def _listen_to_all(self) -> None:
        while self.left:
            for one in wait(list(self.left)):
                assert isinstance(one, Connection)
                self._listen(one)

    def _run_failed_again(self) -> None:
        if not self.failed:
            return
        if len(self.failed) <= MOST_AGAIN:
            again, self.failed, self.is_last_try = list(self.failed), {}, True
            self._fork("again", again)
            self._listen_to_all()
        else:
            for reports in self.failed.values():
                self._log(reports)

    def _note_failure(self, number: int, reports: list[pytest.TestReport]) -> None:
        if self.is_last_try or len(self.failed) > MOST_AGAIN:
            self._log(reports)
            return
        self.failed[number] = copy.deepcopy(reports)
        for report in reports:
            if report.failed:
                report.outcome = "rerun"  # type: ignore[assignment]  # the word of pytest-rerunfailures
        self._log(reports)

    def _fork(self, name: str, left: list[int]) -> None:
        reading, writing = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            os.environ["PYTEST_XDIST_WORKER"] = name
            _Worker(self.session, self.chunks, writing).end(left)
        writing.close()
        self.left[reading], self.names[reading], self.pids[reading] = list(left), name, pid

    def _listen(self, one: Connection) -> None:
        try:
            what, told = one.recv()
        except (EOFError, OSError):
            self._replace(one)
            return
        if what == "takes":
            self.left[one].extend(range(*told))
        elif what == "ends":
            self._forget(one)
        else:
            number, serialized = told
            self.left[one].remove(number)
            reports = [self._read(one, report) for report in serialized]
            if any(report.failed for report in reports):
                self._note_failure(number, reports)
            else:
                self._log(reports)
            item = self.session.items[number]
            self.session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _read(self, one: Connection, serialized: dict[str, Any]) -> pytest.TestReport:
        config = self.session.config
        report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=serialized)
        # as xdist does: the terminal then prints no names of files
        node = SimpleNamespace(gateway=SimpleNamespace(id=self.names[one]), _workerinfocache="")
        report.node = node  # type: ignore[attr-defined]
        return report

    def _log(self, reports: list[pytest.TestReport]) -> None:
        for report in reports:
            self.session.config.hook.pytest_runtest_logreport(report=report)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def _replace(self, one: Connection) -> None:
        """The process died: the test that it was at has failed, another process goes on with the others."""
        name, left = self.names[one], self.left[one]
        status = self._forget(one)
        if left:
            number = left.pop(0)
            item = self.session.items[number]
            words = f"the process of this test died ({status}): {item.nodeid}"
            self._note_failure(number, [pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")])
        self._fork(name, left)

    def _forget(self, one: Connection) -> int:
        del self.left[one]
        one.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pids.pop(one), 0)[1])


class _Worker:
    """One of the processes."""

    def __init__(self, session: pytest.Session, chunks: int, reports: Connection) -> None:
        self.session, self.chunks, self.reports = session, chunks, reports
        self.heard: list[dict[str, Any]] = []
        config = session.config
        atexit._clear()  # what is there to be done at the end is the parent's
        _capture_apart(config)
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        if report.when == "call" or not report.passed or config.option.durations is not None:
            self.heard.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def end(self, left: list[int]) -> NoReturn:
        code = 1
        try:
            self._run(left)
            atexit._run_exitfuncs()
            self.reports.send(("ends", None))
            code = 0
        finally:
            os._exit(code)

    def _run(self, left: list[int]) -> None:
        items = self.session.items
        while left or self._take(left):
            number = left.pop(0)
            if not left:
                self._take(left)  # fixtures that the next test needs too are kept
            following = items[left[0]] if left else None
            items[number].config.hook.pytest_runtest_protocol(item=items[number], nextitem=following)
            self.reports.send(("ran", (number, self.heard)))
            self.heard = []

    def _take(self, left: list[int]) -> bool:
        taken = os.read(self.chunks, 8)
        if taken:
            chunk = struct.unpack("II", taken)
            self.reports.send(("takes", chunk))
            left.extend(range(*chunk))
        return bool(taken)


def _capture_apart(config: pytest.Config) -> None:
    """Forks share the files into which pytest captures what is written: each gets its own, under the same number."""
    # private; the file objects stay, for whoever imported sys.stderr
    capture: Any = getattr(config.pluginmanager.getplugin("capturemanager"), "_global_capturing", None)
    for one in (getattr(capture, "out", None), getattr(capture, "err", None)):
        if one is not None and hasattr(one, "targetfd"):
            with tempfile.TemporaryFile() as fresh:
                os.dup2(fresh.fileno(), one.tmpfile.fileno(), inheritable=False)
                if one._state == "started":
                    os.dup2(fresh.fileno(), one.targetfd)
