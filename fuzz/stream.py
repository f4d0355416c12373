"""`forge tool call -` as a process that is fed and watched from outside."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from fuzz.ground import Ground


class Size(NamedTuple):
    """What the process holds; nothing is known of it where there is no /proc."""

    kilobytes: int
    descriptors: int
    threads: int


class Stream:
    """Lines in, results out, in order. A reader of its own, so that neither side waits for the other."""

    def __init__(self, ground: Ground, *flags: str) -> None:
        self._errors = ground.log.open("wb")
        self.process = subprocess.Popen(
            ground.command("tool", "call", "-", "--dev", *flags),
            cwd=ground.root,
            env=ground.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass

    def send(self, line: bytes) -> None:
        """Raises `BrokenPipeError` where nobody is there any more."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next result; None if none came in time, or the process ended."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def end(self, seconds: float) -> int | None:
        """Its exit code, once there is nothing more to answer; None if it goes on all the same."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            return self.process.wait(seconds)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            return self.process.poll()

    def size(self) -> Size | None:
        place = Path("/proc", str(self.process.pid))
        try:
            told = (place / "status").read_text()
            return Size(_number(told, "VmRSS"), len(os.listdir(place / "fd")), _number(told, "Threads"))
        except OSError:
            return None

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(b"")


def _number(told: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", told, re.MULTILINE)
    return int(found[1]) if found else 0
