"""Gives a new session a title that its model wrote."""

from __future__ import annotations

import logging

from forge.agent.agent import Agent
from forge.agent.prices import price_for
from forge.agent.session import Session
from forge.agent.session_title import write_title
from forge.core.errors import ToolError
from forge.core.events import SessionTitled

log = logging.getLogger(__name__)


async def title_session(agent: Agent, session: Session) -> None:
    """Asks the session's model for a title and stores it. A failure is only logged; the cost is an event."""
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
