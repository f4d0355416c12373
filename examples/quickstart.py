"""Define tools, guard them, call them: the example of the README."""

import asyncio

from forge import Answer, PermissionRequest, Scope, Tool, ToolCall, ToolContext, rules, tool
from forge.pipeline import standard_executor


@tool
def word_count(text: str) -> int:
    """Count the words in a text."""
    return len(text.split())


class Deploy(Tool, permissions={"execute"}, target="service"):
    """Deploy a service to production."""

    def __init__(self, region: str) -> None:
        self.region = region

    async def run(self, service: str, ctx: ToolContext) -> str:
        ctx.progress(f"Deploying {service}")
        return f"{service} is live in {self.region}"


async def ask_me(request: PermissionRequest) -> Answer:
    return Answer.ONCE if request.target == "web" else Answer.no("not on a Friday")


async def main() -> None:
    policy = rules("allow read", "ask execute", "deny execute billing*")
    executor = standard_executor([word_count, Deploy("eu")], policy=policy, approve=ask_me)
    calls = [
        ToolCall("word_count", '{"text": "to be or not to be"}'),  # as a model sends it
        ToolCall("deploy", {"service": "web"}),  # asks, and is allowed
        ToolCall("deploy", {"service": "search"}),  # asks, and is refused
        ToolCall("deploy", {"service": "billing"}),  # denied by rule: nobody is asked
        ToolCall("word_count", {"txt": "oops"}),  # explained, so that the model can fix it
    ]
    for call in calls:
        result = await executor.execute(call, Scope())
        print("ok " if result.success else "err", result.for_llm.replace("\n", " | "))


asyncio.run(main())
