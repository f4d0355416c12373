"""The page of scores leaves nothing out, and a score that drops is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scores import report
from scores.__main__ import SUITES
from scores.published import add_published, peers_repair, published
from scores.report import Row, Score, date_rows, find_drops, merge_results, read_results, render_page, write_results

KNOWN = Score("bfcl", "PyPI", "Calls.", [Row("right", 372, 372), Row("wrong", 2, 100, fewer_is_better=True)])


def changed(**more: object) -> Score:
    """The known score with its first row changed."""
    return replace(KNOWN, rows=[replace(KNOWN.rows[0], **more), *KNOWN.rows[1:]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (changed(passed=371), "bfcl: right: 371 of 372 (0.997), was 372 of 372 (1.000)"),
        (changed(passed=300, cases=300), "bfcl: right: 300 of 300 (1.000), was 372 of 372 (1.000)"),
        (replace(KNOWN, rows=KNOWN.rows[1:]), "bfcl: right: gone, was 372 of 372 (1.000)"),
        (replace(KNOWN, rows=[KNOWN.rows[0], replace(KNOWN.rows[1], passed=3)]), "bfcl: wrong: 3 of 100 (0.030), was"),
        (replace(KNOWN, rows=(), missing="no network"), "bfcl: could not be run: no network"),
    ],
)
def test_a_drop_is_seen(after, said):
    [drop] = find_drops({"bfcl": KNOWN}, {"bfcl": after})
    assert drop.startswith(said)


@pytest.mark.parametrize(
    "after",
    [
        KNOWN,
        changed(passed=400, cases=400),
        replace(KNOWN, rows=[KNOWN.rows[0], replace(KNOWN.rows[1], passed=1)]),
        replace(KNOWN, rows=[*KNOWN.rows, Row("new", 0, 5)]),
        replace(KNOWN, rows=(), missing="no folder was given", not_given=True),
    ],
)
def test_what_is_no_worse_is_no_drop(after):
    assert find_drops({"bfcl": KNOWN}, {"bfcl": after}) == []


def test_every_suite_is_on_the_page_and_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "scores.md")
    write_results({"bfcl": KNOWN}, SUITES)
    page = (tmp_path / "scores.md").read_text("utf-8")
    for name in SUITES:
        assert f"\n| {name} | " in page
    assert "**missing**: never run: `make scores SUITE=codex`" in page
    assert list(read_results()) == list(SUITES)


def test_a_suite_that_cannot_be_had_keeps_its_last_figures_and_says_of_when_they_are():
    known = date_rows(KNOWN, "2026-11-01")
    missing = replace(KNOWN, rows=(), missing="no network")
    [merged] = merge_results({"bfcl": known}, {"bfcl": missing}).values()
    assert merged.rows == known.rows
    page = render_page([merged])
    assert "| right | 372 of 372 (1.000), measured on 2026-11-01 |" in page
    assert "The figures are those of the last run. In the run after it: no network." in page


def test_a_suite_that_is_measured_again_has_its_new_figures_without_a_day():
    missing = replace(date_rows(KNOWN, "2026-11-01"), missing="no network")
    [merged] = merge_results({"bfcl": missing}, {"bfcl": date_rows(changed(passed=371), "2026-11-02")}).values()
    page = render_page([merged])
    assert "| right | 371 of 372 (0.997) |" in page
    assert "measured on" not in page


def test_a_row_that_a_suite_kept_from_an_earlier_run_says_of_when_it_is():
    rows = [replace(KNOWN.rows[0], measured="2026-11-01"), KNOWN.rows[1]]
    page = render_page([date_rows(replace(KNOWN, rows=rows), "2026-11-02")])
    assert "| right | 372 of 372 (1.000), measured on 2026-11-01 |" in page
    assert "| 2 of 100 (0.020) |" in page


def test_a_cell_of_others_is_never_empty():
    page = render_page([*read_results().values(), KNOWN, Score("mcp", "npm", "Kit.", missing="no Node")])
    table = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(table) > len(SUITES)
    for line in table:
        assert line.rpartition("|")[0].rpartition("|")[2].strip(), line


def test_the_page_is_the_one_that_the_results_make():
    assert report.PAGE.read_text("utf-8") == render_page(list(read_results().values())), (
        "run `make scores SUITE=starters`"
    )


def test_a_figure_of_others_is_the_measured_one_else_the_published_one():
    rows = [Row("server, now", 1, 2), Row("client, now", 1, 2, "measured: 2"), Row("else", 1, 2)]
    [server, client, other] = add_published(Score("mcp", "npm", "Kit.", rows)).rows
    assert server.others.startswith("official SDKs of tier 1")
    assert client.others == "measured: 2"
    assert other.others == ""


def test_the_peers_repairs_are_counted_from_their_table():
    page = "x\n\n| the model sends | forge 1 | peer 2 | other 3 |\n| --- | --- | --- | --- |\n"
    page += "| `a` | repaired | repaired | refused |\n| b | repaired | passed wrong: '5' | refused |\n\nmore\n"
    assert peers_repair(page) == "of 2 kinds in benchmarks/RESULTS.md: forge 1: 2, peer 2: 1, the others: 0"
    assert peers_repair("no table") == ""
    assert "forge" in published("bfcl", "damaged calls repaired to the right call")
