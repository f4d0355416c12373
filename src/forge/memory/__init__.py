"""The memory of an agent: notes that people can read and edit, and an index to search them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.memory.memory import Memory as Memory
    from forge.memory.tools import memory_tools as memory_tools
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
