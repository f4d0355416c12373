"""Runs cases: each run has an agent and a workspace of its own, and a few run at the same time.

The answers of a model can be recorded to a file, and replayed without a network.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.context import LOCAL
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import PermissionAnswered, PermissionAsked, TextDelta
from forge.core.execution.threads import in_thread
from forge.core.messages import Message, export_message, import_message
from forge.core.plain_values import short_name, text_of
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart
from forge.core.secrets import Secrets
from forge.evaluation.cases import EvalCase, EvalRun, read_cases
from forge.evaluation.checks import ask_judge, find_failures, list_rubrics
from forge.evaluation.report import EvalReport
from forge.models.scripted import scripted_file
from forge.models.vendors import provider_for
from forge.workspace.state import append_whole

NOT_COPIED = (".forge", ".venv", "node_modules", "__pycache__")

MakeAgent = Callable[[Path, Provider | None], Agent[Any, Any]]
"""Makes the agent of a run from its workspace and the model of its script or recording; None: the agent's own."""


async def evaluate(
    cases: Sequence[EvalCase] | str | os.PathLike[str],
    agent: Agent[Any, Any] | MakeAgent,
    *,
    times: int = 0,
    jobs: int = 4,
    judge: str | Provider | None = None,
    record: str | os.PathLike[str] | None = None,
    replay: str | os.PathLike[str] | None = None,
    use_scripts: bool = True,
    deps: Any = None,
    setup: str = "",
    on_run: Callable[[EvalRun], None] | None = None,
) -> EvalReport:
    """Runs cases and compares each run with what its case expects.

    Each run has a temporary workspace with the files of its case. Raises `ToolError` where the cases, the recording or
    the judge cannot be used; a run that fails is a failed case, and no exception.

    Args:
        cases: the cases, or a file of them.
        agent: the agent; or a function that makes one for a workspace and a model.
        times: how often each case runs; by default once, and with `replay` as often as it was recorded.
        jobs: how many run at the same time.
        judge: the model that judges answers, for `judge` and LLMJudge.
        record: a new file for the answers of the model.
        replay: a recording, whose answers replace the model.
        use_scripts: whether the script of a case replaces the model.
        deps: the dependencies of the agent's tools.
        setup: a name for this configuration in the report.
        on_run: called with each run as soon as it is over.

    Example:
        >>> case = EvalCase(name="hello", prompt="Say hello.", expect=EvalExpect(result={"contains": "Hello"}))
        >>> report = asyncio.run(evaluate([case], Agent(Scripted("Hello!"))))
        >>> report.passed
        True
    """
    found = list(cases) if isinstance(cases, Sequence) and not isinstance(cases, str) else read_cases(cases)
    evaluation = _Evaluation(agent, judge, record, replay, use_scripts, deps, setup)
    evaluation.check(found)
    count = times or (evaluation.recording.times if evaluation.recording is not None else 1)
    report = EvalReport(cases=found)
    room = asyncio.Semaphore(max(1, jobs))

    async def run_one(case: EvalCase, number: int) -> None:
        async with room:
            done = await evaluation.run(case, number)
        report.runs.append(done)
        if on_run is not None:
            on_run(done)

    async with AsyncExitStack() as stack:
        if isinstance(agent, Agent):
            await stack.enter_async_context(agent)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(1, count + 1):
                    for case in found:
                        group.create_task(run_one(case, number))
        except BaseExceptionGroup as errors:  # such as an agent that cannot be made
            raise errors.exceptions[0] from None
    report.sort()
    return report


class _Evaluation:
    """The settings of an evaluation."""

    def __init__(
        self,
        agent: Agent[Any, Any] | MakeAgent,
        judge: str | Provider | None,
        record: str | os.PathLike[str] | None,
        replay: str | os.PathLike[str] | None,
        use_scripts: bool,
        deps: Any,
        setup: str,
    ) -> None:
        self.agent, self.use_scripts, self.deps, self.setup = agent, use_scripts, deps, setup
        self.judge = provider_for(judge) if isinstance(judge, str) else judge
        self.record = Path(record) if record is not None else None
        self.recording = Recording(replay) if replay is not None else None

    def check(self, cases: Sequence[EvalCase]) -> None:
        """Raises `ToolError` for what would only be found after money was spent."""
        judged = [case.name for case in cases if list_rubrics(case)]
        if judged and self.judge is None:
            message = f"the case {judged[0]!r} asks a judge (LLMJudge or expect.judge), and there is no model for it"
            raise ToolError(message, ErrorKind.CONFIG, "Name one: --judge MODEL, or evaluate(judge=…).")
        if self.record is not None and self.record.exists():
            message = f"recording to {str(self.record)!r}: the file exists"
            raise ToolError(message, ErrorKind.CONFIG, "Remove it, or name a new file.")

    async def run(self, case: EvalCase, number: int) -> EvalRun:
        """Runs a case once, in its own workspace. Raises `ToolError` only where the agent cannot be made."""
        with tempfile.TemporaryDirectory(prefix="forge-eval-", ignore_cleanup_errors=True) as folder:
            workspace = await in_thread(lambda: fill_workspace(case, Path(folder)))
            async with AsyncExitStack() as stack:
                agent = self._make_agent(case, number, workspace)
                if agent is not self.agent and not isinstance(self.agent, Agent):
                    await stack.enter_async_context(agent)
                return await self._judge_run(case, number, agent, workspace)

    def _make_agent(self, case: EvalCase, number: int, workspace: Path) -> Agent[Any, Any]:
        model: Provider | None = None
        if self.recording is not None:
            model = self.recording.model_for(case.name, number, workspace)
        elif case.script is not None and self.use_scripts:
            file = workspace.with_name("script.json")
            file.write_text(json.dumps(list(case.script)), encoding="utf-8")
            model = scripted_file(file)
        if not isinstance(self.agent, Agent):
            agent = self.agent(workspace, model)
        else:
            agent = self.agent.replace(model=model) if model is not None else self.agent
        if self.record is not None and agent.provider is not None:
            recorded = Recorded(agent.provider, self.record, case.name, number, agent.secrets, workspace)
            agent = agent.replace(model=recorded)
        return agent

    async def _judge_run(self, case: EvalCase, number: int, agent: Agent[Any, Any], workspace: Path) -> EvalRun:
        started = time.monotonic()
        denials = _Denials(agent)
        try:
            scope = replace(agent.scope, workspace=workspace, session_id=LOCAL)  # a session of its own
            result = await agent.run(case.prompt, scope=scope, deps=self.deps, activity=denials.activity)
        except ToolError as error:  # such as a prompt that a guardrail denies
            seconds = time.monotonic() - started
            message = f"the run could not start: {error.message}"
            return EvalRun(case=case.name, time=number, setup=self.setup, failures=(message,), seconds=seconds)
        seconds = time.monotonic() - started
        failures = await in_thread(lambda: find_failures(case, result, workspace, seconds))
        output = result.output_or_none if result.has_output else result.text
        for rubric in list_rubrics(case):
            assert self.judge is not None
            failures += filter(None, [await ask_judge(self.judge, case, rubric, output)])
        if failures:  # a case may expect that a call is denied
            failures += denials.describe()
        return EvalRun(
            case=case.name,
            time=number,
            setup=self.setup,
            failures=tuple(failures),
            reason=result.reason,
            text=result.text,
            turns=result.turns,
            calls=result.calls,
            tokens=result.usage.total,
            cost=result.cost,
            seconds=seconds,
        )


class _Denials:
    """Notes the calls of one run that needed an approval when there was no one to ask."""

    def __init__(self, agent: Agent[Any, Any]) -> None:
        self.activity = ActivityStream(agent.secrets)
        self.activity.subscribe(agent.activity.emit)
        self.activity.subscribe(self._note_question, PermissionAsked)
        self.activity.subscribe(self._note_answer, PermissionAnswered)
        self._asked: dict[str, PermissionAsked] = {}
        self._denied: dict[str, str] = {}  # in words, by the tool: one line is enough

    def _note_question(self, event: PermissionAsked) -> None:
        self._asked[event.call.id] = event

    def _note_answer(self, event: PermissionAnswered) -> None:
        if event.answer == "no" and event.by == "nobody":
            asked = self._asked.get(event.call.id)
            subject = (asked.permission if asked else "") or f"tool:{event.call.name}"
            self._denied.setdefault(event.call.name, f"allow {subject} {asked.target if asked else ''}".strip())

    def describe(self) -> list[str]:
        """Says which calls were denied, and what to do."""
        return [
            f"{name} was denied: it needs an approval, and an evaluation has no one to ask. Allow it with --yes "
            f"(in Python: approve=approve_all), or with a rule such as `{short_name(rule)}`"
            for name, rule in self._denied.items()
        ]


def fill_workspace(case: EvalCase, folder: Path) -> Path:
    """Makes the workspace of a run in a folder. Raises `ToolError` where a file cannot be written."""
    workspace = folder.resolve() / "workspace"
    try:
        if case.workspace is not None:
            shutil.copytree(case.workspace, workspace, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        workspace.mkdir(exist_ok=True)
        for name, text in case.files.items():
            file = workspace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.resolve().is_relative_to(workspace):
                raise OSError(0, "a link leads out of the workspace")
            file.write_text(text, encoding="utf-8")
    except (OSError, shutil.Error) as error:
        message = f"making the workspace of the case {case.name!r}: {text_of(error)}"
        raise ToolError(message, ErrorKind.CONFIG, "Check its `files` and `workspace`.") from None
    return workspace


# Records the answers of a model to a file, and replays them without a network.

LARGEST_RECORDING = 256 * 1024 * 1024  # bytes
WORKSPACE = "<forge-eval-workspace>"  # in the file, for the directory of a run: each has its own


class Recorded:
    """A model whose answers are appended to a file, one JSON object per line. Registered secrets are masked."""

    def __init__(self, provider: Provider, path: Path, case: str, time: int, secrets: Secrets, workspace: Path) -> None:
        self.provider = provider
        self._path, self._case, self._time, self._secrets = path, case, time, secrets
        self._workspace = str(workspace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        async with aclosing(cast(Any, self.provider.stream(request))) as parts:
            async for part in parts:
                if isinstance(part, Message):
                    self._write(part)
                yield part

    def _write(self, message: Message) -> None:
        names = {"model": getattr(self.provider, "model", ""), "label": getattr(self.provider, "label", "")}
        entry = {"case": self._case, "time": self._time, **names, "message": export_message(message)}
        line = json.dumps(self._secrets.mask_value(entry)).replace(self._workspace, WORKSPACE)
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                append_whole(file, f"{line}\n".encode())
            finally:
                os.close(file)
        except OSError as error:
            words = f"recording an answer in {str(self._path)!r}: {error.strerror}"
            raise ProviderError(words, ErrorKind.CONFIG, "Name a file that can be written.") from None


class Replayed:
    """A model that gives the recorded answers of one run, in their order."""

    def __init__(self, entries: list[dict[str, Any]], case: str, time: int, workspace: Path) -> None:
        self._left = [import_message(_insert_workspace(one["message"], workspace)) for one in entries]
        self._count, self._run = len(entries), f"run {time} of the case {case!r}"
        self.model = str(entries[0].get("model", "")) if entries else ""
        self.label = str(entries[0].get("label", "")) if entries else ""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        if not self._left:
            words = f"the recording has {self._count} answers for {self._run}, and the model was asked once more"
            raise ProviderError(words, ErrorKind.CONFIG, "Record it again: forge eval FILE --record RECORDING.")
        message = self._left.pop(0)
        if message.text:
            yield TextDelta(message.text)
        yield message


class Recording:
    """The runs of a recording. Raises `ToolError` where the file cannot be read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        number = 0
        try:
            file = Path(path)
            if file.stat().st_size > LARGEST_RECORDING:
                raise ValueError(f"it is larger than {LARGEST_RECORDING // 1024**2} MiB")
            for line in file.read_text("utf-8").splitlines():
                number += 1
                self._take(json.loads(line))
        except OSError as error:
            raise _unreadable(path, str(error.strerror)) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _unreadable(path, f"line {number}: {type(error).__name__}: {str(error)[:200]}") from None

    def _take(self, entry: Any) -> None:
        import_message(entry["message"])
        self._runs.setdefault((str(entry["case"]), int(entry["time"])), []).append(entry)

    @property
    def times(self) -> int:
        """The largest number of recorded runs of a case."""
        return max((time for _, time in self._runs), default=1)

    def model_for(self, case: str, time: int, workspace: Path) -> Replayed:
        """Returns the model of one run. A run that was not recorded ends with an error."""
        return Replayed(self._runs.get((case, time), []), case, time, workspace)


def _insert_workspace(wire: Any, workspace: Path) -> Any:
    """Returns a message with the directory of the run that replays it."""
    return json.loads(json.dumps(wire).replace(WORKSPACE, json.dumps(str(workspace))[1:-1]))


def _unreadable(path: str | os.PathLike[str], problem: str) -> ToolError:
    message = f"reading the recording {os.fspath(path)!r}: {problem}"
    return ToolError(message, ErrorKind.CONFIG, "Record it again: forge eval FILE --record RECORDING.")
