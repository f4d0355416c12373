"""Step: cuts a long result where a model can still use it, adds a note, and stores the whole result in a file."""

from __future__ import annotations

import json
import logging
import os
import re
from base64 import b64decode
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import StepObject
from forge.core.execution.threads import in_thread
from forge.core.messages import InnerCall
from forge.core.plain_values import is_sendable, sendable
from forge.core.result import LARGEST_ON_WIRE, RESULT, Attachment, Failure, StoredText, ToolResult
from forge.workspace.state import keep_newest, state_directory, write_private

log = logging.getLogger(__name__)

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024
MAX_LINE = 2_000  # characters
MAX_SPILL = 64 * 1024 * 1024  # characters stored in the file
MOST_SPILLS = 200  # files, the oldest out
MOST_SPILLED = 512 * 1024 * 1024  # bytes of all of them
MAX_FOR_USER = 200 * 1024  # bytes
MAX_TITLE = 500  # characters
MAX_FAILURE = 4_000  # characters of its message, and of its suggestion
MAX_DATA = 8 * 1024 * 1024  # characters of `data` as a whole
MAX_JSON = 16 * 1024 * 1024  # characters of a line of JSON that is spread over several
WIDTH = 160  # characters: a part of it that is shorter stays on one line
SHORT = 1_000  # characters: nothing below can break a limit or hide a payload
MAX_NOTE = 200  # characters
MAX_INNER = 4 * 1024 * 1024  # characters of a result that a script takes
LIGHT = 64_000  # characters of data that are looked at on the spot
LARGE = 10**18
_NUMBERS = (int, float, bool)

_PAYLOAD = re.compile(
    r"data:(?P<media>[\w.+-]+/[\w.+-]+)?(?:;[\w=.-]+)*;base64,(?P<inline>[A-Za-z0-9+/_-]{200,}={0,2})"
    r"|(?P<bare>(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{1000,}|(?:[A-Za-z0-9+/]{60,76}\r?\n){12,}[A-Za-z0-9+/]{0,76})={0,2})"
)
_INSIDE_PAYLOAD = re.compile(r"\n[A-Za-z0-9+/]{60,76}\r?\n")  # a line in the middle of a payload
LONG_PAYLOAD = 1_000  # characters of a payload on one line, without the mark `;base64,`

_NUMBERED = re.compile(r" {0,5}[0-9]+\t(?P<line>.*?)(?:\[… (?:at least )?[0-9]+ more characters\])?")
_AROUND = 64  # characters that a line's number, and the mark of what was clipped, take at most


class Cut(NamedTuple):
    text: str
    lines: int
    shown_lines: int


class LimitOutput(StepObject):
    """Cuts long results.

    Args:
        max_lines: lines of text that the model sees.
        max_bytes: bytes of text that the model sees.
        max_line: characters of a line.
    """

    name = "limit_output"

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> None:
        self._limits = (max_lines, max_bytes, max_line)
        self._short = min(SHORT, max_lines, max_line, max_bytes // 4)

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult | Coroutine[Any, Any, ToolResult]:
        is_short = len(result.for_llm) < self._short
        data = result.data
        has_data = bool(data)
        if has_data and len(data) == 1:  # most often a number, which is small
            value: Any = data.get(RESULT)
            has_data = not (type(value) in _NUMBERS and -LARGE < value < LARGE)
        if is_short and not (has_data or result.for_user or result.title or result.attachments):
            failure = result.failure
            if failure is None or len(failure.message) + len(failure.suggestion) <= MAX_FAILURE:
                return result
        elif _is_light(result) and (is_short or _is_within(result, *self._limits)):
            return result
        if type(ctx.call) is InnerCall:  # a script takes it, and no model reads it
            is_short = len(result.for_llm) <= MAX_INNER
        return _limit_in_thread(ctx, result, None if is_short else self._limits)


async def _limit_in_thread(ctx: ToolContext, result: ToolResult, limits: tuple[int, int, int] | None) -> ToolResult:
    """Limits a large result in a thread. `limits` are those of its text; None where the text is short."""

    def limit() -> ToolResult:
        within = _store_large_attachments(ctx, _bound_fields(result))
        return within if limits is None else _limit_text(ctx, within, *limits)

    try:
        return await in_thread(limit)
    except (ToolError, RuntimeError):  # no thread is left: hung functions hold them all
        return limit()


def _is_light(result: ToolResult) -> bool:
    """Returns whether the result is too small to break any limit."""
    failure = result.failure
    if failure is not None and len(failure.message) + len(failure.suggestion) > MAX_FAILURE:
        return False
    if len(result.for_user) > MAX_FOR_USER // 4 or len(result.title) > MAX_TITLE:
        return False
    if result.attachments and sum(len(one.data) for one in result.attachments) > LARGEST_ON_WIRE:
        return False
    return not result.data or size_of(result.data, LIGHT) <= LIGHT


def _is_within(result: ToolResult, max_lines: int, max_bytes: int, max_line: int) -> bool:
    """Returns whether the text is short enough to look at on the spot, and needs no change. False: it may need one."""
    text = result.for_llm
    if len(text) > max_bytes or result.whole is not None or not is_sendable(text) or _may_have_payload(text):
        return False
    return fit_text(text, max_lines, max_bytes, max_line) is None


def _bound_fields(result: ToolResult) -> ToolResult:
    """Clips all fields that are not for the model."""
    failure = result.failure
    if failure is not None and max(len(failure.message), len(failure.suggestion)) > MAX_FAILURE:
        message, suggestion = (_clip(text, MAX_FAILURE) for text in (failure.message, failure.suggestion))
        failure = Failure(message, failure.kind, suggestion, failure.passing, failure.cause)
    for_user = result.for_user
    if len(for_user) > MAX_FOR_USER // 4 and len(whole := sendable(for_user).encode()) > MAX_FOR_USER:
        shown = whole[:MAX_FOR_USER].decode(errors="ignore")
        for_user = f"{shown}\n[cut: {MAX_FOR_USER} of {len(whole)} bytes shown]"
    title, data = _clip(result.title, MAX_TITLE), bound_data(result.data, MAX_DATA)
    return replace(result, for_user=for_user, title=title, data=data, failure=failure)


def _limit_text(ctx: ToolContext, result: ToolResult, max_lines: int, max_bytes: int, max_line: int) -> ToolResult:
    result = _extract_payloads(result)
    text = sendable(result.for_llm)
    if len(text) > max_line and "\n" not in text:
        text = _spread_json(text)
    whole = result.whole
    size, of = (len(text.encode()), 0) if whole is None else (whole.total_bytes, whole.total_lines)
    more_than = "more than " if whole is not None and whole.problem else ""  # its lines were not all counted
    shown = fit_text(text, max_lines, max_bytes, max_line, keep_end=ctx.spec.keep_end, of=of, more_than=more_than)
    is_part = result.data.get("cut_bytes") or result.data.get("dropped")
    if shown is None and whole is not None and whole.name and not is_part:
        return replace(result, for_llm=text, whole=None)  # all new output of a job is shown
    if shown is None and whole is not None:
        shown = Cut(text, of, min(text.count("\n") + 1, of))
    if shown is None:
        return result if text is result.for_llm else replace(result, for_llm=text)
    where, path = _store_whole(ctx, text if whole is None else whole)
    note = f"[cut: {shown.shown_lines} of {more_than}{shown.lines} lines shown, {size} bytes in all; {where}]"
    facts = {"truncated": True, "total_bytes": size, **({"spilled": path} if path else {})}
    facts |= {"lines_counted" if more_than else "total_lines": shown.lines}
    return replace(result, for_llm=f"{shown.text}\n{note}", whole=None).with_data(**facts)


def fit_text(
    text: str,
    max_lines: int,
    max_bytes: int,
    max_line: int,
    *,
    keep_end: bool = False,
    of: int = 0,
    more_than: str = "",
) -> Cut | None:
    """Returns the text within all three limits, or None where it fits already.

    `of`: the lines of the whole text; `more_than`: the words before their number where they were not all counted.
    """
    lines = text.split("\n")
    total = len(lines) - (lines[-1] == "")
    clipped = lines[:total]
    if max(map(len, lines)) > max_line:
        clipped = [_clip_line(line, max_line) for line in clipped]
    counted = total - (total > 1 and _is_note(lines[total - 1]))
    if counted <= max_lines and len(text.encode()) <= max_bytes and clipped == lines[:total]:
        return None
    if not keep_end:
        head = _fit_lines(clipped[:max_lines], max_bytes)
        return Cut("\n".join(head), of or total, len(head))
    head = _fit_lines(clipped[: max_lines // 5], max_bytes // 5)
    rest = clipped[len(head) :][-(max_lines - max_lines // 5) :]
    tail = _fit_lines(rest[::-1], max_bytes - max_bytes // 5)[::-1]
    left_out = max(of, total) - len(head) - len(tail)
    middle = [f"[… {more_than}{left_out} lines left out …]"] if left_out else []
    return Cut("\n".join([*head, *middle, *tail]), of or total, len(head) + len(tail))


def _fit_lines(lines: list[str], max_bytes: int) -> list[str]:
    """Returns the first lines that fit; of a single line that is too long, the part that fits."""
    fitting: list[str] = []
    used = 0
    for line in lines:
        used += len(line.encode()) + 1
        if used > max_bytes + 1:
            return fitting or [line.encode()[:max_bytes].decode(errors="ignore")]
        fitting.append(line)
    return fitting


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}[… {len(text) - most} more characters]"


def _clip_line(line: str, most: int) -> str:
    """Clips a line without counting its number or a tool's own mark of clipped text."""
    if most < len(line) <= most + _AROUND:
        numbered = _NUMBERED.fullmatch(line)
        if numbered is not None and len(numbered["line"]) <= most:
            return line
    return _clip(line, most)


def _is_note(line: str) -> bool:
    """Returns whether a last line is the tool's own note about the shown part, such as where to continue."""
    return len(line) <= MAX_NOTE and line.startswith("[") and line.endswith("]")


def _spread_json(text: str) -> str:
    """Puts each element of one long line of JSON on a line of its own; leaves other text as it is."""
    if text[:1] not in ("[", "{") or len(text) > MAX_JSON:
        return text
    try:
        return sendable(_render_lines(json.loads(text), ""))
    except (ValueError, RecursionError):
        return text


def _render_lines(value: Any, indent: str) -> str:
    compact = json.dumps(value, ensure_ascii=False)
    if len(compact) <= WIDTH or len(indent) > 5 or not isinstance(value, dict | list):  # what lies deeper stays compact
        return compact
    deeper = f"{indent} "
    if isinstance(value, list):
        parts = [_render_lines(item, deeper) for item in value]
    else:
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_render_lines(item, deeper)}" for key, item in value.items()]
    inside = ",\n".join(f"{deeper}{part}" for part in parts)
    opened, closed = "[]" if isinstance(value, list) else "{}"
    return f"{opened}\n{inside}\n{indent}{closed}"


def _store_whole(ctx: ToolContext, text: str | StoredText) -> tuple[str, str]:
    """Writes the whole text to a file of the session. Returns the note that names the file, and the file."""
    what: str = "the whole text is"
    content: str | Iterable[bytes] = text if isinstance(text, str) else text.pieces()
    if isinstance(text, str) and len(text) > MAX_SPILL:
        what, content = "the first part of it is", text[:MAX_SPILL] + "\n[the file ends here: too large]\n"
    elif not isinstance(text, str) and text.problem:
        what = f"{text.problem}: the stored part is"
    try:
        if isinstance(text, str) or not text.name:
            path = _store_file(ctx, content, ".txt" if isinstance(text, str) or not text.is_binary else ".bin")
        else:
            path = _store_shared(ctx, text)
    except OSError as error:
        return f"the whole text could not be stored: {error.strerror}; ask for a smaller part", ""
    return f'{what} in "{path}": read it from there, or ask for a smaller part', path


def _store_shared(ctx: ToolContext, text: StoredText) -> str:
    """Stores the output of a job in the one file of that job, over its older state. Raises `OSError`."""
    folder = state_directory(ctx.scope.workspace, "spill")
    path = folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', text.name)}{'.bin' if text.is_binary else '.txt'}"
    is_at_limit = text.stored_bytes < text.total_bytes
    with suppress(FileNotFoundError):
        if is_at_limit and path.stat().st_size == text.stored_bytes:
            return str(path)  # past the limit, an endless output stays the same
    new = folder / f"{path.stem}-{os.urandom(4).hex()}.new"
    write_private(new, text.pieces())
    os.replace(new, path)
    keep_newest(folder, MOST_SPILLS, MOST_SPILLED)
    return str(path)


def _store_file(ctx: ToolContext, content: str | bytes | Iterable[bytes], ending: str) -> str:
    """Stores content in a file of the session and returns its path. Raises `OSError`."""
    # the last part tells runs apart whose models number their calls alike, also on other machines
    mark = crc32(ctx.key.encode("utf-8", "replace"))
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{ctx.spec.name}-{ctx.call.id[:200]}")[:90] + f"-{mark:08x}"
    folder = state_directory(ctx.scope.workspace, "spill")
    path = folder / f"{name}{ending}"
    try:
        write_private(path, content)
    except FileExistsError:  # the same call in an earlier run, or another attachment of it
        path = folder / f"{name}-{os.urandom(4).hex()}{ending}"
        write_private(path, content)
    keep_newest(folder, MOST_SPILLS, MOST_SPILLED)
    return str(path)


def _store_large_attachments(ctx: ToolContext, result: ToolResult) -> ToolResult:
    """Stores attachments that events and JSON leave out in files, so that they can be found."""
    if not result.attachments:
        return result
    on_wire = result.with_attachments_within(LARGEST_ON_WIRE).attachments
    stored = tuple(
        _store_attachment(ctx, one) if shown.left_out and not one.path and one.data else one
        for one, shown in zip(result.attachments, on_wire, strict=True)
    )
    return result if stored == result.attachments else replace(result, attachments=stored)


def _store_attachment(ctx: ToolContext, attachment: Attachment) -> Attachment:
    if len(attachment.data) > MOST_SPILLED:
        return attachment
    try:
        return replace(attachment, path=_store_file(ctx, attachment.data, ".bin"))
    except OSError as error:
        log.warning("an attachment of %s could not be stored in a file: %s", ctx.spec.name, error.strerror)
        return attachment


def _may_have_payload(text: str) -> bool:
    """Returns whether a text may have Base64 in it. To look for it takes a hundred times as long."""
    return (
        ";base64," in text
        or _INSIDE_PAYLOAD.search(text) is not None
        or max(map(len, text.split("\n"))) >= LONG_PAYLOAD
    )


def _extract_payloads(result: ToolResult) -> ToolResult:
    """Turns Base64 text, which is noise to a model, into attachments."""
    if not _may_have_payload(result.for_llm):
        return result
    attachments = list(result.attachments)

    def extract(match: re.Match[str]) -> str:
        encoded = match["inline"] or re.sub(r"\s", "", match["bare"])
        if match["bare"] and not (
            re.search("[a-z]", encoded) and re.search("[A-Z]", encoded) and re.search("[0-9]", encoded)
        ):
            return match[0]
        try:
            content = b64decode(encoded.replace("-", "+").replace("_", "/") + "=" * (-len(encoded.rstrip("=")) % 4))
        except ValueError:
            return match[0]
        media = match["media"] or "application/octet-stream"
        attachments.append(Attachment(media, content, f"payload-{len(attachments) + 1}"))
        return f"[{media}, {len(content)} bytes, attached as payload-{len(attachments)}]"

    text = _PAYLOAD.sub(extract, result.for_llm)
    return result if text == result.for_llm else replace(result, for_llm=text, attachments=tuple(attachments))


# Measures plain data and cuts it to a size, with a note wherever something was left out.


LONGEST_TEXT = 1024 * 1024  # characters of one text in data
DEEPEST_DATA = 100
_EACH = 8  # what a value costs beside its characters
_LEAST = 200  # characters: an entry of which less would be left is left out
_ENDLESS = 1 << 60
_TOO_DEEP = "[nested too deeply to be shown]"
_TEXTS = (str, bytes, bytearray)
_LISTS = (list, tuple, set, frozenset)


def size_of(value: Any, most: int) -> int:
    """Estimates the length in characters, counted no further than just over `most`."""
    size = 0
    waiting = [value]
    while waiting and size <= most:
        one = waiting.pop()
        size += _size_alone(one)
        if not _holds_more(one):
            continue
        if len(one) * _EACH > most - size:
            return most + 1
        waiting.extend(one)
        if not isinstance(one, _LISTS):
            waiting.extend(one.values())
    return size


def bound_data(data: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """Returns the data within about `most` characters, with each text in its limit; unchanged if it fits."""
    if size_of(data, most) > most:
        return {**_DataCutter().cut_mapping(data, most, 0), "data_truncated": True}
    return _DataCutter().cut_mapping(data, most, 0) if _longest_text(data) > LONGEST_TEXT else data


class _DataCutter:
    """Cuts data: texts are clipped, lists end early, and the entries of a mapping share the room."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # of what holds more, by identity

    def cut(self, value: Any, most: int, depth: int) -> Any:
        if isinstance(value, str):
            room = min(most, LONGEST_TEXT)
            return value if len(value) <= room else f"{value[:room]}[… {len(value) - room} more characters]"
        if isinstance(value, _TEXTS):
            return value if len(value) <= min(most, LONGEST_TEXT) else f"[{len(value)} bytes left out]"
        if not _holds_more(value):
            return value
        if depth > DEEPEST_DATA:
            return _TOO_DEEP
        return self.cut_items(value, most, depth) if isinstance(value, _LISTS) else self.cut_mapping(value, most, depth)

    def cut_items(self, items: Any, most: int, depth: int) -> list[Any]:
        cut: list[Any] = []
        for item in items:
            size = self.size(item, depth + 1)
            if size > most and cut:
                break
            cut.append(self.cut(item, most, depth + 1))
            most -= size
            if most <= 0:
                break
        left_out = len(items) - len(cut)
        return [*cut, f"[… {left_out} of {len(items)} items left out]"] if left_out else cut

    def cut_mapping(self, value: Mapping[Any, Any], most: int, depth: int) -> dict[Any, Any]:
        sizes = {key: _size_alone(key) + self.size(item, depth + 1) for key, item in value.items()}
        if sum(sizes.values()) > most:
            sizes = dict(list(sizes.items())[: max(1, most // _LEAST)])
        cut = {}
        for key, room in _shares(sizes, most).items():
            left = room - _size_alone(key)
            if room >= sizes[key] or left >= _LEAST:
                cut[key] = self.cut(value[key], left, depth + 1)
        left_out = len(value) - len(cut)
        return {**cut, "…": f"[{left_out} of {len(value)} entries left out]"} if left_out else cut

    def size(self, value: Any, depth: int) -> int:
        if not _holds_more(value):
            return _size_alone(value)
        if depth > DEEPEST_DATA:
            return len(_TOO_DEEP)
        if id(value) not in self.sizes:
            self.sizes[id(value)] = _ENDLESS  # until we know: it may hold itself
            inside = sum(self.size(item, depth + 1) for item in value)
            if not isinstance(value, _LISTS):
                inside += sum(self.size(item, depth + 1) for item in value.values())
            self.sizes[id(value)] = _EACH + inside
        return self.sizes[id(value)]


def _shares(sizes: Mapping[Any, int], most: int) -> dict[Any, int]:
    """Divides the room: each entry gets its size if there is enough; the large ones share what the small ones leave."""
    shares = dict.fromkeys(sizes, 0)
    for position, key in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[key] = min(sizes[key], most // (len(sizes) - position))
        most -= shares[key]
    return shares


def _size_alone(value: Any) -> int:
    """Returns the size of a value without its content."""
    if isinstance(value, _TEXTS):
        return _EACH + min(len(value), LONGEST_TEXT)
    return _EACH + (value.bit_length() >> 3) if isinstance(value, int) else _EACH


def _holds_more(value: Any) -> bool:
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None:  # asking an abstract class is slow
        return False
    return kind is dict or isinstance(value, (*_LISTS, Mapping))


def _longest_text(value: Any) -> int:
    """Returns the length of the longest text, in data that `size_of` found to be finite."""
    longest = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _TEXTS):
            longest = max(longest, len(one))
        elif _holds_more(one):
            waiting.extend(one if isinstance(one, _LISTS) else one.values())
    return longest
