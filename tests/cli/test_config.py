"""`forge config`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest

from forge.cli.commands.config import command
from tests.cli.conftest import Ended


@pytest.fixture
def config(workspace: Path, tmp_path_factory, monkeypatch, capfd) -> Any:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    for name in ("FORGE_CONFIG", "FORGE_MODEL", "FORGE_SANDBOX", "FORGE_EGRESS", "FORGE_TURNS"):
        monkeypatch.delenv(name, raising=False)
    (home / "config/forge").mkdir(parents=True)
    (home / "config/forge/config.yaml").write_text("sandbox: required\npermissions: {rules: ['deny execute rm *']}\n")
    (workspace / "p.yaml").write_text("sandbox: off\nmcpServers: {a: {command: x, env: {A: hidden-value}}}\n")

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        try:
            code = command.main([*arguments], standalone_mode=False)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        return Ended(code or 0, *capfd.readouterr())

    return run


def test_people_see_what_holds_and_who_said_it(config, monkeypatch):
    monkeypatch.setenv("FORGE_MODEL", "openai:x")
    ended = config("show", "--explain", "--config", "p.yaml")
    assert ended.code == 0
    lines = {line.partition(":")[0]: line for line in ended.out.splitlines()}
    assert "required" in lines["sandbox"]
    assert "user file" in lines["sandbox"]
    assert "environment variable FORGE_MODEL" in lines["agent.model"]
    assert "defaults" in lines["limits.turns"]
    assert "is stricter than the project file p.yaml; the stricter setting applies" in lines["note"]
    assert "hidden-value" not in ended.out
    assert "user file" not in config("show", "--config", "p.yaml").out


def test_programs_read_the_same_as_json(config):
    ended = config("show", "--explain", "--json", "--config", "p.yaml", "--policy", "rules.txt")
    assert ended.json["values"]["sandbox"] == "required"
    assert ended.json["values"]["permissions"]["rules"]["user"] == ["deny execute rm *"]
    assert ended.json["origins"]["permissions.rules (session)"] == "a flag"
    assert len(ended.json["notes"]) == 1
    assert set(config("show", "--json").json) == {"values"}


def test_a_project_cannot_allow_what_the_user_denied(here, config, workspace):
    (workspace / "loose.yaml").write_text("permissions: {rules: ['allow execute *']}\n")

    def decided(line: str) -> str:
        arguments = f'{{"command": "{line}"}}'
        told = here("policy", "explain", "bash", arguments, "--config", "loose.yaml", "--json").json["decision"]
        return str(told)

    assert decided("rm x") == "deny"
    assert decided("make") == "allow"


def test_a_variable_that_is_not_set_does_not_matter_here(config, workspace):
    (workspace / "v.yaml").write_text("mcpServers: {a: {command: '${SURELY_NOT_SET}'}}\n")
    assert (
        config("show", "--json", "--config", "v.yaml").json["values"]["mcpServers"]["a"]["command"]
        == "${SURELY_NOT_SET}"
    )


def test_a_mistake_ends_with_2_and_an_example(config, workspace):
    (workspace / "bad.yaml").write_text("limits: {turns: 0}\n")
    ended = config("show", "--config", "bad.yaml")
    assert ended.code == 2
    assert "bad.yaml: limits.turns: expected a whole number from 1, got 0" in ended.err
    assert "For example: turns: 50" in ended.err


def test_the_schema_is_printed(config):
    ended = config("schema")
    jsonschema_rs.meta.validate(ended.json)
    assert "mcpServers" in ended.json["anyOf"][1]["properties"]
    assert set(config("schema", "--organisation").json["properties"]) == {
        "egress",
        "guardrails",
        "hooks",
        "labels",
        "permissions",
        "sandbox",
        "trial",
    }


@pytest.mark.parametrize("arguments", [("--help",), ("show", "--help"), ("schema", "--help")])
def test_help_has_examples(config, arguments):
    assert "Examples:" in config(*arguments).out


def test_of_a_webhook_only_the_host_is_shown(config, workspace):
    (workspace / "p.yaml").write_text(
        "webhooks: {a: 'https://h.example.com/T0/B0/XX', b: {url: 'https://h.example.com?k=XX'}, c: {url: '${HOOK}'}}\n"
    )
    shown = config("show", "--json", "--config", "p.yaml").json["values"]["webhooks"]
    assert shown["a"] == "https://h.example.com/[not shown]"
    assert shown["b"] == {"url": "https://h.example.com/[not shown]"}
    assert shown["c"] == {"url": "${HOOK}"}
