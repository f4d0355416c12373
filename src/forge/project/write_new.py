"""Writes new files: all of them or none, and never over existing ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import PathValidator


def write_new(root: Path, files: Mapping[str, str]) -> None:
    """Writes files by their paths below the root. Raises `ToolError`; a link that leads out of the root is refused,
    too.
    """
    targets = {path: PathValidator(root).resolve_for_writing(path).path for path in files}
    there = [path for path, target in targets.items() if target.exists() or (root / path).is_symlink()]
    if there:
        verb = "is" if len(there) == 1 else "are"
        raise ToolError(
            f"{', '.join(there)} {verb} there already, and {verb} not overwritten",
            ErrorKind.CONFIG,
            "Choose another name or directory, or move the existing files away.",
        )
    written: list[Path] = []
    for path, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                written.append(target)
                file.write(files[path])
        except OSError as error:
            for one in written:
                one.unlink(missing_ok=True)
            raise ToolError(
                f"{path} cannot be written: {error.strerror}",
                ErrorKind.CONFIG,
                "Nothing was written; choose another directory.",
            ) from None
