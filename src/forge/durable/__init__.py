"""Runs agents durably: every turn and every call is a recorded step, on one machine or on many."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("dbos") is None:
    raise ModuleNotFoundError(
        "durable runs cannot be used: the package dbos, which keeps them, is not installed. "
        "Install it with: pip install 'forge-tools[durable]'",
        name="dbos",
    )
