"""Logs a person in at an MCP server: in a browser, or with a URL that the person pastes."""

from __future__ import annotations

import asyncio
import webbrowser
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # showing the help does without
    from forge.sources.mcp.oauth.login import Browser, Login, Redirect


async def log_in_person(login: Login, *, browser: bool) -> bool:
    """Returns False if the server asks for no login. Raises `ToolError`."""
    from forge.core.errors import ToolError
    from forge.sources.mcp.oauth.browser import listen_for_redirect
    from forge.sources.mcp.oauth.log_in import log_in

    if not browser:
        return await log_in(login, _pasting(login))
    wanted = login.settings.redirect_port
    for port in (wanted,) if wanted else dict.fromkeys((login.registered_port, 0)):
        async with AsyncExitStack() as stack:
            try:
                found = await stack.enter_async_context(listen_for_redirect(port, _open_page))
            except ToolError:
                if port in (0, wanted):
                    raise
                continue  # taken: Forge registers another one
            return await log_in(login, found)
    raise AssertionError("port 0 is always tried")


def _pasting(login: Login) -> Browser:
    from forge.sources.mcp.oauth.browser import HOST, PASTED_PORT, PATH, read_redirect
    from forge.sources.mcp.oauth.login import Browser

    async def show(url: str) -> None:
        click.echo(f"Open this page and log in:\n\n{harmless(url)}\n", err=True)
        click.echo("The browser then ends at a page that it may not be able to open.", err=True)

    async def wait() -> Redirect:
        return read_redirect(await asyncio.to_thread(click.prompt, "Paste the URL of that page", type=str, err=True))

    port = login.settings.redirect_port or PASTED_PORT
    return Browser(f"http://{HOST}:{port}{PATH}", show, wait)


async def _open_page(url: str) -> None:
    click.echo(f"Opening a browser. If none opens, open this page and log in:\n\n{harmless(url)}\n", err=True)
    await asyncio.to_thread(webbrowser.open, url)
