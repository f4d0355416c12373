"""Serves the agent to an editor: flags, logs and signals."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.running.serve_mcp import run_until_signal
from forge.cli.running.tool_names import print_note
from forge.core.extras import check_extra
from forge.permissions.questions import approve_all


def serve_editor(options: Options, flags: dict[str, Any]) -> int:
    """Serves until the editor leaves. Returns the exit code."""
    with refusals():
        check_extra("acp", "forge acp cannot be used")
    if not options.debug:
        logging.getLogger().addHandler(logging.NullHandler())  # the SDK logs what the editor sent
    from forge.doors.acp import AcpSettings, serve

    settings = AcpSettings(
        options=options.for_project(),
        model=flags["model"],
        turns=flags["max_turns"],
        audit=flags["audit"],
        logs=not flags["no_audit"],
        approve=approve_all if options.yes else None,
        report=print_note,
    )
    asyncio.run(run_until_signal(serve(settings)))
    return 0
