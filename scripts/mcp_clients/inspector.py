"""The official Inspector in its command-line mode: a process for each request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

LONGEST = 60  # seconds of one request


def use_inspector(node: str, place: Path, said: dict[str, Any]) -> dict[str, Any]:
    """Takes the steps of every client. To cancel means to interrupt the Inspector, which ends its server."""
    program = _find_program(place)
    base = [node, str(program), "--cli"]
    if "url" in said:
        where = [said["url"], "--transport", "http", "--header", f"Authorization: Bearer {said['token']}"]
    else:
        where = [*said["command"]]

    def argv(method: str, *more: str) -> list[str]:
        return [*base, *where, "--method", method, *more]

    def ask(method: str, *more: str) -> str:
        return subprocess.run(argv(method, *more), capture_output=True, text=True, timeout=LONGEST, check=False).stdout

    calling = ("--tool-name", "math_calculate", "--tool-arg")
    seen: dict[str, Any] = {}
    try:
        names = [one["name"] for one in json.loads(ask("tools/list"))["tools"]]
        seen["list"] = "math_calculate" in names and "bash" in names
        seen["call"] = "42" in ask("tools/call", *calling, "expression=6 * 7")
        failed = json.loads(ask("tools/call", *calling, "expression=6 *"))
        seen["error"] = failed["isError"] is True and "6 *" in failed["content"][0]["text"]
        if "url" in said:
            return {**seen, "cancel": "none"}  # its command line has no way to cancel a call
        waits = ("--tool-name", "bash", "--tool-arg", f"command={said['waits']}")
        nowhere = subprocess.DEVNULL
        asked = argv("tools/call", *waits)
        with subprocess.Popen(asked, start_new_session=True, stdout=nowhere, stderr=nowhere) as process:
            begun = Path(said["begun"])
            for _ in range(600):
                if begun.exists() or process.poll() is not None:
                    break
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            process.wait(10)
            seen["cancel"] = begun.exists()
    except (ValueError, KeyError, OSError, subprocess.SubprocessError) as error:
        seen["problem"] = f"{type(error).__name__}: {error}"[:300]
    return seen


def _find_program(place: Path) -> Path:
    package = place / "node_modules" / "@modelcontextprotocol" / "inspector"
    described = json.loads((package / "package.json").read_text(encoding="utf-8"))
    program = described["bin"]
    return package / (program if isinstance(program, str) else program["mcp-inspector"])
