"""How similar lines are, and which of many are the most similar."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.tools.file_edit.closest_text import MOST_MEASURED, Line


def longest_common_subsequence(first: str, second: str) -> int:
    row = [0] * (len(second) + 1)
    for one in first:
        before = row
        row = [0]
        for index, other in enumerate(second):
            row.append(before[index] + 1 if one == other else max(row[index], before[index + 1]))
    return row[-1]


@given(st.text("abc é\U0001f600", max_size=80), st.text("abc é\U0001f600", max_size=80))
def test_the_measure_is_the_share_of_the_longest_common_subsequence(first, second):
    expected = 200 * longest_common_subsequence(first, second) / (len(first) + len(second)) if first or second else 100
    assert Line(first).measure(second) == pytest.approx(expected)


def test_equal_lines_measure_100_and_lines_without_a_common_character_0():
    assert Line("total = 1").measure("total = 1") == 100
    assert Line("abc").measure("xyz") == 0
    assert Line("").measure("") == 100
    assert Line("").measure("a") == 0


def test_the_most_similar_come_first_and_too_different_ones_not_at_all():
    lines = ["total = 0", "other()", "totl = 0", "total = 0", ""]
    assert Line("total = 0").find_similar(lines, 60, 5) == [0, 3, 2]
    assert Line("total = 0").find_similar(lines, 60, 1) == [0]
    assert Line("nothing of it").find_similar(lines, 60, 5) == []


@pytest.mark.parametrize(
    "mistake", ["value_{0} = compute({0})", "value_{0} = compute[{0}, x]", "  valu_{0} =compute({0}, y)"]
)
def test_among_many_lines_the_most_similar_is_found(mistake):
    numbers = random.Random(1).sample(range(10_000, 99_999), 5 * MOST_MEASURED)
    lines = [f"value_{number} = compute({number}, x)" for number in numbers]
    wanted = numbers[len(numbers) // 2]
    found = Line(mistake.format(wanted).strip()).find_similar(lines, 60, 5)
    assert lines[found[0]] == f"value_{wanted} = compute({wanted}, x)"
