"""The service api, to have something to restart: `python3 service.py [PORT]`.

It loses connections until its pool is full. It starts again when run/api.restart appears, as a process manager would
let it.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(__file__).parent
WANTED = FOLDER / "run" / "api.restart"
LOST = 100 if "--fresh" not in sys.argv else 3  # connections that were not given back
STARTED = time.strftime("%H:%M:%S")


class Status(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        state = "slow" if LOST >= 100 else "ok"
        body = json.dumps({"service": "api", "state": state, "connections": f"{LOST} of 100", "started": STARTED})
        self.send_response(200 if self.path == "/status" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Writes no line for each request."""


class Service(ThreadingHTTPServer):
    def service_actions(self) -> None:
        """Starts this program again if that is wanted."""
        if WANTED.exists():
            # as a process manager does it: the same program, from its beginning
            os.execv(sys.executable, [sys.executable, __file__, str(self.server_port), "--fresh"])  # noqa: S606


if __name__ == "__main__":
    service = Service(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8741), Status)
    if "--fresh" in sys.argv:  # it takes requests again: the order is done
        with (FOLDER / "logs" / "api.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} INFO started again: {WANTED.read_text().strip()}\n")
        WANTED.unlink()
    service.serve_forever(poll_interval=0.1)
