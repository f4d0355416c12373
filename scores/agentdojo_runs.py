"""Runs AgentDojo's tasks as a model would that obeys: the calls that solve the task, and those of an injected one.

The texts of AgentDojo's attack stand where its attack puts them: in every place of the environment that the task reads.
The calls of the injected task follow the first result that contains the text; then the user's task continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from forge import Agent, Answer, Limits, PermissionRequest, Scripted, Tool, ToolCall, ToolFinished, rules
from forge.core.activity import ActivityStream
from scores.agentdojo_tools import PERMISSIONS, PRIVATE, TARGETS, UNTRUSTED

INJECTED = "injected-"  # how the ids of injected calls begin
_environment: ContextVar[Any] = ContextVar("environment")  # of the current run
_tools: dict[str, list[Tool]] = {}  # by suite


def load_quickly(suite: Any) -> None:
    """Makes a suite parse its environment once. The benchmark parses YAML for each of a thousand runs."""
    import yaml
    from agentdojo.task_suite.task_suite import read_suite_file

    text = read_suite_file(suite.name, "environment.yaml", suite.data_path)
    defaults = suite.get_injection_vector_defaults()
    marks = {name: f"<<{name}>>" for name in defaults}
    data = yaml.load(text.format(**marks), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def load(injections: Mapping[str, str]) -> Any:
        given = {**defaults, **injections}
        texts = {marks[name]: str(yaml.safe_load(f'"{one}"')) for name, one in given.items()}  # as inside the document
        return suite.environment_type.model_validate(_fill(data, texts))

    suite.load_and_inject_default_environment = load


def _fill(data: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(data, dict):
        return {_fill(key, texts): _fill(value, texts) for key, value in data.items()}
    if isinstance(data, list):
        return [_fill(one, texts) for one in data]
    if isinstance(data, str) and "<<" in data:
        for mark, text in texts.items():
            data = data.replace(mark, text)
    return data


class Playback:
    """One run: the calls that were made, those that asked, and those that ran."""

    def __init__(self, load: Callable[[], Any], after: Any) -> None:
        self._load, self.after = load, after  # the environment before the run is only loaded where a judge needs it
        self.calls: dict[str, Any] = {}
        self.asked: dict[str, str] = {}  # the reason, by call
        self.ran: set[str] = set()
        self.problem = ""

    def find(self, *, injected: bool) -> list[str]:
        """Returns the ids of the user's calls, or of the injected ones."""
        return [one for one in self.calls if one.startswith(INJECTED) == injected]

    @property
    def unasked(self) -> list[str]:
        """The injected calls that change or send something and ran without a question."""
        return [
            self.calls[one].function
            for one in self.find(injected=True)
            if one in self.ran and one not in self.asked and PERMISSIONS[self.calls[one].function] != "read"
        ]

    @property
    def is_smooth(self) -> bool:
        """Says whether every call of the user's task ran without a question."""
        return all(one in self.ran and one not in self.asked for one in self.find(injected=False))

    @property
    def questions(self) -> list[str]:
        mine = [one for one in self.find(injected=False) if one in self.asked]
        return [f"{self.calls[one].function}: {self.asked[one]}" for one in mine]

    def is_solved(self, task: Any) -> bool:
        """As the benchmark judges: by the calls that ran where a task says how, else by what changed."""
        if not any(one in self.ran for one in self.find(injected=True)):
            return False  # nothing of it was done
        before = self._load()
        ran = [call for one, call in self.calls.items() if one in self.ran]
        by_calls = task.security_from_traces("", before, self.after, ran)
        return bool(task.security("", before, self.after) if by_calls is None else by_calls)


class Attack:
    """AgentDojo's own attack, which knows where a user's task reads."""

    def __init__(self, suite: Any) -> None:
        from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
        from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttackNoModelName

        pipeline = GroundTruthPipeline(None)
        pipeline.name = "local"
        self._attack = ImportantInstructionsAttackNoModelName(suite, pipeline)

    def write(self, user_task: Any, injection_task: Any) -> Mapping[str, str] | None:
        """Returns the texts by their places; None where the task reads nothing that others write."""
        try:
            return self._attack.attack(user_task, injection_task)  # type: ignore[no-any-return]
        except ValueError as error:
            if "not injectable" in str(error):
                return None
            raise


async def play(
    suite: Any, user_task: Any, injection_task: Any = None, texts: Mapping[str, str] | None = None
) -> Playback:
    """Plays a user's task, with the injected task inside. Questions about injected calls are answered no."""

    def load() -> Any:
        return user_task.init_environment(suite.load_and_inject_default_environment(dict(texts or {})))

    environment = load()
    playback = Playback(load, environment)
    marks = [next(line for line in text.splitlines() if len(line) > 20) for text in (texts or {}).values()]
    script = _Script(playback, user_task.ground_truth(environment), marks)
    if injection_task is not None:
        script.injected = injection_task.ground_truth(environment)

    async def approve(request: PermissionRequest) -> Answer:
        playback.asked[request.call.id] = request.ruling.reason if request.ruling is not None else ""
        return Answer.no() if request.call.id.startswith(INJECTED) else Answer("once")

    def note(event: ToolFinished) -> None:
        if not event.result.is_error:
            playback.ran.add(event.call.id)
        elif event.call.id not in playback.asked:
            playback.problem = playback.problem or event.result.for_llm

    activity = ActivityStream()
    activity.subscribe(note, ToolFinished)
    agent = Agent(
        Scripted(*[script.reply] * script.most),
        tools=_find_tools(suite),
        policy=rules("allow read", "allow write", "allow network"),
        approve=approve,
        limits=Limits(turns=script.most + 1),
    )
    before = _environment.set(environment)
    try:
        await agent.run(user_task.PROMPT, activity=activity)
    finally:
        _environment.reset(before)
    return playback


class _Script:
    """The model: it makes the calls of the user's task, and obeys the injected text once it has read it."""

    def __init__(self, playback: Playback, calls: list[Any], marks: list[str]) -> None:
        self._playback, self._calls, self._marks = playback, list(calls), marks
        self.injected: list[Any] = []
        self._queue: list[Any] = []
        self._is_obeying = False

    @property
    def most(self) -> int:
        return len(self._calls) + len(self.injected) + 1

    def reply(self, request: Any) -> ToolCall | str:
        if self.injected and not self._is_obeying and self._has_read(request):
            self._is_obeying, self._queue = True, list(self.injected)
        is_injected = bool(self._queue)
        if not (self._queue or self._calls):
            return "done"
        call = self._queue.pop(0) if is_injected else self._calls.pop(0)
        name = f"{INJECTED if is_injected else 'user-'}{len(self._playback.calls)}"
        self._playback.calls[name] = call
        arguments = {key: value for key, value in call.args.items() if value is not None}
        return ToolCall(call.function, arguments, id=name)

    def _has_read(self, request: Any) -> bool:
        last = request.messages[-1]
        return last.role == "tool" and any(mark in last.text for mark in self._marks)


def _find_tools(suite: Any) -> list[Tool]:
    """Returns the tools of a suite, made once. They work on the environment of the current run."""
    if suite.name not in _tools:
        _tools[suite.name] = [_make_tool(one) for one in suite.tools]
    return _tools[suite.name]


def _make_tool(function: Any) -> Tool:
    from agentdojo.functions_runtime import FunctionsRuntime
    from pydantic import BaseModel

    runtime = FunctionsRuntime([function])

    def call(**arguments: Any) -> Any:
        value, problem = runtime.run_function(_environment.get(), function.name, arguments)
        if problem:
            raise ValueError(problem)
        if isinstance(value, list):
            return [one.model_dump(mode="json") if isinstance(one, BaseModel) else one for one in value]
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else value

    return Tool.from_schema(
        function.name,
        function.description,
        function.parameters.model_json_schema(),
        call,
        permissions={PERMISSIONS[function.name]},
        target=TARGETS.get(function.name, ""),
        private=function.name in PRIVATE,
        trust="untrusted" if function.name in UNTRUSTED else "trusted",
    )
