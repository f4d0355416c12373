"""`forge completion`."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(here, shell):
    ended = here("completion", shell)
    assert ended.code == 0
    assert "_FORGE_COMPLETE" in ended.out


def test_another_shell_is_a_usage_error(here):
    assert here("completion", "cmd").code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("forge tool call ma", ["math_calculate"]),
        ("forge tool describe uuid", ["uuid_generate"]),
        ("forge policy explain csv", ["csv_parse"]),
        ("forge tool ", ["call", "describe", "list", "new"]),
        ("forge tool list --perm", ["--permission"]),
    ],
)
def test_commands_flags_and_tool_names_complete(there, words, expected):
    position = str(len(words.split(" ")) - 1)
    ended = there(_FORGE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert [line.partition(",")[2] for line in ended.out.splitlines()] == expected
