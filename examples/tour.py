"""A guided tour, without key or network: real tools are called through the real gate."""

import asyncio
import sys
from typing import Any

from forge import Answer, PermissionRequest, Rate, Scope, ToolCall, ToolRegistry, register_all, rules, tool
from forge.pipeline import ToolExecutor, standard_executor

COLOUR = sys.stdout.isatty()


@tool(permissions={"write"}, target="path")
def note_write(path: str, text: str) -> str:
    """Write a note."""
    return f"wrote {len(text)} characters to {path} (not really: this is a tour)"


@tool(permissions={"execute"}, target="service", rate=Rate(max_calls=2))
async def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


@tool(timeout=0.2)
async def hang() -> str:
    """Never come back."""
    await asyncio.sleep(3600)
    return "never"


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


async def person(request: PermissionRequest) -> Answer:
    print(paint(f"    a person is asked: {request.permission} {request.target}", "33"))
    return Answer.ONCE if request.target == "web" else Answer.no("please ask me in the morning")


async def show(executor: ToolExecutor, name: str, arguments: dict[str, Any] | str) -> None:
    print(paint(f"  → {name} {arguments}", "36"))
    result = await executor.execute(ToolCall(name, arguments), Scope())
    text = result.for_llm if len(result.for_llm) < 400 else f"{result.for_llm[:400]}…"
    for line in text.splitlines():
        print(paint(f"    {line}", "32" if result.success else "31"))
    if result.data.get("repaired"):
        print(paint(f"    repaired: {', '.join(result.data['repaired'])}", "2"))


async def main() -> None:
    registry = ToolRegistry([note_write, deploy, hang])
    register_all(registry)
    policy = rules("allow read", "allow write notes/**", "deny execute billing*")
    executor = standard_executor(registry, policy=policy, approve=person)
    print(f"Forge: {len(registry)} tools behind one gate.\n")
    for title, calls in TOUR:
        print(paint(title, "1"))
        for name, arguments in calls:
            await show(executor, name, arguments)
        print()
    print("That was the executor every agent's call goes through. Try it yourself:")
    print("""  .venv/bin/forge tool call math_calculate '{"expression": "2^64"}'""")


TOUR: list[tuple[str, list[tuple[str, dict[str, Any] | str]]]] = [
    (
        "Tools answer, and integers stay exact",
        [
            ("math_calculate", {"expression": "2^100 / 4"}),
            ("json_parse", {"data": '{"users": [{"name": "Ada"}, {"name": "Grace"}]}', "query": "users[*].name"}),
            ("csv_parse", {"data": "city,people\nRome,2755309\nOslo,717710"}),
        ],
    ),
    (
        "What a model sends is repaired where nothing is lost, explained where it is wrong",
        [
            ("uuid_generate", '{"Count": "2"}'),
            ("uuid_generate", '{"cuont": 500}'),
            ("math_calculate", '{"expression": "9**9**9"}'),
            ("matn_calculate", "{}"),
            ("json_parse", '{"data": "[1, 2'),
        ],
    ),
    (
        "Rules decide; what they leave open is asked; without a yes the answer is no",
        [
            ("note_write", {"path": "notes/today.md", "text": "hello"}),
            ("note_write", {"path": "notes/../secrets.txt", "text": "hello"}),
            ("deploy", {"service": "web"}),
            ("deploy", {"service": "billing"}),
        ],
    ),
    ("Every call ends", [("hang", {})]),
]


asyncio.run(main())
