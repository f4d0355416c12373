"""Offers prompts to MCP clients: those of a program, and the project's skills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import sendable
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category, ToolOptions, is_name
from forge.exports.mcp_server import protocol_json
from forge.exports.mcp_server.client_call import Job
from forge.exports.mcp_server.completion import complete
from forge.exports.prompts import Prompt
from forge.skills.active import ActiveSkills
from forge.skills.skill import Skill
from forge.sources.untrusted import one_line

READ_SKILL = "read_skill"


class OfferedPrompts:
    """The prompts of a program. `skills` returns the skills that are prompts, too; it is called at the first use."""

    def __init__(
        self,
        executor: ToolExecutor,
        prompts: Iterable[Prompt] | ToolRegistry,
        skills: Callable[[], ActiveSkills] | None = None,
    ) -> None:
        self.registry = prompts if isinstance(prompts, ToolRegistry) else ToolRegistry(list(prompts))
        self.executor = ToolExecutor(
            self.registry, executor.steps, executor.activity, executor.secrets, executor.background
        )
        self._tools = executor
        self._skills = skills if READ_SKILL in executor.registry else None
        self._may_have_any = bool(len(self.registry)) or self._skills is not None

    def __bool__(self) -> bool:
        return self._may_have_any

    def list_all(self) -> dict[str, Any]:
        self._add_skills()
        return {"prompts": [_describe(one) for one in self._all]}

    def job(self, name: str, arguments: dict[str, Any]) -> Job:
        """Returns the work of one prompt. Raises the protocol's error for an unknown one."""
        prompt = self._find(name)

        def convert(outcome: ToolResult, call_id: str) -> dict[str, Any]:
            _check(outcome)
            messages = [self._message(one, outcome, call_id) for one in outcome.data.get("messages", ())]
            description = sendable(prompt.spec.description)
            return {"description": description, "messages": messages, "resultType": "complete"}

        return Job("prompts/get", self.executor, ToolCall(prompt.spec.name, arguments), convert)

    async def complete(self, name: str, argument: str, beginning: str) -> dict[str, Any]:
        prompt = self._find(name)
        return await complete(prompt, prompt.complete, argument, beginning)

    @property
    def _all(self) -> list[Prompt]:
        return [one for one in self.registry.values() if isinstance(one, Prompt)]

    def _find(self, name: str) -> Prompt:
        self._add_skills()
        found = self.registry.get(name)
        if not isinstance(found, Prompt):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {one_line(name, 80)}")
        return found

    def _add_skills(self) -> None:
        if self._skills is not None:
            skills, self._skills = self._skills, None
            for skill in skills().catalog.skills.values():
                if is_name(skill.name) and not skill.missing and skill.name not in self.registry:
                    self.registry.add(_skill_prompt(skill, self._tools))

    def _message(self, one: dict[str, Any], outcome: ToolResult, call_id: str) -> dict[str, Any]:
        if "attachment" in one:
            block = _block(outcome.attachments[one["attachment"]], call_id, one["attachment"] + 1)
            return {"role": one["role"], "content": block}
        text = self.executor.secrets.mask(sendable(one["text"]))
        return {"role": one["role"], "content": {"type": "text", "text": text}}


def _skill_prompt(skill: Skill, tools: ToolExecutor) -> Prompt:
    """Returns a skill as a prompt. It is read with `read_skill`, so its rules and guardrails hold."""

    async def read(ctx: ToolContext, request: str = "") -> str:
        outcome = await tools.execute(ToolCall(READ_SKILL, {"name": skill.name}), ctx.scope)
        if outcome.failure is not None:
            raise ToolError(outcome.failure.message, outcome.failure.kind, outcome.failure.suggestion)
        return f"{outcome.for_llm}\n\n{request}".strip()

    options = ToolOptions(name=skill.name, description=skill.description, category=Category.BUILTIN)
    return Prompt(read, options=options)


def _describe(prompt: Prompt) -> dict[str, Any]:
    parameters = prompt.spec.parameters
    required = parameters.get("required", ())
    arguments = [
        {
            "name": name,
            **({"description": sendable(schema["description"])} if schema.get("description") else {}),
            "required": name in required,
        }
        for name, schema in parameters.get("properties", {}).items()
    ]
    return {
        "name": prompt.spec.name,
        "title": prompt.spec.name.replace("_", " ").replace("-", " ").capitalize(),
        "description": sendable(prompt.spec.description),
        "arguments": arguments,
    }


def _block(one: Attachment, call_id: str, number: int) -> dict[str, Any]:
    uri = one.name if "://" in one.name else protocol_json.attachment_uri(one, call_id, number)
    return protocol_json.block(one, sendable(uri))


def _check(outcome: ToolResult) -> None:
    failure = outcome.failure
    if failure is not None:
        wrong = failure.kind is ErrorKind.VALIDATION or failure.kind is ErrorKind.PERMISSION
        raise MCPError(INVALID_PARAMS if wrong else INTERNAL_ERROR, sendable(failure.text()))
