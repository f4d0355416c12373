"""Policy files: lines or YAML, with limits, and every mistake explained with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forge.core.yaml import LARGEST_YAML
from forge.permissions.policy import PolicyError, load_rules
from tests.permissions.judging import decide, request_for

LINES = """\
# what agents may do here
allow read
ask write src/**      # have a look

deny execute rm *
allow tool:http_* api.example.com
"""
FORMS = {
    "lines": LINES,
    "list": "- allow read\n- ask write src/**\n- deny execute rm *\n- allow tool:http_* api.example.com\n",
    "rules": "# x\nrules:\n  - allow read\n  - deny execute rm *\n",
    "configuration": "agent: {id: ops}\npermissions:\n  rules: [allow read, deny execute rm *]\n",
    "permissions as a list": "permissions: [deny execute rm *]\n",
    "json": '{"rules": [{"action": "deny", "permission": "execute", "target": "rm *", "match": ["rm x"]}]}',
    "document": "---\n- deny execute rm *\n",
    "layers": "organisation:\n  - deny execute rm *\nsession:\n  - allow execute\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_is_read(text, tmp_path):
    file = tmp_path / "policy"
    file.write_text(text)
    for policy in (load_rules(text), load_rules(file), load_rules(str(file))):
        assert decide(policy, "execute", "sudo rm x") == "deny"
        assert decide(policy, "read", "a") == "allow"


def test_a_rule_of_a_file_knows_its_place(tmp_path):
    file = tmp_path / "policy.rules"
    file.write_text(LINES)
    assert f"{file}, line 5" in load_rules(file).explain(request_for("execute", "rm x")).reason
    file = tmp_path / "policy.yaml"
    file.write_text(FORMS["configuration"])
    assert f"{file}, line 3" in load_rules(file).explain(request_for("execute", "rm x")).reason


def test_layers_of_a_file_keep_their_strictness():
    policy = load_rules(FORMS["layers"])
    ruling = policy.explain(request_for("execute", "rm x"))
    assert (str(ruling.decision), ruling.layer) == ("deny", "organisation")
    assert decide(policy, "execute", "ls | x") == "allow"


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n", "rules:\n", "[]", "rules: []", "permissions: {rules: }"])
def test_no_rules_means_the_defaults(text):
    policy = load_rules(text)
    assert decide(policy, "read", "a") == "allow"
    assert decide(policy, "write", "a") == "ask"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("allow read\nalow write\n", ["the given text, line 2", "'alow write'", "did you mean 'allow'?"]),
        ("- allow read\n- deny wirte\n", ["line 2", "'deny wirte'", "did you mean 'write'?"]),
        ("rulse:\n  - allow read\n", ["line 2", "unknown key 'rulse'", "did you mean 'rules'?"]),
        ("organization:\n  - allow read\n", ["did you mean 'organisation'?"]),
        ("rules: allow read\n", ["line 1", "not a list"]),
        ("rules:\n  deny: rm\n", ["not a list"]),
        ("- deny write: x\n", ["line 1", "unknown key 'deny write'"]),
        ("- {action: deny, permission: execute, target: rm *, match: [ls]}\n", ["match example 'ls'"]),
        ("- {action: deny, permission: write, target: **/x}\n", ["line 1", "not valid YAML", "Quote"]),
        ("- {action: deny, permission: write, target: }\n", ["its target is None"]),
        ("- [allow, read]\n", ["line 1", "it is list"]),
        ("- null\n", ["it is NoneType"]),
        ("rules: [deny write]\nrules: [allow write]\n", ["line 2", "'rules' occurs twice"]),
        ("- {action: deny, action: allow, permission: read}\n", ["'action' occurs twice"]),
        ("rules: [deny write]\nsession: [allow write]\n", ["`rules` and layers cannot be combined"]),
        ("- a: [\n", ["not valid YAML"]),
        ("- allow read\n---\n- deny read\n", ["not valid YAML"]),
        ("- allow\x01read\n", ["not valid YAML"]),
        ("- " + "[" * 50 + "]" * 50, ["more than 20 levels"]),
        ("x: &a [b]\ny: [" + "*a, " * 30 + "]\n", ["more than 20 aliases"]),
        ("- !!python/object/apply:os.system [echo]\n", ["it is list"]),
        ("allow read\n" + "# " * LARGEST_YAML, ["larger than 256 KiB"]),
    ],
)
def test_a_mistake_is_explained_with_its_place(text, words):
    with pytest.raises(PolicyError) as caught:
        load_rules(text)
    for word in ["the given text", *words]:
        assert word in str(caught.value)


def test_an_alias_bomb_is_not_expanded():
    levels = "".join(f"l{n + 1}: &l{n + 1} [*l{n}, *l{n}]\n" for n in range(9))
    with pytest.raises(PolicyError):
        load_rules("l0: &l0 [deny read]\n" + levels + "rules: *l9\n")
    assert decide(load_rules("x: &a [deny read]\npermissions: {rules: *a}\n"), "read", "a") == "deny"


def test_a_depth_bomb_of_one_line_is_refused():
    with pytest.raises(PolicyError, match="levels deep"):
        load_rules("- " + "[" * 100_000)


def test_a_file_that_cannot_be_read_is_explained(tmp_path):
    with pytest.raises(PolicyError, match=r"missing\.rules: cannot read the policy: No such file"):
        load_rules("missing.rules")
    with pytest.raises(PolicyError, match="not a regular file"):
        load_rules(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(PolicyError, match="not a regular file"):
        load_rules(fifo)
    (tmp_path / "binary").write_bytes(b"allow read \xff")
    with pytest.raises(PolicyError, match="byte 11 is not UTF-8"):
        load_rules(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"#" * (LARGEST_YAML + 1))
    with pytest.raises(PolicyError, match="larger than 256 KiB"):
        load_rules(tmp_path / "large")


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    file = tmp_path / "policy.txt"
    file.write_bytes(b"\xef\xbb\xbfallow read\r\ndeny write secrets/**\r\n")
    assert decide(load_rules(file), "write", "secrets/x") == "deny"


def test_a_file_name_with_spaces_is_a_file_if_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my rules").write_text("deny read\n")
    assert decide(load_rules("my rules"), "read", "x") == "deny"
    assert decide(load_rules("deny read"), "read", "x") == "deny"
