"""Records a session at each door, with real programs: `python -m scripts.recorded_sessions` writes the page of docs."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.doors.recorded_sessions import STEPS, Record, record_acp, record_agui, record_chat

PAGE = Path(__file__).parents[1] / "docs" / "recorded-sessions.md"
HEAD = """# Recorded sessions

One session at each door: a file is edited with an approval, an edit is refused, a run is steered and another cancelled,
and the session is resumed after `kill -9`. The programs were real, each in a process of its own: `forge acp`, `forge
listen` and `forge serve --agui`. On the other side were the SDK's client of ACP, Slack and Telegram in the shapes of
their documentation, on loopback, and a page that reads AG-UI over HTTP. The model was one on loopback that does what it
is told.

`make recorded-sessions` writes this page. `tests/doors/test_recorded_sessions.py` holds the same sessions and checks
what they do. Long texts are cut (…), and ids are left out.
"""
DOORS = {
    "acp": ("An editor, over ACP", "[Editors](editors.md) has the setup."),
    "slack": ("Slack, in Socket Mode", "[Chats](chats.md) has the setup."),
    "telegram": ("Telegram, with long polling", "The same conversation as in Slack."),
    "agui": ("A front end, over AG-UI", "[Front ends](front-ends.md) has the setup."),
}


async def record(door: str, folder: Path) -> Record:
    """Holds the session of a door."""
    if door == "acp":
        return await record_acp(folder)
    if door == "agui":
        return await record_agui(folder)
    return await record_chat(folder, door)


def write(door: str, found: Record) -> Iterator[str]:
    """Yields the lines of a door's part of the page."""
    title, about = DOORS[door]
    yield from (f"## {title}", "", about, "")
    for step in STEPS:
        yield from (f"### {title.partition(',')[0]}: {step.lower().replace('kill -9', '`kill -9`')}", "", "````text")
        yield from found.lines(step)
        yield from ("````", "")


def main() -> int:
    parts = [HEAD]
    for door in DOORS:
        print(f"{door} …", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            parts.append("\n".join(write(door, asyncio.run(record(door, Path(folder).resolve())))))
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    print(f"written: {PAGE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
