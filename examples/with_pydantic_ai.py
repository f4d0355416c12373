"""Our tools in an agent of pydantic-ai, and a pydantic-ai tool among them. A real model takes the fake one's place."""

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from forge import rules, tool
from forge.frameworks.pydantic_ai import from_pydantic_ai, to_pydantic_ai


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service to production."""
    return f"{service} is live"


def greet(ctx: RunContext[str], name: str) -> str:
    """Greet somebody."""
    return f"{ctx.deps}, {name}!"


ours = [deploy, from_pydantic_ai(greet, deps="Good morning", permissions=())]
toolset = to_pydantic_ai(ours, policy=rules("deny execute"), on_tool_result=lambda call, _: print("called", call.name))
print(Agent(TestModel(), toolsets=[toolset]).run_sync("Greet everybody and deploy").output)
