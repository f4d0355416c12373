"""Stores the conversation of a session in the workspace, continues it, and gives it a title."""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from os import urandom
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.agent.conversation import Conversation
from forge.agent.session import Session, SessionStore
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory

if TYPE_CHECKING:
    from forge.agent.agent import Agent
    from forge.agent.context_window import Shortening


@dataclass(slots=True)
class StoredConversation:
    """A conversation and its session; the session is None if nothing can be stored."""

    conversation: Conversation
    shortening: Shortening
    session: Session | None = None

    def refresh(self) -> None:
        """Loads messages that another process appended to the session."""
        if self.session is not None and self.session.refresh():
            self.conversation = self.session.continue_conversation()
            self.shortening.recall(self.conversation)


def new_name() -> str:
    """Returns a name for an unnamed session: its time and a random suffix."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{urandom(2).hex()}"


def session_store(workspace: Path) -> SessionStore:
    """Opens the workspace's store. Raises `ToolError` if it cannot be written."""
    if state_directory(workspace) != workspace / STATE:
        problem, hint = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no session can be stored there", ErrorKind.CONFIG, hint)
    return SessionStore.of(workspace)


def open_conversation(store: SessionStore, name: str, agent: Agent) -> StoredConversation:
    """Opens the session of that name, new or continued. Raises `ToolError`."""
    session = store.open(name)
    stored = StoredConversation(session.continue_conversation(), _shortening(agent, name, session.meta), session)
    stored.shortening.recall(stored.conversation)
    return stored


def unstored_conversation(agent: Agent, name: str = "") -> StoredConversation:
    """Returns a conversation that is not stored."""

    return StoredConversation(Conversation([]), _shortening(agent, name, {}))


def _shortening(agent: Agent, name: str, meta: MutableMapping[str, Any]) -> Shortening:
    from forge.agent.context_window import find_window

    shortening = agent.make_shortening(agent.scope, provider := agent.model_for(name), meta)
    shortening.window = find_window(provider)
    return shortening


# Gives a new session a title that its model wrote.


log = logging.getLogger(__name__)


async def title_session(agent: Agent, session: Session) -> None:
    """Asks the session's model for a title and stores it. A failure is only logged; the cost is an event."""
    from forge.agent.limits import price_for
    from forge.agent.summary import write_title  # loads the steps of calls and every kind of event
    from forge.core.events import SessionTitled

    title = await write_title(agent.model_for(session.name), list(session.messages))
    text = agent.secrets.mask_all(title.text)
    if title.usage.total or text:
        price = price_for(agent.limits, agent.provider)
        event = SessionTitled(text, title.usage._asdict(), price.of(title.usage) if price is not None else None)
        event.session, event.agent = session.name, agent.name
        agent.activity.emit(event)
    try:
        if text:
            session.suggest_title(text)
    except ToolError as error:  # deleted meanwhile, or the disk is full
        log.warning("The title of the session %s is not stored: %s", session.name, error.message)
