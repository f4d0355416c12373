"""Entries come and go; comments and everything else stay."""

from __future__ import annotations

import pytest

from forge.core.errors import ToolError
from forge.project.read_yaml import parse_yaml
from forge.project.servers.change import put_entry, remove_entry

ENTRY = {
    "command": "npx",
    "args": ["-y", "@a/b@1.2", "1.0", "no", ""],
    "env": {"T": "${T}", "n": 'say "hi"\n'},
    "sandbox": "off",
    "network": True,
    "memory": 512,
}
TEXTS = [
    "",
    "# top\n",
    "agent: {model: x}  # keep\n",
    "mcpServers:\n  a: # one\n    command: x\n    args:\n      - |\n        a\n\n  # about b\n  b: {command: y}\n\n"
    "# next\nsandbox: auto\n",
    "mcpServers:\n    a:\n        command: x  # wide\n",
    "mcpServers: {a: {command: x}}  # one line\nsandbox: auto\n",
    '{"mcpServers": {"a": {"command": "x"}}, "sandbox": "auto"}',
    '{"sandbox": "auto"}\n',
    "mcpServers: {a: {command: x},\n  b: {command: y}}\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_an_entry_is_added_and_removed_again_without_a_trace(text):
    changed = put_entry(text, "mcpServers", "new", ENTRY)
    before = parse_yaml(text, "x") or {}
    assert parse_yaml(changed, "x") == {**before, "mcpServers": {**before.get("mcpServers", {}), "new": ENTRY}}
    comments = [[line.partition("#")[2] for line in one.splitlines() if "#" in line] for one in (text, changed)]
    assert comments[0] == comments[1]
    assert remove_entry(changed, "mcpServers", "new") == text


@pytest.mark.parametrize(
    "text", ["mcpServers:  # none yet\nsandbox: auto\n", "mcpServers: {}  # none yet\nsandbox: auto\n", "mcpServers:"]
)
def test_an_empty_section_is_filled(text):
    changed = put_entry(text, "mcpServers", "new", ENTRY)
    assert parse_yaml(changed, "x")["mcpServers"] == {"new": ENTRY}
    assert ("# none yet" in changed) is ("# none yet" in text)


def test_an_entry_is_replaced_and_the_others_keep_their_comments():
    text = "mcpServers:\n  new: {command: old}  # gone with it\n  # about z\n  z: {command: z}  # stays\n"
    changed = put_entry(text, "mcpServers", "new", {"command": "x"})
    assert changed == "mcpServers:\n  # about z\n  z: {command: z}  # stays\n  new:\n    command: x\n"


@pytest.mark.parametrize("text", ["- a\n", "mcpServers: &one {a: {command: x}}\nb: *one\n", "a: [\n"])
def test_a_file_that_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(ToolError):
        put_entry(text, "mcpServers", "new", ENTRY)
