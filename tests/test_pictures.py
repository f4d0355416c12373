"""The pictures in the documentation: drawn from what a terminal shows, with nothing of the machine in them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from scripts.ansi_svg import Style, draw_svg, read_screen

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal-approval.svg"


def shown(written: str, columns: int = 80) -> list[str]:
    return ["".join(character for character, _ in line) for line in read_screen(written, columns)]


def test_lines_that_were_drawn_over_are_gone():
    assert shown("one\r\ntwo\r\n\x1b[1A\r\x1b[Jthree\r\n") == ["one", "three"]
    assert shown("working…\rdone    \r\n") == ["done    "]


def test_long_lines_and_wide_characters_take_their_cells():
    assert shown("abcdef", 4) == ["abcd", "ef"]
    assert [len(line) for line in read_screen("広い", 80)] == [4]


def test_styles_are_those_of_the_terminal():
    (line,) = read_screen("\x1b[1;31mred\x1b[0m plain \x1b[2mdim\x1b[0m", 80)
    assert line[0] == ("r", Style(colour="#ff7b72", bold=True))
    assert line[4][1] == Style()
    assert line[-1][1].dim


def test_a_drawing_is_valid_and_has_all_of_the_text():
    picture = ElementTree.fromstring(draw_svg("a < b & \x1b[32mc\x1b[0m\r\n", 40, "$ forge run"))
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["$\u00a0forge\u00a0run", "a\u00a0<\u00a0b\u00a0&", "c"]


def test_the_picture_of_an_approval_shows_it_and_nothing_of_the_machine():
    text = re.sub(r"<[^>]+>", "\n", PICTURE.read_text()).replace("\u00a0", " ")
    for words in ("file_edit wants to write", "-    return", "+    return", "[y]es", "turns"):
        assert words in text
    assert not re.search(r"/(?:tmp|home|root|usr|work|var|Users)\b", text)
