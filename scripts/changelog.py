"""Prepares a release: writes the notes of changelog.d into CHANGELOG.md, and sets the version.

`make changelog VERSION=0.2.0` runs it. If the newest section is of that version and no tag v0.2.0 exists yet, the notes
are added to that section.

With --dry-run it prints the section and changes nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SUMMARY = "summary.md"  # a text of several lines that begins the section; it need not be there
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
_NAME = re.compile(rf"(?P<issue>[^.]+)\.(?P<kind>{'|'.join(KINDS)})(?:\.[^.]+)?\.md")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_STATED = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """A release cannot be prepared or made as it is."""


class Note(NamedTuple):
    path: Path
    issue: str
    kind: str

    @property
    def order(self) -> tuple[bool, int, str]:
        """Sorts by the number of the issue, names without a number last."""
        return not self.issue.isdecimal(), int(self.issue) if self.issue.isdecimal() else 0, self.path.name


def read_notes(root: Path) -> list[Note]:
    """Returns the notes in order. Raises `ReleaseError` for a file whose name says no kind."""
    notes, odd = [], []
    for path in sorted((root / "changelog.d").glob("*.md")):
        named = _NAME.fullmatch(path.name)
        if named:
            notes.append(Note(path, named["issue"], named["kind"]))
        elif path.name not in ("README.md", SUMMARY):
            odd.append(path.name)
    if odd:
        raise ReleaseError(
            f"changelog.d: cannot read the names {', '.join(odd)}. Name a note ISSUE.KIND.TOPIC.md; KIND is one of "
            f"{', '.join(KINDS)}."
        )
    return sorted(notes, key=lambda note: note.order)


def render_section(version: str, date: str, notes: list[Note]) -> str:
    """Returns the section of a release, with a heading for each kind that has notes."""
    if not notes:
        raise ReleaseError("changelog.d holds no note, so there is nothing to release. Add one; its README says how.")
    summary = notes[0].path.with_name(SUMMARY)
    lines = [f"## {version} ({date})", ""]
    if summary.exists():
        lines += [summary.read_text(encoding="utf-8").strip(), ""]
    _refuse_repeated(_read_items(notes))
    for kind in KINDS:
        texts = [_as_items(note.path.read_text(encoding="utf-8")) for note in notes if note.kind == kind]
        if texts:
            lines += [f"### {kind.capitalize()}", "", *texts, ""]
    return "\n".join(lines)


def _read_items(notes: list[Note]) -> list[tuple[str, str]]:
    return [(note.path.name, _as_items(note.path.read_text(encoding="utf-8"))) for note in notes]


def _refuse_repeated(texts: list[tuple[str, str]]) -> None:
    """Raises `ReleaseError` for an item that stands twice in these texts, which come with their files."""
    seen: dict[str, str] = {}
    for name, items in texts:
        for item in re.split(r"\n(?=- )", items):
            text = " ".join(item.split())
            if text in seen:
                raise ReleaseError(f"{seen[text]} and {name} say the same: {text[:80]}… Remove one.")
            seen[text] = name


def stated_version(root: Path) -> str:
    """Returns the version of pyproject.toml, which is the only place that states it."""
    found = _STATED.findall((root / "pyproject.toml").read_text(encoding="utf-8"))
    if len(found) != 1:
        raise ReleaseError(f'pyproject.toml: expected one line version = "…", found {len(found)}.')
    return str(found[0])


def read_section(root: Path, version: str) -> str:
    """Returns the section of a version from CHANGELOG.md. Raises `ReleaseError` if there is none."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)} \(.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section {version}. Run: make changelog VERSION={version}")
    return found[0].rstrip() + "\n"


def make_section(root: Path, version: str, date: str, notes: list[Note]) -> str:
    """Returns the section of a release: the notes, after those of a section of that version that has no tag yet.

    Raises `ReleaseError` if that version is released already, or an older one.
    """
    section = render_section(version, date, notes)
    _, _, newest = (root / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")
    if f"\n## {version} " not in f"\n## {newest}":
        return section
    if not newest.startswith(f"{version} ") or is_tagged(root, version):
        raise ReleaseError(f"CHANGELOG.md already has a section {version}, which is released. Choose the next version.")
    before, after = _split_kinds(read_section(root, version)), _split_kinds(section)
    _refuse_repeated([*(("CHANGELOG.md", items) for kind, items in before.items() if kind), *_read_items(notes)])
    texts = [after.pop("").partition("\n")[0], before.pop("").partition("\n")[2].strip()]
    for kind in (one.capitalize() for one in KINDS):
        if items := "\n".join(part[kind] for part in (before, after) if kind in part):
            texts.append(f"### {kind}\n\n{items}")
    return "\n\n".join(text for text in texts if text) + "\n"


def _split_kinds(section: str) -> dict[str, str]:
    """Returns the items of each kind; what stands above the first kind has no name."""
    above, *parts = re.split(r"^### ", section, flags=re.MULTILINE)
    return {"": above.strip(), **{kind: items.strip() for kind, _, items in (part.partition("\n") for part in parts)}}


def is_tagged(root: Path, version: str) -> bool:
    """Returns whether this repository has the tag of that version."""
    asked = ["git", "-C", str(root), "tag", "--list", f"v{version}"]
    return bool(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())


def write_release(root: Path, version: str, section: str, notes: list[Note]) -> None:
    """Puts the section above the older ones, sets the version and removes the notes."""
    changelog, project = root / "CHANGELOG.md", root / "pyproject.toml"
    head, separator, older = changelog.read_text(encoding="utf-8").partition("\n## ")
    if older.startswith(f"{version} "):  # the section has its notes
        _, separator, older = older.partition("\n## ")
    changelog.write_text(f"{head.rstrip()}\n\n{section.rstrip()}\n{separator}{older}", encoding="utf-8")
    project.write_text(_STATED.sub(f'version = "{version}"', project.read_text(encoding="utf-8")), encoding="utf-8")
    for note in notes:
        note.path.unlink()
    (root / "changelog.d" / SUMMARY).unlink(missing_ok=True)


def check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version. Write it like 1.2.3 or 1.2.3rc1.")


def _as_items(text: str) -> str:
    """Returns the text of a note as list items."""
    text = text.strip()
    return text if text.startswith("- ") else "- " + text.replace("\n", "\n  ")


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.changelog", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat(), help="of the release; today by default")
    parser.add_argument("--dry-run", action="store_true", help="print the section, change nothing")
    given = parser.parse_args(arguments)
    try:
        check_version(given.version)
        notes = read_notes(root)
        section = make_section(root, given.version, given.date, notes)
        if given.dry_run:
            print(section, end="")
            return 0
        write_release(root, given.version, section, notes)
    except ReleaseError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    print(f"CHANGELOG.md has {len(notes)} notes of {given.version}, and pyproject.toml its version.")
    print(f"Next: commit, then git tag v{given.version} and push the tag.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
