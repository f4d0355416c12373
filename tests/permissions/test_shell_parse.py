"""How a line is read: its commands with their words, wherever they stand."""

from __future__ import annotations

import pytest

from forge.permissions.shell import parse as shell
from forge.permissions.shell.literal_line import split_literal
from forge.permissions.shell.words import ANY, GLOB, SOME, CommandRange, Redirection


def words(line: str) -> list[tuple[str, ...]]:
    return [command.words for command in shell.read(line).commands]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a b", [("a", "b")]),
        ("a 'b c' \"d e\"", [("a", "b c", "d e")]),
        ("a''b \"\" c\\ d", [("ab", "", "c d")]),
        ("a\\\nb \\\n c", [("ab", "c")]),
        ("a $'b\\tc\\x41\\101\\u0042\\''", [("a", "b\tcAAB'")]),
        ("a $'\\cx' $'\\xff'", [("a", f"{SOME}x", SOME)]),
        ('a$"b"', [("ab",)]),
        ('a "b\\"c\\$d\\e"', [("a", 'b"c$d\\e')]),
        ('a $x "$x" b$x "b $x c"', [("a", ANY, SOME, f"b{ANY}", f"b {SOME} c")]),
        ('a "$@" "${x[@]}" $x/b', [("a", ANY, ANY, f"{SOME}/b")]),
        ("a * ?b [cd]e '*'", [("a", GLOB, f"{GLOB}b", f"{GLOB}e", "*")]),
        ("a {b,c} {1..3} {} d{e}", [("a", ANY, ANY, "{}", "d{e}")]),
        ("a b#c # d", [("a", "b#c")]),
        ("a; b && c || d | e & f", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("a $(b $(c))", [("a", ANY), ("b", ANY), ("c",)]),
        ("a `b`", [("a", ANY), ("b",)]),
        ("a <(b) >(c)", [("a", SOME, SOME), ("b",), ("c",)]),
        ("(a; b)", [("a",), ("b",)]),
        ("{ a; b; }", [("a",), ("b",)]),
        ("if a; then b; elif c; then d; else e; fi", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("for x in $(a); do b; done", [("a",), ("b",)]),
        ("while a; do b; done", [("a",), ("b",)]),
        ("case $(a) in b) c;; *) d;; esac", [("a",), ("c",), ("d",)]),
        ("f() { a; }", [("a",)]),
        ("! a", [("a",)]),
        ("é ü", [("é", "ü")]),
        ("a >b c", [("a", "c")]),
        (">b a c", [("a", "c")]),
        ("a {fd}>b c", [("a", "c")]),
        ("a 2>&- b", [("a", "b")]),
        ("cat <<E\n$(a)\nE\nb", [("cat",), ("a",), ("b",)]),
        ("cat <<'E'\n$(a)\nE\nb", [("cat",), ("b",)]),
        ("cat <<E | a\nx\nE", [("cat",), ("a",)]),
    ],
)
def test_every_command_is_found_with_its_words(line, found):
    assert not shell.read(line).is_broken
    assert words(line) == found


def test_assignments_and_redirections_stand_beside_the_words():
    (command,) = shell.read("X=1 PATH='a b' c >d 2>&1 <e").commands
    assert command.words == ("c",)
    assert command.assignments == [("X", "1"), ("PATH", "a b")]
    assert command.redirections == [Redirection(">", "d"), Redirection(">&", "1", "2"), Redirection("<", "e")]
    assert shell.read("a <<< b").commands[0].redirections == [Redirection("<<<", "b")]
    assert shell.read("a <<E\nb\nE").commands[0].redirections == [Redirection("<<", "b\n")]


def test_pipes_background_functions_and_what_is_inside_are_told_apart():
    assert shell.read("a | (b; c) | d").pipes == [[CommandRange(0, 1), CommandRange(1, 3), CommandRange(3, 4)]]
    assert shell.read("a; b & c").background == [CommandRange(1, 2)]
    (function,) = shell.read("f() { a; b; }; c").functions
    assert (function.name, function.body) == ("f", CommandRange(0, 2))
    assert shell.read("a $(b; c) d; e").commands[0].inside == CommandRange(1, 3)
    assert [command.joint for command in shell.read("a && b || c && d; e").commands] == ["", "&&", "", "&&", ""]


@pytest.mark.parametrize(
    "line", ["'a", '"a', "a $(b", "(a", "a)", "if a", "a\0b", "a" * 60_000, "$(" * 500, "case x in " + "@(" * 9_000]
)
def test_what_cannot_be_read_says_so(line):
    assert shell.read(line).is_broken


@pytest.mark.parametrize("line", ["'a'", "a $(b)", "a" * 40_000, "a && " * 9_000 + "b", "# a", ""])
def test_what_can_be_read_is_not_broken(line):
    assert not shell.read(line).is_broken


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a b", [("a", "b")]),
        (" a\t'b c'  \"d\"e ", [("a", "b c", "de")]),
        ("a 'b|c;d&&e>f$g{h}*'", [("a", "b|c;d&&e>f$g{h}*")]),
        ('a "b\\|c\\"d\\\\e"', [("a", 'b\\|c"d\\e')]),
        ("a&&b||c;d|e", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("a 2>&1 b >/dev/null", [("a", "b")]),
        ("a b~c d#e f!g x=y", [("a", "b~c", "d#e", "f!g", "x=y")]),
        ("a;", [("a",)]),
        ("a ''", [("a", "")]),
        ("a '$(b)' '`c`'", [("a", "$(b)", "`c`")]),
        ("a 'b\nc' \"d\ne\"", [("a", "b\nc", "d\ne")]),
    ],
)
def test_a_literal_line_has_exactly_these_words(line, found):
    assert [part.words for part in split_literal(line)] == found
    assert words(line) == found


@pytest.mark.parametrize(
    "line",
    "|$x|a $x|a `b`|a *|a ?|a [b]|a {b,c}|a ~|a ~/b|a b=~|a b:~c|a \\b|a > b|a < b|a &|a & b|(a)|{ a; }|! a|a; ;b|a &&"
    '|&& a|a # b|# a|X=1 a|X=1|if a|a "$(b)"|a "`b`"|a "$b"|a \'b\'\nc|a "b\\\nc"|a\nb|a\x00|a\x0b'
    "|a\u00a0b|a\u2003b|a \u200bb"
    "|a 'b|a \"b|a;;b|a >/dev/null2|a2>&1|a &>b|time|".split("|")[:-2],
)
def test_everything_else_is_not_literal(line):
    assert split_literal(line) == ()
