"""A store whose clocks the tests move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from forge.schedules.store import ScheduleStore
from tests.schedules.clocks import Clocks

settings.register_profile("steady", deadline=None, derandomize=True, database=None)  # the same verdict every time
settings.load_profile("steady")


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path, clocks: Clocks) -> Iterator[ScheduleStore]:
    with ScheduleStore(path, lambda: clocks.wall, lambda: clocks.steady) as opened:
        yield opened
