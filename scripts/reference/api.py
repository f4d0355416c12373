"""The pages of `forge.*`: every public name with its types, its parameters and an example, from the docstrings."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import Any

from scripts.reference.markdown import table
from scripts.signatures import public_names, settings_of

TOPICS = {
    "Agents and runs": """
        Agent RunResult Limits Price ContextRules Scope Root RunContext agent.Conversation AgentType SessionStore
        agent.HookDecision agent.TurnContext agent.SessionState agent.StartedRun agent.run_loop agent.LoopSettings
        agent.Rewind agent.Turn
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
        events.RunFinished events.SessionTitled events.SessionRewound events.EventsMissed
    """,
    "Calls without an agent": """
        pipeline.standard_executor pipeline.standard_steps pipeline.ToolExecutor pipeline.Step pipeline.StepObject
        pipeline.Next dry_run
    """,
    "Evaluation": """
        evaluation.evaluate evaluation.EvalCase evaluation.EvalExpect evaluation.EvalReport evaluation.EvalRun
        evaluation.read_marked
        evaluation.read_cases
    """,
    "Runs that survive": "DurableAgent DurableResult Runs Waiting WorkerSettings",
    "Skills, memory, schedules, channels": """
        skills.Catalog skills.ActiveSkills skills.ReadSkill memory.Memory memory.memory_tools schedules.ScheduleStore
        schedules.Runner schedules.schedule_tools channels.Channel channels.Channels channels.Receiver
        channels.TakesRequests channels.Receive channels.Incoming channels.IncomingFile channels.Button
    """,
}
PAGES = {
    topic: f"api-{name}"
    for topic, name in zip(
        TOPICS,
        "agents tools rules models sources mcp-clients events calls evaluation durable knowledge".split(),
        strict=True,
    )
}
"""The file of each topic, without its ending."""


def api_pages() -> dict[str, str]:
    """Returns the list of all names and a page for each topic, by file.

    Raises `AssertionError` where a public name belongs to no topic.
    """
    listed = {f"forge.{name}" for names in TOPICS.values() for name in names.split()}
    assert listed == public_names().keys(), sorted(listed ^ public_names().keys())
    pages = {"api": _list_names()}
    for topic, names in TOPICS.items():
        parts = [part for name in names.split() for part in _describe(f"forge.{name}")]
        pages[PAGES[topic]] = "\n\n".join([f"# {topic}", *parts])
    return pages


def _list_names() -> str:
    rows = []
    for topic, names in TOPICS.items():
        links = (f"[`{name}`]({PAGES[topic]}.md#{_heading(name).lower().replace(' ', '-')})" for name in names.split())
        rows.append((f"[{topic}]({PAGES[topic]}.md)", ", ".join(links)))
    return "\n\n".join(
        [
            "# Python",
            "Names without a dot are imported from `forge`: `from forge import Agent, tool`. The others are imported"
            " from their module: `mcp.Stdio` by `from forge.mcp import Stdio`. The tests run every example; all"
            " these names, `asyncio` and `Path` are imported there.",
            table(("subject", "names"), rows),
        ]
    )


def _heading(name: str) -> str:
    """Returns the name; `class Tool` where a function `tool` has the same address on its page."""
    last = name.rpartition(".")[2]
    others = {one.rpartition(".")[2] for one in public_names()} - {last}
    return f"class {last}" if last != last.lower() and last.lower() in others else last


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
    parts = [
        f"## {_heading(name)}",
        f"```python\n{_signature(shown, value)}\n```",
        _paragraphs(prose.partition("Args:\n")[0]),
    ]
    if found := documented(text):
        parts.append(table(("parameter", "meaning"), [(f"`{one}`", words) for one, words in found]))
    if example:
        parts.append(f"```pycon\n{inspect.cleandoc(example)}\n```")
    if inspect.isclass(value) and (methods := _methods(value)):
        parts += ["Methods and properties:", methods]
    return [part for part in parts if part]


def _methods(value: type) -> str:
    """Returns a definition list: each method with its types, and the first paragraph of its docstring."""
    parts = []
    for member, found in vars(value).items():
        text = inspect.cleandoc(getattr(found, "__doc__", "") or "").partition("\n\n")[0]
        if member.startswith("_") or not text:
            continue
        function = getattr(found, "__func__", found)  # of a class method
        if isinstance(found, property | cached_property):
            getter: Any = found.fget if isinstance(found, property) else found.func
            shown = f"{member}{_returned(inspect.signature(getter))}"
        elif inspect.isfunction(function):
            shown = _signature(member, function)
            waits = inspect.iscoroutinefunction(function)
            shown = f"{'await ' if waits else ''}{shown}{_returned(inspect.signature(function))}"
        else:
            continue
        parts.append(f"```python\n{shown}\n```\n\n{' '.join(text.split())}")
    return "\n\n".join(parts)


def _returned(found: inspect.Signature) -> str:
    kind = found.return_annotation
    return "" if kind is found.empty or kind in (None, "None") else f" -> {_name_type(kind)}"


def _name_type(kind: Any) -> str:
    """Returns an annotation as it is written; those of a named tuple are references."""
    known = getattr(kind, "__forward_arg__", None) or getattr(kind, "__name__", None)
    return kind if isinstance(kind, str) else str(known or kind)


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
        if one.name == "self":
            continue
        if settings := settings_of(value) if one.kind == one.VAR_KEYWORD else {}:
            given += [f"{key}: {kind} = …" for key, kind in settings.items()]
            continue
        given.append(f"{'*' * (one.kind == one.VAR_POSITIONAL)}{'**' * (one.kind == one.VAR_KEYWORD)}{one.name}")
        if one.annotation is not one.empty:
            given[-1] += f": {_name_type(one.annotation)}"
        if one.default is not one.empty:
            shown = repr(one.default)
            equals = " = " if one.annotation is not one.empty else "="
            given[-1] += f"{equals}{shown}" if len(shown) < 20 and "<" not in shown else f"{equals}…"
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
