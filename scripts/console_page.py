"""What a program asks the console through a page that a browser has open: with its cookie, and with its token."""

from __future__ import annotations

from typing import Any

_ASK = """([path, body]) => {
  const headers = { "Content-Type": "application/json", "X-Forge-Token": localStorage.getItem("forge-token") };
  const more = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  return fetch(path, { headers, ...more }).then((answer) => answer.json());
}"""


async def asked(page: Any, path: str, body: dict[str, Any] | None = None) -> Any:
    """The answer to a GET, or with a body to a POST."""
    return await page.evaluate(_ASK, [path, body])
