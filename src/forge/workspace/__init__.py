"""Gives tools access to files: every built-in tool reads and writes through this package."""

from __future__ import annotations

CAP = "AGENT_WORKSPACE_ROOT"  # the variable that names the widest directory allowed
