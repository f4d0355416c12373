"""Draws docs/images/terminal-approval.svg: a scripted run in a real terminal that stops for an approval with its diff.

`make pictures` runs it. The model is scripted; the run, the question, the keys and the colours are real.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from scripts.ansi_svg import draw_svg

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal-approval.svg"
COLUMNS, ROWS = 76, 60
TASK = "The invoice total is wrong. Fix it and check."
ASKED = b"[e]dit\x1b[0m? "
FILES = {
    "invoice.py": """\
def total(prices: list[float], discount: float) -> float:
    subtotal = sum(prices)
    return subtotal - discount * 100
""",
    "model.yaml": """\
- {call: file_read, arguments: {path: invoice.py}}
- text: The discount is a fraction, but the code treats it as a percentage.
  call: file_edit
  arguments: {path: invoice.py, old_text: subtotal - discount * 100, new_text: subtotal * (1 - discount)}
- call: bash
  arguments: {command: "python3 -c 'import invoice; print(invoice.total([80, 20], 0.25))'"}
- |
  ## Fixed

  `total` now takes the discount as a **fraction**:

  | call | before | after |
  |---|--:|--:|
  | `total([80, 20], 0.25)` | 75.0 | 75.0 |
  | `total([10], 0.5)` | -40.0 | 5.0 |
""",
}
KEYS = (b"y", b"a")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="forge-picture-") as folder:
        for name, content in FILES.items():
            Path(folder, name).write_text(content, encoding="utf-8")
        shown = _run(Path(folder))
    PICTURE.write_text(draw_svg(_settle(shown), COLUMNS, f'$ forge run "{TASK}"'), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")


def _run(folder: Path) -> str:
    """Returns all that the terminal received."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "FORGE_CONFIG": ""}
    for name in ("COLUMNS", "NO_COLOR", "FORGE_CONFIG"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "forge", "run", TASK, "--model", "scripted:model.yaml", "--no-audit"]
    keys = list(KEYS)
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True
    ):
        os.close(its_end)
        shown = b""
        while select.select([terminal], [], [], 60)[0]:
            try:
                piece = os.read(terminal, 65_536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            shown += piece
            if shown.endswith(ASKED):
                os.write(terminal, keys.pop(0))
    os.close(terminal)
    return shown.decode()


def _settle(shown: str) -> str:
    """Replaces times, rounds tokens, and removes the session's line: they differ from run to run."""
    shown = re.sub(r"(?<![\d.])\d+\.\d+ s\b", "0.1 s", shown)
    shown = re.sub(r"\d+(?= tokens in)", lambda found: str(round(int(found[0]), -2)), shown)
    return re.sub(r"\n[^\n]*session \d{8}-\d{6}-[0-9a-f]{4}[^\n]*", "", shown)


if __name__ == "__main__":
    main()
