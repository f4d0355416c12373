"""The ways in which people elsewhere talk to a project's agent: editors, chats, front ends.

Every door opens an `OpenSession`: it runs prompts with the project's agent, and a person answers its questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.doors.open_session import OpenSession as OpenSession
    from forge.doors.open_session import open_session as open_session
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
