"""Whatever starts another program, a deny holds behind it or the line asks; ordinary uses run."""

from __future__ import annotations

import pytest

from forge.permissions.policy import layered
from tests.permissions.judging import decide
from tests.permissions.starters import STARTS, STILL_RUN, lines_of

NO_RM = ["allow execute *", "deny execute rm *"]


@pytest.mark.parametrize("line", lines_of(STARTS))
def test_no_program_that_starts_others_gets_around_a_deny(line: str) -> None:
    assert decide(NO_RM, "execute", line) in ("deny", "ask")


@pytest.mark.parametrize("line", lines_of(STILL_RUN))
def test_ordinary_uses_of_such_programs_run(line: str) -> None:
    assert decide(NO_RM, "execute", line) == "allow"


def test_code_that_cannot_be_read_asks_where_something_is_denied_and_runs_where_nothing_is() -> None:
    line = "python3 -c 'print(1)'"
    assert decide(NO_RM, "execute", line) == "ask"
    assert decide(["allow execute *"], "execute", line) == "allow"
    assert decide(["deny execute rm *"], "execute", line) == "ask"


def test_a_layer_that_allows_everything_does_not_hide_the_deny_of_a_stricter_one() -> None:
    policy = layered(organisation=["deny execute rm *"], project=["allow execute *"])
    assert decide(policy, "execute", "python3 -c 'print(1)'") == "ask"
    assert decide(policy, "execute", "python3 script.py") == "allow"


def test_a_later_rule_that_allows_the_program_itself_allows_what_it_starts() -> None:
    lines = [*NO_RM, "allow execute python3 *"]
    assert decide(lines, "execute", "python3 -c 'print(1)'") == "allow"
    assert decide(lines, "execute", "perl -e 1") == "ask"
    assert decide(lines, "execute", "rm x") == "deny"
