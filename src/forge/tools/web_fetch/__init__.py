"""Reads pages of the web."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.arguments.parameters import Limits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.web_fetch.cache import Cache, HostRateLimit

if TYPE_CHECKING:  # the network is loaded by the first request
    from forge.network.body import Response
    from forge.tools.web_parts.content import Content
    from forge.tools.web_parts.read_page import PageReader

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
        url: Annotated[str, Limits(example="https://example.com/"), "http or https."],
        format: Literal["markdown", "text", "html"] = "markdown",
        timeout: Annotated[float, Limits(gt=0, le=MAX_TIMEOUT), "Seconds."] = 30.0,
        max_chars: Annotated[int, Limits(ge=1)] = MAX_CHARS,
        offset: Annotated[int, Limits(ge=0), "Characters to skip, to continue a page."] = 0,
    ) -> ToolResult:
        import asyncio  # which listing tools does without

        from forge.network.address import read_url
        from forge.network.egress import Egress
        from forge.tools.web_fetch.page_part import render_part
        from forge.tools.web_parts.read_page import PageReader

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
        from forge.network.headers import Limits as Bounds
        from forge.tools.web_parts.read_page import may_be_a_page

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
        from forge.tools.web_parts.content import Content, read_content
        from forge.tools.web_parts.downloads import detect_media_type, file_name, save

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
    from forge.tools.web_parts.mark_untrusted import mark_text

    data: dict[str, Any] = {"url": answer.url, "status": answer.status, "location": answer.location[:2_000]}
    said = f"HTTP {answer.status}: it redirects to {answer.location[:2_000]}"
    note = "another server: not followed; call web_fetch with that URL if it is what you want"
    return ToolResult(for_llm=mark_text(said, answer.url, note), title="Redirected to another server", data=data)
