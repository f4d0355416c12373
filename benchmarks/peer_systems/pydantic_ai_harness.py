"""pydantic-ai with its harness: `Agent` with the capability `Coder` in a local workspace."""

from __future__ import annotations

import tempfile
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Script
from benchmarks.peer_systems.pydantic_ai import It as PydanticAI


class It(PydanticAI):
    def __init__(self) -> None:
        super().__init__()
        self.coder: Any = import_module("pydantic_ai_harness.coder").Coder
        self.workspace: Any = import_module("pydantic_ai.capabilities").LocalWorkspace

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        with tempfile.TemporaryDirectory() as place:
            await self.drive(script, turns, tools=tools, capabilities=[self.workspace(place), self.coder()])
