"""CSV to records."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.core.registry import ToolRegistry
from forge.tools.csv_parse import CsvParse, parse_csv


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ("a,b\n1,2\n3,4\n", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ("a,b\r\n1,2\r\n", [{"a": "1", "b": "2"}]),
        ("a,b\r1,2", [{"a": "1", "b": "2"}]),
        ("\ufeffa,b\n1,2", [{"a": "1", "b": "2"}]),
        ("a,b\n\n1,2\n\n", [{"a": "1", "b": "2"}]),
        ('a,b\n"x, y","say ""hi""\nthere"', [{"a": "x, y", "b": 'say "hi"\nthere'}]),
        ("a,b", []),
        ("a,b\n", []),
        ("a,a,a_2,\n1,2,3,4", [{"a": "1", "a_3": "2", "a_2": "3", "column_4": "4"}]),
        ("ключ,鍵\nдa,はい", [{"ключ": "дa", "鍵": "はい"}]),
        ("a,b\n,", [{"a": "", "b": ""}]),
    ],
)
def test_rows_become_records_of_strings(value, text, records):
    assert json.loads(value("csv_parse", data=text)) == records


def test_without_headers_rows_become_lists(value):
    assert json.loads(value("csv_parse", data="1,2\n3,4", headers=False)) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("delimiter", ["\t", "\\t", "tab"])
def test_a_tab_may_be_written_in_any_way(value, delimiter):
    assert json.loads(value("csv_parse", data="a\tb\n1\t2", delimiter=delimiter)) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize("delimiter", ["", ",,", "\n", "\r", '"', "\0", "\\n"])
def test_a_delimiter_that_cannot_separate_is_refused(refusal, delimiter):
    assert refusal("csv_parse", data="a,b\n1,2", delimiter=delimiter).kind == "validation_error"


@pytest.mark.parametrize(
    ("text", "headers", "words"),
    [
        ("a,b\n1,2\n3\n", True, "row 2 (line 3) has 1 field, the header has 2"),
        ("a,b\n1,2,3\n", True, "row 1 (line 2) has 3 fields, the header has 2"),
        ("1,2\n3\n", False, "row 2 (line 2) has 1 field, the first row has 2"),
    ],
)
def test_a_ragged_row_is_named(refusal, text, headers, words):
    assert words in refusal("csv_parse", data=text, headers=headers).message


@pytest.mark.parametrize("text", ['a,b\n"1,2', 'a\n"x"y\n', 'a\n"' + "x" * 1_000_000])
def test_broken_quotes_are_refused_with_the_line(refusal, text):
    failure = refusal("csv_parse", data=text)
    assert "line 2" in failure.message
    assert "quotes" in failure.suggestion


def test_rows_past_the_limit_are_counted_and_said(shared_bench):
    result = shared_bench.call("csv_parse", data="a\n1\n2\n3,ragged", max_rows=2)
    assert result.data["records"] == [{"a": "1"}, {"a": "2"}]
    assert result.data["truncated"] is True
    assert "2 of 3 rows" in result.for_llm
    assert "max_rows" in result.for_llm


def test_exactly_as_many_rows_as_the_limit_is_not_truncated(shared_bench):
    result = shared_bench.call("csv_parse", data="a\n1\n2", max_rows=2)
    assert result.data["truncated"] is False
    assert json.loads(result.for_llm) == [{"a": "1"}, {"a": "2"}]


@pytest.mark.parametrize("arguments", [{}, {"data": ""}, {"data": "a", "path": "a.csv"}])
def test_one_source_is_needed_and_only_one(refusal, arguments):
    assert refusal("csv_parse", **arguments).kind == "validation_error"


def test_a_file_is_read_after_asking(bench, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("\ufeffa,b\n1,2\n", encoding="utf-8")
    result = bench.call("csv_parse", path="data/a.csv")
    assert result.data["records"] == [{"a": "1", "b": "2"}]
    assert bench.gate.asked == [("read", "data/a.csv")]


def test_the_file_may_be_named_as_other_tools_name_it(bench, tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert bench.call("csv_parse", file_path="a.csv").data["records"] == [{"a": "1"}]


def test_text_is_parsed_without_asking(bench):
    assert bench.call("csv_parse", data="a\n1").success
    assert bench.gate.asked == []


def test_a_file_is_not_read_when_the_answer_is_no(bench, tmp_path):
    (tmp_path / "a.csv").write_text("secret\n1\n")
    bench.gate.open = False
    result = bench.call("csv_parse", path="a.csv")
    assert result.failure is not None
    assert result.failure.kind == "permission_error"
    assert "secret" not in result.for_llm


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_file_may_say_its_encoding(bench, tmp_path, encoding):
    (tmp_path / "a.csv").write_text("größe\n1\n", encoding=encoding)
    assert bench.call("csv_parse", path="a.csv").data["records"] == [{"größe": "1"}]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a\n\xe9\n"])
def test_bytes_that_are_no_text_are_refused(bench, tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    failure = bench.call("csv_parse", path="a.csv").failure
    assert failure is not None
    assert "UTF" in failure.message


def test_a_path_outside_is_refused_and_one_inside_is_not(bench, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.csv"
    outside.write_text("a\n1\n")
    os.symlink(outside, tmp_path / "link.csv")
    (tmp_path / "inside.csv").write_text("a\n1\n")
    for path in (f"../{outside.name}", str(outside), "link.csv"):
        failure = bench.call("csv_parse", path=path).failure
        assert failure is not None
        assert failure.kind == "security_error"
    assert bench.call("csv_parse", path=str(tmp_path / "inside.csv")).success


def test_a_file_over_the_limit_is_refused(bench, tmp_path):
    bench.registry.add(CsvParse(max_bytes=5), replace=True)
    (tmp_path / "small.csv").write_text("a\n1\n2")
    (tmp_path / "large.csv").write_text("a\n1\n23")
    assert bench.call("csv_parse", path="small.csv").success
    assert "limit is 5" in bench.call("csv_parse", path="large.csv").for_llm


def test_more_fields_than_the_limit_are_counted_and_said(bench):
    bench.registry.add(CsvParse(max_fields=4), replace=True)
    assert bench.call("csv_parse", data="a,b\n1,2\n3,4").data["truncated"] is False
    result = bench.call("csv_parse", data="a,b\n1,2\n3,4\n5,6")
    assert result.data["truncated"] is True
    assert "2 of 3 rows" in result.for_llm
    assert "header has 5 fields" in bench.call("csv_parse", data="a,b,c,d,e\n").for_llm


def test_ten_thousand_equal_headers_are_no_problem():
    names = ",".join("a" * 10_000)
    records, _ = parse_csv(f"{names}\n{names}")
    assert len(records[0]) == 10_000


def test_the_schema_allows_either_source():
    assert "required" not in ToolRegistry([CsvParse()])["csv_parse"].spec.parameters


cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=10)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=10), st.sampled_from([",", ";", "\t", "|"]))
def test_what_was_quoted_comes_back(rows, delimiter):
    def quoted(cell):
        return '"' + cell.replace('"', '""') + '"'

    text = "\n".join(delimiter.join(map(quoted, row)) for row in rows)
    if not rows[0][0].startswith("\ufeff"):
        assert parse_csv(text, delimiter, headers=False)[0] == [list(row) for row in rows]


@given(st.text(max_size=100), st.text(max_size=2), st.booleans())
def test_any_text_is_parsed_or_explained(text, delimiter, headers):
    with suppress(ToolError):
        parse_csv(text, delimiter, headers)
