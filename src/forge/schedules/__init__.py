"""Scheduled tasks: rules that say when a task is due, a store of plans and runs, and a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.schedules.runner import Runner as Runner
    from forge.schedules.store import ScheduleStore as ScheduleStore
    from forge.schedules.tools import schedule_tools as schedule_tools
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
