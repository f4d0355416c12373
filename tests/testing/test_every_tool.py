"""A model that calls every tool once, and the guard against real requests."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import textwrap
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from forge import Agent, Failure, RunResult, rules, tool
from forge.models import OpenAI
from forge.testing import EveryTool, assert_called, calls_of, no_real_requests


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Item(BaseModel):
    name: str
    count: int = Field(gt=5)
    kind: Literal["fruit"]


def error_of(result: RunResult) -> Failure:
    assert result.error is not None
    return result.error


def results(result: RunResult) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def test_every_tool_is_called_once_with_valid_arguments():
    @tool
    def order(
        item: Item,
        others: Annotated[list[Item], Field(min_length=2)],
        size: Size,
        id: UUID,
        at: datetime.datetime,
        share: Annotated[float, Field(gt=0, lt=1)],
        numbers: Annotated[set[int], Field(min_length=2)],
        note: str | None,
    ) -> str:
        """Order something."""
        return f"{item.count} {size.value} {len(others)} {len(numbers)} {0 < share < 1}"

    @tool
    def ping() -> str:
        """Answer."""
        return "pong"

    result = Agent(EveryTool("All called."), tools=[order, ping]).run_sync("Go.")
    assert (result.text, result.turns) == ("All called.", 2)
    assert calls_of(result).names == ["order", "ping"]
    assert results(result) == ["6 small 2 2 True", "pong"]


def test_the_rules_hold_and_the_output_is_made_up():
    @tool(permissions={"execute"})
    def deploy(service: str) -> str:
        """Deploy a service."""
        raise AssertionError

    result = Agent(EveryTool(), tools=[deploy], policy=rules("deny execute"), output=Item).run_sync("Go.")
    assert_called(result, "deploy")
    assert "is denied" in results(result)[0]
    assert result.output == Item(name="text", count=6, kind="fruit")


def test_arguments_that_cannot_be_made_up_are_asked_for_and_can_be_given():
    @tool
    def find(code: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$")]) -> str:
        """Find an order."""
        return f"found {code}"

    error = error_of(Agent(EveryTool(), tools=[find]).run_sync("Go."))
    assert "no valid arguments were found for the tool 'find'" in error.message
    assert error.suggestion == 'Give them: EveryTool(arguments={"find": {…}}).'
    given = EveryTool(arguments={"find": {"code": "ABC-1"}})
    assert results(Agent(given, tools=[find]).run_sync("Go.")) == ["found ABC-1"]
    wrong = EveryTool(arguments={"fnd": {"code": "ABC-1"}})
    assert "there is no tool 'fnd'" in error_of(Agent(wrong, tools=[find]).run_sync("Go.")).message


@pytest.fixture
def server():
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(401)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answers) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/v1", asked
        served.shutdown()
        thread.join()


def test_nothing_is_sent_while_real_requests_are_forbidden(server):
    url, asked = server
    agent = Agent(OpenAI("m", base_url=url, api_key="key"))
    with no_real_requests():
        error = error_of(agent.run_sync("Hi"))
    assert (asked, error.kind) == ([], "config_error")
    assert "FORGE_NO_REAL_REQUESTS is set, so nothing was sent" in error.message
    assert "agent.override(model=" in error.suggestion
    assert "FORGE_NO_REAL_REQUESTS" not in os.environ
    assert error_of(agent.run_sync("Hi")).kind == "config_error"  # the server refuses the key
    assert len(asked) == 1


def test_a_fixture_forbids_them_for_all_tests(tmp_path, server):
    url, asked = server
    (tmp_path / "pytest.ini").write_text("[pytest]\nusefixtures = forge_no_real_requests\n")
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(f"""
            from forge import Agent, Scripted
            from forge.models import OpenAI

            def test_real():
                agent = Agent(OpenAI("m", base_url={url!r}, api_key="key"))
                assert "nothing was sent" in agent.run_sync("Hi").error.message

            def test_made():
                assert Agent(Scripted("Hello!")).run_sync("Hi").text == "Hello!"
        """)
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout
    assert asked == []
