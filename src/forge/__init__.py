"""Tools for language-model agents. Everything a user needs is importable from here, and loaded when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the public names. Editors and type checkers follow the imports; `__getattr__` loads what is used
    from forge.agent.agent import Agent as Agent
    from forge.agent.limits import Limits as Limits
    from forge.agent.limits import Price as Price
    from forge.agent.result import RunResult as RunResult
    from forge.agent.session import SessionStore as SessionStore
    from forge.agent.shown_results import ContextRules as ContextRules
    from forge.agent.subagent import AgentType as AgentType
    from forge.core.context import Root as Root
    from forge.core.context import RunContext as RunContext
    from forge.core.context import Scope as Scope
    from forge.core.context import ToolContext as ToolContext
    from forge.core.errors import DefinitionError as DefinitionError
    from forge.core.errors import DuplicateToolError as DuplicateToolError
    from forge.core.errors import ErrorKind as ErrorKind
    from forge.core.errors import Retry as Retry
    from forge.core.errors import ToolError as ToolError
    from forge.core.errors import Waiting as Waiting
    from forge.core.messages import Message as Message
    from forge.core.messages import ToolCall as ToolCall
    from forge.core.messages import Usage as Usage
    from forge.core.messages import messages_from_json as messages_from_json
    from forge.core.messages import messages_to_json as messages_to_json
    from forge.core.registry import ToolRegistry as ToolRegistry
    from forge.core.registry import ToolSource as ToolSource
    from forge.core.result import Attachment as Attachment
    from forge.core.result import Audio as Audio
    from forge.core.result import Document as Document
    from forge.core.result import Failure as Failure
    from forge.core.result import Image as Image
    from forge.core.result import Reconciled as Reconciled
    from forge.core.result import ToolResult as ToolResult
    from forge.core.secrets import Secrets as Secrets
    from forge.core.spec import Category as Category
    from forge.core.spec import Permission as Permission
    from forge.core.spec import Rate as Rate
    from forge.core.spec import ToolSpec as ToolSpec
    from forge.core.tool import Tool as Tool
    from forge.core.tool import tool as tool
    from forge.core.tool import toolset as toolset
    from forge.durable.agent import DurableAgent as DurableAgent
    from forge.durable.agent import DurableResult as DurableResult
    from forge.durable.client import Runs as Runs
    from forge.durable.worker import WorkerSettings as WorkerSettings
    from forge.mcp.client.source import mcp as mcp
    from forge.models.fallback import fallback as fallback
    from forge.models.scripted import Scripted as Scripted
    from forge.models.text_calls import text_calls as text_calls
    from forge.network.egress import Egress as Egress
    from forge.openapi.source import openapi as openapi
    from forge.permissions.policy import rules as rules
    from forge.permissions.questions import Answer as Answer
    from forge.permissions.questions import Approver as Approver
    from forge.permissions.questions import Decision as Decision
    from forge.permissions.questions import PermissionRequest as PermissionRequest
    from forge.permissions.questions import Policy as Policy
    from forge.permissions.questions import approve_all as approve_all
    from forge.permissions.questions import nobody as nobody
    from forge.pipeline.dry_run import dry_run as dry_run
    from forge.project.audit.write_log import audit_log as audit_log
    from forge.project.project import Project as Project
    from forge.project.project import load_project as load_project
    from forge.scripts.folder import scripts as scripts
    from forge.tools import register_all as register_all
    from forge.tools import tool_group as tool_group
    from forge.webhooks import webhook as webhook

else:
    from importlib import import_module

    from forge.core.public import expose

    for _name in ("mcp", "openapi", "scripts"):  # folders with the name of a public function
        import_module(f"forge.{_name}")  # now, since its first import binds the name, which then `__getattr__` looks up
        del globals()[_name]
    __getattr__, __dir__ = expose(__name__)
