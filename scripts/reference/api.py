"""The page of `forge.*`: every public name with its signature, its parameters and an example, from the docstrings."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from importlib import import_module
from itertools import pairwise
from typing import Any

from scripts.reference.markdown import table
from scripts.signatures import public_names, settings_of

TOPICS = {
    "Agents and runs": """
        Agent RunResult Limits Price ContextRules Scope Root RunContext agent.Conversation AgentType SessionStore
        agent.HookDecision agent.TurnContext agent.SessionState agent.StartedRun agent.run_loop agent.LoopSettings
        Project load_project
    """,
    "Tools": """
        tool Tool toolset ToolContext ToolResult ToolError Retry Attachment Failure ErrorKind ToolSpec Category
        Permission Rate Reconciled ToolRegistry ToolSource register_all tool_group DefinitionError DuplicateToolError
    """,
    "Rules and approvals": """
        rules permissions.load_rules permissions.layered Policy permissions.PolicyError permissions.PolicyGate
        PermissionRequest permissions.Ruling Decision Approver Answer approve_all nobody permissions.LabelSettings
        permissions.Label permissions.Trace Egress Secrets skills.Guardrails
    """,
    "Models": """
        models.provider_for models.Anthropic models.Bedrock models.Gemini models.OpenAI models.OpenAIResponses
        models.explain_cache models.ExplainedModel models.CachedTurn models.ServerTool
        Scripted fallback text_calls models.Provider models.ProviderError models.ModelRequest models.StreamPart
        Message ToolCall Usage Image Audio Document messages_to_json messages_from_json models.unanswered_calls
    """,
    "Other people's tools": "mcp mcp.Stdio mcp.Http mcp.OAuth openapi scripts webhook",
    "Offered to MCP clients": """
        mcp.resource mcp.Resource mcp.prompt mcp.Prompt mcp.CallClient mcp.ClientRoot mcp.MissingCapability
    """,
    "Events": """
        events.ActivityStream audit_log events.Event events.RunStarted events.TextDelta events.ReasoningDelta
        events.ToolArgumentsDelta events.Retrying events.MessageReceived events.ToolStarted events.ToolOutput
        events.ToolProgress events.ToolFailed events.ToolFinished events.ToolCompleted events.ToolReconciled
        events.PermissionAsked events.PermissionAnswered events.ContextShortened events.TurnFinished
        events.RunFinished events.SessionTitled events.EventsMissed
    """,
    "Calls without an agent": """
        pipeline.standard_executor pipeline.standard_steps pipeline.ToolExecutor pipeline.Step pipeline.StepObject
        pipeline.Next dry_run
    """,
    "Evaluation": """
        evaluation.evaluate evaluation.EvalCase evaluation.EvalExpect evaluation.EvalReport evaluation.EvalRun
        evaluation.read_cases
    """,
    "Runs that survive": "DurableAgent DurableResult Runs Waiting WorkerSettings",
    "Skills, memory, schedules, channels": """
        skills.Catalog skills.ActiveSkills skills.ReadSkill memory.Memory memory.memory_tools schedules.ScheduleStore
        schedules.Runner schedules.schedule_tools channels.Channel channels.Channels
    """,
}
_SHOWN = ("Agent", "StartedRun")  # classes whose methods the page has, too


def api_page() -> str:
    """Raises `AssertionError` where a public name belongs to no topic."""
    listed = {f"forge.{name}" for names in TOPICS.values() for name in names.split()}
    assert listed == public_names().keys(), sorted(listed ^ public_names().keys())
    parts = [
        "# Python",
        "Every name below is imported from `forge`: `from forge import Agent, tool`. Where the signature names a"
        " module, it is imported from there: `from forge.mcp import Stdio`. The tests run every example; all these"
        " names, `asyncio` and `Path` are imported there.",
    ]
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}")
        for name in names.split():
            parts += _describe(f"forge.{name}")
    return "\n\n".join(parts)


def docstring_of(name: str) -> str:
    """Returns the docstring of a public name; of an alias, the text below its definition."""
    value = public_names()[name]
    if inspect.isclass(value) and not documented(value.__doc__ or "") and value.__init__.__doc__:
        own = vars(value).get("__init__")
        texts = (value.__doc__, own.__doc__ if own else "")  # from Python 3.13, None has a docstring
        return "\n\n".join(inspect.cleandoc(text) for text in texts if text)
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.cleandoc(value.__doc__ or "")
    return _alias_text(*name.rsplit(".", 1))


def documented(text: str) -> list[tuple[str, str]]:
    """Returns the parameters in the section `Args:`, each with its text."""
    section = re.search(r"^Args:\n((?:    .*\n?)+)", inspect.cleandoc(text), re.MULTILINE)
    found = re.findall(r"^    (\w+): ((?:.+\n?)(?:        .*\n?)*)", section[1], re.MULTILINE) if section else []
    return [(name, " ".join(words.split())) for name, words in found]


def _describe(name: str) -> list[str]:
    value, text = public_names()[name], docstring_of(name)
    module, _, name = name.rpartition(".")
    shown = name if module == "forge" else f"{module}.{name}"
    prose, _, example = text.partition("Example:\n")
    parts = [f"### {name}", f"```text\n{_signature(shown, value)}\n```", _paragraphs(prose.partition("Args:\n")[0])]
    if found := documented(text):
        parts.append(table(("parameter", "meaning"), [(f"`{one}`", words) for one, words in found]))
    if example:
        parts.append(f"```pycon\n{inspect.cleandoc(example)}\n```")
    if name in _SHOWN:
        parts.append(_methods(value))
    return [part for part in parts if part]


def _methods(value: type) -> str:
    rows = []
    for member, found in vars(value).items():
        text = inspect.cleandoc(getattr(found, "__doc__", "") or "").partition("\n\n")[0]
        if not member.startswith("_") and text and (inspect.isroutine(found) or isinstance(found, property)):
            rows.append((f"`{member}`", text))
    return table(("method", "purpose"), rows)


def _signature(name: str, value: Any) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return name
    without = (BaseException, enum.Enum)  # nobody calls them like this, and it differs between Pythons
    if getattr(value, "_is_protocol", False) or (inspect.isclass(value) and issubclass(value, without)):
        return name
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    given = []
    for one in found.parameters.values():
        if one.name == "settings" and (settings := settings_of(value)):
            given += [f"{key}=…" for key in settings]
            continue
        given.append(f"{'*' * (one.kind == one.VAR_POSITIONAL)}{'**' * (one.kind == one.VAR_KEYWORD)}{one.name}")
        if one.default is not one.empty:
            shown = repr(one.default)
            given[-1] += f"={shown}" if len(shown) < 20 and "<" not in shown else "=…"
    text = f"{name}({', '.join(given)})"
    return text if len(text) <= 100 else f"{name}(\n    " + ",\n    ".join(given) + ",\n)"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _alias_text(module: str, name: str) -> str:
    body = ast.parse(inspect.getsource(import_module(module))).body
    nodes = [one for node in body for one in (node.body if isinstance(node, ast.If) else [node])]  # `if TYPE_CHECKING`
    for node, below in pairwise([*nodes, ast.Pass()]):
        match node, below:
            case ast.Assign(targets=[ast.Name(id=found)]), ast.Expr(value=ast.Constant(value=str(text))):
                if found == name:
                    return inspect.cleandoc(text)
            case ast.ImportFrom(module=str(where), names=names), _ if any(one.name == name for one in names):
                return _alias_text(where, name)
    return ""
