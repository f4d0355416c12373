"""Draws pictures of scripted runs in a real terminal, into docs/images: approvals with their diff, and the examples.

`make pictures` runs it; with names, it draws these alone. The models are scripted; the runs, the questions, the keys
and the colours are real.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from scripts.animations import Recording
from scripts.ansi_svg import draw_svg

ROOT = Path(__file__).parents[1]
COLUMNS, ROWS = 76, 60
INVOICE = {
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

BUILD = {
    "src/app.py": 'VERSION = "1.0"\n',
    "old.txt": "not needed\n",
    "build.py": """\
from pathlib import Path

app = Path("src/app.py")
app.write_text(app.read_text().replace("1.0", "1.1"))
Path("notes.md").write_text("# 1.1\\n\\n- Faster.\\n")
Path("old.txt").unlink()
""",
    "model.yaml": """\
- {call: bash, arguments: {command: "python3 build.py && cat notes.md"}}
- The release is prepared.
""",
}


class Picture(NamedTuple):
    """A run to draw: its task, its project, and the key that answers each question; "" leaves the question open."""

    name: str
    task: str
    project: Path | dict[str, str]  # a folder, or files
    keys: dict[str, str]
    service: str = ""  # a program of the project that runs meanwhile
    columns: int = COLUMNS


PICTURES = [
    Picture(
        "terminal-approval",
        "The invoice total is wrong. Fix it and check.",
        INVOICE,
        {"file_edit wants": "y"},
    ),
    Picture("terminal-trial", "Prepare the release.", BUILD, {"ran as a trial": ""}, columns=80),
    Picture(
        "example-maintainer",
        "Slugs keep punctuation: fix it, then prepare the release.",
        ROOT / "examples" / "maintainer",
        {"ran as a trial": "y"},
    ),
    Picture("example-analyst", "How was November? Write reports/november.md.", ROOT / "examples" / "analyst", {}),
    Picture(
        "example-oncall",
        "Alert: api answers slowly.",
        ROOT / "examples" / "oncall",
        {"restart.py) wants": "y"},
        service="service.py",
    ),
]


def main(names: list[str]) -> None:
    for picture in PICTURES:
        if names and picture.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="forge-picture-") as made:
            folder = Path(made, "project")
            if isinstance(picture.project, Path):
                shutil.copytree(picture.project, folder, ignore=shutil.ignore_patterns("__pycache__", ".forge"))
            else:
                folder.mkdir()
                for name, content in picture.project.items():
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).write_text(content, encoding="utf-8")
            shown = _run(folder, picture)
        file = ROOT / "docs" / "images" / f"{picture.name}.svg"
        file.write_text(draw_svg(_settle(shown), picture.columns, f'$ forge run "{picture.task}"'), encoding="utf-8")
        print(f"{file.name}: {file.stat().st_size:,} bytes")


def _run(folder: Path, picture: Picture) -> str:
    """Returns what the window shows in the end."""
    command = [sys.executable, "-m", "forge", "run", picture.task, "--model", "scripted:model.yaml", "--no-audit"]
    if (folder / "forge.yaml").exists():
        command += ["--config", "forge.yaml"]
    service = subprocess.Popen([sys.executable, picture.service], cwd=folder) if picture.service else None
    kept = ["sh", "-c", f"{shlex.join(command)}; cat"]  # cat keeps the window
    recording = Recording(folder, kept, picture.columns, ROWS)
    try:
        for question, key in picture.keys.items():
            recording.wait(question)
            recording.wait_for_question()
            if not key:
                return recording.capture()[0].rstrip()
            recording.press(key)
        recording.wait("resume:")
        return recording.capture()[0].rstrip()
    finally:
        recording.close()
        if service is not None:
            service.kill()
            service.wait()


def _settle(shown: str) -> str:
    """Replaces times, rounds tokens, and removes the session's line: they differ from run to run."""
    shown = re.sub(r"(?<![\d.])\d+\.\d+ s\b", "0.1 s", shown)
    shown = re.sub(r'(?<="started": ")[\d:]{8}', "03:14:07", shown)
    shown = re.sub(r"\d+(?= tokens in)", lambda found: str(round(int(found[0]), -2)), shown)
    session = r"\d{8}-\d{6}-[0-9a-f]{4}"
    return re.sub(rf"\n[^\n]*session {session}[^\n]*(\n\s*{session})?", "", shown)


if __name__ == "__main__":
    main(sys.argv[1:])
