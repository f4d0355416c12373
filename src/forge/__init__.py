"""Tools for language-model agents. Everything a user needs is importable from here, and loaded when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the public names. Editors and type checkers follow the imports; `__getattr__` loads what is used
    from forge.agent.agent import Agent as Agent
    from forge.agent.conversation import Conversation as Conversation
    from forge.agent.limits import Limits as Limits
    from forge.agent.limits import Price as Price
    from forge.agent.loop import LoopSettings as LoopSettings
    from forge.agent.loop import run_loop as run_loop
    from forge.agent.result import RunResult as RunResult
    from forge.agent.session import SessionStore as SessionStore
    from forge.agent.shown_results import ContextRules as ContextRules
    from forge.agent.subagent import AgentType as AgentType
    from forge.channels.channel import Channel as Channel
    from forge.channels.channel import Channels as Channels
    from forge.core.activity import ActivityStream as ActivityStream
    from forge.core.client import CallClient as CallClient
    from forge.core.client import ClientRoot as ClientRoot
    from forge.core.client import MissingCapability as MissingCapability
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
    from forge.core.events import ContextShortened as ContextShortened
    from forge.core.events import Event as Event
    from forge.core.events import MessageReceived as MessageReceived
    from forge.core.events import PermissionAnswered as PermissionAnswered
    from forge.core.events import PermissionAsked as PermissionAsked
    from forge.core.events import ReasoningDelta as ReasoningDelta
    from forge.core.events import Retrying as Retrying
    from forge.core.events import RunFinished as RunFinished
    from forge.core.events import RunStarted as RunStarted
    from forge.core.events import SessionTitled as SessionTitled
    from forge.core.events import TextDelta as TextDelta
    from forge.core.events import ToolArgumentsDelta as ToolArgumentsDelta
    from forge.core.events import ToolCompleted as ToolCompleted
    from forge.core.events import ToolFailed as ToolFailed
    from forge.core.events import ToolFinished as ToolFinished
    from forge.core.events import ToolOutput as ToolOutput
    from forge.core.events import ToolProgress as ToolProgress
    from forge.core.events import ToolReconciled as ToolReconciled
    from forge.core.events import ToolStarted as ToolStarted
    from forge.core.events import TurnFinished as TurnFinished
    from forge.core.executor import Next as Next
    from forge.core.executor import Step as Step
    from forge.core.executor import ToolExecutor as ToolExecutor
    from forge.core.messages import Message as Message
    from forge.core.messages import ToolCall as ToolCall
    from forge.core.messages import Usage as Usage
    from forge.core.messages import messages_from_json as messages_from_json
    from forge.core.messages import messages_to_json as messages_to_json
    from forge.core.messages import unanswered_calls as unanswered_calls
    from forge.core.provider import ModelRequest as ModelRequest
    from forge.core.provider import Provider as Provider
    from forge.core.provider import ProviderError as ProviderError
    from forge.core.provider import StreamPart as StreamPart
    from forge.core.registry import ToolRegistry as ToolRegistry
    from forge.core.registry import ToolSource as ToolSource
    from forge.core.result import Attachment as Attachment
    from forge.core.result import Audio as Audio
    from forge.core.result import Document as Document
    from forge.core.result import Failure as Failure
    from forge.core.result import Image as Image
    from forge.core.result import Label as Label
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
    from forge.evaluation.cases import EvalCase as EvalCase
    from forge.evaluation.cases import EvalExpect as EvalExpect
    from forge.evaluation.cases import EvalRun as EvalRun
    from forge.evaluation.cases import read_cases as read_cases
    from forge.evaluation.report import EvalReport as EvalReport
    from forge.evaluation.run import evaluate as evaluate
    from forge.mcp.client.source import mcp as mcp
    from forge.mcp.prompts import Prompt as Prompt
    from forge.mcp.prompts import prompt as prompt
    from forge.mcp.resources import Resource as Resource
    from forge.mcp.resources import resource as resource
    from forge.memory.memory import Memory as Memory
    from forge.memory.tools import memory_tools as memory_tools
    from forge.models.anthropic import Anthropic as Anthropic
    from forge.models.bedrock import Bedrock as Bedrock
    from forge.models.fallback import fallback as fallback
    from forge.models.gemini import Gemini as Gemini
    from forge.models.openai_chat import OpenAI as OpenAI
    from forge.models.openai_responses import OpenAIResponses as OpenAIResponses
    from forge.models.scripted import Scripted as Scripted
    from forge.models.text_calls import text_calls as text_calls
    from forge.models.vendors import provider_for as provider_for
    from forge.network.egress import Egress as Egress
    from forge.openapi.source import openapi as openapi
    from forge.permissions.conditions import Trace as Trace
    from forge.permissions.gate import PolicyGate as PolicyGate
    from forge.permissions.labels.settings import LabelSettings as LabelSettings
    from forge.permissions.policy import layered as layered
    from forge.permissions.policy import load_rules as load_rules
    from forge.permissions.policy import rules as rules
    from forge.permissions.questions import Answer as Answer
    from forge.permissions.questions import Approver as Approver
    from forge.permissions.questions import Decision as Decision
    from forge.permissions.questions import PermissionRequest as PermissionRequest
    from forge.permissions.questions import Policy as Policy
    from forge.permissions.questions import Ruling as Ruling
    from forge.permissions.questions import approve_all as approve_all
    from forge.permissions.questions import nobody as nobody
    from forge.permissions.rules import PolicyError as PolicyError
    from forge.pipeline import standard_executor as standard_executor
    from forge.pipeline import standard_steps as standard_steps
    from forge.pipeline.dry_run import dry_run as dry_run
    from forge.pipeline.record import record as record
    from forge.pipeline.record import replay as replay
    from forge.project.audit.write_log import audit_log as audit_log
    from forge.project.project import Project as Project
    from forge.project.project import load_project as load_project
    from forge.schedules.runner import Runner as Runner
    from forge.schedules.store import ScheduleStore as ScheduleStore
    from forge.schedules.tools import schedule_tools as schedule_tools
    from forge.scripts.folder import scripts as scripts
    from forge.skills.active import ActiveSkills as ActiveSkills
    from forge.skills.catalog import Catalog as Catalog
    from forge.skills.guardrails import Guardrails as Guardrails
    from forge.skills.tools import ReadSkill as ReadSkill
    from forge.tools import register_all as register_all
    from forge.tools import tool_group as tool_group
    from forge.webhooks import webhook as webhook
    from forge.workspace.history.tracking import SessionState as SessionState

_EXTRAS = {"forge.durable.": "durable"}  # names of these modules need an extra that a base install does not have
_CODE = sys._getframe().f_code  # of this module
_homes: dict[str, str] = {}  # the public names, and where each is

for _name in ("mcp", "openapi", "scripts"):  # folders with the name of a public function
    import_module(f"forge.{_name}")  # now, since its first import binds the name, which then `__getattr__` looks up
    del globals()[_name]


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _names()
    try:
        module = _find_homes()[name]
    except KeyError:
        raise AttributeError(f"module 'forge' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), "__all__", *_names()]


def _names() -> list[str]:
    """Returns the public names that are importable here, for `help(forge)` and `from forge import *`.

    Looked up each time: a package may be installed meanwhile, and `import forge` does without.
    """
    from forge.core.extras import is_installed

    missing = tuple(prefix for prefix, extra in _EXTRAS.items() if not is_installed(extra))
    return sorted(name for name, module in _find_homes().items() if not module.startswith(missing))


def _find_homes() -> dict[str, str]:
    """Returns the module of every public name: reads the imports above, which never run, from the module's code."""
    if not _homes:
        from dis import get_instructions

        module = ""
        for step in get_instructions(_CODE):
            if step.opname == "IMPORT_NAME":
                module = step.argval
            elif step.opname == "IMPORT_FROM" and module.startswith("forge."):
                _homes[step.argval] = module
    return _homes
