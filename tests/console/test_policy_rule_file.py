"""A rule is added as a person would write it, and everything else in the file stays as it was."""

from __future__ import annotations

import pytest
import yaml

from forge.console.api.policy import RuleFile, _add_rule
from forge.core.errors import ToolError
from forge.permissions.rules import PolicyError
from forge.project.trust import accept, trust_state

RULE = 'allow write "a: b".txt'

FILES = {
    "block": "agent: {id: x}  # mine\npermissions:\n  rules:\n    - allow read  # 1\n    - ask write src/**\n\n# end\n",
    "block at the margin": "permissions:\n  rules:\n  - allow read\nsandbox: auto\n",
    "mappings": "permissions:\n  rules:\n    - action: deny\n      tool: bash\n\nsandbox: auto\n",
    "flow": 'permissions:\n  rules: ["allow read", "ask write"]  # two\nsandbox: auto\n',
    "flow in flow": 'permissions: {rules: ["allow read"]}\n',
    "none": "agent: {id: x}\n",
    "no line end": "permissions:\n  rules:\n    - allow read",
    "empty": "",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_rule_comes_last_and_the_rest_stays(text):
    made = _add_rule(text, RULE)
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(made)
    assert after["permissions"]["rules"][-1] == RULE
    assert after["permissions"]["rules"][:-1] == (before.get("permissions") or {}).get("rules", [])
    assert {**after, "permissions": 0} == {**before, "permissions": 0}
    for line in text.splitlines():
        if "rules: [" not in line and "{rules" not in line:
            assert line in made.splitlines()


@pytest.mark.parametrize(
    "text", ["permissions:\n  rules: []\n", "permissions:\n  rules: &all [allow read]\n  x: *all\n"]
)
def test_what_cannot_be_added_to_safely_is_left_to_the_person(text):
    with pytest.raises(ToolError, match="cannot add to"):
        _add_rule(text, RULE)


def test_a_file_that_grows_when_it_is_read_is_refused():
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    with pytest.raises(ToolError, match="more than 20 aliases"):
        _add_rule(f"a0: &a0 [x]\n{levels}", RULE)
    assert RULE in yaml.safe_load(_add_rule("a0: &a0 [x]\nb: [*a0, *a0]\n", RULE))["permissions"]["rules"]


def test_a_change_is_shown_and_written_only_to_the_file_it_was_made_for(tmp_path):
    path = tmp_path / "forge.yaml"
    path.write_text(FILES["block"])
    file = RuleFile(path)
    change = file.with_rule("  deny   execute rm * ")
    assert '+    - "deny execute rm *"' in change.diff
    assert path.read_text() == FILES["block"]
    file.write(change)
    assert path.read_text() == change.after
    with pytest.raises(ToolError, match="changed meanwhile"):
        file.write(change)


def test_what_is_no_rule_is_refused(tmp_path):
    path = tmp_path / "forge.yaml"
    path.write_text(FILES["block"])
    with pytest.raises(PolicyError):
        RuleFile(path).with_rule("please allow everything")
    for hidden in ('allow read\n    - "allow *"', "allow write a\u202etxt.b"):
        with pytest.raises(ToolError, match="one line"):
            RuleFile(path).with_rule(hidden)


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "forge.yaml"
    path.write_text(FILES["block"])
    path.chmod(0o640)
    change = RuleFile(path).with_rule("deny execute rm *")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ToolError, match="No space left"):
            RuleFile(path).write(change)
    assert (path.read_text(), list(tmp_path.iterdir())) == (FILES["block"], [path])
    RuleFile(path).write(change)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (change.after, 0o640)


def test_a_file_that_changed_since_it_was_accepted_is_not_accepted_along_with_a_rule(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project = tmp_path / "project"
    project.mkdir()
    path = project / "forge.yaml"
    path.write_text("permissions:\n  rules:\n    - deny execute\n")
    accept(project)
    file = RuleFile(path, is_found=True, workspace=project)
    file.write(file.with_rule("deny write"))
    assert trust_state(project).status == "trusted"
    change = file.with_rule("deny network")
    path.write_text("permissions:\n  rules:\n    - allow *\n")
    with pytest.raises(ToolError, match="has changed since you trusted it"):
        file.with_rule("deny network")
    with pytest.raises(ToolError, match="has changed since you trusted it"):
        file.write(change)
    assert trust_state(project).status == "changed"
