"""Defines the resource limits of a program. The kernel enforces them for each process, from its start on."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from forge.core.errors import ErrorKind, ToolError

LEAST_MEMORY = 64 * 1024 * 1024  # bytes: with less, not even the starter of the program could run
LEAST_FILES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Limits of each process; 0: none. None of them exceeds the limits of Forge itself.

    `processes` counts all processes of the user, and the kernel does not apply it to root. `memory` is address space,
    which macOS does not limit. `data` is memory that a process can write: programs such as Node reserve far more
    address space than they use. Linux alone limits it for all of a process.
    """

    cpu_seconds: int = 0
    memory: int = 0  # bytes
    data: int = 0  # bytes
    file_size: int = 0  # bytes
    open_files: int = 0
    processes: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise _wrong(f"{name} is {getattr(self, name)}, and must not be below 0")
        for name in ("memory", "data"):
            if 0 < (said := getattr(self, name)) < LEAST_MEMORY:
                raise _wrong(f"{name} is {said:,} bytes, and must be at least {LEAST_MEMORY:,}")
        if 0 < self.open_files < LEAST_FILES:
            raise _wrong(f"open_files is {self.open_files}, and must be at least {LEAST_FILES}")

    def for_kernel(self) -> list[tuple[int, int, int]]:
        """Returns the limits to set: which one, its soft and its hard value."""
        import resource  # not on every platform that can import this

        wanted = {
            resource.RLIMIT_CPU: (self.cpu_seconds, self.cpu_seconds + 1),  # SIGXCPU first, a second later SIGKILL
            resource.RLIMIT_FSIZE: (self.file_size, self.file_size),
            resource.RLIMIT_NOFILE: (self.open_files, self.open_files),
            resource.RLIMIT_NPROC: (self.processes, self.processes),
        }
        if sys.platform == "linux":
            wanted[resource.RLIMIT_AS] = (self.memory, self.memory)
            wanted[resource.RLIMIT_DATA] = (self.data, self.data)
        return [(which, soft, hard) for which, (soft, hard) in wanted.items() if soft]


def _wrong(problem: str) -> ToolError:
    return ToolError(f"limits: {problem}", ErrorKind.CONFIG, "Fix the tool's configuration; 0 means no limit.")
