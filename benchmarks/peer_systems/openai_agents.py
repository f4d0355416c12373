"""openai-agents: `FunctionTool.on_invoke_tool`, and `Runner` with a `Model`."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peer_systems import Action, Call, RunEndedError, Script, System

PATCH = "apply_patch"  # a tool that takes a text, in a format of its own


class It(System):
    actions: ClassVar[dict[str, Action]] = {
        "read": Action("exec_command", {"path": "cmd"}),
        "write": Action(PATCH, {}),
        "edit": Action(PATCH, {}),
        "run": Action("exec_command", {"command": "cmd"}),
        "see": Action("view_image", {"path": "path"}),
    }

    def __init__(self) -> None:
        self.peer: Any = import_module("agents")
        self.responses: Any = import_module("openai.types.responses")

    def define(self, function: Callable[..., Any]) -> Any:
        try:
            made = self.peer.function_tool(function)
        except self.peer.UserError:  # its strict schemas have no open objects
            made = self.peer.function_tool(function, strict_mode=False)
        import_module("agents.models.openai_responses").Converter.convert_tools([made], [])
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        return self.peer.function_tool(function, needs_approval=True)

    async def serve(self, tools: list[Any]) -> Any:
        self.context: Any = import_module("agents.tool_context").ToolContext
        return self.peer.Agent(name="agent", tools=tools)

    async def send(self, server: Any, name: str, text: str) -> str:
        context = self.context(None, tool_name=name, tool_call_id="c1", tool_arguments=text)
        return str(await server.tools[0].on_invoke_tool(context, text))

    async def definitions(self, server: Any) -> list[Any]:
        converter = import_module("agents.models.openai_responses").Converter
        tools = await server.get_all_tools(self.peer.RunContextWrapper(None))
        return list(converter.convert_tools(tools, []).tools)

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        agent = self.peer.Agent(name="agent", model=self.model(script), tools=tools)
        await self.drive(agent, **({"max_turns": turns + 1} if turns else {}))

    def name_file(self, directory: Path, name: str) -> str:
        return name

    def write_arguments(self, action: str, arguments: dict[str, str]) -> dict[str, Any]:
        """It reads by a command, and changes files by patches."""
        if action == "read":
            return {"cmd": f"cat {arguments['path']}"}
        if action in ("run", "see"):
            return super().write_arguments(action, arguments)
        added = (arguments.get("text") or arguments["new"]).splitlines()
        changed = [f"-{line}" for line in arguments.get("old", "").splitlines()] + [f"+{line}" for line in added]
        head = f"*** Update File: {arguments['path']}\n@@" if action == "edit" else f"*** Add File: {arguments['path']}"
        return {"input": "\n".join(["*** Begin Patch", head, *changed, "*** End Patch"])}

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        """Its agent for a sandbox, with the local one; it asks about nothing."""
        sandbox: Any = import_module("agents.sandbox")
        client = import_module("agents.sandbox.sandboxes").UnixLocalSandboxClient()
        settings = sandbox.SandboxRunConfig(client=client, manifest=sandbox.Manifest(root=str(place)))
        agent = sandbox.SandboxAgent(name="agent", model=self.model(script))
        await self.drive(agent, run_config=self.peer.RunConfig(sandbox=settings))

    async def drive(self, agent: Any, **settings: Any) -> None:
        result = await self.peer.Runner.run(agent, "go", **settings)
        if result.interruptions:
            raise RunEndedError("interruption")
        assert result.final_output == "done"

    def model(self, script: Script) -> Any:
        async def get_response(model: Any, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            output = [self.called(call) for call in script.next(input, system_instructions)] or [self.said("done")]
            return self.peer.ModelResponse(output=output, usage=self.peer.Usage(), response_id=None)

        return type("Model", (self.peer.Model,), {"get_response": get_response, "stream_response": None})()

    def called(self, call: Call) -> Any:
        if call.name == PATCH:
            kind = self.responses.ResponseCustomToolCall
            return kind(type="custom_tool_call", name=PATCH, call_id=call.id, input=json.loads(call.text)["input"])
        kind = self.responses.ResponseFunctionToolCall
        return kind(type="function_call", name=call.name, call_id=call.id, arguments=call.text)

    def said(self, text: str) -> Any:
        content = self.responses.ResponseOutputText(type="output_text", text=text, annotations=[])
        message = self.responses.ResponseOutputMessage
        return message(id="m", type="message", role="assistant", status="completed", content=[content])

    def results(self, messages: Any) -> list[str]:
        items = [item for item in messages if isinstance(item, dict)]
        ends = ("function_call_output", "custom_tool_call_output")
        return [str(item["output"]) for item in items if item.get("type") in ends]
