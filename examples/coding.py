"""An agent that changes files: it reads before it writes, a person sees the diff, and everything can be taken back."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from forge import Agent, Answer, PermissionRequest, Scope, Scripted, ToolCall, rules, tool_group
from forge.events import ToolFinished

model = Scripted(  # a real one is a name: "anthropic:…", "openai:…", "ollama:…"
    ToolCall("file_edit", {"path": "greet.py", "old_text": "Hello", "new_text": "Good morning"}),
    ToolCall("grep_search", {"pattern": "def "}),
    ToolCall("file_edit", {"path": "greet.py", "old_text": "Hello", "new_text": "Good morning"}),
    ToolCall("file_write", {"path": ".git/hooks/post-commit", "content": "#!/bin/sh\n"}),
    ToolCall("undo", {"action": "apply"}),
    "It said Good morning for a moment.",
)


async def look(request: PermissionRequest) -> Answer:
    """The person: sees what would change, and says yes."""
    print(f"{request.spec.name} would change:\n{request.preview}")
    return Answer("once", by="me")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "greet.py").write_text('def greet():\n    return "Hello"\n')
        agent = Agent(model, tools=tool_group("code-agent"), policy=rules("allow read", "ask write"), approve=look)
        async for event in agent.stream("Be more polite", scope=Scope(workspace=Path(folder))):
            if isinstance(event, ToolFinished):
                print(f"{event.call.name}: {event.result.for_llm}\n")
        print((Path(folder) / "greet.py").read_text())


asyncio.run(main())
