"""The model's Markdown at a terminal: rendered while it arrives, and nothing of it is lost."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.cli.terminal.markdown import MarkdownStream
from forge.cli.terminal.print_result import width_of, wrap

BOLD, ITALIC, CODE, DIM, UNDERLINED = "\x1b[1m", "\x1b[3m", "\x1b[36m", "\x1b[2m", "\x1b[4m"
END = "\x1b[0m"

PIECES = st.sampled_from(
    [
        *[
            "a",
            "b",
            "word",
            "snake_case",
            "2*3*4",
            "\\*",
            "\\",
            "`",
            "``",
            "```",
            "~~~",
            "~~",
            "*",
            "**",
            "***",
            "_",
            "__",
            "#",
            "##",
            "-",
            "+",
            "1.",
            "12)",
            ">",
            "|",
            "---",
            "|---|",
            "|:-:|--|",
            "[a](http://x)",
            "![i](http://y)",
            "[",
            "]",
            "(",
            ")",
            "<",
            "<https://z>",
            "!",
            "広い",
            "é",
            "é",
            "👍",
            "``a`b``",
            "*it*",
            "**bo",
            "ld**",
            "`c",
            "d`",
        ],
        *(" ", "  ", "    ", "\t", "\n", "\n\n", "| a | b |\n|---|---|\n| c | d |\n", "```py\n"),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def render(text: str, columns: int = 80, cuts: tuple[int, ...] = ()) -> str:
    stream = MarkdownStream(lambda: columns)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    written = [stream.feed(text[start:end]) for start, end in pairwise(places)]
    return "".join(written) + stream.finish()


def seen(written: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", written)


def letters(text: str) -> list[str]:
    return [character for character in text if character.isalnum()]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=8))
def test_it_does_not_matter_how_the_stream_is_cut(text, cuts):
    assert seen(render(text, cuts=tuple(cuts))) == seen(render(text))
    assert seen(render(text, cuts=tuple(range(len(text))))) == seen(render(text))


@given(TEXTS)
def test_no_letter_is_lost_or_moved(text):
    assert letters(seen(render(text, columns=10_000))) == letters(text)


@given(TEXTS, st.integers(10, 60))
def test_no_letter_is_lost_in_a_narrow_terminal(text, columns):
    """Cells of a table are wrapped beside each other, so the order within a table is another."""
    assert sorted(letters(seen(render(text, columns)))) == sorted(letters(text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), max_size=200))
def test_any_text_is_shown(text):
    assert letters(seen(render(text, columns=10_000))) == letters(text)


@given(TEXTS, st.integers(20, 60))
def test_styles_end_where_their_line_ends(text, columns):
    for line in render(text, columns).split("\n"):
        codes = re.findall(r"\x1b\[([\d;]*)m", line)
        assert all(code == "0" for code in codes[1::2])
        assert len(codes) % 2 == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** and *it*", f"{BOLD}bold{END} and {ITALIC}it{END}"),
        ("an _it_ and ***both***", f"an {ITALIC}it{END} and \x1b[1;3mboth{END}"),
        ("`a * b`", f"{CODE}a{END} {CODE}*{END} {CODE}b{END}"),
        ("`` a`b ``", f"{CODE}a`b{END}"),
        ("**a `*` b**", f"{BOLD}a{END} \x1b[1;36m*{END} {BOLD}b{END}"),
        ("## Title", f"{BOLD}Title{END}"),
        ("[text](https://x.org/a_b)", f"{UNDERLINED}text{END} {DIM}(https://x.org/a_b){END}"),
        ("<https://x.org>", f"{UNDERLINED}https://x.org{END}"),
        ("- a\n  * b\n+ c", "• a\n  • b\n• c"),
        ("1. a\n10) b", "1. a\n10) b"),
        ("> a\n>> b", f"{DIM}│ {END}a\n{DIM}│ │ {END}b"),
        ("~~gone~~", f"\x1b[9mgone{END}"),
        ("これは**重要**です", f"これは{BOLD}重{END}{BOLD}要{END}です"),
        ("\\*not\\* emphasised", "*not* emphasised"),
        ("    indented **code**", f"{CODE}    indented **code**{END}"),
    ],
)
def test_each_kind_of_markup(text, shown):
    assert render(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "snake_case_name and __init__.py and 2*3*4 and 2 ** 3",
        "**kwargs and *args",
        "a * b * c",
        "unclosed `code and **bold",
        "C:\\temp and \\alpha",
        "[not a link] (really)",
        "[a](b c)",
        "a < b > c",
        "#hashtag and #1",
        "-5 degrees",
        "3.14 is pi",
        "| a lonely line |",
        "Hello!",
    ],
)
def test_what_only_looks_like_markup_stays_as_it_is(text):
    assert render(text) == text


def test_code_is_left_alone_and_its_fences_are_seen():
    shown = seen(render("```python\nx = '**a**'  # `b`\n\n| no | table |\n```\nafter **it**"))
    assert shown == "```python\nx = '**a**'  # `b`\n\n| no | table |\n```\nafter it"


def test_a_closing_fence_is_as_long_as_the_opening_one():
    assert seen(render("````\n```\n*a*\n````\n*b*")) == "````\n```\n*a*\n````\nb"


def test_a_table_fits_the_terminal():
    head = "| name | size | what it is |\n|:--|--:|---|\n"
    table = head + "| 北 | 1,000 | a long text that does not fit |\n| `b` | 2 | x |\n"
    lines = seen(render(table, columns=34)).rstrip("\n").split("\n")
    assert lines == [
        "name │  size │ what it is",
        "─────┼───────┼────────────────────",
        "北   │ 1,000 │ a long text that",
        "     │       │ does not fit",
        "b    │     2 │ x",
    ]
    assert max(map(width_of, lines)) <= 34


def test_a_table_of_too_many_columns_is_shown_as_it_is():
    table = "|" + " a |" * 30 + "\n|" + "---|" * 30 + "\n"
    assert seen(render(table, columns=40)) == table.rstrip("\n")


def test_long_lines_wrap_at_spaces_under_their_beginning():
    assert seen(render("- one two three four", columns=12)) == "• one two\n  three four"
    assert seen(render("> one two three four", columns=12)) == "│ one two\n│ three four"
    assert seen(render("広い広い広い広い", columns=10)) == "広い広い広\nい広い"


def test_text_is_shown_word_by_word():
    stream = MarkdownStream(lambda: 80)
    assert stream.feed("Hello wor") == "Hello"
    assert stream.feed("ld and **bo") == " world and"
    assert stream.feed("ld** ") == f" {BOLD}bold{END}"


def test_an_interrupted_text_shows_what_was_held_back():
    stream = MarkdownStream(lambda: 80)
    assert stream.feed("| a | b |\n|---|---|\n| c") == ""
    assert "c" in seen(stream.flush())
    assert stream.feed("```\nx\n") == f"{DIM}```{END}\n{CODE}x{END}\n"
    assert stream.flush() == ""
    assert stream.feed("**y**\n") == f"{CODE}**y**{END}\n"
    stream.finish()
    assert stream.feed("**y**\n") == f"{BOLD}y{END}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("*a " * 30_000, marks=pytest.mark.slow),
        "[" * 50_000,
        "`" * 50_000,
        "-" * 50_000,
        "_a" * 40_000,
        "> " * 30_000,
    ],
)
def test_hostile_text_takes_no_long_time(text):
    stream = MarkdownStream(lambda: 80)
    started = time.process_time()
    for start in range(0, len(text), 50):
        stream.feed(text[start : start + 50])
    stream.finish()
    assert time.process_time() - started < 10


@given(st.text(max_size=80), st.integers(2, 30))
def test_wrapped_lines_are_the_text(text, columns):
    lines = wrap(text, columns)
    assert "".join(lines) == text
    assert all(width_of(line) <= columns for line in lines)
