"""Search patterns: what is understood, what is refused and where."""

from __future__ import annotations

import asyncio

import pytest

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.grep_search import GrepSearch
from forge.tools.grep_search.pattern import convert_to_pcre, read_pattern

REFUSED = {
    "(": ("unclosed group", 1),
    "a(b": ("unclosed group", 2),
    ")": ("unopened group", 1),
    "ab)": ("unopened group", 3),
    "[": ("unclosed character class", 1),
    "ab[c": ("unclosed character class", 3),
    "[[]": ("unclosed character class", 2),
    "*": ("repetition operator missing expression", 1),
    "a|+": ("repetition operator missing expression", 3),
    "(?": ("unclosed group", 1),
    "(?z)": ("unrecognized flag", 3),
    "(?#x)": ("unrecognized flag", 3),
    "a{3,2}": ("invalid repetition count range, the start must be <= the end", 2),
    "a{99999999999}": ("decimal literal invalid", 3),
    "[z-a]": ("invalid character class range, the start must be <= the end", 2),
    "x\\": ("incomplete escape sequence, reached end of pattern prematurely", 2),
    r"\Z": ("unrecognized escape sequence", 1),
    r"\é": ("unrecognized escape sequence", 1),
    r"a\x4y": ("invalid hexadecimal digit", 5),
    r"\x{110000}": ("hexadecimal literal is not a Unicode scalar value", 4),
    r"[\b]": ("invalid escape sequence found in character class", 2),
    "(?P<n>a)(?P<n>b)": ("duplicate capture group name", 13),
    "(?P<1>a)": ("invalid capture group character", 5),
    "{ { a(": ("unclosed group", 6),
    "{a} )": ("unopened group", 5),
}


def search(tmp_path, pattern: str) -> ToolResult:
    executor = standard_executor([GrepSearch()], policy=rules("allow read"))
    call = ToolCall("grep_search", {"pattern": pattern})
    return asyncio.run(executor.execute(call, Scope(workspace=tmp_path)))


def found(tmp_path, pattern: str, content: str | bytes) -> bool:
    (tmp_path / "a").write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return bool(search(tmp_path, pattern).data["total"])


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_a_bad_pattern_is_refused_with_its_position(tmp_path, text):
    result = search(tmp_path, text)
    problem, position = REFUSED[text]
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert result.failure.message == f"not a valid pattern: {problem} at position {position}"


@pytest.mark.parametrize("text", ["(" * 1_000, "[" * 1_000])
def test_a_pattern_too_deep_is_refused(tmp_path, text):
    result = search(tmp_path, text)
    assert result.failure is not None
    assert "not a valid pattern" in result.failure.message
    assert len(result.for_llm) < 300


@pytest.mark.parametrize("text", ["a\nb", r"a\nb", r"a\x0a", r"a\x{A}", "a[\n]", r"a[\n]", r"a(?!b)\n"])
def test_a_line_break_cannot_be_matched(tmp_path, text):
    result = search(tmp_path, text)
    assert result.failure is not None
    assert "line by line, at position" in result.failure.message


def test_a_line_break_in_plain_text_cannot_either():
    with pytest.raises(ToolError, match=r"line by line.* at position 2"):
        read_pattern("a\nb", True)
    assert read_pattern("a\\nb(", True).source == "a\\nb("


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("func() {", r"func() \{"),
        ("a{,2}", r"a\{,2}"),
        ("a{2}", "a{2}"),
        ("a{2,}b{3,4}", "a{2,}b{3,4}"),
        ("{2}", r"\{2}"),
        ("(a|{2})", r"(a|\{2})"),
        (r"\({2}", r"\({2}"),
        (r"\x{e9}\p{Greek}\b{start}", r"\x{e9}\p{Greek}\b{start}"),
        (r"\b{", r"\b\{"),
        (r"\{", r"\{"),
        ("[{]{", r"[{]\{"),
    ],
)
def test_a_brace_that_counts_nothing_is_a_brace(text, source):
    assert read_pattern(text, False).source == source


@pytest.mark.parametrize("text", ["(?=a)a", "(?!b)a", "(?<=b)a", "(?<!c)a", r"(a)\1", "(?P<x>a)(?P=x)", "(?>a)"])
def test_what_only_pcre2_knows_is_found(tmp_path, text):
    assert found(tmp_path, text, "xbaa")
    assert not found(tmp_path, text, "cx")


@pytest.mark.parametrize("text", [r"\p{Greek}", r"\pL", "[α&&α]", "[α-ω--β]", r"\b{start}α", "(?u:α)", "[[^a]b]"])
def test_what_only_the_default_engine_knows_is_found(tmp_path, text):
    assert found(tmp_path, text, "α")
    assert not found(tmp_path, text, "")


@pytest.mark.parametrize(
    ("text", "content", "expected"),
    [
        (r"\w", "é", True),
        (r"^\w+$", "e\u0301", True),  # a mark is part of a word
        (r"\w", "½", False),
        (r"\d", "٣", True),
        (r"\s", "\u3000", True),
        (r"\s", "\x1c", False),
        (r"\bé", "aé", False),
        ("(?i)É", "é", True),
        ("(?i)s", "ſ", True),
        ("(?i)k", "\u212a", True),
        ("(?i)i", "ı", False),
        ("(?i)[a-z]", "İ", False),
        ("^.$", "日", True),
        ("^[^a]$", "é", True),
        ("a$", "a\r", True),
        (r"\s$", "a\r", False),
        (r"a\r$", "a\r", True),
        (r"a[\r]$", "a\r", True),
        (r"a\x{d}$", "a\r", True),
        (r"a\\r$", "a\r", False),
        ("a.b", "a\rb", False),
        ("a.b", b"a\xffb\n", False),
        ("b", b"a\xffb\n", True),
    ],
)
def test_characters_mean_what_they_mean_to_ripgrep(tmp_path, text, content, expected):
    assert found(tmp_path, text, content) is expected


def test_for_pcre2_nothing_matches_a_line_end():
    pattern = convert_to_pcre(read_pattern(r"\s\S[^a][]\s][ab]\W.(?!\d)", False))
    assert pattern.source == (r"[^\S\r\n]\S(?:(?![\r\n])[^a])(?:(?![\r\n])[]\s])[ab][^\w\r\n].(?!\d)")
    assert convert_to_pcre(read_pattern(r"\s\r(?!a)", False)).source == r"\s\r(?!a)"  # it speaks of them
