"""Waits for a person's login: a listener on this machine takes the redirect, or the person pastes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.oauth.login import Browser, Redirect
from forge.sources.untrusted import one_line

HOST, PATH = "127.0.0.1", "/callback"
PASTED_PORT = 33_418  # of a redirect that nothing listens to: the person pastes its URL
PATIENCE = 300.0  # seconds for a person to log in
_READING = 5.0  # seconds for a browser to send its request
_MOST_LINE = 16 * 1024  # bytes of the request's first line
_DONE = "You are logged in. You can close this page and return to the terminal."
_FAILED = "The login did not succeed. The terminal says more."


@asynccontextmanager
async def listen_for_redirect(port: int, show: Callable[[str], Awaitable[None]]) -> AsyncIterator[Browser]:
    """Listens on a port of this machine, 0 for any. Raises `ToolError` if the port is taken."""
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READING):
                words = (await reader.readline()).decode("latin-1").split()
                target = words[1] if len(words) > 1 and words[0] == "GET" else ""
                is_redirect = urlsplit(target).path == PATH
                _answer(writer, 200 if is_redirect else 404, _DONE if "code=" in target else _FAILED)
                await writer.drain()
            if is_redirect and not arrived.done():
                arrived.set_result(target)
        except (TimeoutError, OSError, ValueError):
            pass  # not a browser
        finally:
            writer.close()

    async def wait() -> Redirect:
        try:
            async with asyncio.timeout(PATIENCE):
                return read_redirect(await arrived)
        except TimeoutError:
            what = f"waiting for the login: no one logged in within {PATIENCE:g} s"
            raise ToolError(what, ErrorKind.TIMEOUT, "Run the command again.") from None

    try:
        server = await asyncio.start_server(receive, HOST, port, limit=_MOST_LINE)
    except OSError as error:
        raise ToolError(
            f"listening for the login on port {port} failed: {error.strerror}",
            ErrorKind.CONFIG,
            "Free the port, set another `redirect_port`, or use --no-browser.",
        ) from None
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Browser(f"http://{HOST}:{port}{PATH}", show, wait)


def read_redirect(url: str) -> Redirect:
    """Reads the URL that the authorization server redirected to. Raises `ToolError`."""
    said = {name: values[0] for name, values in parse_qs(urlsplit(url.strip()).query).items()}
    if "error" in said:
        why = one_line(" ".join(filter(None, (said["error"], said.get("error_description")))), 300)
        raise ToolError(f"the login was refused: {why}", ErrorKind.CONFIG, "Log in again, and agree to the access.")
    if "code" not in said:
        raise ToolError(
            "the URL of the redirect has no code", ErrorKind.VALIDATION, "Paste the whole URL of the last page."
        )
    return Redirect(said["code"], said.get("state"), said.get("iss"))


def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"<!doctype html><meta charset=utf-8><title>Forge</title><p>{text}</p>".encode()
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
