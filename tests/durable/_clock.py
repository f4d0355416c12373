"""The worker of these tests with a wall clock that is wrong: `python _clock.py SECONDS DATABASE SETTINGS`."""

from __future__ import annotations

import asyncio
import json
import sys
import time

_right = time.time
_off = float(sys.argv[1])
time.time = lambda: _right() + _off  # before anything else asks for the time

from tests.durable._worker_process import main  # noqa: E402

if __name__ == "__main__":
    asyncio.run(main(sys.argv[2], json.loads(sys.argv[3])))
