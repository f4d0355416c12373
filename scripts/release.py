"""Checks a release and what was built for it.

python -m scripts.release tag v0.2.0      the tag, the version and the changelog agree; prints the notes of the release
python -m scripts.release dist FOLDER     the wheel and the sdist hold what they should, and nothing else
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from scripts.changelog import ROOT, ReleaseError, read_notes, read_section, stated_version

PACKAGE = "forge_tools"


def check_tag(tag: str, root: Path = ROOT) -> str:
    """Returns the notes of the release. Raises `ReleaseError` where tag, version and changelog differ."""
    version = stated_version(root)
    if tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag} and pyproject.toml says {version}. Tag v{version}, or run: make changelog "
            f"VERSION={tag.removeprefix('v')}"
        )
    if left := read_notes(root):
        raise ReleaseError(
            f"changelog.d still holds {len(left)} notes, such as {left[0].path.name}. Run: make changelog "
            f"VERSION={version}"
        )
    return read_section(root, version)


def check_dist(folder: Path, root: Path = ROOT) -> list[str]:
    """Returns the names of what was built. Raises `ReleaseError` for a file that is missing or of another version."""
    version = stated_version(root)
    wheel, sdist = folder / f"{PACKAGE}-{version}-py3-none-any.whl", folder / f"{PACKAGE}-{version}.tar.gz"
    built = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if built != sorted((wheel.name, sdist.name)):
        raise ReleaseError(f"{folder} has {', '.join(built) or 'nothing'}; expected {wheel.name} and {sdist.name}.")
    with zipfile.ZipFile(wheel) as archive:
        _check_wheel(archive, version)
    with tarfile.open(sdist) as archive_of_sources:
        _check_sdist(archive_of_sources.getnames(), f"{PACKAGE}-{version}")
    return built


def _check_wheel(archive: zipfile.ZipFile, version: str) -> None:
    names = archive.namelist()
    own = ("forge/", f"{PACKAGE}-{version}.dist-info/")
    if strays := [name for name in names if not name.startswith(own)]:
        raise ReleaseError(f"the wheel holds files of others: {', '.join(strays[:5])}.")
    needed = ("forge/__init__.py", "forge/py.typed", "forge/console/static/index.html")
    if missing := [name for name in needed if name not in names]:
        raise ReleaseError(f"the wheel lacks {', '.join(missing)}.")
    metadata = HeaderParser().parsestr(archive.read(f"{own[1]}METADATA").decode())
    if metadata["Version"] != version:
        raise ReleaseError(f"the wheel is of version {metadata['Version']}, and pyproject.toml says {version}.")


def _check_sdist(names: list[str], folder: str) -> None:
    needed = [
        f"{folder}/{name}" for name in ("PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "src/forge/__init__.py")
    ]
    if missing := [name for name in needed if name not in names]:
        raise ReleaseError(f"the sdist lacks {', '.join(missing)}.")


def main(arguments: list[str], root: Path = ROOT) -> int:
    try:
        match arguments:
            case ["tag", tag]:
                print(check_tag(tag, root), end="")
            case ["dist", folder]:
                print("\n".join(check_dist(Path(folder), root)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
