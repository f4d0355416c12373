"""Servers of a project: their sandbox, and what a person is told about it."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from forge import Scripted, load_project
from forge.process import sandbox
from tests.mcp.client.test_stdio_sandbox import SERVER, confined, reading

CONFIG = ("--config", "forge.yaml")


@pytest.fixture
def project(workspace):
    """`project(servers, **more)` writes forge.yaml of a workspace with a server, beside which a secret is."""
    (workspace.parent / f"{workspace.name}-secret").write_text("a secret")
    shutil.copy(SERVER, workspace / "server.py")

    def write(servers, **more):
        (workspace / "forge.yaml").write_text(json.dumps({"mcpServers": servers, **more}))

    return write


def entry(**more):
    return {"tries": {"command": sys.executable, "args": ["server.py"], **more}}


@confined
@pytest.mark.parametrize(
    ("own", "whole", "is_read"),
    [({}, {}, False), ({"sandbox": "off"}, {}, True), ({}, {"sandbox": "off"}, True), ({}, {"sandbox": "auto"}, False)],
)
def test_a_project_confines_its_servers_unless_it_says_otherwise(here, project, workspace, own, whole, is_read):
    project(entry(**own), **whole)
    look = json.dumps({"code": reading(workspace.parent / f"{workspace.name}-secret")})
    called = here("tool", "call", "tries__try", look, "--yes", *CONFIG)
    assert ("a secret" in called.out) is is_read


def test_a_machine_without_a_sandbox_starts_no_server_of_a_project_and_says_why(here, project, monkeypatch):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    project(entry())
    (down,) = here("mcp", "list", "--json", *CONFIG).json["servers"]
    assert down["state"] == "down"
    assert "it is switched off" in down["error"]
    assert "`sandbox: off` for this server" in down["error"]
    found = {one["check"]: one for one in here("doctor", "--json", *CONFIG).json["checks"]}
    assert "it is switched off" in found["mcp tries"]["detail"]
    project(entry(sandbox="off"))
    (up,) = here("mcp", "list", "--json", *CONFIG).json["servers"]
    assert up["state"] == "up"


async def test_a_machine_without_a_sandbox_starts_a_server_of_a_project_after_a_question(
    project, workspace, monkeypatch
):
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is switched off")
    asked = []

    def approve(request):
        asked.append(request.question)
        return True

    for own, questions in ({}, 1), ({"sandbox": "required"}, 0), ({"sandbox": "off"}, 0):
        project(entry(**own))
        asked.clear()
        loaded = load_project(workspace, config=workspace / "forge.yaml")
        async with loaded.agent(model=Scripted("Hello!"), approve=approve) as agent:
            assert ("tries__try" in agent.registry.names) is (own != {"sandbox": "required"})
        assert len(asked) == questions
    assert not asked or "There is no sandbox on this machine" in asked[0]


def test_trust_shows_what_a_server_may_reach(here, project):
    project(
        {
            "inside": {"command": "git", "network": True, "roots": [{"path": "../data", "access": "write"}]},
            "outside": {"command": "git", "sandbox": False},
            "alone": {"command": "git", "workspace": "none"},
            "fetched": {"command": "uvx", "args": ["mcp-server-git"]},
        }
    )
    said = {(one["kind"], one["detail"]) for one in here("trust", "--json", "--dry-run").json["turns_on"]}
    assert ("network", "MCP server inside: every address, also on this machine") in said
    assert ("program reaches", "MCP server inside: reads and writes the workspace") in said
    opened = [detail for kind, detail in said if kind == "opens directory"]
    assert [re.sub(": .*/", " ", detail) for detail in opened] == ["MCP server inside data (write)"]
    assert (
        "switches off",
        "the sandbox of the MCP server outside: it can do everything that you can do",
    ) in said
    assert ("program reaches", "MCP server alone: does not see the workspace") in said
    assert any(kind == "fetches a program" and "forge mcp add fetched" in detail for kind, detail in said)
    assert not any("outside" in detail and kind == "network" for kind, detail in said)


def test_the_doctor_names_a_server_that_is_not_pinned_and_how_to_pin_it(here, project):
    project({"git": {"command": "npx", "args": ["-y", "server-git"]}, "own": entry()["tries"]})
    found = {one["check"]: one for one in here("doctor", "--json", *CONFIG).json["checks"]}
    assert "is fetched when it starts, and not pinned" in found["mcp git"]["detail"]
    assert found["mcp git"]["fix"].endswith("forge mcp add git --replace -- npx -y server-git")
    assert "pinned" not in found["mcp own"]["detail"]


def test_settings_of_a_program_need_a_command(here, project):
    project({"far": {"url": "https://far.example/mcp", "network": True}})
    refused = here("mcp", "list", *CONFIG)
    assert refused.code == 2
    assert "mcpServers.far.network: only a server with a command has it" in refused.err


@pytest.mark.parametrize(
    ("floor", "own", "then"),
    [
        ("sandbox: required\n", {"sandbox": "off"}, {"sandbox": "required"}),
        ("egress: {mode: deny-all}\n", {"network": True}, {"network": False}),
        ("sandbox: auto\n", {"network": True, "sandbox": "required"}, {"network": True, "sandbox": "required"}),
    ],
)
def test_a_stricter_user_limits_the_servers_of_a_project(here, project, workspace, monkeypatch, floor, own, then):
    (workspace / "config" / "forge").mkdir(parents=True)
    (workspace / "config" / "forge" / "config.yaml").write_text(floor)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace / "config"))
    project(entry(**own))
    shown = here("config", "show", "--json", *CONFIG).json["values"]["mcpServers"]["tries"]
    assert {key: shown[key] for key in then} == then
