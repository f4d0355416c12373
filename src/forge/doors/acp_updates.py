"""Says in the words of the Agent Client Protocol what a run does: texts, tool calls, diffs, plans and questions."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from acp.helpers import ContentBlock, SessionUpdate, ToolCallContentVariant
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    PermissionOption,
    PlanEntry,
    PlanEntryPriority,
    PlanEntryStatus,
    SessionInfoUpdate,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)

from forge.agent.agent import Agent
from forge.core.errors import ToolError
from forge.core.events import (
    Event,
    ReasoningDelta,
    SessionTitled,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolProgress,
    ToolStarted,
    TurnFinished,
)
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import plain, visible
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.permissions.questions import Answer, PermissionRequest, request_text
from forge.permissions.targets import targets_of
from forge.workspace.paths import PathValidator

LONGEST_TEXT = 64 * 1024  # characters of a result that an editor is shown
LONGEST_OUTPUT = 16 * 1024  # characters of the output of a program while it runs: its end
LONGEST_INPUT = 64 * 1024  # characters of the arguments of a call
LONGEST_TITLE = 200
LONGEST_RULES = 300  # characters of the rules in the name of an option; the question has all of them
MOST_WAITING = 16 * 1024 * 1024  # characters that wait for an editor that does not read
MOST_LOCATIONS = 20
INTERRUPTED = "Forge was stopped before this call had a result. It may have happened."
LEFT_OUT = "[… output left out]\n"
TERMINAL_INFO, TERMINAL_OUTPUT, TERMINAL_EXIT = "terminal_info", "terminal_output", "terminal_exit"  # keys of `_meta`

Update = SessionUpdate | UsageUpdate
Send = Callable[[Update], Awaitable[None]]

KINDS: dict[str, ToolKind] = {
    "bash": "execute",
    "directory_list": "search",
    "directory_tree": "search",
    "file_read": "read",
    "glob_search": "search",
    "grep_search": "search",
    "http_request": "fetch",
    "task": "execute",
    "todo_read": "think",
    "todo_write": "think",
    "tool_search": "search",
    "web_fetch": "fetch",
    "web_search": "fetch",
}


class UpdateQueue:
    """Sends updates in order, without delaying the run. Pieces of one text that wait are joined.

    An editor that does not read is given up once too much waits for it: the session has everything.
    """

    def __init__(self, send: Send, give_up: Callable[[], None]) -> None:
        self._send, self._give_up = send, give_up
        self._waiting: deque[Update] = deque()
        self._size = 0
        self._woken = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._task = asyncio.create_task(self._work())
        self._is_over = False

    def put(self, update: Update) -> None:
        if self._is_over:
            return
        if isinstance(update, ToolCallProgress) and (shown := self._find_output(update)) is not None:
            self._size -= _size_of(shown)
            shown.content, shown.title = update.content or shown.content, update.title or shown.title
            _join_output(shown, update)
            self._size += _size_of(shown)
        else:
            self._size += _size_of(update)
            if not self._waiting or not _join(self._waiting[-1], update):
                self._waiting.append(update)
        if self._size > MOST_WAITING:
            self._end()
            self._give_up()
            return
        self._sent.clear()
        self._woken.set()

    def _find_output(self, update: ToolCallProgress) -> ToolCallProgress | None:
        """Returns an earlier output of the same call that still waits: the newer one has all that is shown of it."""
        if update.status is not None:
            return None
        waiting = (one for one in self._waiting if isinstance(one, ToolCallProgress) and one.status is None)
        return next((one for one in waiting if one.tool_call_id == update.tool_call_id), None)

    async def flush(self) -> None:
        """Waits until everything so far is sent."""
        await self._sent.wait()

    async def close(self) -> None:
        self._end()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            while True:
                await self._woken.wait()
                while self._waiting:
                    update = self._waiting.popleft()
                    await self._send(update)
                    self._size -= _size_of(update)
                self._woken.clear()
                self._sent.set()
        except Exception:  # the editor is gone
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._sent.set()


def _size_of(update: Update) -> int:
    if isinstance(update, AgentMessageChunk | AgentThoughtChunk) and isinstance(update.content, TextContentBlock):
        return len(update.content.text)
    content = getattr(update, "content", None) or ()
    return (
        500
        + len(_output_of(update))
        + sum(len(getattr(getattr(one, "content", one), "text", "") or "") for one in content if one is not None)
    )


def _join(last: Update, update: Update) -> bool:
    """Adds an update to the last one that waits; False if it cannot be joined."""
    if not isinstance(update, AgentMessageChunk | AgentThoughtChunk) or type(last) is not type(update):
        return False
    if not isinstance(last.content, TextContentBlock) or not isinstance(update.content, TextContentBlock):
        return False
    if len(last.content.text) > LONGEST_TEXT:
        return False
    last.content = TextContentBlock(type="text", text=last.content.text + update.content.text)
    return True


def _output_of(update: Update) -> str:
    """Returns the output for a terminal that an update has."""
    sent = (getattr(update, "field_meta", None) or {}).get(TERMINAL_OUTPUT)
    return str(sent["data"]) if sent is not None else ""


def _join_output(last: ToolCallProgress, update: ToolCallProgress) -> None:
    """Adds output for a terminal to the output that waits; of much output, the end is kept."""
    if new := _output_of(update):
        text = _output_of(last) + new
        if len(text) > LONGEST_OUTPUT:
            text = f"{LEFT_OUT}{text[-LONGEST_OUTPUT:]}"
        last.field_meta = {TERMINAL_OUTPUT: {"terminal_id": last.tool_call_id, "data": text}}


class RunView:
    """Turns the events of an agent into updates for an editor.

    An editor with `terminals` shows the output of programs in terminals: it adds each piece to what it has. The
    programs run in Forge all the same. It is an extension in `_meta`, which Zed and agents for it agreed on.
    """

    def __init__(self, agent: Agent, put: Callable[[Update], None], *, terminals: bool = False) -> None:
        self._agent, self._put = agent, put
        self._workspace = agent.scope.workspace
        self._has_terminals = terminals
        self._terminals: set[str] = set()  # calls that run and have one, by our id
        self._ids: dict[str, str] = {}  # of calls that run: the editor's id by ours
        self._used: set[str] = set()
        self._output: dict[str, str] = {}  # of programs that run
        self.said = ""  # the model's text of this run

    def begin(self) -> None:
        self.said = ""

    def take(self, event: Event) -> None:
        is_ours = event.agent == self._agent.name
        match event:
            case TextDelta() if is_ours:
                self.said = (self.said + event.text)[-LONGEST_TEXT:]
                self._put(text_chunk(event.text))
            case ReasoningDelta() if is_ours:
                self._put(AgentThoughtChunk(session_update="agent_thought_chunk", content=_text(event.text)))
            case ToolStarted():
                self._start(event.call)
            case ToolOutput():
                self._add_output(event)
            case ToolProgress():
                title = visible(event.title)[:LONGEST_TITLE]
                if event.call.id in self._ids and title:
                    self._put(self._progress(event.call.id, title=title))
            case ToolFinished():
                self._finish(event)
            case TurnFinished() if is_ours and self._agent.window:
                used = sum(int(event.usage.get(name, 0)) for name in ("input", "output"))
                self._put(UsageUpdate(session_update="usage_update", used=used, size=self._agent.window))
            case SessionTitled() if event.title:
                self._put(SessionInfoUpdate(session_update="session_info_update", title=visible(event.title)))

    def find_id(self, call: ToolCall) -> str:
        """Returns the editor's id of a call that runs."""
        return self._ids.get(call.id, call.id)

    def _start(self, call: ToolCall) -> None:
        spec = self._agent.registry.find(call.name).spec
        id_, number = call.id, 1
        while id_ in self._used:  # some models count their calls anew in each answer
            number += 1
            id_ = f"{call.id}#{number}"
        self._used.add(id_)
        self._ids[call.id] = id_
        kind, about = kind_of(spec), None
        if self._has_terminals and kind == "execute" and call.name != "task":
            self._terminals.add(call.id)
            about = {TERMINAL_INFO: {"terminal_id": id_, "cwd": str(self._workspace)}}
        self._put(
            ToolCallStart(
                field_meta=about,
                session_update="tool_call",
                tool_call_id=id_,
                title=title_of(call, spec),
                kind=kind,
                status="in_progress",
                locations=find_locations(self._agent, call) or None,
                raw_input=_raw(call.arguments),
            )
        )

    def _add_output(self, event: ToolOutput) -> None:
        if event.call.id in self._terminals:
            self._output[event.call.id] = "shown"
            self._write(event.call.id, event.text)
        elif event.call.id in self._ids:
            shown = self._output[event.call.id] = (self._output.get(event.call.id, "") + event.text)[-LONGEST_OUTPUT:]
            self._put(self._progress(event.call.id, content=[_fenced(shown)]))

    def _finish(self, event: ToolFinished) -> None:
        call, result = event.call, event.result
        if call.id not in self._ids:
            return
        content, about = result_content(result, self._workspace), None
        if call.id in self._terminals and (call.id in self._output or "exit_code" in result.data):
            if call.id not in self._output:
                self._write(call.id, _shorten(shown_text(result)))
            content = [self._terminal(call.id), *_beside_output(result, content)]
            about = {
                TERMINAL_EXIT: {
                    "terminal_id": self._ids[call.id],
                    "exit_code": result.data.get("exit_code"),
                    "signal": result.data.get("signal") or None,
                }
            }
        lines = [line for one in _read_diff(shown_text(result)) for line in one.lines[:1]]
        places = find_locations(self._agent, call, lines[0] if lines else None)
        status: Literal["failed", "completed"] = "failed" if result.is_error else "completed"
        self._put(self._progress(call.id, status=status, content=content, locations=places or None, field_meta=about))
        if call.name == "todo_write" and not result.is_error:
            self._put(plan_of(call.arguments))
        del self._ids[call.id]
        self._output.pop(call.id, None)
        self._terminals.discard(call.id)

    def _write(self, call: str, text: str) -> None:
        """Adds text to the terminal of a call."""
        output = {"terminal_id": self._ids[call], "data": visible(text)}
        self._put(self._progress(call, content=[self._terminal(call)], field_meta={TERMINAL_OUTPUT: output}))

    def _terminal(self, call: str) -> TerminalToolCallContent:
        return TerminalToolCallContent(type="terminal", terminal_id=self._ids[call])

    def _progress(self, call: str, **fields: Any) -> ToolCallProgress:
        return ToolCallProgress(session_update="tool_call_update", tool_call_id=self._ids[call], **fields)


def text_chunk(text: str) -> AgentMessageChunk:
    """Returns a piece of the agent's text."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=_text(text))


def title_of(call: ToolCall, spec: ToolSpec) -> str:
    """Returns one line about a call: its tool and its target."""
    arguments = _arguments(call.arguments)
    target = next(iter(targets_of(spec, arguments)), "") if spec.targets else ""
    line = f"{spec.name} {target}".strip() if isinstance(target, str) else spec.name
    line = visible(line.replace("\n", " ")).replace("\r", " ")
    return line if len(line) <= LONGEST_TITLE else f"{line[:LONGEST_TITLE]}…"


def kind_of(spec: ToolSpec) -> ToolKind:
    """Returns the kind of a tool for an editor: it chooses the icon, and nothing else."""
    if (known := KINDS.get(spec.name)) is not None:
        return known
    needs = spec.permissions | spec.optional_permissions
    if Permission.EXECUTE in needs:
        return "execute"
    if Permission.WRITE in needs:
        return "edit"
    if Permission.NETWORK in needs:
        return "fetch"
    return "read" if Permission.READ in needs else "other"


def find_locations(agent: Agent, call: ToolCall, line: int | None = None) -> list[ToolCallLocation]:
    """Returns the files that a call is about, so that the editor can follow."""
    tool = agent.registry.find(call.name)
    if not tool.spec.permissions & {Permission.READ, Permission.WRITE} or Permission.EXECUTE in tool.spec.permissions:
        return []
    arguments, found = _arguments(call.arguments), []
    if line is None and isinstance(first := arguments.get("offset"), int) and first > 0:
        line = first
    try:
        targets = targets_of(tool.spec, arguments, tool)[:MOST_LOCATIONS]
    except (ToolError, ValueError, TypeError, KeyError):  # the arguments are not checked yet
        return []
    paths = PathValidator.of(agent.scope)
    for target in targets:
        if target and isinstance(target, str):
            try:
                found.append(ToolCallLocation(path=str(paths.resolve(target).path), line=line))
            except ToolError:  # no path, or one outside of the workspace
                continue
    return found


def plan_of(arguments: Any) -> AgentPlanUpdate:
    """Returns the plan that `todo_write` stored."""
    given = _arguments(arguments)
    listed = next((value for value in given.values() if isinstance(value, list)), [])
    priorities: dict[Any, PlanEntryPriority] = {"high": "high", "low": "low"}
    states: dict[Any, PlanEntryStatus] = {
        "in_progress": "in_progress",
        "completed": "completed",
        "cancelled": "completed",
    }
    entries = [
        PlanEntry(
            content=str(one.get("content", "")),
            priority=priorities.get(str(one.get("priority")), "medium"),
            status=states.get(str(one.get("status")), "pending"),
        )
        for one in listed
        if isinstance(one, Mapping)
    ]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def result_content(result: ToolResult, workspace: Path) -> list[ToolCallContentVariant]:
    """Returns a result for an editor: diffs where files changed, else its text."""
    text = shown_text(result)
    found: list[ToolCallContentVariant] = [*make_diffs(text, workspace)] if result.failure is None else []
    if not found and text:
        found.append(ContentToolCallContent(type="content", content=_text(_shorten(text))))
    found += [ContentToolCallContent(type="content", content=one) for one in _images(result.attachments)]
    return found


def _beside_output(result: ToolResult, content: Iterable[ToolCallContentVariant]) -> Iterator[ToolCallContentVariant]:
    """Yields the parts of a result that the terminal does not show: a failure, remarks, diffs, images."""
    text, output = shown_text(result), str(result.data.get("output", "")).rstrip("\n")
    rest = text if result.failure is not None else text.removeprefix(output).strip() if text.startswith(output) else ""
    if rest and output:
        yield ContentToolCallContent(type="content", content=_text(_shorten(rest)))
    yield from (one for one in content if not _is_text(one))


def _is_text(one: ToolCallContentVariant) -> bool:
    return isinstance(one, ContentToolCallContent) and isinstance(one.content, TextContentBlock)


def shown_text(result: ToolResult) -> str:
    if result.failure is not None:
        return "\n".join(filter(None, (result.failure.message, result.failure.suggestion)))
    return result.for_user or result.for_llm


# Diffs.


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclasses.dataclass(slots=True)
class _FileDiff:
    """The changed parts of one file."""

    path: str
    old: list[str] | None  # None: there was no file
    new: list[str]
    lines: list[int]  # where the hunks begin in the new file


def make_diffs(text: str, workspace: Path) -> list[FileEditToolCallContent]:
    """Returns the changed parts of each file of a unified diff, with the lines around them."""
    return [
        FileEditToolCallContent(
            type="diff",
            path=str(workspace / one.path),
            old_text="".join(one.old) if one.old is not None else None,
            new_text="".join(one.new),
        )
        for one in _read_diff(text)
    ]


def _read_diff(text: str) -> list[_FileDiff]:
    """Reads a unified diff by the counts of its hunks; a text that is none has no files."""
    if "\n@@ -" not in text:
        return []
    found: list[_FileDiff] = []
    name, is_new = "", False
    old = new = 0  # lines left in the hunk
    for line in text.splitlines(keepends=True):
        if old <= 0 and new <= 0:
            if line.startswith("--- "):
                is_new, name = line.strip() == "--- /dev/null", _read_name(line)
            elif line.startswith("+++ "):
                name = _read_name(line) or name
                if not name:  # a quoted name: the text is shown as it is
                    return []
                found.append(_FileDiff(name, None if is_new else [], [], []))
            elif found and (match := _HUNK.match(line)):
                old, new = int(match[2] or 1), int(match[4] or 1)
                found[-1].lines.append(int(match[3]))
            continue
        mark, rest = line[:1], line[1:]
        if mark in (" ", "-") and found[-1].old is not None:
            found[-1].old.append(rest)
        if mark in (" ", "+"):
            found[-1].new.append(rest)
        old -= mark in (" ", "-")
        new -= mark in (" ", "+")
        if mark not in (" ", "+", "-", "\\"):
            return []
    return found


def _read_name(line: str) -> str:
    name = line[4:].rstrip("\n").removesuffix("\t")
    return name[2:] if name[:2] in ("a/", "b/") else ""


# Questions.


ONCE, ALWAYS, NO, WHY = "allow_once", "allow_always", "reject_once", "reject_with_feedback"


def make_options(request: PermissionRequest, *, can_say_why: bool) -> list[PermissionOption]:
    """Returns the answers that a person can choose from."""
    yes, no = "Allow once", "Reject"
    if request.effects is not None:
        yes, no = "Apply the changes", "Discard the changes"
    elif request.result is not None:
        yes, no = "Show the result to the model", "Withhold the result"
    elif request.question:
        yes, no = "Yes", "No"
    options = [PermissionOption(option_id=ONCE, name=yes, kind="allow_once")]
    if rules := request.rules_to_remember:
        named = visible("; ".join(rules).replace("\n", " "))
        named = named if len(named) <= LONGEST_RULES else f"{named[:LONGEST_RULES]}…"
        options.append(PermissionOption(option_id=ALWAYS, name=f"Always allow: {named}", kind="allow_always"))
    options.append(PermissionOption(option_id=NO, name=no, kind="reject_once"))
    if can_say_why:
        options.append(PermissionOption(option_id=WHY, name=f"{no}, and say why", kind="reject_once"))
    return options


def make_question(request: PermissionRequest, view: RunView, workspace: Path) -> ToolCallUpdate:
    """Returns the call with everything that the person has to know."""
    diffs = make_diffs(request.preview, workspace)
    if diffs:  # the editor shows it
        request = dataclasses.replace(request, preview="the diff")
    text = request_text(request)
    return ToolCallUpdate(
        tool_call_id=view.find_id(request.call),
        title=title_of(request.call, request.spec),
        kind=kind_of(request.spec),
        status="pending",
        content=[ContentToolCallContent(type="content", content=_text(f"```\n{text}\n```")), *diffs],
        raw_input=_raw(request.arguments),
    )


def read_choice(chosen: str, options: Sequence[PermissionOption]) -> Answer:
    """Returns the answer of an option. One that was not offered is a no."""
    offered = {one.option_id for one in options}
    if chosen not in offered:
        return Answer.no("the editor answered with an option that was not offered", by="error")
    return {ONCE: Answer("once", by="editor"), ALWAYS: Answer("always", by="editor")}.get(
        chosen, Answer.no(by="editor")
    )


# The history of a session.


def replay(messages: Iterable[Message], agent: Agent) -> Iterator[Update]:
    """Yields a stored conversation, as it was seen. No run is in progress: calls without a result were interrupted."""
    used: set[str] = set()
    ids: dict[str, str] = {}
    for message in messages:
        if message.role == "user":
            for block in _blocks(message):
                yield UserMessageChunk(session_update="user_message_chunk", content=block)
        elif message.role == "assistant":
            if message.text:
                yield text_chunk(message.text)
            for call in message.tool_calls:
                number, id_ = 1, call.id
                while id_ in used:
                    number += 1
                    id_ = f"{call.id}#{number}"
                used.add(id_)
                ids[call.id] = id_
                spec = agent.registry.find(call.name).spec
                yield ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=id_,
                    title=title_of(call, spec),
                    kind=kind_of(spec),
                    status="pending",
                    locations=find_locations(agent, call) or None,
                    raw_input=_raw(call.arguments),
                )
                if call.name == "todo_write":
                    yield plan_of(call.arguments)
        elif message.role == "tool" and message.call_id in ids:
            yield ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=ids[message.call_id],
                status="failed" if message.is_error else "completed",
                content=[ContentToolCallContent(type="content", content=_text(_shorten(message.text)))],
            )
            del ids[message.call_id]
    for id_ in ids.values():
        yield ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=id_,
            status="failed",
            content=[ContentToolCallContent(type="content", content=_text(INTERRUPTED))],
        )


def _blocks(message: Message) -> Iterator[ContentBlock]:
    if message.text:
        yield _text(message.text)
    yield from _images(message.attachments)


def _images(attachments: Iterable[Attachment]) -> Iterator[ImageContentBlock]:
    for one in attachments:
        if one.media_type.startswith("image/") and one.data:
            data = base64.b64encode(one.data).decode()
            yield ImageContentBlock(type="image", data=data, mime_type=one.media_type)


def _text(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def _fenced(text: str) -> ContentToolCallContent:
    """Returns output of a program, as it is: not as Markdown."""
    fence = "`" * max(3, 1 + max((len(one) for one in re.findall(r"`+", text)), default=0))
    return ContentToolCallContent(type="content", content=_text(f"{fence}\n{visible(text)}\n{fence}"))


def _shorten(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[… {len(text) - LONGEST_TEXT:,} more characters]"


def _arguments(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, Mapping) else {}


def _raw(arguments: Any) -> Any:
    """Returns the arguments of a call as JSON; None if they are too long to be of use."""
    value = plain(dict(_arguments(arguments)))
    return value if len(json.dumps(value, default=str)) <= LONGEST_INPUT else None
