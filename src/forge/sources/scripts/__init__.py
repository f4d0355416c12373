"""A project's own tools: files with a header that declares their inputs, run as programs."""

from __future__ import annotations

from forge.process.scripts.tool import ScriptSettings
from forge.sources.scripts.folder import ScriptFolder, scripts
from forge.sources.scripts.loading import Problem
from forge.sources.scripts.tool import ScriptTool

__all__ = ["Problem", "ScriptFolder", "ScriptSettings", "ScriptTool", "scripts"]
