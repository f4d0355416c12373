from pydantic import BaseModel

from forge import Agent, Tool, ToolContext, rules, tool
from forge.testing import EveryTool


class Shop(BaseModel):
    orders: dict[int, str]


class Order(BaseModel):
    number: int
    state: str


@tool
async def delivery_days(country: str) -> int:
    """Look up how many days a delivery takes."""
    return {"NO": 2, "IT": 4}.get(country, 9)


@tool
def find_order(ctx: ToolContext[Shop], number: int) -> Order:
    """Look up an order."""
    return Order(number=number, state=ctx.deps.orders[number])


class Refund(Tool, permissions={"write"}, target="number"):
    """Refund an order."""

    def run(self, ctx: ToolContext[Shop], number: int) -> str:
        ctx.deps.orders[number] = "refunded"
        return f"Order {number} is refunded."


agent = Agent(
    "openai:gpt-5",
    tools=[delivery_days, find_order, Refund()],
    policy=rules("ask write", "deny write 13"),
    approve=lambda request: input(f"{request.call.name} {request.target}? [y/n] ") == "y",
    deps_type=Shop,
    output=Order,
)


def test_a_refund_is_asked_for() -> None:
    shop = Shop(orders={1: "paid"})
    with agent.override(model=EveryTool(), approve=lambda request: True):
        assert agent.run_sync("Refund order 1.", deps=shop).output.number == 1
    assert shop.orders == {1: "refunded"}
