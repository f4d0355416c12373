"""Starts workers quickly: imports the system once, then forks a worker for each line that it reads.

`python nursery.py MODULE ORDER`. It prints the pid of each worker; the storm kills workers with -9.
It ends, with all of them, at the end of its input: when the storm has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[3])


def main(module: str, text: str) -> None:
    sys.path[:] = [
        ROOT,
        *(path for path in sys.path if path != str(Path(__file__).parent)),
    ]
    from chaos.crashes.systems.order import Order

    order, system = Order.read(text), import_module(f"chaos.crashes.systems.{module}")
    system.prepare(order)
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # dead workers leave no trace
    print(f"ready {system.version()}", flush=True)
    for _ in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                asyncio.run(system.main(order))
            finally:
                os._exit(0)
        print(pid, flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
