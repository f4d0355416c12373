"""Lets people talk to a project's agent in chats: Slack, Telegram, or a channel of one's own.

A conversation is a stored session. A message starts a run, or steers the one in progress; `stop` stops it. What the
rules ask is asked in the conversation, with buttons that are signed, expire and count once. Everything passes `Inbox`,
so that a killed process loses nothing and repeats nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from socket import socket
from typing import Any

from forge.agent.labels import FROM_FORGE, LABELS, SAID, quote_text
from forge.agent.result import RunResult
from forge.channels.channel import Incoming, IncomingFile, Receiver, TakesRequests
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import MessageReceived, RunStarted, ToolFinished
from forge.core.execution.threads import in_thread
from forge.core.extras import check_extra
from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.result import UNTRUSTED, Attachment, Audio, Document, Image
from forge.core.untrusted import one_line
from forge.doors.chat_questions import ChatQuestion, SignedButtons
from forge.doors.chat_runs import LOOK, ChatRuns, open_runs
from forge.doors.inbox import Inbox, StoredMessage
from forge.doors.open_session import COMMANDS, OpenSession, open_session
from forge.network.asgi import read_body
from forge.permissions.questions import Answer, PermissionRequest, request_text
from forge.project.assemble.access import project_scope
from forge.project.assemble.services import build_channel
from forge.project.project import RunOptions, require_trust
from forge.project.runs.scheduled_runs import collect_files
from forge.project.runs.sessions import new_name
from forge.workspace.reading import LARGEST_FILES
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory

ANSWER_WITHIN = 3600.0  # seconds for a person to answer a question
IDLE = 600.0  # seconds after which the agent of a silent conversation is closed
BUSY = 15.0  # the same, where other conversations may be waiting for a place
MOST_OPEN = 20  # conversations with an open agent; others wait
MOST_WAITING = 50  # messages of one conversation that wait
LONGEST_TEXT = 50_000  # characters of a message
LONGEST_ID = 200  # characters of an id of a message, a chat or a person
LONGEST_SHOWN = 9_000  # characters of a question in messages; a longer one is also sent as a file
LARGEST_FILE = 10_000_000  # bytes of a file that a person sends
LARGEST_REQUEST = 1024 * 1024  # bytes of a request of a service
MOST_TRIES = 8  # to send an answer
MOST_TOLD = 1_000  # remarks that are not repeated
SUBMITTED = "run "  # begins the id of a message that stands for a run which something else submitted

STOP = frozenset({"stop", "/stop", "!stop", "cancel", "/cancel"})
FREE_COMMANDS = frozenset({"/compact", "/context", "/cost", "/diff", "/help", "/tools"})  # the others are for approvers
OWN_COMMANDS = {
    "/continue": "go on with a run that was interrupted",
    "/new": "begin a new session",
    "/stop": "stop the run in progress",
}
REPEATED = "(This may be here twice: Forge was stopped while it was sending it.)\n"
GREETING = "Write what you want done. /help lists the commands."

log = logging.getLogger(__name__)

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Chat:
    """A channel to listen to, and who may do what there. Nobody may do anything unless named.

    Args:
        channel: the channel.
        people: the ids of the people whose messages start and steer runs.
        approvers: the ids of the people who may answer questions.

    Example:
        >>> from forge.channels.telegram import Telegram
        >>> Chat(Telegram("123:abc"), people={"42"}).approvers
        ()
    """

    channel: Receiver
    people: Collection[str] = ()
    approvers: Collection[str] = ()


async def listen(
    options: RunOptions,
    chats: Mapping[str, Chat] | None = None,
    *,
    model: str | None = None,
    listening: socket | None = None,
    answer_within: float = ANSWER_WITHIN,
    progress: Progress = lambda entry: None,
    durable: bool = False,
    database: str = "",
    version: str = "",
) -> None:
    """Listens until cancelled. Raises `ToolError` where that is not possible, such as for a wrong token.

    Args:
        options: the workspace and the flags. Without a `config`, the workspace's own counts once it is trusted.
        chats: the channels by name; by default those of `forge.yaml` in which people are named.
        model: instead of the configured model.
        listening: an open socket, for channels whose service sends requests: `/NAME` is the path of each.
        answer_within: the seconds that people have to answer a question; then the answer is no.
        progress: receives what happens, each as a dictionary with the key `event`.
        durable: True: runs are stored, workers run them, and their questions outlive this process.
        database: with `durable`: the URL of the database; by default that of the project.
        version: with `durable`: the version of the workers; by default that of the project.

    Example:
        >>> class Room:
        ...     async def listen(self, receive):
        ...         await receive(Incoming(id="1", chat="lobby", person="ann", text="Hello?"))
        ...         await asyncio.Event().wait()
        ...     async def send(self, text, attachments=(), *, to=""):
        ...         print(f"{to}: {text}")
        ...         said.set()
        ...     async def ask(self, text, buttons, *, to): ...
        ...     async def close_question(self, message, text, *, to): ...
        ...     async def fetch_file(self, file, most): ...
        >>> _ = Path("hello.yaml").write_text("- Hello, Ann!")
        >>> async def main():
        ...     room = {"room": Chat(Room(), people={"ann"})}
        ...     options = RunOptions(workspace=".")
        ...     listening = asyncio.create_task(listen(options, room, model="scripted:hello.yaml"))
        ...     await asyncio.wait({listening, asyncio.create_task(said.wait())}, return_when="FIRST_COMPLETED")
        ...     listening.cancel()
        >>> said = asyncio.Event()
        >>> asyncio.run(main())
        lobby: Hello, Ann!
    """
    if chats is None:
        chats = find_chats(options)
    options = _require_trust(options)
    workspace = project_scope(options.workspace, options.configuration).workspace
    directory = state_directory(workspace)
    if directory != workspace / STATE:
        problem, hint = explain_unusable(workspace)
        raise ToolError(f"{problem}, so messages cannot be kept there", ErrorKind.CONFIG, hint)
    settings = _Settings(options, model, answer_within, progress, asyncio.Semaphore(MOST_OPEN))
    async with AsyncExitStack() as stack:
        runs, version = open_runs(options, workspace, database, version) if durable else (None, "")
        if runs is not None:
            stack.callback(runs.close)
        doors = {}
        for name, chat in chats.items():
            inbox = Inbox(directory, name)
            stack.callback(inbox.close)
            stack.enter_context(inbox.hold())
            stored = ChatRuns(runs, version, name) if runs is not None else None
            doors[name] = _Door(name, chat, inbox, settings, stored)
        work = [door.work() for door in doors.values()]
        served = {name: door for name, door in doors.items() if door.takes_requests}
        if served:
            work.append(_serve(served, listening))
        await _run_together(work)


def _require_trust(options: RunOptions) -> RunOptions:
    """Returns the options with the trusted `forge.yaml` of the workspace. Raises `ToolError` for an untrusted one."""
    if options.config is not None or options.built is not None:
        return options
    return replace(options, config=require_trust(options.workspace or "."))


def find_chats(options: RunOptions, names: Collection[str] = ()) -> dict[str, Chat]:
    """Returns the project's channels in which people are named; `names`: only these. Raises `ToolError`."""
    configuration = _require_trust(options).configuration
    entries = configuration.channels
    for name in names:
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise ToolError(f"there is no channel {name[:60]!r}", ErrorKind.NOT_FOUND, f"The channels are: {known}.")
    found = {}
    for name, entry in entries.items():
        if (names and name not in names) or (not names and not entry.people):
            continue
        if not entry.people:
            hint = (
                f"Write who may talk to the agent: {entry.key_path}.people: [ID]. docs/chats.md says how to find ids."
            )
            raise ToolError(
                f"listening to the channel {name}: nobody may talk to the agent there", ErrorKind.CONFIG, hint
            )
        channel = build_channel(configuration, entry)
        assert isinstance(channel, Receiver)  # the keys of the others do not include people
        found[name] = Chat(channel, entry.people, entry.approvers)
    if not found:
        hint = "Add one to forge.yaml: channels: {team: {type: slack, …, people: [ID]}}. docs/chats.md has the steps."
        raise ToolError("there is no channel in which people may talk to the agent", ErrorKind.CONFIG, hint)
    return found


async def _run_together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all until one fails, and raises its error; the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Settings:
    options: RunOptions
    model: str | None
    answer_within: float
    progress: Progress
    places: asyncio.Semaphore  # for conversations with an open agent


def _clean_incoming(incoming: Incoming) -> Incoming:
    """Returns what was received as text that can be stored."""
    return replace(
        incoming,
        id=sendable(incoming.id),
        chat=sendable(incoming.chat),
        person=sendable(incoming.person),
        text=sendable(incoming.text),
        button=sendable(incoming.button),
        files=tuple(replace(one, id=sendable(one.id), name=sendable(one.name)) for one in incoming.files),
    )


class _Door:
    """One channel: who may talk there, its conversations, and what is to be sent."""

    def __init__(self, name: str, chat: Chat, inbox: Inbox, settings: _Settings, stored: ChatRuns | None) -> None:
        self.name, self.channel, self.inbox, self.settings = name, chat.channel, inbox, settings
        self.stored = stored  # None: this process does the runs itself
        self.people, self.approvers = frozenset(map(str, chat.people)), frozenset(map(str, chat.approvers))
        self.conversations: dict[str, _Conversation] = {}
        self.questions: dict[str, ChatQuestion] = {}
        self.buttons = SignedButtons(name, self.approvers, inbox.path)
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: OrderedDict[tuple[str, ...], None] = OrderedDict()

    @property
    def takes_requests(self) -> bool:
        return isinstance(self.channel, TakesRequests) and self.channel.takes_requests

    async def work(self) -> None:
        """Listens until cancelled. First it does what an earlier process left."""
        try:
            self.buttons.sign("", "")  # without a key, no question could be answered
            self.inbox.forget_old()
            for chat, message in self.inbox.take_stale_questions():
                self.start(self._close_question(chat, message, "This question is over: Forge was restarted."))
            for chat in self.inbox.list_chats():
                self.send_soon(chat)
                if self.inbox.list_open(chat):
                    self.wake(chat)
            if self.stored is not None:
                self.start(self._show_submitted(self.stored))
            self.note("listening")
            await self.channel.listen(self.receive)
            raise ToolError(
                f"the channel {self.name} stopped listening", ErrorKind.SYSTEM, "Start `forge listen` again."
            )
        finally:
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def receive(self, incoming: Incoming) -> None:
        """Takes what the channel received: refuses it, or stores it. Raises `StoreError` if it cannot be stored."""
        incoming = _clean_incoming(incoming)
        if any(not one or len(one) > LONGEST_ID for one in (incoming.id, incoming.chat, incoming.person)):
            self.note("problem", problem="a message without an id, a chat or a person was dropped")
            return
        if incoming.button:
            self._press(incoming)
            return
        is_known = self.inbox.find_session(incoming.chat) is not None
        if not incoming.is_addressed and not is_known:
            return  # people talk to each other
        if not self._may_talk(incoming):
            self._refuse(incoming)
            return
        if not incoming.text.strip() and not incoming.files:
            return
        problem = ""
        if len(incoming.text) > LONGEST_TEXT:
            problem = (
                f"This message is too long: it has {len(incoming.text):,} characters, and {LONGEST_TEXT:,} may be."
            )
        elif len(self.inbox.list_open(incoming.chat)) >= MOST_WAITING:
            problem = f"This message was not taken: {MOST_WAITING} others wait. Write `stop` to drop them."
        if problem:
            self.tell(incoming.chat, problem, incoming.id)
        elif self.inbox.add(incoming):
            self.note("received", incoming)
            self.wake(incoming.chat)

    async def _show_submitted(self, stored: ChatRuns) -> None:
        """Shows runs that something else submitted for a chat of this channel, each once."""
        problem = ""
        while True:
            try:
                for run, chat in await in_thread(stored.find_submitted):
                    incoming = Incoming(id=f"{SUBMITTED}{run.id}", chat=chat, person="", text=sendable(run.prompt))
                    if self.inbox.add(replace(incoming, text=incoming.text[:LONGEST_TEXT])):
                        self.note("submitted", chat=chat, run=run.id)
                        self.wake(chat)
                problem = ""
            except ToolError as error:  # such as a database that is away
                if error.message != problem:
                    self.note("problem", problem=error.message)
                problem = error.message
            await asyncio.sleep(LOOK)

    def _may_talk(self, incoming: Incoming) -> bool:
        waits = (one for one in self.questions.values() if one.chat == incoming.chat)
        return incoming.person in self.people or any(one.waits_for == incoming.person for one in waits)

    def _refuse(self, incoming: Incoming) -> None:
        """Answers a stranger, once a day; nothing of what was written is kept."""
        if incoming.is_addressed and self.inbox.may_refuse(incoming.person):
            self.note("refused", incoming)
            who = one_line(incoming.person, 60)
            self.tell(incoming.chat, f"I may not work for you here. The owner of this bot can add your id, {who}.")

    def tell(self, chat: str, text: str, *once: str) -> None:
        """Sends a remark; with `once`, only the first time."""
        if once:
            key = (chat, text[:40], *once)
            if key in self._told:
                return
            self._told[key] = None
            while len(self._told) > MOST_TOLD:
                self._told.popitem(last=False)
        self.inbox.finish([], chat, text)
        self.send_soon(chat)

    def wake(self, chat: str) -> None:
        """Lets the conversation look for new messages."""
        if (found := self.conversations.get(chat)) is None:
            found = self.conversations[chat] = _Conversation(self, chat)
            self.start(found.live())
        found.news.set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the channel %s: %s", self.name, type(error).__name__, exc_info=error)
            self.note("problem", problem=type(error).__name__)

    def note(self, event: str, incoming: Incoming | None = None, **facts: Any) -> None:
        about = {"chat": incoming.chat, "person": incoming.person} if incoming is not None else {}
        self.settings.progress({"event": event, "channel": self.name, **about, **facts})

    # Sends answers, in order, as often as it takes.

    def send_soon(self, chat: str) -> None:
        if chat not in self._senders:
            self._senders[chat] = self.start(self._send_all(chat))

    async def _send_all(self, chat: str) -> None:
        tries, pause = 0, 1.0
        try:
            while (reply := self.inbox.next_reply(chat)) is not None:
                text = f"{REPEATED}{reply.text}" if reply.is_repeated else reply.text
                try:
                    await self.channel.send(text, reply.files, to=chat)
                except ToolError as error:
                    tries += 1
                    if error.kind in (ErrorKind.CONFIG, ErrorKind.USER) or tries == MOST_TRIES:
                        self.inbox.end_reply(reply.id, "failed")
                        self.note("problem", chat=chat, problem=f"an answer could not be sent: {error.message}")
                        tries, pause = 0, 1.0
                        continue
                    self.inbox.end_reply(reply.id, "waiting")
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 60.0)
                else:
                    self.inbox.end_reply(reply.id, "sent")
                    self.note("sent", chat=chat)
                    tries, pause = 0, 1.0
        finally:
            del self._senders[chat]

    async def _close_question(self, chat: str, message: str, text: str) -> None:
        try:
            await self.channel.close_question(message, text, to=chat)
        except ToolError as error:  # its buttons do nothing any more
            log.info("a question in %s could not be closed: %s", self.name, error.message)

    def _press(self, incoming: Incoming) -> None:
        """Takes the answer of a button, if Forge made it for this chat, and the person may answer."""
        pressed = self.buttons.read(incoming.button, incoming.chat)
        if pressed is None:
            self.note("problem", incoming, problem="a button was pressed that Forge did not make for this chat")
            return
        if incoming.person not in self.approvers:
            self.note("refused", incoming)
            self.tell(incoming.chat, "You may not answer this question.", incoming.person, pressed.question)
            return
        question = self.questions.get(pressed.question)
        if question is None or pressed.is_over:
            self.tell(incoming.chat, "This question is over.", incoming.person, pressed.question)
            return
        question.press(pressed.choice, incoming.person)


class _Conversation:
    """One conversation: a session that is open while people talk, its run, and its questions."""

    def __init__(self, door: _Door, chat: str) -> None:
        self.door, self.chat, self.inbox = door, chat, door.inbox
        self.news = asyncio.Event()
        self._run: asyncio.Task[None] | None = None
        self._is_renewed = False
        self._files: list[Attachment] = []
        self._stored_run = ""  # that is followed
        self._again: set[int] = set()  # messages whose run an earlier process may have begun
        self._hide: Callable[[str], str] = lambda text: text  # masks secrets

    async def live(self) -> None:
        """Takes messages until the conversation has been silent for a while."""
        try:
            async with self.door.settings.places:
                while await self._live_session():
                    pass
        except ToolError as error:
            ids = [one.id for one in self.inbox.list_open(self.chat)]
            self._finish(ids, f"I cannot work at the moment: {error.message}. {error.suggestion}".strip())
        finally:
            if self.door.conversations.get(self.chat) is self:
                del self.door.conversations[self.chat]

    async def _live_session(self) -> bool:
        """Works with one session. Returns True if another one shall follow."""
        settings = self.door.settings
        name = self.inbox.find_session(self.chat)
        if name is None:
            self.inbox.begin_session(self.chat, name := self._make_name())
        report = lambda problem: self.door.note("problem", chat=self.chat, problem=problem)  # noqa: E731
        async with open_session(
            settings.options, name, approve=self.ask, model=settings.model, report=report
        ) as session:
            session.agent.activity.subscribe(self._hear)
            self._hide = session.agent.secrets.mask_all
            try:
                self._recover(session)
                while not self._is_renewed:
                    self.news.clear()
                    for row in self.inbox.list_open(self.chat):
                        if row.state == "new" and not self._is_renewed:
                            await self._take(session, row)
                    if not self._is_renewed and not await self._wait():
                        return False
            finally:
                if self._run is not None:  # what it was working on is told at the next start
                    self._run.cancel()
                    await asyncio.gather(self._run, return_exceptions=True)
        self._is_renewed = False
        return True

    def _make_name(self) -> str:
        mark = sha256(f"{self.door.name}\0{self.chat}".encode()).hexdigest()[:8]
        safe = "".join(char if char.isalnum() else "-" for char in self.door.name)[:40]
        return f"{safe}-{mark}-{new_name()}"

    async def _wait(self) -> bool:
        """Waits for news. Returns False if the conversation is silent, and takes nothing any more."""
        since = time.monotonic()
        while not self.news.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BUSY):
                    await self.news.wait()
            silent = time.monotonic() - since
            is_wanted = self.door.settings.places.locked() and silent >= BUSY
            if not self.news.is_set() and self._run is None and (silent >= IDLE or is_wanted):
                del self.door.conversations[self.chat]  # at once: the next message begins another one
                return False
        return True

    # What an earlier process left.

    def _recover(self, session: OpenSession) -> None:
        """Ends what an earlier process was working on: with its answer, or with a plain word. Repeats nothing."""
        rows = [one for one in self.inbox.list_open(self.chat) if one.state != "new"]
        if not rows:
            return
        if self.door.stored is not None:  # the runs did not end with that process
            self._again = {one.id for one in rows if one.state == "running"}
            self.inbox.set_state([*self._again], "new")
            return
        session.stored.refresh()
        self._settle_steering(session, min((one.before for one in rows if one.state == "running"), default=0))
        for row in rows:
            if row.state == "steering":
                continue
            added = session.messages[row.before :]
            earlier = find_earlier_answers(added)
            if not any(one.role == "user" for one in added):
                self.inbox.set_state([row.id], "new")  # its run had not begun
            elif (last := added[-1]).role == "assistant" and not last.tool_calls and last.text.strip():
                self._finish([row.id], self._mask(session, "\n\n".join([*earlier, last.text])))
            else:
                made = sum(one.role == "tool" for one in added)
                said = one_line(row.incoming.text, 80)
                what = f"Forge was stopped while it worked on “{said}”. Results of calls that are kept: {made}."
                hint = "Nothing is repeated by itself. /continue goes on; a call that was under way is checked first."
                self._finish([row.id], "\n\n".join([*(self._mask(session, one) for one in earlier), f"{what} {hint}"]))

    def _settle_steering(self, session: OpenSession, before: int) -> None:
        """Ends the messages that a run has received since; the others are new again."""
        heard = Counter(one.text for one in session.messages[before:] if one.role == "user")
        for row in self.inbox.list_open(self.chat):
            if row.state == "steering":
                text = row.incoming.text.strip()
                self.inbox.set_state([row.id], "done" if heard[text] > 0 else "new")
                heard[text] -= 1

    # Messages.

    async def _take(self, session: OpenSession, row: StoredMessage) -> None:
        """Takes a new message: a word that a question waits for, a command, a message to the run, or a prompt."""
        incoming, text = row.incoming, row.incoming.text.strip()
        if _is_submitted(incoming):
            if self._run is None:
                self._start(session, row, incoming)
            return
        own = (one for one in self.door.questions.values() if one.chat == self.chat)
        is_stop = text.lower() in STOP and incoming.person in self.door.people
        if text and not is_stop and any(one.take_words(incoming.person, text) for one in own):
            self._finish([row.id])
        elif incoming.person not in self.door.people:
            self._finish([row.id])  # an approver whose question ended meanwhile
        elif is_stop:
            self._stop(session, row)
        elif text[:1] in ("/", "!") and not incoming.files:
            await self._do(session, row, f"/{text[1:]}")
        elif self._run is None:
            self._start(session, row, incoming)
        elif not incoming.files and not incoming.is_forwarded:
            await self._steer(session, row, text)

    async def _steer(self, session: OpenSession, row: StoredMessage, text: str) -> None:
        """Sends a message to the run. If the run has not begun, or is over, the message waits."""
        stored = self.door.stored
        if stored is None:
            with suppress(ToolError):
                session.send(text)
                self.inbox.set_state([row.id], "steering")
        elif self._stored_run:
            self.inbox.set_state([row.id], "steering")
            try:
                await in_thread(lambda: stored.runs.send(self._stored_run, text))
            except ToolError:
                self.inbox.set_state([row.id], "new")

    def _stop(self, session: OpenSession, row: StoredMessage) -> None:
        """Stops the run, and drops what waits for it."""
        dropped = [one.id for one in self.inbox.list_open(self.chat) if one.id < row.id and one.state != "running"]
        if self._run is None:
            self._finish([*dropped, row.id], "Nothing is running.")
            return
        if (stored := self.door.stored) is not None and (run := self._stored_run):
            self.door.start(stored.cancel(run))
            self._finish([*dropped, row.id])
        elif session.cancel():
            self._finish([*dropped, row.id])
        else:  # it fetches files, or is a command that asks
            self._run.cancel()
            self._finish([*dropped, row.id], "Stopped.")

    async def _do(self, session: OpenSession, row: StoredMessage, line: str) -> None:
        word = line.split()[0].lower()
        is_approver = row.incoming.person in self.door.approvers
        if word == "/start":
            self._finish([row.id], GREETING)
        elif word in ("/new", "/continue") and self._run is not None:
            self._finish([row.id], "A run is in progress. Write `stop` first.")
        elif word == "/new":
            self.inbox.begin_session(self.chat, self._make_name())
            self._is_renewed = True
            self._finish([row.id], "A new session begins: the model knows nothing of the earlier messages.")
        elif word == "/continue":
            self._start(session, row, None)
        elif word == "/mode" and self.door.stored is not None:
            self._finish([row.id], "Modes do not count here: workers run what you ask, with the rules of the project.")
        elif word in COMMANDS and word not in FREE_COMMANDS and not is_approver:
            self._finish([row.id], f"{word} is for the people who may answer questions here.")
        elif word in COMMANDS and word not in FREE_COMMANDS:  # it may ask, and messages are heard meanwhile
            if self._run is None:
                self._finish([row.id])  # at once: a restart must not do it again
                self._start_task(self._command(session, line))
        else:
            try:
                said = await session.command(line)
            except ToolError as error:
                said = f"{error.message}. {error.suggestion}".strip()
            if said is not None:
                more = "".join(f"\n{name}  {about}" for name, about in OWN_COMMANDS.items()) if word == "/help" else ""
                self._finish([row.id], self._mask(session, said + more))
            elif self._run is None:
                self._start(session, row, row.incoming)

    async def _command(self, session: OpenSession, line: str) -> None:
        try:
            said = await session.command(line)
        except ToolError as error:
            said = f"{error.message}. {error.suggestion}".strip()
        self._finish([], self._mask(session, said or "Done."))

    def _hear(self, event: object) -> None:
        """Notes that the run has begun, that it received a message, and which files it made."""
        if isinstance(event, MessageReceived):
            rows = (one for one in self.inbox.list_open(self.chat) if one.state == "steering")
            if (found := next((one for one in rows if one.incoming.text.strip() == event.text), None)) is not None:
                self.inbox.set_state([found.id], "done")
        elif isinstance(event, RunStarted):
            self.news.set()  # messages that came a moment before are for it
        elif isinstance(event, ToolFinished):
            collect_files(event, self._files)

    # Runs.

    def _start(self, session: OpenSession, row: StoredMessage, incoming: Incoming | None) -> None:
        self._start_task(self._work(session, row, incoming))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._run = asyncio.create_task(work)
        self._run.add_done_callback(self._end_run)

    def _end_run(self, task: asyncio.Task[None]) -> None:
        self._run = None
        self.news.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the channel %s: %s", self.door.name, type(error).__name__, exc_info=error)
            self.door.note("problem", chat=self.chat, problem=type(error).__name__)

    async def _work(self, session: OpenSession, row: StoredMessage, incoming: Incoming | None) -> None:
        """Runs a message to the end. Without one, the run that was interrupted goes on."""
        prompt = await self._read_prompt(incoming) if incoming is not None else None
        self._files.clear()
        session.stored.refresh()
        before = len(session.messages)
        self.inbox.set_state([row.id], "running", before=before)
        self.door.note("run_started", row.incoming, session=session.name)
        try:
            stored = self.door.stored
            result = await (self._follow(stored, session, row, prompt) if stored is not None else session.run(prompt))
        except ToolError as error:
            self._finish([row.id], self._mask(session, f"{error.message}. {error.suggestion}".strip()))
            return
        except Exception as error:  # of a tool's, a model's or our own making: people get an answer all the same
            log.exception("a run of the session %s failed", session.name)
            self._finish([row.id], f"The run failed unexpectedly ({type(error).__name__}). /continue goes on.")
            return
        finally:
            self._settle_steering(session, before)
        self.door.note("run_finished", row.incoming, session=session.name, reason=result.reason)
        parts = [*find_earlier_answers(session.messages[before:]), describe_result(result)]
        self._finish([row.id], self._mask(session, "\n\n".join(parts)), tuple(self._files))

    async def _follow(
        self, stored: ChatRuns, session: OpenSession, row: StoredMessage, prompt: str | Message | None
    ) -> RunResult:
        """Begins the stored run of a message, or finds it, and follows it to the end."""
        after = 0
        if _is_submitted(row.incoming):
            id = row.incoming.id.removeprefix(SUBMITTED)
            if (run := await in_thread(lambda: stored.find(id))) is None:
                raise ToolError(f"the run {id} was deleted", ErrorKind.NOT_FOUND)
        elif prompt is None:
            run, after = await stored.resume(session)
        else:
            id = stored.run_id(self.chat, row.incoming.id)
            run, after = await stored.begin(session, prompt, id, was_begun=row.id in self._again)
        self._stored_run = run.id
        self.news.set()  # messages that came a moment before are for it
        try:
            result = await stored.follow(run, session, self.ask, self._end_question, self._hear, after)
        finally:
            self._stored_run = ""
        session.count(result)
        return result

    def _end_question(self, request: PermissionRequest, answer: Answer) -> None:
        """Ends a question that was answered elsewhere, such as in the console."""
        for one in self.door.questions.values():
            if one.request is request:
                one.end(answer)

    async def _read_prompt(self, incoming: Incoming) -> str | Message:
        """Returns the prompt. What others wrote is labelled: a forwarded text, and all files."""
        text, where = incoming.text.strip(), f"the channel {self.door.name}"
        if not incoming.files:
            return quote_text(text, f"a forwarded message in {where}", "") if incoming.is_forwarded else text
        files: list[Attachment] = []
        notes: list[str] = []
        for file in incoming.files:
            try:
                left = LARGEST_FILES - sum(len(one.data) for one in files)
                files.append(await self._fetch(file, min(LARGEST_FILE, left)))
                notes.append(f"[file {one_line(file.name, 100) or 'without a name'} is attached]")
            except ToolError as error:
                notes.append(f"[file {one_line(file.name, 100)} is not attached: {one_line(error.message, 200)}]")
        labels = [[UNTRUSTED, f"a file in {where}"]]
        said = "" if incoming.is_forwarded else text
        whole = "\n".join(part for part in (text, *notes) if part)
        return Message("user", whole, attachments=tuple(files), extra={LABELS: labels, SAID: said})

    async def _fetch(self, file: IncomingFile, most: int) -> Attachment:
        if file.size > most:
            raise ToolError(f"it has {file.size:,} bytes, and {most:,} may be", ErrorKind.USER, "Send a smaller file.")
        data = (await self.door.channel.fetch_file(file, most)).data
        if len(data) > most:  # a channel of one's own may not look
            raise ToolError(f"it has more than {most:,} bytes", ErrorKind.USER, "Send a smaller file.")
        for make in (Image, Audio, Document):
            with suppress(ToolError):
                return make(data, name=one_line(file.name, 100) or "file")
        raise ToolError("its kind is not one that models read", ErrorKind.USER, "Send an image, a sound or a document.")

    def _mask(self, session: OpenSession, text: str) -> str:
        return session.agent.secrets.mask_all(text)

    def _finish(self, ids: Sequence[int], text: str = "", files: Sequence[Attachment] = ()) -> None:
        self.inbox.finish(ids, self.chat, text, files)
        self.door.send_soon(self.chat)

    # Questions.

    async def ask(self, request: PermissionRequest) -> Answer:
        """An `Approver`: asks the people who may answer. No answer in time, or no way to ask, means no."""
        door, within = self.door, self.door.settings.answer_within
        if not door.approvers:
            return Answer.no("nobody may answer questions in this chat", by="nobody")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        expires = int(time.time() + within)
        question = ChatQuestion(
            request, self.chat, expires, answer, door.buttons, self.inbox, lambda words: door.tell(self.chat, words)
        )
        message, ended = "", Answer.no("the question was closed without an answer", by="nobody")
        self.inbox.open_question(question.id, self.chat)
        door.questions[question.id] = question
        try:
            message = await self._post(question)
            self.inbox.note_posted(question.id, message)
            door.note("question", chat=self.chat, tool=request.spec.name)
            async with asyncio.timeout(within):
                ended = await answer
        except TimeoutError:
            ended = Answer.no("no one answered in time", by="the clock")
        except ToolError as error:
            ended = Answer.no(f"the question could not be shown: {error.message}", by="error")
        finally:
            del door.questions[question.id]
            self.inbox.use_question(question.id)
            if message:
                door.start(door._close_question(self.chat, message, self._hide(question.describe(ended))))
        door.note("answered", chat=self.chat, tool=request.spec.name, answer=ended.kind, by=ended.by)
        return ended

    async def _post(self, question: ChatQuestion) -> str:
        """Posts a question, all of it: as a file, too, where it is too long for messages."""
        text, channel = self._hide(request_text(question.request)), self.door.channel
        until = time.strftime("%H:%M UTC", time.gmtime(question.expires))
        if len(text) > LONGEST_SHOWN:
            file = Attachment("text/plain", text.encode("utf-8", "replace"), "question.txt")
            await channel.send("The whole question is in this file. Read it before you answer.", [file], to=self.chat)
            half = LONGEST_SHOWN // 2
            left_out = f"⟨{len(text) - 2 * half:,} characters are only in question.txt⟩"
            text = f"{text[:half]}\n{left_out}\n{text[-half:]}"
        return await channel.ask(f"{text}\n(until {until})", question.buttons(), to=self.chat)


def _is_submitted(incoming: Incoming) -> bool:
    """Returns whether it stands for a run that something else submitted. What people write has a person."""
    return not incoming.person and incoming.id.startswith(SUBMITTED)


def find_earlier_answers(messages: Sequence[Message]) -> list[str]:
    """Returns the answers after which a run went on, since another message had come: people are to read them, too."""
    return [
        one.text
        for one, after in pairwise(messages)
        if one.role == "assistant" and not one.tool_calls and one.text.strip()
        if after.role == "user" and FROM_FORGE not in after.extra
    ]


def describe_result(result: RunResult) -> str:
    """Returns what a person reads about a run that is over."""
    text = json.dumps(result.output_or_none, ensure_ascii=False) if result.has_output else result.text
    if result.error is not None:
        end = f"The run failed: {result.error.message}. {result.error.suggestion}".strip()
    elif result.reason == "cancelled":
        end = "Stopped."
    elif result.reason in ("answer", "task_completion", "converse", "question"):
        end = "" if text.strip() else "Done, without an answer."
    else:
        end = f"The run ended early ({result.reason}). /continue goes on."
    return "\n\n".join(part for part in (text.strip(), end) if part)


# Serves the requests of services.


async def _serve(doors: Mapping[str, _Door], listening: socket | None) -> None:
    check_extra("chats", "requests of a chat service cannot be served")
    from forge.network.serve import serve_app  # uvicorn belongs to the extra

    if listening is None:
        names = ", ".join(doors)
        hint = "Pass listening=socket.create_server((host, port)), or use Socket Mode or long polling."
        raise ToolError(
            f"listening to {names}: its service sends requests, and no socket is open", ErrorKind.CONFIG, hint
        )

    async def app(scope: Mapping[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        status, body = await _answer_request(doors, scope, receive)
        headers = [(b"content-type", b"application/json" if body[:1] == b"{" else b"text/plain")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    await serve_app(app, listening, lambda: None, lifespan="off")


async def _answer_request(
    doors: Mapping[str, _Door], scope: Mapping[str, Any], receive: Callable[[], Any]
) -> tuple[int, bytes]:
    door = doors.get(str(scope["path"]).strip("/"))
    if door is None:
        return 404, b"there is no such channel"
    if scope["method"] != "POST":
        return 405, b"only POST is taken"
    body = await read_body(receive, LARGEST_REQUEST)
    if body is None:
        return 413, b"the request is too large"
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    assert isinstance(door.channel, TakesRequests)
    try:
        return await door.channel.answer_request(headers, body, door.receive)
    except ToolError as error:
        door.note("problem", problem=error.message)
        return 503, b"the message could not be stored"
