"""Writes the schema of forge.yaml and the pages below docs/reference/ from the code (`make reference`).

With `--check` it only compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forge.project.config import reader
from forge.project.config.declaration import Configuration
from scripts.reference.api import api_pages
from scripts.reference.commands import commands_page
from scripts.reference.configuration import configuration_page
from scripts.reference.errors import errors_page
from scripts.reference.events import events_page
from scripts.reference.schema import make_schema
from scripts.reference.tools import tools_page

SCHEMA = Path(reader.__file__).with_name("forge.schema.json")
FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN = "<!-- written by `make reference`; do not edit -->\n"


def schema_text() -> str:
    """The schema of forge.yaml, which commands read."""
    return f"{json.dumps(make_schema(Configuration), indent=1, ensure_ascii=False)}\n"


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    written = {
        "tools": tools_page,
        "events": events_page,
        "errors": errors_page,
        "configuration": configuration_page,
        "commands": commands_page,
    }
    texts = api_pages() | {name: write() for name, write in written.items()}
    return {f"{name}.md": f"{WRITTEN}{text.rstrip()}\n" for name, text in texts.items()}


def main() -> int:
    check = "--check" in sys.argv
    if not _is(SCHEMA, schema := schema_text()):
        if check:
            print(f"{SCHEMA.name} is not what the declarations say: make reference")
            return 1
        SCHEMA.write_text(schema, encoding="utf-8")
        reader.document_schema.cache_clear()
    written = pages()
    stale = [name for name, text in written.items() if not _is(FOLDER / name, text)]
    extra = [path.name for path in FOLDER.glob("*.md") if path.name not in written]
    if check:
        for name in [*stale, *extra]:
            print(f"docs/reference/{name} is not what the code says: make reference")
        return 1 if stale or extra else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(written[name], encoding="utf-8")
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
