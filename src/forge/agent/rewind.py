"""Rewinds a session: conversation and files back to a turn, both or neither, with a preview, and back again.

A turn is one answer of the model, with the results of its calls. Files go back along the undo log: every change that
this session's tools made after the turn is undone, the latest first. The database of the conversation decides whether
the files count, so that a killed process leaves either state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from forge.agent.labels import FROM_FORGE
from forge.agent.session import SessionStore
from forge.agent.session_tables import ConversationCut, RewindRecord, StoredMessage, find_turns
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import BACKGROUND, Message, ToolCall
from forge.core.plain_values import brief
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.permissions.gate import PolicyGate
from forge.permissions.questions import Decision as RuleDecision
from forge.permissions.questions import PermissionRequest
from forge.permissions.refusals import denial
from forge.tools.todo import complete_items
from forge.workspace.changes.commit import Change
from forge.workspace.changes.journal import Decision, recover
from forge.workspace.draft import Draft
from forge.workspace.effects import Effects
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call
from forge.workspace.history.undo import REWIND, ProgramNote, UndoEntry, UndoFile, describe_changes
from forge.workspace.paths import quote_path
from forge.workspace.paths.locks import lock_directories
from forge.workspace.state import state_directory

__all__ = ["Rewind", "Turn", "list_turns", "plan_rewind", "rewind"]

LONGEST_LINE = 200  # characters of a program's line
_KEPT = "rewind"  # the folder with versions that a refused rewind did not write


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model, with what its calls changed.

    Args:
        number: counts from 1.
        at: when it was stored, in seconds since 1970.
        prompt: what the person said before it; empty where the model went on by itself.
        text: what the model said.
        calls: the names of the tools that it called.
        files: the files that it changed.
        unrecorded: programs and tools that may have changed files without a record.

    Example:
        >>> Turn(1, 0.0, prompt="Fix the test.", files=("parser.py",)).files
        ('parser.py',)
    """

    number: int
    at: float
    prompt: str = ""
    text: str = ""
    calls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Turn.__slots__}


@dataclass(frozen=True, slots=True)
class Rewind:
    """A planned rewind of a session; or one that was made, if `is_done`.

    Args:
        session: the session.
        turn: the last turn that is kept.
        turns: how many turns are removed.
        removed: how many messages are removed.
        restored: how many messages of an earlier rewind come back.
        effects: what happens to files: `effects.summary()`, `effects.diff()`.
        conflicts: files that someone else changed since, each with the reason. The rewind is refused then.
        left: what stays as it is, because Forge has no record or no old content of it.
        files_only: True: the conversation stays as it is.
        is_done: True: it was made.

    Example:
        >>> Rewind("ada", turn=3, removed=4).is_done
        False
    """

    session: str
    turn: int
    turns: int = 0
    removed: int = 0
    restored: int = 0
    effects: Effects = field(default_factory=Effects)
    conflicts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    files_only: bool = False
    is_done: bool = False

    @property
    def digest(self) -> str:
        """Identifies what a person has seen: a rewind with another digest changes something else."""
        facts = (self.session, self.turn, self.removed, self.restored, self.conflicts, self.files_only)
        return sha256(f"{facts} {self.effects.digest()}".encode()).hexdigest()

    def summary(self) -> str:
        """Returns one line about the conversation and one about files."""
        files = self.effects.summary() if self.effects.files else "stay as they are"
        return f"{self._describe_conversation()}\nFiles: {files}."

    def as_json(self) -> dict[str, Any]:
        """Returns plain values for programs and the console."""
        names = ("session", "turn", "turns", "removed", "restored", "conflicts", "left", "files_only", "is_done")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "effects": self.effects.as_json(), "diff": self.effects.diff(), "digest": self.digest}

    def _describe_conversation(self) -> str:
        if self.files_only:
            return "Conversation: stays as it is."
        parts = [f"removes {_count(self.removed, 'message')} ({_count(self.turns, 'turn')})"] if self.removed else []
        parts += [f"brings back {_count(self.restored, 'message')}"] if self.restored else []
        return f"Conversation: {' and '.join(parts) or 'stays as it is'}."


class _Plan(NamedTuple):
    """A rewind, and what carries it out."""

    rewind: Rewind
    cut: ConversationCut
    changes: tuple[Change, ...]
    entries: list[UndoEntry]  # that are undone
    kept: list[Message]
    refusals: dict[str, ToolError]


def list_turns(store: SessionStore, state: SessionState, session: str) -> list[Turn]:
    """Lists the turns of a session, with what each changed.

    Example:
        >>> with SessionStore.of(Path()) as store:
        ...     _ = store.import_("ada", [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Hello."}])
        ...     [turn.prompt for turn in list_turns(store, SessionState(Path()), "ada")]
        ['Hi']
    """
    messages, times, rewinds = store.read_history(session)
    spans = _split_turns(messages, times)
    places = _Places(spans)
    files: dict[int, dict[str, None]] = {}
    for entry in reversed(state.undo.entries(session)):
        if entry.undone or entry.is_undo:
            continue
        at = places.find(entry.root or entry.call_id, entry.time)
        files.setdefault(at, {}).update((one.shown, None) for one in entry.files if not one.is_made_folder)
    programs: dict[int, list[str]] = {}
    for note in _list_programs(state, session, rewinds):
        programs.setdefault(places.find(note.root or note.call_id, note.time), []).append(_describe_program(note))
    return [
        replace(span.turn, files=tuple(files.get(number, ())), unrecorded=tuple(programs.get(number, ())))
        for number, span in enumerate(spans, 1)
    ]


def plan_rewind(
    store: SessionStore,
    state: SessionState,
    session: str,
    turn: int | None,
    *,
    files_only: bool = False,
    changes_files: Callable[[str], bool] = lambda name: False,
) -> Rewind:
    """Returns what a rewind would change. Nothing is changed.

    `turn` is the last one that is kept; 0 for none, None to take back the last rewind. `changes_files` says by a
    tool's name whether its calls should be in the undo log.
    """
    return _plan(store, state, session, turn, files_only, changes_files).rewind


def rewind(
    store: SessionStore,
    state: SessionState,
    scope: Scope,
    session: str,
    turn: int | None,
    *,
    files_only: bool = False,
    changes_files: Callable[[str], bool] = lambda name: False,
    check: Callable[[Rewind], None] = lambda rewind: None,
) -> Rewind:
    """Rewinds a session. All of it is changed, or nothing, and an error says why.

    `check` sees the plan while the session is held; if it raises, nothing is changed.
    """
    for_all = [root.path for root in scope.roots]
    recover(scope.workspace, for_all)
    with store.hold(session):
        plan = _plan(store, state, session, turn, files_only, changes_files)
        if plan.refusals:
            raise _conflict_error(plan, state, scope)
        check(plan.rewind)
        key = f"{REWIND}-{os.urandom(8).hex()}"
        call = TrackedCall(state, session, "", key, REWIND)
        with lock_directories([one.location for one in plan.changes]), track_call(call):
            draft = Draft(scope)
            for change in plan.changes:
                draft.restore(change)
            decide = partial(store.cut, session, key, plan.cut)
            if not plan.changes:
                decide()
            else:
                draft.commit(Decision(store.path, key, decide))
        if plan.changes:
            state.undo.mark(session, [one.id for one in plan.entries], key)
        if not files_only:
            _forget_later(state, session, plan.kept)
    return replace(plan.rewind, is_done=True)


def _plan(
    store: SessionStore,
    state: SessionState,
    session: str,
    turn: int | None,
    files_only: bool,
    changes_files: Callable[[str], bool],
) -> _Plan:
    messages, times, rewinds = store.read_history(session)
    spans = _split_turns(messages, times)
    entries = state.undo.entries(session)  # the latest first
    position = entries[0].id if entries else 0
    places = _Places(spans)
    before: RewindRecord | None = None
    restored: tuple[StoredMessage, ...] = ()
    if turn is None:
        before = _find_last_rewind(rewinds, session)
        kept, restored = before.kept, before.removed
        undone = [one for one in entries if one.id > before.position]
        number = sum(span.end <= kept for span in spans)
        turn = number + sum(role == "assistant" for _, role, _ in restored)
    else:
        _check_turn(turn, spans, session)
        kept, number = (spans[turn - 1].end if turn else 0), turn
        later = [one.id for one, at in _place_entries(entries, places) if at > turn]
        undone = [one for one in entries if later and one.id >= min(later)]
    restoration = state.undo.plan_restoration(session, undone)
    gone = messages[kept:]
    if not gone and not restored and not restoration.changes and not restoration.conflicts:
        message = f"rewinding the session {brief(session)} to turn {turn}: it is there already"
        raise ToolError(message, ErrorKind.USER, f"Choose a turn from 0 to {max(0, len(spans) - 1)}.")
    lines = [
        f"turn {at}: {_describe_program(one)}: what it changed stays"
        for one in _list_programs(state, session, rewinds)
        if (at := places.find(one.root or one.call_id, one.time)) > number
    ]
    recorded = {one.root or one.call_id for one in undone}
    recorded |= {one.root or one.call_id for one in state.undo.programs(session)}
    lines += [
        f"turn {at}: {call.name} (call {call.id}): there is no record of what it changed"
        for at, call in _find_unrecorded(spans, messages, number, changes_files)
        if call.id not in recorded
    ]
    lines += [f"{quote_path(shown)}: stays as it is, since {why}" for shown, why in restoration.lost.items()]
    if files_only:
        kept, gone, restored = len(messages), [], ()
    cut = ConversationCut(turn, position, len(messages), kept, restored, before.id if before is not None else None)
    planned = Rewind(
        session,
        turn,
        turns=sum(one.role == "assistant" for one in gone),
        removed=len(gone),
        restored=len(restored),
        effects=describe_changes(restoration.changes),
        conflicts=tuple(
            _describe_conflict(state, session, shown, error, undone) for shown, error in restoration.conflicts.items()
        ),
        left=tuple(lines),
        files_only=files_only,
    )
    return _Plan(planned, cut, restoration.changes, undone, messages[:kept], dict(restoration.conflicts))


def _find_last_rewind(rewinds: Sequence[RewindRecord], session: str) -> RewindRecord:
    """Returns the last rewind that was not taken back. One that takes back counts if it removed messages itself."""
    taken_back = {one.takes_back for one in rewinds}
    for one in reversed(rewinds):
        if one.id not in taken_back and (one.takes_back is None or one.removed):
            return one
    message = f"taking back the last rewind of the session {brief(session)}: there is none"
    raise ToolError(message, ErrorKind.NOT_FOUND, "Choose a turn instead.")


def _check_turn(turn: int, spans: Sequence[_Span], session: str) -> None:
    if not 0 <= turn <= len(spans):
        message = f"rewinding the session {brief(session)} to turn {turn}: it has {_count(len(spans), 'turn')}"
        raise ToolError(message, ErrorKind.VALIDATION, "Choose one of them, or 0 for the time before the first.")


# Finds the turns of a conversation, and which one a change belongs to.


class _Span(NamedTuple):
    """A turn, and where it is among the messages."""

    turn: Turn
    begin: int  # the first message that leads to it
    end: int  # after the results of its calls
    calls: frozenset[str]


def _split_turns(messages: Sequence[Message], times: Sequence[float]) -> list[_Span]:
    spans = []
    for number, (begin, at, end) in enumerate(find_turns(messages), 1):
        answer = messages[at]
        said = [one.text for one in messages[begin:at] if _is_from_person(one)]
        names = tuple(dict.fromkeys(call.name for call in answer.tool_calls))
        turn = Turn(number, times[at], "\n".join(said), answer.text, names)
        spans.append(_Span(turn, begin, end, frozenset(call.id for call in answer.tool_calls)))
    return spans


def _is_from_person(message: Message) -> bool:
    return message.role == "user" and FROM_FORGE not in message.extra and BACKGROUND not in message.extra


class _Places:
    """Finds the turn of a change: by its call, otherwise by its time."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self._times = [span.turn.at for span in spans]
        self._calls: dict[str, list[int]] = {}
        for number, span in enumerate(spans, 1):
            for call in span.calls:
                self._calls.setdefault(call, []).append(number)

    def find(self, call: str, at: float) -> int:
        """Returns the number of the turn; 0: it was before the first one."""
        numbers = self._calls.get(call) or range(len(self._times) + 1)
        begun = [number for number in numbers if not number or self._times[number - 1] <= at]
        return begun[-1] if begun else numbers[0]

    def knows(self, call: str) -> bool:
        return call in self._calls


def _place_entries(entries: Sequence[UndoEntry], places: _Places) -> list[tuple[UndoEntry, int]]:
    """Returns the entries, the latest first, each with its turn. One that no call of the conversation made lies between
    its neighbours, whatever the clock said.
    """
    least, found = 0, []
    for entry in reversed(entries):
        call = entry.root or entry.call_id
        at = places.find(call, entry.time)
        if places.knows(call):
            least = max(least, at)
        found.append((entry, max(at, least)))
    return found[::-1]


def _find_unrecorded(
    spans: Sequence[_Span], messages: Sequence[Message], after: int, changes_files: Callable[[str], bool]
) -> Iterator[tuple[int, ToolCall]]:
    """Yields calls that should have a record, with their turns: those that succeeded, and those without a result."""
    for number, span in enumerate(spans[after:], after + 1):
        part = messages[span.begin : span.end]
        failed = {one.call_id for one in part if one.role == "tool" and one.is_error}
        for call in (call for one in part for call in one.tool_calls):
            if call.id not in failed and changes_files(call.name):
                yield number, call


def _list_programs(state: SessionState, session: str, rewinds: Sequence[RewindRecord]) -> list[ProgramNote]:
    """Returns what may have changed files without a record, but not what an earlier rewind removed and named."""
    taken_back = {one.takes_back for one in rewinds}
    removed = [body for one in rewinds if one.id not in taken_back for _, role, body in one.removed if role != "user"]
    return [
        note
        for note in state.undo.programs(session)
        if not note.is_harmless and not any((note.root or note.call_id) in body for body in removed)
    ]


def _describe_program(note: ProgramNote) -> str:
    line = " ".join(note.what.split())
    text = f"{note.tool}: {line}" if line else note.tool
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


# Checks a plan before it is carried out.


class _RewindTool(Tool, name=REWIND, category=Category.BUILTIN, permissions={"write"}):
    """Rewind a session."""

    def run(self) -> str:
        raise NotImplementedError  # only the rules look at it


def check_rules(gate: PolicyGate, scope: Scope, plan: Rewind, expect: str = "") -> None:
    """Raises `ToolError` if the plan is not the expected one, or changes a path that a rule denies."""
    if expect and plan.digest != expect:
        message = (
            f"rewinding the session {brief(plan.session)} to turn {plan.turn}: something changed since the preview"
        )
        raise ToolError(message, ErrorKind.USER, "Look at the new preview, then try again.")
    tool = _RewindTool()
    call = ToolCall(REWIND, {"turn": plan.turn})
    ctx = ToolContext(call, tool, {"turn": plan.turn}, scope)
    for effect in plan.effects.files:
        ruling = gate.judge(ctx, Permission.WRITE, effect.shown)
        if ruling.decision is RuleDecision.DENY:
            request = PermissionRequest(tool.spec, call, {}, Permission.WRITE, effect.shown, scope)
            raise denial(request, ruling)


# Keeps both versions where somebody else changed a file, and forgets what belongs to removed turns.


def _conflict_error(plan: _Plan, state: SessionState, scope: Scope) -> ToolError:
    """Refuses a rewind, and keeps the versions of the turn in the state directory."""
    folder = state_directory(scope.workspace, _KEPT) / f"{plan.rewind.turn}-{os.urandom(4).hex()}"
    lines = []
    for shown, reason in zip(plan.refusals, plan.rewind.conflicts, strict=True):
        oldest = next(one for entry in reversed(plan.entries) for one in entry.files if one.shown == shown)
        saved = _save_version(state, oldest, folder)
        lines.append(f"{reason}; {saved}" if saved else reason)
    return ToolError(
        f"rewinding the session {brief(plan.rewind.session)} to turn {plan.rewind.turn}: nothing was changed, since "
        + "; ".join(lines),
        ErrorKind.USER,
        "Both versions are kept. Undo the other change or move the file away, then try again.",
    )


def _describe_conflict(state: SessionState, session: str, shown: str, error: ToolError, undone: list[UndoEntry]) -> str:
    file = next(one for entry in undone for one in entry.files if one.shown == shown)
    other = state.undo.find_other_session(session, file)
    reason = error.message.removesuffix("; nothing was undone")
    return f"{reason}, but by the session {brief(other)}" if other and "not by this session" in reason else reason


def _save_version(state: SessionState, file: UndoFile, folder: Path) -> str:
    """Writes a file as it was at the turn. Returns where; "" if its content is not stored whole."""
    if not file.before:
        return "at the turn there was none"
    content = state.undo.read_image(file)
    if content is None:
        return ""
    name = folder / file.shown.lstrip("/").replace("/", "__")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name.write_bytes(content)
    return f"the version of the turn is in {name}"


def _forget_later(state: SessionState, session: str, kept: Sequence[Message]) -> None:
    """Forgets which files the session read: the model must read them again. The todo list is that of the kept part."""
    state.seen.forget(session)
    items: list[Any] = []
    failed = {one.call_id for one in kept if one.role == "tool" and one.is_error}
    for call in (call for one in kept for call in one.tool_calls):
        if call.name == "todo_write" and call.id not in failed and not isinstance(call.arguments, str):
            with suppress(ToolError, TypeError, AttributeError):  # arguments that the call had to repair
                items = complete_items(call.arguments.get("items") or [])
    state.todos.put(session, items)
