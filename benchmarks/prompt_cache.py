"""Tokens of a session of 50 turns among 300 tools that are paid for again, because the prompt before them changed.

The model is played by a server that counts as the provider's cache does (`tests/models/caching.py`). In every fifth
turn the model searches for tools; between the searches it calls what it found. Each session is measured twice: with
found tools beside the others, and with found tools where they were found.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.timing import Measure
from forge import Agent, Limits, Tool, ToolCall, ToolRegistry, rules
from forge.models import Anthropic, ExplainedModel, OpenAIResponses, explain_cache
from forge.tools.tool_search import ToolSearch
from tests.models.caching import CachingAnthropic, CachingOpenAI
from tests.models.serving import serving

TURNS, EVERY = 50, 5
VERBS = "create delete list update send fetch convert count merge export".split()
THINGS = (
    "invoice customer branch issue payment message report contact route image ticket order city stock song "
    "parcel refund meeting photo recipe backup device coupon lesson address calendar budget voucher shipment survey"
).split()


async def measures() -> list[Measure]:
    """Returns a row for each provider: the tokens paid again, beside the others and where the tools were found."""
    found = []
    for api in ("anthropic", "openai"):
        before, after = await play(api, loads=False), await play(api, loads=True)
        name = f"tokens paid again in {TURNS} turns, {len(VERBS) * len(THINGS)} tools, {api}"
        found.append(Measure(name, "beside the others", again(before), again(after), "tokens", 0.1))
    return found


def again(model: ExplainedModel) -> int:
    return sum(turn.again for turn in model.turns)


async def play(api: str, *, loads: bool) -> ExplainedModel:
    """Plays the session, and returns the model with its turns."""
    registry = ToolRegistry(make_tool(verb, thing) for thing in THINGS for verb in VERBS)
    registry.add(ToolSearch(registry))
    turns = script()
    async with serving(CachingAnthropic(turns) if api == "anthropic" else CachingOpenAI(turns)) as server:
        if api == "anthropic":
            model = explain_cache(
                Anthropic("claude-sonnet-5", base_url=server.url, api_key="key", loads_found_tools=loads)
            )
        else:
            url = f"{server.url}/v1"
            model = explain_cache(OpenAIResponses("gpt-5.4", base_url=url, api_key="key", loads_found_tools=loads))
        agent = Agent(model, tools=registry, policy=rules("allow read"), limits=Limits(turns=TURNS + 1))
        result = await agent.run("Look after the shop.")
    assert len(model.turns) == TURNS, result.error
    return model


def make_tool(verb: str, thing: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": f"The number of the {thing}."},
            "reason": {"type": "string", "description": f"Why you {verb} the {thing}, in a sentence."},
        },
        "required": ["id"],
    }

    def run(id: str, reason: str = "") -> str:
        return "\n".join(
            f"{thing} {id}, line {line}: all is as it was before, see {verb} {line * 7}" for line in range(25)
        )

    return Tool.from_schema(f"{thing}_{verb}", f"{verb.capitalize()} a {thing} of the shop.", schema, run, hidden=True)


def script() -> Sequence[str | ToolCall]:
    turns: list[str | ToolCall] = []
    for number in range(TURNS - 1):
        thing = THINGS[number // EVERY]
        if number % EVERY == 0:
            turns.append(ToolCall("tool_search", {"query": f"{thing}"}, f"call_{number}"))
        else:
            turns.append(ToolCall(f"{thing}_{VERBS[number % EVERY]}", {"id": str(number)}, f"call_{number}"))
    return [*turns, "Done."]
