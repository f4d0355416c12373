"""`forge doctor`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys

import pytest

from forge.process import sandbox
from tests.cli.conftest import environment


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


@pytest.mark.parametrize(("there", "status"), [(True, "ok"), (False, "note")])
def test_it_says_whether_guardrails_can_redact_exactly(here, monkeypatch, there, status):
    find = importlib.util.find_spec
    found = {"re2": importlib.machinery.ModuleSpec("re2", None) if there else None}
    monkeypatch.setattr("forge.core.extras.find_spec", lambda name: found[name] if name in found else find(name))
    (check,) = [one for one in here("doctor", "--json").json["checks"] if one["check"] == "RE2"]
    assert check["status"] == status
    assert bool(check["fix"]) is not there


@pytest.mark.parametrize("is_possible", [True, False])
def test_without_a_sandbox_it_gives_advice_that_fits_the_system(here, monkeypatch, is_possible):
    """On macOS no package brings one."""
    monkeypatch.setattr(sandbox, "_problem", lambda tier: "it is not here")
    monkeypatch.setattr(sandbox, "is_possible", lambda: is_possible)
    monkeypatch.setattr("forge.project.doctor.machine.is_possible", lambda: is_possible)
    found = checks(here("doctor", "--json"))
    for name in ("sandbox", "trial"):
        assert ("install" in found[name]["fix"].lower().replace("install.md", "")) is is_possible
        assert ("on Linux only" in found[name]["fix"]) is not is_possible
    assert found["sandbox"]["fix"].count("on Linux only") == (0 if is_possible else 1)


def test_people_get_a_verdict_first_and_every_check_if_they_ask(here):
    short, all_of_it = here("doctor"), here("doctor", "--verbose")
    assert (short.code, all_of_it.code) == (0, 0)
    verdict = short.out.splitlines()[0]
    assert verdict == "Forge's tools are ready to use here; `forge run` needs a model."
    assert all_of_it.out.splitlines()[0] == verdict
    assert len(short.out.splitlines()) < 25 < len(all_of_it.out.splitlines())
    assert any(line.split()[:2] == ["✓", "python"] for line in all_of_it.out.splitlines())
    assert not any(line.split()[:2] == ["✓", "python"] for line in short.out.splitlines())


def test_problems_come_first_with_what_to_do(here, workspace):
    (workspace / "c.yaml").write_text("tools: [{name: mat_calculate}]\n")
    verdict, problem, fix, *_ = here("doctor", "--config", "c.yaml").out.splitlines()
    assert verdict.startswith("Forge cannot be used as it is set up here: 1 problem")
    assert problem.startswith("✗ tools")
    assert "math_calculate" in fix
    (workspace / "c.yaml").write_text("tools: [{name: math_calculate}]\n")
    assert "cannot be used" not in here("doctor", "--config", "c.yaml").out


def test_it_counts_the_tools_that_are_listed(here, workspace):
    (workspace / "tools").mkdir()
    (workspace / "tools" / "count.py").write_text('"""\nTool: count\nDescription: Count.\n"""\nprint(1)\n')
    (workspace / "forge.yaml").write_text(
        "tools: [count, bash, schedule_list]\nmemory: {enabled: true}\nskills: {active: [code-agent]}\n"
        "webhooks: {notify: 'https://a.example.com'}\n"
    )
    count = checks(here("doctor", "--json", "--config", "forge.yaml"))["tools"]["detail"]
    assert not (workspace / ".forge").exists()
    assert count == str(len(here("tool", "list", "--json", "--config", "forge.yaml").json["tools"]))


def test_tools_of_servers_are_not_counted_and_it_says_so(here, workspace):
    (workspace / "forge.yaml").write_text("tools: [math_calculate, git__status]\nmcpServers: {git: {command: git}}\n")
    found = checks(here("doctor", "--json", "--config", "forge.yaml"))["tools"]
    assert (found["status"], found["detail"]) == (
        "ok",
        "5, and those of 1 MCP server, which `forge tool list` opens",
    )


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
    assert found["tools"]["detail"] == "5"
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


def test_what_is_not_right_is_followed_by_what_to_do(here, workspace):
    (workspace / ".forge").mkdir(mode=0o777)
    (workspace / ".forge").chmod(0o777)
    lines = here("doctor").out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("! state for others")]
    assert lines[at + 1].strip() == f"→ chmod 700 {workspace / '.forge'}"
    assert checks(here("doctor", "--json"))["state for others"]["fix"] == f"chmod 700 {workspace / '.forge'}"


def test_keys_that_nobody_set_take_one_line(here, monkeypatch):
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret-123456")
    shown = here("doctor", "--verbose").out.splitlines()
    assert [line for line in shown if "TAVILY_API_KEY" in line] == [shown[-1]]
    assert "GROQ_API_KEY" not in shown[-1]
    assert any(line.startswith("✓ GROQ_API_KEY") for line in shown)


def test_names_of_files_do_not_write_lines_of_their_own(here, workspace):
    (workspace / "tools").mkdir()
    (workspace / "tools/a\n✓ all is well\x1b[2J.py").write_bytes(b"\xff\xfe")
    shown = here("doctor").out
    assert not any(line.startswith("✓ all") for line in shown.splitlines())
    assert "\x1b[2J" not in shown


def test_it_works_where_the_current_directory_is_gone(tmp_path_factory):
    gone = tmp_path_factory.mktemp("gone")
    begin = "import os, sys; os.rmdir(os.getcwd()); from forge.cli import perform; "
    script = f"{begin}sys.exit(perform(['doctor', '--json']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=gone, env=environment(), capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 1
    assert '"workspace", "status": "broken"' in done.stdout
    assert "Traceback" not in done.stderr


def test_tools_of_sources_and_those_made_for_the_project_are_known(here, workspace):
    (workspace / "tools").mkdir()
    (workspace / "tools" / "count.py").write_text('"""\nTool: count\nDescription: Count.\n"""\nprint(1)\n')
    (workspace / "forge.yaml").write_text(
        "tools: [count, notify, schedule_list, read_skill]\nwebhooks: {notify: 'https://a.example.com'}\n"
    )
    done = here("doctor", "--config", "forge.yaml", "--json")
    assert [one["status"] for one in done.json["checks"] if one["check"] == "tools"] == ["ok"]
    (workspace / "tools" / "count.py").unlink()
    (workspace / "tools").rmdir()
    done = here("doctor", "--config", "forge.yaml", "--json")
    assert "no tool 'count'" in str([one for one in done.json["checks"] if one["check"] == "tools"])
