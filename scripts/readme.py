"""Writes the table of other frameworks into the README, and PYPI.md from the README (`make readme`).

With `--check` it only compares. Every cell is a cell of RESULTS.md, which `make bench-peers` measures in one run.
PYPI.md is the page of the package: PyPI knows no files of the repository, so its links are absolute.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PYPI = ROOT / "PYPI.md"
RESULTS = ROOT / "benchmarks/RESULTS.md"
BEGIN, END = "<!-- peers: written by `make readme` -->", "<!-- end of peers -->"

SYSTEMS = ("forge", "pydantic-ai-harness", "openai-agents", "deepagents", "claude-agent-sdk")
ROWS = {
    "What the model gets": {
        "a tool raises": "A tool raises an error",
        "a result of 1 MB": "A result of 1 MB",
        "`'[\"a\"]'` for a list": "A list sent as text",
        "`filePath` for `file_path`": "`filePath` for `file_path`",
        "an edit with other indentation": "An edit with other indentation",
        "`AGENTS.md` in the directory": "`AGENTS.md` in the directory",
    },
    "What runs unasked": {
        "a tool that a person must approve, nobody there": "A tool that a person must approve, with nobody there",
        "a file to write, nobody there": "A file to write, with nobody there",
        "a command to run, nobody there": "A command to run, with nobody there",
        "a command writes outside the directory": "An allowed command writes outside the directory",
        "twelve identical calls": "Twelve identical calls",
    },
    "What is lost": {
        "three calls, one raises": "Three parallel calls, one raises",
        "malformed JSON": "Arguments that are no JSON",
        "a file is written that somebody changed since it was read": "A file that changed since it was read is written",
        "`cd` in one command: where the next one runs": "`cd` in one command: where the next one runs",
        "the program ends: its conversation": "The program ends: its conversation",
    },
    "What it costs": {
        "distributions installed": "Packages installed",
        "MB installed, without compiled modules": "MB installed",
        "call, async function": "A call, × bare pydantic",
        "loop: a turn at 1,000 turns": "A turn of a 1,000-turn loop, × bare loop",
    },
}
"""The rows of RESULTS.md that the README shows, by subject, with the README's words for them."""


def peers_table() -> str:
    """Returns the README's table: outcomes first, speed last."""
    cells = read_cells(RESULTS.read_text(encoding="utf-8"))
    lines = [f"| | {' | '.join(f'**{name}**' if name == 'forge' else name for name in SYSTEMS)} |"]
    lines.append("|---" * (len(SYSTEMS) + 1) + "|")
    for subject, rows in ROWS.items():
        lines.append(f"| **{subject}** |{' |' * len(SYSTEMS)}")
        for row, words in rows.items():
            lines.append(f"| {words} | {' | '.join(cells[row].get(name, '-') for name in SYSTEMS)} |")
    return "\n".join(lines)


def read_cells(text: str) -> dict[str, dict[str, str]]:
    """Returns the cells of the tables that have a column for Forge, by row and by system without its version."""
    found: dict[str, dict[str, str]] = {}
    columns: dict[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = {}
            continue
        fields = [field.strip() for field in line.strip("|").split("|")]
        if not columns:
            columns = {re.sub(r" [\d.]+$", "", field): index for index, field in enumerate(fields) if field}
        elif "forge" in columns:
            found[fields[0]] = {name: fields[at].removesuffix(" ▲") for name, at in columns.items()}
    return found


def write_table(text: str) -> str:
    """Returns the README's text with the table in it."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{peers_table()}\n{END}{tail}"


def pypi_page(text: str) -> str:
    """Returns the README as PyPI shows it: links and pictures have absolute addresses, and pip installs the package."""
    home = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    return (
        make_links_absolute(text, home, "main")
        .replace(
            "pip install .                               # in a clone, with Python 3.11 or newer",
            "pip install forge-tools                     # with Python 3.11 or newer",
        )
        .replace(
            "pip install '.[mcp,web,console,terminal]'   #", "pip install 'forge-tools[mcp,web,console,terminal]'   #"
        )
    )


def make_links_absolute(text: str, home: str, at: str) -> str:
    """Returns a page of the repository with links and pictures that work elsewhere; `at` is a branch or a tag."""
    raw = home.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def link(found: re.Match[str]) -> str:
        picture, target = found[1], found[2]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        kind = "tree" if target.endswith("/") else "blob"
        return (
            f"{picture}({raw}/{at}/{target})" if picture.startswith("!") else f"{picture}({home}/{kind}/{at}/{target})"
        )

    return re.sub(r"(!?\[[^\]]*\])\(([^)\s]+)\)", link, text)


def main() -> int:
    files = {
        README: README.read_text(encoding="utf-8"),
        PYPI: PYPI.read_text(encoding="utf-8") if PYPI.exists() else "",
    }
    new = {README: write_table(files[README])}
    new[PYPI] = pypi_page(new[README])
    if "--check" in sys.argv:
        return 0 if new == files else 1
    for path, text in new.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
