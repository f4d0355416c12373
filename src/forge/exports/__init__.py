"""Tools on their way out: to MCP clients, and as the objects of other frameworks."""

from __future__ import annotations
