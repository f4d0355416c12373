"""pydantic-ai with its harness: `Agent` with the capability `Coder` in a local workspace."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peer_systems import Action, Script
from benchmarks.peer_systems.pydantic_ai import It as PydanticAI


class It(PydanticAI):
    actions: ClassVar[dict[str, Action]] = {
        "read": Action("read_file", {"path": "path"}),
        "write": Action("write_file", {"path": "path", "text": "content"}),
        "edit": Action("edit_file", {"path": "path", "old": "old_text", "new": "new_text"}),
        "run": Action("shell", {"command": "command"}),
        "delegate": Action("delegate_task", {"task": "task"}, {"agent_name": "self"}),
    }

    def __init__(self) -> None:
        super().__init__()
        self.coder: Any = import_module("pydantic_ai_harness.coder").Coder
        self.workspace: Any = import_module("pydantic_ai.capabilities").LocalWorkspace

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        with tempfile.TemporaryDirectory() as place:
            await self.drive(script, turns, tools=tools, capabilities=[self.workspace(place), self.coder()])

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        """It asks about nothing, so nobody has to allow anything."""
        await self.drive(script, capabilities=[self.workspace(str(place)), self.coder()])
