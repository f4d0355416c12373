"""Reads pages of the web: a part at a time, from a short-lived cache, with a limit of requests per host."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

if TYPE_CHECKING:
    from forge.network.body import Response
    from forge.tools.web.content import Content
    from forge.tools.web.read_page import PageReader

MAX_BYTES = 10 * 1024 * 1024  # of a page or file
MAX_CHARS = 50_000  # shown at once
MAX_TIMEOUT = 300.0  # seconds
CACHED = 15 * 60.0  # seconds
EACH_MINUTE = 10  # requests, of a host


class WebFetch(
    Tool,
    category=Category.BUILTIN,
    trust="untrusted",
    permissions={"network"},
    target="url",
    aliases=("webfetch", "fetch"),
    argument_aliases={"uri": "url", "max_length": "max_chars", "start_index": "offset"},
    idempotent=True,
    timeout=MAX_TIMEOUT + 60,
    extra="web",
):
    """Read a web page as markdown, text or clean HTML; JSON as it is, PDFs and images as files."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        cache_seconds: float = CACHED,
        requests_per_minute: int = EACH_MINUTE,
        reading_seconds: int = 10,
    ) -> None:
        self.max_bytes = max_bytes
        self.reading_seconds = reading_seconds  # of computing, for one page
        self.cache: Cache[Content] = Cache(cache_seconds)
        self.turns = HostRateLimit(requests_per_minute)

    async def run(
        self,
        ctx: ToolContext,
        url: Annotated[str, ParameterLimits(example="https://example.com/"), "http or https."],
        format: Literal["markdown", "text", "html"] = "markdown",
        timeout: Annotated[float, ParameterLimits(gt=0, le=MAX_TIMEOUT), "Seconds."] = 30.0,
        max_chars: Annotated[int, ParameterLimits(ge=1)] = MAX_CHARS,
        offset: Annotated[int, ParameterLimits(ge=0), "Characters to skip, to continue a page."] = 0,
    ) -> ToolResult:
        import asyncio  # which listing tools does without

        from forge.network.address import read_url
        from forge.network.egress import Egress
        from forge.tools.web.read_page import PageReader

        target, egress = read_url(url), Egress.current()
        egress.judge(target)  # before a turn is taken, or a page shown that was fetched when it was allowed
        key = (ctx.scope.session_id, repr(egress), str(target), format)
        content = self.cache.find(*key)
        is_cached = content is not None
        if content is None:
            async with PageReader(self.reading_seconds) as reader:
                await self._take_turn(ctx, target.host, timeout)
                end = (
                    asyncio.get_running_loop().time() + timeout
                )  # for the whole of it; waiting for others is not its time
                answer = await self._fetch(str(target), timeout, reader)
                if answer.location:
                    return _redirect_result(answer)
                try:
                    async with asyncio.timeout_at(end):
                        content = await self._content(ctx, answer, format, reader)
                except TimeoutError:
                    raise _timeout_error(answer.url, timeout) from None
            if 200 <= answer.status < 300 and content.file == "":
                self.cache.keep(content, len(content.text) + 1_000, *key)
        return render_part(content, format, max_chars, offset, is_cached=is_cached)

    async def _take_turn(self, ctx: ToolContext, host: str, timeout: float) -> None:
        import asyncio

        wait = self.turns.take(host, timeout)
        if wait > 0:
            ctx.progress(f"Waiting {wait:.1f} s until the next request to {host}")
            await asyncio.sleep(wait)

    async def _fetch(self, url: str, timeout: float, reader: PageReader) -> Response:
        from forge.network.client import fetch
        from forge.network.headers import RequestLimits as Bounds
        from forge.tools.web.read_page import may_be_a_page

        if may_be_a_page(url):
            await reader.start()
        return await fetch(
            "GET",
            url,
            headers={"Accept": "text/html, application/xhtml+xml, text/markdown, text/plain, */*;q=0.8"},
            limits=Bounds(connect=min(10.0, timeout), read=timeout, total=timeout, size=self.max_bytes),
            follow="same-host",
        )

    async def _content(self, ctx: ToolContext, answer: Response, format: str, reader: PageReader) -> Content:
        from forge.tools.web.content import Content, detect_media_type, file_name, read_content, save

        content = await read_content(answer, format, reader)
        if content is not None:
            return content
        if answer.truncated:
            raise ToolError(
                f"the file at {answer.url[:300]} is larger than {self.max_bytes:,} bytes",
                ErrorKind.USER,
                "Look for a smaller one, or download it with a command if that is permitted.",
            )
        from forge.core.execution.threads import in_thread

        kind = detect_media_type(answer.body, answer.content_type)
        name = file_name(answer.url, kind, answer.header("content-disposition"))
        path = str(await in_thread(lambda: save(ctx, name, answer.body)))
        image = Attachment(kind, answer.body, name) if kind.startswith("image/") else None
        return Content(
            url=answer.url, status=answer.status, kind=kind, file=path, size=len(answer.body), attachment=image
        )


def _timeout_error(url: str, timeout: float) -> ToolError:
    return ToolError(
        f"{url[:300]} was fetched, but could not be read within {timeout:g} s",
        ErrorKind.TIMEOUT,
        "Set a larger timeout, or look for the content elsewhere.",
    )


def _redirect_result(answer: Response) -> ToolResult:
    """Returns a redirect to another server as a result: it needs a permission of its own, so the model must ask."""
    from forge.tools.web.content import mark_text  # its patterns are compiled when it loads

    data: dict[str, Any] = {"url": answer.url, "status": answer.status, "location": answer.location[:2_000]}
    said = f"HTTP {answer.status}: it redirects to {answer.location[:2_000]}"
    note = "another server: not followed; call web_fetch with that URL if it is what you want"
    return ToolResult(for_llm=mark_text(said, answer.url, note), title="Redirected to another server", data=data)


# Shows a part of a fetched page: never more than reaches the model uncut, so that its marks arrive, too.

MOST_BYTES = 48_000  # a little less than what the pipeline lets through
MOST_LINES = 1_900


def render_part(content: Content, form: str, max_chars: int, offset: int, *, is_cached: bool) -> ToolResult:
    from forge.tools.web.content import clean_line, mark_text

    data: dict[str, Any] = {
        "url": content.url,
        "status": content.status,
        "content_type": content.kind,
        "bytes": content.size,
        "cached": is_cached,
        "truncated": False,
    }
    if content.file:
        return _file_result(content, data)
    total = len(content.text)
    if offset and offset >= total:
        raise ToolError(
            f"offset {offset} is past the end: the page has {total:,} characters", ErrorKind.USER, "Begin at 0."
        )
    part = content.text[offset : offset + measure_part(content.text, offset, max_chars)]
    end = offset + len(part)
    data |= {"title": content.title, "format": form, "content": part, "chars": total, "truncated": end < total}
    if content.note:
        data["note"] = content.note
    if end < total:
        data["next_offset"] = end
    title = f"Title: {clean_line(content.title, 200)}\n\n" if content.title and not offset else ""
    status = "" if 200 <= content.status < 300 else f"HTTP {content.status}: "
    return ToolResult(
        for_llm=mark_text(f"{title}{part}".strip() or "(no text)", content.url, _note(content, offset, end)),
        title=status + clean_line(content.title or content.url, 120),
        data=data,
    )


def measure_part(text: str, offset: int, most: int) -> int:
    """Returns the number of characters to show from there: within a result's limits, cut at the end of a line."""
    part = text[offset : offset + min(most, MOST_BYTES)]
    if not part.isascii():
        part = part.encode()[:MOST_BYTES].decode(errors="ignore")
    lines = part.split("\n", MOST_LINES)
    if len(lines) > MOST_LINES:
        part = part[: len(part) - len(lines[-1])]
    is_cut_by_us = len(part) < most and offset + len(part) < len(text)
    last = part.rfind("\n") + 1
    return last if is_cut_by_us and last > len(part) // 2 else len(part)


def _note(content: Content, offset: int, end: int) -> str:
    from forge.tools.web.content import clean_line

    notes = []
    if not 200 <= content.status < 300:
        notes.append(f"HTTP {content.status}")
    if content.note:
        notes.append(clean_line(content.note))
    total = len(content.text)
    if end < total:
        notes.append(f"characters {offset:,} to {end:,} of {total:,}; continue with offset={end}")
    elif offset:
        notes.append(f"characters {offset:,} to {end:,} of {total:,}, the end")
    return "; ".join(notes)


def _file_result(content: Content, data: dict[str, Any]) -> ToolResult:
    said = f"{content.kind}, {content.size:,} bytes, saved as {content.file}"
    if not 200 <= content.status < 300:
        said = f"HTTP {content.status}: {said}"
    return ToolResult(
        for_llm=f"[{said}: not text, so it is not shown]",
        for_user=f"Saved {content.file}",
        title=f"{content.kind} ({content.size:,} bytes)",
        data=data | {"path": content.file},
        attachments=(content.attachment,) if content.attachment is not None else (),
    )


# Caches recently fetched pages, and limits the requests per host.

MOST_PAGES = 200  # pages
LARGEST_CACHE = 64 * 1024 * 1024  # characters and bytes of all of them together
MOST_HOSTS = 1_000

T = TypeVar("T")


class Cache(Generic[T]):
    """Bounded in time, number and size; the least recently used page is dropped first."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self._kept: OrderedDict[tuple[str, ...], tuple[float, int, T]] = OrderedDict()
        self._size = 0

    def find(self, *key: str) -> T | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] + self.seconds <= self.clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found[2]

    def keep(self, value: T, size: int, *key: str) -> None:
        self._drop(key)
        if size > LARGEST_CACHE // 2 or self.seconds <= 0:
            return
        self._kept[key] = (self.clock(), size, value)
        self._size += size
        while len(self._kept) > MOST_PAGES or self._size > LARGEST_CACHE:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, ...]) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found[1]


class HostRateLimit:
    """Limits the requests per minute and host."""

    def __init__(self, calls: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.calls = calls
        self.seconds = seconds
        self.clock = clock
        self._taken: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, host: str, patience: float) -> float:
        """Takes a turn and returns the seconds to wait; raises `ToolError` if they exceed `patience`."""
        if self.calls <= 0:
            return 0.0
        now = self.clock()
        times = self._taken[host] = self._taken.pop(host, deque())
        if len(self._taken) > MOST_HOSTS:
            self._taken.popitem(last=False)
        while times and times[0] <= now - self.seconds:
            times.popleft()
        free_at = now if len(times) < self.calls else times[-self.calls] + self.seconds
        if free_at - now > patience:
            raise ToolError(
                f"{host} got {self.calls} requests within {self.seconds:g} s; the next one is allowed in "
                f"{free_at - now:.0f} s",
                ErrorKind.RATE_LIMITED,
                "Continue with what you have, or do something else first.",
            )
        times.append(free_at)
        return free_at - now
