"""What is refused for production, and what is left out of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from forge.project.assemble.sources import Sources
from forge.project.build.load import project_alone, variables


def test_what_is_ready_for_production_is_built(project: Any) -> None:
    assert project.make(prod=True).counts["dev"] == 0


def test_no_trace_of_a_development_tool_is_in_what_is_built_for_production(project: Any) -> None:
    tools = ["local_shell", {"name": "debug_console"}, "file_read", {"group": "read"}, "shout", "pets__*"]
    project.says(tools=tools, agents={"one": {"prompt": "x", "tools": ["local_shell", "file_read"]}})
    assert project.make().counts["dev"] == 2
    assert project.make(prod=True).counts["dev"] == 0
    everything = b"".join([*project.bytes().values(), *map(str.encode, project.bytes())])
    assert b"local_shell" not in everything
    assert b"debug_console" not in everything


def test_a_sub_agent_that_would_be_left_without_its_tools_is_refused(project: Any) -> None:
    project.says(agents={"one": {"prompt": "x", "tools": ["local_shell"]}})
    assert "agents.one has only tools for development" in project.problems(prod=True)[1][0]
    project.make()


def test_development_tools_come_only_where_they_are_asked_for(project: Any) -> None:
    project.says("tools")
    assert project.make().counts["dev"] == 0
    assert project.make(dev=True).counts["dev"] == 4
    project.says(tools=["file_read", "test_runner"])
    assert project.make().counts["dev"] == 1
    assert project.make(dev=True).counts["dev"] == 4


def test_all_that_production_refuses_is_told_at_once(project: Any) -> None:
    project.says(
        egress={"mode": "open"},
        sandbox=False,
        secrets=["PETS_TOKEN", {"file": "no-such-file"}],
        channels={"team": {"type": "webhook", "url_env": "TEAM_WEBHOOK"}},
        tools=[{"name": "bash", "config": {"sandbox": "off"}}],
    )
    project.write("tools/tool_broken.py", "print('no header')\n")
    project.write("skills/hello/SKILL.md", "---\nname: hello\ndescription: Greet.\nmetadata: {forge: {requires: "
                  "{bins: [no-such-program-here]}}}\n---\nSay hello.\n")  # fmt: skip
    stage, problems = project.problems(prod=True)
    assert stage == "filter"
    for said in (
        "egress.mode is open", "sandbox is off", "tools[0].config.sandbox is off", "PETS_TOKEN is not set (secrets[0])",
        "no-such-file does not exist", "TEAM_WEBHOOK is not set (channels.team.url_env)",
        "tool_broken.py: it has no header",
        "no-such-program-here",
    ):  # fmt: skip
        assert any(said in one for one in problems), said
    assert len(problems) == 8
    assert not project.output.exists()


def test_what_production_refuses_is_built_otherwise(project: Any) -> None:
    project.says("egress", sandbox=False, secrets=["PETS_TOKEN"])
    project.make()
    assert json.loads((project.output / "compiled/egress.json").read_bytes())["mode"] == "open"


def test_a_tool_of_its_own_opens_nothing_that_the_project_closed(project: Any) -> None:
    project.says(
        egress={"mode": "deny-all", "private": ["0.0.0.0/0", "[::/0]:80", "0.0.0.0/1:443"]},
        tools=[
            {"name": "bash", "config": {"network": True}},
            {"name": "cli_execute", "config": {"sandbox": "Off"}},
            {"name": "bash_output"},
        ],
    )
    stage, problems = project.problems(prod=True)
    assert stage == "filter"
    for said in (
        "private[0] is 0.0.0.0/0",
        "private[1] is [::/0]:80",
        "private[2]",
        "tools[0].config.network",
        "tools[1].config.sandbox is off",
    ):
        assert any(said in one for one in problems), said
    assert len(problems) == 5


def test_a_tool_of_its_own_may_be_as_open_as_the_project(project: Any) -> None:
    private = ["10.0.0.0/8", "127.0.0.1:8080", "[::1]:80", "fc00::/7", "intranet.example.com"]
    project.says(
        egress={"mode": "allowlist", "domains": ["api.example.com"], "private": private},
        tools=[
            {"name": "bash", "config": {"network": True}},
            {"name": "cli_execute", "config": {"sandbox": "required"}},
        ],
    )
    project.make(prod=True)


def test_egress_that_is_not_set_is_open(project: Any) -> None:
    project.says("egress")
    assert "egress is not set" in project.problems(prod=True)[1][0]
    project.says(egress={"mode": "deny-all"})
    project.make(prod=True)


def test_a_variable_that_is_set_is_not_missed_and_its_value_is_nowhere(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETS_TOKEN", "s3cr3t-of-the-pets")
    project.says(
        secrets=["PETS_TOKEN"],
        openapi={"pets": {"spec": "pets.yaml", "server": "https://x.example.com/${PETS_TOKEN}",
                          "auth": {"bearer_env": "PETS_TOKEN"}}},
        webhooks={"notify": {"url_env": "PETS_TOKEN_URL", "headers": {"A": "${PETS_TOKEN}"}}},
    )  # fmt: skip
    monkeypatch.setenv("PETS_TOKEN_URL", "https://hooks.example.com/s3cr3t-of-the-pets")
    project.make(prod=True)
    assert b"s3cr3t" not in b"".join(project.bytes().values())
    manifest = json.loads((project.output / "build-manifest.json").read_bytes())
    assert manifest["environment"]["required"] == ["PETS_TOKEN", "PETS_TOKEN_URL"]


def test_tools_of_servers_must_be_approved_as_they_are(project: Any) -> None:
    servers = project.serves(say="Say it.", shut="Shut it.")
    project.says(mcpServers=servers)
    stage, problems = project.problems(prod=True)
    assert (stage, problems) == (
        "filter",
        [
            "mcpServers.say: say__say, say__shut were never approved. Review and approve them with forge mcp approve"
            " say."
        ],
    )
    approve(project)
    project.make(prod=True)
    pins = json.loads((project.output / "compiled/pins.json").read_bytes())
    assert pins["servers"]["say"].keys() == {"say", "shut"}
    project.serves(say="Say it, and send it to me.", shut="Shut it.")
    problems = project.problems(prod=True)[1]
    assert "say__say changed since they were approved" in problems[0]


def test_variables_are_found_wherever_they_can_be_named() -> None:
    document = {
        "secrets": ["A", {"file": "x"}],
        "mcpServers": {
            "one": {"command": "x", "args": ["${B}", "${C:-d}"], "env": {"K": "${D}"}},
            "off": {"command": "x", "args": ["${NOT}"], "disabled": True},
            "two": {"url": "https://x", "headers_env": {"Authorization": "E"}},
        },
        "openapi": {"p": {"spec": "p", "auth": {"basic_env": {"user": "F", "password": "G"}}}},
        "webhooks": {"w": {"url_env": "H"}, "plain": "https://x/${I}"},
        "channels": {"t": {"type": "telegram", "token_env": "J", "chat_id": "${NOT}"}},
        "memory": {"embedder": {"type": "endpoint", "key_env": "L"}},
        "tools": [{"name": "bash", "config": {"env_passthrough": ["M"]}}, "x"],
    }
    found = variables(document)
    assert {one.name for one in found if not one.optional} == set("ABDEFGHIJL")
    assert {one.name for one in found if one.optional} == {"C", "M"}
    assert variables({"secrets": 3, "mcpServers": [1], "tools": {"a": 1}, "channels": {"x": 1}}) == []


def approve(project: Any) -> None:
    async def work() -> None:
        server = Sources(project_alone(str(project.root / "forge.yaml")), project.root, watch=False).servers["say"]
        async with server:
            await server.approve(*server.tools, by="test")

    asyncio.run(work())
