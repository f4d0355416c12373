"""Runs agents durably: every turn and every call is a recorded step, on one machine or on many."""

from __future__ import annotations

from forge.core.extras import find_missing, missing_module

if missing := find_missing("durable"):
    raise missing_module("durable", "durable runs cannot be used", missing[0])
