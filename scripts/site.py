"""Puts the built documentation of a version beside those of others: `python -m scripts.site VERSION SITE TARGET`.

TARGET/VERSION gets the pages. TARGET/versions.json lists all versions, the newest first, for the menu of the pages, and
TARGET/index.html leads to the newest one that is not a preview.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?")


def add_version(version: str, site: Path, target: Path) -> list[str]:
    """Returns all versions, the newest first. Raises `ValueError` for a name that is no version."""
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is no version: write it like 1.2.3 or 1.2.3rc1")
    if not (site / "index.html").is_file():
        raise ValueError(f"{site} has no index.html: build the pages first, with make docs")
    target.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target / version, ignore_errors=True)
    shutil.copytree(site, target / version)
    found = sorted((path.name for path in target.iterdir() if VERSION.fullmatch(path.name)), key=_order, reverse=True)
    newest = next((one for one in found if one.replace(".", "").isdecimal()), found[0])
    rows = [{"version": one, "title": one, "aliases": ["latest"] if one == newest else []} for one in found]
    (target / "versions.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    link = f"{newest}/index.html"
    page = (
        f'<!doctype html>\n<meta http-equiv="refresh" content="0; url={link}">\n<a href="{link}">Forge {newest}</a>\n'
    )
    (target / "index.html").write_text(page, encoding="utf-8")
    (target / ".nojekyll").touch()
    return found


def _order(version: str) -> tuple[int, int, int, bool, str]:
    found = VERSION.fullmatch(version)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3]), found[4] is None, found[4] or ""


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(", ".join(add_version(arguments[0], Path(arguments[1]), Path(arguments[2]))))
    except (ValueError, OSError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
