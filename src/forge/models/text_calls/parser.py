"""Finds `<tool>…</tool>` in text that arrives in pieces, with the same result however the text was cut.

These rules define a call:
- `<tool>` begins one, unless it is quoted: in a fenced or indented code block, in `code`, in quotation marks, after
  `>`, in parentheses. A fence that holds calls and nothing else is decoration: its calls count, the fence is dropped.
- `</tool>` ends one, but not inside a JSON string or a CDATA section.
- A call in the middle of a sentence ("write <tool>…</tool> and wait") is text: that only talks about calls.
- `<tool>` with words behind it is text; a call after it counts.
- A call that never ends is no call. It is stored separately, and neither shown nor run.
- What a model thinks, up to `</think>`, holds no calls.
- The forms of the model's dialect are calls by the same rules. Those of other dialects are text, and so is all that
  stands in them. From the first form of a dialect on, the text is read when it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from forge.core.spec import ToolSpec
from forge.models.text_calls.dialects import FoundForm, Written, forms_of, other_forms

LARGEST_CALL = 4 * 1024 * 1024  # characters of a call, or of all calls in one fence
LONGEST_REST = 64 * 1024  # characters stored of a call that is larger, or cut
_PIECE = 64 * 1024  # searched at once, so that no pattern has to remember more
_LONGEST_TOKEN = len("<![CDATA[")
_LONGEST_FENCE = 256  # characters that can belong to the line of a fence

_OPENING = r"<tool>|</?think>|(?<![^\n])[ \t]{0,24}(?:`{3,32}|~{3,32})"
# of a form, only its beginning is known: `<` and no `>` yet, a bracket, a line that begins with "Action"
_HALF_AN_OPENING = re.compile(
    r"(?:<(?:/?[a-z_]{0,24}|[|\uff5c][^<>\n]{0,40}|function=[\w.\-]{0,200})"
    r"|<!-{0,2}|-{1,2}|\[[A-Z_]{0,11}|(?<![^\n])[ \t]{0,24}(?:`{0,2}|~{0,2})"
    r"|(?<![^\n])[ \t]{0,3}\*{0,2}(?:A(?:c(?:t(?:i(?:o(?:n[^\n]{0,240})?)?)?)?)?)?)\Z"
)
_SAME_LINE = re.compile(r"[ \t]{0,100}")
_QUOTES = frozenset("`\"'“„«\u2018([")
_GOES_ON = re.compile(
    r"[ \t]*[,;)\]\"'”\u2019»]|[ \t]*\||[ \t]+[a-zà-öø-ÿ]"
)  # a sentence, behind what looks like a call
_QUOTED_LINES = (">", "|", "#", "//", "/*", "--")  # quotations, tables, comments of a program
_INDENTED = ("    ", "\t")
_EXAMPLE = re.compile(  # the end of a line above a call that is no call
    r"\b(?:example(?: call| answer)?|for instance|e\.g\.|looks? like(?: this)?|would be)[\s*_]{0,9}:[\s*_]{0,9}\Z",
    re.IGNORECASE,
)
_INTRODUCES = re.compile(  # a sentence about a call that is no call
    r"\b(?:for example|an example|e\.g\.|for instance|such as|the syntax|looks? like|written as|would (?:write|send)"
    r"|instead of|(?:don't|do not|never) (?:write|call|send|use))\b[^.!?]*\Z",
    re.IGNORECASE,
)
_OPENS_CODE = re.compile(r"<code(?=[\s>])")
_OPENS_BLOCK = re.compile(r"<pre(?=[\s>])")
_LONGEST_END = 16  # characters
_LONGEST_LINE = 300  # characters of a line that are looked at
_MOST_MISSES = 20  # openings of forms without a call; then no more are looked for
_FENCE = re.compile(r"[ \t]{0,24}(`{3,32}(?=[^`])|~{3,32}(?=[^~]))[^`\n]{0,100}\n")
_HALF_A_FENCE = re.compile(r"[ \t]{0,24}(?:`{3,32}|~{3,32})[^`\n]{0,100}\Z")
_SPACE = re.compile(r"\s*")
_SOME_SPACE = re.compile(r"\s{0,100}")
# Python before 3.11.4 gets possessive quantifiers wrong. Nothing follows the outer loops, so they never go back.
_STRING = re.compile(r'[^"\\]*(?:\\[\s\S][^"\\]*)*')
_JSON = re.compile(
    r'(?:[^"<]+|"[^"\\]*(?:\\[\s\S][^"\\]*)*"|<(?!/|\Z))*'
)  # whole strings at once; what may end the call is left
_IN_JSON = re.compile(r'"|</tool>')
_IN_XML = re.compile(r"<!\[CDATA\[|</tool>")
_IN_CDATA = re.compile(r"\]\]>")
_IN_INFO = re.compile(r"\n|</tool>")
_IN_OTHER = re.compile(r"</?tool>")


class CallBody(NamedTuple):
    """The text between `<tool>` and `</tool>`."""

    text: str
    is_too_large: bool = False


class Foreign(NamedTuple):
    """Calls in a form of the model's dialect."""

    calls: tuple[Written, ...]
    text: str


class ThoughtEnded(NamedTuple):
    """The end of thoughts whose beginning is not in the text: what came before was one of them."""


Item = str | CallBody | Foreign | ThoughtEnded


class _Line:
    """The text before a place, mostly of its line: enough to tell a call from one that is quoted."""

    def __init__(self) -> None:
        self.is_first = True  # nothing but space so far, in the whole text
        self._may_be_code = True  # the line before is blank, or indented code
        self._open_blocks = self._open_comments = 0  # <pre> and comments that are not closed
        self._above = ""  # the last line with words in it
        self._end = ""  # of all text so far, without space behind it
        self.is_after_quoted = False  # a quoted form, and nothing but space since
        self._begin()

    def _begin(self) -> None:
        self.ticks = self.quotes = self.open_quotes = self.open_code = 0
        self.head = self.last = self.solid = self.words = ""
        self.has_text = False

    def add(self, text: str) -> None:
        if text and not text.isspace():
            self._end = (self._end + text).rstrip()[-_LONGEST_END:]
            self.is_after_quoted = False
        before, newline, rest = text.rpartition("\n")
        if newline:
            for line in before.split("\n"):  # the first one continues a line
                words = (self.words + line)[-_LONGEST_LINE:]
                is_said = words.strip() and not words.lstrip().startswith("Thought:")
                self._above = words if is_said else self._above
                self.words = ""
                head = line if len(self.head) >= 8 else self.head + line[:8]
                is_blank = not line.strip() and not self.has_text
                is_indented = (self.head if len(self.head) >= 8 else head).startswith(_INDENTED)
                self._may_be_code = is_blank or (self._may_be_code and is_indented)
                self.head, self.has_text = "", False
            self.is_first = self.is_first and not self.has_text and not before.strip()
            self._begin()
        self._open_blocks = max(0, self._open_blocks + len(_OPENS_BLOCK.findall(text)) - text.count("</pre>"))
        self._open_comments = max(0, self._open_comments + text.count("<!--") - text.count("-->"))
        self.open_code += len(_OPENS_CODE.findall(rest)) - rest.count("</code>")
        self.words = (self.words + rest)[-_LONGEST_LINE:]
        self.ticks += rest.count("`")
        escaped = rest.count('\\"') + (self.last == "\\" and rest.startswith('"'))
        self.quotes += rest.count('"') - escaped
        self.open_quotes += sum(rest.count(one) for one in "“„«") - sum(rest.count(one) for one in "”»")
        self.head = (self.head + rest)[:8] if len(self.head) < 8 else self.head
        self.last = rest[-1:] or self.last
        solid = rest.rstrip()
        self.solid = solid[-1:] or self.solid
        self.has_text = self.has_text or bool(solid)
        self.is_first = self.is_first and not self.has_text

    @property
    def quotes_next(self) -> bool:
        if (self.last and self.last in _QUOTES) or self.is_after_quoted or self._end.endswith("</tool>"):
            return True
        if self.ticks % 2 or self.quotes % 2 or max(self.open_quotes, self.open_code) > 0:
            return True
        if self._open_blocks or self._open_comments:
            return True
        if self.head.lstrip(" ").startswith(_QUOTED_LINES) or _INTRODUCES.search(self.words):
            return True
        if not self.has_text and _EXAMPLE.search(self._above):
            return True
        return self._may_be_code and self.head.startswith(_INDENTED)


class CallScanner:
    """Splits streamed text into texts to show and the bodies of calls, in order: `feed` pieces, then `finish`.

    Holds at most one call (or one fence of calls) back, in linear time.
    """

    def __init__(self, dialect: str = "", tools: Mapping[str, ToolSpec] | None = None) -> None:
        self.unterminated = ""  # a call that never ended, from its `<tool>` on
        self._tools = tools or {}
        self._own, self._others = forms_of(dialect), other_forms(dialect)
        self._opening = _find_openings(dialect)
        self._misses = 0
        self._line = _Line()
        self._before = (False, "")  # whether text stands before the call in its line, and the last character of it
        self._pending: list[str | CallBody] = []  # calls in a line of which it is not known whether a sentence goes on
        self._is_quoted = False
        self._chain = (0, False)  # the end of the forms that follow each other in a line, and whether all are a mention
        self._is_prose = False  # nothing but words so far, behind a `<tool>`
        self._is_cut = False
        self._text = ""  # one character of context, then the undecided text
        self._at = 0
        self._is_last = False
        self._step: Callable[[], bool] = self._outside
        self._out: list[Item] = []
        self._parts: list[str] = []  # of the call we are in
        self._size = 0
        self._fence = ""  # the marks that opened the fence we are in
        self._held: list[str | CallBody] = []  # a fence that has held nothing but calls so far

    def feed(self, piece: str) -> list[Item]:
        for start in range(0, len(piece), _PIECE):
            self._text = self._text[max(0, self._at - 1) :] + piece[start : start + _PIECE]
            self._at = min(1, self._at)
            while self._step():
                pass
        return self._take_output()

    def finish(self, *, is_cut: bool = False) -> list[Item]:
        """Returns the rest. `is_cut`: the answer was cut, so that a call without an end was one."""
        self._is_last, self._is_cut = True, is_cut
        while self._step():
            pass
        return self._take_output()

    def _take_output(self) -> list[Item]:
        out, self._out = self._out, []
        return out

    def _show(self, until: int) -> None:
        if until > self._at:
            self._say(self._text[self._at : until])
            self._at = until

    def _say(self, text: str) -> None:
        self._out.append(text)
        self._line.add(text)

    def _wait(self, half: re.Pattern[str]) -> bool:
        """Shows everything except an end that may be half a token."""
        end = len(self._text)
        found = None if self._is_last else half.search(self._text, max(self._at, end - _LONGEST_FENCE))
        self._show(found.start() if found else end)
        return False

    def _outside(self) -> bool:
        found = self._opening.search(self._text, self._at)
        if found is None:
            return self._wait(_HALF_AN_OPENING)
        self._show(found.start())
        if found[0].endswith("think>"):
            return self._at_thought(found)
        if found[0] == "<tool>":
            if self._line.quotes_next:
                self._show(found.end())
            else:
                self._begin(found.end())
            return True
        at = found.end() - len(found[0].lstrip(" \t"))
        if not self._text.startswith(("```", "~~~"), at) or self._matches_form(at):
            self._show(at)
            return self._begin_form(found)
        fence = _FENCE.match(self._text, self._at)
        if fence is not None and self._line.quotes_next:
            self._fence = fence[1]
            self._show(fence.end())
            self._step = self._in_fence
        elif fence is not None:
            self._fence, self._held, self._size = fence[1], [fence[0]], 0
            self._at = fence.end()
            self._step = self._in_pure_fence
        elif not self._is_last and _HALF_A_FENCE.match(self._text, self._at):
            return False
        else:
            self._show(found.end())
        return True

    def _at_thought(self, found: re.Match[str]) -> bool:
        is_end, is_first = found[0] == "</think>", self._line.is_first
        follows = self._text[found.end() : found.end() + 1]
        if is_end and not follows and not self._is_last:
            return False
        if is_end and follows in ("", "\n", "\r", "<") and not self._line.quotes_next:  # not in a sentence
            self._out.append(ThoughtEnded())
        self._show(found.end())
        if is_first and not is_end:
            self._step = self._in_thought
        elif is_end:
            self._line.is_first = True
        return True

    def _in_thought(self) -> bool:
        end = self._text.find("</think>", self._at)
        if end < 0:
            self._show(len(self._text) if self._is_last else max(self._at, len(self._text) - len("</think") - 1))
            return False
        self._show(end + len("</think>"))
        self._line = _Line()
        self._step = self._outside
        return True

    def _matches_form(self, at: int) -> bool:
        return any(form.starts_line and _compiled(form.opening).match(self._text, at) for form in self._own)

    def _begin_form(self, found: re.Match[str]) -> bool:
        """Begins a form of a dialect. It is read once the text is complete."""
        if self._misses >= _MOST_MISSES:
            self._show(found.end())
            return True
        self._is_quoted = self._line.quotes_next
        if self._is_last:
            self._resolve_form()
            return True
        self._parts, self._size = [], 0
        self._step = self._in_form
        return True

    def _in_form(self) -> bool:
        self._take(len(self._text))
        if not self._is_last:
            return False
        text, is_too_large = "".join(self._parts), self._size > LARGEST_CALL
        self._parts, self._text, self._at = [], text, 0
        self._chain = (0, False)
        self._step = self._outside
        if is_too_large:
            self._out.append(CallBody(text, True))
            self._at = len(text)
        else:
            self._resolve_form()
        return True

    def _resolve_form(self) -> None:
        """Reads the form at the current place: as calls, or as text if it is another dialect's, or none at all."""
        start = self._at
        for form in (*self._own, *self._others):
            opening = _compiled(form.opening).match(self._text, start)
            found = None
            if opening is not None and not (form.starts_line and self._line.has_text):
                found = form.read(self._text, opening, self._tools)
            if found is not None and not (found.is_open and self._is_quoted):
                self._take_form(found, is_own=form in self._own and not self._is_quoted)
                return
        self._misses += 1
        opened = self._opening.match(self._text, start)
        self._show(opened.end() if opened is not None else min(start + 1, len(self._text)))

    def _take_form(self, found: FoundForm, *, is_own: bool) -> None:
        start, whole = self._at, self._text[self._at : found.end]
        if is_own and self._line.has_text and found.end > self._chain[0]:
            last = self._find_last_end(found.end)
            self._chain = (last, self._is_mention(True, self._line.solid, last))
        if not is_own or (self._line.has_text and self._chain[1]):
            self._show(found.end)
            self._line.is_after_quoted = True
            return
        calls = found.calls
        if found.is_open:
            calls = [one for one in calls if not one.problem]
            self.unterminated = whole[:LONGEST_REST]
        if calls:
            self._out.append(Foreign(tuple(calls), whole))
        self._at = found.end
        if found.is_last:
            self._own, self._others, self._opening = (), (), _find_openings("")
            self._misses = _MOST_MISSES
        assert self._at > start

    def _find_last_end(self, end: int) -> int:
        """Returns the end of the last of several forms that follow each other in a line."""
        for _ in range(_MOST_MISSES):
            space = _SAME_LINE.match(self._text, end)
            at = space.end() if space else end
            for form in self._own:
                opening = None if form.starts_line else _compiled(form.opening).match(self._text, at)
                found = form.read(self._text, opening, self._tools) if opening is not None else None
                if found is not None:
                    end = found.end
                    break
            else:
                break
        return end

    def _is_mention(self, is_inside: bool, solid: str, end: int) -> bool:
        """Returns whether a sentence goes on behind a call that began inside one: it only talks about calls."""
        if not is_inside:
            return False
        if _GOES_ON.match(self._text, end):
            return True
        after = _SAME_LINE.match(self._text, end)
        follows = self._text[after.end() : after.end() + 1] if after else ""
        return follows in (".", ":", "?", "!") and bool(follows) and solid not in (":", ".", "!", "?", "…")

    def _in_fence(self) -> bool:
        found = _marks(self._fence).closing.search(self._text, self._at)
        if found is None:
            return self._wait(_marks(self._fence).half_a_closing)
        self._show(found.end())
        self._step = self._outside
        return True

    def _in_pure_fence(self) -> bool:
        """Continues in a fence that so far holds only calls: it may continue, end, or contain something else."""
        space = _SOME_SPACE.match(self._text, self._at)
        start = space.end() if space else self._at
        rest = self._text[start : start + len("<tool>")]
        has_calls = any(isinstance(item, CallBody) for item in self._held)
        if rest == "<tool>":
            self._held.append(self._text[self._at : start])
            self._begin(start + len(rest), self._fence)
        elif has_calls and (closed := _marks(self._fence).end.match(self._text, start)):
            self._release(closed.end(), shown=False)
        elif has_calls and _marks(self._fence).half_an_end.match(self._text, start):
            if not self._is_last:
                return False
            self._release(len(self._text), shown=False)
        elif not self._is_last and "<tool>".startswith(rest):
            return False
        else:
            self._release(self._at, shown=True)
        return True

    def _release(self, at: int, *, shown: bool) -> None:
        """Decides the fence: shows it as text, or drops it and keeps its calls."""
        for item in self._held:
            if isinstance(item, CallBody) and (item.is_too_large or not shown):
                self._out.append(item)
            elif shown:
                self._say(f"<tool>{item.text}</tool>" if isinstance(item, CallBody) else item)
        self._held, self._at = [], at
        self._step = self._in_fence if shown else self._outside

    def _begin(self, at: int, fence: str = "") -> None:
        self._size = self._size if fence else 0
        self._fence, self._parts, self._at = fence, [], at
        self._before = (self._line.has_text, self._line.solid)
        self._is_prose = True
        self._step = self._at_start

    def _take(self, until: int) -> None:
        if until <= self._at:
            return
        was_too_large = self._size > LARGEST_CALL
        self._size += until - self._at
        if not was_too_large:
            self._parts.append(self._text[self._at : until])
            if self._size > LARGEST_CALL:
                self._parts = ["".join(self._parts)[:LONGEST_REST]]
        self._at = until

    def _end(self, at: int) -> bool:
        body = CallBody("".join(self._parts), self._size > LARGEST_CALL)
        self._parts, self._at = [], at
        if self._fence:
            self._held.append(body)
            self._step = self._in_pure_fence
        else:
            self._pending.append(body)
            self._step = self._after_call
        return True

    def _after_call(self) -> bool:
        """Decides a call by what follows it in its line."""
        space = _SAME_LINE.match(self._text, self._at)
        at = space.end() if space else self._at
        rest = self._text[at : at + len("<tool>")]
        if not self._is_last and "<tool>".startswith(rest):
            return False
        if rest == "<tool>":  # another one in the same line
            before = self._before
            self._pending.append(self._text[self._at : at])
            self._begin(at + len(rest))
            self._before = before
            return True
        self._release_pending(is_mention=self._is_mention(*self._before, self._at))
        self._step = self._outside
        return True

    def _release_pending(self, *, is_mention: bool) -> None:
        for item in self._pending:
            if isinstance(item, str):
                self._say(item)
            elif is_mention and not item.is_too_large:
                self._say(f"<tool>{item.text}</tool>")
            else:
                self._out.append(item)
        self._pending = []

    def _show_prose(self, at: int) -> bool:
        """Shows a `<tool>` that has only words behind it, and continues there."""
        message = f"<tool>{''.join(self._parts)}"
        self._parts = []
        self._release_pending(is_mention=False)
        if self._fence:
            self._held.append(message)
            self._release(at, shown=True)
        else:
            self._say(message)
            self._at = at
            self._step = self._outside
        return True

    def _end_early(self) -> bool:
        """Ends the input. The complete calls of an unfinished fence still count."""
        if self._is_last and self._is_prose and not self._is_cut and self._size <= LARGEST_CALL:
            self._take(len(self._text))
            return self._show_prose(len(self._text))
        if self._is_last:
            self._take(len(self._text))
            self._release_pending(is_mention=False)
            self.unterminated = f"<tool>{''.join(self._parts)}"[:LONGEST_REST]
            self._out += [item for item in self._held if isinstance(item, CallBody)]
            self._held = []
        return False

    def _at_start(self) -> bool:
        """Detects the form of the call: JSON, XML, or something else."""
        found = _SPACE.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        if self._at == len(self._text):
            return self._end_early()
        rest = self._text[self._at : self._at + len("<tool>")]
        if rest == "<tool>" and self._is_prose:
            return self._show_prose(self._at)
        if not self._is_last and "<tool>".startswith(rest):
            return False
        kinds = {"{": self._in_json, "<": self._in_xml, "`": self._in_info}
        self._is_prose = self._text[self._at] not in kinds
        self._step = kinds.get(self._text[self._at], self._in_other)
        return True

    def _in_json(self) -> bool:
        found = _JSON.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        return self._until(_IN_JSON, self._in_string)

    def _in_string(self) -> bool:
        found = _STRING.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        if not self._text.startswith('"', self._at):
            return self._end_early()
        self._take(self._at + 1)
        self._step = self._in_json
        return True

    def _in_xml(self) -> bool:
        return self._until(_IN_XML, self._in_cdata)

    def _in_cdata(self) -> bool:
        return self._until(_IN_CDATA, self._in_xml)

    def _in_info(self) -> bool:
        return self._until(_IN_INFO, self._at_start)

    def _in_other(self) -> bool:
        return self._until(_IN_OTHER, self._in_other)

    def _until(self, token: re.Pattern[str], then: Callable[[], bool]) -> bool:
        found = token.search(self._text, self._at)
        if found is None:
            self._take(max(self._at, len(self._text) - _LONGEST_TOKEN + 1))
            return self._end_early()
        if found[0] == "</tool>":
            self._take(found.start())
            return self._end(found.end())
        if found[0] == "<tool>" and self._size <= LARGEST_CALL:
            self._take(found.start())
            return self._show_prose(found.start())
        self._take(found.end())
        self._step = then
        return True


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _find_openings(dialect: str) -> re.Pattern[str]:
    """Returns the pattern of everything that may begin a call, a fence or a thought."""
    lines = "|".join(rf"(?<![^\n])[ \t]{{0,3}}{one.opening}" for one in forms_of(dialect) if one.starts_line)
    marks = "|".join(one.opening for one in (*forms_of(dialect), *other_forms(dialect)) if not one.starts_line)
    return re.compile("|".join(filter(None, (lines, marks, _OPENING))))


class _Marks(NamedTuple):
    """Patterns for the end of a fence: on its own line in text, or directly after a call."""

    closing: re.Pattern[str]
    half_a_closing: re.Pattern[str]
    end: re.Pattern[str]
    half_an_end: re.Pattern[str]


@cache
def _marks(opening: str) -> _Marks:
    mark, least = opening[0], len(opening)
    return _Marks(
        closing=re.compile(rf"(?<![^\n])[ \t]{{0,24}}{mark}{{{least},64}}[ \t]{{0,100}}\n"),
        half_a_closing=re.compile(rf"(?<![^\n])[ \t]{{0,24}}{mark}{{0,64}}[ \t]{{0,100}}\Z"),
        end=re.compile(rf"{mark}{{{least},64}}[ \t]{{0,100}}\n"),
        half_an_end=re.compile(rf"{mark}{{0,64}}[ \t]{{0,100}}\Z"),
    )
