"""Prepares durable runs of a project: their database, version, models, questions and sessions."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import check_extra
from forge.core.messages import ToolCall, export_message
from forge.core.plain_values import brief
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.project.config.declaration import Configuration
from forge.project.runs.sessions import session_store
from forge.project.version import version as forge_version
from forge.workspace.state import NAME as STATE
from forge.workspace.state import explain_unusable, state_directory

if TYPE_CHECKING:  # slow to import: `forge runs list` needs only the database
    from forge.agent.agent import Agent
    from forge.agent.session import SessionStore
    from forge.core.context import Scope
    from forge.core.provider import ModelRequest, Provider, StreamPart
    from forge.core.registry import ToolRegistry
    from forge.core.spec import Permission
    from forge.durable.client import Runs
    from forge.durable.engine.attempt import Attempt
    from forge.durable.engine.queues import QueueLimits
    from forge.durable.engine.worker_context import Models
    from forge.durable.store import RunStore
    from forge.durable.store.rows import Question, RunInfo
    from forge.models.scripted import Scripted
    from forge.permissions.questions import Answer, Approver, PermissionRequest, ShownEffects

FILE = "durable.db"


def check_installed() -> None:
    """Raises `ToolError` if the extra is not installed."""
    check_extra("durable", "durable runs cannot be used")


def project_database(
    configuration: Configuration,
    workspace: Path,
    requested: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Returns the URL: the requested one, else that of FORGE_DATABASE or `forge.yaml`, else the workspace's own file.

    Raises `ToolError`.
    """
    named = requested or (configuration.durable.url(environment) if configuration.durable is not None else "")
    return named or f"sqlite:///{own_file(workspace)}"


def own_file(workspace: Path) -> Path:
    """Returns the workspace's own database, existing or not. Raises `ToolError` if it cannot have one."""
    if (workspace / STATE).exists() and state_directory(workspace) != workspace / STATE:
        problem, hint = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no run can be stored there", ErrorKind.CONFIG, hint)
    return workspace / STATE / FILE


def make_own_file(workspace: Path) -> None:
    """Checks that the workspace's database can be created. Raises `ToolError`."""
    if state_directory(workspace) != workspace / STATE:
        problem, hint = explain_unusable(workspace)
        raise ToolError(f"{problem}, so no run can be stored there", ErrorKind.CONFIG, hint)


def is_own(url: str, workspace: Path) -> bool:
    """Returns whether the database belongs to this workspace alone."""
    return url == f"sqlite:///{workspace / STATE / FILE}"


def queue_limits(configuration: Configuration) -> dict[str, QueueLimits]:
    """Returns the limits by queue. Raises `ToolError`."""
    from forge.durable.engine.queues import QueueLimits

    entries = configuration.durable.queues if configuration.durable is not None else {}
    return {name: QueueLimits.of(name, entry) for name, entry in entries.items()}


def project_version(configuration: Configuration, built: str = "") -> str:
    """Returns the version of Forge and of the project's file. Only workers of the same version process a run.

    The database, the user's own file and the environment do not count, because they may differ between machines.
    `built` is the SHA-256 of a build's manifest, which counts instead.
    """
    own = next((layer.document for layer in configuration.layers if layer.kind == "project"), {})
    said = {key: value for key, value in own.items() if key != "durable"}
    mark = built or (sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest() if said else "")
    return f"{forge_version().split()[0]}+{mark[:12]}" if mark else forge_version().split()[0]


def models_for(agent: Agent) -> Models:
    """Returns a function that finds models for the runs of an agent. A scripted model becomes resumable."""
    from forge.models.vendors import provider_for

    if agent.provider is not None:
        agent.provider = _make_resumable(agent.provider)

    @cache
    def find_model(model: str) -> Provider:
        own = agent.provider
        return own if own is not None and model == agent.model else _make_resumable(provider_for(model))

    return find_model


def _make_resumable(provider: Provider) -> Provider:
    from forge.models.scripted import Scripted

    return ResumableScript(provider) if isinstance(provider, Scripted) else provider


def make_approver(own: str = "", *, yes: bool = False) -> Approver:
    """Returns an approver that stores questions.

    With `yes`, it approves questions of the run `own` and of the runs it started, but of no others: a worker may have
    other people's runs, too.
    """
    from forge.permissions.questions import approve_all

    async def ask(request: PermissionRequest) -> Answer:
        from forge.durable.engine.approval import stored_approval
        from forge.durable.engine.attempt import current_attempt

        attempt = current_attempt.get()
        if yes and attempt is not None and await in_thread(lambda: own in _with_ancestors(attempt)):
            return await approve_all(request)
        return await stored_approval(request)

    return ask


def _with_ancestors(attempt: Attempt) -> list[str]:
    """Returns the run and its ancestors. Ids are not compared by prefix: others may begin the same."""
    run = attempt.run
    found = [run.id]
    while run.parent and run.parent not in found:
        run = attempt.store.get(run.parent)
        found.append(run.id)
    return found


def build_request(question: Question, registry: ToolRegistry, scope: Scope) -> PermissionRequest:
    """Builds the request of a stored question, with the tool's definition if it is known here."""
    from forge.permissions.questions import Decision, PermissionRequest, Ruling

    fields = question.request
    tool, words = registry.get(question.tool), str(fields.get("description", ""))
    spec = tool.spec if tool is not None else ToolSpec(name=question.tool, description=words, parameters={})
    (permission, target), *others = [_part(one) for one in fields.get("parts") or [["", ""]]]
    arguments, result = fields.get("arguments") or {}, fields.get("result")
    return PermissionRequest(
        spec,
        ToolCall(question.tool, arguments, question.call),
        arguments,
        permission,
        target,
        replace(scope, agent=str(fields.get("agent", scope.agent)), task=str(fields.get("task", ""))),
        Ruling(Decision.ASK, str(fields.get("reason", "")), str(fields.get("rule", "")))
        if "reason" in fields
        else None,
        tuple(others),
        result=ToolResult(for_llm=result) if isinstance(result, str) else None,
        question=str(fields.get("question", "")),
        preview=str(fields.get("preview", "")),
        introduction=str(fields.get("introduction", "")),
        editable=bool(fields.get("editable", False)),
        personal=bool(fields.get("personal", False)),
        form=fields.get("form"),
        effects=_effects(fields.get("effects")),
    )


def _effects(written: Any) -> ShownEffects | None:
    from forge.permissions.questions import ShownEffects

    if not isinstance(written, Mapping):
        return None
    files = tuple((str(kind), str(path)) for kind, path in written.get("files", ()))
    return ShownEffects(str(written.get("summary", "")), files, str(written.get("digest", "")))


def _part(written: Any) -> tuple[Permission | None, str]:
    permission, target = written
    return (Permission(permission) if permission else None), str(target)


def store_in_session(run: RunInfo, store: RunStore, sessions: SessionStore) -> int:
    """Appends a finished run to its session, once; returns the number of messages. Raises `ToolError`."""
    from forge.durable.store.rows import INITIAL_MESSAGES

    if run.parent or not run.session or not run.is_over:
        return 0
    stored = f"stored run {run.id}"  # its segment: most runs were stored by an earlier command
    if sessions.read_meta(run.session, stored) == run.segment:
        return 0
    messages, session = store.messages(run.id), sessions.open(run.session)
    began = run.scope.get(INITIAL_MESSAGES, 0)
    new = session.catch_up(f"run {run.id}", messages[began if isinstance(began, int) else 0 :])
    session.meta[stored] = run.segment
    return new


def store_finished_runs(store: RunStore, workspace: Path, limit: int = 100) -> int:
    """Appends the newest finished runs of a workspace's own database to their sessions."""
    from forge.durable.store.find import RunFilter
    from forge.durable.store.rows import OVER

    with session_store(workspace) as sessions:
        return sum(
            store_in_session(run, store, sessions) for run in store.list(RunFilter(status=OVER, parent=""), limit=limit)
        )


def check_runs_are_over(configuration: Configuration, workspace: Path, session: str) -> None:
    """Appends the finished stored runs to their sessions. Raises `ToolError` if one of this session is not over."""
    url = project_database(configuration, workspace)
    if is_own(url, workspace) and not own_file(workspace).exists():
        return
    check_installed()
    from forge.durable.client import Runs
    from forge.durable.store.find import RunFilter

    with Runs(url) as runs:
        found = next((run for run in runs.store.list(RunFilter(session=session), limit=1_000) if not run.is_over), None)
        if found is not None:
            message = f"the run {found.id} of the session {brief(session)} is {found.status}"
            hint = f"Let it end, or stop it: forge runs cancel {found.id}. Then try again."
            raise ToolError(message, ErrorKind.USER, hint)
        if is_own(url, workspace):
            store_finished_runs(runs.store, workspace)


class ResumableScript:
    """A script that each run continues from its own turn: another process may have played earlier turns."""

    def __init__(self, script: Scripted) -> None:
        self._script = script
        self._before: dict[str, int] = {}  # by run: the model's turns in its initial history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._script, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        script = self._script.again(_turns(request.messages) - await self._turns_before())
        async with aclosing(script.stream(request)) as parts:
            async for part in parts:
                yield part

    async def _turns_before(self) -> int:
        from forge.durable.engine.attempt import current_attempt

        attempt = current_attempt.get()
        if attempt is None:
            return 0
        run = attempt.run.id
        if run not in self._before:
            self._before[run] = _turns(await in_thread(lambda: attempt.store.messages(run, 1)))
        return self._before[run]


def _turns(messages: Any) -> int:
    return sum(message.role == "assistant" for message in messages)


def all_run_fields(runs: Runs, run: RunInfo) -> dict[str, Any]:
    """Returns everything about a run as JSON has it: for `forge runs show --json` and the console's export."""
    children = runs.list(parent=run.id, limit=1_000)
    return {
        **asdict(run),
        "messages": [export_message(message) for message in runs.messages(run.id)],
        "questions": [asdict(one) for one in runs.questions(run.id)],
        "files": [{"name": name, "size": size} for name, size in runs.store.files(run.id)],
        "mark": asdict(mark) if (mark := runs.marks([run.id]).get(run.id)) is not None else None,
        "runs": [{"id": one.id, "status": one.status, "agent": one.agent, "prompt": one.prompt} for one in children],
    }
