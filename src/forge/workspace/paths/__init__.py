"""Resolves paths inside the workspace: one validator for every tool."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forge.core.context import Root, Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import HeldDirectory, find_held
from forge.workspace import CAP
from forge.workspace.state import find_state

WRITES = "AGENT_FILESYSTEM_WRITES_ENABLED"
MAX_NAME = 255  # bytes of one name
MAX_PATH = 4_095  # bytes of a path

_OFF = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Location:
    """A path inside a root with all links resolved. Different spellings of a path have the same location."""

    root: Path  # real
    relative: str  # "a/b.txt"; "." is the root itself
    shown: str  # relative to the workspace; absolute in another root
    writable: bool = True
    unsaved: bytes | None = field(default=None, compare=False, repr=False)  # an editor's text, read instead

    @property
    def path(self) -> Path:
        """The path for keys and messages. Opening it by name would follow a link that was put there meanwhile."""
        return self.root if self.relative == "." else self.root / self.relative

    @property
    def name(self) -> str:
        return self.relative.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory that contains it; the root is its own parent."""
        above = self.relative.rpartition("/")[0] or "."
        shown = self.shown.rpartition("/")[0] if self.relative != above else self.shown
        return Location(self.root, above, shown or ".", self.writable)

    def child(self, name: str) -> Location:
        """Returns the location of `name` in this directory; `name` is not a link."""
        relative = name if self.relative == "." else f"{self.relative}/{name}"
        return Location(self.root, relative, name if self.shown == "." else f"{self.shown}/{name}", self.writable)


class PathValidator:
    """Confines paths to a workspace and further declared roots, and these to the environment's widest directory."""

    def __init__(
        self,
        workspace: Path,
        roots: Sequence[Root] = (),
        *,
        writes: bool = True,
        unsaved: Mapping[str, bytes] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        held = [find_held(path) for path in (workspace, *(one.path for one in roots))]
        self._held = [one for one in held if one is not None]
        self.workspace = _real_path(workspace, held[0])
        found = [Root(self.workspace, True)]
        found += [
            Root(_real_path(one.path, directory), one.writable) for one, directory in zip(roots, held[1:], strict=True)
        ]
        self.roots = tuple(sorted(found, key=lambda one: len(one.path.parts), reverse=True))  # the narrowest first
        self.writes = writes and environment.get(WRITES, "").strip().lower() not in _OFF
        self._unsaved = unsaved if unsaved is not None else {}
        self._cap = Path(os.path.realpath(environment[CAP])) if environment.get(CAP) else None

    @classmethod
    def of(cls, scope: Scope) -> PathValidator:
        spill = find_state(scope.workspace, "spill")  # long results, which the model may read
        roots = scope.roots if spill is None else (*scope.roots, Root(spill))
        return cls(scope.workspace, roots, writes=scope.writes, unsaved=scope.unsaved)

    def resolve(self, path: str, *, blank: bool = False, follow: bool = True) -> Location:
        """Returns the location of a path, even if nothing exists there. Raises `ToolError` if it leads outside.

        A relative path starts at the workspace. `blank`: an empty one is the workspace itself. Without `follow` a link
        as the last component stands for itself.
        """
        if blank and not path.strip():
            path = "."
        check_spelling(path)
        for held in self._held:
            held.check()
        whole = os.path.join(self.workspace, path)
        real = _resolve_links(whole, follow=follow, shown=path)
        location = self._locate(real)
        if location is None:
            raise outside_error(path)
        if path.endswith("/") and os.path.lexists(real) and not os.path.isdir(real):
            raise ToolError(
                f"{quote_path(path)} ends with a slash, but is not a directory",
                ErrorKind.USER,
                "Remove the last slash.",
            )
        return location

    def resolve_for_writing(self, path: str, *, follow: bool = True) -> Location:
        """Returns the location of a path that may be written: writing is enabled and the root is writable."""
        if path.endswith("/"):
            raise ToolError(f"{quote_path(path)} names a directory", ErrorKind.VALIDATION, "Name a file.")
        location = self.resolve(path, follow=follow)
        if not self.writes:
            raise ToolError(
                f"{quote_path(path)} cannot be written: writing files is switched off here",
                ErrorKind.PERMISSION,
                f"The person can switch it on: {WRITES}, or workspace.writes in forge.yaml.",
            )
        if not location.writable:
            raise ToolError(
                f"{quote_path(path)} is in a directory that is declared read-only",
                ErrorKind.PERMISSION,
                "Write inside the workspace instead.",
            )
        return location

    def normalize(self, path: str) -> str:
        """Returns the absolute path as written, without following links."""
        return os.path.normpath(os.path.join(self.workspace, path))

    def location_of(self, real: str) -> Location | None:
        """Returns the location of a real path; None outside the roots."""
        return self._locate(real)

    def _locate(self, real: str) -> Location | None:
        parts = Path(real).parts
        if self._cap is not None and parts[: len(self._cap.parts)] != self._cap.parts:
            return None
        for root in self.roots:
            above = len(root.path.parts)
            if parts[:above] == root.path.parts:
                relative = "/".join(parts[above:]) or "."
                shown = self._display_path(parts, real, relative)
                return Location(root.path, relative, shown, root.writable, self._unsaved.get(real))
        return None

    def _display_path(self, parts: tuple[str, ...], real: str, relative: str) -> str:
        above = self.workspace.parts
        return ("/".join(parts[len(above) :]) or ".") if parts[: len(above)] == above else real


def _real_path(directory: Path, held: HeldDirectory | None) -> Path:
    """Resolves a directory; a held directory keeps the path it had when it was opened."""
    return Path(os.path.realpath(directory)) if held is None else held.path


def outside_error(path: str) -> ToolError:
    """Builds the error for a path that leaves the roots: the same words whether or not the file exists."""
    return ToolError(
        f"{quote_path(path)} leads outside the workspace", ErrorKind.SECURITY, "Use a path inside the workspace."
    )


def check_spelling(path: str) -> None:
    """Raises `ToolError` for text that cannot be a path here."""
    if not path.strip():
        raise ToolError("the path is blank", ErrorKind.VALIDATION, "Name a file inside the workspace.")
    if "\0" in path:
        raise ToolError("the path contains a NUL byte", ErrorKind.SECURITY, "Leave it out.")
    if path.startswith("~"):
        raise ToolError(
            f"{quote_path(path)}: ~ does not stand for a home directory here",
            ErrorKind.SECURITY,
            "Use a path inside the workspace; a name that begins with ~ is written ./~name.",
        )
    try:
        longest = max(len(os.fsencode(name)) for name in path.split("/"))
    except UnicodeEncodeError:
        raise ToolError("the path is not valid Unicode", ErrorKind.VALIDATION, "Send valid Unicode.") from None
    if longest > MAX_NAME:
        raise ToolError(
            f"a name in the path has {longest:,} bytes, the limit is {MAX_NAME}", ErrorKind.VALIDATION, "Shorten it."
        )
    if len(os.fsencode(path)) > MAX_PATH:
        raise ToolError("the path is too long", ErrorKind.VALIDATION, "Shorten it.")


def quote_path(path: str) -> str:
    """Quotes a path on one line: a name may hold anything, line breaks included."""
    shown = path[:200] if path[:200].isprintable() else "".join(map(_make_visible, path[:200]))
    return f'"{shown}"' if len(path) <= 200 else f'"{shown}…"'


def _make_visible(letter: str) -> str:
    return letter if letter.isprintable() else ascii(letter)[1:-1]


def _resolve_links(whole: str, *, follow: bool, shown: str) -> str:
    """Returns the real path; tries again if links change while they are followed."""
    for _ in range(8):
        try:
            return os.path.realpath(whole) if follow else _real_parent(whole)
        except OSError:
            continue
    raise ToolError(f"{quote_path(shown)} was replaced while it was looked up", ErrorKind.SECURITY, "Try again.")


def _real_parent(whole: str) -> str:
    head, name = os.path.split(whole.rstrip("/"))
    return os.path.join(os.path.realpath(head), name) if name not in ("", ".", "..") else os.path.realpath(whole)
