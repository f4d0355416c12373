"""Shows a run to people: the model's text as it arrives, its calls as they run, and their results."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

from forge.agent.result import ENDINGS
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.output import Output
from forge.cli.terminal.print_result import MOST_DIFF_LINES as MOST_DIFF
from forge.cli.terminal.print_result import clip, colour_of, harmless, summarise_diff
from forge.core.errors import ErrorKind
from forge.core.events import (
    ContextShortened,
    Event,
    MessageReceived,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    Retrying,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolArgumentsDelta,
    ToolCompleted,
    ToolFinished,
    ToolOutput,
    ToolProgress,
    ToolReconciled,
    ToolStarted,
    TurnFinished,
)
from forge.core.messages import ToolCall, Usage, render_call
from forge.core.result import ToolResult
from forge.permissions.questions import PermissionRequest
from forge.tools.conversation import CONVERSATION

MAIN = "main"  # the agent whose text is the answer
TAIL = 4  # lines of live output on a terminal
THOUGHTS = 2  # lines of reasoning on a terminal
MOST_DRAWN = 5  # calls drawn at once
MOST_LINES = 20  # lines of one call's live output where nothing can be drawn
LONGEST_LINE = 2_000  # characters of a line of live output
LONGEST_PIECE = LONGEST_LINE * MOST_LINES  # characters of live output that are read at a time
LONGEST_ARGUMENTS = 10_000  # characters of arguments that are read in order to be shown
LONGEST_MODEL = 40  # columns of its name in the status
MOST_SHOWN = 3  # lines of a result
MOST_KEPT = 20  # shortened outputs that can be shown whole
MOST_EXPANDED = 5_000  # lines of one of them
WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
DIM, RED, GREEN, CYAN = "2", "31", "32", "36"

Preview = Callable[[str, ToolResult], list[str]]
"""Returns a few lines of a tool's result: `preview(name, result)`."""


@dataclass(slots=True)
class UsageTally:
    """The usage of a run, its sub-agents included."""

    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def count(self, event: Event) -> None:
        if isinstance(event, ToolStarted):
            self.calls += event.call.name not in CONVERSATION
        elif isinstance(event, TurnFinished):
            self.turns += event.agent == MAIN
            self.usage = self.usage.plus(Usage(**event.usage))

    def summary(self, ending: Ending) -> str:
        """`2 turns · 3 calls · 1,200 tokens in (800 cached), 90 out · 4.2 s · cost 0.0123`."""
        usage = self.usage
        parts = [_count(self.turns, "turn"), _count(self.calls, "call")]
        if usage.total:
            cached = f" ({usage.cached:,} cached)" if usage.cached else ""
            parts.append(f"{usage.input:,} tokens in{cached}, {usage.output:,} out")
        parts.append(format_seconds(ending.seconds))
        parts += [f"cost {ending.cost:.4f}"] if ending.cost is not None else []
        return " · ".join(parts)


@dataclass(slots=True)
class _Call:
    """A call that is running."""

    call: ToolCall
    depth: int  # 1 for a sub-agent's
    task: str  # the path of the call that its agent works for
    started: float = field(default_factory=time.monotonic)
    waited: float = 0.0  # seconds for a person
    progress: str = ""
    tail: deque[str] = field(default_factory=lambda: deque([""], maxlen=TAIL + 1))  # the last line may be incomplete
    lines: int = 0  # printed if nothing can be drawn
    animated: bool = True

    def take(self, text: str) -> list[str]:
        """Adds to the live output; returns the lines that are complete now."""
        first, *rest = text.split("\n")
        self.tail[-1] = f"{self.tail[-1]}{first}"[-LONGEST_LINE:]
        complete = [self.tail[-1], *rest[:-1]] if rest else []
        self.tail.extend(rest)
        return complete

    def last_lines(self) -> list[str]:
        return [_visible_part(line) for line in self.tail if line.strip()][-TAIL:]


class ForPeople:
    """Draws on a terminal; elsewhere writes plain lines."""

    def __init__(
        self,
        out: Output,
        preview: Preview,
        animates: Callable[[str], bool] = lambda name: True,
        *,
        model: str = "",
        ends: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`animates` tells whether a spinner turns while the tool of this name runs; `model` is named in the status.

        `ends` tells whether the end of its output matters more than the beginning, as that of a program's.
        """
        self.out = out
        self._ends = ends
        self._shortened: deque[tuple[str, list[str]]] = deque(maxlen=MOST_KEPT)  # title and lines, the newest last
        self._next_expanded = 0  # from the newest
        self._asked: dict[str, float] = {}  # since when a call waits for a person
        self._group = ""  # the task whose calls are being listed under its name
        self._numbers: dict[str, int] = {}  # of tasks that run side by side
        self.tally = UsageTally()
        self._model = model
        self._runs = 0  # that ended
        self._total = Usage()  # of all of them
        self._total_cost: float | None = None
        self._preview = preview
        self._animates = animates
        self._calls: dict[str, _Call] = {}  # by path
        self._drafts = Drafts()
        self._thinking = 0.0  # when the wait for the model began; 0: there is none
        self._spoke = -1  # finished turns when the model last wrote text
        self._last = ""  # the kind written last: text or note
        self._drawn_at = 0.0
        self._turned = 0
        self._questions: dict[str, PermissionRequest] = {}  # by path: those the person said yes to, as they were shown

    @property
    def is_moving(self) -> bool:
        return self.out.live and bool(
            self._thinking or self._drafts or any(one.animated for one in self._calls.values())
        )

    def show(self, event: Event) -> None:
        self.tally.count(event)
        match event:
            case TextDelta(agent=agent) if agent == MAIN:
                self._thinking = 0.0
                self._drafts.forget(_task(event))
                self._spoke = self.tally.turns
                self._say(event.text)
            case ReasoningDelta(agent=agent):
                self._thinking = self._thinking or (time.monotonic() if agent == MAIN else 0.0)
                self._drafts.take(event)
            case ToolArgumentsDelta(call=call) if call.name not in CONVERSATION:
                self._drafts.take(event)
            case MessageReceived(text=text):
                first, *rest = text.split("\n")
                depth = _depth(event)
                lines = [self._line(depth, ">", CYAN, first), *(self._line(depth, " ", CYAN, one) for one in rest)]
                self._note_about(event, *lines)
            case ContextShortened():
                self._note_about(event, self._line(_depth(event), "✂", CYAN, describe_shortening(event)))
            case Retrying():
                self._drafts.forget(_task(event))
                self._note_about(event, self._line(_depth(event), "↻", CYAN, describe_retry(event)))
            case ToolStarted():
                self._drafts.forget(_task(event))
                self._begin(event)
            case PermissionAsked() if _path(event) in self._calls:
                self._asked[_path(event)] = event.at
            case PermissionAnswered() if (since := self._asked.pop(_path(event), None)) is not None:
                self._calls[_path(event)].waited += max(event.at - since, 0.0)
            case ToolProgress() | ToolOutput() if _path(event) in self._calls:
                self._update(event)
            case ToolFinished():
                self._end(event)
            case ToolCompleted():
                self._note_about(event, *self._outcome(event, "in the background"))
            case ToolReconciled():
                self._note_about(event, self._line(_depth(event), "↻", CYAN, describe_reconciled(event)))
            case TurnFinished(agent=agent) if agent == MAIN:
                self.out.end_text()
                self._drafts.forget(_task(event))
                self._thinking = time.monotonic()
            case RunStarted():
                self._thinking, self._spoke = time.monotonic(), -1
            case RunFinished():
                self._finish(event)

    def tick(self) -> None:
        self._turned += 1
        self._draw()

    def clear(self) -> None:
        self.out.erase()
        self.out.end_line()
        if self._last and self.out.live and not self.out.after_blank:
            self.out.note("")
        self._last = "note"

    @property
    def totals(self) -> tuple[int, Usage, float | None]:
        """The number of runs, their usage and their cost."""
        return self._runs, self._total, self._total_cost

    def rename_model(self, name: str) -> None:
        self._model = name

    def expand(self) -> None:
        """Shows the whole of the newest output that was shortened; the next time, of the one before."""
        if not self._shortened:
            self.note("There is no shortened output to show.")
            return
        self._next_expanded = self._next_expanded % len(self._shortened) + 1
        title, lines = self._shortened[-self._next_expanded]
        left = len(lines) - MOST_EXPANDED
        shown = [part for line in lines[-MOST_EXPANDED:] for part in self.out.wrap(_visible_part(line), 2)]
        more = [f"  … {left:,} lines before these"] if left > 0 else []
        head = self._line(0, "▾", CYAN, title, f"{_count(len(lines), 'line')}")
        self._note(head, *(self.out.paint(line, DIM) for line in [*more, *(f"  {line}" for line in shown)]))

    def remember_question(self, request: PermissionRequest) -> None:
        """Remembers what the person has seen: the outcome of the call does not show it again."""
        self._questions[_join_path(request.scope.task, request.call.id)] = request

    def list_earlier(self, request: PermissionRequest) -> list[str]:
        """Returns a line with the calls that began before this one and have not asked yet: they may still do so."""
        asked = _join_path(request.scope.task, request.call.id)
        running = list(self._calls.items())
        before = running[: next((at for at, (path, _) in enumerate(running) if path == asked), 0)]
        names = [
            self._name_task(path, one.call)
            for path, one in before
            if not one.waited and path not in self._asked and not asked.startswith(f"{path}/")
        ]
        return [self.out.paint(self.out.fit(f"Also under way: {', '.join(names)}"), DIM)] if names else []

    def note(self, *lines: str) -> None:
        self._note(*(self.out.paint(part, DIM) for line in lines for part in self.out.wrap(line)))

    def finish(self, ending: Ending) -> None:
        """Prints the reason for a missing answer, and the usage of the run."""
        self._calls.clear()
        self._numbers.clear()
        self._drafts.forget()
        self._questions.clear()
        self._thinking = 0.0
        self.out.erase()
        self.out.end_text()
        problem = [self.out.paint(part, RED) for line in ending.message.splitlines() for part in self.out.wrap(line)]
        status = [part for line in self._fit_status(self._status(ending)) for part in self.out.wrap(line)]
        self.tally = UsageTally()
        self._note(*problem, *(self.out.paint(part, DIM) for part in status))

    def _fit_status(self, parts: list[str]) -> list[str]:
        """Joins the parts of a status; a line breaks between two of them."""
        lines: list[str] = []
        for part in parts:
            longer = f"{lines[-1]} · {part}" if lines else ""
            if longer and self.out.fit(longer) == longer:
                lines[-1] = longer
            else:
                lines.append(part)
        return lines

    def _status(self, ending: Ending) -> list[str]:
        """Returns the usage of a run; on a terminal also the model and, after several runs, the sum of them."""
        self._runs += 1
        self._total = self._total.plus(self.tally.usage)
        if ending.cost is not None:
            self._total_cost = (self._total_cost or 0.0) + ending.cost
        used = self.tally.summary(ending)
        if not self.out.live:
            return [used]
        provider, _, name = harmless(self._model).partition(":")
        model = f"{provider}:{name.rpartition('/')[2]}" if name.startswith("/") else self._model  # of a file, its name
        parts = [clip(harmless(model), LONGEST_MODEL)] if model else []
        parts += used.split(" · ")
        if self._runs > 1 and self._total.total:
            cost = f", cost {self._total_cost:.4f}" if self._total_cost is not None else ""
            parts.append(f"in all {self._total.total:,} tokens{cost}")
        return parts

    def _begin(self, event: ToolStarted) -> None:
        if event.call.name in CONVERSATION:  # their text is the answer
            return
        self._thinking = 0.0
        path = _path(event)
        begun = self._calls[path] = _Call(event.call, _depth(event), _task(event))
        begun.animated = self._animates(event.call.name)
        if _is_task(event.call):
            self._number_task(path, event.call)
        if self.out.live:
            self._draw()
            return
        self._note_about(event, self._line(begun.depth, "→", CYAN, self._name_task(path, event.call)))
        if not begun.depth:
            self._group = path  # its line is the head of a sub-agent's

    def _update(self, event: ToolProgress | ToolOutput) -> None:
        under_way = self._calls[_path(event)]
        if isinstance(event, ToolProgress):
            under_way.progress = event.title
            lines = [self._line(under_way.depth + 1, "·", DIM, event.title)]
        else:
            text = event.text[-LONGEST_PIECE:] if self.out.live else event.text[:LONGEST_PIECE]
            lines = self._limit_lines(under_way, under_way.take(text))
        if self.out.live:
            if not under_way.animated or time.monotonic() - self._drawn_at > 0.05:
                self._draw()
        elif lines:
            self._note_about(event, *lines)

    def _limit_lines(self, under_way: _Call, lines: list[str]) -> list[str]:
        """Returns live output as plain lines: the first ones of a call, and a mark for the rest."""
        room = MOST_LINES - under_way.lines
        under_way.lines += len(lines)
        if room <= 0:
            return []
        shown = [self._line(under_way.depth + 1, "│", DIM, _visible_part(line)) for line in lines[:room]]
        return [*shown, self._line(under_way.depth + 1, "│", DIM, "…")] if len(lines) > room else shown

    def _end(self, event: ToolFinished) -> None:
        ended = self._calls.get(path := _path(event))
        is_shown = ended is not None and ended.lines > 0 and not self.out.live  # its output was printed above
        if event.call.name not in CONVERSATION or event.result.is_error:
            seconds = event.seconds - (ended.waited if ended is not None else 0.0)
            lines = self._outcome(event, format_seconds(max(seconds, 0.0)), is_shown=is_shown)
            failure = event.result.failure
            was_stopped = self.out.live and failure is not None and failure.kind == ErrorKind.CANCELLED
            if ended is not None and was_stopped:  # what it had written is not in its result
                lines[1:1] = [self._line(ended.depth + 1, "│", DIM, line) for line in ended.last_lines()]
            self._note_about(event, *lines)
        self._calls.pop(path, None)
        self._asked.pop(path, None)  # about a host: the program ended before there was an answer
        self._numbers.pop(path, None)
        if (
            event.result.data.get("delivered") is False and event.agent == MAIN
        ):  # a message to the person at the terminal
            self.out.end_text()
            self._say(event.result.for_user)
            self.out.end_text()
        if self._calls:
            self._draw()

    def _outcome(self, event: ToolFinished | ToolCompleted, when: str, *, is_shown: bool = False) -> list[str]:
        """Returns one line with the call and its outcome, and a few lines of the result."""
        result, depth = event.result, _depth(event)
        mark, colour = ("✗", RED) if result.is_error else ("…", CYAN) if result.pending else ("✓", GREEN)
        question = self._questions.pop(_path(event), None)
        named = self._name_task(_path(event), event.call) if self.out.live or depth else event.call.name
        what = named if _is_task(event.call) and self.out.live else result.title or named
        lines = [self._line(depth, mark, colour, what, when)]
        if not result.is_error and (depth or is_shown or result.silent):
            return lines  # a sub-agent's report has the results of its calls
        changed = summarise_diff(result)
        seen = question.preview.strip() if question is not None else ""
        if changed and seen == result.for_user.strip():
            return lines
        if seen and not changed and result.for_user.rstrip().endswith(seen):  # the question has shown this part
            event = replace(
                event, result=replace(result, for_user=result.for_user.rstrip().removesuffix(seen).rstrip())
            )
        indent = 2 * depth + 2
        for one in changed or self._body(event, what):
            style = _colour(one) if changed else DIM
            parts = self.out.wrap(one, indent) if result.is_error else [self.out.fit(one, indent)]
            lines += [f"{' ' * indent}{self.out.paint(part, style)}" for part in parts]
        if len(changed) > MOST_DIFF:
            self._keep(what, result.for_user)
        return lines

    def _body(self, event: ToolFinished | ToolCompleted, title: str) -> list[str]:
        """Returns a few lines of the result: of a program's output the last ones, else the first."""
        result, name = event.result, event.call.name
        most, at_end = MOST_SHOWN, self._ends(name)
        shown = self._preview(name, result)
        text = result.for_user or result.for_llm
        if result.failure is not None and "\n" in result.failure.message.strip():
            text, most = result.failure.text().strip(), MOST_LINES
            shown = [line[:LONGEST_LINE] for line in text.split("\n", most)[:most]]
        elif result.failure is not None or not self.out.live:
            return [one for one in shown if one.strip(" [](){},")]
        lines = [line[:LONGEST_LINE] for line in text.rstrip("\n").split("\n") if not line.startswith("[task_id: ")]
        if len(lines) > most + 1:
            self._keep(title, text)
            note = f"… {len(lines):,} lines" + (", Ctrl-O shows them" if self.out.line is not None else "")
            return [note, *lines[-most:]] if at_end else [*(one for one in shown if one != "…"), note]
        shown = lines if at_end or most == MOST_LINES else shown
        return [one for one in shown if one.strip(" [](){},") and not one.startswith("[task_id: ")]

    def _keep(self, title: str, text: str) -> None:
        self._shortened.append((title, text.rstrip("\n").split("\n")))
        self._next_expanded = 0

    def _note_about(self, event: Event, *lines: str) -> None:
        """Prints lines about an event; those of a sub-agent under its task, whose name is repeated after others."""
        group, depth = _task(event), _depth(event)
        begun = self._calls.get(group)
        head = []
        if depth and group != self._group and (begun is not None or self.out.live):
            name = self._name_task(group, begun.call) if begun is not None else event.agent.rpartition("/")[2]
            head = [self._line(depth - 1, "▸", CYAN, name)]
        self._note(*head, *lines)
        self._group = group

    def _name_task(self, path: str, call: ToolCall) -> str:
        """Returns `general: count the apples`; `general 2: …` for the second of the tasks that run side by side.

        A shell command reads on a terminal as its result does: `$ make test`.
        """
        if self.out.live and call.name == "bash" and (command := str(_arguments(call).get("command", "")).strip()):
            return f"$ {command}"
        if not _is_task(call) or path not in self._numbers:
            return describe_call(call)
        kind, _, work = describe_call(call).partition(": ")
        return f"{kind} {self._numbers[path]}: {work}"

    def _number_task(self, path: str, call: ToolCall) -> None:
        """Numbers the tasks of one kind as soon as there is a second one at work."""
        kind = _agent_type(call)
        others = [one for one, running in self._calls.items() if _is_task(running.call) and one != path]
        others = [one for one in others if _agent_type(self._calls[one].call) == kind]
        if others:
            for one in [*others, path]:
                taken = {self._numbers[other] for other in [*others, path] if other in self._numbers}
                self._numbers.setdefault(one, next(number for number in count(1) if number not in taken))

    def _draw(self) -> None:
        """Draws the running calls and the end of their output, those of a sub-agent under its task."""
        lines = []
        wheel = WHEEL[self._turned % len(WHEEL)]
        for path, one in islice(self._list_calls(), MOST_DRAWN):
            passed = time.monotonic() - one.started - one.waited
            mark, time_passed = (wheel, format_seconds(passed) if passed >= 1 else "") if one.animated else ("→", "")
            lines.append(self._line(one.depth, mark, CYAN, self._name_task(path, one.call), time_passed))
            lines += [self._line(one.depth + 1, "·", DIM, one.progress)] if one.progress else []
            lines += [self._line(one.depth + 1, "│", DIM, line) for line in one.last_lines()]
        for draft in islice(self._drafts.calls(), MOST_DRAWN):
            depth = draft.depth
            lines.append(self._line(depth, wheel, CYAN, f"writing {draft.name}", f"{draft.size:,} characters"))
            lines += [self._line(depth + 1, "│", DIM, line) for line in draft.tail(TAIL)]
        more = len(self._calls) - MOST_DRAWN
        lines += [self.out.paint(f"… and {more} more", DIM)] if more > 0 else []
        if self._thinking and not self._drafts:
            passed = time.monotonic() - self._thinking
            lines.append(self._line(0, wheel, CYAN, "thinking", format_seconds(passed) if passed >= 1 else ""))
            lines += [self._line(1, "│", DIM, line) for line in self._drafts.thoughts("", THOUGHTS)]
        self._turn_to("note")
        self.out.draw(lines)
        self._drawn_at = time.monotonic()

    def _list_calls(self, task: str = "") -> Iterator[tuple[str, _Call]]:
        """Yields the running calls of a task with their paths, each before those of the agent that works for it."""
        for path, one in self._calls.items():
            if one.task == task or (not task and one.task not in self._calls):
                yield path, one
                if path:
                    yield from self._list_calls(path)

    def _finish(self, event: RunFinished) -> None:
        """Prints an answer that a tool handed over and that was not printed yet."""
        self._thinking = 0.0
        handed_over = event.reason in ENDINGS.values()
        if handed_over or (event.reason == "answer" and self._spoke < self.tally.turns - 1):
            self.out.end_text()
            self._say(event.text)
        self.out.end_text()

    def _say(self, text: str) -> None:
        if text:
            self._group = ""
            self._turn_to("text")
            self.out.print(text)

    def _note(self, *lines: str) -> None:
        self._group = ""
        self._turn_to("note")
        self.out.note(*lines)

    def _turn_to(self, kind: str) -> None:
        """Separates text and notes by an empty line on a terminal."""
        if self._last and kind != self._last and self.out.live and self.out.out_is_terminal:
            self.out.note("")
        self._last = kind

    def _line(self, depth: int, mark: str, colour: str, text: str, after: str = "") -> str:
        indent = 2 * depth
        room = indent + 2 + (len(after) + 2 if after else 0)
        painted = self.out.paint(mark, colour)
        words = self.out.fit(text, room)
        if colour == DIM:
            words = self.out.paint(words, DIM)
        return f"{' ' * indent}{painted} {words}" + (f"  {self.out.paint(after, DIM)}" if after else "")


def _path(
    event: ToolStarted
    | ToolProgress
    | ToolOutput
    | ToolFinished
    | ToolCompleted
    | PermissionAsked
    | PermissionAnswered,
) -> str:
    return _join_path(_task(event), event.call.id)  # two agents may use the same ids


def _join_path(task: str, id: str) -> str:
    return f"{task}/{id}" if task else id


def _task(event: Event) -> str:
    """Returns the path of the call that the agent works for; its name where the event does not say, as in old runs."""
    return event.task or (event.agent if _depth(event) else "")


def _depth(event: Event) -> int:
    """Returns 0 for the agent itself, 1 for its sub-agents, and so on."""
    return event.agent.count("/") if event.agent else 0


def _is_task(call: ToolCall) -> bool:
    return call.name == "task" and bool(_arguments(call).get("description"))


def _agent_type(call: ToolCall) -> str:
    return str(_arguments(call).get("agent_type") or "general")


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    """Returns the arguments, parsed or not; nothing where they cannot be read."""
    given = call.arguments
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}") if len(given) <= LONGEST_ARGUMENTS else {}
        except (ValueError, RecursionError):
            return {}
    return given if isinstance(given, Mapping) else {}


def _colour(line: str) -> str:
    return {"green": GREEN, "red": RED, "cyan": CYAN}.get(colour_of(line), DIM)


def _visible_part(line: str) -> str:
    """Returns what remains of a line that a progress bar has overwritten."""
    return line.rstrip("\r").rpartition("\r")[2][:LONGEST_LINE]


def describe_retry(event: Retrying) -> str:
    """Renders a retry: `trying again in 2.5 s: asking openai …: HTTP 429: …`."""
    when = f" in {format_seconds(event.seconds)}" if event.seconds else ""
    return f"trying again{when}: {event.reason}"


_RECONCILED = {"done": "it took effect", "not_done": "it took no effect, and runs now"}


def describe_reconciled(event: ToolReconciled) -> str:
    """Renders what a tool says about a call of a lost worker: `transfer, whose worker was lost: it took effect`."""
    words = _RECONCILED.get(event.state, "its state is unknown")
    return f"{event.call.name}, whose worker was lost: {words}" + (f" ({event.reason})" if event.reason else "")


def describe_shortening(event: ContextShortened) -> str:
    """Renders what the model is not sent: `not sent again: 12 old outputs, about 20,400 tokens`."""
    counts = [(event.outputs, "old output"), (event.repeats, "repeated result"), (event.thoughts, "old thought")]
    parts = [f"{count} {words}{'s' if count > 1 else ''}" for count, words in counts if count]
    if event.summaries:
        parts.append("older messages, which are a summary now")
    how = "left out by the provider" if event.by else "not sent again"
    return f"{how}: {', '.join(parts)}" + (f", about {event.tokens:,} tokens" if event.tokens else "")


def describe_call(call: ToolCall) -> str:
    """Renders a call as `csv_parse(path="sales.csv")`, with shortened arguments, parsed or not."""
    if _is_task(call):
        return f"{_agent_type(call)}: {_arguments(call)['description']}"
    parsed = _arguments(call)
    return render_call(replace(call, arguments=parsed) if parsed else call)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def format_seconds(passed: float) -> str:
    """`0.02 s`, `3.1 s`, `2 min 05 s`."""
    if passed < 60:
        return f"{passed:.2f} s" if passed < 1 else f"{passed:.1f} s"
    return f"{int(passed) // 60} min {int(passed) % 60:02} s"


# Holds text that a model is still writing: its reasoning, and the arguments of its calls.


LONGEST_KEPT = 2_000  # characters that are kept of each
_ESCAPES = (("\\n", "\n"), ('\\"', '"'), ("\\t", "    "))  # of JSON


@dataclass(slots=True)
class UnfinishedText:
    """One unfinished text; `name` is the tool of an unfinished call."""

    name: str = ""
    depth: int = 0  # 1 for a sub-agent's
    size: int = 0
    end: str = ""  # the last part

    def take(self, text: str) -> None:
        self.size += len(text)
        self.end = f"{self.end}{text}"[-LONGEST_KEPT:]

    def tail(self, most: int) -> list[str]:
        """Returns the last lines; in a call, escaped line breaks count as line breaks."""
        text = self.end
        for escape, character in _ESCAPES if self.name else ():
            text = text.replace(escape, character)
        return [line for line in text.splitlines() if line.strip()][-most:]


class Drafts:
    """The unfinished texts of a run, by task."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], UnfinishedText] = {}  # by task and id
        self._thoughts: dict[str, UnfinishedText] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, event: ReasoningDelta | ToolArgumentsDelta) -> None:
        if isinstance(event, ReasoningDelta):
            self._thoughts.setdefault(_task(event), UnfinishedText()).take(event.text)
            return
        draft = self._calls.setdefault((_task(event), event.call.id), UnfinishedText(depth=_depth(event)))
        draft.name = event.call.name or draft.name or "a call"
        draft.take(event.text)

    def calls(self) -> Iterator[UnfinishedText]:
        return iter(self._calls.values())

    def thoughts(self, task: str, most: int) -> list[str]:
        """Returns the last lines of an agent's reasoning."""
        found = self._thoughts.get(task)
        return found.tail(most) if found is not None else []

    def forget(self, task: str | None = None) -> None:
        """Drops the texts of an agent, or of all agents: what they became is shown now."""
        self._calls = {key: one for key, one in self._calls.items() if task not in (None, key[0])}
        self._thoughts = {key: one for key, one in self._thoughts.items() if task not in (None, key)}
