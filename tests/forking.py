"""Runs the tests in several processes that share one collection: `python -m pytest -n0 -p tests.forking --forks 4`.

pytest-xdist collects all tests again in each of its processes, and that takes as long as some thousand tests. Here the
tests are collected once. Then this process forks, and its children take the tests from a common queue.
"""

from __future__ import annotations

import io
import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

LONGEST = 12  # tests that a process takes at once; they are of one file
_NUMBER = struct.Struct("!I")


class Hooks:
    def pytest_forked(self, config: pytest.Config, number: int) -> None:
        """Called in each child: what processes must not share is made here."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=0, help="run the tests in so many processes that share one collection"
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    if not config.option.forks or config.option.collectonly or session.testsfailed:
        return None
    Parent(session).run(config.option.forks)
    return True


@dataclass
class Child:
    """A process, the pipe that it reports through, and the tests that it took and did not finish."""

    pid: int
    pipe: int
    taken: list[int] = field(default_factory=list)
    is_done: bool = False


class Parent:
    """Forks children, passes their reports on, and replaces a child that died."""

    def __init__(self, session: pytest.Session) -> None:
        self.session, self.hook = session, session.config.hook
        # Tests that wait for programs come first, so that at the end no process is alone with long ones.
        self.chunks = sorted(_chunks(session.items), key=lambda chunk: not _waits(session.items[chunk[0]]))
        self.children: dict[int, Child] = {}
        self.forked = 0
        self.selector = selectors.DefaultSelector()
        self.queue, write = os.pipe()
        with os.fdopen(write, "wb") as stream:
            for number in range(len(self.chunks)):  # they fit into the pipe: 64 KiB are 16,384 chunks
                stream.write(_NUMBER.pack(number))

    def run(self, count: int) -> None:
        os.environ.setdefault("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)  # the children belong together
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(count):
                self.fork([])
            while self.children:
                for key, _ in self.selector.select():
                    self.hear(self.children[key.fd])
                if self.session.shouldfail:
                    raise self.session.Failed(self.session.shouldfail)
        finally:
            for child in self.children.values():
                os.kill(child.pid, signal.SIGTERM)
                os.waitpid(child.pid, 0)

    def fork(self, first: list[int]) -> None:
        """`first`: tests that are run before those of the queue."""
        read, write = os.pipe()
        number, self.forked = self.forked, self.forked + 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads
            pid = os.fork()
        if pid == 0:
            os.close(read)
            _be_child(self.session, self.chunks, self.queue, write, number, first)
        os.close(write)
        self.children[read] = Child(pid, read, list(first))
        self.selector.register(read, selectors.EVENT_READ)

    def hear(self, child: Child) -> None:
        size = _read(child.pipe, _NUMBER.size)
        if not size:
            self.bury(child)
            return
        kind, *said = pickle.loads(_read(child.pipe, _NUMBER.unpack(size)[0]))
        if kind == "taken":
            child.taken += said[0]
        elif kind == "report":
            report = self.hook.pytest_report_from_serializable(config=self.session.config, data=said[0])
            self.hook.pytest_runtest_logreport(report=report)
        elif kind == "finished":
            child.taken.remove(said[0])
            item = self.session.items[said[0]]
            self.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "done":
            child.is_done = True

    def bury(self, child: Child) -> None:
        self.selector.unregister(child.pipe)
        os.close(child.pipe)
        del self.children[child.pipe]
        _, status = os.waitpid(child.pid, 0)
        if child.is_done:
            return
        if not child.taken:
            raise RuntimeError(f"a process of the tests ended before its first test, with status {status}")
        crashed, *rest = child.taken
        item = self.session.items[crashed]
        words = f"the process that ran this test ended, with status {status}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
        self.hook.pytest_runtest_logreport(report=report)
        self.fork(rest)


class Reporter:
    """A child's side of the pipe."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self.config, self.pipe = config, pipe

    def say(self, *message: Any) -> None:
        data = pickle.dumps(message)
        data = _NUMBER.pack(len(data)) + data
        while data:
            data = data[os.write(self.pipe, data) :]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.say("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _be_child(
    session: pytest.Session, chunks: list[list[int]], queue: int, pipe: int, number: int, first: list[int]
) -> None:
    """Never returns."""
    code = 1
    try:
        config = session.config
        reporter = Reporter(config, pipe)
        _settle_in(config, number)
        config.pluginmanager.register(reporter)
        waiting = _taken(chunks, queue, reporter, first)
        index = next(waiting, None)
        while index is not None:
            following = next(waiting, None)
            item, after = session.items[index], None if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            reporter.say("finished", index)
            index = following
        reporter.say("done")
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def _settle_in(config: pytest.Config, number: int) -> None:
    """Own files for what tests print, own temporary directories; only the parent prints."""
    manager: Any = config.pluginmanager
    manager.getplugin("terminalreporter")._tw._file = io.StringIO()
    capture = manager.getplugin("capturemanager")
    if capture._global_capturing is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture(in_=True)
    temporary: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    temporary._basetemp = temporary.getbasetemp() / f"process-{number}"
    temporary._basetemp.mkdir(0o700)
    config.hook.pytest_forked(config=config, number=number)


def _taken(chunks: list[list[int]], queue: int, reporter: Reporter, first: list[int]) -> Iterator[int]:
    yield from first
    while taken := os.read(queue, _NUMBER.size):
        chunk = chunks[_NUMBER.unpack(taken)[0]]
        reporter.say("taken", chunk)
        yield from chunk


def _chunks(items: list[pytest.Item]) -> Iterator[list[int]]:
    """Numbers of tests that follow each other and are of one file."""
    chunk: list[int] = []
    for number, item in enumerate(items):
        if chunk and (len(chunk) == LONGEST or items[chunk[-1]].path != item.path):
            yield chunk
            chunk = []
        chunk.append(number)
    if chunk:
        yield chunk


def _waits(item: pytest.Item) -> bool:
    return item.get_closest_marker("flaky") is not None


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := os.read(pipe, size - len(data))):
        data += piece
    return data
