"""Writes the files of something new: all of them or none, and nothing over what is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import PathValidator


def write_new(root: Path, files: Mapping[str, str]) -> None:
    """By path below the root. Raises `ToolError`; a link that leads out of the root is refused, too."""
    places = {path: PathValidator(root).resolve_for_writing(path).path for path in files}
    there = [path for path, place in places.items() if place.exists() or (root / path).is_symlink()]
    if there:
        verb = "is" if len(there) == 1 else "are"
        raise ToolError(
            f"{', '.join(there)} {verb} there already, and {verb} not overwritten",
            ErrorKind.CONFIG,
            "Choose another name or directory, or move what is there away.",
        )
    written: list[Path] = []
    for path, place in places.items():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as file:
                written.append(place)
                file.write(files[path])
        except OSError as error:
            for one in written:
                one.unlink(missing_ok=True)
            raise ToolError(
                f"{path} cannot be written: {error.strerror}",
                ErrorKind.CONFIG,
                "Nothing was written; choose another place.",
            ) from None
