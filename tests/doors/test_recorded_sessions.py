"""A recorded session at each door: edited, refused, steered, cancelled, resumed after kill -9; and the page of them."""

from __future__ import annotations

import pytest

from scripts.recorded_sessions import DOORS, PAGE, record, write
from tests.doors.recorded_sessions import MOST_LINES, STEPS, Record


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
async def test_the_recorded_session_edited_refused_steered_cancelled_and_resumed_after_kill_9(door, tmp_path):
    found = await record(door, tmp_path)
    assert (*found.steps,) == STEPS
    assert all(found.steps.values())
    assert "[kill -9" in "\n".join(write(door, found))


def test_the_page_has_every_step_of_every_door(tmp_path):
    page, found = PAGE.read_text("utf-8"), Record(tmp_path, {step: [] for step in STEPS})
    for door in DOORS:
        headings = [line for line in write(door, found) if line.startswith("#")]
        assert len(headings) == 1 + len(STEPS)
        assert [one for one in headings if one not in page] == []


def test_a_long_text_is_cut_by_its_lines(tmp_path):
    found = Record(tmp_path)
    found.begin(STEPS[0])
    found.note("forge", f"one in {tmp_path}\ntwo")
    found.note("forge", "\n".join(str(number) for number in range(40)))
    lines = [*found.lines(STEPS[0])]
    assert lines[:2] == ["forge  one in /project", "       two"]
    assert lines[-1] == f"       [{40 - 1 - MOST_LINES} more lines]"
