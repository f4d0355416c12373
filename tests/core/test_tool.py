"""Ways to define a tool, and what a call of each does."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import threading
from typing import Any, get_type_hints

import pytest

from forge import Agent, Scripted
from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError
from forge.core.events import ToolCompleted, ToolOutput
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool, tool, toolset
from forge.pipeline import standard_executor
from tests.core.calling import SCOPE, Heard, at_most, call, execute, executor, within


@tool
def shout(text: str, times: int = 1) -> str:
    """Say it loudly."""
    return text.upper() * times


@tool(name="add_up", permissions={"read"}, aliases=["sum"], timeout=3)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_decorated_function_is_a_tool_and_still_a_function():
    assert isinstance(shout, Tool)
    assert shout("a", times=2) == "AA"
    assert call(shout, {"text": "a", "times": 2}).for_llm == "AA"


def test_a_decorated_function_has_the_signature_and_the_name_of_the_function():
    assert str(inspect.signature(shout)) == "(text: 'str', times: 'int' = 1) -> 'str'"
    assert get_type_hints(add) == {"a": int, "b": int, "return": int}
    assert (add.spec.name, add.__name__, add.__module__) == ("add_up", "add", __name__)
    assert shout.__doc__ == "Say it loudly."


def test_the_context_is_part_of_the_signature_since_a_caller_passes_it():
    @tool
    def who(name: str, ctx: ToolContext) -> str:
        """Say who calls."""
        return f"{name} {ctx.call.id}"

    assert list(inspect.signature(who).parameters) == ["name", "ctx"]
    assert who("Ada", ToolContext(ToolCall("who", {}, "7"), who)) == "Ada 7"
    assert list(who.spec.parameters["properties"]) == ["name"]


def test_attributes_of_a_function_do_not_replace_those_of_the_tool():
    def twice(number: int) -> int:
        """Double a number."""
        return 2 * number

    twice.spec = twice.run = "somebody's own"  # type: ignore[attr-defined]
    made = tool(twice)
    assert (made.spec.name, made(4), call(made, {"number": 4}).for_llm) == ("twice", 8, "8")


def test_something_callable_without_a_name_of_its_own_needs_one():
    named = tool(name="shout_twice", description="Say it twice.")(functools.partial(shout.run, times=2))
    assert named("a") == "AA"
    assert "times" in inspect.signature(named).parameters
    with pytest.raises(DefinitionError, match="name"):
        tool(functools.partial(shout.run, times=2))


def test_the_docstring_is_what_the_model_reads():
    assert shout.spec.description == "Say it loudly."
    assert shout.spec.name == "shout"
    assert shout.spec.origin == __name__


def test_options_become_the_spec():
    assert add.spec.name == "add_up"
    assert add.spec.aliases == ("sum",)
    assert add.spec.permissions == {Permission.READ}
    assert add.spec.timeout == 3
    assert add.spec.category is Category.CUSTOM


async def test_a_plain_function_runs_beside_the_event_loop_and_an_async_one_on_it():
    def plain() -> bool:
        """Where am I?"""
        return threading.current_thread() is threading.main_thread()

    async def asynchronous() -> bool:
        """Where am I?"""
        return threading.current_thread() is threading.main_thread()

    assert (await execute(plain)).for_llm == "false"
    assert (await execute(asynchronous)).for_llm == "true"


def test_a_plain_function_that_returns_a_coroutine_is_awaited():
    async def later() -> str:
        return "later"

    def now() -> Any:
        """Answer later."""
        return later()

    assert call(now).for_llm == "later"


def test_a_generator_streams_what_it_yields_and_the_pieces_are_the_result():
    def count(to: int):
        """Count."""
        for number in range(to):
            yield f"{number} "

    heard = Heard()
    assert call(count, {"to": 3}, heard=heard).for_llm == "0 1 2 "
    assert [event.text for event in heard.of(ToolOutput)] == ["0 ", "1 ", "2 "]
    assert heard.names == ["tool_call_start", *["tool_output_chunk"] * 3, "tool_call_end"]


def test_an_async_generator_streams_too():
    async def count(to: int):
        """Count."""
        for number in range(to):
            await asyncio.sleep(0)
            yield f"{number} "

    heard = Heard()
    assert call(count, {"to": 3}, heard=heard).for_llm == "0 1 2 "
    assert [event.text for event in heard.of(ToolOutput)] == ["0 ", "1 ", "2 "]
    assert heard.names == ["tool_call_start", *["tool_output_chunk"] * 3, "tool_call_end"]


def test_a_generator_that_yields_nothing_is_done():
    def nothing():
        """Do nothing."""
        yield from ()

    assert call(nothing).for_llm == "Done."


def test_a_generator_may_end_with_a_result_of_its_own():
    def returns():
        """Count."""
        yield "1"
        return ToolResult.text("returned")

    async def yields():
        """Count."""
        yield "1"
        yield ToolResult.text("yielded")

    assert call(returns).for_llm == "returned"
    assert call(yields).for_llm == "yielded"


def test_what_a_generator_yields_need_not_be_text():
    def numbers():
        """Count."""
        yield 1
        yield {"two": 2}

    assert call(numbers).for_llm == '1{"two":2}'


def test_a_generator_that_fails_half_way_has_streamed_what_it_had():
    def half():
        """Fail half way."""
        yield "one"
        raise ValueError("broken")

    heard = Heard()
    result = call(half, heard=heard)
    assert result.is_error
    assert "ValueError: broken" in result.for_llm
    assert [event.text for event in heard.of(ToolOutput)] == ["one"]
    assert heard.balanced


def test_an_endless_plain_generator_ends_at_its_deadline():
    closed = threading.Event()

    def endless():
        """Never stop."""
        try:
            while True:
                yield "."
        finally:
            closed.set()

    result = call(endless, steps=[within(0.05)])
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert closed.wait(60), "its thread goes on for ever"


def test_an_endless_async_generator_is_closed_at_its_deadline():
    closed = []

    async def endless():
        """Never stop."""
        try:
            while True:
                await asyncio.sleep(0)
                yield "."
        finally:
            closed.append(True)

    result = call(endless, steps=[within(0.05)])
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert closed == [True]


class HTTPDeployTool(Tool, permissions={"execute"}, target="service"):
    """Deploy a service."""

    def __init__(self, region: str) -> None:
        self.region = region

    async def run(self, service: str, ctx: ToolContext, dry_run: bool = False) -> str:
        ctx.progress(f"Deploying {service}")
        return f"{service} in {self.region}{' (dry)' * dry_run}, session {ctx.scope.session_id}"


def test_a_class_is_a_tool_with_settings_of_its_own():
    heard = Heard()
    assert call(HTTPDeployTool("eu"), {"service": "web"}, heard=heard).for_llm == "web in eu, session test"
    assert heard.names == ["tool_call_start", "tool_progress", "tool_call_end"]


def test_a_class_is_named_in_snake_case():
    assert HTTPDeployTool("eu").spec.name == "http_deploy"


def test_the_context_is_hidden_from_the_model():
    assert set(HTTPDeployTool("eu").spec.parameters["properties"]) == {"service", "dry_run"}


def test_a_class_without_docstring_uses_the_one_of_run():
    class Plain(Tool):
        def run(self, text: str) -> str:
            """Said by run."""
            return text

    assert Plain().spec.description == "Said by run."


def test_the_parameter_texts_may_stand_in_the_docstring_of_the_class():
    class Documented(Tool):
        """Read a file.

        Args:
            path: which one
        """

        def run(self, path: str) -> str:
            return path

    assert Documented().spec.description == "Read a file."
    assert Documented().spec.parameters["properties"]["path"]["description"] == "which one"


def test_a_subclass_without_run_is_the_tool_it_inherits():
    class Loud(HTTPDeployTool):
        pass

    assert call(Loud("us"), {"service": "db"}).for_llm == "db in us, session test"


def test_options_on_a_class_without_run_are_refused():
    with pytest.raises(DefinitionError, match="a class that defines `run`"):

        class Nothing(Tool, permissions={"read"}):
            """No run."""


def test_a_tool_without_docstring_is_refused():
    def silent(text: str) -> str:
        return text

    with pytest.raises(DefinitionError, match="tool 'silent' needs a docstring"):
        tool(silent)
    assert tool(description="Said here.")(silent).spec.description == "Said here."


def test_an_unknown_option_is_refused_with_the_near_one():
    with pytest.raises(DefinitionError, match="'permission'; did you mean 'permissions'"):
        tool(permission={"read"})(shout.run)  # type: ignore[call-overload]


def test_a_target_must_be_a_parameter():
    with pytest.raises(DefinitionError, match="has no parameter 'file' to use as its target"):
        tool(target="file")(shout.run)
    assert tool(target="text times")(shout.run).spec.targets == ("text", "times")


def test_an_argument_alias_must_lead_to_a_parameter():
    with pytest.raises(DefinitionError, match="'words' names 'txt', which is not a parameter"):
        tool(argument_aliases={"words": "txt"})(shout.run)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_be_above_zero_or_none(timeout):
    with pytest.raises(DefinitionError, match="timeout"):
        tool(timeout=timeout)(shout.run)
    assert tool(timeout=None)(shout.run).spec.timeout is None


@pytest.mark.parametrize("name", ["a", "file_read", "a-b", "A9", "x" * 64])
def test_these_names_are_fine(name):
    assert tool(name=name)(shout.run).spec.name == name


@pytest.mark.parametrize("name", ["9a", "-a", "a b", "a.b", "x" * 65, "é", "a\n", "a/b", "a__b"])
def test_these_names_are_refused(name):
    with pytest.raises(DefinitionError, match="tool name"):
        tool(name=name)(shout.run)


@pytest.mark.parametrize("name", ["9a", "a b", ""])
def test_an_alias_is_a_name_too(name):
    with pytest.raises(DefinitionError, match="tool name"):
        tool(aliases=[name])(shout.run)


def test_two_underscores_are_for_tools_of_a_server():
    assert tool(name="git__log", category=Category.ADAPTER)(shout.run).spec.name == "git__log"


class Counter:
    """Counts."""

    total = 0

    def add(self, by: int = 1) -> int:
        """Count up."""
        self.total += by
        return self.total

    @tool(permissions={"write"}, name="set_back")
    async def reset(self) -> int:
        """Start again."""
        self.total = 0
        return 0

    @property
    def shown(self) -> str:
        raise AssertionError("a property is not a tool")

    @staticmethod
    def helper(anything):
        raise AssertionError("a static method is not a tool")

    def _private(self, anything):
        raise AssertionError("a private method is not a tool")


def test_the_public_methods_of_an_object_are_tools():
    counter = Counter()
    tools = {made.spec.name: made for made in toolset(counter)}
    assert set(tools) == {"add", "set_back"}
    assert call(tools["add"], {"by": 2}).for_llm == "2"
    assert counter.total == 2
    assert call(tools["set_back"]).for_llm == "0"
    assert counter.total == 0


def test_a_decorated_method_keeps_its_own_options():
    tools = {made.spec.name: made for made in toolset(Counter(), permissions={"read"})}
    assert tools["add"].spec.permissions == {"read"}
    assert tools["set_back"].spec.permissions == {"write"}


def test_two_objects_of_one_class_do_not_share_state():
    one, other = Counter(), Counter()
    registry = ToolRegistry([*toolset(one, prefix="one"), *toolset(other, prefix="other")])
    assert set(registry) == {"one_add", "one_set_back", "other_add", "other_set_back"}
    call(registry["one_add"], {"by": 5})
    assert (one.total, other.total) == (5, 0)


def test_a_set_of_tools_is_a_list_too_and_is_filtered_and_prefixed():
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    class Divide(Tool, permissions={"execute"}):
        """Divide."""

        async def run(self, a: int, b: int) -> float:
            return a / b

    made = toolset([shout, Divide(), *toolset(Counter())], prefix="my", exclude=["set_*"])
    assert [one.spec.name for one in made] == ["my_shout", "my_divide", "my_add"]
    assert call(made[0], {"text": "a"}).for_llm == "A"
    assert made[1].spec.permissions == {"execute"}
    assert call(made[1], {"a": 1, "b": 2}).for_llm == "0.5"
    assert [one.spec.name for one in toolset(Counter(), include=["a*"])] == ["add"]
    assert toolset(made) == made


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"include": ["ad"]}, "include: 'ad' matches no tool; did you mean 'add'?"),
        ({"exclude": ["delete_*"]}, r"exclude: 'delete_\*' matches no tool; the names are add, set_back"),
        ({"include": "add"}, r"write a list, as in include=\['add'\]"),
        ({"prefix": "store_"}, "write prefix='store', which names tools store_NAME"),
        ({"prefix": "a b"}, "a prefix has letters"),
        ({"prefix": "a__b"}, "write prefix='a_b', which names tools a_b_NAME"),
        ({"prefix": "1é_git__"}, "write prefix='git'"),
    ],
)
def test_a_name_or_prefix_that_cannot_be_meant_is_told(options, problem):
    with pytest.raises(DefinitionError, match=problem):
        toolset(Counter(), **options)


def test_a_source_is_no_object_with_methods():
    from forge import scripts

    with pytest.raises(DefinitionError, match="a source takes prefix, include and exclude itself"):
        toolset(scripts("tools"), prefix="ops")


def test_a_built_in_tool_keeps_its_name_in_a_set():
    from forge.tools import built_ins

    calculate = next(one for one in built_ins(ToolRegistry()) if one.spec.name == "math_calculate")
    assert toolset([calculate]) == [calculate]
    with pytest.raises(DefinitionError, match="cannot rename a built-in tool"):
        toolset([calculate], prefix="my")


def test_a_decorated_method_is_bound_to_its_object():
    counter = Counter()
    counter.total = 9
    assert "self" in inspect.signature(Counter.reset).parameters
    assert "self" not in inspect.signature(counter.reset).parameters
    assert call(counter.reset).for_llm == "0"
    assert counter.total == 0


def test_a_class_instead_of_an_object_is_refused():
    with pytest.raises(DefinitionError, match="an instance"):
        toolset(object())
    with pytest.raises(DefinitionError):
        toolset(Counter)


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
    "required": ["a"],
}


def test_a_raw_schema_and_a_function_are_a_tool():
    def plain(a, b=2):
        return a + b

    async def asynchronous(a, b=2):
        return a + b

    def generates(a, b=2):
        yield str(a)
        yield str(b)

    assert call(Tool.from_schema("add", "Add.", SCHEMA, plain), {"a": 1}).for_llm == "3"
    assert call(Tool.from_schema("add", "Add.", SCHEMA, asynchronous), '{"a": 1, "b": 1}').for_llm == "2"
    assert call(Tool.from_schema("add", "Add.", SCHEMA, generates), {"a": 1}).for_llm == "12"


def test_an_object_that_is_called_like_a_function_is_fine():
    class Adds:
        async def __call__(self, a):
            return a + 1

    assert call(Tool.from_schema("add", "Add.", SCHEMA, Adds()), {"a": 1}).for_llm == "2"


def test_a_raw_tool_keeps_its_schema_as_it_is():
    made = Tool.from_schema("add", "Add.", SCHEMA, lambda a: a, permissions={"read"}, target="a")
    assert made.spec.parameters == SCHEMA
    assert made.spec.permissions == {"read"}
    with pytest.raises(DefinitionError, match="no parameter 'c'"):
        Tool.from_schema("add", "Add.", SCHEMA, lambda a: a, target="c")


def _adder(calls: list[str]):
    def initialise():
        calls.append("initialised")

        def add_one(number: int) -> int:
            """Add one."""
            return number + 1

        return add_one

    return initialise


def test_a_definition_may_be_built_on_first_use_and_is_built_once():
    calls: list[str] = []
    made = Tool.define("plus", _adder(calls))
    registry = ToolRegistry([made])
    assert calls == []
    assert call(made, {"number": 1}).for_llm == "2"
    assert call(made, {"number": 2}).for_llm == "3"
    assert registry["plus"].spec.description == "Add one."
    assert set(registry["plus"].spec.parameters["properties"]) == {"number"}


async def test_using_a_definition_many_times_builds_it_once():
    calls: list[str] = []
    runs = executor(Tool.define("plus", _adder(calls)))
    results = await runs.execute_all([ToolCall("plus", {"number": 1})] * 10, SCOPE)
    runs.registry.definitions()
    assert {result.for_llm for result in results} == {"2"}
    assert calls == ["initialised"]


async def test_an_async_initialiser_is_awaited_by_ready_and_only_once():
    calls: list[str] = []

    async def initialise():
        await asyncio.sleep(0)
        return _adder(calls)()

    registry = ToolRegistry([Tool.define("plus", initialise)])
    await asyncio.gather(registry.ready(), registry.ready(), registry.ready())
    await registry.ready()
    assert calls == ["initialised"]
    assert registry.definitions()[0]["function"]["description"] == "Add one."
    result = await ToolExecutor(registry, []).execute(ToolCall("plus", {"number": 1}), SCOPE)
    assert result.for_llm == "2"


async def test_what_is_set_in_the_spec_before_a_tool_is_built_stays():
    made = Tool.define("plus", _adder([]))
    made.spec = made.spec.changed(confirm=True, timeout=3.0)
    other = Tool.define("plus", _adder([]))
    for _ in range(2):
        await made.ready()
        assert (made.spec.confirm, made.spec.timeout, made.spec.description) == (True, 3.0, "Add one.")
        made.reset()
    await other.ready()
    assert (other.spec.confirm, other.spec.timeout) == (False, 120.0)


async def test_a_cancelled_call_does_not_stop_an_initialiser_that_others_wait_for():
    calls: list[str] = []
    let_go = asyncio.Event()

    async def initialise():
        await let_go.wait()
        return _adder(calls)()

    runs = executor(Tool.define("plus", initialise))
    first, second = (asyncio.create_task(runs.execute(ToolCall("plus", {"number": 1}), SCOPE)) for _ in range(2))
    while not first.cancelled():
        first.cancel()
        await asyncio.wait([first], timeout=0.01)
    let_go.set()
    assert (await second).for_llm == "2"
    assert calls == ["initialised"]


async def test_a_call_awaits_an_async_initialiser_itself():
    calls: list[str] = []

    async def initialise():
        await asyncio.sleep(0)
        return _adder(calls)()

    assert (await execute(Tool.define("plus", initialise), {"number": 1})).for_llm == "2"


def test_definitions_before_an_async_initialiser_ran_say_what_to_await():
    async def initialise():
        return shout

    with pytest.raises(DefinitionError, match=r"'plus' is initialised asynchronously: await registry.ready\(\)"):
        ToolRegistry([Tool.define("plus", initialise)]).definitions()


async def test_registering_again_initialises_again():
    calls: list[str] = []

    async def initialise():
        return _adder(calls)()

    made = Tool.define("plus", initialise)
    registry = ToolRegistry([made])
    await registry.ready()
    registry.add(made, replace=True)
    assert calls == ["initialised"]
    await registry.ready()
    assert calls == ["initialised"] * 2
    assert registry["plus"].spec.description == "Add one."


def test_an_initialiser_may_return_a_tool_of_any_kind():
    made = Tool.define("plus", lambda: Tool.from_schema("other", "Raw.", SCHEMA, lambda a: a + 1))
    assert made.spec.name == "plus"
    assert made.spec.description == "Raw."
    assert call(made, {"a": "1"}).for_llm == "2"
    made = Tool.define("deploy", lambda: HTTPDeployTool("eu"), permissions={"execute"})
    assert call(made, {"service": "x"}).for_llm == "x in eu, session test"


def test_a_tool_built_late_cannot_need_more_than_was_declared():
    @tool(permissions={"execute"})
    def dangerous() -> str:
        """Run something."""
        return "ran"

    made = Tool.define("harmless", lambda: dangerous)
    assert call(made).is_error or "execute" in made.spec.permissions
    assert call(Tool.define("honest", lambda: dangerous, permissions={"execute"})).for_llm == "ran"


def test_a_failing_initialiser_is_a_failed_call_and_tried_again():
    attempts = []

    def initialise():
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("not yet")
        return shout.run

    made = Tool.define("late", initialise)
    assert "not yet" in call(made, {"text": "a"}).for_llm
    assert call(made, {"text": "a"}).for_llm == "A"


class Sends(Tool):
    """Send a message to the current conversation."""

    channel = chat = ""

    def set_context(self, channel: str, chat_id: str) -> None:
        self.channel, self.chat = channel, chat_id

    async def run(self, text: str) -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return f"{self.channel}/{self.chat}: {text}"


async def test_a_hundred_conversations_at_once_never_hear_each_other():
    made = Sends()
    runs = executor(made)
    calls = [
        runs.execute(ToolCall("sends", {"text": str(n)}), Scope(channel=f"c{n}", chat_id=str(n))) for n in range(100)
    ]
    texts = [result.for_llm for result in await asyncio.gather(*calls)]
    assert texts == [f"c{n}/{n}: {n}" for n in range(100)]
    assert made.channel == "", "the shared tool was written to"


async def test_a_hundred_plain_calls_at_once_never_hear_each_other():
    together = threading.Barrier(100)

    class Whispers(Tool):
        """Say something to the current conversation."""

        def set_context(self, channel: str, chat_id: str) -> None:
            self.chat = chat_id

        def run(self, text: str) -> str:
            together.wait(60)
            return f"{self.chat}: {text}"

    runs = executor(Whispers())
    calls = [runs.execute(ToolCall("whispers", {"text": str(n)}), Scope(chat_id=str(n))) for n in range(100)]
    texts = [result.for_llm for result in await asyncio.gather(*calls)]
    assert texts == [f"{n}: {n}" for n in range(100)]


async def test_each_of_a_hundred_calls_has_its_own_callback():
    class Fetches(Tool):
        """Fetch in the background."""

        def set_callback(self, callback) -> None:
            self.callback = callback

        async def run(self, number: int) -> ToolResult:
            await asyncio.sleep(0)
            threading.Thread(target=self.callback, args=(f"fetched {number}",)).start()
            return ToolResult.started(f"fetching {number}")

    heard = Heard()
    runs = executor(Fetches(), heard=heard)
    done = asyncio.Event()
    runs.activity.subscribe(lambda _: done.set() if len(heard.of(ToolCompleted)) == 100 else None, ToolCompleted)
    calls = [ToolCall("fetches", {"number": n}) for n in range(100)]
    results = await runs.execute_all(calls, SCOPE)
    assert all(result.pending for result in results)
    await asyncio.wait_for(done.wait(), 60)
    told = {event.call.id: event.result.for_llm for event in heard.of(ToolCompleted)}
    assert told == {call.id: f"fetched {n}" for n, call in enumerate(calls)}


def test_a_tool_may_preview_its_own_results():
    class Fancy(Tool):
        """Fancy."""

        def run(self) -> str:
            return "plain"

        def preview(self, result: ToolResult, max_lines: int = 3) -> list[str]:
            return ["fancy"]

    assert Fancy().preview(ToolResult.text("x")) == ["fancy"]
    assert shout.preview(ToolResult.text("1\n2\n3\n4")) == ["1", "2", "3", "…"]


def test_defining_five_hundred_tools_takes_no_time():
    def make(number: int):
        def run(a: int, b: str, c: float = 1.0, d: bool = False, e: list[str] | None = None) -> str:
            """Do something."""
            return b

        run.__name__ = f"tool_{number}"
        return run

    with at_most(1.0):
        registry = ToolRegistry([make(n) for n in range(500)])
    assert len(registry) == 500


async def test_a_tool_built_late_keeps_everything_the_made_tool_is_strict_about():
    @tool(confirm=True, timeout=0.05, expose_errors=False, optional_permissions={"write"})
    async def careful(x: int) -> str:
        """Be careful."""
        await asyncio.sleep(5)
        return "ran"

    made = Tool.define("late", lambda: careful, permissions={"read"})
    await made.ready()
    assert (made.spec.name, made.spec.confirm, made.spec.timeout, made.spec.expose_errors) == (
        "late",
        True,
        0.05,
        False,
    )
    assert made.spec.permissions == {"read"}
    assert made.spec.optional_permissions == {"write"}
    result = await standard_executor([Tool.define("late", lambda: careful)]).execute(ToolCall("late", {"x": 1}), SCOPE)
    assert result.failure is not None
    assert result.failure.kind == "permission_error"


async def test_an_initialiser_that_hangs_is_left_at_the_deadline_and_others_wait_without_spinning():
    started = []

    async def hangs():
        started.append(1)
        await asyncio.Event().wait()

    runs = ToolExecutor(ToolRegistry([Tool.define("never", hangs, timeout=0.05)]), [])
    results = await asyncio.gather(*(runs.execute(ToolCall("never"), SCOPE) for _ in range(5)))
    assert all(result.failure and result.failure.kind in ("timeout", "system_error") for result in results)
    assert len(started) <= 5


async def test_async_hooks_are_awaited():
    class Hooked(Tool):
        """Hooked."""

        channel = ""

        async def set_context(self, channel: str, chat_id: str) -> None:
            await asyncio.sleep(0)
            self.channel = channel

        async def run(self) -> str:
            return self.channel

    runs = ToolExecutor(ToolRegistry([Hooked()]), [])
    assert (await runs.execute(ToolCall("hooked"), Scope(channel="team"))).for_llm == "team"


async def test_without_a_conversation_there_is_no_context_to_set():
    class Waits(Tool):
        """Say where it is."""

        where = "as it was made"

        def set_context(self, channel: str, chat_id: str) -> None:
            self.where = f"{channel}/{chat_id}"

        def run(self) -> str:
            return self.where

    runs = executor(Waits())
    assert (await runs.execute(ToolCall("waits", {}), Scope())).for_llm == "as it was made"
    assert (await runs.execute(ToolCall("waits", {}), Scope(channel="team", chat_id="7"))).for_llm == "team/7"


def _read_below(scope: Scope) -> Tool:
    @tool(name="below")
    def below(name: str) -> str:
        """Read a name below the workspace."""
        return f"{scope.workspace.name}/{name}"

    return below


@pytest.mark.parametrize("initialise", [_read_below, lambda ctx: _read_below(ctx)])
def test_an_initialiser_gets_the_scope_of_the_agent_that_needs_the_tool(tmp_path, initialise):
    (tmp_path / "project").mkdir()
    model = Scripted([ToolCall("below", {"name": "a.txt"})], "ok")
    agent = Agent(model, tools=[Tool.define("below", initialise)], scope=Scope(workspace=tmp_path / "project"))
    assert [one.text for one in agent.run_sync("go").messages if one.role == "tool"] == ["project/a.txt"]
    late = standard_executor([Tool.define("below", initialise)])
    result = asyncio.run(late.execute(ToolCall("below", {"name": "b"}), Scope(workspace=tmp_path / "project")))
    assert result.for_llm == "project/b"


def test_a_function_that_is_itself_the_tool_is_no_initialiser():
    def visit(city: str) -> str:
        """Visit a city."""
        return city

    def both(ctx, city):
        return visit

    for function in (visit, both):
        with pytest.raises(DefinitionError, match=r"Tool.define\('visit', …\).*one `scope: Scope`"):
            Tool.define("visit", function)


@pytest.mark.parametrize("name", ["_a", "_", "_read_2"])
def test_a_name_may_begin_with_an_underscore_as_every_provider_takes_it(name):
    @tool(name=name)
    def add(number: int) -> int:
        """Add one."""
        return number + 1

    assert call(add, {"number": 1}).for_llm == "2"
    for dialect in ("openai", "anthropic", "gemini"):
        assert name in str(ToolRegistry([add]).definitions(dialect))


def test_a_copy_of_a_tool_that_was_called_runs_itself():
    class Says(Tool):
        """Say a word."""

        word = "first"

        async def run(self) -> str:
            return self.word

    said = Says()
    assert call(said).for_llm == "first"
    other = copy.copy(said)
    other.word = "second"
    assert call(other).for_llm == "second"
    assert call(said).for_llm == "first"
