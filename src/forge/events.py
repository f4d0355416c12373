"""Events of runs and calls, and the stream that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.core.activity import ActivityStream as ActivityStream
    from forge.core.events import ContextShortened as ContextShortened
    from forge.core.events import Event as Event
    from forge.core.events import EventsMissed as EventsMissed
    from forge.core.events import MessageReceived as MessageReceived
    from forge.core.events import PermissionAnswered as PermissionAnswered
    from forge.core.events import PermissionAsked as PermissionAsked
    from forge.core.events import ReasoningDelta as ReasoningDelta
    from forge.core.events import Retrying as Retrying
    from forge.core.events import RunFinished as RunFinished
    from forge.core.events import RunStarted as RunStarted
    from forge.core.events import SessionRewound as SessionRewound
    from forge.core.events import SessionTitled as SessionTitled
    from forge.core.events import TextDelta as TextDelta
    from forge.core.events import ToolArgumentsDelta as ToolArgumentsDelta
    from forge.core.events import ToolCompleted as ToolCompleted
    from forge.core.events import ToolFailed as ToolFailed
    from forge.core.events import ToolFinished as ToolFinished
    from forge.core.events import ToolOutput as ToolOutput
    from forge.core.events import ToolProgress as ToolProgress
    from forge.core.events import ToolReconciled as ToolReconciled
    from forge.core.events import ToolStarted as ToolStarted
    from forge.core.events import TurnFinished as TurnFinished
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
