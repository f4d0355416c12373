"""What a text may be a disguise of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.skills.guardrails import collapse_spaces, decode_escapes, fold_look_alikes, spellings


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /",
        "rm   -rf\t/",
        "rm\n-rf /",
        "r''m -rf /",
        '"rm" "-rf" /',
        "r\\m -r\\f /",
        "ｒｍ －ｒｆ ／",
        "\U0001d42b\U0001d426 -rf /",
        "r\u200bm -rf\u200d /",
        "r\u0332m -rf /",
        "\u0433m \u2013rf /",
        "r\\u006d -rf /",
        "\\x72m -rf /",
        "r\\\\u006d -rf /",
        "rm\u00a0-rf\u3000/",
        "\u202erm -rf /",
    ],
)
def test_a_disguise_is_seen_through(text):
    assert "rm -rf /" in [collapse_spaces(one) for one in spellings(text)]


def test_what_separates_words_in_a_shell_counts_only_in_commands():
    for text in ("rm${IFS}-rf${IFS}/", "rm$IFS-rf$IFS/", "rm \\\n-rf /"):
        assert "rm -rf /" in spellings(text, command=True)
    assert "rm -rf /" not in spellings("rm${IFS}-rf /")


def test_the_text_itself_comes_first_and_nothing_comes_twice():
    assert next(spellings("Привет \\n")) == "Привет \\n"
    assert list(spellings("plain")) == ["plain"]


def test_escapes_of_two_halves_become_one_character():
    assert decode_escapes("\\ud83d\\ude00") == "\U0001f600"
    assert decode_escapes("\\u{1f600}") == "\U0001f600"
    assert decode_escapes("\\u{ffffff} \\q") == "\\u{ffffff} \\q"


@given(st.text())
def test_any_text_has_spellings_that_can_be_sent(text):
    for spelling in spellings(text, command=True):
        spelling.encode()


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_folding_leaves_ascii_alone(text):
    assert fold_look_alikes(text) == text
