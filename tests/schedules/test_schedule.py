"""The names of schedules, and what a task may be."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ErrorKind, ToolError
from forge.schedules.schedule import LONGEST_ID, check_id, check_task, default_id


def hex4(task: str) -> str:
    return sha256(task.encode()).hexdigest()[:4]


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Check the build status every morning", "check-the-build-status-every"),
        ("Rest.", "rest"),
        ("Don't e-mail   José — now!", "dont-e-mail-jose-now"),
        ("備份 資料", "task"),
        ("../../etc/passwd; DROP TABLE schedules", "etc-passwd-drop-table-schedules"),
    ],
)
def test_the_id_is_five_words_and_four_digits(task, words):
    assert default_id(task) == f"{words}-{hex4(task)}"


@given(st.text(alphabet=st.characters(codec=None), min_size=1))
def test_every_task_has_an_id_that_may_be_one(task):
    check_id(default_id(task))


def test_long_words_are_cut():
    assert len(default_id("x" * 5_000)) == LONGEST_ID


@pytest.mark.parametrize("name", ["nightly", "a", "9-to-5", "x" * 64])
def test_ids_that_may_be(name):
    check_id(name)


@pytest.mark.parametrize("name", ["", "Nightly", "a_b", "-a", "a-", "a--b", "a b", "a\n", "x" * 65, "é", "a/b", ".."])
def test_ids_that_may_not_be(name):
    with pytest.raises(ToolError) as caught:
        check_id(name)
    assert caught.value.kind is ErrorKind.VALIDATION
    assert caught.value.suggestion


def test_a_name_that_is_nearly_right_is_suggested():
    with pytest.raises(ToolError) as caught:
        check_id("Nightly Report!")
    assert '"nightly-report"' in caught.value.suggestion


@pytest.mark.parametrize("task", ["", " \n", "a\0b", "x" * 10_001])
def test_tasks_that_may_not_be(task):
    with pytest.raises(ToolError):
        check_task(task)


def test_any_other_task_stays_as_it_is():
    assert (
        check_task(" Line one\n\t'; DROP TABLE schedules; -- \u202e")
        == " Line one\n\t'; DROP TABLE schedules; -- \u202e"
    )
