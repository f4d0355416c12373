"""The door to files: everything a built-in tool reads or writes passes through here."""

from __future__ import annotations

CAP = "AGENT_WORKSPACE_ROOT"  # the variable that says which directory is the widest
