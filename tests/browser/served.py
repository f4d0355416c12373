"""`forge console` as it is, with a model that follows a script for each prompt.

`python -m tests.browser.served SCENES …`: SCENES is a folder, and the prompt `write a` is answered with the turns of
`write a.json` there: texts, calls as script files have them, or `{"follow": FILE}`, which streams what is written to
that file until a line says END.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from forge.agent import agent
from forge.cli.commands.console import command
from forge.core.events import TextDelta
from forge.core.messages import Message
from forge.core.provider import ModelRequest, Provider, StreamPart
from forge.models.scripted import scripted_file
from forge.models.vendors import find_model

MODEL = "scripted:scenes"
END = "END\n"
LOOK = 0.01  # seconds between two looks at a file that grows


class Scenes:
    """Knows from the history alone what comes next, so that it goes on in another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        prompt, number = _place(request, self.folder)
        turns = json.loads(_file(self.folder, prompt).read_text(encoding="utf-8"))
        turn = turns[number]
        if isinstance(turn, dict) and "follow" in turn:
            async for part in _followed(self.folder / turn["follow"]):
                yield part
            return
        beside = self.folder / f".{prompt}.{number}.json"
        beside.write_text(json.dumps([turn]), encoding="utf-8")
        async for part in scripted_file(beside).stream(request):
            yield part


def _place(request: ModelRequest, folder: Path) -> tuple[str, int]:
    """The last thing that a person said and that there are turns for, and how many turns ago."""
    messages = list(request.messages)
    asked = [index for index, one in enumerate(messages) if one.role == "user" and _file(folder, one.text).exists()]
    last = asked[-1]
    return messages[last].text.strip(), sum(one.role == "assistant" for one in messages[last:])


def _file(folder: Path, prompt: str) -> Path:
    return folder / f"{prompt.strip().replace('/', ' ')[:100]}.json"


async def _followed(path: Path) -> AsyncIterator[StreamPart]:
    said = ""
    while True:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        new = text.removesuffix(END)[len(said) :]
        if new:
            said += new
            yield TextDelta(new)
        if text.endswith(END):
            yield Message("assistant", said, finish="stop")
            return
        await asyncio.sleep(LOOK)


def main() -> Any:
    folder = Path(sys.argv[1])

    def find_scenes(model: str | Provider) -> Provider:
        return Scenes(folder) if model == MODEL else find_model(model)

    setattr(agent, "find_model", find_scenes)  # noqa: B010
    return command.main(sys.argv[2:], standalone_mode=False)


if __name__ == "__main__":
    sys.exit(main())
