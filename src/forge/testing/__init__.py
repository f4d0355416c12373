"""For tests of tools and agents: a scripted model, a bench, assertions on calls, MCP servers, tapes, a clock, a person.

Nothing is loaded before it is used. The fixtures are in `forge.testing.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "forge.permissions.questions": ("Answer",),
    "forge.pipeline.record": ("record", "replay"),
    "forge.models.scripted": ("Scripted",),
    "forge.testing.called": (
        "Called",
        "Calls",
        "assert_called",
        "assert_called_in_order",
        "assert_not_called",
        "calls_of",
    ),
    "forge.testing.clock": ("Clock",),
    "forge.testing.every_tool": ("EveryTool", "no_real_requests"),
    "forge.testing.person": ("Person",),
    "forge.testing.serving": ("ToolServer", "mcp_server"),
    "forge.testing.workbench": ("Bench", "Finished", "Project", "bench", "calls", "fails", "project", "says", "tape"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    try:
        module = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module 'forge.testing' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if TYPE_CHECKING:  # what editors and type checkers see; a test keeps it equal to the table above
    from forge.models.scripted import Scripted as Scripted
    from forge.permissions.questions import Answer as Answer
    from forge.pipeline.record import record as record
    from forge.pipeline.record import replay as replay
    from forge.testing.called import Called as Called
    from forge.testing.called import Calls as Calls
    from forge.testing.called import assert_called as assert_called
    from forge.testing.called import assert_called_in_order as assert_called_in_order
    from forge.testing.called import assert_not_called as assert_not_called
    from forge.testing.called import calls_of as calls_of
    from forge.testing.clock import Clock as Clock
    from forge.testing.every_tool import EveryTool as EveryTool
    from forge.testing.every_tool import no_real_requests as no_real_requests
    from forge.testing.person import Person as Person
    from forge.testing.serving import ToolServer as ToolServer
    from forge.testing.serving import mcp_server as mcp_server
    from forge.testing.workbench import Bench as Bench
    from forge.testing.workbench import Finished as Finished
    from forge.testing.workbench import Project as Project
    from forge.testing.workbench import bench as bench
    from forge.testing.workbench import calls as calls
    from forge.testing.workbench import fails as fails
    from forge.testing.workbench import project as project
    from forge.testing.workbench import says as says
    from forge.testing.workbench import tape as tape
