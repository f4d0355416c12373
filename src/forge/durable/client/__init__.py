"""Begins, inspects, answers and stops runs. Needs no engine in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from forge.agent.result import RunResult
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.core.spec import ToolSpec
from forge.durable.client.pruning import Retention, count_prunable, prune, prune_kept, remove
from forge.durable.engine.follow_up import is_ready
from forge.durable.engine.queues import DEFAULT, change_key
from forge.durable.engine.start_segments import Starter, local_engine
from forge.durable.store import RunStore
from forge.durable.store.check_input import check_messages, check_name, check_new, check_text, check_words
from forge.durable.store.encoding import object_of, run_result
from forge.durable.store.find import RunFilter
from forge.durable.store.heartbeats import UnattendedWarning, has_worker
from forge.durable.store.marks import RunMarked
from forge.durable.store.rows import FINE, MODEL, OVER, TAKES, Mark, NewRun, Question, RunInfo
from forge.durable.store.waits import Wait, asks_in_words
from forge.workspace.state.store import StoreError

if TYPE_CHECKING:
    from forge.core.events import Event
    from forge.permissions.questions import Answer

PAGE = 200  # runs that are read at once
VERSION = "0"  # the default version of applications and workers

Infos = list[RunInfo]  # named here, because runs have a `list` of their own
Messages = list[Message]
Questions = list[Question]
Numbered = list[tuple[int, dict[str, Any]]]


def new_run_id() -> str:
    return f"run-{uuid4().hex[:12]}"


class Runs:
    """The stored runs of a database, for programs that submit, watch and answer them. It needs no agent.

    Every method but `follow` and `settled` blocks for as long as the database takes. Methods take whole ids; `find`
    also takes the beginning of one. Errors are `StoreError`: what was tried, what went wrong, what to do next.

    Args:
        database: the URL of the database.

    Example:
        >>> with Runs("sqlite:///runs.db") as runs:
        ...     runs.submit("Hi", agent="main", run_id="r1").status, len(runs.list())
        ('queued', 1)
    """

    def __init__(self, database: str | RunStore) -> None:
        self.store = database if isinstance(database, RunStore) else RunStore(database)
        self._starter = Starter(self.store)

    def __repr__(self) -> str:
        return "<Runs>"  # the address of a database may hold a password

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._starter.close()
        self.store.close()

    def submit(
        self,
        prompt: str,
        *,
        agent: str = "main",
        session: str = "",
        tenant: str = "",
        queue: str = DEFAULT,
        priority: int = 0,
        version: str = "",
        run_id: str | None = None,
        messages: Sequence[Message] = (),
        scope: Mapping[str, Any] | None = None,
    ) -> RunInfo:
        """Begins a run and leaves it to any worker; the same `run_id` begins only one run.

        `messages` is the first conversation of the model, the prompt included; by default the prompt alone.
        """
        from forge.durable.engine.tracing import carrier  # loads the steps, which reading runs does without

        check_text(prompt, "the prompt")
        check_messages(messages)
        new = NewRun(
            id=new_run_id() if run_id is None or run_id == "" else run_id,
            agent=agent,
            session=session,
            tenant=tenant,
            queue=queue,
            priority=priority,
            version=VERSION if version == "" else version,
            messages=messages or (Message("user", prompt),),
            prompt=prompt,
            scope={} if scope is None else scope,
            carrier=carrier(),
        )
        check_new(new)  # before the tables are made
        self._starter.prepare()  # makes the tables where the database is new
        return self._start(self.store.create(new))

    def get(self, run_id: str) -> RunInfo:
        return self.store.get(run_id)

    def find(self, beginning: str) -> RunInfo:
        """Returns the run of this id, or the only one whose id begins so."""
        return self.store.find(beginning)

    def is_attended(self, run: RunInfo) -> bool:
        """Returns whether a living worker takes the run."""
        return has_worker(self.store, run)

    def list(self, **wanted: Any) -> Infos:
        """Lists runs, the newest first: `limit` of them, by default 100.

        The other conditions are `status`, `agent`, `queue`, `tenant`, `session`, `user`, `model`. `parent=""`: only
        runs that no other run started. `failure`: the reason of a bad end, the kind of its error, or "any". `mark`:
        "good", "bad", "any" or "none". `cost`: at least so much. `kind`: "chat" or "call". `text`: in the prompt, the
        id, the session or the answer. `since`, `until`: when they were created. `before`: `created` and id of the last
        known run.
        """
        limit = wanted.pop("limit", 100)
        return self.store.list(RunFilter(**wanted), limit=limit)

    def messages(self, run_id: str) -> Messages:
        return self.store.messages(self.get(run_id).id)

    def result(self, run_id: str) -> RunResult:
        """Returns the result; `reason` is "waiting" while the run is not over."""
        run = self.get(run_id)
        return run_result(run, self.store.messages(run.id))

    def questions(self, run_id: str | None = None) -> Questions:
        """Lists the open approvals of a run and its sub-runs; without an id, of all runs."""
        if run_id is None:
            return self.store.questions()
        return [one for run in self._family(self.get(run_id)) for one in self.store.questions(run.id)]

    def events(self, run_id: str, after: int = 0) -> Numbered:
        """Returns the stored events of this run alone. `follow` also includes its sub-runs."""
        return self.store.events(self.get(run_id).id, after)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yields events until the run is over or waits for an answer."""
        from forge.durable.client.following import RunFollower  # loads every kind of event

        following = RunFollower(self.store, (await in_thread(lambda: self.get(run_id))).id, after)
        for pause in pauses():
            run, events = await in_thread(following.read_new)
            for event in events:
                yield event
            if not events and await in_thread(lambda: self.needs_no_worker(run)):  # noqa: B023
                return
            await asyncio.sleep(SHORTEST_PAUSE if events else pause)

    def wait(self, run_id: str, timeout: float | None = None) -> RunInfo:
        """Returns the run once it is over or waits for an answer, or as it is after `timeout` seconds."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        watch = UnattendedWarning(self.store)
        for pause in pauses():
            run = self.get(run_id)
            if self.needs_no_worker(run) or time.monotonic() >= until:
                return run
            watch.look(run)
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
        raise AssertionError("pauses never end")

    async def settled(self, run_id: str) -> RunInfo:
        """Async version of `wait`, without a timeout."""
        watch = UnattendedWarning(self.store)
        for pause in pauses():
            run: RunInfo = await in_thread(lambda: self.get(run_id))
            if await in_thread(lambda: self.needs_no_worker(run)):  # noqa: B023
                return run
            await in_thread(lambda: watch.look(run))  # noqa: B023
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    def needs_no_worker(self, run: RunInfo) -> bool:
        """Returns whether the run is over, or waits only for answers of people."""
        return needs_no_worker(self.store, run)

    def answer(self, run_id: str, answer: Answer | str, question: str | None = None, by: str = "") -> RunInfo:
        """Answers a run: an approval with yes or no, or a question in words. The first answer counts.

        `question` is the id of one approval, if several are open.
        """
        check_answer_values(answer, question, by)
        run = self.get(run_id)
        if isinstance(answer, str):
            return self._answer_in_words(run, answer)
        asked = choose_question(run, self.questions(run.id), question)
        self.give(asked, answer, by)
        self.go_on(asked.run)
        return self.get(run.id)

    def send(self, run_id: str, text: str) -> RunInfo:
        """Sends a message to a run that is not over: the model sees it before its next turn, exactly once.

        A run that waits for an answer in words takes it as the answer; one that waits for an approval hears it after
        that. Raises `StoreError` for a run that is over.
        """

        check_words(text, "the message to a run")
        run = self.get(run_id)
        if run.status == "waiting" and asks_in_words(run.waits):
            return self._answer_in_words(run, text)
        run = self.store.send(run.id, text)
        if (engine := local_engine()) is not None:
            engine.note_messages(run.id, self.store)
        return run

    def give(self, question: Question, answer: Answer, by: str = "") -> None:
        """Stores the answer to an approval; `go_on` then resumes the run."""

        check_answer_values(answer, None, by)
        check_answer(question, answer)
        from forge.durable.engine.approval import answer_to_json  # the engine, which reading runs does without

        if not self.store.answer(question.id, answer_to_json(answer), by or answer.by or "person"):
            said = self.store.question(question.id)
            kind = (said.answer or {}).get("kind", "")
            message = f"question {question.id} of run {question.run} was already answered: {kind}, by {said.by}"
            raise StoreError(message, ErrorKind.USER, f"`forge runs show {question.run}` shows its progress.")

    def go_on(self, run_id: str) -> RunInfo:
        """Resumes a waiting run if something it waits for has arrived; otherwise does nothing."""
        run = self.get(run_id)
        if run.status == "waiting" and is_ready(self.store, run):
            return self._start(self.store.advance(run.id, from_segment=run.segment) or self.get(run.id))
        return run

    def mark(self, run_id: str, verdict: str, note: str = "", by: str = "person") -> RunMarked:
        """Marks the answer of a run that is over as "good" or "bad", with a note; "" removes the mark.

        The mark is stored beside the run, and the event that it returns is stored among the run's events.
        """
        return self.store.mark(run_id, verdict, note, by)

    def marks(self, run_ids: Collection[str]) -> dict[str, Mark]:
        """Returns the marks of these runs, by run; omits runs without a mark."""
        return self.store.marks(run_ids)

    def cancel(self, run_id: str) -> RunInfo:
        """Stops a run and its sub-runs. The worker of a running one stops it within seconds."""
        run = self.store.request_cancel(run_id)
        if run.is_over and run.parent:
            self.go_on(run.parent)
        return run

    def delete(self, run_id: str, workspace: Path | None = None) -> None:
        """Removes a run that is over, with its sub-runs and all their data.

        `workspace`: also removes the run's long results there.
        """
        remove(self.store, self._starter.client, self.get(run_id).id, workspace)

    def delete_all(
        self, *, user: str | None = None, tenant: str | None = None, workspace: Path | None = None
    ) -> Iterator[str]:
        """Removes all runs of a user or a tenant that are over, with their sub-runs; yields their ids.

        Runs that are not over stay: cancel them first.
        """
        if not user and not tenant:
            message = "runs of nobody are to be deleted: neither a user nor a tenant is named"
            raise StoreError(message, ErrorKind.VALIDATION, 'Name one: delete_all(tenant="acme").')
        wanted: dict[str, Any] = {"status": OVER, "user": user or None, "tenant": tenant or None, "parent": ""}
        last: tuple[float, str] | None = None
        while some := self.store.list(RunFilter(**wanted, before=last), limit=PAGE):
            last = (some[-1].created, some[-1].id)
            for run in some:
                try:
                    self.delete(run.id, workspace)
                except StoreError as error:  # a sub-run of it is not over
                    if error.kind is not ErrorKind.USER:
                        raise
                    continue
                yield run.id

    def prune(self, seconds: float, workspace: Path | None = None) -> Iterator[int]:
        """Removes every run that has been over for so long, with its sub-runs; yields the number of each batch."""
        return prune(self.store, self._starter.client, seconds, workspace)

    def prune_kept(
        self, workspace: Path | None = None, *, runs: float = 0.0, events: float = 0.0, files: float = 0.0
    ) -> Iterator[int]:
        """Removes ended runs, events and files that are older than so many days; 0 keeps them. Yields the number of
        each batch.
        """
        keep = Retention(runs=runs, events=events, files=files)
        return prune_kept(self.store, self._starter.client, keep, workspace)

    def prunable(self, seconds: float) -> int:
        """Counts the runs that `prune` would remove, without their sub-runs."""
        return count_prunable(self.store, seconds)

    def resume(self, run_id: str, say: str | None = None, model: str = "") -> RunInfo:
        """Resumes a run that ended, with a new message or where it stopped; or queues a run that no worker has.
        `model`: changes its model.
        """
        check_name(model, "the model", empty=True)
        if say is not None:
            check_words(say, "the message to a run")
        run = self.get(run_id)
        self._check_resumable(run, say)
        if model and model != run.scope.get(MODEL):
            run = self.store.set_scope(run.id, {**run.scope, MODEL: model})
        if run.status == "waiting":
            return self._answer_in_words(run, say) if say is not None else self.go_on(run.id)
        return self._advance(run, say) if run.is_over else self._start(run)

    def _check_resumable(self, run: RunInfo, say: str | None) -> None:
        if run.status == "waiting":
            if say is not None:
                self._check_takes_words(run)
        elif not run.is_over:
            if say is not None:
                message = f"run {run.id} is {run.status}, so it cannot take a message now"
                raise StoreError(
                    message, ErrorKind.USER, f"Wait until it is over, or stop it: forge runs cancel {run.id}"
                )
        elif say is None and run.status == "finished" and (run.result or {}).get("reason") in FINE:
            message = f"run {run.id} is finished: there is nothing to resume"
            raise StoreError(message, ErrorKind.USER, f'Give it something to do: forge runs resume {run.id} --say "…"')

    def migrate(self, run_id: str, version: str) -> RunInfo:
        """Gives a run and its sub-runs to workers of another application version."""
        check_name(version, "the version")
        found = self.get(run_id)
        for run in self._family(found):
            if run.id == found.id or not run.is_over:
                changed = self.store.set_version(run.id, version)
                if not changed.is_over:
                    change_key(self.store.database, changed)
        return self.get(found.id)

    def _family(self, run: RunInfo) -> Iterator[RunInfo]:
        yield run
        for child in self.store.list(RunFilter(parent=run.id), limit=1_000):
            yield from self._family(child)

    def _answer_in_words(self, run: RunInfo, words: str) -> RunInfo:
        self._check_takes_words(run)
        return self._advance(run, words)

    def _check_takes_words(self, run: RunInfo) -> None:
        if not asks_in_words(run.waits):
            if run.status == "waiting" and self.questions(run.id):
                problem = f"run {run.id} waits for an approval, which a text cannot give"
                raise StoreError(
                    problem,
                    ErrorKind.USER,
                    f"Approve or deny: forge runs answer {run.id} --yes, or --no with a reason.",
                )
            raise nothing_asked_error(run)

    def _advance(self, run: RunInfo, words: str | None) -> RunInfo:
        say = (Message("user", words),) if words is not None else ()
        queued = self.store.advance(run.id, say=say, from_segment=run.segment, revive=True)
        if queued is None:
            problem = f"run {run.id} continued in the meantime, so your message was not used"
            raise StoreError(problem, ErrorKind.USER, f"`forge runs show {run.id}` shows its progress.")
        return self._start(queued)

    def _start(self, run: RunInfo) -> RunInfo:
        if run.status in ("queued", "running"):  # a running segment stays as it is
            self._starter.start(run)
        return run


# Chooses the question that an answer belongs to, and checks the answer.


def check_answer_values(answer: object, question: object, by: object) -> None:
    """Checks the types of an answer. Raises `StoreError`, as all functions here do."""
    from forge.permissions.questions import Answer  # loads the rules, which reading runs does without

    check_name(by, "the name of the person who answers", empty=True)
    if question is not None:
        check_text(question, "the id of a question")
    if isinstance(answer, Answer):
        check_text(answer.feedback, "the feedback of an answer")
        check_name(answer.by, "the name of the person who answers", empty=True)
        return
    if not isinstance(answer, str):
        message = f"an answer must be an Answer or a text, not {brief(answer)}"
        raise StoreError(message, ErrorKind.VALIDATION, 'Pass Answer.ONCE, Answer.no("why"), or a str.')
    check_words(answer, "the answer")


def check_answer(question: Question, answer: Answer) -> None:
    """Checks an answer against the call that was asked about."""
    shown = question.request
    if answer.arguments is not None and not shown.get("editable") and not shown.get("form"):
        message = f"{question.tool} asks for this during its call, so its arguments can no longer be changed"
        raise StoreError(message, ErrorKind.USER, "Answer with yes or no.")
    effects = shown.get("effects")
    if answer.paths is not None and answer.kind != "no":
        known = {path for _, path in effects.get("files", ())} if isinstance(effects, Mapping) else set()
        if unknown := [path for path in answer.paths if path not in known]:
            message = f"{brief(unknown[0])} is no effect of this call of {question.tool}"
            raise StoreError(message, ErrorKind.USER, "Choose among the effects that the question shows.")
    if answer.kind == "always" and not shown.get("remember"):
        message = f"this call of {question.tool} cannot be approved for always"
        raise StoreError(message, ErrorKind.USER, "Answer with yes, which approves this call only.")
    if answer.arguments is not None and answer.kind != "no" and isinstance(shown.get(TAKES), Mapping):
        _check_fits(question.tool, shown[TAKES], answer.arguments)


def choose_question(run: RunInfo, asked: Sequence[Question], question: str | None) -> Question:
    """Returns the question of this id, or the only one."""
    found = [one for one in asked if question is None or one.id == question]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{one.id} ({one.tool})" for one in found)
        raise StoreError(
            f"run {run.id} has several open questions: {names}", ErrorKind.USER, "Choose one with --question ID."
        )
    if question is not None:
        message = f"run {run.id} has no question with the id {brief(question)}"
        raise StoreError(message, ErrorKind.NOT_FOUND, f"`forge runs show {run.id}` shows its questions.")
    if asks_in_words(run.waits):
        message = f"run {run.id} asks a question that needs a text as answer"
        raise StoreError(message, ErrorKind.USER, f'Answer it: forge runs answer {run.id} "…"')
    raise nothing_asked_error(run)


def nothing_asked_error(run: RunInfo) -> StoreError:
    state = "does not wait for a person" if run.status == "waiting" else f"is {run.status}"
    message = f"run {run.id} {state}: there is nothing to answer"
    hint = f'To resume it: forge runs resume {run.id} --say "…"' if run.is_over else "Check again in a moment."
    return StoreError(message, ErrorKind.USER, hint)


def _check_fits(tool: str, takes: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Checks the arguments as the tool itself will, as far as its stored schema allows."""
    from forge.core.arguments.schema import check_schema, compile_parser  # few answers have other arguments

    try:
        schema, aliases = takes["parameters"], dict(takes.get("aliases") or {})
        check_schema(tool, schema)
        spec = ToolSpec(
            name=tool, description="", parameters=schema, argument_aliases=aliases, strict=bool(takes.get("strict"))
        )
        parse = compile_parser(spec)
    except (DefinitionError, KeyError, TypeError, ValueError):  # the tool checks them itself when it is called
        return
    try:
        parse(object_of(arguments))
    except ToolError as error:
        message = f"the arguments are not valid for {tool}: {error.message}"
        raise StoreError(message, ErrorKind.VALIDATION, error.suggestion) from error


# Decides when to stop waiting for a run: it is over, or only a person can resume it.


SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds between two queries of a run


def needs_no_worker(store: RunStore, run: RunInfo) -> bool:
    """Returns whether the run is over, or waits only for answers of people."""
    if run.status != "waiting":
        return run.is_over
    return all(_needs_person(store, wait) for wait in run.waits)


def pauses() -> Iterator[float]:
    """Yields the pauses between queries, short at first, without end."""
    pause = SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(LONGEST_PAUSE, pause * 1.3)


def _needs_person(store: RunStore, wait: Wait) -> bool:
    if wait.question_id:
        return store.question(wait.question_id).answer is None
    if wait.run_id:
        child = store.get(wait.run_id)
        return not child.is_over and needs_no_worker(store, child)
    return asks_in_words([wait])
