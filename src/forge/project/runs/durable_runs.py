"""A project's runs that survive: where they are kept, what they are run with, and their sessions."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.agent.agent import Agent
from forge.agent.session import SessionStore
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import TextDelta
from forge.core.execution.threads import in_thread
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, Provider
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.models.names import provider_for
from forge.models.scripted import Scripted
from forge.permissions.gate import Answer, Approver, approve_all
from forge.permissions.request import Decision, PermissionRequest, Ruling
from forge.project.config import Configuration
from forge.project.runs.stored_conversation import session_store
from forge.project.version import version as forge_version
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory

if TYPE_CHECKING:  # an extra, and slow to import: only where something durable is done
    from forge.durable.engine.attempt import Attempt
    from forge.durable.engine.queues import Limits
    from forge.durable.engine.segment_context import Models
    from forge.durable.store import RunStore
    from forge.durable.store.rows import Question, RunInfo

FILE = "durable.db"
HEARD = "heard"  # in a run's scope: how many messages of its session it began with


def check_installed() -> None:
    """Raises `ToolError` where the extra is not installed."""
    missing = [name for name in ("dbos", "sqlalchemy", "psycopg") if find_spec(name) is None]
    if missing:
        words = f"runs that survive need packages that are not installed: {', '.join(missing)}"
        raise ToolError(words, ErrorKind.CONFIG, "pip install 'forge-tools[durable]'")


def project_database(
    configuration: Configuration,
    workspace: Path,
    asked: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The URL: what is asked for, else what FORGE_DATABASE or `forge.yaml` say, else the workspace's own file.

    Raises `ToolError`.
    """
    named = asked or (configuration.durable.url(environment) if configuration.durable is not None else "")
    return named or f"sqlite:///{own_file(workspace)}"


def own_file(workspace: Path) -> Path:
    """The workspace's own database, there or not. Raises `ToolError` where it cannot have one."""
    if (workspace / STATE).exists() and state_directory(workspace) != workspace / STATE:
        problem, way = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no run can be kept there", ErrorKind.CONFIG, way)
    return workspace / STATE / FILE


def make_own_file(workspace: Path) -> None:
    """See to it that the workspace's database can be made. Raises `ToolError`."""
    if state_directory(workspace) != workspace / STATE:
        problem, way = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no run can be kept there", ErrorKind.CONFIG, way)


def is_own(url: str, workspace: Path) -> bool:
    """Whether it is the database of the workspace, and of nobody else."""
    return url == f"sqlite:///{workspace / STATE / FILE}"


def queue_limits(configuration: Configuration) -> dict[str, Limits]:
    """Raises `ToolError`."""
    from forge.durable.engine.queues import Limits

    entries = configuration.durable.queues if configuration.durable is not None else {}
    return {name: Limits.of(name, entry) for name, entry in entries.items()}


def project_version(configuration: Configuration, built: str = "") -> str:
    """Runs are worked on by workers of the same version: of Forge, and of what the project's file says.

    Where runs are kept, and what a person's own file or environment say, may differ from machine to machine. `built`:
    the SHA-256 of a build's manifest, which counts instead.
    """
    own = next((layer.document for layer in configuration.layers if layer.kind == "project"), {})
    said = {key: value for key, value in own.items() if key != "durable"}
    mark = built or (sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest() if said else "")
    return f"{forge_version().split()[0]}+{mark[:12]}" if mark else forge_version().split()[0]


def models_for(agent: Agent) -> Models:
    """The models that an agent's runs may ask for by name. A scripted one can be resumed from now on."""
    if agent.provider is not None:
        agent.provider = _resumable(agent.provider)

    @cache
    def named(model: str) -> Provider:
        own = agent.provider
        return own if own is not None and model == agent.model else _resumable(provider_for(model))

    return named


def _resumable(provider: Provider) -> Provider:
    return Rehearsed(provider) if isinstance(provider, Scripted) else provider


def approver(own: str = "", *, yes: bool = False) -> Approver:
    """Questions are stored. With `yes`, what the run `own` asks is approved, and so what those ask that it started:
    a worker may have other people's runs, too."""

    async def ask(request: PermissionRequest) -> Answer:
        from forge.durable.engine.approval import stored_approval
        from forge.durable.engine.attempt import current

        attempt = current.get()
        if yes and attempt is not None and await in_thread(lambda: own in _forebears(attempt)):
            return await approve_all(request)
        return await stored_approval(request)

    return ask


def _forebears(attempt: Attempt) -> list[str]:
    """The run and those that had it started. Not by its id: somebody else's may begin like ours."""
    run = attempt.run
    found = [run.id]
    while run.parent and run.parent not in found:
        run = attempt.store.get(run.parent)
        found.append(run.id)
    return found


def request_of(question: Question, registry: ToolRegistry, scope: Scope) -> PermissionRequest:
    """A stored question, to be asked here. What is known of the tool here is shown with it."""
    shown = question.request
    tool, words = registry.get(question.tool), str(shown.get("description", ""))
    spec = tool.spec if tool is not None else ToolSpec(name=question.tool, description=words, parameters={})
    (permission, target), *others = [_part(one) for one in shown.get("parts") or [["", ""]]]
    arguments, result = shown.get("arguments") or {}, shown.get("result")
    return PermissionRequest(
        spec,
        ToolCall(question.tool, arguments, question.call),
        arguments,
        permission,
        target,
        replace(scope, agent=str(shown.get("agent", scope.agent))),
        Ruling(Decision.ASK, str(shown.get("reason", "")), str(shown.get("rule", ""))) if "reason" in shown else None,
        tuple(others),
        result=ToolResult(for_llm=result) if isinstance(result, str) else None,
        question=str(shown.get("question", "")),
        preview=str(shown.get("preview", "")),
        introduction=str(shown.get("introduction", "")),
        editable=bool(shown.get("editable", False)),
        personal=bool(shown.get("personal", False)),
        form=shown.get("form"),
    )


def _part(written: Any) -> tuple[Permission | None, str]:
    permission, target = written
    return (Permission(permission) if permission else None), str(target)


def keep(run: RunInfo, store: RunStore, sessions: SessionStore) -> int:
    """Append a run that is over to its session, once; how many messages that were. Raises `ToolError`."""
    if run.parent or not run.session or not run.is_over:
        return 0
    messages = store.messages(run.id)
    began = run.scope.get(HEARD, 0)
    return sessions.open(run.session).catch_up(f"run {run.id}", messages[began if isinstance(began, int) else 0 :])


def keep_finished(store: RunStore, workspace: Path, limit: int = 100) -> int:
    """The same for the newest runs of a workspace's own database, whoever worked on them."""
    from forge.durable.store.rows import OVER

    with session_store(workspace) as sessions:
        return sum(keep(run, store, sessions) for run in store.list(status=OVER, parent="", limit=limit))


class Rehearsed:
    """A script that each run follows from where it is: its earlier turns may have been said in another process."""

    def __init__(self, script: Scripted) -> None:
        self._script = script
        self._before: dict[str, int] = {}  # of each run, the model's turns in the history that it began with

    def __getattr__(self, name: str) -> Any:
        return getattr(self._script, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        script = self._script.again(_turns(request.messages) - await self._turns_before())
        async with aclosing(script.stream(request)) as parts:
            async for part in parts:
                yield part

    async def _turns_before(self) -> int:
        from forge.durable.engine.attempt import current

        attempt = current.get()
        if attempt is None:
            return 0
        run = attempt.run.id
        if run not in self._before:
            self._before[run] = _turns(await in_thread(lambda: attempt.store.messages(run, 1)))
        return self._before[run]


def _turns(messages: Any) -> int:
    return sum(message.role == "assistant" for message in messages)
