"""Runs tools on a bench: everything is allowed, every call is recorded, and only its directory is touched.

Turns of a scripted model, tapes, which replay the results of tools, and projects for a test are here, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Step
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall, render_call
from forge.core.provider import ProviderError
from forge.core.registry import ToolRegistry, ToolSource, mount_source
from forge.core.result import Failure, ToolResult
from forge.core.secrets import Secrets
from forge.core.tool import Tool
from forge.models.scripted import ReplyPart
from forge.network.egress import Egress
from forge.permissions.gate import PolicyGate
from forge.permissions.policy import rules
from forge.permissions.questions import Approver, Policy, nobody
from forge.pipeline import standard_steps
from forge.pipeline.record import record, replay
from forge.testing.called import Called, Calls
from forge.testing.person import Person

Item = Tool | Callable[..., Any] | ToolSource
LEFT_OUT = ("break_loops", "skip_repeats")  # a test may well call the same thing a hundred times
HERE = ("127.0.0.0/8", "[::1]", "localhost")  # servers of the test itself


def bench(*tools: Item | Iterable[Item], **settings: Any) -> Bench:
    """Tools, lists of tools and sources on a `Bench`, whose settings these are."""
    return Bench(*tools, **settings)


class Bench:
    """`bench(add).call("add", a=1, b=2)` runs a call through the steps that every call passes.

    Without a policy everything is allowed, and every question is approved; with one, what asks is refused
    unless `approve` says otherwise. What is never allowed stays refused: leaving the workspace, protected files, what
    would destroy the machine. Each call is a turn of its own; to
    call the same thing again and again is no loop here. `calls` are the calls so far, `person` is who is asked,
    `workspace` a new directory that is removed with the bench, unless one is given. `deps` is what tools find as
    `ctx.deps`.

    Sources, such as MCP servers, are open inside `with` (or `async with`); so is the event loop that calls share.
    """

    def __init__(
        self,
        *tools: Item | Iterable[Item],
        workspace: Path | str | None = None,
        policy: Policy | None = None,
        approve: Approver | None = None,
        secrets: Secrets | Iterable[str] = (),
        egress: Egress | None = None,
        tape: str | os.PathLike[str] | Step | None = None,
        without: Iterable[str] = LEFT_OUT,
        session: str = "bench",
        deps: Any = None,
    ) -> None:
        self.workspace = _directory(self) if workspace is None else Path(workspace).resolve()
        self.person = (
            approve
            if isinstance(approve, Person)
            else Person(otherwise=approve or ("yes" if policy is None else nobody))
        )
        self.registry = ToolRegistry()
        self.scope = Scope(session_id=session, workspace=self.workspace, deps=deps)
        hidden = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        gate = PolicyGate(policy if policy is not None else rules("allow *"), self.person)
        steps = standard_steps(
            gate, hidden, egress=egress if egress is not None else Egress(private=HERE), without=frozenset(without)
        )
        if tape is not None:
            steps.insert(
                1, _open_tape(tape) if isinstance(tape, str | os.PathLike) else tape
            )  # outside everything but `trace`
        self.executor = RecordingExecutor(self.registry, steps, ActivityStream(hidden), hidden)
        self._sources: list[ToolSource] = []
        self._turns = count(1)
        self._runner: asyncio.Runner | None = None
        self._held: _OpenSources | None = None
        for item in _flat(tools):
            if isinstance(item, AbstractAsyncContextManager):
                self._sources.append(item)
            else:
                self.registry.add(item)

    @property
    def calls(self) -> Calls:
        return self.executor.calls

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolResult:
        """Runs one call to its result. In `async def` tests: `await bench.execute(…)`."""
        if _is_inside_a_loop():
            raise RuntimeError(
                f"bench.call({name!r}, …) inside an event loop: write `await bench.execute({name!r}, …)`"
            )
        if self._runner is not None:
            return self._runner.run(self.execute(name, arguments, **named))
        return asyncio.run(self.execute(name, arguments, **named))

    async def execute(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolResult:
        """Async version of `call`."""
        if self._sources and self._held is None:
            raise RuntimeError(
                "this bench has sources, which are open only inside `with bench:` or `async with bench:`"
            )
        scope = replace(self.scope, message_id=f"turn-{next(self._turns)}")
        return await self.executor.execute(calls(name, arguments, **named), scope)

    def text(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> str:
        """Returns the text for the model of a call that must succeed."""
        __tracebackhide__ = True
        result = self.call(name, arguments, **named)
        if result.failure is not None:
            raise AssertionError(f"expected success, got {result.failure.kind}: {result.for_llm}")
        return result.for_llm

    def failure(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> Failure:
        """Returns the failure of a call that must fail: `message`, `kind`, `suggestion`."""
        __tracebackhide__ = True
        result = self.call(name, arguments, **named)
        if result.failure is None:
            made = render_call(calls(name, arguments, **named))
            raise AssertionError(f"{made} was expected to fail, but returned: {result.for_llm[:500]}")
        return result.failure

    def completed(self, seconds: float = 10.0) -> list[ToolResult]:
        """Waits for background work of calls; returns its results. Only inside `with`."""
        if self._runner is None:
            raise RuntimeError(
                "without `with bench:` each call has its own event loop, and background work ends with it"
            )
        if not self._runner.run(self.executor.background.settled(seconds)):
            raise AssertionError(f"background work did not end within {seconds:g} s")
        return [result for _, result in self.executor.background.take_completed(self.scope.session_id)]

    def __enter__(self) -> Self:
        if _is_inside_a_loop():
            raise RuntimeError("`with bench:` inside an event loop: write `async with bench:`")
        self._runner = asyncio.Runner()
        try:
            return self._runner.run(self.__aenter__())
        except BaseException:
            self._runner.close()
            self._runner = self._held = None
            raise

    def __exit__(self, *exception: object) -> None:
        assert self._runner is not None
        try:
            self._runner.run(self.__aexit__(*exception))
        finally:
            self._runner.close()
            self._runner = None

    async def __aenter__(self) -> Self:
        self._held = _OpenSources(self.registry, self._sources)
        await self._held.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._held is not None
        self.executor.background.cancel(self.scope.session_id)
        held, self._held = self._held, None
        await held.close()

    def __repr__(self) -> str:
        return f"<Bench of {len(self.registry)} tools, {len(self.calls)} calls>"


class RecordingExecutor(ToolExecutor):
    """Records every call with its result."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.calls = Calls()

    async def execute(self, call: ToolCall, scope: Scope) -> ToolResult:
        result = await super().execute(call, scope)
        self.calls.note(Called.of(call, result=result))
        return result


class _OpenSources:
    """Keeps sources open in one task: the task that opened them must close them, and fixtures use several."""

    def __init__(self, registry: ToolRegistry, sources: list[ToolSource]) -> None:
        self.registry = registry
        self.sources = sources
        self._closing = asyncio.Event()

    async def open(self) -> None:
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())
        await self._ready

    async def close(self) -> None:
        self._closing.set()
        await self._task

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for source in self.sources:
                    await stack.enter_async_context(mount_source(self.registry, source))
                self._ready.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)


def _flat(tools: Iterable[Any]) -> Iterable[Any]:
    for item in tools:
        if isinstance(item, Mapping):  # a registry
            yield from item.values()
        elif isinstance(item, Iterable) and not isinstance(item, Tool):
            yield from item
        else:
            yield item


def _directory(owner: object) -> Path:
    """Returns a new directory, removed with its owner, at the latest when the process ends."""
    made = Path(tempfile.mkdtemp(prefix="forge-bench-")).resolve()
    weakref.finalize(owner, shutil.rmtree, made, ignore_errors=True)
    return made


def _open_tape(path: str | os.PathLike[str]) -> Step:
    return tape(path)


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Writes the turns of a scripted model: `Scripted(calls("file_read", path="a.txt"), says("Done."))`.


def says(*parts: str | ToolCall) -> list[ReplyPart]:
    """One turn: a text, and calls with it. `says("Let me look.", calls("file_read", path="a.txt"))`."""
    for part in parts:
        if not isinstance(part, str | ToolCall):
            raise TypeError(f"says({part!r}): expected texts and calls; `fails(…)` is a separate turn")
    if not parts:
        raise TypeError("says(): pass a text or a call; for a model that says nothing, pass an empty text")
    return list(parts)


def calls(name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolCall:
    """A call with its arguments by name, or as they are: an object, or a text such as JSON that is broken."""
    if isinstance(arguments, str):
        if named:
            raise TypeError(f"calls({name!r}, …): if the arguments are a text, no others can be passed")
        return ToolCall(name, arguments)
    return ToolCall(name, {**(arguments or {}), **named})


def fails(
    message: str = "overloaded",
    kind: ErrorKind | str = ErrorKind.SYSTEM,
    *,
    passing: bool = False,
    status: int = 0,
) -> ProviderError:
    """A turn in which the model cannot be reached. `passing`: a retry may succeed; `status`: the HTTP status."""
    return ProviderError(message, kind, passing=passing, status=status)


# Tapes: a file beside the test stores the results of tools, and replays them.

VARIABLE = "FORGE_TAPE"

Mode = Literal["auto", "record", "replay"]


def tape(path: str | os.PathLike[str], mode: Mode | None = None, *, secrets: Secrets | None = None) -> Step:
    """Returns a step that answers from the file, or makes the file if there is none ("auto").

    "record" makes a new one; "replay" never runs a tool, and fails without a file. Without a mode, the variable
    FORGE_TAPE says which: `FORGE_TAPE=record pytest`. Registered secrets are masked in the file.
    """
    chosen = mode or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", "record", "replay"):
        raise ValueError(f"tape({os.fspath(path)!r}): the mode must be auto, record or replay, not {chosen!r}")
    file = Path(path)
    if chosen == "record" or (chosen == "auto" and not file.exists()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        return record(file, secrets)
    if not file.exists():
        raise ToolError(
            f"there is no tape {os.fspath(path)!r} to replay", ErrorKind.CONFIG, f"Record it: {VARIABLE}=record pytest."
        )
    return replay(file, secrets)


# A project for a test: files in its own directory, and `forge` run in it as a user would.


Content = str | bytes | Mapping[str, Any] | Sequence[Any]
STATE = ".forge"  # Forge's own, which no test is about
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "PYTHONPATH", "VIRTUAL_ENV")


@contextmanager
def project(files: Mapping[str, Content] | None = None, /, **more: Content) -> Iterator[Project]:
    """A project with these files, for as long as the block runs.

    A text that begins with a new line is dedented; an object or a list becomes JSON, or YAML where the name says so.
    """
    folder = Path(tempfile.mkdtemp(prefix="forge-project-")).resolve()
    try:
        made = Project(folder / "project", home=folder / "home")
        made.write({**(files or {}), **more})
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The output, read as JSON."""
        return json.loads(self.output)

    @property
    def lines(self) -> list[Any]:
        """The output with a JSON value in every line, as `forge run --json` writes it."""
        return [json.loads(line) for line in self.output.splitlines() if line.strip()]


class Project:
    """A directory with files. `home` is the home directory of programs that run in it."""

    def __init__(self, path: Path, home: Path | None = None) -> None:
        self.path = path.resolve()
        self.home = (home if home is not None else path.with_name(f"{path.name}-home")).resolve()
        for folder in (self.path, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        self._before: dict[str, bytes] = {}

    def write(self, files: Mapping[str, Content]) -> None:
        """Writes files and creates directories. `changes` counts from here."""
        for name, content in files.items():
            file = self.path / _inside(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_bytes(name, content))
        self._before = self._content()

    def read(self, name: str) -> str:
        return (self.path / _inside(name)).read_text(encoding="utf-8")

    def changes(self) -> dict[str, str]:
        """Returns files that were "added", "changed" or "removed" since the last `write`, without Forge's own state."""
        before, after = self._before, self._content()
        found = {name: "removed" for name in before if name not in after}
        found |= {
            name: "changed" if name in before else "added" for name, data in after.items() if before.get(name) != data
        }
        return dict(sorted(found.items()))

    def scope(self) -> Scope:
        """Returns the scope for `agent.run(prompt, scope=project.scope())`."""
        return Scope(workspace=self.path)

    def bench(self, *tools: Any, **settings: Any) -> Bench:
        """Returns a bench with tools in this project."""
        return Bench(*tools, workspace=self.path, **settings)

    def script(self, *turns: Any) -> str:
        """Returns the `--model` name of a model with these turns. Texts, calls and failures only."""
        file = self.home / f"script-{len(list(self.home.glob('script-*.json'))) + 1}.json"
        file.write_text(json.dumps([_turn(turn) for turn in turns]), encoding="utf-8")
        return f"scripted:{file}"

    def forge(
        self, *arguments: str, input: str = "", environment: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> Finished:
        """Runs `forge` here in its own process: without a terminal, and without the user's keys and settings."""
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "forge", *arguments],  # -P: files of the project are not our modules
            cwd=self.path,
            env={**passed_on, "HOME": str(self.home), "NO_COLOR": "1", **(environment or {})},
            input=input,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def _content(self) -> dict[str, bytes]:
        found = {}
        for folder, folders, files in os.walk(self.path):
            folders[:] = [name for name in folders if name != STATE]
            for name in files:
                file = Path(folder, name)
                found[file.relative_to(self.path).as_posix()] = (
                    os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
                )
        return found

    def __truediv__(self, name: str) -> Path:
        return self.path / _inside(name)

    def __repr__(self) -> str:
        return f"<Project {self.path}>"


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a file of the project: use a path relative to the project, without '..'")
    return path


def _bytes(name: str, content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return (textwrap.dedent(content[1:]) if content.startswith("\n") else content).encode()
    if name.endswith((".yaml", ".yml")):
        import yaml

        return yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False, allow_unicode=True).encode()
    return json.dumps(content, ensure_ascii=False, indent=2).encode() + b"\n"


def _turn(turn: Any) -> Any:
    parts = turn if isinstance(turn, list | tuple) else [turn]
    if len(parts) == 1 and isinstance(parts[0], ProviderError):
        error = parts[0]
        wire = {"message": error.message, "kind": str(error.kind), "passing": error.passing, "status": error.status}
        return {"error": {key: value for key, value in wire.items() if value}}
    if not all(isinstance(part, str | ToolCall) for part in parts):
        raise TypeError(
            f"script({turn!r}): a script file can have only texts, calls and failures; use Scripted(…) in the process"
        )
    text = "".join(part for part in parts if isinstance(part, str))
    made = [{"call": part.name, "arguments": _call_entry(part)} for part in parts if isinstance(part, ToolCall)]
    return {**({"text": text} if text or not made else {}), **({"calls": made} if made else {})}


def _call_entry(call: ToolCall) -> Any:
    return call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
