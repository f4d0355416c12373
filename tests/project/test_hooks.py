"""Hooks of `forge.yaml`: commands that decide, in the sandbox. One that does not decide refuses."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from forge import RunResult, Scripted, ToolCall, ToolError, load_project
from forge.core.provider import ModelRequest
from forge.project.config import load_configuration
from forge.project.doctor import examine
from forge.project.trust_summary import trust_summary

RULES = "permissions: {rules: [allow *, deny write secret/**]}\n"


def write_project(root: Path, text: str, **scripts: str) -> Path:
    (root / "hooks").mkdir(exist_ok=True)
    for name, code in scripts.items():
        (root / "hooks" / f"{name}.py").write_text(
            "import json, sys\nsaid = json.load(sys.stdin)\n" + textwrap.dedent(code)
        )
    file = root / "forge.yaml"
    file.write_text(textwrap.dedent(text) + RULES)
    return file


def run(root: Path, *script: Any, prompt: str = "go") -> RunResult[Any]:
    return load_project(root, config=root / "forge.yaml").agent(Scripted(*script)).run_sync(prompt)


def told(result: RunResult[Any]) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def write(path: str) -> ToolCall:
    return ToolCall("file_write", {"path": path, "content": "x"})


CHECK = """
    hooks:
      before_call:
        - {command: python3 hooks/check.py, match: ["write *.txt"], name: check}
    """


def test_a_command_blocks_changes_and_adds(tmp_path: Path) -> None:
    code = """
        path = said["arguments"]["path"]
        assert said["tool"] == "file_write" and said["hook"] == "before_call"
        if path == "a.txt":
            print(json.dumps({"block": "Not a."}))
        if path == "b.txt":
            print(json.dumps({"arguments": {**said["arguments"], "content": "long"}, "context": "Longer is better."}))
        """
    write_project(tmp_path, CHECK, check=code)
    refused, changed, passed, other = told(
        run(tmp_path, [write("a.txt"), write("b.txt"), write("c.txt"), write("d.md")], "done")
    )
    assert "the hook 'check' refused it: Not a." in refused
    assert changed.startswith("Wrote b.txt (4 bytes).")
    assert changed.endswith(
        "[The hook 'check' changed the arguments: content]\n[The hook 'check' adds: Longer is better.]"
    )
    assert passed.startswith("Wrote c.txt (1 byte).")
    assert other.startswith("Wrote d.md")
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize(
    ("path", "is_written"), [("secret/x.txt", False), ("./y/../secret/x.txt", False), ("y.txt", True)]
)
def test_rules_judge_what_a_command_changed(tmp_path: Path, path: str, *, is_written: bool) -> None:
    code = f"print(json.dumps({{'arguments': {{**said['arguments'], 'path': {path!r}}}}}))"
    write_project(tmp_path, CHECK, check=code)
    (text,) = told(run(tmp_path, write("a.txt"), "done"))
    assert ("is denied by the rule `deny write secret/**`" in text) is not is_written
    assert (tmp_path / "y.txt").exists() is is_written


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('yes')", "it wrote 'yes' to stdout, which is not a JSON object"),
        ("print('[1]')", "which is not a JSON object"),
        ("print('{} {}')", "which is not a JSON object"),
        ('print(\'{"decision": "allow"}\')', "it wrote the key 'decision'"),
        ('print(\'{"result": "x"}\')', "it set 'result'; before_call may set block, arguments, context"),
        ("print('{\"block\": 7}')", "it set 'block' to int"),
        ("print('{\"arguments\": [1]}')", "it set 'arguments' to list"),
        ("print('{\"arguments\": {}}')", "changed the arguments, and they are not valid"),
        ("print('x' * 10_000_000)", "it wrote more than 262,144 bytes to stdout"),
        ('print(\'{"block": "no", "block": ""}\')', "it wrote a key of its JSON twice"),
        ('print(\'{"arguments": {"path": "a.txt", "path": "b.txt"}}\')', "it wrote a key of its JSON twice"),
        ('print(\'{"block": " "}\')', "it set 'block' to spaces"),
        ("sys.stdout.buffer.write(b'\\xef\\xbb\\xbf{}')", "it wrote a byte order mark"),
        ("sys.exit('broken')", "it failed with exit code 1: broken"),
        ("import os; os.kill(os.getpid(), 9)", "it failed with"),
        ("import time; time.sleep(60)", "it gave no answer within 0.5 s"),
    ],
)
def test_a_command_that_fails_hangs_or_writes_nonsense_refuses_the_call(
    tmp_path: Path, code: str, problem: str
) -> None:
    text = CHECK.replace("name: check}", "name: check, timeout: 0.5}") if "sleep" in code else CHECK
    write_project(tmp_path, text, check=code)
    (said,) = told(run(tmp_path, write("a.txt"), "done"))
    assert problem in said
    assert said.endswith("The person can fix the hook.")
    assert not (tmp_path / "a.txt").exists()
    write_project(tmp_path, CHECK, check="print('{}')")  # the twin
    assert told(run(tmp_path, write("a.txt"), "done"))[0].startswith("Wrote a.txt")


def test_a_program_that_does_not_exist_refuses_the_call(tmp_path: Path) -> None:
    write_project(tmp_path, "hooks: {before_call: [no-such-program --check]}\n")
    assert "it failed with exit code 127" in told(run(tmp_path, write("a.txt"), "done"))[0]
    findings = {one.check: one for one in examine(str(tmp_path), str(tmp_path / "forge.yaml"), None)}
    assert findings["hooks"].status == "broken"
    assert "'no-such-program' is not found" in findings["hooks"].detail
    write_project(tmp_path, "hooks: {before_call: ['true'], on_end: [{command: 'true'}]}\n")
    findings = {one.check: one for one in examine(str(tmp_path), str(tmp_path / "forge.yaml"), None)}
    assert (findings["hooks"].status, findings["hooks"].detail) == ("ok", "1 before_call, 1 on_end")
    assert told(run(tmp_path, write("a.txt"), "done")) == ["Wrote a.txt (1 byte)."]


def test_exit_code_2_blocks_with_stderr_as_the_reason(tmp_path: Path) -> None:
    write_project(tmp_path, "hooks: {before_call: ['echo Not today. >&2; exit 2']}\n")
    assert "refused it: Not today." in told(run(tmp_path, write("a.txt"), "done"))[0]


def test_the_other_hooks_are_commands_too(tmp_path: Path) -> None:
    text = """
        hooks:
          after_call: [{command: python3 hooks/look.py, match: file_write, name: look}]
          before_turn: [{command: python3 hooks/turn.py, name: turn}]
          on_end: [{command: "test -f done.txt || { echo Write done.txt. >&2; exit 1; }", name: done}]
        """
    look = "print(json.dumps({'result': said['result'].upper(), 'context': str(said['is_error'])}))"
    turn = """
        if said["prompt"]:
            print(json.dumps({"prompt": said["prompt"].replace("4111", "[card]"), "context": f"Turn {said['turn']}."}))
        """
    write_project(tmp_path, text, look=look, turn=turn)
    asked: list[str] = []

    def note(said: Any) -> Any:
        def answer(request: ModelRequest) -> Any:
            asked.append(str([message.text for message in request.messages]))
            return said

        return answer

    result = run(tmp_path, note("Done."), note(write("done.txt")), note("Now done."), prompt="Pay with 4111.")
    assert (result.text, result.reason) == ("Now done.", "answer")
    assert told(result) == ["WROTE DONE.TXT (1 BYTE).\n[The hook 'look' adds: False]"]
    assert "4111" not in str(asked)
    assert "Pay with [card]." in asked[0]
    assert "Turn 1." in asked[0]
    assert "Write done.txt." in asked[1]


def test_a_check_of_the_end_that_never_passes_is_bounded(tmp_path: Path) -> None:
    write_project(tmp_path, "hooks: {on_end: ['false']}\n")
    result = run(tmp_path, *["Done."] * 10)
    assert (result.reason, result.turns) == ("error", 6)


def test_a_command_runs_in_the_sandbox_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2hunter2")
    code = f"""
        import os, socket
        found = []
        try:
            open({str(elsewhere / "x")!r}, "w").write("x")
            found.append("elsewhere")
        except OSError:
            pass
        try:
            socket.create_connection(("127.0.0.1", 1), 1)
        except ConnectionRefusedError:
            found.append("refused")
        except OSError:
            pass
        open("inside.log", "w").write("x")
        print(json.dumps({{"block": f"{{found}} {{os.environ.get('GITHUB_TOKEN')}}"}}))
        """
    write_project(tmp_path, CHECK, check=code)
    (text,) = told(run(tmp_path, write("a.txt"), "done"))
    assert "hunter2" not in text
    assert "elsewhere" not in text
    assert not (elsewhere / "x").exists()
    assert (tmp_path / "inside.log").exists()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_model_cannot_change_a_hook(tmp_path: Path, sandbox: str) -> None:
    write_project(tmp_path, f"{textwrap.dedent(CHECK)}sandbox: {sandbox}\n", check="pass")
    calls = [write("hooks/check.py"), write("hooks/json.py"), write("./hooks/../hooks/x.py"), write("other/json.py")]
    *refused, written = told(run(tmp_path, calls, "done"))
    assert all("a part of a hook of this project may be written only where a rule names it" in text for text in refused)
    assert written.startswith("Wrote other/json.py")
    line = "echo 'print(1)' > hooks/json.py; echo 'print(1)' > hooks/check.py; echo x > fine.md"
    run(tmp_path, ToolCall("bash", {"command": line}), "done")
    assert not (tmp_path / "hooks" / "json.py").exists()
    assert (tmp_path / "hooks" / "check.py").read_text().endswith("pass")
    assert (tmp_path / "fine.md").exists()


def test_a_script_that_does_not_exist_yet_is_protected(tmp_path: Path) -> None:
    write_project(
        tmp_path, "hooks: {before_call: [{command: python3 guard.py, match: shell}], on_end: ['test -f a.txt']}\n"
    )
    refused, written = told(run(tmp_path, [write("guard.py"), write("a.txt")], "done"))
    assert "a part of a hook" in refused
    assert written.startswith("Wrote a.txt")


@pytest.mark.parametrize(
    "command",
    [
        "python3 checks/guard.py; true",
        "python3 checks/guard.py||exit 2",
        "python3 checks/guard.py>&2",
        "(python3 checks/guard.py)",
        "cat|python3 checks/guard.py|cat",
        "python3 <checks/guard.py",
        "true # a#b\npython3 checks/guard.py",
        "python3 \\\n checks/guard.py",
        "sh -c 'python3 checks/guard.py'",
        "bash -ec 'sh -c \"python3 checks/guard.py\"'",
        'eval "python3 checks/guard.py"',
        'x="$(python3 checks/guard.py)"; echo $x',
        "echo `python3 checks/guard.py`",
        "python3 -c 'exec(open(\"checks/guard.py\").read())'",
        'python3 "$PWD/checks/guard.py"',
        "python3 ${PWD}/checks/guard.py",
        "python3 $(pwd)/checks/guard.py",
        "cd checks && python3 guard.py",
        "(cd ./checks; exec python3 ./guard.py)",
        "python3 -m checks.guard",
        "python3 -Im checks.guard",
        "python3 -m checks",
        "python3 -W error checks",
        "cat checks/*.py | python3",
        "lint --config=checks/guard.py",
        "make -fchecks/guard.py",
        "FOO=checks/guard.py lint",
        "python3 'checks/guard.py",
        "python3 link.py",
    ],
)
def test_a_script_is_protected_however_a_command_names_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/guard.py").write_text("mine")
    (tmp_path / "link.py").symlink_to("checks/guard.py")
    hooks = {"before_call": [{"command": command, "match": "no_such_tool"}]}
    write_project(tmp_path, f"hooks: {json.dumps(hooks)}\n")
    calls = [write("checks/guard.py"), write("hooks/new.py"), write("src/guard.py")]
    refused, added, written = told(run(tmp_path, calls, "done"))
    assert "a part of a hook of this project may be written only where a rule names it" in refused
    assert "a part of a hook of this project may be written only where a rule names it" in added
    assert written.startswith("Wrote src/guard.py")


@pytest.mark.parametrize("name", ["guard", "guard.cjs", "guard.jq", "guard.mk"])
def test_a_script_without_a_known_suffix_is_protected(tmp_path: Path, name: str) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / name).write_text("mine")
    hooks = {"before_call": [{"command": f". ./checks/{name}", "match": "no_such_tool"}]}
    write_project(tmp_path, f"hooks: {json.dumps(hooks)}\n")
    refused, written = told(run(tmp_path, [write(f"checks/{name}"), write("checks/other")], "done"))
    assert "a part of a hook" in refused
    assert written.startswith("Wrote checks/other")


@pytest.mark.parametrize(
    "command",
    ["ruff check src", "python3 -m ruff check src", "cd src && make", "echo 'see src/a.py' >&2", "lint -d src"],
)
def test_a_folder_that_a_command_looks_at_stays_writable(tmp_path: Path, command: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("mine")
    hooks = {"before_call": [{"command": command, "match": "no_such_tool"}]}
    write_project(tmp_path, f"hooks: {json.dumps(hooks)}\n")
    assert told(run(tmp_path, write("src/b.txt"), "done"))[0].startswith("Wrote src/b.txt")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("sh $WHERE/check", "warning"),
        ("python3 checks/missing.py", "warning"),
        ("python3 hooks/check.py", "ok"),
        ("python3 -m json", "ok"),
        ("sh -c 'exit 2'", "ok"),
        ("(cat >&2)", "ok"),
    ],
)
def test_doctor_warns_about_a_script_that_it_cannot_find(tmp_path: Path, command: str, status: str) -> None:
    hooks = {"before_call": [{"command": command}]}
    write_project(tmp_path, f"hooks: {json.dumps(hooks)}\n", check="pass")
    findings = {one.check: one for one in examine(str(tmp_path), str(tmp_path / "forge.yaml"), None)}
    assert findings["hooks"].status == status
    assert ("no file of the workspace is found" in findings["hooks"].detail) is (status == "warning")


def test_guardrails_apply_to_what_a_hook_writes(tmp_path: Path) -> None:
    text = """
        hooks: {after_call: [{command: python3 hooks/look.py, name: look}]}
        guardrails: {deny_output: [{pattern: "KEY-[0-9]+", action: redact}]}
        """
    write_project(tmp_path, text, look="print(json.dumps({'context': 'KEY-123 and fine'}))")
    (said,) = told(run(tmp_path, write("a.txt"), "done"))
    assert "KEY-123" not in said
    assert "and fine" in said


def test_hooks_of_the_user_and_of_the_project_all_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "forge").mkdir(parents=True)
    own = home / "forge" / "config.yaml"
    own.write_text("hooks: {before_call: [{command: 'echo mine >&2; exit 2', match: file_write, name: mine}]}\n")
    own.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    root = tmp_path / "project"
    root.mkdir()
    write_project(root, "hooks: {before_call: [{command: 'true', name: theirs}]}\n")
    configuration = load_configuration(str(root / "forge.yaml"))
    assert [entry.name for _, entry in configuration.all_hooks] == ["mine", "theirs"]
    assert "the hook 'mine' refused it: mine" in told(run(root, write("a.txt"), "done"))[0]


def test_trusting_a_project_shows_its_hooks_and_they_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    root = tmp_path / "project"
    root.mkdir()
    file = write_project(root, CHECK, check="pass")
    shown = [(one.kind, one.detail, one.risky) for one in trust_summary(file.read_text(), "forge.yaml")]
    assert ("runs a command", "hook before_call: python3 hooks/check.py", True) in shown
    with pytest.raises(ToolError, match="not trusted"):
        load_project(root)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hooks: {before_cal: [x]}", "before_cal"),
        ("hooks: {before_call: [{match: bash}]}", "command"),
        ("hooks: {on_end: [{command: x, match: bash}]}", "match"),
        ("hooks: {before_call: [{command: x, timeout: 0}]}", "timeout"),
        ("hooks: {before_call: [{command: x, match: 'wriet src'}]}", "wriet src"),
    ],
)
def test_a_wrong_key_or_pattern_is_told(tmp_path: Path, text: str, problem: str) -> None:
    write_project(tmp_path, text + "\n")
    with pytest.raises(ToolError) as error:
        load_project(tmp_path, config=tmp_path / "forge.yaml").agent(with_model=False)
    assert problem in error.value.message
    assert "forge.yaml" in error.value.message


def test_config_show_has_the_hooks(tmp_path: Path) -> None:
    from forge.project.effective_config import effective_values

    write_project(tmp_path, CHECK, check="pass")
    values = {one.key_path: one for one in effective_values(load_configuration(str(tmp_path / "forge.yaml")))}
    assert values["hooks.before_call"].value == [
        {"command": "python3 hooks/check.py", "match": ["write *.txt"], "name": "check"}
    ]
    assert values["hooks.before_call"].description == "Before each call."


def test_a_call_of_the_command_line_meets_the_hooks(tmp_path: Path) -> None:
    import asyncio

    write_project(tmp_path, CHECK, check="print(json.dumps({'block': said['arguments']['path']}))")
    agent = load_project(tmp_path, config=tmp_path / "forge.yaml").agent(with_model=False)
    result = asyncio.run(agent.call("file_write", {"path": "a.txt", "content": "x"}))
    assert "refused it: a.txt" in result.for_llm


def test_a_build_refuses_a_hook_in_a_file_of_the_project_and_takes_an_installed_program(tmp_path: Path) -> None:
    from forge.project.build.record import BuildOrder
    from forge.project.build.stages import BuildError, build

    write_project(tmp_path, CHECK, check="pass")
    order = BuildOrder(config=str(tmp_path / "forge.yaml"), workspace=tmp_path, output=tmp_path / "out")
    with pytest.raises(BuildError, match="'hooks' is a part of the project"):
        build(order)
    write_project(tmp_path, "hooks: {before_call: ['true']}\n")
    assert build(order).tools


def test_hooks_of_the_organisation_count_and_come_last(tmp_path: Path) -> None:
    file = write_project(tmp_path, "hooks: {before_call: [{command: 'true', name: theirs}]}\n")
    above = tmp_path / "organisation.yaml"
    above.write_text("hooks: {before_call: [{command: 'true', name: ours}], on_end: ['true']}\n")
    configuration = load_configuration(str(file), organisation=str(above))
    assert [(kind, entry.name) for kind, entry in configuration.all_hooks] == [
        ("before_call", "theirs"),
        ("before_call", "ours"),
        ("on_end", ""),
    ]


@pytest.mark.parametrize(
    ("match", "status"),
    [("file_wirte", "warning"), ("bahs", "warning"), ("gti__*", "warning")]
    + [(one, "ok") for one in ("file_write", "file_*", "write src/**", "*", "final_answer", "tool:bash")],
)
def test_doctor_warns_about_a_pattern_that_matches_no_tool(tmp_path: Path, match: str, status: str) -> None:
    hooks = {"before_call": [{"command": "true", "match": match}]}
    write_project(tmp_path, f"hooks: {json.dumps(hooks)}\n")
    findings = {one.check: one for one in examine(str(tmp_path), str(tmp_path / "forge.yaml"), None)}
    assert findings["tools"].status == status
    assert (f"no tool matches {match!r}" in findings["tools"].detail) is (status == "warning")
