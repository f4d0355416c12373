"""`forge doctor`."""

from __future__ import annotations

import pytest


def checks(ended):
    return {check["check"]: check for check in ended.json["checks"]}


def test_it_says_what_is_here(here, workspace):
    ended = here("doctor", "--json")
    assert ended.code == 0
    assert ended.json["ok"] is True
    found = checks(ended)
    assert found["workspace"]["detail"] == str(workspace)
    assert found["state"]["status"] == "ok"
    assert found["configuration"]["status"] == "note"
    assert {"forge", "python", "tools", "sandbox", "rg", "git", "node", "deno", "extra otel"} <= set(found)
    assert not (workspace / ".forge").exists()


def test_people_get_a_line_a_check(here):
    ended = here("doctor")
    assert ended.code == 0
    assert any(line.split()[:2] == ["✓", "python"] for line in ended.out.splitlines())


def test_of_keys_it_only_says_that_they_are_set(here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value-123456")
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    ended = here("doctor", "--json")
    assert checks(ended)["OPENAI_API_KEY"]["detail"] == "set"
    assert checks(ended)["TAVILY_API_KEY"]["detail"] == "not set"
    assert "secret" not in ended.out.replace("secrets", "")


def test_a_configuration_nobody_named_is_found_and_not_loaded(here, workspace):
    (workspace / "forge.yaml").write_text("nonsense: [")
    ended = here("doctor", "--json")
    assert ended.code == 0
    assert checks(ended)["configuration"]["status"] == "warning"
    assert "not loaded" in checks(ended)["configuration"]["detail"]


def test_a_named_configuration_is_loaded(here, workspace):
    (workspace / "forge.yaml").write_text("tools: [{name: math_calculate}]\npermissions: {rules: [allow read]}\n")
    found = checks(here("doctor", "--json", "--config", "forge.yaml"))
    assert found["configuration"]["status"] == "ok"
    assert found["tools"]["detail"] == "4"
    assert "forge.yaml" in found["policy"]["detail"]


@pytest.mark.parametrize(
    ("files", "flags", "check"),
    [
        ({"c.yaml": "tols: []"}, ["--config", "c.yaml"], "configuration"),
        ({"c.yaml": "tools: [{name: mat_calculate}]"}, ["--config", "c.yaml"], "tools"),
        ({"c.yaml": "permissions: {rules: [alow read]}"}, ["--config", "c.yaml"], "policy"),
        ({"p.rules": "alow read"}, ["--policy", "p.rules"], "policy"),
        ({}, ["--workspace", "nowhere"], "workspace"),
    ],
)
def test_what_is_broken_is_a_finding_and_exit_code_1(here, workspace, files, flags, check):
    for name, text in files.items():
        (workspace / name).write_text(text)
    ended = here("doctor", "--json", *flags)
    assert (ended.code, ended.json["ok"]) == (1, False)
    assert checks(ended)[check]["status"] == "broken"


def test_a_state_directory_that_cannot_be_written_is_a_warning(here, workspace, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    ended = here("doctor", "--json")
    assert ended.code == 0
    assert checks(ended)["state"]["status"] == "warning"
