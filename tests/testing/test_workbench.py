"""Tools on a bench."""

from __future__ import annotations

import gc
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from forge import Rate, ToolContext, ToolError, rules, tool, tool_group
from forge.testing import Person, assert_called, bench
from forge.tools.http_request import HttpRequest


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@tool(permissions={"execute"}, target="service", confirm=True)
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


@tool
def fails(words: str) -> str:
    """Fail."""
    raise ToolError(words, "not_found", "Look elsewhere.")


@tool
async def index(ctx: ToolContext) -> object:
    """Index in the background."""

    async def work() -> str:
        return "indexed"

    return ctx.background(work(), "Started.")


def test_a_call_goes_through_the_real_steps():
    made = bench(add)
    assert made.text("add", a=1, b=2) == "3"
    assert made.call("add", a="1").data["repaired"]
    assert "unknown argument" in made.failure("add", c=1).message
    assert_called(made, "add", b=2)
    assert made.calls.last.result is not None


def test_text_and_failure_say_what_happened_instead():
    made = bench(add, fails)
    with pytest.raises(AssertionError, match=r"not_found.*gone"):
        made.text("fails", words="gone")
    with pytest.raises(AssertionError, match=r"add\(a=1\) was expected to fail, but returned: 1"):
        made.failure("add", a=1)
    assert made.failure("fails", words="gone").suggestion == "Look elsewhere."


def test_everything_is_allowed_and_whoever_is_asked_says_yes():
    made = bench(deploy)
    assert made.text("deploy", service="web") == "web is live"
    assert made.person.asked == ["deploy: execute web"]


def test_a_policy_and_a_person_may_be_given():
    made = bench(deploy, policy=rules("deny execute prod", "ask execute"), approve=Person("no"))
    assert made.failure("deploy", service="web").kind == "permission_error"
    assert made.person.asked == ["deploy: execute web"]
    assert bench(deploy, policy=rules("deny execute prod")).failure("deploy", service="prod").kind == "permission_error"
    assert "no one to ask" in bench(deploy, policy=rules("ask execute")).failure("deploy", service="web").message


def test_built_in_tools_work_in_a_directory_of_their_own():
    made = bench(tool_group("code-agent"))
    made.text("file_write", path="a.txt", content="one\n")
    assert (made.workspace / "a.txt").read_text() == "one\n"
    assert made.failure("file_read", path="../elsewhere.txt").kind == "security_error"
    folder = made.workspace
    del made
    gc.collect()
    assert not folder.exists()


def test_a_given_workspace_stays(tmp_path):
    made = bench(*tool_group("write"), workspace=tmp_path)
    made.text("file_write", path="a.txt", content="one")
    del made
    gc.collect()
    assert (tmp_path / "a.txt").exists()


def test_the_same_call_a_hundred_times_is_no_loop():
    made = bench(add)
    assert {made.text("add", a=1) for _ in range(30)} == {"1"}


def test_rates_and_time_limits_hold():
    limited = tool(rate=Rate(max_calls=1))(add)
    made = bench(limited)
    made.text("add", a=1)
    assert made.failure("add", a=2).kind == "rate_limited"


def test_background_work_can_be_waited_for():
    with bench(index) as made:
        made.text("index")
        assert [result.for_llm for result in made.completed()] == ["indexed"]
    with pytest.raises(RuntimeError, match="with bench"):
        made.completed()


async def test_inside_a_loop_one_waits():
    made = bench(add)
    assert (await made.execute("add", a=1)).for_llm == "1"
    with pytest.raises(RuntimeError, match="write `await bench"):
        made.call("add", a=1)


async def test_inside_a_loop_the_bench_is_opened_there():
    with pytest.raises(RuntimeError, match="async with bench"), bench(add):
        raise AssertionError
    async with bench(add) as made:
        assert (await made.execute("add", a=1)).success


def test_a_server_of_the_test_can_be_reached():
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.end_headers()
            self.wfile.write(b"here I am")

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert "here I am" in bench(HttpRequest()).text(
            "http_request", method="GET", url=f"http://127.0.0.1:{server.server_port}/"
        )


def test_a_secret_is_masked():
    made = bench(fails, secrets=["hunter2-hunter2"])
    assert "hunter2" not in made.call("fails", words="hunter2-hunter2").for_llm


def test_an_exception_while_a_source_opens_is_raised():
    class Broken:
        async def __aenter__(self):
            raise ToolError("no such server")

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError

    with pytest.raises(ToolError, match="no such server"), bench(_source(Broken())):
        raise AssertionError
    made = bench(_source(Broken()), add)
    with pytest.raises(RuntimeError, match="with bench"):
        made.call("add", a=1)


def _source(broken):
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def opened():
        async with broken as tools:
            yield tools

    return opened()
