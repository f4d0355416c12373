"""Runs, for everybody who only asks: begin one, see how far it is, answer it, stop it. No engine has to run here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import sqlalchemy as sa

from forge.agent.result import RunResult
from forge.core.errors import ErrorKind
from forge.core.events import Event
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.durable.client.answering import check_answer, check_answer_values, choose_question, nothing_asked_error
from forge.durable.client.attending_workers import UnattendedWarning, has_worker
from forge.durable.client.following import RunFollower
from forge.durable.client.pruning import count_prunable, prune, remove
from forge.durable.client.waiting_for_runs import SHORTEST, needs_no_worker, pauses
from forge.durable.engine.agents import MODEL
from forge.durable.engine.approval import answer_to_json
from forge.durable.engine.follow_up import is_ready
from forge.durable.engine.queues import DEFAULT
from forge.durable.engine.starter import Starter, workflow_id
from forge.durable.engine.tracing import carrier
from forge.durable.store import RunStore
from forge.durable.store.check_input import check_messages, check_name, check_new, check_text, check_words
from forge.durable.store.database import Database
from forge.durable.store.results import run_result
from forge.durable.store.rows import NewRun, Question, RunInfo
from forge.permissions.answers import Answer
from forge.workspace.state.store import StoreError

VERSION = "0"  # of applications that name none; workers that name none have the same

FINE = ("answer", "task_completion", "converse", "question")

Infos = list[RunInfo]  # named here, because runs have a `list` of their own
Messages = list[Message]
Questions = list[Question]
Numbered = list[tuple[int, dict[str, Any]]]


def new_run_id() -> str:
    return f"run-{uuid4().hex[:12]}"


class Runs:
    """The runs of a database. Every method but `follow` and `settled` blocks for as long as the database takes.

    Ids are whole ones; `find` is for people who type their beginnings. Errors are `StoreError`: what was tried, what
    went wrong, what to do next.
    """

    def __init__(self, database: str | RunStore) -> None:
        self.store = database if isinstance(database, RunStore) else RunStore(database)
        self._starter = Starter(self.store)

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
        """Begin a run and leave it to whoever has time; the same `run_id` begins it once.

        `messages` is all that the model is shown first, the prompt included; by default the prompt alone.
        """
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
        self._starter.client  # noqa: B018 - makes the tables where the database is new
        return self._start(self.store.create(new))

    def get(self, run_id: str) -> RunInfo:
        return self.store.get(run_id)

    def find(self, beginning: str) -> RunInfo:
        """The run of this id, or the only one whose id begins so."""
        return self.store.find(beginning)

    def is_attended(self, run: RunInfo) -> bool:
        """Whether a living worker takes it."""
        return has_worker(self.store, run)

    def list(self, **wanted: Any) -> Infos:
        """The newest first; `wanted` as `RunStore.list` takes it."""
        return self.store.list(**wanted)

    def messages(self, run_id: str) -> Messages:
        return self.store.messages(self.get(run_id).id)

    def result(self, run_id: str) -> RunResult:
        """How it ended; while it has not, `reason` is "waiting"."""
        run = self.get(run_id)
        return run_result(run, self.store.messages(run.id))

    def questions(self, run_id: str | None = None) -> Questions:
        """What a run, and those it started, ask a person to allow; without an id, what any run asks."""
        if run_id is None:
            return self.store.questions()
        return [one for run in self._family(self.get(run_id)) for one in self.store.questions(run.id)]

    def events(self, run_id: str, after: int = 0) -> Numbered:
        """Of this run alone, as they are stored. `follow` makes one stream of a run and those it started."""
        return self.store.events(self.get(run_id).id, after)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """What happens, until the run is over or waits for somebody."""
        following = RunFollower(self.store, (await in_thread(lambda: self.get(run_id))).id, after)
        for pause in pauses():
            run, events = await in_thread(following.read_new)
            for event in events:
                yield event
            if not events and await in_thread(lambda: self.needs_no_worker(run)):  # noqa: B023
                return
            await asyncio.sleep(SHORTEST if events else pause)

    def wait(self, run_id: str, timeout: float | None = None) -> RunInfo:
        """The run once it is over or waits for somebody, or as it is after so many seconds."""
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
        """The same, for programs with an event loop."""
        watch = UnattendedWarning(self.store)
        for pause in pauses():
            run: RunInfo = await in_thread(lambda: self.get(run_id))
            if await in_thread(lambda: self.needs_no_worker(run)):  # noqa: B023
                return run
            await in_thread(lambda: watch.look(run))  # noqa: B023
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    def needs_no_worker(self, run: RunInfo) -> bool:
        """Whether nothing more happens by itself: the run is over, or all it waits for is somebody's answer."""
        return needs_no_worker(self.store, run)

    def answer(self, run_id: str, answer: Answer | str, question: str | None = None, by: str = "") -> RunInfo:
        """Answer what a run waits for: a yes or no to a call, or the words that answer its question. Taken once.

        `question` is the id of one approval, where several are asked for.
        """
        check_answer_values(answer, question, by)
        run = self.get(run_id)
        if isinstance(answer, str):
            return self._answer_in_words(run, answer)
        asked = choose_question(run, self.questions(run.id), question)
        self.give(asked, answer, by)
        self.go_on(asked.run)
        return self.get(run.id)

    def give(self, question: Question, answer: Answer, by: str = "") -> None:
        """Store the answer to an approval; the run goes on with `go_on`."""
        check_answer_values(answer, None, by)
        check_answer(question, answer)
        if not self.store.answer(question.id, answer_to_json(answer), by or answer.by or "person"):
            said = self.store.question(question.id)
            kind = (said.answer or {}).get("kind", "")
            words = f"question {question.id} of run {question.run} was answered before: {kind}, by {said.by}"
            raise StoreError(words, ErrorKind.USER, f"`forge runs show {question.run}` tells how far it is.")

    def go_on(self, run_id: str) -> RunInfo:
        """Let a run go on that waits for something that is there; nothing, where there is none."""
        run = self.get(run_id)
        if run.status == "waiting" and is_ready(self.store, run):
            return self._start(self.store.advance(run.id, from_segment=run.segment) or self.get(run.id))
        return run

    def cancel(self, run_id: str) -> RunInfo:
        """Stop a run, and those that it started. One that is at work is stopped by its worker, within seconds."""
        run = self.store.request_cancel(run_id)
        if run.is_over and run.parent:
            self.go_on(run.parent)
        return run

    def delete(self, run_id: str, workspace: Path | None = None) -> None:
        """Remove a run that is over, and those it started, with all that was said in it.

        `workspace`: its long results are removed there too.
        """
        remove(self.store, self._starter.client, self.get(run_id).id, workspace)

    def prune(self, seconds: float, workspace: Path | None = None) -> Iterator[int]:
        """Remove every run that has been over for so long, with those it started; how many, in batches as they go."""
        return prune(self.store, self._starter.client, seconds, workspace)

    def prunable(self, seconds: float) -> int:
        """How many runs `prune` would remove, those that they started not counted."""
        return count_prunable(self.store, seconds)

    def resume(self, run_id: str, say: str | None = None, model: str = "") -> RunInfo:
        """Go on with a run that ended, with something new to say or where it broke off; or see to it that one goes on
        which nobody works on. `model`: another one than it has been asking."""
        check_name(model, "the model", empty=True)
        if say is not None:
            check_words(say, "what is said to a run")
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
                words = f"run {run.id} is {run.status}, and cannot be told anything now"
                raise StoreError(
                    words, ErrorKind.USER, f"Wait until it is over, or stop it: forge runs cancel {run.id}"
                )
        elif say is None and run.status == "finished" and (run.result or {}).get("reason") in FINE:
            words = f"run {run.id} is finished: there is nothing to go on with"
            raise StoreError(words, ErrorKind.USER, f'Say what to do next: forge runs resume {run.id} --say "…"')

    def migrate(self, run_id: str, version: str) -> RunInfo:
        """Give a run, and those it started, to workers of another application version."""
        check_name(version, "the version")
        found = self.get(run_id)
        for run in self._family(found):
            if run.id == found.id or not run.is_over:
                changed = self.store.set_version(run.id, version)
                if not changed.is_over:
                    _set_version(self.store.database, workflow_id(changed.id, changed.segment), version)
        return self.get(found.id)

    def _family(self, run: RunInfo) -> Iterator[RunInfo]:
        yield run
        for child in self.store.list(parent=run.id, limit=1_000):
            yield from self._family(child)

    def _answer_in_words(self, run: RunInfo, words: str) -> RunInfo:
        self._check_takes_words(run)
        return self._advance(run, words)

    def _check_takes_words(self, run: RunInfo) -> None:
        if not any(wait.kind == "question" for wait in run.waits):
            if run.status == "waiting" and self.questions(run.id):
                problem = f"run {run.id} waits for a yes or a no, and words are neither"
                raise StoreError(problem, ErrorKind.USER, f"forge runs answer {run.id} --yes, or --no and why.")
            raise nothing_asked_error(run)

    def _advance(self, run: RunInfo, words: str | None) -> RunInfo:
        say = (Message("user", words),) if words is not None else ()
        queued = self.store.advance(run.id, say=say, from_segment=run.segment, revive=True)
        if queued is None:
            problem = f"run {run.id} went on meanwhile, and your words were not needed"
            raise StoreError(problem, ErrorKind.USER, f"`forge runs show {run.id}` tells how far it is.")
        return self._start(queued)

    def _start(self, run: RunInfo) -> RunInfo:
        if run.status in ("queued", "running"):  # the second: a segment that is under way stays as it is
            self._starter.start(run)
        return run


def _set_version(database: Database, workflow: str, version: str) -> None:
    """Of a segment that is queued, or that a dead worker had. DBOS's table is documented; no call of it does this."""
    columns = [sa.column(name, sa.Text) for name in ("workflow_uuid", "application_version", "status")]
    table = sa.table("workflow_status", *columns, schema=None if database.is_sqlite else "dbos")
    is_open = table.c.status.in_(("ENQUEUED", "DELAYED", "PENDING"))
    change = sa.update(table).where(table.c.workflow_uuid == workflow, is_open).values(application_version=version)
    database.write(lambda connection: connection.execute(change))
