"""The reading of what LangChain's standard tests reported."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from scores import langchain


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("", ""),
        ('<failure message="assert 1 == 2">long</failure>', "assert 1 == 2"),
        ('<error message="no fixture"/>', "no fixture"),
        ('<skipped message="not here"/>', "not here"),
        ("<failure/>", "failed"),
    ],
)
def test_only_a_test_that_ran_and_passed_counts(inside, said):
    case = ElementTree.fromstring(f'<testcase name="a">{inside}</testcase>')
    assert langchain._read_failure(case) == said
