"""Measures installs of a wheel in fresh environments, and writes the table of docs/install.md: `make install-sizes`.

`python -m scripts.install_sizes dist/*.whl [EXTRA …]` measures these extras and only prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from forge.core.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
BEGIN, END = "<!-- sizes: written by `make install-sizes` -->", "<!-- end of sizes -->"
MEBIBYTE = 2**20


class Size(NamedTuple):
    extra: str  # empty: a base install
    distributions: int
    megabytes: int  # rounded up, as `du -sm` counts; compiled modules and programs included

    @property
    def row(self) -> str:
        name = f"forge-tools[{self.extra}]" if self.extra else "forge-tools"
        purpose = "everything below" if self.extra == "all" else EXTRAS[self.extra].purpose if self.extra else _BASE
        return f"| `{name}` | {self.distributions} | {self.megabytes} | {purpose} |"


_BASE = "`forge run`, `forge tool`, the library; the file, shell and data tools"


def measure(wheel: Path, extra: str) -> Size:
    """Installs the wheel into a new environment without pip, and counts what is there afterwards."""
    with TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        venv.create(environment, with_pip=False)
        before = _disk_usage(environment)
        python = environment / "bin" / "python"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([*_installer(python), "-c", str(ROOT / "constraints.txt"), wanted], check=True)
        packages = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
        count = len(list(Path(packages).glob("*.dist-info")))
        return Size(extra, count, -(-(_disk_usage(environment) - before) // MEBIBYTE))


def _installer(python: Path) -> list[str]:
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--link-mode=copy", "--python", str(python)]
    return [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install"]


def _disk_usage(folder: Path) -> int:
    found = (Path(parent, name).lstat() for parent, _, names in os.walk(folder) for name in names)
    return sum(one.st_blocks * 512 for one in found)


def write_table(page: Path, sizes: list[Size]) -> None:
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = ["| package | distributions | MB | for |", "|---|---|---|---|", *(size.row for size in sizes)]
    page.write_text("\n".join([f"{head}{BEGIN}", *table, f"{END}{tail}"]), encoding="utf-8")


def main(arguments: list[str]) -> int:
    if not arguments or not arguments[0].endswith(".whl"):
        print(__doc__, file=sys.stderr)
        return 2
    wheel, chosen = Path(arguments[0]).resolve(), arguments[1:]
    sizes = []
    for extra in chosen or ["", "all", *EXTRAS]:
        sizes.append(measure(wheel, extra))
        print(sizes[-1].row, flush=True)
    if not chosen:
        write_table(PAGE, sizes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
