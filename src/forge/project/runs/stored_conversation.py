"""The conversation of a session: kept in the workspace, continued where it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import urandom
from pathlib import Path

from forge.agent.agent import Agent
from forge.agent.conversation import Conversation
from forge.agent.session import Session, SessionStore
from forge.agent.window import Shortening
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory


@dataclass(slots=True)
class StoredConversation:
    """A conversation, and the session it is kept in; None where nothing can be kept."""

    conversation: Conversation
    shortening: Shortening
    session: Session | None = None

    def refresh(self) -> None:
        """Take in what another process said in the same session."""
        if self.session is not None and self.session.refresh():
            self.conversation = _conversation(self.session)
            self.shortening.recall(self.conversation)


def new_name() -> str:
    """A name for a session that nobody named: when it began, and something to tell it from others."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{urandom(2).hex()}"


def session_store(workspace: Path) -> SessionStore:
    """The workspace's own. Raises `ToolError` where it cannot be written."""
    if state_directory(workspace) != workspace / STATE:
        problem, way = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no session can be kept there", ErrorKind.CONFIG, way)
    return SessionStore.of(workspace)


def open_conversation(store: SessionStore, name: str, agent: Agent) -> StoredConversation:
    """The session of that name, made or continued. Raises `ToolError`."""
    session = store.open(name)
    kept = StoredConversation(_conversation(session), Shortening(agent.model_for(name), meta=session.meta), session)
    kept.shortening.recall(kept.conversation)
    return kept


def unstored_conversation(agent: Agent, name: str = "") -> StoredConversation:
    return StoredConversation(Conversation([]), Shortening(agent.model_for(name)))


def _conversation(session: Session) -> Conversation:
    return Conversation(session.messages, lambda messages: session.append(*messages))
