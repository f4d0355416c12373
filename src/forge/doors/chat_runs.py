"""Lets chats start and show durable runs: workers run them, so a question outlives both this process and the worker.

A message begins its run only once, because the run's id is made of the message. A run that something else submitted
for a chat, such as an alert, is shown there, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.agent.result import RunResult
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.doors.open_session import MODEL, OpenSession
from forge.permissions.questions import Answer, PermissionRequest
from forge.project.project import RunOptions
from forge.project.runs.durable_runs import (
    build_request,
    check_installed,
    is_own,
    make_own_file,
    project_database,
    project_version,
    store_in_session,
)

if TYPE_CHECKING:  # an extra, and slow to import
    from forge.durable.client import Runs
    from forge.durable.store.rows import Question, RunInfo

LOOK = 1.0  # seconds between two looks at a run that a person is asked about, and for runs of others
KNOWN_FOR = 3 * 24 * 3600.0  # seconds for which a run of others is looked for

Ask = Callable[[PermissionRequest], Coroutine[Any, Any, Answer]]
Ends = Callable[[PermissionRequest, Answer], None]


class ChatRuns:
    """The stored runs of a channel's conversations."""

    def __init__(self, runs: Runs, version: str, channel: str) -> None:
        self.runs, self.version, self.channel = runs, version, channel
        self._since = time.time() - KNOWN_FOR

    # Begins runs.

    def run_id(self, chat: str, message: str) -> str:
        """Returns the id of the run that a message begins."""
        key = "\0".join((self.channel, chat, message))
        return f"chat-{sha256(key.encode()).hexdigest()[:16]}"

    async def begin(
        self, session: OpenSession, prompt: str | Message, run_id: str, *, was_begun: bool
    ) -> tuple[RunInfo, int]:
        """Begins the run of a message, or answers the run that asks in words. Returns the run, and its last event.

        With `was_begun`, an earlier process may have done so: nothing is done twice. Raises `ToolError`.
        """
        from forge.durable.store.rows import INITIAL_MESSAGES
        from forge.durable.store.rows import MODEL as MODEL_KEY
        from forge.durable.store.waits import asks_in_words

        history, stored = list(session.messages), session.stored.session
        model = stored.meta.get(MODEL) if stored is not None else None
        messages = session.agent.begin(prompt, list(history), session.name).messages
        text = prompt if isinstance(prompt, str) else prompt.text
        scope = {INITIAL_MESSAGES: len(history), **({MODEL_KEY: model} if isinstance(model, str) else {})}

        def begin() -> tuple[RunInfo, int]:
            if (own := self.find(run_id)) is not None:
                return own, 0
            last = self._last(session.name)
            if last is not None and was_begun and _has_said(self.runs.messages(last.id), text):
                return last, 0
            if last is not None and asks_in_words(last.waits):
                after = self._last_event(last)
                return self.runs.answer(last.id, text, by=self.channel), after
            if last is not None and not last.is_over:
                message = f"the run {last.id} of this conversation is {last.status}"
                raise ToolError(message, ErrorKind.USER, f"Wait for it, or stop it: forge runs cancel {last.id}")
            new = self.runs.submit(
                text,
                agent=session.agent.name,
                session=session.name,
                version=self.version,
                run_id=run_id,
                messages=messages,
                scope=scope,
            )
            return new, 0

        return await in_thread(begin)

    async def resume(self, session: OpenSession) -> tuple[RunInfo, int]:
        """Resumes the latest run of the conversation. Raises `ToolError` where there is nothing to resume."""

        def resume() -> tuple[RunInfo, int]:
            last = self._last(session.name)
            if last is None:
                raise ToolError("there is no run to go on with", ErrorKind.USER, "Write what you want done.")
            after = self._last_event(last)
            return (self.runs.resume(last.id) if last.is_over else last), after

        return await in_thread(resume)

    async def cancel(self, run_id: str) -> None:
        """Stops a run: its worker does within seconds."""
        await in_thread(lambda: self.runs.cancel(run_id))

    def find(self, run_id: str) -> RunInfo | None:
        with suppress(ToolError):
            return self.runs.get(run_id)
        return None

    def find_submitted(self) -> list[tuple[RunInfo, str]]:
        """Returns the runs that something else submitted for chats of this channel since the last look, with the chats.

        Those of the last minute are found again: they may be visible later than others that are newer.
        """
        before: tuple[float, str] | None = None
        found, newest = [], self._since + 60.0
        while some := self.runs.list(parent="", since=self._since, before=before, limit=200):
            for run in some:
                newest, chat = max(newest, run.created), run.scope.get("chat_id")
                if run.scope.get("channel") == self.channel and isinstance(chat, str) and chat:
                    found.append((run, chat))
            before = (some[-1].created, some[-1].id)
        self._since = newest - 60.0
        return found[::-1]

    def _last(self, session: str) -> RunInfo | None:
        return next(iter(self.runs.list(session=session, parent="", limit=1)), None)

    def _last_event(self, run: RunInfo) -> int:
        after = 0
        while events := self.runs.events(run.id, after):
            after = events[-1][0]
        return after

    # Follows runs.

    async def follow(
        self, run: RunInfo, session: OpenSession, ask: Ask, end: Ends, hear: Callable[[object], None], after: int
    ) -> RunResult:
        """Follows a run to its end, or to its question in words; asks what it asks, and stores it in the session.

        `end` ends a question that was answered elsewhere. `hear` receives the events after the number `after`.
        """
        from forge.durable.client import pauses
        from forge.durable.client.following import RunFollower
        from forge.durable.store.encoding import run_result
        from forge.durable.store.waits import IN_WORDS, asks_in_words

        following, waits = RunFollower(self.runs.store, run.id, after), pauses()
        while True:
            run, events = await in_thread(following.read_new)
            for event in events:
                hear(event)
            if not events and (run.is_over or asks_in_words(run.waits)):
                break
            if not events and await in_thread(lambda: self.runs.needs_no_worker(run)):  # noqa: B023
                await self._ask(run, session, ask, end)
                waits = pauses()
            await asyncio.sleep(0 if events else next(waits))
        result = run_result(run, await in_thread(lambda: self.runs.messages(run.id)))
        if asks_in_words(run.waits):
            result.reason, result.text = "question", next(one.text for one in run.waits if one.kind == IN_WORDS)
        elif session.store is not None:
            async with session.store.turn(session.name):
                store_in_session(replace(run, session=session.name), self.runs.store, session.store)
            session.stored.refresh()
        return result

    async def _ask(self, run: RunInfo, session: OpenSession, ask: Ask, end: Ends) -> None:
        """Asks the first open question of a run, until it is answered here or elsewhere."""
        question = next(iter(await in_thread(lambda: self.runs.questions(run.id))), None)
        if question is None:
            return
        if not question.can_answer:
            hint = f"forge runs resume {run.id} has it asked again."
            raise ToolError(question.problem or "a question of the run cannot be shown", ErrorKind.SYSTEM, hint)
        request = build_request(question, session.agent.registry, session.agent.scope)
        asking = asyncio.create_task(ask(request))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=LOOK)
                if not asking.done() and (found := await in_thread(lambda: self._answer_elsewhere(question))):
                    end(request, found)
                    await asking
                    return
            answer = asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        with suppress(ToolError):  # someone else was quicker: the first answer counts
            await in_thread(lambda: self.runs.answer(run.id, answer, question.id, by=answer.by))

    def _answer_elsewhere(self, question: Question) -> Answer | None:
        """Returns the answer that a question got by other means; None while it is open."""
        said = self.runs.store.question(question.id)
        if said.answer is not None:
            kind = str(said.answer.get("kind", "no"))
            return Answer(kind, str(said.answer.get("feedback", "")), by=said.by or "a person elsewhere")  # type: ignore[arg-type]
        if self.runs.get(question.run).is_over:
            return Answer.no("the run was stopped", by=f"run {question.run}")
        return None


def open_runs(options: RunOptions, workspace: Path, database: str, version: str) -> tuple[Runs, str]:
    """Opens the stored runs of a project; returns also the version of those that it begins. Raises `ToolError`."""
    check_installed()
    from forge.durable.client import Runs

    url = project_database(options.configuration, workspace, database or None)
    if is_own(url, workspace):
        make_own_file(workspace)
    built = options.built.sha256 if options.built is not None else ""
    runs = Runs(url)
    runs.store.prepare()  # makes the tables where the database is new
    return runs, version or project_version(options.configuration, built)


def _has_said(messages: list[Message], text: str) -> bool:
    return any(one.role == "user" and one.text == text for one in messages)
