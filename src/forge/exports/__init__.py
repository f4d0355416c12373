"""Exports tools to MCP clients and to other frameworks."""

from __future__ import annotations
