"""cli_execute as a model calls it and a project configures it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.permissions.gate import PolicyGate
from forge.permissions.policy import rules
from forge.permissions.targets import find_requests
from forge.pipeline.authorize import Authorize
from forge.pipeline.limit_calls import LimitTime
from forge.process.sandbox import Tier, problem
from forge.project.assemble.choose_tools import choose_tools
from forge.project.config import load_configuration
from forge.tools.cli_execute import CliExecute
from tests.patience import longer
from tests.process.planting import found, mark, until

SANDBOXED = not problem(Tier.BUBBLEWRAP)
needs_sandbox = pytest.mark.skipif(not SANDBOXED, reason=f"NO SANDBOX: {problem(Tier.BUBBLEWRAP)}")


class Project:
    """A workspace, a folder of programs outside it, and the tool."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.programs = folder / "programs"
        self.workspace.mkdir()
        self.programs.mkdir()
        (self.workspace / "notes.txt").write_text("one\ntwo\n")
        self.scope = Scope(session_id="cli", workspace=self.workspace)

    def program(self, name: str, *lines: str) -> str:
        """A program made of Python."""
        path = self.programs / name
        path.write_text("\n".join([f"#!{sys.executable}", "import os, sys, time", *lines]))
        path.chmod(0o755)
        return name

    def tool(self, *binaries: str, **config: Any) -> CliExecute:
        return CliExecute(binaries, **{"sandbox": "off", **config})

    def call(self, tool: CliExecute, binary: str, *args: str, steps: Any = (), **more: Any) -> ToolResult:
        arguments = {"binary": binary, "args": list(args), **more}
        return asyncio.run(
            ToolExecutor(ToolRegistry([tool]), list(steps)).execute(ToolCall("cli_execute", arguments), self.scope)
        )

    def run(self, *lines: str, args: tuple[str, ...] = (), stdin: str = "", **config: Any) -> ToolResult:
        return self.call(self.tool(self.program("mytool", *lines), **config), "mytool", *args, stdin=stdin)


@pytest.fixture
def project(tmp_path, monkeypatch):
    made = Project(tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}{os.pathsep}{os.environ['PATH']}")
    return made


# what comes back


def test_what_it_wrote_and_how_it_ended_come_back_as_data_and_as_json(project):
    result = project.run("print('out'); print('err', file=sys.stderr); sys.exit(3)")
    shown = {"stdout": "out\n", "stderr": "err\n", "exit_code": 3, "truncated": False}
    assert result.success
    assert json.loads(result.for_llm) == shown
    assert {key: result.data[key] for key in shown} == shown
    assert result.data["sandbox"] == "none"
    assert result.data["timed_out"] is False


def test_it_reads_what_it_is_given_and_nothing_by_default(project):
    lines = ["print(sys.stdin.read().upper())"]
    assert project.run(*lines, stdin="grüße").data["stdout"] == "GRÜSSE\n"
    assert project.run(*lines).data["stdout"] == "\n"


def test_arguments_arrive_as_they_are_without_a_shell(project):
    args = ("a b", "*", "$HOME", "x;y", "&&", "", "é", "it's")
    assert json.loads(project.run("import json; print(json.dumps(sys.argv[1:]))", args=args).data["stdout"]) == [*args]


def test_a_signal_is_told_apart_from_an_exit_code(project):
    result = project.run("os.kill(os.getpid(), 9)")
    assert result.data["signal"] == "SIGKILL"
    assert result.data["exit_code"] is None
    assert json.loads(result.for_llm)["signal"] == "SIGKILL"


# 7: time


def test_time_is_up_for_the_whole_tree_and_what_came_until_then_is_kept(project):
    word = mark()
    lines = [
        "print('began', flush=True)",
        "if os.fork() == 0:",
        "    os.setsid()",
        f"    os.execvp('sleep', ['sleep', '{word}'])",
        "time.sleep(60)",
    ]
    for seconds in longer(1):
        tool = project.tool(project.program("mytool", *lines), timeout=seconds)
        result = project.call(tool, "mytool", steps=[LimitTime()])
        if "began" in result.for_llm:
            break
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert result.failure.message == f"timed out after {seconds:g} s"
    assert result.data["timed_out"] is True
    assert result.data["stdout"] == "began\n"
    assert "began" in result.for_llm
    assert until(lambda: not found(word))


def test_within_its_time_it_is_not_disturbed(project):
    result = project.call(project.tool(project.program("mytool", "print(1)"), timeout=30.0), "mytool")
    assert result.success


def test_a_model_may_ask_for_less_time_and_never_for_more(project):
    tool = project.tool("cat", timeout=20)
    assert tool.parse({"binary": "cat"})["timeout"] == 20
    assert tool.parse({"binary": "cat", "timeout": 5})["timeout"] == 5
    assert tool.parse({"binary": "cat", "timeout": 500})["timeout"] == 20
    assert "timeout" not in tool.spec.parameters["properties"]


# 9 and 10: where it runs, with what around it


def test_it_runs_in_the_workspace(project):
    assert project.run("print(os.getcwd())").data["stdout"].strip() == str(project.workspace.resolve())


def test_its_environment_holds_only_what_it_needs(project, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hidden")
    monkeypatch.setenv("GITHUB_TOKEN", "passed")
    monkeypatch.setenv("https_proxy", "http://proxy")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("NOT_THERE", raising=False)
    lines = ["import json; print(json.dumps(dict(os.environ)))"]
    seen = json.loads(project.run(*lines, env_passthrough=["GITHUB_TOKEN", "NOT_THERE"]).data["stdout"])
    assert seen["HOME"] == str(project.workspace.resolve())
    assert (seen["GITHUB_TOKEN"], seen["https_proxy"], seen["OPENAI_ORG_ID"]) == ("passed", "http://proxy", "org")
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
    known = {"PATH", "HOME", "LANG", "GITHUB_TOKEN", "OPENAI_ORG_ID", "LC_CTYPE"}  # Python itself adds the last
    pointed = {"GIT_CONFIG_SYSTEM", "PYTHONNOUSERSITE"} | {one for one, value in seen.items() if value == os.devnull}
    system = {"TMPDIR"} if problem(Tier.BUBBLEWRAP) else {"PWD"}  # Landlock has no /tmp, and bubblewrap sets PWD
    assert {name for name in seen if name.upper() not in proxies} - known - pointed <= system
    assert {"GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"} <= pointed
    assert "GITHUB_TOKEN" not in json.loads(project.run(*lines).data["stdout"])


def test_home_is_the_workspace_even_where_it_is_passed_through(project):
    result = project.run("print(os.environ['HOME'])", env_passthrough=["HOME"])
    assert result.data["stdout"].strip() == str(project.workspace.resolve())


def test_programs_of_programs_are_not_looked_for_in_the_workspace(project, monkeypatch):
    ours, theirs = project.workspace / "bin", os.environ["PATH"]
    ours.mkdir()
    monkeypatch.setenv("PATH", f"{ours}{os.pathsep}.{os.pathsep}{theirs}")
    assert project.run("print(os.environ['PATH'])").data["stdout"].strip() == theirs


# 11: output


def test_each_stream_is_cut_at_its_limit_and_the_cut_is_said(project):
    lines = ["sys.stdout.write('a' * 1500); sys.stderr.write('b' * 500)"]
    result = project.run(*lines, max_output_bytes=1000)
    assert result.data["stdout"] == "a" * 1000
    assert result.data["stderr"] == "b" * 500
    assert result.data["truncated"] is True
    assert result.data["cut_bytes"] == 500
    assert json.loads(result.for_llm)["truncated"] is True
    assert "500 bytes" in result.for_llm


def test_output_exactly_at_the_limit_is_not_cut(project):
    result = project.run("sys.stdout.write('a' * 1000)", max_output_bytes=1000.0)
    assert result.data["truncated"] is False
    assert len(result.data["stdout"]) == 1000


def test_a_cut_never_splits_a_character(project):
    result = project.run("sys.stdout.buffer.write('é'.encode() * 1000)", max_output_bytes=1001)
    assert result.data["stdout"] == "é" * 500
    assert result.data["truncated"] is True


# arguments


@pytest.mark.parametrize("args", ["-n", ["-n"], '["-n"]'])
def test_one_argument_may_be_given_as_a_text(project, args):
    assert list(project.tool("cat").parse({"binary": "cat", "args": args})["args"]) == ["-n"]


def test_a_whole_line_as_the_arguments_is_told_how(project):
    tool = project.tool("cat")
    with pytest.raises(ToolError) as caught:
        tool.parse({"binary": "cat", "args": "-n 'my file' x"})
    assert caught.value.kind == "validation_error"
    assert '["-n", "my file", "x"]' in caught.value.suggestion
    assert tool.parse({"binary": "cat", "args": ["one text"]})["args"] == ["one text"]


def test_other_names_of_the_parameters_are_understood(project):
    parsed = project.tool("cat").parse({"command": "cat", "arguments": ["-n"], "input": "x"})
    assert (parsed["binary"], list(parsed["args"]), parsed["stdin"]) == ("cat", ["-n"], "x")


def test_a_command_of_more_than_the_kernel_takes_is_explained(project):
    result = project.call(project.tool("cat"), "cat", *["x" * 100_000] * 100)
    assert result.failure is not None
    assert result.failure.kind == "validation_error"


# refusals


@pytest.mark.parametrize(
    ("binary", "args", "message", "kind"),
    [
        ("bash", ["-c", "id"], 'binary "bash" is a shell interpreter and cannot be used', "security_error"),
        ("/bin/sh", ["-c", "id"], 'binary "/bin/sh" is a shell interpreter and cannot be used', "security_error"),
        ("rm", ["x"], 'binary "rm" is not in the allowed list', "security_error"),
        ("no-such-program", [], 'binary "no-such-program" was not found on this system', "config_error"),
        ("cat", ["a", "b", "$(id)"], 'argument 2: contains "$("', "security_error"),
        ("cat", ["FILE:///etc/passwd"], "argument 0: file:// is not allowed", "security_error"),
        (
            *("cat", ["-n", "~/.ssh/id_rsa"]),
            *('argument 1: "~/.ssh/id_rsa" resolves outside the working directory', "security_error"),
        ),
        ("cat", ["forbidden"], "skill guardrail: not that one", "security_error"),
    ],
)
def test_each_refusal_has_its_documented_words_and_nobody_is_asked(project, binary, args, message, kind):
    rail = {"pattern": "cat forbidden", "message": "not that one"}
    tool = project.tool("bash", "cat", "no-such-program", deny_commands=[rail])
    result = project.call(tool, binary, *args, steps=[Authorize(PolicyGate(rules("allow execute")))])
    assert result.failure is not None
    assert result.failure.message == message
    assert result.failure.kind == kind
    asked = project.call(tool, binary, *args, steps=[Authorize(PolicyGate())])  # with nobody there to ask
    assert asked.failure is not None
    assert asked.failure.message == message


def test_what_no_layer_refuses_runs(project):
    result = project.call(project.tool("cat"), "cat", "notes.txt")
    assert result.data["stdout"] == "one\ntwo\n"


def test_a_link_laid_after_the_question_is_refused(project):
    """The layers look again when the command is run."""
    secret = project.programs.parent / "secret"
    secret.write_text("secret")
    tool = project.tool("cat")

    class Person:
        async def require(self, ctx, permission, target):
            (project.workspace / "later").symlink_to(secret)

    result = project.call(tool, "cat", "later", steps=[Authorize(Person())])
    assert result.failure is not None
    assert "outside the working directory" in result.failure.message
    assert "secret" not in result.for_llm


# permission


def test_it_asks_to_execute_the_command_as_one_line(project):
    tool = project.tool("cat")
    arguments = tool.parse({"binary": "cat", "args": ["my file", "x"]})
    assert find_requests(tool.spec, arguments, tool, project.scope) == [("execute", "cat 'my file' x")]


@pytest.mark.parametrize(
    ("rule", "allowed"), [("allow execute cat *", True), ("allow execute git *", False), ("allow execute cat n*", True)]
)
def test_rules_about_commands_decide(project, rule, allowed):
    result = project.call(project.tool("cat"), "cat", "notes.txt", steps=[Authorize(PolicyGate(rules(rule)))])
    assert result.success is allowed
    if not allowed:
        assert result.failure is not None
        assert result.failure.kind == "permission_error"


def test_what_is_protected_is_not_written_by_a_command_and_may_be_read(project):
    (project.workspace / "forge.yaml").write_text("tools: []\n")
    gate = [Authorize(PolicyGate(rules("allow execute", "allow write notes.txt")))]
    tool = project.tool("cp", "cat")
    refused = project.call(tool, "cp", "notes.txt", "forge.yaml", steps=gate)
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert (project.workspace / "forge.yaml").read_text() == "tools: []\n"
    assert project.call(tool, "cat", "forge.yaml", steps=gate).data["stdout"] == "tools: []\n"
    assert project.call(tool, "cp", "notes.txt", "copy.txt", steps=gate).success
    named = [Authorize(PolicyGate(rules("allow execute", "allow write forge.yaml")))]
    assert project.call(tool, "cp", "notes.txt", "forge.yaml", steps=named).success


# options that start programs


def test_exec_flags_do_not_run_without_a_sandbox_even_if_they_are_allowed(project):
    tool = project.tool("find", allow_exec_flags=True)
    result = project.call(tool, "find", ".", "-exec", "cat", "{}", ";")
    assert result.failure is not None
    assert result.failure.kind == "security_error"
    assert "only in a sandbox" in result.failure.message


@needs_sandbox
def test_exec_flags_that_are_allowed_run_in_the_sandbox_and_reach_nothing_outside(project):
    secret = project.programs.parent / "secret"
    secret.write_text("hidden")
    script = project.workspace / "look.sh"
    script.write_text(f"cat {secret}; echo changed > {secret}; echo inside > made.txt\n")
    found = ["find", ".", "-name", "look.sh", "-exec", "sh", "{}", ";"]
    refused = project.call(project.tool("find", sandbox="auto"), *found)
    assert refused.failure is not None
    result = project.call(project.tool("find", sandbox="auto", allow_exec_flags=True), *found)
    assert result.data["sandbox"] == "bubblewrap"
    assert "hidden" not in result.data["stdout"]
    assert secret.read_text() == "hidden"
    assert (project.workspace / "made.txt").read_text() == "inside\n"


@needs_sandbox
def test_a_command_runs_confined_by_default(project):
    result = project.call(CliExecute(["cat"]), "cat", "notes.txt")
    assert result.data["stdout"] == "one\ntwo\n"
    assert result.data["sandbox"] == "bubblewrap"


@needs_sandbox
def test_a_signal_in_the_sandbox_is_named(project):
    result = project.run("os.kill(os.getpid(), 15)", sandbox="bubblewrap")
    assert result.data["signal"] == "SIGTERM"


TIERS = [
    pytest.param(str(tier), marks=pytest.mark.skipif(bool(problem(tier)), reason=f"NO {tier}: {problem(tier)}"))
    for tier in (Tier.BUBBLEWRAP, Tier.LANDLOCK)
]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "line",
    [
        *("get --raw /healthz", "api /repos/o/r", "exec pod -- cat /var/log/app.log", "cp pod:/tmp/x .", "-w=/app"),
        "run --env=A=/var/x",
    ],
)
def test_an_argument_that_is_no_local_path_reaches_the_program_in_a_sandbox(project, tier, line):
    result = project.run("print(*sys.argv[1:])", args=tuple(line.split()), sandbox=tier)
    assert (result.data["stdout"], result.data["sandbox"]) == (f"{line}\n", tier)


@pytest.mark.parametrize("tier", TIERS)
def test_a_file_outside_is_hidden_by_the_sandbox_though_its_path_is_an_argument(project, tmp_path, tier):
    (tmp_path / "secret").write_text("SECRET")
    lines = ("print(open(sys.argv[1]).read())",)
    result = project.run(*lines, args=(str(tmp_path / "secret"),), sandbox=tier)
    assert result.data["exit_code"] == 1
    assert "SECRET" not in result.for_llm
    assert "one" in project.run(*lines, args=(str(project.workspace / "notes.txt"),), sandbox=tier).data["stdout"]


@pytest.mark.parametrize("tier", TIERS)
def test_a_path_that_the_sandbox_hides_is_named_with_the_way_to_show_it(project, tmp_path, tier):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data.txt").write_text("text")
    (project.workspace / "node_modules").symlink_to(tmp_path / "elsewhere")
    for name in (tmp_path / "elsewhere" / "data.txt", "/srv/data/x", "node_modules/data.txt"):
        result = project.run(f"open({str(name)!r})", sandbox=tier)
        note = json.loads(result.for_llm)["note"]
        assert f'the sandbox hides "{name}"' in note, name
        assert "workspace.roots" in note
    for name in ("missing.txt", str(project.workspace / "missing.txt"), "/usr/missing"):
        assert "workspace.roots" not in project.run(f"open({name!r})", sandbox=tier).for_llm, name
    assert "workspace.roots" not in project.run("open('/srv/data/x')").for_llm  # there is no sandbox


@pytest.mark.parametrize("tier", TIERS)
def test_settings_that_passed_variables_name_can_be_read_in_the_sandbox(project, tmp_path, monkeypatch, tier):
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "real").write_text("clusters")
    (home / ".kube" / "config").symlink_to("real")
    (home / ".config" / "gh").mkdir(parents=True)
    (home / ".config" / "gh" / "hosts.yml").write_text("hosts")
    (home / ".config" / "forge").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KUBECONFIG", f"{home}/.kube/config:{home}/.kube/missing")
    monkeypatch.setenv("GH_CONFIG_DIR", str(home / ".config" / "gh"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    lines = [
        "print(open(os.environ['KUBECONFIG'].split(':')[0]).read())",
        "print(os.listdir(os.environ['GH_CONFIG_DIR']))",
    ]
    passed = ["KUBECONFIG", "GH_CONFIG_DIR"]
    assert project.run(*lines, sandbox=tier, env_passthrough=passed).data["stdout"] == "clusters\n['hosts.yml']\n"
    real = str(home / ".kube" / "real")
    lines = [f"print(os.path.isfile({real!r}) and open({real!r}).read())"]
    assert "clusters" not in project.run(*lines, sandbox=tier).for_llm
    lines = ["print(os.listdir(os.environ['XDG_CONFIG_HOME']))"]
    result = project.run(*lines, sandbox=tier, env_passthrough=["XDG_CONFIG_HOME"])  # it holds Forge's own settings
    assert result.data["exit_code"] == 1


@needs_sandbox
def test_a_program_given_by_its_path_is_seen_in_the_sandbox(project, tmp_path):
    aside = tmp_path / "aside"
    aside.mkdir()
    path = aside / "mytool"
    path.write_text("#!/bin/sh\necho found\n")
    path.chmod(0o755)
    result = project.call(project.tool(str(path), sandbox="bubblewrap"), str(path))
    assert result.data["stdout"] == "found\n"


# configuration


def test_what_is_allowed_and_found_is_the_choice_a_model_has(project):
    project.program("mytool")
    tool = project.tool("mytool", "bash", "no-such-program", "cat", "env")
    assert tool.spec.parameters["properties"]["binary"]["enum"] == ["mytool", "cat"]
    assert tool.spec.hidden is False
    available = tool.availability()
    assert available.found["mytool"] == str(project.programs / "mytool")
    assert list(available.found) == ["mytool", "cat"]
    assert available.missing == ("no-such-program",)
    assert available.refused == ("bash", "env")


def test_without_a_program_it_is_not_offered_to_models_and_says_how_to_configure_it(project):
    tool = CliExecute()
    registry = ToolRegistry([tool])
    assert registry.definitions() == []
    assert list(registry) == ["cli_execute"]
    assert "enum" not in tool.spec.parameters["properties"]["binary"]
    result = project.call(tool, "git", "log")
    assert result.failure is not None
    assert result.failure.message == 'binary "git" is not in the allowed list'
    assert "allowed_binaries" in result.failure.suggestion
    assert len(ToolRegistry([project.tool("cat")]).definitions()) == 1


def configured(folder: Path, config: str) -> CliExecute:
    path = folder / "forge.yaml"
    path.write_text(f"tools:\n  - name: cli_execute\n    config: {config}\n")
    tool = choose_tools(load_configuration(str(path)))["cli_execute"]
    assert isinstance(tool, CliExecute)
    return tool


@pytest.mark.parametrize("number", ["", ".0"])
def test_it_is_configured_as_documented_with_integers_or_floats(tmp_path, number):
    tool = configured(
        tmp_path,
        "{allowed_binaries: [cat, no-such-program], env_passthrough: [GITHUB_TOKEN],"
        f" timeout: 30{number}, max_output_bytes: 4096{number}, network: true, allow_exec_flags: true, sandbox: off}}",
    )
    assert list(tool.availability().found) == ["cat"]
    assert tool.env_passthrough == ("GITHUB_TOKEN",)
    assert tool.parse({"binary": "cat"})["timeout"] == 30
    assert tool.max_output_bytes == 4096
    assert (tool.network, tool.allow_exec_flags, tool.sandbox) == (True, True, False)
    assert tool.spec.parameters["properties"]["binary"]["enum"] == ["cat"]


@pytest.mark.parametrize(
    "config",
    [
        *(
            "{allowed_binaries: git}",
            "{allowed_binaries: [5]}",
            "{allowed_binaries: ['']}",
            "{allowed_binaries: [bin/x]}",
        ),
        *("{env_passthrough: TOKEN}", "{max_output_bytes: 0}", "{max_output_bytes: many}", "{max_output_bytes: true}"),
        *("{network: 1}", "{deny_commands: [{pattern: '('}]}", "{limits: {nonsense: 1}}", "{allowed: [git]}"),
    ],
)
def test_what_is_configured_wrongly_is_said_at_once(tmp_path, config):
    with pytest.raises(ToolError) as caught:
        configured(tmp_path, config)
    assert caught.value.kind == "config_error"


def test_limits_are_set(project):
    limited = project.run(
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])", limits={"open_files": 50}
    )
    assert limited.data["stdout"] == "50\n"
