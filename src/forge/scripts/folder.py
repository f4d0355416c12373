"""A source of tools: the scripts of a project, found and read without running them, and reloaded when they change."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from forge.core.check_definition import NameFilter, add_prefix, check_settings
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.files import find_status
from forge.core.result import ToolResult
from forge.core.spec import is_name
from forge.core.tool import Tool
from forge.core.untrusted import clean
from forge.process.run_script import MOST_OF_ERRORS, FileTool, ScriptSettings, run_script
from forge.scripts.header import Header, HeaderError, begins_with_tool, header_lines, looks_like_header, read_header
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explain_errors, open_directory, open_file

if TYPE_CHECKING:
    import asyncio

MOST_FILES = 1_000  # files of a directory that are read, in the order of their names
EVERY = 1.0  # seconds between two checks of the files

log = logging.getLogger(__name__)

_TOO_MANY = f"there are more than {MOST_FILES:,} files in one folder that may be scripts; only the first ones are read"

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
        prefix: str = "",
        chosen: NameFilter = NameFilter(),  # noqa: B008 - it cannot be changed
    ) -> None:
        add_prefix("scripts", prefix, "")  # raises early
        self.prefix = prefix
        self._chosen = chosen
        self.folder = folder
        self.root = root
        self.settings = settings
        self.problems: list[ScriptProblem] = []
        self._watch = watch
        self._every = every
        self._in_root = in_root
        self._taken = frozenset(taken)
        self._others: frozenset[str] = frozenset()  # names that the mounting registry has
        self._seen: list[Candidate] = []
        self._read: dict[Candidate, Script | ScriptProblem | None] = {}
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
                one for place in (False, True) for one in [c for c in self._seen if c.in_root is place][:MOST_FILES]
            ]
            self._read = {one: self._read[one] if one in self._read else load(one, paths) for one in first_candidates}
            self._select_tools()
            return list(self._tools.values())

    async def __aenter__(self) -> Sequence[Tool]:

        self._loop, self._wanted = asyncio.get_running_loop(), asyncio.Event()
        tools: list[ScriptTool] = await in_thread(self.load)
        return tools

    async def __aexit__(self, *exception: object) -> None:

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
        problems = [ScriptProblem(self.folder, _TOO_MANY)] if len(self._read) < len(self._seen) else []
        known = [read.name for read in self._read.values() if isinstance(read, Script)]
        problems += [ScriptProblem(self.folder, problem) for problem in self._chosen.find_problems(known)]
        for found in self._read.values():
            if isinstance(found, ScriptProblem):
                problems.append(found)
            elif isinstance(found, Script) and (read := name_script(found, self.prefix, self._chosen)) is not None:
                if why := self._name_problem(read, names):
                    problems.append(ScriptProblem(read.path, why))
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


def name_script(script: Script, prefix: str, chosen: NameFilter) -> Script | None:
    """Returns a script under its name in the set; None for one that is not chosen."""
    if not chosen.selects(script.name):
        return None
    return replace(script, name=add_prefix("scripts", prefix, script.name)) if prefix else script


def _find_candidates(paths: PathValidator, folder: str, *, in_root: bool) -> list[Candidate]:
    try:
        return find_candidates(paths, folder, in_root=in_root)
    except ToolError as error:
        raise ToolError(
            f"scripts: {error.message}", ErrorKind.CONFIG, "Name a folder of the project, such as tools."
        ) from None


class ScriptOptions(TypedDict, total=False):
    """The settings of the scripts in a folder; `scripts` describes them."""

    timeout: float | None
    python: str
    env_passthrough: Sequence[str]
    network: bool
    sandbox: str | bool
    max_output_bytes: int


def scripts(
    folder: str | Path = "tools",
    *,
    root: str | Path | None = None,
    watch: bool = True,
    in_root: bool = True,
    taken: Collection[str] = (),
    prefix: str = "",
    include: Collection[str] = (),
    exclude: Collection[str] = (),
    **settings: Unpack[ScriptOptions],
) -> ScriptFolder:
    """Returns a source of the scripts in a folder of a project, and of those in its root that have the header.

    Args:
        folder: the folder.
        root: the project; by default the current directory, or the parent of an absolute `folder`.
        watch: check every second for changed files.
        in_root: whether scripts in the root count.
        taken: names that a script may not have, such as those of the built-in tools.
        prefix: the tools are named `prefix_name`.
        include: patterns of the scripts' own names: only these.
        exclude: patterns of names to leave out.
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
    check_settings("scripts", settings, ScriptOptions)
    if "env_passthrough" in settings:
        settings["env_passthrough"] = tuple(settings["env_passthrough"])
    if root is None and os.path.isabs(folder):
        above, name = os.path.split(os.path.normpath(folder))
        root, folder, in_root = above, name, False
    chosen = NameFilter.read("scripts", include, exclude)
    project = Path.cwd() if root is None else Path(root)
    return ScriptFolder(
        str(folder),
        project,
        ScriptSettings(**settings),
        watch=watch,
        in_root=in_root,
        taken=taken,
        prefix=prefix,
        chosen=chosen,
    )


# --- Finds the files of a project that may be scripts; no file is opened here.


LANGUAGES = (".py", ".ts", ".js")

_SHELLS = (
    ".sh",
    ".bash",
    ".zsh",
    ".rb",
    ".pl",
    ".php",
    ".lua",
    ".mjs",
    ".cjs",
    ".tsx",
)  # reported if it lacks something
_NO_TOOLS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a script. Two candidates are equal if the file did not change in between."""

    path: str  # below the root
    name: str  # the tool's name by its path
    mark: tuple[int, ...]
    is_meant: bool  # its path marks it as a script, so that anything else is an error
    in_root: bool  # among the project's other files, where only the header identifies a script


def find_candidates(paths: PathValidator, folder: str, *, in_root: bool) -> list[Candidate]:
    """Lists the candidates in the folder and then in the root; `MOST_FILES` + 1 of either means that there are more.

    A folder that does not exist holds none; a folder outside the project is an error.
    """
    found = [*_list_folder(paths, folder, _folder_candidates)]
    if in_root and paths.resolve(folder, blank=True).relative != ".":
        found += _list_folder(paths, ".", _root_candidates)
    return found


def _list_folder(
    paths: PathValidator, folder: str, each: Callable[[int, str, str], Iterator[Candidate]]
) -> list[Candidate]:
    try:
        descriptor = open_directory(paths.resolve(folder, blank=True))
    except ToolError as error:
        if error.kind == "not_found":
            return []
        raise
    try:
        names = sorted(entry for entry in os.listdir(descriptor) if not entry.startswith((".", "_")))
        prefix = "" if folder in (".", "") else f"{folder.rstrip('/')}/"
        likely = [one for name in names for one in each(descriptor, prefix, name)]
        return likely[: MOST_FILES + 1]
    finally:
        os.close(descriptor)


def _folder_candidates(within: int, prefix: str, name: str) -> Iterator[Candidate]:
    status = find_status(within, name)
    if status is None or name in _NO_TOOLS:
        return
    stem, suffix = os.path.splitext(name)
    if stat.S_ISDIR(status.st_mode):
        for inner in (f"{name}/tool{suffix}" for suffix in LANGUAGES):
            if inside := find_status(within, inner):
                yield Candidate(prefix + inner, name, _mark(inside), True, False)
    elif suffix in LANGUAGES:
        if not name.endswith(".d.ts"):
            yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), stem.startswith("tool_"), False)
    elif stat.S_ISREG(status.st_mode) and (status.st_mode & 0o111 or suffix in _SHELLS or not suffix):
        yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), stem.startswith("tool_"), False)


def _root_candidates(within: int, prefix: str, name: str) -> Iterator[Candidate]:
    stem, suffix = os.path.splitext(name)
    if suffix in LANGUAGES and (status := find_status(within, name)) and stat.S_ISREG(status.st_mode):
        yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), False, True)


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


# --- Reads a script: its current content and its header. Nothing is run.


MOST_BYTES = 4 * 1024 * 1024  # of a script, which is read before every call


_NO_HEADER = "it has no header: its first docstring or comment must have the lines Tool: and Description:"
_NOT_FIRST = (
    "the lines Tool: and Description: are in the wrong place; its first docstring or comment must begin with Tool:"
)


@dataclass(frozen=True, slots=True)
class ScriptProblem:
    """A file that looks like a script but is not a tool, and the reason."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Script:
    """A file with a header, as it was read."""

    path: str  # below the root, for people
    location: Location
    digest: str
    name: str
    header: Header

    @property
    def suffix(self) -> str:
        """The suffix of the language; "" for an executable file."""
        suffix = os.path.splitext(self.location.name)[1]
        return suffix if suffix in LANGUAGES else ""


def load(candidate: Candidate, paths: PathValidator) -> Script | ScriptProblem | None:
    """Returns the script, or its problem, or None for a file that is not meant to be a script."""
    try:
        location = paths.resolve(candidate.path)
        content = read_script(location)
        return _read_candidate(candidate, location, content)
    except (ToolError, HeaderError) as error:
        return (
            None
            if candidate.in_root and not isinstance(error, HeaderError)
            else ScriptProblem(candidate.path, str(error))
        )
    except Exception as error:  # the content is foreign: one broken file must not affect the others
        return ScriptProblem(candidate.path, f"its header is invalid ({type(error).__name__})")


def read_script(location: Location) -> bytes:
    """Returns the content of a script. Raises `ToolError` if it cannot be read or is too large."""
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ToolError(f"it has more than {MOST_BYTES // 1024 // 1024} MiB, the maximum for a script")
    return content


def _read_candidate(candidate: Candidate, location: Location, content: bytes) -> Script | ScriptProblem | None:
    suffix = os.path.splitext(candidate.path)[1]
    runs_by_itself = suffix not in LANGUAGES
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        quiet = candidate.in_root or (runs_by_itself and not candidate.is_meant)  # for example, a compiled program
        return None if quiet else ScriptProblem(candidate.path, f"it is not UTF-8: byte {error.start} cannot be read")
    lines = header_lines(text, python=suffix == ".py")
    if candidate.in_root and not begins_with_tool(lines):
        return None
    header = read_header(lines)
    if header is None:
        if looks_like_header(text):
            return ScriptProblem(candidate.path, _NOT_FIRST)
        return ScriptProblem(candidate.path, _NO_HEADER) if candidate.is_meant else None
    if runs_by_itself and not candidate.mark[-1] & 0o111:
        return ScriptProblem(candidate.path, "it has a header, but is not executable: chmod +x makes it a tool")
    if runs_by_itself and not text.startswith("#!"):
        return ScriptProblem(
            candidate.path, "it has a header, but no first line such as #!/bin/sh that names its interpreter"
        )
    if runs_by_itself and text.partition("\n")[0].endswith("\r"):  # the system would search for a program of that name
        return ScriptProblem(
            candidate.path, "its first line ends with a carriage return; save it with Unix line endings"
        )
    name = header.name or candidate.name
    if not is_name(name) or "__" in name:
        how = "a letter, then up to 63 letters, digits, - or single _"
        return ScriptProblem(candidate.path, f"{name[:80]!r} cannot be the name of a tool: {how}")
    return Script(candidate.path, location, digest_of(content), name, header)


# --- A tool that runs a script.


class ScriptTool(FileTool):
    """Runs the file that was read when the tool was made; a file that has changed since is reloaded instead."""

    def __init__(
        self,
        script: Script,
        settings: ScriptSettings,
        *,
        is_changed: bool = False,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_changed`: the file changed since the session began. `reload` is called if the file has changed."""
        super().__init__(script.name, script.path, script.header, settings, f"script:{script.path}")
        self.script = script
        self.is_changed = is_changed
        self.reload = reload

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.permissions.gate import confine_as_trial  # needed only for a call
        from forge.permissions.program_network import program_network

        settings = self.settings
        opened = await program_network(ctx, opened=settings.network, sandbox=settings.sandbox)
        return await run_script(
            self.script,
            self.settings,
            arguments,
            ctx,
            paths=PathValidator.of(ctx.scope),
            folder=self.script.location.path.parent,
            network=opened,
            check=self._check,
            clean=lambda text: clean(text, MOST_OF_ERRORS),
            confine=confine_as_trial,
        )

    def _check(self) -> None:
        """Raises `ToolError` if the file is no longer the one whose header the model saw."""
        path = self.script.path
        try:
            is_same = digest_of(read_script(self.script.location)) == self.script.digest
        except ToolError as error:
            self.reload()
            problem = f"{path} cannot be run: {error.message}"
            raise ToolError(problem, ErrorKind.NOT_FOUND, "Check the current list of tools.") from None
        if not is_same:
            self.reload()
            raise ToolError(
                f"{path} has changed since it was loaded; Forge has reloaded it",
                ErrorKind.USER,
                "Check the tool's parameters, which may be new, and call it again.",
                passing=False,
            )

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Marks a changed script as another target: approval of the old content does not cover the new."""
        (path,) = super().targets(arguments)
        return [f"{path} # changed: {self.script.digest[:8]}" if self.is_changed else path]

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return f"{self.script.path} has changed since this session began." if self.is_changed else ""
