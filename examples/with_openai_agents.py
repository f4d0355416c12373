"""Our tools in an agent of the OpenAI Agents SDK. A real model's name takes the fake one's place."""

from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from forge import ToolRegistry, register_all, rules
from forge.frameworks.openai_agents import to_openai_agents


class FakeModel(Model):
    """Asks for two calls, then tells what they answered."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> ModelResponse:
        answers = "\n".join(item["output"] for item in input if item.get("type") == "function_call_output")
        calls = {"math_calculate": '{"expression": "6 * 7"}', "bash": '{"command": "make deploy"}'}
        asked = [
            ResponseFunctionToolCall(call_id=name, name=name, arguments=calls[name], type="function_call")
            for name in calls
        ]
        content = [{"type": "output_text", "text": answers, "annotations": []}]
        told = {"id": "1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        return ModelResponse([ResponseOutputMessage.model_validate(told)] if answers else [*asked], Usage(), None)

    def stream_response(self, *rest: Any, **options: Any) -> Any:
        raise NotImplementedError


register_all(registry := ToolRegistry())
agent = Agent("assistant", tools=to_openai_agents(registry, policy=rules("deny execute")), model=FakeModel())
print(Runner.run_sync(agent, "What is 6 * 7? Then deploy.", run_config=RunConfig(tracing_disabled=True)).final_output)
