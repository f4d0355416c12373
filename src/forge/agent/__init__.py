"""Runs the loop between a model and its tools, and holds its memory: sessions, summaries, token estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.agent.conversation import Conversation as Conversation
    from forge.agent.hooks import HookDecision as HookDecision
    from forge.agent.hooks import TurnContext as TurnContext
    from forge.agent.loop import LoopSettings as LoopSettings
    from forge.agent.loop import run_loop as run_loop
    from forge.agent.rewind import Rewind as Rewind
    from forge.agent.rewind import Turn as Turn
    from forge.agent.run_control import StartedRun as StartedRun
    from forge.workspace.history.tracking import SessionState as SessionState
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
