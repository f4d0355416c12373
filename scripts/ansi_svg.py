"""Draws what a program wrote to a terminal as an SVG with a background of its own, for light and dark pages.

A picture of the end, or an animation of frames, which stands still for readers who want no motion.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN, BAR = 8.4, 20, 14, 20, 36
BACKGROUND, EDGE, TEXT = "#1b1f24", "#444c56", "#d1d7e0"
COLOURS = {
    "31": "#ff7b72",
    "32": "#57ab5a",
    "33": "#e3b341",
    "34": "#6cb6ff",
    "35": "#dcbdfb",
    "36": "#56d4dd",
    "90": "#8b949e",
}
NO_BREAK = "\u00a0"  # spaces in a row would become one
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_PARTS = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|(\r\n?|\n)|(.)", re.DOTALL)


@dataclass(frozen=True)
class Style:
    """The look of a character."""

    colour: str = TEXT
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False

    def apply(self, codes: str) -> Style:
        style = self
        for code in (codes or "0").split(";"):
            if code == "0":
                style = Style()
            elif code in COLOURS or code == "39":
                style = replace(style, colour=COLOURS.get(code, TEXT))
            elif code == "22":
                style = replace(style, bold=False, dim=False)
            elif code == "23":
                style = replace(style, italic=False)
            elif code == "24":
                style = replace(style, underlined=False)
            else:
                style = replace(
                    style,
                    bold=style.bold or code == "1",
                    dim=style.dim or code == "2",
                    italic=style.italic or code == "3",
                    underlined=style.underlined or code == "4",
                )
        return style

    def attributes(self) -> str:
        known = {
            f' fill="{self.colour}"': self.colour != TEXT,
            ' font-weight="bold"': self.bold,
            ' opacity="0.62"': self.dim,
            ' font-style="italic"': self.italic,
            ' text-decoration="underline"': self.underlined,
        }
        return "".join(text for text, holds in known.items() if holds)


Screen = list[list[tuple[str, Style]]]


def read_screen(written: str, columns: int) -> Screen:
    """Returns the lines that a terminal shows in the end: erased and redrawn lines are gone."""
    lines: Screen = [[]]
    row = column = 0
    style = Style()
    for codes, command, end, character in _PARTS.findall(written):
        if command == "m":
            style = style.apply(codes)
        elif command == "A":
            row = max(row - int(codes or 1), 0)
        elif command == "J":
            lines[row:] = [lines[row][:column]]
        elif end == "\r":
            column = 0
        elif end:
            row, column = row + 1, 0
            lines += [[]] * (row + 1 - len(lines))
        elif character and character.isprintable():
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if column + width > columns:
                row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
            line = lines[row] = lines[row] + [(" ", Style())] * (column - len(lines[row]))
            lines[row] = [*line[:column], (character, style), *([("", style)] * (width - 1)), *line[column + width :]]
            column += width
    while lines and not lines[-1]:
        lines.pop()
    return lines


@dataclass
class Frame:
    """What an animation shows for some seconds; each element is drawn once, however many frames have it."""

    seconds: float
    drawn: list[str]
    is_read: bool = False  # a person reads it: the pause stays


def window_width(columns: int) -> int:
    return round(columns * CELL_WIDTH + 2 * MARGIN)


def window_height(rows: int) -> int:
    """Returns the height of a window with a title."""
    return BAR + MARGIN + LINE_HEIGHT * (rows + 2)


def draw_svg(written: str, columns: int, title: str) -> str:
    """Returns the picture of a terminal window; `title` is the command at its top."""
    lines = read_screen(written, columns)
    drawn = "\n".join([*_draw_title(title), *draw_lines(lines)])
    width, height = window_width(columns), window_height(len(lines))
    return f'{_draw_window(width, height, title)}\n<g fill="{TEXT}">\n{drawn}\n</g>\n</svg>\n'


def draw_lines(lines: Screen, cursor: tuple[int, int] | None = None) -> list[str]:
    """Returns the text elements of a screen, below the title; `cursor` is its column and its row."""
    drawn = [part for number, line in enumerate(lines) for part in _draw_line(line, number + 2)]
    if cursor is not None:
        x, y = MARGIN + CELL_WIDTH * cursor[0], BAR + MARGIN + LINE_HEIGHT * (cursor[1] + 2) - FONT_SIZE
        drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{CELL_WIDTH}" height="18" fill="{TEXT}" opacity="0.6"/>')
    return drawn


def animate(frames: Sequence[Frame], width: int, height: int, title: str, *, is_terminal: bool = False) -> str:
    """Returns frames side by side on a strip, which moves behind the window and begins again after the last one."""
    whole = sum(frame.seconds for frame in frames)
    elements = list(dict.fromkeys(part for frame in frames for part in frame.drawn))
    names = {part: f"e{number}" for number, part in enumerate(elements)}
    steps, passed = [], 0.0
    for number, frame in enumerate(frames):
        steps.append(f"{passed / whole:.3%}{{transform:translateX({-width * number}px)}}")
        passed += frame.seconds
    strip = "\n".join(
        f'<g transform="translate({width * number} 0)">'
        + "".join(f'<use href="#{names[part]}"/>' for part in frame.drawn)
        + "</g>"
        for number, frame in enumerate(frames)
    )
    style = (
        f"@keyframes film{{{''.join(steps)}}}.film{{animation:film {whole:.1f}s steps(1,end) infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.film{{animation:none;"
        f"transform:translateX({-width * (len(frames) - 1)}px)}}}}"
    )
    known = "\n".join(f'<g id="{names[part]}">{part}</g>' for part in elements)
    window = "".join(_draw_title(title)) if is_terminal else ""
    return (
        f"{_draw_window(width, height, title, has_dots=is_terminal)}\n<style>{style}</style>\n"
        f'<defs>{known}</defs>\n<g fill="{TEXT}">{window}\n<g class="film">\n{strip}\n</g></g>\n</svg>\n'
    )


def _draw_title(title: str) -> list[str]:
    return _draw_line([(character, Style(bold=True)) for character in title], 0)


def _draw_window(width: int, height: int, title: str, *, has_dots: bool = True) -> str:
    dots = "".join(
        f'<circle cx="{MARGIN + 18 * number}" cy="18" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#f47067", "#e3b341", "#57ab5a"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{FONTS}" font-size="{FONT_SIZE}">\n<title>{escape(title)}</title>\n'
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" fill="{BACKGROUND}" '
        f'stroke="{EDGE}"/>\n{dots if has_dots else ""}'
    )


def _draw_line(line: list[tuple[str, Style]], number: int) -> list[str]:
    """Returns one text element for each stretch of a style, stretched to its cells whatever the font."""
    parts: list[str] = []
    start = 0
    y = BAR + MARGIN + LINE_HEIGHT * number
    while start < len(line):
        end = start
        while end < len(line) and line[end][1] == line[start][1]:
            end += 1
        text = "".join(character for character, _ in line[start:end])
        if text.strip():
            lead = len(text) - len(text.lstrip())
            cells = end - start - lead - (len(text) - len(text.rstrip()))
            x = MARGIN + CELL_WIDTH * (start + lead)
            parts.append(
                f'<text x="{x:.1f}" y="{y}" textLength="{CELL_WIDTH * cells:.1f}"{line[start][1].attributes()}>'
                f"{escape(text.strip()).replace(' ', NO_BREAK)}</text>"
            )
        start = end
    return parts
