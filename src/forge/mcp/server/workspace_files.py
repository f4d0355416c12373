"""Offers the files of a workspace and its artefacts as resources, under the rules that hold for the file tools."""

from __future__ import annotations

import mimetypes
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.files import KIND_HEAD, kind_of
from forge.core.messages import ToolCall
from forge.core.result import Attachment
from forge.core.spec import Category, Permission, ToolOptions
from forge.mcp.resources import LARGEST_RESOURCE, Resource
from forge.permissions.gate import Grant, PolicyGate
from forge.permissions.questions import Decision
from forge.tools.shared.approved_paths import resolve_approved
from forge.workspace.changes.artefacts import FOLDER
from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import read_file, status_of
from forge.workspace.search.walk import walk
from forge.workspace.state import NAME
from forge.workspace.text import is_binary

if TYPE_CHECKING:
    from forge.core.executor import ToolExecutor

MOST_LISTED = 2_000  # files; others can be read by their URI
PATIENCE = 5.0  # seconds to look for files
READER = "workspace_file"


class WorkspaceFiles:
    """The files of a scope's workspace. A file that the rules do not allow to be read is not listed."""

    def __init__(self, executor: ToolExecutor, scope: Scope) -> None:
        self._gate = executor.gate
        self._scope = scope
        self._root = f"file://{quote(str(scope.workspace))}"
        self.resource = Resource(
            _read,
            f"{self._root}/{{+path}}",
            complete={"path": self.complete},
            options=ToolOptions(
                name=READER,
                category=Category.BUILTIN,
                description="A file of the workspace.",
                permissions={"read"},
                target="path",
                idempotent=True,
            ),
        )

    async def describe_all(self) -> list[dict[str, Any]]:
        """Returns the entries of readable files: artefacts first, then the files that are not ignored, by name."""
        found: list[dict[str, Any]] = await in_thread(lambda: [self._describe(path) for path in self._find("")])
        return found

    def complete(self, beginning: str) -> list[str]:
        """Returns paths that begin with a text."""
        return list(self._find(beginning))

    def revision(self, path: str) -> tuple[int, int] | None:
        """Returns the time of change and the size of a file; None if it cannot be read."""
        try:
            status = status_of(PathValidator.of(self._scope).resolve(path)) if self._may_read(path) else None
        except (ToolError, OSError):
            return None
        return (status.st_mtime_ns, status.st_size) if status is not None else None

    def _describe(self, path: str) -> dict[str, Any]:
        kind = mimetypes.guess_type(path)[0]
        return {
            "uri": f"{self._root}/{quote(path)}",
            "name": path,
            **({"mimeType": kind} if kind else {}),
        }

    def _find(self, beginning: str) -> Iterator[str]:
        end = time.monotonic() + PATIENCE
        names = [*self._artefacts(), *sorted(self._walk(end))]
        count = 0
        for path in names:
            if path.startswith(beginning) and self._may_read(path):
                yield path
                count += 1
                if count >= MOST_LISTED or time.monotonic() > end:
                    return

    def _walk(self, end: float) -> Iterator[str]:
        """Yields files that are not hidden and not ignored, at most some more than can be listed."""
        count = 0
        location = PathValidator.of(self._scope).resolve(".")
        for entry in walk(location, hidden=False, stop=lambda: time.monotonic() > end):
            if entry.entry.is_file(follow_symlinks=False):
                yield entry.relative
                count += 1
                if count >= 2 * MOST_LISTED:
                    return

    def _artefacts(self) -> list[str]:
        try:
            folder = self._scope.workspace / NAME / FOLDER
            with os.scandir(folder) as entries:
                return sorted(f"{NAME}/{FOLDER}/{one.name}" for one in entries if one.is_file(follow_symlinks=False))
        except OSError:
            return []

    def _may_read(self, path: str) -> bool:
        if not isinstance(self._gate, PolicyGate):
            return False
        call = ToolCall(READER, {"path": path})
        ctx = ToolContext(call, self.resource, {"path": path}, self._scope)
        return Grant(self._gate).judge(ctx, Permission.READ, path).decision is Decision.ALLOW


async def _read(path: str, ctx: ToolContext) -> Attachment:
    location, *_ = await resolve_approved(ctx, Permission.READ, path)
    content: bytes = await in_thread(lambda: read_file(ctx.scope, str(location.path), LARGEST_RESOURCE))
    return Attachment(_media_type(path, content[:KIND_HEAD]), content, path)


def _media_type(path: str, head: bytes) -> str:
    kind = kind_of(head) if is_binary(head) else None
    if kind is not None:
        return kind.media_type
    guess = mimetypes.guess_type(path)[0]
    return guess or ("application/octet-stream" if is_binary(head) else "text/plain")
