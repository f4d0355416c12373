"""CopilotKit's aimock, which plays the servers of many vendors: every provider of Forge converses with it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from forge import Agent, Limits, tool
from forge.core.provider import Provider
from forge.events import ReasoningDelta
from forge.models import Anthropic, Bedrock, Gemini, OpenAI, OpenAIResponses
from forge.models.azure import azure
from forge.models.vertex import vertex
from scores.packages import installed_from_npm, node
from scores.report import Missing, Row, Score

NAME, VERSION = "@copilotkit/aimock", "1.43.0"
SOURCE = f"npm {NAME} {VERSION}"
MEASURES = (
    "A server of someone else that speaks each vendor's protocol: text, reasoning, parallel calls, results, errors."
)

_KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
_FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "weather", "hasToolResult": False},
        "response": {
            "toolCalls": [
                {"name": "weather", "arguments": {"city": "Zürich", "days": 2}},
                {"name": "weather", "arguments": {"city": "Bern", "days": 1}},
            ]
        },
    },
    {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Sunny in both. 🏔"}},
    {"match": {"userMessage": "think"}, "response": {"content": "Forty-two.", "reasoning": "Six times seven."}},
    {"match": {"userMessage": "hello"}, "response": {"content": "Grüezi! " * 50}},
    {
        "match": {"userMessage": "busy"},
        "response": {"error": {"message": "Slow down.", "type": "rate_limit_error"}, "status": 400},
    },
]


class Case(NamedTuple):
    """One conversation with one provider."""

    name: str
    check: Callable[[Provider], Any]


def run() -> Score:
    package = installed_from_npm(NAME, VERSION)
    with _serve(package) as url:
        failures, cases = asyncio.run(_run_all(url))
    row = Row("conversations that come out right", cases - len(failures), cases, "", failures)
    return Score("models", SOURCE, MEASURES, [row])


def providers(url: str) -> dict[str, Provider]:
    """Every provider that the server can play."""
    cloud = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "token", "GOOGLE_CLOUD_PROJECT": "p", "VERTEX_BASE_URL": url}
    resource = {"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_KEY": "key", "OPENAI_API_VERSION": "2025-04-01"}
    return {
        "openai": OpenAI("gpt-5", base_url=f"{url}/v1", api_key="key"),
        "openai-responses": OpenAIResponses("gpt-5", base_url=f"{url}/v1", api_key="key"),
        "anthropic": Anthropic("claude-sonnet-5", base_url=url, api_key="key", thinking=2_000),
        "gemini": Gemini("gemini-3-pro", base_url=f"{url}/v1beta", api_key="key"),
        "vertex": vertex("gemini-3-pro", cloud),
        "bedrock": Bedrock(
            "amazon.nova-pro-v1:0", region="us-east-1", base_url=url
        ),  # it knows no cache point of tools
        "azure": azure("gpt-5", environment=resource),
    }


async def _run_all(url: str) -> tuple[list[str], int]:
    os.environ |= _KEYS
    failures, count = [], 0
    for name, provider in providers(url).items():
        for case in CASES:
            count += 1
            try:
                problem = await asyncio.wait_for(case.check(provider), 60)
            except Exception as error:  # every failure counts
                problem = f"{type(error).__name__}: {error}"
            if problem:
                failures.append(f"{name}, {case.name}: {str(problem)[:300]}")
    return failures, count


async def _say_hello(provider: Provider) -> str:
    result = await Agent(provider).run("hello")
    return "" if result.text == "Grüezi! " * 50 else f"answered {result.text[:80]!r}"


async def _use_tools(provider: Provider) -> str:
    asked: list[tuple[str, int]] = []

    @tool
    def weather(city: str, days: int) -> str:
        """Tell the weather."""
        asked.append((city, days))
        return f"sunny in {city}"

    result = await Agent(provider, tools=[weather], limits=Limits(turns=3)).run("weather")
    if sorted(asked) != [("Bern", 1), ("Zürich", 2)]:
        return f"called {asked}"
    return "" if result.text == "Sunny in both. 🏔" else f"answered {result.text[:80]!r}"


async def _think(provider: Provider) -> str:
    agent = Agent(provider)
    thoughts: list[str] = []
    agent.activity.subscribe(lambda event: thoughts.append(event.text), ReasoningDelta)
    result = await agent.run("think")
    if "".join(thoughts) != "Six times seven.":
        return f"thought {thoughts}"
    return "" if result.text == "Forty-two." else f"answered {result.text[:80]!r}"


async def _be_refused(provider: Provider) -> str:
    result = await Agent(provider).run("busy")
    found = result.error.message if result.error is not None else ""
    return "" if "Slow down." in found else f"the error is {found[:120]!r}"


CASES = (
    Case("text", _say_hello),
    Case("parallel calls and their results", _use_tools),
    Case("reasoning", _think),
    Case("an error", _be_refused),
)


@contextmanager
def _serve(package: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        fixtures = Path(folder) / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": _FIXTURES}), encoding="utf-8")
        argv = [node(), str(package / "dist" / "cli.js"), "--port", str(port), "--fixtures", str(fixtures)]
        process = subprocess.Popen([*argv, "--log-level", "silent"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _wait_until_ready(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)
            if process.stderr is not None:
                process.stderr.close()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    from http.client import HTTPConnection

    for _ in range(200):
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace") if process.stderr is not None else ""
            raise Missing(f"{NAME} does not start: {said.strip()[-200:]}")
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/health")
            connection.getresponse()
            return
        except OSError:
            time.sleep(0.05)
    raise Missing(f"{NAME} does not answer")
