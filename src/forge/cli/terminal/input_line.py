"""The input line at the bottom of the terminal: a person types there while the model writes above it.

Text of models and tools reaches the terminal only through `print` and `draw`, after its control characters were
replaced. The line itself is drawn by prompt_toolkit, which shows control characters as visible ones.
"""

from __future__ import annotations

import asyncio
import io
import os
import queue
import re
import select
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol, Self, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from forge.cli.terminal.keyboard import LONGEST_MESSAGE
from forge.cli.terminal.output import as_ascii, write_text
from forge.cli.terminal.print_result import clip, harmless, width_of
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.files import open_regular

LOOK_UP = 0.5  # seconds between two looks for signals
ESCAPE = 0.1  # seconds after which Esc is a key of its own and not the beginning of another
ALT = 0.02  # seconds between the two codes of Alt-Enter, if they are not sent together
MOST_HISTORY = 1_000  # messages
LARGEST_HISTORY = 4 * 1024 * 1024  # bytes
LARGEST_STORED = 64 * 1024  # characters of a message that the history keeps
QUIT = "/quit"
MOST_QUEUED = 5  # queued messages that are shown
PREFIX = 2  # columns before each row of the line
MENU = 8  # suggestions shown at once
STYLE = Style.from_dict({"status": "ansibrightblack", "queued": "ansicyan", "mode": "bold ansiyellow"})


class Suggestion(NamedTuple):
    """A completion of the end of a line."""

    text: str
    replaces: int  # characters before the cursor
    meaning: str = ""


class InputHost(Protocol):
    """The conversation that an input line belongs to. The line's thread calls it."""

    def send(self, text: str) -> None:
        """Sends a message to the run in progress. Raises `ToolError`."""

    def withdraw(self, text: str) -> bool:
        """Takes back a message that the run has not received yet."""

    def is_busy(self) -> bool:
        """Returns whether a run, or other work that Ctrl-C stops, is in progress."""

    def stop(self) -> None:
        """Stops the run."""

    def change_mode(self) -> None:
        """Changes to the next mode."""

    def expand(self) -> None:
        """Shows the whole of an output that was shortened."""

    def mode(self) -> str: ...

    def suggest(self, line: str, *, asked: bool) -> Iterable[Suggestion]:
        """Returns what the line may become. `asked`: a person waits for it, so that a server may be asked, too."""


@dataclass(slots=True)
class _Queued:
    """A message that was typed during a run."""

    text: str
    is_sent: bool  # the run has it, and takes it before the next turn; otherwise it waits for the prompt


class InputLine:
    """Reads messages like a `Keyboard`. The line is drawn and edited on a thread of its own."""

    is_terminal = True

    def __init__(self, host: InputHost, history: Path | None = None) -> None:
        self.host = host
        self._messages: queue.SimpleQueue[str | type[KeyboardInterrupt] | None] = queue.SimpleQueue()
        self._queued: list[_Queued] = []
        self._lock = threading.RLock()
        self._waits = False  # the conversation waits for a message
        self._asks = False  # … that may be empty
        self._live: Sequence[str] = ()
        self._partial = ""  # the model's line that is not complete yet
        self._is_suspended = False
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._buffer: Buffer = Buffer(
            history=_StoredHistory(history),
            completer=_Suggestions(host.suggest),
            complete_while_typing=Condition(lambda: self._buffer.text.startswith("/") or "@" in self._buffer.text),
            enable_history_search=False,
            multiline=True,
        )
        self._app = self._make_application()
        self._thread = threading.Thread(target=self._serve, name="forge-input", daemon=True)
        self._streams: tuple[TextIO, TextIO] | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGWINCH, self._resized)
        self._queued += [_Queued(line, is_sent=False) for line in read_typed_ahead()]
        self._thread.start()
        self._ready.wait()
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _AboveLine(self, 1), _AboveLine(self, 2)
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if self._streams is not None:
            sys.stdout, sys.stderr = self._streams
        signal.signal(signal.SIGWINCH, self._before)
        self._call(lambda: self._app.exit() if self._app.is_running and not self._app.is_done else None)
        self._thread.join(2.0)

    # Called by the conversation.

    def message(self, prompt: str = "> ") -> str | None:
        """Waits for the next message. None: the person leaves. Ctrl-C is a `KeyboardInterrupt`.

        Another prompt is a question: it stands above the line, and Enter alone answers it, too.
        """
        is_question = prompt != "> "
        if is_question:
            self.print(f"{prompt.rstrip()}\n")
        with self._lock:
            waiting = None if is_question else self._take_queued()
            self._waits, self._asks = waiting is None, is_question
        if waiting is not None:
            self._echo(waiting)
            return waiting
        self._redraw()
        try:
            return self._next_message()
        finally:
            self._waits = self._asks = False
            self._redraw()

    def next_queued(self) -> str | None:
        """Returns the next message that was typed during a run and came too late for it."""
        with self._lock:
            waiting = self._take_queued()
        if waiting is not None:
            self._echo(waiting)
        return waiting

    def _take_queued(self) -> str | None:
        waiting = next((one for one in self._queued if not one.is_sent), None)
        if waiting is None:
            return None
        self._queued.remove(waiting)
        self._redraw()
        return waiting.text

    def _next_message(self) -> str | None:
        while True:
            try:
                found = self._messages.get(timeout=LOOK_UP)
            except queue.Empty:  # a signal that arrives just before a thread begins to wait does not wake it
                continue
            if isinstance(found, str) or found is None:
                return found
            raise found

    def save(self) -> None:
        """Does nothing: each message is stored when it is sent."""

    def received(self) -> None:
        """The run has received the oldest message that was sent to it, and shows it."""
        with self._lock:
            sent = next((one for one in self._queued if one.is_sent), None)
            if sent is not None:
                self._queued.remove(sent)
        self._redraw()

    def end_run(self, *, stopped: bool) -> None:
        """Keeps messages that the run did not receive: for the prompt, or to be edited if the run was stopped."""
        with self._lock:
            if not stopped:
                for one in self._queued:
                    one.is_sent = False
                return
            texts = [one.text for one in self._queued]
            self._queued.clear()
        if texts:
            self._call(lambda: self._put_back("\n".join(texts)))

    def print(self, text: str) -> None:
        """Writes lines above the input line, and returns when they are written."""
        if not text:
            return
        written = threading.Event()

        def write() -> None:
            try:
                if self._app.is_running and not self._is_suspended:
                    self._app.renderer.erase()
                    write_text(1, text)
                    self._app.invalidate()
                else:
                    write_text(1, text)
            finally:
                written.set()

        if self._is_suspended or threading.current_thread() is self._thread or not self._call(write):
            write()
        while not written.wait(LOOK_UP):
            if not self._thread.is_alive():
                return

    def draw(self, lines: Sequence[str], partial: str = "") -> None:
        """Shows these lines just above the input line, instead of those shown before."""
        if (self._live, self._partial) != (lines, partial):
            self._live, self._partial = lines, partial
            self._redraw()

    def add_typed(self, text: str) -> None:
        """Adds what was typed before a question could be seen. A single key was an answer that came too early."""
        self._call(lambda: self._buffer.insert_text(text) if self._buffer.text or len(text) > 1 else None)

    def unsent(self) -> str:
        """Returns what was typed and not sent: queued messages and the line itself."""
        with self._lock:
            texts = [one.text for one in self._queued if one.text != QUIT]
        return "\n".join(filter(None, (*texts, self._buffer.text.strip())))

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Takes the line away, and leaves the keyboard to a question. What was typed comes back."""
        reached, loop = threading.Event(), self._loop
        if loop is None or not self._app.is_running:
            yield
            return
        over, ended = asyncio.Event(), threading.Event()

        async def hold() -> None:
            try:
                async with in_terminal():
                    self._is_suspended = True
                    reached.set()
                    await over.wait()
                    self._is_suspended = False
            finally:
                self._is_suspended = False
                reached.set()
                ended.set()

        self._call(lambda: self._app.create_background_task(hold()))
        await in_thread(reached.wait)
        try:
            yield
        finally:
            self._call(over.set)
            await in_thread(partial(ended.wait, 2.0))

    # On the thread of the line.

    def _serve(self) -> None:
        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            await self._app.run_async(pre_run=self._ready.set, handle_sigint=False, set_exception_handler=False)

        try:
            asyncio.run(run())
        except EOFError:  # the terminal is gone
            pass
        finally:
            self._loop = None
            self._ready.set()
            self._messages.put(None)

    def _call(self, work: Callable[[], object]) -> bool:
        """Lets the line's thread do something. Returns False if that is over."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(work, context=self._app.context)
        except RuntimeError:  # it was closed meanwhile
            return False
        return True

    def _redraw(self) -> None:
        self._app.invalidate()

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._call(lambda: None if self._is_suspended else self._app._on_resize())

    def _echo(self, text: str) -> None:
        first, *rest = harmless(text).split("\n")
        shown = "\n".join([f"\x1b[36m>\x1b[0m {first}", *(f"  {line}" for line in rest)])
        self.print(f"\n{shown}\n")

    def _accept(self) -> None:
        """Sends what was typed: to the conversation, or to the run in progress."""
        text = self._buffer.text[:LONGEST_MESSAGE].strip()
        if not text:
            self._buffer.reset()
            if self._asks:
                self._messages.put("")
            return
        with self._lock:
            waits, self._waits = self._waits, False
            is_sent = False
            if not waits and not text.startswith("/"):
                try:
                    self.host.send(text)
                    is_sent = True
                except ToolError as error:
                    if error.kind != "not_found":  # not sent, and it stays to be edited
                        self.print(harmless(f"{error.message}\n{error.suggestion}".strip()) + "\n")
                        return
            if not waits:
                self._queued.append(_Queued(text, is_sent))
        self._buffer.append_to_history()
        self._buffer.reset()
        if waits:
            self._echo(text)
            self._messages.put(text)

    def _withdraw(self) -> bool:
        """Takes the newest queued message back into the line. Returns False if there is none to take back."""
        with self._lock:
            for one in reversed(self._queued):
                if not one.is_sent or self.host.withdraw(one.text):
                    self._queued.remove(one)
                    self._put_back(one.text)
                    return True
        return False

    def _put_back(self, text: str) -> None:
        typed = self._buffer.text
        whole = f"{text}\n{typed}" if typed else text
        self._buffer.set_document(Document(whole, len(whole)), bypass_readonly=True)
        self._redraw()

    def _make_application(self) -> Application[None]:
        search = SearchToolbar()
        entry = Window(
            BufferControl(self._buffer, search_buffer_control=search.control, input_processors=[_WrapWords()]),
            get_line_prefix=lambda number, wrapped: [("ansicyan", "> " if not number and not wrapped else "  ")],
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=max(shutil.get_terminal_size().lines // 3, 3)),
        )
        above = Window(
            FormattedTextControl(self._live_fragments),
            wrap_lines=True,
            dont_extend_height=True,
            always_hide_cursor=True,
        )
        below = Window(FormattedTextControl(self._status_fragments), dont_extend_height=True, height=1)
        menu = CompletionsMenu(max_height=MENU)
        stack = HSplit([above, entry, search, menu, below], align=VerticalAlign.TOP)
        app: Application[None] = _Application(
            layout=Layout(stack, focused_element=entry),
            style=STYLE,
            key_bindings=self._make_keys(),
            erase_when_done=True,
            input=tell_alt_enter(create_input(sys.stdin)),
            output=Vt100_Output(sys.stdout, _terminal_size, term=os.environ.get("TERM"), enable_cpr=False),
            terminal_size_polling_interval=None,
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE
        return app

    def _live_fragments(self) -> StyleAndTextTuples:
        size = shutil.get_terminal_size()
        lines = [*self._live, *([self._partial] if self._partial else [])]
        room = max(size.lines - min(len(self._queued), MOST_QUEUED + 1) - size.lines // 3 - 3, 1)
        found: StyleAndTextTuples = []
        for line in lines[-room:]:
            found += [*to_fragments(line), ("", "\n")]
        queued = [one.text.partition("\n") for one in self._queued[:MOST_QUEUED]]
        for first, more, _ in queued:
            text = harmless(f"{first} …" if more else first)
            found.append(("class:queued", clip(as_ascii(f"queued: {text}"), size.columns - 1) + "\n"))
        if self._queued:
            left = len(self._queued) - MOST_QUEUED
            words = f"… {left} more; ↑ edits the newest" if left > 0 else "↑ edits the queued message"
            found.append(("class:status", as_ascii(f"  {words}\n")))
        return found  # and an empty line

    def _status_fragments(self) -> StyleAndTextTuples:
        mode = self.host.mode()
        keys = "Shift-Tab changes the mode · /help" if not self.host.is_busy() else "Enter queues a message · Esc stops"
        room = shutil.get_terminal_size().columns - 1
        words = clip(as_ascii(f"  {keys}"), max(room - width_of(mode), 0))
        return [("class:mode", mode), ("class:status", words if mode else words[2:])]

    def _make_keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = ~is_searching
        buffer = self._buffer

        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            state = buffer.complete_state
            if state is not None and state.current_completion is not None:
                buffer.apply_completion(state.current_completion)
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._accept()

        @keys.add("c-j", filter=typing)
        def _(event: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        @keys.add("tab", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self._complete()

        @keys.add("s-tab", filter=typing & ~has_completions)
        def _(event: KeyPressEvent) -> None:
            self.host.change_mode()

        @keys.add("s-tab", filter=has_completions)
        def _(event: KeyPressEvent) -> None:
            buffer.complete_previous()

        @keys.add("escape", filter=typing)
        def _(event: KeyPressEvent) -> None:
            if buffer.complete_state is not None:
                buffer.cancel_completion()
            elif self.host.is_busy():
                self.host.stop()

        @keys.add("up", filter=typing & ~has_completions)
        def _(event: KeyPressEvent) -> None:
            if buffer.text or not self._withdraw():
                buffer.auto_up(count=event.arg)

        @keys.add("c-o", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self.host.expand()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self.host.is_busy():
                os.kill(os.getpid(), signal.SIGINT)  # as where the terminal itself turns the key into a signal
            else:
                buffer.reset()
                self._messages.put(KeyboardInterrupt)

        @keys.add("c-d", filter=Condition(lambda: not buffer.text))
        def _(event: KeyPressEvent) -> None:
            with self._lock:
                if self._waits:
                    self._messages.put(None)
                else:  # like one that is typed ahead in a shell
                    self._queued.append(_Queued(QUIT, is_sent=False))

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add("c-l")
        def _(event: KeyPressEvent) -> None:
            event.app.renderer.clear()

        return keys

    def _complete(self) -> None:
        """Tab: what is unique is completed; otherwise the choice is offered."""
        buffer = self._buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_next()
            return
        found = list(self.host.suggest(buffer.document.text_before_cursor, asked=True))
        if not found:
            return
        replaced = found[0].replaces
        common = os.path.commonprefix([one.text for one in found])  # noqa: RUF071 - of words
        if len(common) > replaced or len(found) == 1:
            buffer.cancel_completion()
            buffer.delete_before_cursor(replaced)
            buffer.insert_text(common)
        else:
            buffer.start_completion(select_first=True)


def tell_alt_enter(source: Input) -> Input:
    """Reads Alt-Enter as Ctrl-J, and Esc and then Enter as two keys: a terminal sends Alt-Enter at once."""
    assert isinstance(source, Vt100Input)
    feed = source.vt100_parser.feed

    def feed_keys(data: str) -> None:
        if data.endswith("\x1b") and select.select([source.fileno()], [], [], ALT)[0]:
            data += source.stdin_reader.read()
        feed(data.replace("\x1b\r", "\n"))

    source.vt100_parser.feed = feed_keys  # type: ignore[method-assign]
    return source


class _Application(Application[None]):
    """Erases all of itself when the terminal becomes narrower, where its lines have been wrapped."""

    def _on_resize(self) -> None:
        screen, columns = self.renderer.last_rendered_screen, self.output.get_size().columns
        if screen is not None and not _keeps_lines():
            at = self.renderer._cursor_pos
            rows = sum(_rows_of(screen.data_buffer[y], columns) for y in range(at.y)) + at.x // columns
            self.renderer._cursor_pos = Point(x=at.x % columns, y=rows)
        super()._on_resize()


def _rows_of(row: Any, columns: int) -> int:
    """Returns the rows that a drawn line takes in a terminal of so many columns."""
    width = max((x + max(cell.width, 1) for x, cell in row.items() if cell.char.strip()), default=0)
    return max(-(-width // columns), 1)


def _keeps_lines() -> bool:
    """Returns whether the terminal cuts long lines when it becomes narrower; most wrap them."""
    return "XTERM_VERSION" in os.environ or os.environ.get("TERM", "").startswith("linux")


def _terminal_size() -> Size:
    columns, lines = shutil.get_terminal_size()
    return Size(rows=lines, columns=columns)


def read_typed_ahead() -> list[str]:
    """Returns the complete lines that were typed before the program could read them."""
    lines = []
    while select.select([0], [], [], 0)[0] and (typed := os.read(0, 65_536)):
        lines += [line for line in typed.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines


_COLOUR = re.compile(r"\x1b\[([\d;]*)m")
_STYLES = {
    "1": "bold",
    "2": "dim",
    "3": "italic",
    "4": "underline",
    "9": "strike",
    **{str(30 + at): name for at, name in enumerate("ansiblack ansired ansigreen ansiyellow ansiblue".split())},
    "35": "ansimagenta",
    "36": "ansicyan",
    "37": "ansigray",
    "90": "ansibrightblack",
}


def to_fragments(line: str) -> StyleAndTextTuples:
    """Returns a line with colours for prompt_toolkit. Any other control character becomes a visible one."""
    found: StyleAndTextTuples = []
    style = ""
    for at, part in enumerate(_COLOUR.split(as_ascii(line))):
        if at % 2:
            codes = [_STYLES[code] for code in part.split(";") if code in _STYLES]
            style = " ".join(codes)
        elif part:
            found.append((style, harmless(part).replace("\n", " ")))
    return found


class _Suggestions(Completer):
    def __init__(self, suggest: Callable[..., Iterable[Suggestion]]) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        for one in self._suggest(document.text_before_cursor, asked=complete_event.completion_requested):
            yield Completion(one.text, -one.replaces, display_meta=harmless(one.meaning))


class _WrapWords(Processor):
    """Moves a word that does not fit at the end of a row to the next one: spaces that are only drawn fill the row."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        text = fragment_list_to_text(transformation_input.fragments)
        gaps = _find_gaps(text, transformation_input.width - PREFIX)
        fragments = list(explode_text_fragments(transformation_input.fragments))
        for at, spaces in reversed(gaps):
            fragments.insert(at, ("", " " * spaces))
        return Transformation(
            fragments,
            source_to_display=lambda at: at + sum(spaces for start, spaces in gaps if start <= at),
            display_to_source=lambda at: _to_source(at, gaps),
        )


def _find_gaps(text: str, room: int) -> list[tuple[int, int]]:
    """Returns where a row of so many columns is filled with spaces, and with how many."""
    gaps: list[tuple[int, int]] = []
    column = 0
    for word in re.finditer(r"\S+|\s", text):
        widths = [Char(letter).width for letter in word[0]]
        if column and sum(widths) < room <= column + sum(widths) and not word[0].isspace():  # the space behind it fits
            gaps.append((word.start(), room - column))
            column = 0
        for width in widths:
            column = column + width if column + width <= room else width
    return gaps


def _to_source(at: int, gaps: list[tuple[int, int]]) -> int:
    added = 0
    for start, spaces in gaps:
        if at >= start + added + spaces:
            added += spaces
        elif at > start + added:
            return start
    return at - added


class _AboveLine(io.TextIOBase):
    """Stands in for the standard output and error: what is printed there appears above the line."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, line: InputLine, number: int) -> None:
        self._line = line
        self._number = number
        self._held = ""

    def write(self, text: str) -> int:
        if self._line._is_suspended:
            write_text(self._number, self._held + text)
            self._held = ""
        else:
            whole, end, self._held = (self._held + text).rpartition("\n")
            self._line.print(whole + end)
        return len(text)

    def flush(self) -> None:
        if self._line._is_suspended or not self._line._thread.is_alive():
            held, self._held = self._held, ""
            write_text(self._number, held)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def writable(self) -> bool:
        return True


# The history of messages: a file that only its owner can read.


class _StoredHistory(History):
    """One message after the other; the lines of each begin with a plus, and an empty line ends it."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path
        self._stored = MOST_HISTORY  # messages since the file was trimmed: the first one of a conversation trims it

    def load_history_strings(self) -> Iterator[str]:
        """Yields the newest first."""
        if self._path is None:
            return
        try:
            with os.fdopen(open_regular(self._path), "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - LARGEST_HISTORY, 0))
                text = file.read(LARGEST_HISTORY).decode("utf-8", "replace")
        except OSError:
            return
        found = [
            "\n".join(line[1:] for line in entry.split("\n") if line.startswith("+")) for entry in text.split("\n\n")
        ]
        yield from [entry for entry in reversed(found) if entry][:MOST_HISTORY]

    def store_string(self, string: str) -> None:
        if self._path is None or len(string) > LARGEST_STORED:
            return
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(open_regular(self._path, flags), "wb") as file:
                file.write(_to_entry(string))
                is_large = file.tell() > LARGEST_HISTORY
            self._stored += 1
            if is_large or self._stored > MOST_HISTORY // 10:
                self._trim(self._path)

    def _trim(self, path: Path) -> None:
        """Keeps the newest messages. A reader finds the old file or the new one, never a part."""
        self._stored = 0
        newest = list(self.load_history_strings())
        kept = b"".join(_to_entry(one) for one in reversed(newest))
        new = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(kept)
        new.replace(path)


def _to_entry(message: str) -> bytes:
    lines = "".join(f"+{line}\n" for line in message.split("\n"))
    return f"{lines}\n".encode("utf-8", "replace")
