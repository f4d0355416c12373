"""Reads CSV text or a CSV file into records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Annotated

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

MAX_BYTES = 16 * 1024 * 1024  # of a file
MAX_FIELDS = 500_000  # returned at once: every one of them is an object in memory

Row = list[str]
Record = dict[str, str] | Row

_DELIMITERS = {"\\t": "\t", "tab": "\t"}


class CsvParse(
    Tool,
    category=Category.BUILTIN,
    argument_aliases={"file_path": "path"},
    optional_permissions={"read"},
    target="path",
    idempotent=True,
    timeout=10.0,
):
    """Parse CSV text or a CSV file into JSON records keyed by the header row. Values are strings."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_fields: int = MAX_FIELDS) -> None:
        self.max_bytes = max_bytes
        self.max_fields = max_fields

    async def run(
        self,
        ctx: ToolContext,
        data: Annotated[str, ParameterLimits(example="city,people\nOslo,717710"), "CSV text, or give path."] = "",
        path: Annotated[str, "A file in the workspace."] = "",
        delimiter: Annotated[str, "One character."] = ",",
        headers: Annotated[bool, "The first row names the columns; if not, rows are lists."] = True,
        max_rows: Annotated[int, ParameterLimits(ge=0), "0: all."] = 0,
    ) -> ToolResult:
        if bool(data) == bool(path):
            problem = "give data or path, not both" if data else "there is nothing to parse"
            raise ToolError(problem, ErrorKind.VALIDATION, "Give the CSV text as data, or a file as path.")
        if path:
            await ctx.require("read", path)
        from forge.core.execution.threads import in_thread  # they load what listing tools does without
        from forge.workspace.paths.open import read_file

        def parse() -> ToolResult:
            text = decode_csv(read_file(ctx.scope, path, self.max_bytes)) if path else data
            return _answer(*parse_csv(text, delimiter, headers, max_rows, self.max_fields))

        result: ToolResult = await in_thread(parse)
        return result


def _answer(records: list[Record], total: int) -> ToolResult:
    """Returns the records as JSON, with a note if there were more."""

    shown = "[]" if not records else "[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n]"
    truncated = total > len(records)
    if truncated:
        shown += f"\n[{len(records)} of {total} rows; ask for more with a larger max_rows, or parse a part of the text]"
    return ToolResult(for_llm=shown, data={"records": records, "rows": total, "truncated": truncated})


def parse_csv(
    text: str, delimiter: str = ",", headers: bool = True, max_rows: int = 0, max_fields: int = MAX_FIELDS
) -> tuple[list[Record], int]:
    """Returns the records and the total number of rows; rows past the limit are only counted."""
    rows = _rows(text.removeprefix("\ufeff"), _check_delimiter(delimiter))
    names = _make_unique(_header(rows, max_fields)) if headers else []
    records: list[Record] = []
    total = 0
    width = len(names)
    for line, row in rows:
        total += 1
        width = width or len(row)
        if (max_rows and total > max_rows) or total * width > max_fields:
            continue
        if len(row) != width:
            raise _ragged_error(total, line, len(row), width, "header" if headers else "first row")
        records.append(dict(zip(names, row, strict=True)) if headers else row)
    return records, total


def decode_csv(content: bytes) -> str:
    """Returns the text of a file: UTF-8, or UTF-16 and UTF-32 if a byte order mark says so."""
    from forge.workspace.text import encoding_of  # loads what only a file needs

    encoding, mark = encoding_of(content)
    try:
        return content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"the file is not {encoding[:6].rstrip('-').upper()} text:"
            f" byte {error.start + len(mark)} cannot be decoded",
            ErrorKind.USER,
            "Convert it to UTF-8 first.",
        ) from None


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, Row]]:
    """Yields every row that is not blank, with the line on which it ends."""
    import csv  # only where there is something to read

    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ToolError(
            f"not valid CSV at line {reader.line_num}: {error}",
            ErrorKind.USER,
            'Check the quotes: a field with quotes inside is written "say ""hi""".',
        ) from None


def _header(rows: Iterator[tuple[int, Row]], max_fields: int) -> Row:
    _, first = next(rows, (0, []))
    if len(first) > max_fields:
        raise ToolError(
            f"the header has {len(first):,} fields, the limit is {max_fields:,}", ErrorKind.USER, "Check the delimiter."
        )
    return first


def _check_delimiter(delimiter: str) -> str:
    character = _DELIMITERS.get(delimiter.lower(), delimiter)
    if len(character) != 1 or character in '\r\n"\0' or (not character.isprintable() and character != "\t"):
        raise ToolError(
            f"delimiter {delimiter[:20]!r} is not one character that can separate fields",
            ErrorKind.VALIDATION,
            r"Use one such as , or ; or | or \t.",
        )
    return character


def _make_unique(names: Row) -> Row:
    """Returns the header names: a repeated name gets a number, a blank one gets a name."""
    wanted = [name if name.strip() else f"column_{column}" for column, name in enumerate(names, 1)]
    taken, used = set(wanted), dict.fromkeys(wanted, 0)
    unique: Row = []
    for name in wanted:
        used[name] += 1
        candidate = name if used[name] == 1 else f"{name}_{used[name]}"
        while used[name] > 1 and candidate in taken:
            used[name] += 1
            candidate = f"{name}_{used[name]}"
        taken.add(candidate)
        unique.append(candidate)
    return unique


def _ragged_error(row: int, line: int, fields: int, width: int, model: str) -> ToolError:
    return ToolError(
        f"row {row} (line {line}) has {fields} field{'s' * (fields != 1)}, the {model} has {width}",
        ErrorKind.USER,
        "Correct that row, or check the delimiter and the quotes.",
    )
