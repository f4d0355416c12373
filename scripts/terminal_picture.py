"""Draws docs/images/terminal-approval.svg: a scripted run in a real terminal that stops for an approval with its diff.

`make pictures` runs it. The model is scripted; the run, the question, the keys and the colours are real.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from pathlib import Path

from scripts.animations import Recording
from scripts.ansi_svg import draw_svg

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal-approval.svg"
COLUMNS, ROWS = 76, 60
TASK = "The invoice total is wrong. Fix it and check."
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
KEYS = {"file_edit wants": "y", "ran as a trial": "y"}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="forge-picture-") as folder:
        for name, content in FILES.items():
            Path(folder, name).write_text(content, encoding="utf-8")
        shown = _run(Path(folder))
    PICTURE.write_text(draw_svg(_settle(shown), COLUMNS, f'$ forge run "{TASK}"'), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")


def _run(folder: Path) -> str:
    """Returns what the window shows in the end."""
    command = [sys.executable, "-m", "forge", "run", TASK, "--model", "scripted:model.yaml", "--no-audit"]
    recording = Recording(folder, ["sh", "-c", f"{shlex.join(command)}; cat"], COLUMNS, ROWS)  # cat keeps the window
    try:
        for question, key in KEYS.items():
            recording.wait(question)
            recording.wait_for_question()
            recording.press(key)
        recording.wait("resume:")
        return recording.capture()[0].rstrip()
    finally:
        recording.close()


def _settle(shown: str) -> str:
    """Replaces times, rounds tokens, and removes the session's line: they differ from run to run."""
    shown = re.sub(r"(?<![\d.])\d+\.\d+ s\b", "0.1 s", shown)
    shown = re.sub(r"\d+(?= tokens in)", lambda found: str(round(int(found[0]), -2)), shown)
    return re.sub(r"\n[^\n]*session \d{8}-\d{6}-[0-9a-f]{4}[^\n]*", "", shown)


if __name__ == "__main__":
    main()
