"""
Tool: restart
Description: Restart a service. Wait until it has taken the order, and say so.

Input:
  service (str): The name of the service.
  reason (str, optional): Why, for the service's log.

Output:
  restarted (bool): False if the service has not taken the order within 20 seconds.
"""

import json
import sys
import time
from pathlib import Path

SERVICES = {"api"}


def execute(service: str, reason: str = "on call") -> dict[str, bool]:
    if service not in SERVICES:
        raise SystemExit(f"There is no service {service!r}; there are {', '.join(sorted(SERVICES))}.")
    order = Path("run", f"{service}.restart")
    order.write_text(reason)
    until = time.monotonic() + 20
    while order.exists() and time.monotonic() < until:
        time.sleep(0.1)
    return {"restarted": not order.exists()}


if __name__ == "__main__":
    print(json.dumps(execute(**json.load(sys.stdin))))
