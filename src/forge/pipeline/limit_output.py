"""Step: a long result is cut where a model can still use it, says so, and is kept whole in a file."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import Attachment, ToolResult
from forge.pipeline._step import having
from forge.workspace.state import state_directory, write_private

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024
MAX_LINE = 2_000  # characters
MAX_SPILL = 64 * 1024 * 1024  # characters kept in the file
MAX_DATA = 1024 * 1024  # characters of one text in `data`
SHORT = 1_000  # characters: nothing below can break a limit or hide a payload

_PAYLOAD = re.compile(
    r"data:(?P<media>[\w.+-]+/[\w.+-]+)?(?:;[\w=.-]+)*;base64,(?P<inline>[A-Za-z0-9+/_-]{200,}={0,2})"
    r"|(?P<bare>(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{1000,}|(?:[A-Za-z0-9+/]{60,76}\r?\n){12,}[A-Za-z0-9+/]{0,76})={0,2})"
)


class Cut(NamedTuple):
    text: str
    lines: int
    shown_lines: int


def limit_output(max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE) -> Step:
    short = min(SHORT, max_lines, max_line, max_bytes // 4)

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        if result.data:
            result = _with_bounded_data(result)
        if len(result.for_llm) < short:
            return result
        from forge.core.threads import in_thread  # a large text is looked through beside the loop

        return await in_thread(lambda: _limited(ctx, result, max_lines, max_bytes, max_line))  # type: ignore[no-any-return]

    return having(step, screens=True)


def _limited(ctx: ToolContext, result: ToolResult, max_lines: int, max_bytes: int, max_line: int) -> ToolResult:
    result = _without_payloads(result)
    text = result.for_llm
    size = len(text.encode())
    cut = fitted(text, max_lines, max_bytes, max_line, keep_end=ctx.spec.keep_end)
    if cut is None:
        return result
    kept = _keep_whole(ctx, text)
    note = f"[cut: {cut.shown_lines} of {cut.lines} lines shown, {size} bytes in all; {kept}]"
    facts = {"truncated": True, "total_lines": cut.lines, "total_bytes": size}
    return replace(result, for_llm=f"{cut.text}\n{note}").with_data(**facts)


def fitted(text: str, max_lines: int, max_bytes: int, max_line: int, *, keep_end: bool = False) -> Cut | None:
    """The text within all three limits, or None where it is already."""
    lines = text.split("\n")
    total = len(lines) - (lines[-1] == "")
    clipped = [line if len(line) <= max_line else _clipped(line, max_line) for line in lines[:total]]
    if total <= max_lines and len(text.encode()) <= max_bytes and clipped == lines[:total]:
        return None
    if not keep_end:
        head = _within(clipped[:max_lines], max_bytes)
        return Cut("\n".join(head), total, len(head))
    head = _within(clipped[: max_lines // 5], max_bytes // 5)
    rest = clipped[len(head) :][-(max_lines - max_lines // 5) :]
    tail = _within(rest[::-1], max_bytes - max_bytes // 5)[::-1]
    left_out = total - len(head) - len(tail)
    middle = [f"[… {left_out} lines left out …]"] if left_out else []
    return Cut("\n".join([*head, *middle, *tail]), total, len(head) + len(tail))


def _within(lines: list[str], max_bytes: int) -> list[str]:
    """The first lines that fit; of a single one too long, the part that fits."""
    kept: list[str] = []
    used = 0
    for line in lines:
        used += len(line.encode()) + 1
        if used > max_bytes + 1:
            return kept or [line.encode()[:max_bytes].decode(errors="ignore")]
        kept.append(line)
    return kept


def _clipped(line: str, max_line: int) -> str:
    return f"{line[:max_line]}[… {len(line) - max_line} more characters]"


def _keep_whole(ctx: ToolContext, text: str) -> str:
    """Write the whole text to a file of the session; the part of the note that says where."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", f"{ctx.spec.name}-{ctx.call.id}")[:100]
    try:
        folder = state_directory(ctx.scope.workspace, "spill")
        path = folder / f"{safe}.txt"
        for attempt in range(1, 100):
            if not path.exists():
                break
            path = folder / f"{safe}-{attempt}.txt"
        write_private(
            path, text if len(text) <= MAX_SPILL else text[:MAX_SPILL] + "\n[the file ends here: too large]\n"
        )
    except OSError as error:
        return f"the whole text could not be kept: {error.strerror}; ask for a smaller part"
    return f'the whole text is in "{path}": read it from there, or ask for a smaller part'


def _without_payloads(result: ToolResult) -> ToolResult:
    """Base64 is noise to a model: it becomes an attachment."""
    attachments = list(result.attachments)

    def taken(match: re.Match[str]) -> str:
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

    text = _PAYLOAD.sub(taken, result.for_llm)
    return result if text == result.for_llm else replace(result, for_llm=text, attachments=tuple(attachments))


def _with_bounded_data(result: ToolResult) -> ToolResult:
    cut = _bounded(result.data)
    return result if cut is result.data else replace(result, data=cut)


def _bounded(value: Any) -> Any:
    """The same value, with texts over the limit cut and marked; the very same object where nothing was."""
    if isinstance(value, str):
        return value if len(value) <= MAX_DATA else f"{value[:MAX_DATA]}[… {len(value) - MAX_DATA} more characters]"
    if isinstance(value, Mapping):
        new = {key: _bounded(item) for key, item in value.items()}
        return value if all(new[key] is item for key, item in value.items()) else new
    if isinstance(value, list | tuple):
        items = [_bounded(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value
