"""What type checkers say of programs that use Forge: each `ignore` in `programs` marks an error that must be there.

`mypy --strict`, which is `make types`, reads the programs too: there an `ignore` without an error is an error.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
SETTINGS = {
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,  # those are mypy's
    "reportUnnecessaryTypeIgnoreComment": "error",
}
_MARK = re.compile(r"# pyright: ignore\[\w+\]")


@pytest.mark.slow
def test_pyright_refuses_the_marked_lines_and_no_others(tmp_path: Path) -> None:
    """One program is there without its marks as well: a check that does not find Forge is content with anything."""
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, tmp_path)
    text, marks = _MARK.subn("", (PROGRAMS / "tools.py").read_text("utf-8"))
    (tmp_path / "unmarked.py").write_text(text, "utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(SETTINGS), "utf-8")
    said = _pyright(tmp_path)
    assert [one for one in said if "unmarked.py" not in one] == []
    assert len(said) == marks > 10


def _pyright(folder: Path) -> list[str]:
    pytest.importorskip("pyright", reason="pyright is not installed")
    command = [sys.executable, "-m", "pyright", "--project", str(folder), "--pythonpath", sys.executable]
    ran = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False)
    said = json.loads(ran.stdout)["generalDiagnostics"]
    return [f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}" for one in said]
