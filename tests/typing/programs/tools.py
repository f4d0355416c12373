"""Tools of a user: type checkers see the functions that they were made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, assert_type

from forge import Agent, Scripted, Tool, ToolContext, ToolRegistry, tool, toolset


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(permissions={"read"}, target="path", timeout=3)
async def size(path: str, ctx: ToolContext) -> dict[str, int]:
    """Tell the size of a file."""
    ctx.progress(path)
    return {path: 1}


@tool
def count(to: int) -> Iterator[str]:
    """Count."""
    yield str(to)


@tool(name="count_later")
async def later(to: int) -> AsyncIterator[str]:
    """Count later."""
    yield str(to)


class Counter:
    total = 0

    @tool
    def step(self, by: int) -> str:
        """Count on."""
        self.total += by
        return str(self.total)

    @tool(confirm=True)
    async def clear(self) -> None:
        """Begin with zero."""
        self.total = 0


def plain(text: str) -> str:
    """Shout."""
    return text.upper()


class Deploy(Tool, permissions={"execute"}, target="service"):
    """Deploy a service."""

    def __init__(self, region: str) -> None:
        self.region = region

    async def run(self, service: str) -> str:
        return f"{service} is live in {self.region}"


assert_type(add(1), int)
assert_type(add(a=1, b=2), int)
assert_type(add.spec.name, str)
assert_type(add.__name__, str)
add("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
add(1, c=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sum_of: str = add(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


async def use(ctx: ToolContext) -> None:
    assert_type(await size("a.txt", ctx), dict[str, int])
    await size("a.txt")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await size(1, ctx)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async for text in later(3):
        assert_type(text, str)
    for text in count(3):
        assert_type(text, str)


counter = Counter()
assert_type(counter.step(2), str)
assert_type(Counter.step(counter, 2), str)
counter.step("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
counter.step()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Counter.step(counter, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
cleared: Coroutine[Any, Any, None] = counter.clear()
assert_type(tool(plain)("a"), str)
tool(plain)(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
tool(confrim=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

as_function: Callable[[int], int] = add
as_tool: Tool = add
registry = ToolRegistry([add, size, counter.step, plain, Deploy("north")])
agent = Agent(Scripted("done"), tools=[add, plain, *toolset(counter), Deploy("north")])
wrong: Callable[[str], int] = add  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


guarded = tool(add.run, permissions={"execute"}, confirm=True)
assert_type(guarded(1, b=2), int)
tool(add.run, permission={"execute"})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
