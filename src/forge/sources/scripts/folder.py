"""A source of tools: the scripts of a project, reloaded when their files change."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.errors import ErrorKind, ToolError
from forge.core.tool import Tool
from forge.process.scripts.tool import MAX_OUTPUT, TIMEOUT, ScriptSettings
from forge.sources.scripts.finding import MOST, Candidate, find_candidates
from forge.sources.scripts.loading import Problem, Script, load
from forge.sources.scripts.tool import ScriptTool
from forge.workspace.paths import PathValidator

if TYPE_CHECKING:  # not needed to list tools
    import asyncio

EVERY = 1.0  # seconds between two checks of the files

log = logging.getLogger(__name__)

_TOO_MANY = f"there are more than {MOST:,} files in one folder that may be scripts; only the first ones are read"

_Changed = Callable[[Sequence[Tool]], None]


class ScriptFolder:
    """A folder of scripts. `async with` returns the tools; `load` does so without watching. `problems` has the rest."""

    def __init__(
        self,
        folder: str,
        root: Path,
        settings: ScriptSettings,
        *,
        watch: bool = True,
        every: float = EVERY,
        in_root: bool = True,
        taken: Collection[str] = (),
    ) -> None:
        self.folder = folder
        self.root = root
        self.settings = settings
        self.problems: list[Problem] = []
        self._watch = watch
        self._every = every
        self._in_root = in_root
        self._taken = frozenset(taken)
        self._others: frozenset[str] = frozenset()  # names that the mounting registry has
        self._seen: list[Candidate] = []
        self._read: dict[Candidate, Script | Problem | None] = {}
        self._tools: dict[str, ScriptTool] = {}  # by path
        self._first: dict[str, str] = {}  # the digest each path had when it was first read
        self._lock = threading.Lock()
        self._changed: _Changed | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted: asyncio.Event | None = None  # set when a file was found changed

    def leave_out(self, names: Collection[str]) -> None:
        """Treats scripts of these names as problems from the next check on, like those that are `taken`."""
        self._others = frozenset(names)

    def load(self) -> list[ScriptTool]:
        """Returns the current tools. Unchanged files keep their tools; only changed ones are read."""
        with self._lock:
            paths = PathValidator(self.root)
            self._seen = _find_candidates(paths, self.folder, in_root=self._in_root)
            first_candidates = [
                one for place in (False, True) for one in [c for c in self._seen if c.in_root is place][:MOST]
            ]
            self._read = {one: self._read[one] if one in self._read else load(one, paths) for one in first_candidates}
            self._select_tools()
            return list(self._tools.values())

    async def __aenter__(self) -> Sequence[Tool]:
        import asyncio

        from forge.core.execution.threads import in_thread

        self._loop, self._wanted = asyncio.get_running_loop(), asyncio.Event()
        tools: list[ScriptTool] = await in_thread(self.load)
        return tools

    async def __aexit__(self, *exception: object) -> None:
        import asyncio

        self._changed = self._loop = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def follow(self, changed: _Changed) -> None:
        """Calls `changed` with all tools whenever one is added, removed or changed."""
        self._changed = changed
        if self._task is None and self._loop is not None and self._wanted is not None:
            self._task = self._loop.create_task(self._watch_files(self._wanted))

    def reload(self) -> None:
        """Triggers a check at once, from any thread, because a file has changed."""
        loop, wanted = self._loop, self._wanted
        if loop is not None and wanted is not None:
            loop.call_soon_threadsafe(wanted.set)

    async def _watch_files(self, wanted: asyncio.Event) -> None:
        import asyncio

        from forge.core.execution.threads import in_thread

        while True:
            try:
                async with asyncio.timeout(self._every if self._watch else None):
                    await wanted.wait()
            except TimeoutError:
                pass
            wanted.clear()
            before = list(self._tools.values())
            try:
                if not await in_thread(self._has_changes):
                    continue
                now: list[ScriptTool] = await in_thread(self.load)
                if now != before and self._changed is not None:
                    self._changed(now)
            except Exception as error:  # for example, the folder is being replaced: the next check will work
                log.warning("scripts in %s cannot be read: %s", self.folder, error)

    def _has_changes(self) -> bool:
        return _find_candidates(PathValidator(self.root), self.folder, in_root=self._in_root) != self._seen

    def _select_tools(self) -> None:
        """Selects the tools of the scripts that were read, each name once, and collects the problems."""
        before, self._tools = self._tools, {}
        names: dict[str, str] = {}
        problems = [Problem(self.folder, _TOO_MANY)] if len(self._read) < len(self._seen) else []
        for read in self._read.values():
            if isinstance(read, Problem):
                problems.append(read)
            elif isinstance(read, Script):
                if why := self._name_problem(read, names):
                    problems.append(Problem(read.path, why))
                else:
                    names[read.name] = read.path
                    self._tools[read.path] = self._make_tool(read, before.get(read.path))
        for problem in problems:
            if problem not in self.problems:
                log.warning("%s is left out: %s", problem.path, problem.why)
        self.problems = problems

    def _name_problem(self, script: Script, names: dict[str, str]) -> str:
        if script.name in self._taken or script.name in self._others:
            return f"the name {script.name!r} is taken by another tool; choose another name"
        if script.name in names:
            return f"the name {script.name!r} is already taken by {names[script.name]}; choose another name"
        return ""

    def _make_tool(self, script: Script, before: ScriptTool | None) -> ScriptTool:
        if before is not None and before.script == script:
            return before
        first = self._first.setdefault(script.path, script.digest)
        return ScriptTool(script, self.settings, is_changed=script.digest != first, reload=self.reload)

    def __repr__(self) -> str:
        return f"<ScriptFolder {self.folder}>"


def _find_candidates(paths: PathValidator, folder: str, *, in_root: bool) -> list[Candidate]:
    try:
        return find_candidates(paths, folder, in_root=in_root)
    except ToolError as error:
        raise ToolError(
            f"scripts: {error.message}", ErrorKind.CONFIG, "Name a folder of the project, such as tools."
        ) from None


def scripts(
    folder: str | Path = "tools",
    *,
    root: str | Path | None = None,
    watch: bool = True,
    in_root: bool = True,
    taken: Collection[str] = (),
    timeout: float | None = TIMEOUT,
    python: str = "",
    env_passthrough: Sequence[str] = (),
    network: bool = False,
    sandbox: str | bool = "auto",
    max_output_bytes: int = MAX_OUTPUT,
) -> ScriptFolder:
    """Returns a source of the scripts in a folder of a project, and of those in its root that have the header.

    Args:
        folder: the folder.
        root: the project; by default the current directory, or the parent of an absolute `folder`.
        watch: check every second for changed files.
        in_root: whether scripts in the root count.
        taken: names that a script may not have, such as those of the built-in tools.
        timeout: the seconds that a script may take.
        python: the Python that runs scripts; by default this one.
        env_passthrough: environment variables that scripts may see.
        network: whether scripts may use the network.
        sandbox: the sandbox of scripts.
        max_output_bytes: the longest output.

    Example:
        >>> scripts("tools").load()
        []
    """
    settings = ScriptSettings(
        timeout=timeout,
        python=python,
        env_passthrough=tuple(env_passthrough),
        network=network,
        sandbox=sandbox,
        max_output_bytes=max_output_bytes,
    )
    if root is None and os.path.isabs(folder):
        above, name = os.path.split(os.path.normpath(folder))
        return ScriptFolder(name, Path(above), settings, watch=watch, in_root=False, taken=taken)
    project = Path.cwd() if root is None else Path(root)
    return ScriptFolder(str(folder), project, settings, watch=watch, in_root=in_root, taken=taken)
