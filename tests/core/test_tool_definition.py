"""Every documented way to define a tool works, and a mistake is answered when it is made, in words."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel, Field, model_validator

from forge import Agent, Scripted
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, DuplicateToolError, ToolError
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool, tool, toolset
from forge.permissions.policy import rules
from forge.permissions.questions import Answer, approve_all
from forge.pipeline import standard_executor
from forge.tools import register_all, tool_group
from tests.core.calling import SCOPE, call

if TYPE_CHECKING:
    from decimal import Decimal as Money

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Trip(BaseModel):
    """Where to."""

    city: str
    days: int = Field(3, ge=1)

    @model_validator(mode="after")
    def check(self) -> Trip:
        if self.city == "Atlantis":
            raise ValueError("it has sunk")
        return self


# --- a schema and a function


def test_a_function_with_a_schema_gets_the_context_it_asks_for():
    def plain(city: str, ctx: ToolContext) -> str:
        return f"{city}, {ctx.scope.session_id}"

    async def optional(city, where: ToolContext | None = None):
        return f"{city}, {where.scope.session_id if where else 'nowhere'}"

    for function in (plain, optional, lambda city, ctx: f"{city}, {ctx.scope.session_id}"):
        made = Tool.from_schema("weather", "Tell it.", CITY, function)
        assert call(made, {"city": "Rome"}).for_llm == f"Rome, {SCOPE.session_id}"
        assert made.spec.parameters == CITY


def test_a_property_named_like_the_context_is_an_argument():
    schema = {"type": "object", "properties": {"ctx": {"type": "string"}}, "required": ["ctx"]}
    assert call(Tool.from_schema("say", "Say it.", schema, lambda ctx: ctx), {"ctx": "hello"}).for_llm == "hello"

    def both(ctx: ToolContext) -> str:
        return "never"

    with pytest.raises(DefinitionError, match="'ctx' is a property of its schema and also takes the ToolContext"):
        Tool.from_schema("say", "Say it.", schema, both)


def test_a_pydantic_model_is_a_schema():
    made = Tool.from_schema("travel", "Travel.", Trip, lambda city, days: f"{days} days in {city}")
    assert made.spec.parameters["properties"]["days"] == {"type": "integer", "default": 3, "minimum": 1}
    assert made.spec.parameters["required"] == ["city"]
    assert call(made, {"city": "Rome"}).for_llm == "3 days in Rome"
    assert call(made, {"city": "Rome", "days": "5"}).for_llm == "5 days in Rome"
    assert "days" in call(made, {"city": "Rome", "days": 0}).for_llm


def test_the_validators_of_a_model_have_their_say():
    made = Tool.from_schema("travel", "Travel.", Trip, lambda city, days: "gone")
    refused = call(made, {"city": "Atlantis"})
    assert refused.failure is not None
    assert refused.failure.kind == "validation_error"
    assert "it has sunk" in refused.for_llm
    assert call(made, {"city": "Rome"}).for_llm == "gone"


def test_a_function_may_take_the_model_or_a_dictionary():
    def of_model(trip: Trip, ctx: ToolContext) -> str:
        return f"{type(trip).__name__} {trip.city} {trip.days} {ctx.call.name}"

    def of_dictionary(trip: dict[str, Any]) -> str:
        return f"{trip['city']} {trip['days']}"

    assert call(Tool.from_schema("travel", "Travel.", Trip, of_model), {"city": "Rome"}).for_llm == "Trip Rome 3 travel"
    assert call(Tool.from_schema("travel", "Travel.", Trip, of_dictionary), {"city": "Rome"}).for_llm == "Rome 3"
    assert call(Tool.from_schema("say", "Say.", CITY, lambda args: args["city"]), {"city": "Rome"}).for_llm == "Rome"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda town: town, "its schema requires 'city', which its function does not take"),
        (lambda city, land: city, "its function needs 'land', which its schema does not have"),
        ("not a function", "str is not callable; pass the function itself"),
    ],
)
def test_a_function_that_could_never_be_called_is_refused(function, words):
    with pytest.raises(DefinitionError, match=words):
        Tool.from_schema("weather", "Tell it.", CITY, function)
    assert call(Tool.from_schema("weather", "Tell it.", CITY, lambda city, land="": city), {"city": "a"}).success


def test_a_class_as_the_parameters_of_a_spec_is_refused():
    with pytest.raises(DefinitionError, match="its parameters are a class"):
        ToolSpec(name="travel", description="Travel.", parameters=Trip)  # type: ignore[arg-type]


class Brings(Tool):
    def __init__(self, name: str = "brings") -> None:
        self.spec = ToolSpec(name=name, description="Bring it.", parameters=CITY)

    async def invoke(self, arguments, ctx):
        return f"{arguments['city']}, {ctx.scope.session_id}"


def test_a_class_with_a_spec_and_an_invoke_is_a_tool():
    class Blocks(Brings):
        def invoke(self, arguments, ctx):
            return {"city": arguments["city"]}

    assert call(Brings(), {"city": "Rome"}).for_llm == f"Rome, {SCOPE.session_id}"
    assert call(Blocks(), {"city": "Rome"}).data == {"city": "Rome"}
    assert "city" in call(Brings(), {"town": 1}).for_llm
    assert ToolRegistry([Brings()]).definitions()[0]["function"]["parameters"] == CITY


def test_an_invoke_without_the_context_is_refused():
    with pytest.raises(DefinitionError, match=r"class Short: `invoke` must take \(self, arguments, ctx\)"):

        class Short(Tool):
            async def invoke(self, arguments):  # type: ignore[override]
                return ""


def test_a_spec_without_code_is_refused():
    class Nothing(Tool):
        spec = ToolSpec(name="nothing", description="Nothing.", parameters={})

        def execute(self) -> str:
            return ""

    with pytest.raises(DefinitionError, match=r"no `run` and no `invoke\(arguments, ctx\)`; rename `execute` to `run`"):
        ToolRegistry([Nothing()])


# --- options as attributes of a class


class Restart(Tool):
    name = "restart_service"
    description = "Restart a service."
    requires_confirmation = True
    animate = False

    def run(self, service: str) -> str:
        return f"{service} restarted"


async def outcome(made: Tool, arguments: dict[str, Any], answer: bool | None = None) -> tuple[str, list[str]]:
    """What a call comes to where rules allow everything, and about which tools a person was asked."""
    asked = []

    async def approve(request):
        asked.append(request.spec.name)
        return Answer.ONCE if answer else Answer.NO

    executor = standard_executor([made], policy=rules("allow *"), approve=approve)
    result = await executor.execute(ToolCall(made.spec.name, arguments), SCOPE)
    return result.for_llm, asked


def test_attributes_of_a_class_are_its_options():
    spec = Restart().spec
    assert (spec.name, spec.description) == ("restart_service", "Restart a service.")
    assert spec.confirm
    assert spec.requires_confirmation
    assert not spec.animate


def test_a_tool_that_wants_a_confirmation_does_not_run_without():
    text, asked = asyncio.run(outcome(Restart(), {"service": "db"}, answer=False))
    assert "restarted" not in text
    assert asked == ["restart_service"]
    assert asyncio.run(outcome(Restart(), {"service": "db"}, answer=True)) == ("db restarted", ["restart_service"])


def test_one_that_wants_none_is_not_asked_about():
    class Calm(Tool):
        """Say it."""

        requires_confirmation = False

        def run(self) -> str:
            return "said"

    assert asyncio.run(outcome(Calm(), {})) == ("said", [])


def test_a_confirmation_that_a_class_above_asks_for_is_asked_for():
    class Careful(Tool):
        requires_confirmation = True
        permissions = frozenset({"write"})

    class Remove(Careful):
        """Remove it."""

        def run(self) -> str:
            return "removed"

    class Other(Remove):
        name = "other"

    class Own(Careful):
        def __init__(self) -> None:
            self.spec = ToolSpec(name="own", description="Own.", parameters={})

        async def invoke(self, arguments, ctx):
            return "done"

    class Later(Brings):
        def __init__(self) -> None:
            super().__init__()
            self.requires_confirmation = True

    for made in (Remove(), Other(), Own()):
        ToolRegistry([made])
        assert made.spec.confirm, made
        assert made.spec.permissions == {"write"}
    assert Remove().spec.name == "remove"
    assert Other().spec.name == "other"
    ToolRegistry([later := Later()])
    assert later.spec.confirm
    ToolRegistry([plain := Brings()])
    assert not plain.spec.confirm


def test_a_name_that_would_be_ignored_is_refused():
    class Elsewhere(Brings):
        name = "elsewhere"

    with pytest.raises(DefinitionError, match="tool 'brings': an attribute gives it the name 'elsewhere'"):
        ToolRegistry([Elsewhere()])
    assert list(ToolRegistry([Elsewhere("elsewhere")])) == ["elsewhere"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("requires_confirmaton", "requires_confirmation"),
        ("requiresConfirmation", "requires_confirmation"),
        ("confrim", "confirm"),
        ("permission", "permissions"),
    ],
)
def test_a_misspelt_attribute_that_would_be_ignored_is_refused(written, meant):
    body = {"__doc__": "Deploy it.", "run": lambda self: "", written: True}
    with pytest.raises(DefinitionError, match=f"class Deploy: `{written}` is not read; did you mean `{meant}`?"):
        type("Deploy", (Tool,), body)


@pytest.mark.parametrize("written", ["_confrim", "history", "state", "permitted", "time_outs_seen", "names"])
def test_attributes_of_ones_own_are_nobodys_business(written):
    body = {"__doc__": "Deploy it.", "run": lambda self: "", written: True}
    made: Any = type("Deploy", (Tool,), body)
    assert not made.spec.confirm


def test_an_option_that_only_an_object_could_tell_is_refused():
    with pytest.raises(DefinitionError, match="class Asks: `requires_confirmation` must be known before"):

        class Asks(Tool):
            """Ask."""

            @property
            def requires_confirmation(self) -> bool:
                return True

            def run(self) -> str:
                return ""


def test_parameters_that_would_be_ignored_are_refused():
    with pytest.raises(DefinitionError, match="class Two: `parameters` is not read; they are the parameters of `run`"):

        class Two(Tool):
            """Two."""

            parameters = CITY

            def run(self, city: str) -> str:
                return city


def test_an_option_is_said_once():
    with pytest.raises(DefinitionError, match="class Twice: `name` is given twice, 'a' and 'b'"):

        class Twice(Tool, name="a"):
            """Twice."""

            name = "b"

            def run(self) -> str:
                return ""


def test_the_other_name_of_confirm_is_told():
    with pytest.raises(DefinitionError, match="'requires_confirmation'; did you mean 'confirm'"):
        tool(requires_confirmation=True)(greet)  # type: ignore[call-overload]


# --- Tool.define


def test_a_definition_may_be_given_as_it_is():
    async def execute(args, ctx):
        ctx.progress(f"Reading {args['city']}")
        return {"title": "Read it", "metadata": {"bytes": 5}, "output": args["city"]}

    definition = {"description": "Read.", "parameters": CITY, "execute": execute, "permissions": {"read"}}
    made = Tool.define("read", definition, timeout=3)
    assert (made.spec.name, made.spec.description, made.spec.timeout) == ("read", "Read.", 3)
    assert made.spec.permissions == {"read"}
    result = call(made, {"city": "Rome"})
    assert (result.title, result.for_llm, result.data) == ("Read it", "Rome", {"bytes": 5})


def test_a_definition_may_hold_a_model_or_a_typed_function():
    made = Tool.define("a", {"description": "A.", "parameters": Trip, "execute": lambda args: args.city})
    assert call(made, {"city": "Rome"}).for_llm == "Rome"

    def typed(city: str) -> str:
        """Tell it."""
        return city

    assert call(Tool.define("b", {"execute": typed}), {"city": "Rome"}).for_llm == "Rome"
    late = Tool.define("c", lambda: {"description": "C.", "parameters": CITY, "execute": lambda city: city})
    assert call(late, {"city": "Rome"}).for_llm == "Rome"


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({}, "needs `execute`"),
        ({"execute": "no"}, "needs `execute`"),
        ({"parameters": CITY, "execute": lambda city: city}, "needs a `description`"),
        ({"description": "A.", "parameters": 5, "execute": lambda city: city}, "not a JSON Schema object"),
        ({"descripton": "A.", "execute": lambda city: city}, "'descripton' in its definition; did you mean 'descrip"),
        ({"description": "A.", "parameters": CITY, "execute": lambda: 1}, "requires 'city'"),
        ("text", "not str"),
        (lambda needs: needs, "called without arguments"),
        (Restart(), "is already a tool"),
    ],
)
def test_a_wrong_definition_is_refused_when_it_is_given(definition, words):
    with pytest.raises(DefinitionError, match=words):
        Tool.define("late", definition)


# --- the same tool twice


def test_a_group_can_be_added_to_what_is_there():
    tools = ToolRegistry()
    register_all(tools)
    tools.add(*tool_group("code-agent"))
    count, version = len(tools), tools.version
    register_all(tools)
    tools.add(*tool_group("code-agent"))
    assert (len(tools), tools.version) == (count, version)


class Deploy(Tool):
    """Deploy it."""

    def __init__(self, region: str = "eu", seen: list[str] | None = None) -> None:
        self.region = region
        self._calls = [*(seen or ())]

    def run(self) -> str:
        self._calls.append("called")
        return self.region


def greet() -> str:
    """Greet."""
    return "hello"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Deploy(), Deploy("eu")),
        (greet, greet),
        (tool(greet), greet),
        (
            Tool.from_schema("a", "A.", CITY, greet_city := lambda city: city),
            Tool.from_schema("a", "A.", CITY, greet_city),
        ),
        (Brings(), Brings()),
    ],
)
def test_a_tool_made_alike_is_no_duplicate(first, second):
    tools = ToolRegistry([first])
    (before,) = tools.values()
    tools.add(second, second)
    (after,) = tools.values()
    assert after is before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Deploy(), Deploy("us")),
        (greet, tool(description="Another.")(greet)),
        (Tool.from_schema("a", "A.", CITY, lambda city: city), Tool.from_schema("a", "A.", CITY, lambda city: "")),
        (tool(greet), tool(confirm=True)(greet)),
        (Brings(), tool(name="brings")(greet)),
    ],
)
def test_another_tool_of_the_same_name_is(first, second):
    tools = ToolRegistry([first])
    with pytest.raises(DuplicateToolError, match="is already registered"):
        tools.add(second)


def test_settings_that_were_changed_afterwards_make_another_tool():
    changed = Deploy()
    changed.region = "us"
    with pytest.raises(DuplicateToolError):
        ToolRegistry([Deploy(), changed])
    used = Deploy()
    used.run()
    assert len(ToolRegistry([Deploy(), used])) == 1


# --- beginners' mistakes


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (Deploy, r"Deploy is a tool class; pass an instance: Deploy\(\)"),
        (Trip, "Trip is a class, not a tool"),
        ("bash", "'bash' is not a tool and not callable; pass a typed function"),
        (None, "a NoneType object is not a tool"),
        ([greet], "a list object is not a tool"),
    ],
)
def test_what_is_no_tool_is_answered_in_words(thing, words):
    with pytest.raises(DefinitionError, match=words):
        ToolRegistry([thing])
    if thing is not None:  # `tool(None)` is `tool()`: a decorator
        with pytest.raises(DefinitionError, match=words):
            tool(thing)
    assert len(ToolRegistry([Deploy(), greet])) == 2


@pytest.mark.parametrize("thing", [Deploy(), greet, tool(greet), Deploy, "bash", 5])
def test_one_thing_where_a_list_of_tools_belongs_is_answered_in_words(thing):
    for use in (ToolRegistry, lambda tools: Agent(Scripted("x"), tools=tools)):
        with pytest.raises(DefinitionError, match=r"is not a list of tools; put tools in brackets"):
            use(thing)
    assert "greet" in Agent(Scripted("x"), tools=(one for one in [greet])).registry


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"permissions": "read"}, r"permissions='read' must be a set; write permissions=\{'read'\}"),
        ({"permissions": {"reed"}}, 'unknown value \'reed\' in permissions; known: "read", "write"'),
        ({"optional_permissions": "read"}, "optional_permissions='read' must be a set"),
        ({"permissions": True}, "permissions=True must be a set"),
        ({"groups": "search"}, "groups='search' must be a set"),
        ({"aliases": "hi"}, r"aliases='hi' is a string; write aliases=\['hi'\]"),
        ({"category": "buildin"}, "unknown value 'buildin' in category"),
        ({"confirm": "yes"}, "confirm='yes' must be True or False"),
        ({"timeout": "5"}, "timeout='5' must be a number"),
    ],
)
def test_options_of_the_wrong_kind_are_answered_in_words(options, words):
    with pytest.raises(DefinitionError, match=words):
        tool(**options)(greet)


def test_options_may_be_lists_and_plain_words():
    made = tool(permissions=["read"], groups=["a"], aliases=("hi",), category="builtin")(greet)  # type: ignore[call-overload]
    assert made.spec.permissions == {"read"}
    assert made.spec.category is Category.BUILTIN
    assert isinstance(asyncio.run(outcome(made, {}))[0], str)
    assert ToolResult.of(made()).for_llm == "hello"


def test_a_misspelt_name_in_a_docstring_is_told():
    def weather(city: str, days: int = 1) -> str:
        """Tell the weather.

        Args:
            cty: Where.
            days: How many.
        """
        return city

    with pytest.raises(DefinitionError, match=r"'weather': its docstring describes 'cty'.*did you mean 'city'"):
        tool(weather)


def test_other_words_in_a_docstring_are_no_mistake():
    @tool
    def weather(city: str, ctx: ToolContext) -> str:
        """Tell the weather.

        Args:
            city: Where.
            Note: it may rain.
        """
        return city

    class Weather(Tool):
        """Tell the weather.

        Args:
            region: Where it is asked.
        """

        def __init__(self, region: str = "eu") -> None:
            self.region = region

        def run(self, city: str) -> str:
            return city

    assert weather.spec.parameters["properties"]["city"]["description"] == "Where."
    assert call(Weather(), {"city": "Rome"}).for_llm == "Rome"


def test_a_traceback_shows_what_to_do_next():
    told = "".join(traceback.format_exception(ToolError("no such city", suggestion="Try Rome.")))
    assert told.endswith("no such city\nTry Rome.\n")
    silent = "".join(traceback.format_exception(ToolError("no such city")))
    assert silent.endswith("no such city\n")


def test_a_local_tool_whose_types_are_local_is_refused_when_it_is_defined():
    from decimal import Decimal as Local

    def pay(amount: Local) -> str:
        """Pay."""
        return str(amount)

    with pytest.raises(DefinitionError, match=r"tool 'pay'.*'Local' is not defined.*module level"):
        tool(pay)
    with pytest.raises(DefinitionError, match=r"tool 'buy'.*'Local' is not defined"):

        class Buy(Tool):
            """Buy."""

            def run(self, amount: Local) -> str:
                return str(amount)


def test_a_local_tool_whose_types_are_those_of_its_module_works():
    @tool
    def plan(trip: Trip, ctx: ToolContext) -> str:
        """Plan."""
        return trip.city

    assert call(plan, {"trip": {"city": "Rome"}}).for_llm == "Rome"


def pay_later(amount: Money) -> str:
    """Pay."""
    return str(amount)


def test_a_type_that_only_type_checkers_see_is_refused_when_the_tool_is_given_to_an_agent():
    made = tool(pay_later)  # its module may define the type later
    with pytest.raises(DefinitionError, match=r"tool 'pay_later'.*'Money' is not defined.*TYPE_CHECKING"):
        Agent(None, tools=[made])


def test_a_tool_works_without_the_type_of_what_it_returns():
    from decimal import Decimal as Local

    @tool
    def price(city: str) -> Local:
        """Tell the price."""
        return Local(3)

    assert call(price, {"city": "Rome"}).for_llm == "3"


def test_from_schema_gives_the_real_reason_for_a_type_that_cannot_be_read():
    from forge.core.context import ToolContext as Local

    def visit(city: str, ctx: Local) -> str:
        return city

    def visit_perhaps(city: str, ctx: Local | None = None) -> str:
        return city

    def take_all(everything: Local) -> str:
        return ""

    for function in (visit, visit_perhaps, take_all):
        with pytest.raises(DefinitionError, match=r"tool 'visit'.*cannot be read: name 'Local' is not defined"):
            Tool.from_schema("visit", "Visit a city.", CITY, function)


def test_from_schema_needs_no_types_of_parameters_that_the_schema_describes():
    from builtins import str as Local

    def visit(city: Local, ctx: ToolContext) -> Local:
        return f"{city} in {ctx.scope.session_id or 'a session'}"

    made = Tool.from_schema("visit", "Visit a city.", CITY, visit)
    assert call(made, {"city": "Rome"}).for_llm.startswith("Rome in ")


def pay(amount: int = 1) -> str:
    """Pay it."""
    return "paid"


SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}}
GUARDED: Any = {"permissions": {"execute"}, "confirm": True}


class Payments:
    """Methods, of which some are tools already."""

    @tool
    def pay(self, amount: int = 1) -> str:
        """Pay it."""
        return "paid"


class Guarded(Tool, permissions={"execute"}, confirm=True, argument_aliases={"sum": "total"}, aliases=("guard",)):
    """Guard it."""

    def run(self, total: int = 1) -> str:
        return "paid"


class Pay(Guarded):
    """Pay it."""

    def run(self, amount: int = 1) -> str:
        return "paid"


@pytest.mark.parametrize(
    "make",
    [
        lambda: tool(pay, **GUARDED),
        lambda: tool(**GUARDED)(pay),
        lambda: tool(tool(pay), **GUARDED),
        lambda: tool(tool(permissions={"execute"})(pay), confirm=True),
        lambda: tool(confirm=True)(tool(permissions={"execute"})(pay)),
        lambda: tool()(tool(**GUARDED)(pay)),
        lambda: tool(tool(**GUARDED)(pay)),
        lambda: Tool.from_schema("pay", "Pay.", SCHEMA, pay, **GUARDED),
        lambda: Tool.from_schema("pay", "Pay.", SCHEMA, tool(pay, **GUARDED)),
        lambda: Tool.from_schema("pay", "Pay.", SCHEMA, tool(pay, confirm=True), permissions={"execute"}),
        lambda: Tool.define("pay", {"description": "Pay.", "execute": tool(pay, **GUARDED)}),
        lambda: Tool.define("pay", {"description": "Pay.", "parameters": SCHEMA, "execute": tool(pay, **GUARDED)}),
        lambda: Tool.define("pay", {"description": "Pay.", "execute": pay, "confirm": True}, permissions={"execute"}),
        lambda: Tool.define("pay", lambda: tool(pay, **GUARDED)),
        lambda: Tool.define("pay", lambda: pay, **GUARDED),
        lambda: toolset(Payments(), **GUARDED)[0],
        lambda: tool(Payments().pay, **GUARDED),
        Pay,
    ],
)
async def test_no_way_to_define_a_tool_drops_options(make):
    """The tool asks and is denied under `deny execute`; with a rule and a yes it runs."""
    denied = await Agent(None, tools=[make()], policy=rules("deny execute"), approve=approve_all).call("pay", {})
    assert denied.failure is not None
    assert denied.failure.kind == "permission_error"
    asked = await Agent(None, tools=[make()], policy=rules("allow execute")).call("pay", {})
    assert "there is no one to ask" in asked.for_llm
    agent = Agent(None, tools=[make()], policy=rules("allow execute"), approve=approve_all)
    assert (await agent.call("pay", {"amount": 2})).for_llm == "paid"


def test_a_class_below_another_has_its_options_but_not_its_names():
    assert Pay.spec.aliases == ()
    assert dict(Pay.spec.argument_aliases) == {}
    assert dict(Guarded.spec.argument_aliases) == {"sum": "total"}

    class Slow(Guarded, timeout=7, permissions={"write"}):
        """Pay slowly."""

        def run(self, total: int = 1) -> str:
            return "paid"

    assert (Slow.spec.timeout, sorted(Slow.spec.permissions), Slow.spec.confirm) == (7, ["write"], True)
    assert dict(Slow.spec.argument_aliases) == {"sum": "total"}


def test_options_that_contradict_each_other_are_refused():
    for make in (
        lambda: tool(tool(timeout=1)(pay), timeout=2),
        lambda: Tool.from_schema("pay", "Pay.", SCHEMA, tool(timeout=1)(pay), timeout=2),
        lambda: tool(cast(Any, Guarded()), confirm=True),
        lambda: tool(confirm=True)(cast(Any, Guarded())),
        lambda: tool(cast(Any, Guarded), confirm=True),
    ):
        with pytest.raises(DefinitionError):
            make()
    assert tool(tool(timeout=1)(pay), timeout=1).spec.timeout == 1


def test_a_set_of_tools_keeps_what_a_method_says_of_its_own():
    class Files:
        @tool(permissions={"read"})
        def list_all(self) -> str:
            """List them."""
            return ""

        def save(self, path: str) -> str:
            """Save it."""
            return path

    listed, saved = toolset(Files(), permissions={"write"}, target="path", confirm=True)
    assert (sorted(listed.spec.permissions), listed.spec.target, listed.spec.confirm) == (["read"], "", True)
    assert (sorted(saved.spec.permissions), saved.spec.target, saved.spec.confirm) == (["write"], "path", True)
