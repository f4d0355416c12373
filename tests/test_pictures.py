"""The pictures in the documentation: drawn from what a terminal shows, with nothing of the machine in them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.ansi_svg import Frame, Style, animate, draw_lines, draw_svg, read_screen
from scripts.terminal_tasks import TASKS

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LARGEST = 1_000_000  # bytes of an animation


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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("terminal-approval", ("file_edit wants to write", "-    return", "+    return", "[y]es", "turns")),
        ("terminal-trial", ("Apply its effects?", "delete old.txt", "+VERSION", "[s]ome")),
    ],
)
def test_the_picture_of_an_approval_shows_it_and_nothing_of_the_machine(name, shown):
    text = re.sub(r"<[^>]+>", "\n", (IMAGES / f"{name}.svg").read_text()).replace("\u00a0", " ")
    for words in shown:
        assert words in text
    assert not re.search(r"/(?:tmp|home|root|usr|work|var|Users)\b", text)


def test_a_style_ends_where_the_terminal_ends_it():
    (line,) = read_screen("\x1b[1;36mbold\x1b[22m cyan\x1b[39m plain", 80)
    assert line[0][1] == Style(colour="#56d4dd", bold=True)
    assert line[5][1] == Style(colour="#56d4dd")
    assert line[-1][1] == Style()


def test_the_ten_tasks_at_a_terminal_are_shown_at_both_widths_and_fit():
    page = (IMAGES.parent / "terminal-tasks.md").read_text()
    titles = [task.title for task in TASKS]
    assert re.findall(r"^## \d+\. (.+)$", page, re.MULTILINE) == titles
    assert len(titles) == 10
    for title in titles:
        for columns in (80, 120):
            played = re.split(r"^##", page.partition(f"### {title}: {columns} columns\n")[2], flags=re.MULTILINE)[0]
            screens = re.findall(r"```text\n(.*?)\n```", played, re.DOTALL)
            assert screens
            assert all(len(line) <= columns for screen in screens for line in screen.splitlines())
    assert not re.search(r"/(?:tmp|root|usr|work|var|Users)\b", page)


def test_the_sheets_show_every_page_of_the_console_in_small():
    for size in ("wide", "narrow"):
        for scheme in ("light", "dark"):
            picture = (IMAGES / f"console-all-{size}-{scheme}.jpg").read_bytes()
            assert picture.startswith(b"\xff\xd8\xff")
            assert 100_000 < len(picture) < LARGEST


def test_an_animation_shows_its_frames_for_their_seconds_and_draws_what_they_share_once():
    shown = [draw_lines(read_screen(written, 40)) for written in ("one\r\n", "one\r\ntwo\r\n")]
    drawn = animate([Frame(1.0, shown[0]), Frame(3.0, shown[1])], 400, 200, "$ forge run", is_terminal=True)
    picture = ElementTree.fromstring(drawn)
    assert [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")] == [
        "one",
        "two",
        "$\u00a0forge\u00a0run",
    ]
    assert "0.000%{transform:translateX(0px)}25.000%{transform:translateX(-400px)}" in drawn
    assert "film 4.0s" in drawn
    assert "prefers-reduced-motion" in drawn


def test_the_animations_are_small_and_show_nothing_of_the_machine():
    texts = {name: (IMAGES / f"animation-{name}.svg").read_text() for name in ("approval", "undo")}
    for text in texts.values():
        assert ElementTree.fromstring(text) is not None
        assert len(text) < LARGEST
        words = re.sub(r"<[^>]+>", "\n", text)
        assert not re.search(r"/(?:tmp|root|usr|work|var|Users)\b", words)
    words = re.sub(r"<[^>]+>", "\n", texts["undo"]).replace("\u00a0", " ")
    for shown in ("file_edit wants to write invoice.py", "/undo", "restored"):
        assert shown in words
    assert texts["approval"].count("data:image/webp") > 5
