"""Gives a step what the executor asks of it."""

from __future__ import annotations

from typing import Any

from forge.core.executor import Step


def having(step: Step, **attributes: Any) -> Step:
    """The step with `applies`, `screens`, `clear_turn`, `clear_state` or `end_session`."""
    for name, value in attributes.items():
        setattr(step, name, value)
    return step
