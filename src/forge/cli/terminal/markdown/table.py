"""Lays out a Markdown table so that it fits the terminal: wide columns are narrowed, and their cells wrapped."""

from __future__ import annotations

import re

from forge.cli.terminal.columns import width_of
from forge.cli.terminal.markdown.inline import Span, parse_inline
from forge.cli.terminal.markdown.wrapping import paint, visible_width, wrap_spans

NARROWEST = 4  # columns of a cell
BETWEEN = " │ "
DIM, BOLD = "2", "1"
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_CELLS = re.compile(r"((?:\\.|`[^`]*`|[^|\\]|\\$)*)(?:\||$)")


def is_delimiter(line: str, head: str) -> bool:
    """Says whether this line below the head makes the two a table."""
    return bool(_DELIMITER.fullmatch(line)) and "|" in line and len(split_cells(line)) == len(split_cells(head))


def split_cells(line: str) -> list[str]:
    """Returns the cells of a row; `\\|` and code do not separate."""
    inner = line.strip().removeprefix("|")
    cells = [found[1] for found in _CELLS.finditer(inner)][:-1] if inner else [""]
    if inner.endswith("|") and not inner.endswith("\\|") and len(cells) > 1 and not cells[-1].strip():
        cells.pop()
    return [cell.strip() for cell in cells]


def render_table(lines: list[str], columns: int) -> str:
    """Renders a table: its head, its delimiter row, its rows. Each line ends with a line feed."""
    head, delimiter, *rows = map(split_cells, lines)
    count = max(len(row) for row in (head, *rows))
    cells = [[_parse_cell(row[at] if at < len(row) else "", BOLD if row is head else "") for at in range(count)]
             for row in (head, *rows)]  # fmt: skip
    widths = [max(max(sum(width_of(span.text) for span in row[at]) for row in cells), 1) for at in range(count)]
    room = columns - len(BETWEEN) * (count - 1)
    if room < NARROWEST * count:
        return "".join(f"{line}\n" for line in lines)
    _narrow(widths, room)
    sides = [_side(delimiter[at] if at < len(delimiter) else "") for at in range(count)]
    drawn = [line for row in cells for line in _draw_row(row, widths, sides)]
    below_head = len(_draw_row(cells[0], widths, sides))
    drawn.insert(below_head, paint("─┼─".join("─" * width for width in widths), DIM))
    return "".join(f"{line.rstrip()}\n" for line in drawn)


def _parse_cell(text: str, style: str) -> list[Span]:
    return parse_inline(text, style, final=True)[0]


def _narrow(widths: list[int], room: int) -> None:
    """Takes columns from the widest until all fit."""
    while sum(widths) > room:
        widest = max(widths)
        at = widths.index(widest)
        second = max([width for width in widths if width < widest], default=0)
        share = widths.count(widest)
        widths[at] = max(second, widest - max((sum(widths) - room) // share, 1), NARROWEST)


def _side(delimiter: str) -> str:
    right, left = delimiter.endswith(":"), delimiter.startswith(":")
    return "centre" if right and left else "right" if right else "left"


def _draw_row(row: list[list[Span]], widths: list[int], sides: list[str]) -> list[str]:
    wrapped = [wrap_spans(spans, width) for spans, width in zip(row, widths, strict=True)]
    height = max(map(len, wrapped))
    return [
        paint(BETWEEN, DIM).join(
            _align(lines[at] if at < len(lines) else "", width, side)
            for lines, width, side in zip(wrapped, widths, sides, strict=True)
        )
        for at in range(height)
    ]


def _align(text: str, width: int, side: str) -> str:
    free = max(width - visible_width(text), 0)
    left = free if side == "right" else free // 2 if side == "centre" else 0
    return f"{' ' * left}{text}{' ' * (free - left)}"
