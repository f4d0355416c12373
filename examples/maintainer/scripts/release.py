"""Moves the notes in changes/ into CHANGELOG.md."""

from pathlib import Path

notes = sorted(Path("changes").glob("*.md"))
changelog = Path("CHANGELOG.md")
head, _, rest = changelog.read_text().partition("\n")
lines = [f"- {note.read_text().strip()}" for note in notes]
changelog.write_text("\n".join([head, "", "## Next", "", *lines]) + "\n" + rest)
for note in notes:
    note.unlink()
print(f"{len(notes)} notes moved")
