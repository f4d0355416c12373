"""The ways in which people elsewhere talk to a project's agent: editors, chats, front ends.

Most open an `OpenSession`: it runs prompts with the project's agent, and a person answers its questions. Front ends
share one agent: `agui_app`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.doors.acp import serve_acp as serve_acp
    from forge.doors.agui import agui_app as agui_app
    from forge.doors.chats import Chat as Chat
    from forge.doors.chats import listen as listen
    from forge.doors.open_session import OpenSession as OpenSession
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
