"""For tests of tools and agents: a bench, assertions on calls, MCP servers, tapes, a clock, a person.

Nothing is loaded before it is used. The fixtures are in `forge.testing.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
